"""What the tests of the configuration share: writing and reading a file, and one that says everything."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from afpool.config import Config, ConfigError, load_config

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "cAnArY-5f3a"
"""Stands for every secret; no message and no representation may hold it."""

ENV = {"TOKEN": CANARY, "PORT": "9000", "HOME": "/home/nobody"}

FULL = """
[servers.wiki]
url = "https://wiki.example/mcp/${identity.tenant}?key=cAnArY-5f3a"
headers = { Authorization = "Bearer ${TOKEN}", X-Tenant = "${identity.tenant}" }
keyed_on = ["tenant", "principal"]
share = "tenant"
on_list_change = "recheck"
compare_without = ["/_meta"]
call_id_key = "com.example/callId"
repeat = "recognised"
max_repeats = 2
validate_output = true
protocol_version = "2025-06-18"
proxy = { url = "http://proxy.example:3128", username = "me", password = "cAnArY-5f3a" }
credential = { service = "crm", scopes = ["read"], mode = "user" }

[servers.wiki.tls]
hostname = "wiki.internal"
min_version = "1.3"

[servers.wiki.pins]
search = "0000000000000000000000000000000000000000000000000000000000000000"

[servers.wiki.fill]
token = { credential = "crm" }
who = { identity = "principal" }

[servers.wiki.wants]
rows = "dataset/rows"

[servers.wiki.redact]
keys = ["password", "auth.token"]
patterns = ["(?i)secret"]
fields = { auth = ["key"] }
deep = true

[servers.wiki.ceilings]
search = 10_000
"*" = { max_chars = 50_000, narrow_by = ["limit"] }

[servers.files]
type = "stdio"
command = "uvx"
args = ["mcp-server-files", "--root=/data/${identity.tenant}"]
env = { API_KEY = "${TOKEN}", LITERAL = "cAnArY-5f3a" }
cwd = "/"

[servers.push]
url = "wss://push.example/mcp"
subprotocols = ["mcp", "cAnArY"]

[servers.local]
url = "http://localhost/mcp"
unix_socket = "/run/local.sock"
keyed_on = []
share = "everybody"

[servers.off]
command = "never"
args = ["${NOT_SET}"]
disabled = true

[mcpServers.other]
command = "npx"
args = ["-y", "server"]
autoApprove = ["x"]

[credentials.crm]
type = "static"
token = "${TOKEN}"

[credentials.mail]
type = "environment"
variable = "MAIL_TOKEN"
header = "x-api-key"

[credentials.disk]
type = "file"
path = "secret.txt"
username = "me"

[credentials.several]
type = "static"
headers = { X-One = "cAnArY-5f3a", X-Two = "${TOKEN}" }

[credentials.cloud]
type = "oauth"
client_id = "afpool"
client_secret = "${TOKEN}"
issuer = "https://login.example"
auth_method = "client_secret_post"
per = "tenant"

[runtime]
qualify = "always"
repeat = "when-nothing-ran"
deadline = "2m"
list_patience = 2.5
secret = "cAnArY-5f3a-and-more"
client_name = "tests"
on_in_doubt = "repeat"

[runtime.results]
max_inline_chars = 20_000
max_chars = 100_000

[runtime.limits]
max_clients = 100
max_message = "1MiB"

[serve]
bind = "0.0.0.0:${PORT}"
path = "/tools"
websocket_path = ""
allowed_hosts = ["tools.example.com"]
allowed_origins = ["https://app.example.com"]
drain = 5
qualify = "always"
reload = false

[serve.limits]
body = "1MiB"
rate_per_principal = 10
burst = 20

[serve.identity]
resource = "https://tools.example.com/tools"

[serve.identity.tokens]
file = "tokens.json"

[[serve.identity.jwt]]
issuer = "https://login.example"
audience = "afpool"
algorithms = ["ES256"]
jwks = "https://login.example/keys"
leeway = "10s"
claims.tenant = "org.id"
claims.principal = { name = "sub" }
claims.conversation_id = { name = "cid", required = false }

[[serve.identity.jwt]]
issuer = "https://other.example"
audience = ["a", "b"]
jwks = "keys.json"

[serve.identity.proxy]
trusted = ["10.0.0.0/8", "unix"]
headers = { tenant = "X-Tenant", principal = "X-User" }
required = "tenant"

[serve.identity.anonymous]
tenant = "public"

[artifacts]
backend = "sqlite"
path = "artifacts.db"
ttl = "1d"
max_bytes_per_scope = "64MiB"
max_count_per_scope = 1000
"""


def write(folder: Path, text: str, name: str = "afpool.toml") -> Path:
    """Write a file."""
    file = folder / name
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


def read(folder: Path, text: str, name: str = "afpool.toml", **given: Any) -> Config:
    """Write a file and read it; its own environment is small."""
    given.setdefault("env", ENV)
    return load_config(write(folder, text, name), **given)


def problems(folder: Path, text: str, name: str = "afpool.toml", **given: Any) -> list[str]:
    """Read a file that cannot be used, and give what is said of it, without the folder."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text, name, **given)
    assert CANARY not in str(caught.value)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]
