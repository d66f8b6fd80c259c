"""From a file to calls: the credentials and the store that it names, and what a server gets to see."""

from __future__ import annotations

import sys

import pytest
import trio
import trio.testing

from afpool import CredentialFailed, CredentialRequest, Identity, open_runtime
from afpool.artifacts import MemoryArtifacts, SqliteArtifacts
from afpool.config import open_components
from afpool.credentials import OAuth
from afpool.testing import FakeServer, FakeTool, echo_tool, whoami_tool
from tests.config.config_kit import CANARY, FULL, read
from tests.credentials.oauth_kit import RESOURCE, authorization_server

ALICE, BOB = Identity("acme", "alice"), Identity("globex", "bob")

CREDENTIALS = """
[credentials.plain]
type = "static"
token = "${TOKEN}"
[credentials.key]
type = "static"
token = "k"
header = "X-Api-Key"
[credentials.user]
type = "static"
token = "pw"
username = "me"
[credentials.several]
type = "static"
headers = { X-One = "1", X-Two = "2" }
[credentials.later]
type = "environment"
variable = "CONFIG_TEST_SECRET"
[credentials.disk]
type = "file"
path = "secret.txt"
header = "X-Disk"
[credentials.cloud]
type = "oauth"
client_id = "afpool"
client_secret = "s"
issuer = "https://login.example"
"""


async def headers(provider, service: str) -> dict[str, str]:
    answer = await provider.get(CredentialRequest(service))
    return dict(answer.credential.to_headers())


async def test_every_kind_of_credential(tmp_path, monkeypatch) -> None:
    (tmp_path / "secret.txt").write_text("from disk\n", encoding="utf-8")
    monkeypatch.setenv("CONFIG_TEST_SECRET", "from env")
    async with open_components(read(tmp_path, CREDENTIALS)) as (provider, store):
        assert isinstance(store, MemoryArtifacts)
        assert await headers(provider, "plain") == {"authorization": f"Bearer {CANARY}"}
        assert await headers(provider, "key") == {"X-Api-Key": "k"}
        assert await headers(provider, "user") == {"authorization": "Basic bWU6cHc="}
        assert await headers(provider, "several") == {"X-One": "1", "X-Two": "2"}
        assert await headers(provider, "later") == {"authorization": "Bearer from env"}
        monkeypatch.setenv("CONFIG_TEST_SECRET", "rotated")
        assert await headers(provider, "later") == {"authorization": "Bearer rotated"}
        assert await headers(provider, "disk") == {"X-Disk": "from disk"}
        with pytest.raises(CredentialFailed, match="has no credential 'other'; it has cloud, disk, key"):
            await provider.get(CredentialRequest("other"))
        assert repr(provider) == "ConfiguredCredentials(cloud, disk, key, later, plain, several, user)"
        provider.drop(service=None, identity=Identity())


async def test_other_credentials_in_one_step(tmp_path) -> None:
    before = read(tmp_path, CREDENTIALS)
    after = read(
        tmp_path,
        CREDENTIALS.replace('token = "k"', 'token = "k2"').replace("credentials.user", "credentials.new"),
    )
    async with open_components(before) as (provider, _):
        kept = {name: held.provider for name, held in provider._kept.items()}
        await provider.reconfigure(after.credentials)
        assert await headers(provider, "key") == {"X-Api-Key": "k2"}
        assert await headers(provider, "new") == {"authorization": "Basic bWU6cHc="}
        with pytest.raises(CredentialFailed):
            await provider.get(CredentialRequest("user"))
        same = [name for name, held in provider._kept.items() if held.provider is kept.get(name)]
        assert same == ["plain", "several", "later", "disk", "cloud"], "with what they hold"
        other = read(tmp_path, CREDENTIALS.replace('client_id = "afpool"', 'client_id = "another"'))
        await provider.reconfigure(other.credentials)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="not open"):
            await kept["cloud"].get(CredentialRequest("cloud", resource="https://a.example/mcp"))


async def test_a_change_that_is_cancelled_changes_nothing(tmp_path) -> None:
    async with open_components(read(tmp_path, CREDENTIALS)) as (provider, _):
        kept = dict(provider._kept)
        with trio.CancelScope() as scope:
            scope.cancel()
            await provider.reconfigure({})
        assert scope.cancelled_caught
        assert provider._kept == kept
        await provider.reconfigure({})
        assert provider._kept == {}


async def test_tokens_of_an_oauth_client(tmp_path, monkeypatch) -> None:
    login = authorization_server()
    monkeypatch.setattr(
        "afpool.config._components.OAuth", lambda settings: OAuth(settings, transport=login.transport)
    )
    text = """
    [credentials.files]
    type = "oauth"
    client_id = "host"
    client_secret = "host-secret"
    issuer = "https://login.example"
    per = "tenant"
    """
    challenge = f'Bearer resource_metadata="{login.describe_url(RESOURCE)}"'
    with trio.fail_after(20):
        async with open_components(read(tmp_path, text)) as (provider, _):
            tokens = []
            for who in (ALICE, Identity("acme", "bob"), BOB):
                request = CredentialRequest(
                    "files", ("read",), "machine", who, "challenge", resource=RESOURCE, challenge=challenge
                )
                tokens.append((await provider.get(request)).credential.token)
    assert tokens[0] == tokens[1] != tokens[2], "a token per tenant"
    forms = [arrival.form for arrival in login.asked("/token")]
    assert [form["grant_type"] for form in forms] == ["client_credentials"] * 2


async def test_what_the_block_raises_leaves_as_itself(tmp_path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with open_components(read(tmp_path, CREDENTIALS)):
            raise LookupError("mine")
    with trio.move_on_after(0) as scope:
        async with open_components(read(tmp_path, CREDENTIALS)):
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_stores(tmp_path) -> None:
    file = "[artifacts]\nbackend = 'sqlite'\npath = 'a.db'\nttl = 60\nmax_count_per_scope = 3\n"
    async with open_components(read(tmp_path, file)) as (_, store):
        assert isinstance(store, SqliteArtifacts)
        assert store.retention.ttl == 60
        assert store.retention.max_count_per_scope == 3
        assert (tmp_path / "a.db").exists()
    async with open_components(read(tmp_path, "[artifacts]\nmax_bytes_per_scope = '1MiB'\n")) as (_, store):
        assert isinstance(store, MemoryArtifacts)
        assert store.retention.max_bytes_per_scope == 2**20
    async with open_components(read(tmp_path, "[artifacts]\nbackend = 'none'\n")) as (_, store):
        assert store is None


async def test_a_store_in_redis_is_made_of_what_the_file_says(tmp_path, monkeypatch) -> None:
    made = []

    class Redis:
        def __init__(self, url, **given):
            made.append((url, given))

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            made.append("closed")

    monkeypatch.setattr("afpool.artifacts._redis.RedisArtifacts", Redis)
    monkeypatch.setattr("afpool.artifacts.RedisArtifacts", Redis, raising=False)
    text = (
        "[artifacts]\nbackend = 'redis'\nurl = 'redis://r:6379/1'\npassword = '${TOKEN}'\nprefix = 'mine'\n"
    )
    async with open_components(read(tmp_path, text)) as (_, store):
        assert isinstance(store, Redis)
    (url, given), closed = made
    assert (url, given["prefix"], given["password"].reveal(), closed) == (
        "redis://r:6379/1",
        "mine",
        CANARY,
        "closed",
    )


async def test_calls_of_two_tenants(tmp_path) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}, "tenant": {"type": "string"}}}
    search = FakeTool("search", lambda args, _: f"{args['q']} at {args['tenant']}", input_schema=schema)
    async with FakeServer.http(tools=[search, whoami_tool()]) as wiki:
        text = f"""
        [servers.wiki]
        url = "{wiki.url}?org=${{identity.tenant}}"
        headers = {{ X-Tenant = "${{identity.tenant}}", X-Host = "${{TOKEN}}" }}
        keyed_on = ["tenant", "principal"]
        credential = "crm"
        fill.tenant = {{ identity = "tenant" }}
        redact.keys = ["q"]
        [servers.child]
        command = "{sys.executable}"
        args = ["-m", "afpool.testing", "stdio"]
        [credentials.crm]
        type = "static"
        token = "crm-token"
        [runtime]
        qualify = "always"
        """
        config = read(tmp_path, text.replace("        ", ""))
        seen = []
        with trio.fail_after(20):
            async with (
                open_components(config) as (provider, store),
                open_runtime(
                    config.runtime_config(credentials=provider, artifacts=store, on_event=seen.append)
                ) as runtime,
            ):
                for identity in (ALICE, BOB):
                    toolset = await runtime.toolset(identity)
                    assert toolset.problems == {}
                    assert "child__echo" in toolset
                    assert "tenant" not in toolset["wiki__search"].input_schema["properties"]
                    result = await toolset.call("wiki__search", {"q": "x"})
                    assert result.text == f"x at {identity.tenant}"
        calls = [arrival for arrival in wiki.log if arrival.tool == "search"]
        assert [call.headers["x-tenant"] for call in calls] == ["acme", "globex"]
        assert [call.target.partition("?")[2] for call in calls] == ["org=acme", "org=globex"]
        assert {call.headers["authorization"] for call in calls} == {"Bearer crm-token"}
        assert {call.headers["x-host"] for call in calls} == {CANARY}
        shown = [event.payload["args"] for event in seen if event.kind == "tool_start"]
        assert shown == [{"q": "REDACTED"}, {"q": "REDACTED"}]


async def test_an_identity_that_does_not_fit_costs_that_server_only(tmp_path) -> None:
    async with FakeServer.http(tools=[echo_tool()]) as one, FakeServer.http(tools=[echo_tool()]) as other:
        text = (
            f"[servers.one]\nurl = '{one.url}'\nheaders = {{ X = '${{identity.tenant}}' }}\n"
            f"[servers.other]\nurl = '{other.url}'\n"
        )
        with trio.fail_after(20):
            async with open_runtime(read(tmp_path, text).runtime_config()) as runtime:
                toolset = await runtime.toolset(Identity("a, b", "eve"))
                assert {name: error.code for name, error in toolset.problems.items()} == {
                    "one": "plan-failed"
                }
                assert "echo" in toolset
        assert one.log == [], "nothing was sent"


def test_the_file_that_says_everything_opens(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = read(tmp_path, FULL)

    async def main() -> None:
        with trio.fail_after(20):
            async with (
                open_components(config) as (provider, store),
                open_runtime(config.runtime_config(credentials=provider, artifacts=store)) as runtime,
            ):
                assert runtime.pool is not None
                assert runtime.pool.limits.max_clients == 100

    trio.run(main)
