"""Unix sockets, certificates that we show and that rotate, one TLS context for all, bounds of an answer."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import ssl
from typing import Any

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization

import afpool
from afpool import HttpTransport, Identity, Plan, Secret, Server, TlsConfig
from afpool._base.seams import Seams
from afpool.testing import FakeServer
from afpool.transports import _tls_config
from afpool.transports._connect import Connector
from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._connection import FRAMING, BadHttp
from afpool.transports._origin import Origin
from afpool.transports._tls_config import shared_ssl_context
from afpool.transports._wire import WireClosed
from tests.transports.http_kit import Keeper, Rig, answer

CA = trustme.CA()
PEM = CA.cert_pem.bytes().decode()
ALICE = Identity(tenant="acme", principal="alice")
CANARY = "c4n4ry-of-the-key"


def serves(*names: str, wants_ours: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert(*names).configure_cert(context)
    if wants_ours:
        CA.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pool_of(transport: HttpTransport) -> Any:
    return afpool.open_pool([Server(name="files", plan=Plan(transport=transport))])


# ---------------------------------------------------------------------------- Unix sockets


async def test_a_server_on_a_unix_socket(tmp_path):
    path = str(tmp_path / "mcp.sock")
    with trio.fail_after(10):
        async with FakeServer.http(uds=path) as server:
            transport = HttpTransport(url="http://localhost/mcp", uds=path)
            assert server.url == transport.url
            async with pool_of(transport) as pool:
                tool = (await pool.tools(ALICE))["echo"]
                for number in range(3):
                    await tool.call({"n": number}, identity=ALICE)
            assert server.execution_count("echo") == 3
            assert {arrival.headers["host"] for arrival in server.log} == {"localhost"}


async def test_tls_on_a_unix_socket_is_checked_against_the_name_that_was_pinned(tmp_path):
    path = str(tmp_path / "mcp.sock")
    with trio.fail_after(10):
        async with FakeServer.http(uds=path, ssl_context=serves("mcp.example")):
            pinned = TlsConfig(ca_data=PEM, hostname="mcp.example")
            async with pool_of(HttpTransport(url="https://localhost/mcp", uds=path, tls=pinned)) as pool:
                await pool.tools(ALICE)
            wrong = HttpTransport(url="https://localhost/mcp", uds=path, tls=TlsConfig(ca_data=PEM))
            async with pool_of(wrong) as pool:
                with pytest.raises(afpool.OpenFailed, match="certificate"):
                    await pool.tools(ALICE)


@pytest.mark.parametrize("kind", ["missing", "nobody-listens"])
async def test_no_server_on_a_unix_socket(tmp_path, kind):
    path = str(tmp_path / "mcp.sock")
    if kind == "nobody-listens":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(path)
    with trio.fail_after(10), pytest.raises(ConnectFailed) as caught:
        await Connector(Seams(), uds=path).connect(Origin("http", "localhost", 80))
    assert "mcp.sock" not in str(caught.value)


async def test_a_unix_socket_whose_queue_is_full_is_tried_again(tmp_path, autojump_clock):
    path = str(tmp_path / "mcp.sock")
    origin = Origin("http", "localhost", 80)
    with trio.fail_after(60), socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(0)
        connector = Connector(Seams(), uds=path)
        first = await connector.connect(origin)
        with trio.move_on_after(2) as waited:
            await connector.connect(origin)
        assert waited.cancelled_caught, "a full queue is no connection"
        door.accept()[0].close()
        (await connector.connect(origin)).close()
        first.close()


@pytest.mark.parametrize(
    "options",
    [
        {"uds": ""},
        {"uds": "/run/\x00"},
        {"uds": "/" + "x" * 107},
        {"uds": "/run/x", "proxy": "http://p.example"},
        {"uds": "/run/x", "httpx_transport": dict},
        {"proxy": "http://p.example", "httpx_transport": dict},
        {"tls": TlsConfig(ca_data=PEM), "httpx_transport": dict},
    ],
)
def test_ways_that_cannot_be(options):
    with pytest.raises(ValueError, match=r"socket|brings its own"):
        HttpTransport(url="http://localhost/mcp", **options)


# ---------------------------------------------------------------------------- TLS


def key_files(folder: Any, password: bytes | None = None) -> tuple[str, str]:
    issued = CA.issue_cert("alice.example")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    loaded = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    how: Any = (
        serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    )
    key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    return str(cert), str(key)


@pytest.mark.parametrize("password", [None, CANARY])
async def test_a_server_that_wants_our_certificate(tmp_path, password):
    cert, key = key_files(tmp_path, None if password is None else password.encode())
    tls = TlsConfig(ca_data=PEM, client_cert=cert, client_key=key, client_key_password=password)
    assert CANARY not in repr(tls)
    with trio.fail_after(20):
        async with FakeServer.http(ssl_context=serves("127.0.0.1", wants_ours=True)) as server:
            async with pool_of(HttpTransport(url=server.url, tls=tls)) as pool:
                await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
            async with pool_of(HttpTransport(url=server.url, tls=TlsConfig(ca_data=PEM))) as pool:
                with pytest.raises(afpool.OpenFailed):
                    await pool.tools(ALICE)
            if password is not None:
                wrong = TlsConfig(
                    ca_data=PEM, client_cert=cert, client_key=key, client_key_password="wr0ng-" + password
                )
                async with pool_of(HttpTransport(url=server.url, tls=wrong)) as pool:
                    with pytest.raises(afpool.OpenFailed, match="TLS configuration") as caught:
                        await pool.tools(ALICE)
                assert CANARY not in str(caught.value)


async def test_a_hundred_clients_have_one_context(monkeypatch):
    monkeypatch.setattr(_tls_config, "_contexts", {})
    built: list[ssl.SSLContext] = []
    real = _tls_config._build_context

    def build(tls: TlsConfig) -> ssl.SSLContext:
        built.append(real(tls))
        return built[-1]

    monkeypatch.setattr(_tls_config, "_build_context", build)
    with trio.fail_after(60):
        async with FakeServer.http(ssl_context=serves("127.0.0.1")) as server:

            def plan(name: str, identity: Identity) -> Plan:
                return Plan(transport=HttpTransport(url=server.url, tls=TlsConfig(ca_data=PEM)))

            async with (
                afpool.open_pool([Server(name="files")], plan=plan) as pool,
                trio.open_nursery() as nursery,
            ):
                for number in range(100):
                    nursery.start_soon(pool.tools, Identity(tenant="acme", principal=f"user-{number}"))
            assert server.count("initialize") == 100
    assert len(built) == 1


def test_configurations_are_equal_by_content():
    def one(password: str) -> TlsConfig:
        return TlsConfig(client_cert="c.pem", client_key_password=Secret(password))

    assert one("a") == one("a")
    assert hash(one("a")) == hash(one("a"))
    assert one("a") != one("b")
    assert one("a").document() != one("b").document()


async def test_a_certificate_that_rotates_is_shown_on_the_next_connection(tmp_path):
    """The files are looked at before each connection; half a rotation changes nothing."""
    cert, key = key_files(tmp_path)
    tls = TlsConfig(ca_data=PEM, client_cert=cert, client_key=key)
    serials: list[Any] = []
    context = serves("127.0.0.1", wants_ours=True)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def handler(stream: trio.SSLStream[Any]) -> None:
                await stream.do_handshake()
                serials.append(stream.getpeercert()["serialNumber"])
                await trio.aclose_forcefully(stream)

            serve = functools.partial(trio.serve_ssl_over_tcp, handler, 0, context, host="127.0.0.1")
            listeners = await nursery.start(serve)
            port = listeners[0].transport_listener.socket.getsockname()[1]
            connector = Connector(Seams(), tls)

            async def connect() -> None:
                wire = await connector.connect(Origin("https", "127.0.0.1", port))
                with contextlib.suppress(WireClosed):
                    assert await wire.receive() == b""  # the handler is through with it
                wire.close()

            await connect()
            await connect()
            issued = CA.issue_cert("alice.example")
            tmp_path.joinpath("cert.pem").write_bytes(issued.cert_chain_pems[0].bytes())
            await connect()  # the key does not fit yet
            tmp_path.joinpath("key.pem").write_bytes(issued.private_key_pem.bytes())
            await connect()
            nursery.cancel_scope.cancel()
    assert serials[0] == serials[1] == serials[2] != serials[3]


async def test_a_server_that_is_not_verified_is_said_at_each_opening(caplog):
    with trio.fail_after(10):
        async with FakeServer.http(ssl_context=serves("other.example")) as server:
            for opened in (1, 2):
                async with pool_of(HttpTransport(url=server.url, tls=TlsConfig(insecure=True))) as pool:
                    await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
                said = [record for record in caplog.records if record.levelno == logging.WARNING]
                assert sum("not verified" in record.getMessage() for record in said) == opened


@pytest.mark.parametrize(
    "options",
    [
        {"client_key": "k"},
        {"client_key_password": "p"},
        {"insecure": True, "ca_file": "f"},
        {"insecure": True, "hostname": "h"},
        {"min_version": "1.1"},
    ],
)
def test_tls_configurations_that_cannot_be(options):
    with pytest.raises(ValueError, match=r"client_key|insecure|min_version"):
        TlsConfig(**options)


def test_a_folder_of_authorities(tmp_path):
    assert isinstance(shared_ssl_context(TlsConfig(ca_dir=str(tmp_path))), ssl.SSLContext)


def test_contexts_that_are_kept_are_bounded(monkeypatch):
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(_tls_config, "_contexts", kept)
    monkeypatch.setattr(_tls_config, "_build_context", lambda tls: object())
    for number in range(_tls_config.CONTEXTS_KEPT + 10):
        shared_ssl_context(TlsConfig(hostname=f"h{number}"))
    assert len(kept) == _tls_config.CONTEXTS_KEPT


# ---------------------------------------------------------------------------- the answer


async def refused(raw: list[bytes], *, within: int) -> BadHttp:
    """Send pieces of an answer until the client has had enough; it must not take more than `within` bytes."""
    async with Rig() as rig, trio.open_nursery() as nursery:

        async def flood() -> None:
            peer = await rig.net.peer()
            await peer.request()
            sent = 0
            try:
                for piece in raw:
                    await peer.send(piece)
                    sent += len(piece)
                    assert sent < within, "it reads on"
            except trio.BrokenResourceError:
                pass

        nursery.start_soon(flood)
        sink = Keeper()
        with pytest.raises(BadHttp) as caught, trio.fail_after(20):
            await rig.call(sink=sink)
        assert len(sink.body) < within
        return caught.value


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
MB = 1024 * 1024


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([b"HTTP/1.1 200 OK\r\nx: ", *[b"y" * 65536] * 100], "head is larger"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"x: y\r\n" * 10000] * 100], "head is larger"),
        ([b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 1000] * 1000, "interim"),
        ([CHUNKED, *[b"1;ext=" + b"e" * 60_000 + b"\r\nx\r\n"] * 1000], "extensions"),
        ([CHUNKED, b"1;ext=", *[b"e" * 65536] * 1000], "not HTTP"),
        ([CHUNKED, b"0\r\n", *[b"t: " + b"u" * 60_000 + b"\r\n"] * 1000], "not HTTP"),
        ([CHUNKED[:-2] + b"content-length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n"], "two ways"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"], "not HTTP"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello"], "not HTTP"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"], "not HTTP"),
        ([b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx"], "encoding"),
        ([b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"], "encoding"),
        ([b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], "not HTTP"),
        ([b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n"], "not HTTP"),
        ([b"\x16\x03\x01\x02\x00 secret"], "not HTTP"),
    ],
    ids=[
        "one-endless-header", "endless-headers", "interim-flood", "extension-flood", "endless-extension",
        "endless-trailers", "two-lengths", "lengths-that-differ", "negative-length", "coding-beside-chunked",
        "brotli", "gzip", "upgrade", "http-2", "tls",
    ],
)  # fmt: skip
async def test_an_answer_that_is_out_of_bounds(raw, words):
    error = await refused(raw, within=4 * MB)
    assert words in str(error)
    assert "secret" not in str(error)


async def test_many_small_chunks_are_no_flood():
    """An event stream in the smallest chunks is served however long it lasts."""
    async with Rig() as rig, trio.open_nursery() as nursery:
        count = FRAMING // 6 + 1000

        async def serve() -> None:
            peer = await rig.net.peer()
            await peer.request()
            await peer.send(CHUNKED + b"1\r\nx\r\n" * count + b"0\r\n\r\n")

        nursery.start_soon(serve)
        with trio.fail_after(30):
            sink = await rig.call()
        assert len(sink.body) == count


async def test_an_answer_in_bounds_after_one_with_much_framing():
    async with Rig() as rig:
        chunk = b"1;e=" + b"e" * 1000 + b"\r\nx\r\n"
        framed = CHUNKED + chunk * 400 + b"0\r\n\r\n"
        with trio.fail_after(20):
            first, second, third = await rig.answered(framed, framed, answer())
        assert (len(first.body), len(second.body), third.status) == (400, 400, 200)
