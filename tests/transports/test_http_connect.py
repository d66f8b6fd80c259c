"""From a URL to a wire: what is refused, which addresses are tried when, how TLS fails."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.transports import _tls_config
from afpool.transports._connect import Connector
from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._origin import Origin, origin_of
from afpool.transports._tls import TlsWire
from afpool.transports._tls_config import TlsConfig, shared_ssl_context
from afpool.transports._wire import SocketWire
from tests.transports.wire_kit import CA, CLIENT_CONTEXT, SERVER_CONTEXT

NAME = Origin("http", "mcp.example", 80)


@pytest.mark.parametrize(
    ("url", "origin", "target", "authority"),
    [
        ("http://mcp.example/mcp", Origin("http", "mcp.example", 80), b"/mcp", b"mcp.example"),
        ("https://mcp.example", Origin("https", "mcp.example", 443), b"/", b"mcp.example"),
        (
            "https://MCP.example:8443/a/?q=1&r",
            Origin("https", "mcp.example", 8443),
            b"/a/?q=1&r",
            b"mcp.example:8443",
        ),
        ("http://127.0.0.1:80/", Origin("http", "127.0.0.1", 80), b"/", b"127.0.0.1"),
        ("http://[::1]:8080/mcp", Origin("http", "::1", 8080), b"/mcp", b"[::1]:8080"),
        (
            "https://bücher.example/",
            Origin("https", "xn--bcher-kva.example", 443),
            b"/",
            b"xn--bcher-kva.example",
        ),
        ("http://mcp.example/a b", Origin("http", "mcp.example", 80), b"/a%20b", b"mcp.example"),
    ],
)
def test_a_url_is_parted(url, origin, target, authority):
    assert origin_of(url) == (origin, target)
    assert origin.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "ftp://mcp.example/secret",
        "file:///secret",
        "//mcp.example/secret",
        "/secret",
        "secret",
        "",
        "http://",
        "http:///secret",
        "http://user:secret@mcp.example/",
        "http://secret@mcp.example/",
        "http://mcp.example/#secret",
        "http://mcp.example/secret#",
        "http://mcp.example:0/secret",
        "http://mcp.example:70000/secret",
        "http://mcp.example:secret/",
        "http://mcp.example/secret\r\nx: y",
        "ws://mcp.example/secret",
    ],
)
def test_a_url_that_is_not_one_to_connect_to_is_refused_and_not_quoted(url):
    with pytest.raises(ValueError, match="URL") as caught:
        origin_of(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in str(error)
        error = error.__cause__ or error.__context__


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from(["", "http://", "https://a", "http://a:", "http://[", "ws://"]))
def test_a_text_is_an_origin_or_a_value_error(text, prefix):
    try:
        origin, target = origin_of(prefix + text)
    except ValueError:
        return
    assert origin.scheme in {"http", "https"}
    assert 0 < origin.port < 65536
    assert target.startswith(b"/")
    assert not set(target + origin.authority) & set(b"\r\n \t\0")


def test_web_socket_schemes_where_they_are_admitted():
    origin, target = origin_of("wss://mcp.example/ws", schemes=("ws", "wss"))
    assert (origin.port, origin.secure, target) == (443, True, b"/ws")


class World:
    """Names and addresses that do what a test says: answer, refuse, or hang."""

    def __init__(self, addresses: dict[str, str | Exception], *, resolve: Exception | None = None) -> None:
        self.addresses = addresses
        self.failure = resolve
        self.tried: list[tuple[str, float]] = []
        self.resolved = 0
        self.go = trio.Event()
        self.open: list[socket.socket] = []
        self.ends: list[socket.socket] = []

    def seams(self) -> Seams:
        async def in_thread(fn: Any, limiter: trio.CapacityLimiter) -> Any:
            async with limiter:
                await trio.sleep(0.01)
                return fn()

        return Seams(connect=self.connect, resolve=self.resolve, in_thread=in_thread)

    def resolve(self, host: str, port: int) -> list[tuple[int, Any]]:
        self.resolved += 1
        if self.failure is not None:
            raise self.failure
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, (each, port)) for each in self.addresses]

    async def connect(self, family: int, address: Any) -> socket.socket:
        self.tried.append((address[0], round(trio.current_time(), 3)))
        what = self.addresses[address[0]]
        if isinstance(what, Exception):
            await trio.lowlevel.checkpoint()
            raise what
        if what == "hang":
            await trio.sleep_forever()
        ours, theirs = socket.socketpair()
        self.open.append(ours)
        self.ends.append(theirs)
        try:
            if what == "go":
                await self.go.wait()
            else:
                await trio.sleep(float(what))
        except BaseException:
            ours.close()
            raise
        return ours

    def close(self) -> None:
        for end in self.ends:
            end.close()


def refused() -> OSError:
    return ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


async def test_addresses_are_tried_in_turn_a_quarter_of_a_second_apart(autojump_clock):
    world = World({"::1": "hang", "::2": "hang", "10.0.0.1": "hang", "10.0.0.2": "0"})
    start = trio.current_time()
    wire = await Connector(world.seams()).connect(NAME)
    # Families alternate, beginning with the resolver's first choice.
    assert [(host, round(at - start, 2)) for host, at in world.tried] == [
        ("::1", 0.01),
        ("10.0.0.1", 0.26),
        ("::2", 0.51),
        ("10.0.0.2", 0.76),
    ]
    assert isinstance(wire, SocketWire)
    wire.close()
    world.close()


async def test_a_refusal_brings_the_next_address_at_once(autojump_clock):
    world = World({"::1": refused(), "10.0.0.1": "0"})
    start = trio.current_time()
    wire = await Connector(world.seams()).connect(NAME)
    assert trio.current_time() - start < 0.1
    wire.close()
    world.close()


@pytest.mark.parametrize("at_once", [True, False])
async def test_one_socket_is_kept_when_two_addresses_answer(at_once, autojump_clock):
    world = World({"::1": "go" if at_once else "0.4", "10.0.0.1": "go" if at_once else "0.25"})
    wires: list[Any] = []

    async def connect() -> None:
        wires.append(await Connector(world.seams()).connect(NAME))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        await trio.sleep(0.3)
        assert len(world.tried) == 2
        # Both are scheduled by this, before either can stop the other.
        world.go.set()
    assert sum(sock.fileno() != -1 for sock in world.open) == 1
    wires[0].close()
    assert all(sock.fileno() == -1 for sock in world.open)
    world.close()


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ([refused()], "refused"),
        ([refused(), OSError(errno.ENETUNREACH, "Network is unreachable")], "refused"),
        ([OSError(errno.EHOSTUNREACH, "No route to host")], "unreachable"),
        ([TimeoutError(errno.ETIMEDOUT, "Connection timed out")], "timeout"),
    ],
)
async def test_every_address_failed(errors, reason, autojump_clock):
    world = World({f"10.0.0.{number}": error for number, error in enumerate(errors)})
    with pytest.raises(ConnectFailed) as caught:
        await Connector(world.seams()).connect(NAME)
    assert caught.value.reason == reason
    assert len(world.tried) == len(errors)


async def test_a_name_that_is_not_known(autojump_clock):
    world = World({}, resolve=socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    with pytest.raises(ConnectFailed) as caught:
        await Connector(world.seams()).connect(NAME)
    assert caught.value.reason == "resolve"
    world = World({})
    with pytest.raises(ConnectFailed) as caught:
        await Connector(world.seams()).connect(NAME)
    assert caught.value.reason == "resolve"


async def test_answers_are_kept_for_thirty_seconds_and_literals_ask_nobody(autojump_clock):
    world = World({"10.0.0.1": "0"})
    connector = Connector(world.seams())
    for wait, asked in ((0, 1), (29, 1), (2, 2)):
        await trio.sleep(wait)
        (await connector.connect(NAME)).close()
        assert world.resolved == asked
    (await connector.connect(Origin("http", "10.0.0.1", 80))).close()
    assert world.resolved == 2
    world.close()


async def test_look_ups_of_one_name_take_two_threads_at_most(autojump_clock):
    world = World({"10.0.0.1": "0"})
    connector = Connector(world.seams())
    start = trio.current_time()

    async def connect() -> None:
        (await connector.connect(NAME)).close()

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(connect)
    assert trio.current_time() - start == pytest.approx(0.03)
    world.close()


@pytest.mark.parametrize("addresses", [1, 3])
async def test_a_cancelled_connect_raises_a_bare_cancelled_and_leaves_no_socket(addresses, autojump_clock):
    world = World({f"10.0.0.{number}": "hang" for number in range(addresses)})
    with trio.move_on_after(0.6) as scope:
        try:
            await Connector(world.seams()).connect(NAME)
        except BaseException as error:
            assert type(error) is trio.Cancelled  # noqa: PT017  (a group would not match `except`)
            raise
    assert scope.cancelled_caught
    assert len(world.tried) == addresses


async def _listener() -> tuple[socket.socket, int]:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    port: int = sock.getsockname()[1]
    return sock, port


async def test_a_tcp_socket_sends_at_once_and_notices_a_dead_peer():
    with trio.fail_after(5):
        listener, port = await _listener()
        wire = await Connector(Seams()).connect(Origin("http", "127.0.0.1", port))
        assert isinstance(wire, SocketWire)
        options = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
        ]
        for level, option, value in options:
            assert wire._sock.getsockopt(level, option) == value
        wire.close()
        listener.close()
        with pytest.raises(ConnectFailed) as caught:
            await Connector(Seams()).connect(Origin("http", "127.0.0.1", port))
        assert caught.value.reason == "refused"


async def _tls_server(nursery: trio.Nursery, *, speak: bool = True) -> int:
    listener, port = await _listener()

    async def serve() -> None:
        with listener:
            await trio.lowlevel.wait_readable(listener)
            sock, _ = listener.accept()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        if not speak:
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await stream.aclose()
            return
        server = trio.SSLStream(stream, SERVER_CONTEXT, server_side=True)
        try:
            await server.do_handshake()
            await server.send_all(await server.receive_some(100))
        except trio.BrokenResourceError:
            pass
        await trio.aclose_forcefully(server)

    nursery.start_soon(serve)
    return port


async def test_a_tls_connection_speaks_http_1_1_to_the_name_it_was_asked_for(monkeypatch):
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            port = await _tls_server(nursery)
            seams = Seams(resolve=lambda _host, port: [(socket.AF_INET, ("127.0.0.1", port))])
            wire = await Connector(seams, CLIENT_CONTEXT).connect(Origin("https", "localhost", port))
            assert isinstance(wire, TlsWire)
            await wire.send(b"echo", OpenGate())
            assert await wire.receive() == b"echo"
            wire.close()


@pytest.mark.parametrize("case", ["stranger", "other-name", "plain-http"])
async def test_tls_that_cannot_be_trusted_is_a_failed_connection(case):
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            port = await _tls_server(nursery, speak=case != "plain-http")
            seams = Seams(resolve=lambda _host, port: [(socket.AF_INET, ("127.0.0.1", port))])
            tls = TlsConfig() if case == "stranger" else CLIENT_CONTEXT
            host = "localhost" if case != "other-name" else "other.example"
            with pytest.raises(ConnectFailed) as caught:
                await Connector(seams, tls).connect(Origin("https", host, port))
            assert caught.value.reason == "tls"
            assert "400" not in str(caught.value)


async def test_an_insecure_configuration_takes_any_certificate():
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            port = await _tls_server(nursery)
            connector = Connector(Seams(), TlsConfig(insecure=True))
            wire = await connector.connect(Origin("https", "127.0.0.1", port))
            wire.close()


async def test_a_tls_configuration_that_cannot_be_read_is_a_failed_connection(tmp_path):
    with trio.fail_after(5):
        for tls in (
            TlsConfig(ca_file=str(tmp_path / "missing.pem")),
            TlsConfig(ca_data="no certificate"),
        ):
            with pytest.raises(ConnectFailed) as caught:
                await Connector(Seams(), tls).connect(Origin("https", "127.0.0.1", 9))
            assert caught.value.reason == "tls"


def test_one_context_per_configuration_until_its_files_change(tmp_path, monkeypatch):
    monkeypatch.setattr(_tls_config, "_contexts", {})
    ca = CA.cert_pem.bytes().decode()
    path = tmp_path / "ca.pem"
    path.write_text(ca)
    first = shared_ssl_context(TlsConfig(ca_file=str(path)))
    assert shared_ssl_context(TlsConfig(ca_file=str(path))) is first
    assert shared_ssl_context(TlsConfig(ca_data=ca)) is not first
    path.write_text(ca + "\n")
    again = shared_ssl_context(TlsConfig(ca_file=str(path)))
    assert again is not first
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert first.check_hostname
    assert first.minimum_version is ssl.TLSVersion.TLSv1_2
    assert shared_ssl_context(TlsConfig(min_version="1.3")).minimum_version is ssl.TLSVersion.TLSv1_3
    assert len(_tls_config._contexts) == 3


def test_a_client_certificate_is_loaded(tmp_path):
    cert = CA.issue_cert("alice.example")
    path = tmp_path / "client.pem"
    cert.private_key_and_cert_chain_pem.write_to_path(str(path))
    context = shared_ssl_context(TlsConfig(client_cert=str(path)))
    assert isinstance(context, ssl.SSLContext)
