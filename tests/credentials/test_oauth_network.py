"""The HTTP of OAuth traffic over real sockets: names are pinned, bodies bounded, redirects kept at home."""

from __future__ import annotations

import contextlib
import ssl
from functools import partial
from typing import Any

import pytest
import trio
import trustme

import afpool
from afpool import TlsConfig
from afpool.credentials._network import MAX_BODY, Network
from afpool.credentials._trouble import Trouble

WHAT = "the document"


class Http:
    """Answers each connection with bytes, and keeps what it was sent."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.names: list[str | None] = []
        self.port = 0

    async def serve(self, context: ssl.SSLContext | None, *, task_status: Any) -> None:
        async def talk(stream: Any) -> None:
            if context is not None:
                stream = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
            data = b""
            with contextlib.suppress(trio.BrokenResourceError):
                while b"\r\n\r\n" not in data:
                    chunk = await stream.receive_some(65536)
                    if not chunk:
                        return
                    data += chunk
                self.requests.append(data)
                if self.answer is None:
                    await trio.sleep_forever()
                await stream.send_all(self.answer)
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.aclose()

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        await trio.serve_listeners(talk, listeners, task_status=task_status)


@contextlib.asynccontextmanager
async def http(answer: bytes | None, context: ssl.SSLContext | None = None):
    server = Http(answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(server.serve, context))
        yield server
        nursery.cancel_scope.cancel()


def whole(body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> bytes:
    return (f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n").encode() + body


def network(addresses: dict[str, list[str]] | None = None, **options: Any) -> Network:
    """One whose names lead where the test says; each look-up takes the next answer."""

    def resolve(host: str, port: int) -> list[Any]:
        assert addresses is not None, f"{host} was looked up"
        known = addresses[host]
        address = known.pop(0) if len(known) > 1 else known[0]
        return [(2, (one, port)) for one in address.split()]

    return Network(afpool.Seams(resolve=resolve), **options)


async def refuses(asking: Any, text: str, *, passing: bool) -> None:
    with pytest.raises(Trouble, match=text) as caught, trio.fail_after(5):
        await asking
    assert caught.value.passing is passing


async def test_a_name_is_pinned_to_the_address_that_was_checked():
    """The name changes its mind after the check; the connection goes to what was checked."""
    async with http(whole(b'{"a":1}')) as server:
        net = network({"mcp.localhost": ["127.0.0.1"], "login.localhost": ["127.0.0.1", "10.255.255.1"]})
        reply = await net.get(
            f"http://login.localhost:{server.port}/x", WHAT, resource="http://mcp.localhost:1/mcp"
        )
        assert (reply.status, reply.body) == (200, b'{"a":1}')
        head = server.requests[0].lower()
        assert f"host: login.localhost:{server.port}\r\n".encode() in head
        assert b"cookie" not in head
        assert b"authorization" not in head
        assert b"accept-encoding: identity" in head


async def test_a_name_that_leads_inside_is_not_asked():
    async with http(whole()) as server:
        net = network({"mcp.example": ["93.184.216.34"], "login.example": ["127.0.0.1"]})
        asking = net.get(f"https://login.example:{server.port}/x", WHAT, resource="https://mcp.example/mcp")
        await refuses(asking, "not asked", passing=False)
        assert not server.requests


async def test_a_name_with_one_address_inside_is_not_asked_at_all():
    net = network({"mcp.example": ["93.184.216.34"], "login.example": ["93.184.216.34 10.0.0.1"]})
    await refuses(
        net.get("https://login.example/x", WHAT, resource="https://mcp.example/mcp"),
        "not asked",
        passing=False,
    )


async def test_each_hop_is_looked_up_again():
    location = "location: /elsewhere\r\n"
    async with http(whole(status="302 Found", headers=location)) as server:
        net = network({"login.localhost": ["127.0.0.1", "169.254.169.254"]})
        asking = net.get(f"http://login.localhost:{server.port}/x", WHAT, resource="http://127.0.0.1:1/mcp")
        await refuses(asking, "link-local", passing=False)
        assert len(server.requests) == 1


async def test_a_name_without_an_address():
    def fail(host: str, port: int) -> list[Any]:
        raise OSError("canary")

    net = Network(afpool.Seams(resolve=fail))
    asking = net.get("https://login.example/x", WHAT, resource="https://93.184.216.34/mcp")
    await refuses(asking, "^the host of the document has no address$", passing=True)


LOCAL = "http://127.0.0.1:1/mcp"


async def test_a_get_follows_two_redirects_at_home():
    async with http(whole(status="307 T", headers="location: /y\r\n")) as server:
        await refuses(
            network().get(f"http://127.0.0.1:{server.port}/x", WHAT, resource=LOCAL),
            "more than 2 times",
            passing=False,
        )
        assert len(server.requests) == 3


async def test_a_redirect_to_another_origin_is_not_followed():
    async with http(whole()) as other, http(b"") as server:
        server.answer = whole(status="302 F", headers=f"location: http://127.0.0.1:{other.port}/\r\n")
        await refuses(
            network().get(f"http://127.0.0.1:{server.port}/x", WHAT, resource=LOCAL),
            "another origin",
            passing=False,
        )
        assert not other.requests


async def test_a_post_is_never_redirected():
    async with http(whole(status="307 T", headers="location: /y\r\n")) as server:
        asking = network().post_form(
            f"http://127.0.0.1:{server.port}/token", WHAT, resource=LOCAL, form=[("code", "c")]
        )
        await refuses(asking, "carries secrets", passing=False)
        assert len(server.requests) == 1


@pytest.mark.parametrize("extra", [0, 1])
async def test_a_body_has_a_bound(extra):
    async with http(whole(b"x" * (MAX_BODY + extra))) as server:
        asking = network().get(f"http://127.0.0.1:{server.port}/x", WHAT, resource=LOCAL)
        if extra:
            await refuses(asking, "more than", passing=True)
        else:
            assert len((await asking).body) == MAX_BODY


async def test_a_compressed_body_is_not_read():
    async with http(whole(headers="content-encoding: gzip\r\n")) as server:
        asking = network().get(f"http://127.0.0.1:{server.port}/x", WHAT, resource=LOCAL)
        await refuses(asking, "compressed", passing=True)


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"]
)
async def test_an_answer_that_is_none(answer):
    async with http(answer) as server:
        asking = network().get(f"http://127.0.0.1:{server.port}/x", WHAT, resource=LOCAL)
        await refuses(asking, "could not be asked", passing=True)


async def test_nobody_listens():
    async with http(b"") as server:
        port = server.port
    asking = network().get(f"http://127.0.0.1:{port}/x", WHAT, resource=LOCAL)
    await refuses(asking, "no connection", passing=True)


async def test_silence_is_bounded():
    async with http(None) as server:
        asking = network(timeout=0.1).get(f"http://127.0.0.1:{server.port}/x", WHAT, resource=LOCAL)
        await refuses(asking, "within 0.1 s", passing=True)


async def test_tls_is_held_to_the_name_and_not_to_the_address():
    authority = trustme.CA()
    pem = authority.cert_pem.bytes().decode()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    seen: list[str | None] = []
    context.sni_callback = lambda sock, name, ctx: seen.append(name)
    authority.issue_cert("login.localhost").configure_cert(context)
    async with http(whole(b"[]"), context) as server:
        names = {"login.localhost": ["127.0.0.1"], "evil.localhost": ["127.0.0.1"]}
        net = network(names, tls=TlsConfig(ca_data=pem))
        reply = await net.get(f"https://login.localhost:{server.port}/x", WHAT, resource=LOCAL)
        assert reply.ok
        assert seen == ["login.localhost"]
        asking = net.get(f"https://evil.localhost:{server.port}/x", WHAT, resource=LOCAL)
        await refuses(asking, "TLS failed", passing=True)
        stranger = network(names)
        asking = stranger.get(f"https://login.localhost:{server.port}/x", WHAT, resource=LOCAL)
        await refuses(asking, "TLS failed", passing=True)
        assert len(server.requests) == 1


async def test_a_name_that_is_not_answered_keeps_no_other_name_from_being_looked_up(autojump_clock):
    """One tenant's authorization server must not cost the others their tokens."""

    async def in_thread(function, limiter):
        async with limiter:
            found = function()
            if found is None:
                await trio.sleep_forever()
            return found

    def resolve(host, port):
        return None if host.startswith("hung") else [(2, ("93.184.216.34", port))]

    net = Network(afpool.Seams(resolve=resolve, in_thread=in_thread))
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(net._addresses, "hung.test", 443, "it")
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            assert await net._addresses("fine.test", 443, "it") == [("93.184.216.34", "public")]
        for number in range(1000):
            await net._addresses(f"fine-{number}.test", 443, "it")
        assert len(net._names) <= 256
        nursery.cancel_scope.cancel()
