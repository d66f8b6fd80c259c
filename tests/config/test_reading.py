"""What a file says is read whole, and all that is wrong with it is told at once, where it stands."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from afpool import Identity, IdentityMissing
from afpool.config import Claim, Config, ConfigError, Origin, Problem, load_config
from tests.config.config_kit import CANARY, ENV, FULL, problems, read, write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tokens.json", "keys.json", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_file_that_says_everything(folder) -> None:
    config = read(folder, FULL)
    assert list(config.servers) == ["wiki", "files", "push", "local", "off", "other"]
    wiki = config.servers["wiki"]
    assert wiki.name == "wiki"
    assert wiki.keyed_on == ("tenant", "principal")
    assert wiki.url is not None
    assert wiki.url.fields == ("tenant",)
    assert wiki.headers["Authorization"].reveal() == f"Bearer {CANARY}"
    assert wiki.credential is not None
    assert (wiki.credential.service, wiki.credential.scopes, wiki.credential.mode) == (
        "crm",
        ("read",),
        "user",
    )
    assert wiki.ceilings["search"].max_chars == 10_000
    assert wiki.ceilings["*"].narrow_by == ("limit",)
    assert config.servers["push"].transport == "websocket"
    assert config.servers["local"].keyed_on == ()
    assert [server.name for server in config.enabled] == ["wiki", "files", "push", "local", "other"]

    assert config.runtime.deadline == 120.0
    assert config.runtime.limits.max_message == 2**20
    assert config.runtime.limits.max_waiting == 256, "what is left out has its default"
    serve = config.serve
    assert serve.bind == "0.0.0.0:9000"
    assert serve.host_and_port == ("0.0.0.0", 9000)
    assert not serve.loopback_only
    assert serve.websocket_path is None
    assert serve.limits.burst == 20
    identity = serve.identity
    assert identity.tokens is not None
    assert identity.tokens.file == str(folder / "tokens.json")
    assert [jwt.audience for jwt in identity.jwt] == [("afpool",), ("a", "b")]
    assert identity.jwt[0].claims["tenant"].steps == ("org", "id")
    assert not identity.jwt[0].claims["conversation_id"].required
    assert identity.jwt[1].claims == {"principal": Claim(name="sub")}
    assert identity.jwt[1].jwks == str(folder / "keys.json")
    assert identity.proxy is not None
    assert identity.proxy.headers == {"tenant": "x-tenant", "principal": "x-user"}
    assert identity.anonymous == Identity(tenant="public")
    assert identity.resource == "https://tools.example.com/tools"
    assert config.artifacts.path == str(folder / "artifacts.db")
    assert config.artifacts.ttl == 86400
    assert config.source == (folder / "afpool.toml",)
    assert [problem.key for problem in config.warnings] == ["mcpServers.other.autoApprove"]


def test_reading_twice_gives_the_same(folder) -> None:
    once = read(folder, FULL)
    assert once == read(folder, FULL)
    assert once == read(folder, "# another line\n" + FULL), "where it stands is not what it says"
    other = read(folder, FULL, env={**ENV, "TOKEN": "another"})
    assert once != other
    assert once.servers["wiki"] != other.servers["wiki"]
    assert once.credentials["crm"] != other.credentials["crm"]
    assert once.credentials["mail"] == other.credentials["mail"]


def test_nothing_at_all(folder) -> None:
    config = load_config(env={})
    assert config == Config()
    assert config.source == ()
    assert config.origins["serve.bind"] == Origin("default")
    write(folder, "[serve]\ndrain = 3\n")
    assert load_config(env={}).serve.drain == 3.0, "the file that is there is taken"
    write(folder, "[serve]\ndrain = 4\n", "other.toml")
    assert load_config(env={"AFPOOL_CONFIG": "other.toml"}).serve.drain == 4.0
    assert load_config("afpool.toml", env={"AFPOOL_CONFIG": "other.toml"}).serve.drain == 3.0


def test_everything_that_is_wrong_is_told_at_once(folder) -> None:
    text = """
    [servers.wiki]
    url = "https://wiki.example/mcp"
    keyed_onn = ["tenant"]
    [servers.files]
    command = "uvx"
    args = ["a", 3]
    env = { KEY = "${MISSING}" }
    [serve]
    drain = "soon"
    [serve.limits]
    max_body = 3
    [runtime]
    qualify = "allways"
    [credentials.crm]
    type = "static"
    [[serve.identity.jwt]]
    issuer = "x"
    audience = []
    """
    assert problems(folder, text) == [
        "afpool.toml:4: servers.wiki.keyed_onn: there is no such setting; did you mean 'keyed_on'?",
        "afpool.toml:7: servers.files.args[1]: expected a string, not an integer",
        (
            "afpool.toml:8: servers.files.env.KEY: the variable MISSING is not set; set it, or write "
            "${MISSING:-default}"
        ),
        "afpool.toml:10: serve.drain: expected a number of seconds of at least 0, or a string such as '90s'",
        "afpool.toml:12: serve.limits.max_body: there is no such setting; did you mean 'body'?",
        "afpool.toml:14: runtime.qualify: expected one of when-needed, always; did you mean 'always'?",
        "afpool.toml:15: credentials.crm: one of token, headers, variable, path, client_id is missing",
        "afpool.toml:17: serve.identity.jwt[0]: jwks is missing (an https address, or the path of a file)",
        (
            "afpool.toml:19: serve.identity.jwt[0].audience: expected a list (an audience each), which "
            "cannot be empty; it has 0 members"
        ),
    ]  # fmt: skip


X = "[servers.x]\ncommand = 'a'\n"
U = "[servers.x]\nurl = 'http://a'\n"
JWT = "[[serve.identity.jwt]]\nissuer = 'a'\naudience = 'b'\n"
BY = "[serve.identity.proxy]\ntrusted = 'unix'\n"
ONE = "[credentials.a]\ntype = "

WRONG = [
    # unknown names
    ("sevrers = {}", "sevrers: there is no such setting; did you mean 'servers'?"),
    ("[servers.x]\ncomand = 'a'", "servers.x.comand: there is no such setting; did you mean 'command'?"),
    ("[servers.x]\ncommand='a'\nenvFile = 'a'",
     "envFile: there is no such setting; did you mean 'env_file'?"),
    ("[serve.tsl]\na=1", "serve.tsl: there is no such setting; did you mean 'tls'?"),
    # kinds
    ("servers = 3", "servers: expected a table (a table each), not an integer"),
    ("servers.x = 'a'", "servers.x: expected a table, not a string"),
    ("[servers.x]\ncommand = ['a']", "expected a program, not a list"),
    ("[servers.x]\ncommand = ''", "expected a program, and it is empty"),
    (X + "args = 'b'", "expected a list (a string each), not a string"),
    (X + "env = ['b']", "expected a table (a string each), not a list"),
    (X + "env = { 'a=b' = 'c' }", "'a=b' is not the name of a variable"),
    (X + "keyed_on = ['tenent']", "did you mean 'tenant'?"),
    (X + "disabled = 'no way'", "expected true or false, not a string"),
    ("[serve]\nreload = 1", "expected true or false, not an integer"),
    ("[serve]\ndrain = true", "not a boolean"),
    ("[serve]\ndrain = nan", "expected a number"),
    ("[serve]\ndrain = 1979-05-27", "not a date or time"),
    ("[serve.limits]\nbody = 1.5", "expected a whole number of bytes of at least 1"),
    ("[serve.limits]\nbody = 0", "expected a whole number of bytes of at least 1"),
    ("[serve.limits]\nbody = '4 MiBs'", "or a string such as '16MiB'"),
    ("[runtime.limits]\nmax_share = 1.5", "greater than 0 and of at most 1"),
    # how a server is reached
    ("[servers.x]\n", "servers.x: one of command, url is missing"),
    (X + "url = 'http://a'", "command and url cannot stand together"),
    (U + "args = ['a']", "args says nothing without command"),
    (X + "headers = {}", "headers says nothing without url"),
    ("[servers.x]\ntype = 'stdio'\nurl = 'http://a'", 'type = "stdio" needs command'),
    ("[servers.x]\ntype = 'sdtio'\ncommand = 'a'", "did you mean 'stdio'?"),
    ("[servers.x]\ntype = '${T}'\ncommand = 'a'", "no variable can stand for it"),
    ("[servers.x]\ntype = 'http'\nurl = 'ws://a'", "is reached by http:// or https://"),
    ("[servers.x]\ntype = 'ws'\nurl = 'http://a'", "is reached by ws:// or wss://"),
    ("[servers.x]\nurl = 'ftp://a'", "expected a URL (http, https, ws, wss)"),
    ("[servers.x]\nurl = 'http://me:pw@a'", "the URL holds a user name"),
    ("[servers.x]\nurl = 'http://a#b'", "the URL holds a fragment"),
    ("[servers.x]\nurl = 'http:///b'", "the URL names no host"),
    ("[servers.x]\nurl = 'http://a b'", "holds a blank"),
    ("[servers.x]\nurl = 'http://a:99999'", "the URL cannot be parsed"),
    (U + "headers = { Host = 'b' }", "its name is afpool's own to say"),
    (U + "headers = { X = 'a\\u0000' }", "Unescaped"),
    (U + 'headers = { X = "a\\nb" }', "the value holds a control character"),
    (U + "headers = { X = 'a', x = 'b' }", "one header stands there twice"),
    (U + "proxy = 'socks5://b'", "SOCKS is not spoken"),
    (U + "proxy = 'http://b'\nunix_socket = '/c'", "cannot stand together"),
    ("[servers.x]\nurl = 'wss://a'\nproxy = 'env'", "a WebSocket is reached neither through a proxy"),
    (U + "proxy = { url = 'http://b', username = 'c' }", "says nothing without password"),
    (U + "tls = { client_cert = 'no.pem' }", "there is no such file"),
    (U + "tls = { insecure = true, hostname = 'b' }", "insecure verifies nothing"),
    (U + "protocol_version = '2020-01-01'", "the versions that are spoken are 2024"),
    (X + "cwd = 'nowhere'", "there is no such folder"),
    (X + "env_file = 'nowhere'", "there is no such file"),
    (U + "subprotocols = ['b']", "only a WebSocket offers them"),
    # whose a connection is
    (X + "keyed_on = ['tenant', 'tenant']", "one field stands there twice"),
    (U + "keyed_on = []\nshare = 'tenant'", "only where keyed_on names tenant"),
    (X + "repeat = 'recognised'", "name its call_id_key"),
    (X + "call_id_key = 'mcp/x'", "is MCP's own"),
    (X + "call_id_key = '-'", "a name such as com.example/callId"),
    (X + "pins = { t = 'abc' }", "expected a digest of 64 hexadecimal digits"),
    (X + "compare_without = ['_meta']", "expected a JSON pointer"),
    # what is done to its tools
    (X + "fill = { t = {} }", "one of credential, identity is missing"),
    (X + "fill = { t = { identity = 'user' } }", "expected one of tenant, principal"),
    (X + "fill = { t = { credential = 'crn' } }\n[credentials.crm]\ntype='static'\ntoken='x'",
     "servers.x.fill.t.credential: there is no such table among [credentials]; did you mean 'crm'?"),
    (U + "credential = 'crm'", "there is no such table among [credentials]"),
    (X + "wants = { t = ' ' }", "expected a kind of artifact"),
    (X + "wants = { t = 'k' }\nfill = { t = { identity = 'tenant' } }",
     "it cannot be filled by the host and be an artifact"),
    (X + "wants = { t = 'k' }\n[artifacts]\nbackend = 'none'", "artifacts.backend is none"),
    (X + "redact = { patterns = ['(a)\\1'] }", "not be matched in linear time"),
    (X + "ceilings = { t = 0 }", "expected a whole number of at least 1"),
    # the service
    ("[serve]\nbind = '8765'", "expected host:port, or unix:/path"),
    ("[serve]\nbind = 'a:99999'", "there is no such port"),
    ("[serve]\nbind = '::1:80'", "an IPv6 address stands in brackets"),
    ("[serve]\nbind = '[::g]:80'", "it holds no IPv6 address in brackets"),
    ("[serve]\nbind = '*:80'", "write 0.0.0.0"),
    (f"[serve]\nbind = 'unix:/{'a' * 200}'", "the path of a Unix socket has 1 to 107 bytes"),
    ("[serve]\npath = 'mcp'", "expected a path such as /mcp"),
    ("[serve]\nwebsocket_path = '/mcp'", "it is the same as path"),
    ("[serve]\npath = '/healthz'", "something else of the service answers there"),
    ("[serve]\nwebsocket_path = '/readyz'", "something else of the service answers there"),
    ("[serve]\npath = '/.well-known/x'", "something else of the service answers there"),
    ("[serve]\nallowed_hosts = ['*']", "expected a host such as mcp.example.com"),
    ("[serve]\nallowed_origins = ['https://a/b']", "expected scheme, host and port and nothing more"),
    ("[serve]\ntls = { certificate = 'no.pem' }", "there is no such file"),
    ("[serve.limits]\nburst = 3", "burst says nothing without rate_per_principal or rate_per_tenant"),
    ("[serve.identity.proxy]\ntrusted = '0.0.0.0/0'\nheaders = { tenant = 'a' }",
     "everybody would be trusted"),
    ("[serve.identity.proxy]\ntrusted = '10.0.0.1/8'\nheaders = { tenant = 'a' }", "without host bits"),
    (BY + "headers = { tenant = 'a', principal = 'A' }", "one header stands"),
    (BY + "headers = { tenant = 'Authorization' }", "authorization says something else"),
    (BY + "headers = { tenant = 'a', principal = 'Host' }", "host says something else"),
    (BY + "headers = { user = 'a' }", "'user' is not one of tenant"),
    (BY + "headers = { tenant = 'a' }\nrequired = 'principal'",
     "it names a field that has no header"),
    (JWT + "jwks = 'http://a.example/k'", "http is for loopback only"),
    (JWT + "jwks = 'k'\nalgorithms = ['none']", "expected one of RS256"),
    (JWT + "jwks = 'k'\nalgorithms = ['HS256']", "expected one of RS256"),
    ((JWT + "jwks = 'k'\n") * 2, "one issuer stands there twice"),
    # credentials, artifacts, the runtime
    (ONE + "'static'\ntoken = 'b'\nheader = 'Host'", "its name is afpool's own to say"),
    (ONE + "'static'\ntoken = 'b'\nheader = 'X'\nusername = 'c'", "cannot stand together"),
    (ONE + "'static'\ntoken = ' b '", "the bearer token begins or ends with a space"),
    (ONE + "'static'\nvariable = 'B'", 'type = "static" takes no variable'),
    (ONE + "'environment'\npath = 'B'", 'type = "environment" needs variable'),
    (ONE + "'oauth'\nclient_id = 'B'", 'type = "oauth" needs client_secret'),
    (ONE + "'oauth'\nclient_id = 'B'\nclient_secret = 'C'\nissuer = 'http://a.example'",
     "http is for loopback only"),
    ("[credentials.a]\ntoken = 'b'", "type is missing"),
    ("[artifacts]\npath = 'a.db'", 'backend = "memory" takes no path'),
    ("[artifacts]\nbackend = 'sqlite'", 'backend = "sqlite" needs path'),
    ("[artifacts]\nbackend = 'redis'\nurl = 'http://a'", "the address is redis://host:port/db"),
    ("[artifacts]\nbackend = 'redis'\nurl = 'redis://a?timeout=3'", "the address takes no option but db"),
    ("[runtime]\nsecret = 'short'", "expected a key of at least 16 characters"),
    ("[runtime.results]\nmax_inline_chars = 9\n[artifacts]\nbackend = 'none'",
     "longer results are to be stored"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_one_thing_that_is_wrong(folder, text, said) -> None:
    told = problems(folder, text.replace("'a\\u0000'", '"a\\u0000"'))
    if said == "Unescaped":
        said = "it holds a character that is no text"
    assert any(said in one for one in told), told
    assert all(one.startswith("afpool.toml:") for one in told), "each has a line"
    assert len(told) == 1, told


def test_a_disabled_server_has_to_look_right_and_no_more(folder) -> None:
    config = read(folder, "[servers.x]\ncommand = 'a'\nargs = ['${MISSING}']\ndisabled = true")
    assert config.servers["x"].disabled
    assert config.enabled == ()
    assert config.servers_for_pool() == ()
    (told,) = problems(folder, "[servers.x]\ncommand = 'a'\nargs = 3\ndisabled = true")
    assert "args" in told


def test_an_error_can_be_looked_at(folder) -> None:
    with pytest.raises(ConfigError) as caught:
        read(folder, "\n[serve]\nbimd = 'a'")
    error = caught.value
    assert (error.line, error.key) == (3, "serve.bimd")
    assert error.file == str(folder / "afpool.toml")
    assert error.problems == (Problem(error.file, 3, "serve.bimd", "there is no such setting", "bind"),)
    assert str(error) == f"{error.file}:3: serve.bimd: there is no such setting; did you mean 'bind'?"
    assert error.code == "config-invalid"
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems


def test_many_problems_are_counted_and_not_all_shown(folder) -> None:
    text = "".join(f"[servers.s{number}]\nbad = 1\ncommand = 'a'\n" for number in range(150))
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    assert len(caught.value.problems) == 150
    lines = str(caught.value).splitlines()
    assert len(lines) == 101
    assert lines[-1] == "50 more problems are not shown"
    text = "".join(f"k{number} = 1\n" for number in range(20_000))
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    assert len(caught.value.problems) == 1000


def test_origins_and_what_may_be_shown(folder) -> None:
    config = read(
        folder, FULL, env={**ENV, "AFPOOL_RUNTIME_LIST_PATIENCE": "4"}, overrides={"serve.drain": 9}
    )
    assert set(config.origins) == set(config.shown)
    file = str(folder / "afpool.toml")
    line = 1 + FULL.split("\n").index('bind = "0.0.0.0:${PORT}"')
    assert config.origins["serve.bind"] == Origin("file", file, line, ("PORT",))
    assert str(config.origins["serve.bind"]) == f"{file}:{line} (PORT)"
    assert str(config.origins["serve.reload"]).startswith(f"{file}:")
    assert str(config.origins["runtime.list_patience"]) == "environment AFPOOL_RUNTIME_LIST_PATIENCE"
    assert str(config.origins["serve.drain"]) == "flag"
    assert str(config.origins["runtime.limits.records"]) == "default"
    shown = config.shown
    assert shown["serve.drain"] == 9.0
    assert shown["runtime.limits.records"] == 4096
    assert shown["runtime.secret"] == "[hidden]"
    assert shown["servers.wiki.headers.Authorization"] == "[hidden]"
    assert shown["servers.wiki.url"] == "https://wiki.example/mcp/${identity.tenant}?[hidden]"
    assert shown["servers.files.args"] == ["mcp-server-files", "--root=/data/${identity.tenant}"]
    assert shown["servers.files.env.LITERAL"] == "[hidden]"
    assert shown["serve.bind"] == "0.0.0.0:${PORT}"
    assert shown["serve.identity.jwt[0].claims.tenant.name"] == "org.id"
    assert CANARY not in repr(shown)
    assert CANARY not in repr(config)


def test_what_is_hidden_when_nothing_is_given(folder) -> None:
    config = read(
        folder,
        "[servers.x]\nurl = 'https://a.example/${TOKEN}'\nproxy = { url = 'http://b', token = '${TOKEN}' }",
    )
    assert config.shown["servers.x.url"] == "https://a.example/${TOKEN}"
    assert config.shown["servers.x.proxy.token"] == "[hidden]"
    assert config.shown["runtime.secret"] is None
    assert CANARY not in repr(config)


async def test_an_empty_anonymous_identity_is_nobody(folder) -> None:
    config = read(folder, "[serve.identity.anonymous]\n")
    assert config.serve.identity.anonymous == Identity()
    assert not config.serve.identity.proves
    assert IdentityMissing is not None


def test_what_has_changed(folder) -> None:
    text = """
    [servers.a]
    command = "a"
    [servers.b]
    url = "https://b.example"
    credential = "crm"
    [servers.c]
    command = "c"
    [servers.d]
    command = "d"
    [credentials.crm]
    type = "static"
    token = "${TOKEN}"
    """
    before = read(folder, text)
    assert not before.changed_servers(read(folder, "# a comment\n" + text))
    after = read(
        folder,
        text.replace('command = "a"', 'command = "a2"')
        .replace("[servers.c]", "[servers.e]")
        .replace('[servers.d]\n    command = "d"', "[servers.d]\n    command = 'd'\n    disabled = true"),
        env={**ENV, "TOKEN": "rotated"},
    )
    changes = before.changed_servers(after)
    assert changes
    assert changes.added == ("e",)
    assert changes.removed == ("c", "d")
    assert changes.changed == ("a", "b"), "b's credential is another one"
    assert changes.unchanged == ()
    assert (changes.credentials, changes.artifacts, changes.runtime, changes.serve) == (
        True,
        False,
        False,
        False,
    )
    assert before.changed_servers(read(folder, text + "[serve]\n    drain = 1\n")).serve


def test_reading_loads_neither_trio_nor_httpx(folder) -> None:
    file = write(folder, FULL)
    program = (
        "import sys, afpool.config as c\n"
        f"c.load_config({str(file)!r}, env={ENV!r})\n"
        "print(sorted({'trio', 'httpx', 'anyio', 'ssl', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--token", CANARY], ["--token", "[hidden]"]),
        (["-y", "server", f"--api-key={CANARY}"], ["-y", "server", "--api-key=[hidden]"]),
        ([f"API_KEY={CANARY}", "x"], ["API_KEY=[hidden]", "x"]),
        (["--header", f"Authorization: Bearer {CANARY}"], ["--header", "[hidden]"]),
        ([f"Authorization: Bearer {CANARY}"], ["Authorization:[hidden]"]),
        ([f"--header=X-Api-Key: {CANARY}"], ["--header=[hidden]"]),
        ([f"Bearer {CANARY}"], ["[hidden]"]),
        ([f"postgresql://me:{CANARY}@db.example/x"], ["postgresql://[hidden]@db.example/x"]),
        (["--password", "${TOKEN}", "--auth=${TOKEN}"], ["--password", "${TOKEN}", "--auth=${TOKEN}"]),
        (["--secret", "--verbose", "/data"], ["--secret", "--verbose", "/data"]),
        ([], []),
        (["-m", "server", "--root=/data/x"], ["-m", "server", "--root=/data/x"]),
    ],
)
def test_what_may_be_a_secret_among_arguments_is_not_shown(tmp_path, args, shown) -> None:
    config = read(tmp_path, f"[servers.x]\ncommand = 'c'\nargs = {args!r}\n", env=ENV)
    assert config.shown["servers.x.args"] == shown
