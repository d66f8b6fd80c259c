"""Through a proxy: who gets which bytes, whose fault a failure is, and what the environment says."""

from __future__ import annotations

import os
import ssl
from typing import Any

import pytest
import trio
import trustme
from hypothesis import given
from hypothesis import strategies as st

import afpool
from afpool import HttpTransport, Identity, Plan, Proxy, Server, TlsConfig, basic, bearer
from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.testing import FakeProxy, FakeServer
from afpool.transports._connect import Connector
from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._origin import Origin
from afpool.transports._proxy import proxy_from_env
from afpool.transports._tls_tunnel import TlsInTlsWire
from afpool.transports._wire import SocketWire
from tests.transports.wire_kit import SwitchGate

CA = trustme.CA()
PEM = CA.cert_pem.bytes().decode()
ALICE = Identity(tenant="acme", principal="alice")
CANARY = "c4n4ry-of-the-proxy"


def serves(*names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert(*names).configure_cert(context)
    return context


def pool_of(transport: HttpTransport) -> Any:
    return afpool.open_pool([Server(name="files", plan=Plan(transport=transport))])


@pytest.mark.parametrize("proxy_tls", [False, True], ids=["plain-proxy", "tls-proxy"])
@pytest.mark.parametrize("server_tls", [False, True], ids=["http", "https"])
async def test_a_call_goes_through_the_tunnel(proxy_tls, server_tls):
    tls = TlsConfig(ca_data=PEM)
    with trio.fail_after(20):
        async with FakeServer.http(ssl_context=serves("mcp.example") if server_tls else None) as server:
            place = f"mcp.example:{443 if server_tls else 80}"
            proxy = FakeProxy(
                credential=basic("alice", CANARY).to_headers()[0][1],
                ssl_context=serves("127.0.0.1") if proxy_tls else None,
                hosts={place: ("127.0.0.1", server.port)},
            )
            async with proxy:
                transport = HttpTransport(
                    url=f"http{'s' if server_tls else ''}://mcp.example/mcp",
                    tls=tls,
                    proxy=Proxy(url=proxy.url, credential=basic("alice", CANARY), tls=tls),
                )
                assert CANARY not in repr(transport)
                async with pool_of(transport) as pool:
                    tool = (await pool.tools(ALICE))["echo"]
                    big = "x" * 700_000  # several records, more than the kernel takes at once
                    result = await tool.call({"text": big}, identity=ALICE)
                    assert big in result.text
                assert {tunnel.target for tunnel in proxy.tunnels} == {place}
                assert all(tunnel.status == 200 for tunnel in proxy.tunnels)
                # the credential is the proxy's alone
                assert all("proxy-authorization" not in arrival.headers for arrival in server.log)
                assert all(arrival.headers["host"] == "mcp.example" for arrival in server.log)
                assert (b"tools/call" in proxy.bytes_in) is not server_tls


@pytest.mark.parametrize(
    ("status", "words"),
    [(407, "wants a credential"), (403, "not allow"), (502, "cannot reach"), (418, "418")],
)
async def test_a_proxy_that_refuses_is_named_and_nothing_was_sent(status, words):
    with trio.fail_after(10):
        async with FakeServer.http() as server, FakeProxy() as proxy:
            transport = HttpTransport(url=server.url, proxy=proxy.url)
            proxy.refuse = status
            async with pool_of(transport) as pool:
                with pytest.raises(afpool.OpenFailed) as caught:
                    await pool.tools(ALICE)
            assert "proxy" in str(caught.value)
            assert words in str(caught.value)
            assert caught.value.delivery == "not-sent"
            assert not server.log
            assert server.connections_total == 0


async def test_a_proxy_that_refuses_the_connection_of_a_call_leaves_it_unsent():
    with trio.fail_after(10):
        async with FakeServer.http() as server, FakeProxy() as proxy:
            server.keep_alive_max_requests = 1
            async with pool_of(HttpTransport(url=server.url, proxy=proxy.url)) as pool:
                tool = (await pool.tools(ALICE))["echo"]
                proxy.refuse = 503
                with pytest.raises(afpool.ConnectionLost) as caught:
                    await tool.call(identity=ALICE)
                assert (caught.value.delivery, "proxy" in str(caught.value)) == ("not-sent", True)
                proxy.refuse = None
                await tool.call(identity=ALICE)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "ended"),
        (b"SSH-2.0-secret\r\n\r\n", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n", "belong to nobody"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 80_000, "HTTP/1.1"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, "HTTP/1.1"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "proxy"),
    ],
    ids=["nothing", "ssh", "more-than-an-answer", "endless-head", "endless-interim", "upgrade"],
)
async def test_a_proxy_that_speaks_no_http(raw, words):
    with trio.fail_after(10):
        async with FakeProxy() as proxy:
            proxy.raw = raw
            connector = Connector(Seams(), proxy=Proxy(url=proxy.url))
            with pytest.raises(ConnectFailed, match=words) as caught:
                await connector.connect(Origin("http", "mcp.example", 80))
            assert caught.value.reason == "proxy"
            assert "secret" not in str(caught.value)
            assert caught.value.__context__ is None


async def test_a_proxy_that_is_not_there_or_not_itself():
    with trio.fail_after(10):
        gone = Connector(Seams(), proxy=Proxy(url="http://127.0.0.1:9"))
        with pytest.raises(ConnectFailed, match="no connection to the proxy"):
            await gone.connect(Origin("http", "mcp.example", 80))
        async with FakeProxy(ssl_context=serves("other.example")) as proxy:
            other = Connector(Seams(), proxy=Proxy(url=proxy.url, tls=TlsConfig(ca_data=PEM)))
            with pytest.raises(ConnectFailed, match="the proxy's certificate is not accepted") as caught:
                await other.connect(Origin("http", "mcp.example", 80))
            assert caught.value.reason == "tls"
            assert not proxy.tunnels


async def test_a_wire_in_two_layers_counts_what_the_kernel_took(monkeypatch):
    """However the kernel cuts the records, all arrives, and `begun` is said with the first byte."""
    sizes: list[int] = []
    real = SocketWire._write
    allowed = [0, 1, 7, 0, 30, 1000, 5, 0, 16384]

    def stingy(self, data):
        if type(self) is not TlsInTlsWire or not gate.asked:
            return real(self, data)
        piece = allowed[len(sizes) % len(allowed)]
        taken = real(self, bytes(data[:piece])) if piece else 0
        sizes.append(taken)
        return taken

    gate = SwitchGate()
    with trio.fail_after(20):
        async with (
            FakeServer.http(ssl_context=serves("mcp.example")) as server,
            FakeProxy(
                ssl_context=serves("127.0.0.1"), hosts={"mcp.example:443": ("127.0.0.1", server.port)}
            ) as proxy,
        ):
            tls = TlsConfig(ca_data=PEM)
            connector = Connector(Seams(), tls, proxy=Proxy(url=proxy.url, tls=tls))
            wire = await connector.connect(Origin("https", "mcp.example", 443))
            monkeypatch.setattr(SocketWire, "_write", stingy)
            body = b"z" * 60_000
            head = b"POST /mcp HTTP/1.1\r\nhost: mcp.example\r\ncontent-length: %d\r\n\r\n" % len(body)
            began_after: list[int] = []
            gate.began = lambda: began_after.append(sum(sizes))  # type: ignore[method-assign]
            await wire.send(head + body, gate)
            assert began_after == [1], "said with the first byte that the kernel took"
            assert gate.asked == ["write"] * 2, "asked again while the kernel had taken nothing"
            await server.wait_until(lambda: bool(server.log))
            assert server.log[0].body == body
            assert (await wire.receive()).startswith(b"HTTP/1.1 4")
            wire.close()


async def test_a_wire_in_two_layers_under_a_closed_gate_sends_nothing():
    with trio.fail_after(20):
        async with (
            FakeServer.http(ssl_context=serves("mcp.example")) as server,
            FakeProxy(
                ssl_context=serves("127.0.0.1"), hosts={"mcp.example:443": ("127.0.0.1", server.port)}
            ) as proxy,
        ):
            tls = TlsConfig(ca_data=PEM)
            connector = Connector(Seams(), tls, proxy=Proxy(url=proxy.url, tls=tls))
            wire = await connector.connect(Origin("https", "mcp.example", 443))
            with pytest.raises(afpool.StaleTools):
                await wire.send(b"GET / HTTP/1.1\r\nhost: mcp.example\r\n\r\n", SwitchGate(closed=True))
            assert wire.alive()
            await wire.send(b"GET /other HTTP/1.1\r\nhost: mcp.example\r\n\r\n", OpenGate())
            await server.wait_until(lambda: bool(server.log))
            assert [arrival.target for arrival in server.log] == ["/other"]
            wire.close()


# ---------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "url", ["socks5://127.0.0.1:1080", "http://u:secret@127.0.0.1:1", "http://127.0.0.1/secret", "secret"]
)
def test_what_is_no_proxy(url):
    with pytest.raises(ValueError, match="httpx_transport") as caught:
        HttpTransport(url="https://mcp.example/mcp", proxy=url)
    assert "secret" not in str(caught.value)


def test_a_proxy_is_part_of_the_plan_and_its_credential_is_not_shown():
    def plan(**options: Any) -> Plan:
        return Plan(transport=HttpTransport(url="https://mcp.example/mcp", **options))

    def proxied(credential: Any) -> Plan:
        return plan(proxy=Proxy(url="http://p.example:3128", credential=credential))

    plans = [plan(), plan(proxy="http://p.example:3128"), plan(uds="/run/x.sock"), proxied(basic("a", "1"))]
    plans += [proxied(basic("a", CANARY)), proxied(bearer(CANARY)), plan(proxy="http://q.example:3128")]
    contexts = [each.context(b"k") for each in plans]
    assert len(set(contexts)) == len(plans)
    again = proxied(basic("a", CANARY))
    assert again.context(b"k") == contexts[4]
    assert again.transport == plans[4].transport, "equal by content, so that connectors are found again"
    assert hash(again.transport.proxy) == hash(plans[4].transport.proxy)
    assert plans[4].transport != plans[3].transport
    assert CANARY not in repr(plans)
    assert CANARY not in plans[4].endpoint


def test_the_environment_is_asked_only_where_told_to(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HTTPS_PROXY", f"http://alice:{CANARY}@p.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert HttpTransport(url="https://mcp.example/mcp").proxy is None
    chosen = HttpTransport(url="https://mcp.example/mcp", proxy="env").proxy
    assert chosen == Proxy(url="http://p.example:3128", credential=basic("alice", CANARY))
    assert CANARY not in repr(chosen)
    assert HttpTransport(url="https://a.inside.example/mcp", proxy="env").proxy is None
    assert HttpTransport(url="http://mcp.example/mcp", proxy="env").proxy is None


@pytest.mark.parametrize(
    ("entry", "spared"),
    [
        ("mcp.example", True),
        (".mcp.example", True),
        ("example", True),
        ("*.example", True),
        ("*", True),
        ("p.example", False),
        ("mcp.example:443", True),
        ("mcp.example:8443", False),
        ("a.mcp.example", False),
        (" MCP.example , x", True),
        ("", False),
        (",", False),
        ("10.0.0.0/8", False),
    ],
)
def test_no_proxy_by_name(entry, spared):
    environ = {"HTTPS_PROXY": "http://p.example", "NO_PROXY": entry}
    assert (proxy_from_env(Origin("https", "mcp.example", 443), environ) is None) is spared


@pytest.mark.parametrize(
    ("host", "entry", "spared"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:443", True),
        ("10.1.2.3", "2.3", False),
        ("::1", "[::1]:443", True),
        ("::1", "0:0::1", True),
        ("::1", "nonsense/64", False),
    ],
)
def test_no_proxy_by_address(host, entry, spared):
    environ = {"https_proxy": "p.example:3128", "no_proxy": entry}
    assert (proxy_from_env(Origin("https", host, 443), environ) is None) is spared


def test_a_request_header_is_no_environment():
    """A CGI server sets HTTP_PROXY from a header of whoever asks."""
    origin = Origin("http", "mcp.example", 80)
    assert proxy_from_env(origin, {"HTTP_PROXY": "http://evil.example"}) is None
    found = proxy_from_env(origin, {"http_proxy": "http://p.example", "ALL_PROXY": "http://q.example"})
    assert found is not None
    assert found.origin.host == "p.example"


@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_stands_in_the_environment_is_a_proxy_or_a_value_error(value, entries):
    environ = {"https_proxy": value, "no_proxy": entries}
    try:
        found = proxy_from_env(Origin("https", "mcp.example", 443), environ)
    except ValueError:
        return
    assert found is None or found.origin.scheme in {"http", "https"}
