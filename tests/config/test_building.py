"""Whatever was read can be built, and what a file says arrives where it is meant."""

from __future__ import annotations

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest

from afpool import (
    CredentialRequirement,
    HttpTransport,
    Identity,
    Limits,
    RuntimeConfig,
    Server,
    ServerRules,
    StdioTransport,
    TlsConfig,
)
from afpool._base.errors import PlanFailed
from afpool.artifacts import MemoryArtifacts, RedisArtifacts, SqliteArtifacts
from afpool.artifacts._redis_link import check_url
from afpool.config import ArtifactsConfig, PoolLimits, ResultSettings, RuntimeSettings, ServerConfig
from afpool.config._checks import (
    META_NAME,
    meta_problem,
    proxy_problem,
    redis_problem,
    socket_problem,
    url_problem,
    version_problem,
)
from afpool.config._kinds import compiled
from afpool.config._serve_settings import ServeConfig
from afpool.config._server_settings import TlsSettings
from afpool.config._tables import fields_of
from afpool.protocol import era_of
from afpool.tools import RedactionPolicy, ResultCeiling, ResultLimits, from_credential, from_identity
from afpool.transports import Proxy, origin_of
from tests.config.config_kit import CANARY, FULL, read

ALICE = Identity("acme", "alice")


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return read(tmp_path, FULL)


def test_servers(config) -> None:
    wiki, files, push, local, other = config.servers_for_pool()
    assert wiki == Server(
        name="wiki",
        keyed_on=("tenant", "principal"),
        on_list_change="recheck",
        pins={"search": "0" * 64},
        compare_without=("/_meta",),
        call_id_key="com.example/callId",
        repeat="recognised",
        max_repeats=2,
        validate_output=True,
    )
    assert wiki.plan is None, "it differs by identity"
    assert files.plan is None
    assert push.plan.transport.subprotocols == ("mcp", "cAnArY")
    assert local.plan.transport.uds == "/run/local.sock"
    assert local.keyed_on == ()
    assert other.plan.transport == StdioTransport.of("npx", "-y", "server")
    for server in (push, local, other):
        assert CANARY not in repr(server)


def test_plans(config) -> None:
    plan = config.runtime_config(credentials=object(), artifacts=object()).plan
    wiki = plan("wiki", ALICE)
    assert wiki.transport == HttpTransport(
        url=f"https://wiki.example/mcp/acme?key={CANARY}",
        headers={"Authorization": f"Bearer {CANARY}", "X-Tenant": "acme"},
        tls=TlsConfig(hostname="wiki.internal", min_version="1.3"),
        proxy=Proxy(url="http://proxy.example:3128", credential=wiki.transport.proxy.credential),
    )
    assert wiki.transport.proxy.credential.username == "me"
    assert wiki.credential == CredentialRequirement("crm", ("read",), "user")
    assert wiki.protocol_version == "2025-06-18"
    files = plan("files", ALICE)
    assert files.transport.config.env == {"API_KEY": CANARY, "LITERAL": CANARY}
    with pytest.raises(PlanFailed, match="no plan for the server 'push'"):
        plan("push", ALICE)


def test_rules(config) -> None:
    rules = config.rules()
    assert set(rules) == {"wiki", "files", "push", "local", "other"}
    assert rules["files"] == ServerRules()
    wiki = rules["wiki"]
    assert wiki.fill == {"token": from_credential("crm"), "who": from_identity("principal")}
    assert wiki.wants == {"rows": "dataset/rows"}
    assert wiki.ceilings == {"search": ResultCeiling(10_000), "*": ResultCeiling(50_000, ("limit",))}
    policy = RedactionPolicy(["password", "auth.token"], ["(?i)secret"], {"auth": ["key"]}, deep=True)
    assert attrs.asdict(wiki.redact, filter=lambda field, _: field.name != "names") == attrs.asdict(
        policy, filter=lambda field, _: field.name != "names"
    )


def test_the_runtime(config) -> None:
    heard: list[object] = []
    provider, store = object(), object()
    runtime = config.runtime_config(
        credentials=provider, artifacts=store, on_event=heard.append, pool={"max_clients": 7, "on_log": print}
    )
    assert isinstance(runtime, RuntimeConfig)
    assert (runtime.credentials, runtime.artifacts, runtime.on_event) == (provider, store, heard.append)
    assert (runtime.qualify, runtime.repeat, runtime.deadline) == ("always", "when-nothing-ran", 120.0)
    assert runtime.list_patience == 2.5
    assert runtime.secret == f"{CANARY}-and-more".encode()
    assert runtime.results == ResultLimits(max_inline_chars=20_000, max_chars=100_000)
    assert runtime.pool["max_clients"] == 7, "what the host says counts"
    assert runtime.pool["max_message"] == 2**20
    assert runtime.pool["deadline"] == 120.0
    assert runtime.pool["client_name"] == "tests"
    assert runtime.pool["on_in_doubt"](object()) == "repeat"
    assert CANARY not in repr(runtime)
    with pytest.raises(TypeError):
        config.runtime_config(nonsense=1)
    with pytest.raises(ValueError, match="nobody vends any"):
        config.runtime_config(artifacts=store)


def test_who_shares(config) -> None:
    share = config.runtime_config(credentials=object(), artifacts=object()).share
    assert share("wiki", ALICE) == "tenant acme"
    assert share("wiki", Identity(None, "alice")) is None
    assert share("local", Identity()) == "everybody"
    assert share("wiki", Identity("everybody")) != share("local", Identity())
    assert share("files", ALICE) is None


def test_little_is_said(tmp_path) -> None:
    plain = read(tmp_path, "[servers.x]\ncommand = 'c'\n")
    runtime = plain.runtime_config()
    assert (runtime.plan, runtime.share, runtime.secret) == (None, None, None)
    assert "on_in_doubt" not in runtime.pool
    assert attrs.evolve(runtime, pool={}) == RuntimeConfig(
        servers=plain.servers_for_pool(), rules=plain.rules()
    )
    (server,) = plain.servers_for_pool()
    assert server == Server(name="x", plan=server.plan)


def test_defaults_are_those_of_what_is_built() -> None:
    limits = attrs.asdict(Limits())
    assert limits.pop("deadline") == RuntimeSettings().deadline
    assert limits == attrs.asdict(PoolLimits())
    built, said = RuntimeConfig(), RuntimeSettings()
    for name in ("qualify", "repeat", "deadline", "list_patience"):
        assert getattr(built, name) == getattr(said, name)
    assert attrs.asdict(ResultLimits()) == attrs.asdict(ResultSettings())
    server, config = Server(name="x"), ServerConfig(name="x", command="c")
    for field in attrs.fields(Server):
        if field.name not in {"plan", "pins"}:
            assert getattr(server, field.name) == getattr(config, field.name), field.name
    assert {field.name for field in fields_of(TlsSettings)} == {
        field.name for field in attrs.fields(TlsConfig)
    } - {"ca_data"}


def test_every_setting_is_read_into_its_class() -> None:
    for table in (ServerConfig, ServeConfig, RuntimeSettings, ArtifactsConfig, PoolLimits, TlsSettings):
        own = {field.name for field in attrs.fields(table)} - {"name"}
        assert own == {field.name for field in fields_of(table)}


def accepted(make, *args) -> bool:
    try:
        make(*args)
    except (ValueError, TypeError):
        return False
    return True


HOSTS = st.sampled_from([
    "a", "a.example", "[::1]", "[::1", "127.0.0.1", "1.2.3", "ä.example", "a_b", "", "a:b", "me@a", "xn--a",
    "-a", "xn--mnchen-3ya.de",
    "a..b", "%41", "a b", "☃", "[v1.x]", "A", "localhost",
])  # fmt: skip
URLS = st.builds(
    lambda scheme, host, port, rest: f"{scheme}{host}{port}{rest}",
    st.sampled_from(["http://", "https://", "ws://", "HTTP://", "ftp://", "http:", "//", ""]),
    HOSTS,
    st.sampled_from(["", ":80", ":0", ":", ":65536", ":99999999", ":x", ":-1", ":٣"]),
    st.sampled_from(
        ["", "/", "/a?b=c", "?x", "#f", "/a b", "/é", "/\x00", "\\@b", "/%zz", "/..", "\n", "//b"]
    ),
)


@hypothesis.given(url=URLS)
@hypothesis.settings(max_examples=800)
def test_what_the_reader_takes_for_a_url_a_transport_takes(url) -> None:
    for schemes in (("http", "https"), ("ws", "wss")):
        if url_problem(url, schemes) is None:
            assert accepted(lambda: origin_of(url, schemes=schemes)), url  # noqa: B023 -- called at once
    if proxy_problem(url) is None:
        assert accepted(lambda: Proxy(url=url)), url


@pytest.mark.parametrize(
    "url", ["http://a", "https://a.example:8443/mcp?x=1", "http://[::1]:80/", "http://ä.de/"]
)
def test_usual_urls_are_taken(url) -> None:
    assert url_problem(url, ("http", "https")) is None


NAMES = st.text(st.sampled_from("aZ0-._/ mcptokenr"), max_size=14) | st.sampled_from([
    "progressToken", "traceparent", "com.example/callId", "mcp/x", "a.mcp/x", "mcp.a/x", "a.mcpx/y", "a\n",
    "modelcontextprotocol.io/x", "baggage", "baggage.x",
])  # fmt: skip


@hypothesis.given(name=NAMES)
def test_keys_of_meta_are_judged_as_by_the_pool(name) -> None:
    ours = compiled(META_NAME).search(name) is not None and meta_problem(name) is None
    assert ours == accepted(lambda: Server(name="x", call_id_key=name))


@hypothesis.given(url=st.text(st.sampled_from("redis:/unx?=&db0@.s"), max_size=24) | URLS)
def test_addresses_of_redis_are_judged_as_by_the_store(url) -> None:
    assert (redis_problem(url) is None) == accepted(check_url, url)


def test_other_judgements_are_those_of_what_is_built() -> None:
    for path in ("", "/a", "/" + "a" * 107, "/" + "a" * 106, "ä" * 54, "ä" * 53):
        ours = socket_problem(path) is None
        assert ours == accepted(lambda: HttpTransport(url="http://a/", uds=path)), path  # noqa: B023
    for version in ("2024-11-05", "2026-07-28", "2020-01-01", ""):
        assert (version_problem(version) is None) == (era_of(version) is not None)


@hypothesis.given(url=URLS)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_whatever_is_read_is_built(url, tmp_path) -> None:
    from afpool.config import ConfigError

    text = f"[servers.x]\nurl = {_toml(url)}\nproxy = {_toml(url)}\n[servers.y]\nurl = {_toml(url)}\n"
    try:
        config = read(tmp_path, text)
    except ConfigError:
        return
    config.runtime_config()


def _toml(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


def test_stores_have_what_a_file_can_say() -> None:
    assert {MemoryArtifacts, RedisArtifacts, SqliteArtifacts}
    limits = {"ttl", "max_bytes_per_scope", "max_count_per_scope"}
    assert limits <= {field.name for field in fields_of(ArtifactsConfig)}


def test_what_was_read_twice_makes_callbacks_that_are_equal(tmp_path) -> None:
    """A reload compares them: others would end shared lists, clients, or the reload itself."""
    text = """
[runtime]
on_in_doubt = "repeat"
[servers.wiki]
url = "https://wiki.example/${identity.tenant}"
share = "tenant"
[servers.tools]
url = "https://tools.example/mcp"
share = "everybody"
"""
    once, again = (read(tmp_path, text).runtime_config() for _ in range(2))
    other = read(tmp_path, text.replace("everybody", "tenant").replace("/${", "/x/${")).runtime_config()
    assert once.pool == again.pool
    for name in ("plan", "share"):
        assert getattr(once, name) is not None
        assert getattr(once, name) == getattr(again, name)
        assert getattr(once, name) != getattr(other, name)
