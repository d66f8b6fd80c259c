"""Connections: heads, plain answers, the page, tokens, who comes slowly, who comes too many."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from afpool.console import _listener
from tests.console.server_kit import (
    OPERATE,
    PATIENCE,
    READ,
    World,
    attached,
    exchange,
    opened,
    port_of,
    request,
    tcp,
    unix,
    upgrade,
)

if TYPE_CHECKING:
    from pathlib import Path

    from afpool.console import Console

BOTH = {"bind": "127.0.0.1:0", "read_token": READ, "operate_token": OPERATE}


async def status(console: Console, data: bytes, *, by_tcp: bool = True) -> int:
    stream = await (tcp(console) if by_tcp else unix(console))
    return (await exchange(stream, data))[0]


# ------------------------------------------------------------------ plain answers


async def test_the_page_has_strict_headers_and_stands_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, **BOTH) as console:
        for connect in (unix, tcp):
            code, headers, body = await exchange(await connect(console), request("/?from=here"))
            assert code == 200
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["content-type"] == "text/html; charset=utf-8"
            assert int(headers["content-length"]) == len(body) > 1000
            assert b"src=" not in body.split(b"<script")[0]


async def test_the_head_of_the_page_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        code, headers, body = await exchange(await unix(console), request("/", method="HEAD"))
        assert (code, body) == (200, b"")
        assert int(headers["content-length"]) > 1000


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (request("/nothing"), 404),
        (request("/console"), 426),
        (request("/", method="POST", host="localhost"), 405),
        (request("/", "Content-Length: 3", method="POST") + b"abc", 405),
        (request("/", host=None), 400),
        (request("/", host="evil.example"), 421),
        (request("/", "Origin: http://evil.example"), 403),
        (request("/console", "Origin: http://evil.example"), 403),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (request("/", "Origin: http://localhost", "Origin: http://localhost"), 400),
        (request("/", "X: " + "y" * 20_000), 431),
        (request("/" + "y" * 20_000), 431),
        (upgrade(without=("Connection",)), 400),
        (upgrade(without=("Upgrade",)), 426),
        (upgrade(without=("Sec-WebSocket-Key",)), 400),
        (upgrade(without=("Sec-WebSocket-Version",)), 426),
        (upgrade(without=("Sec-WebSocket-Protocol",)), 400),
        (upgrade("Sec-WebSocket-Key: AAAA"), 400),
        (upgrade("Sec-WebSocket-Key: AAAA", without=("Sec-WebSocket-Key",)), 400),
        (upgrade("Sec-WebSocket-Protocol: mcp", without=("Sec-WebSocket-Protocol",)), 400),
        (upgrade("Content-Length: 5") + b"abcde", 400),
        (upgrade("Origin: http://evil.example"), 403),
        (upgrade("Authorization: Bearer wrong"), 401),
        (upgrade("Authorization: Basic abc"), 401),
        (upgrade(host="evil.example"), 421),
    ],
)
async def test_what_is_no_console_gets_a_plain_status(tmp_path: Path, data: bytes, code: int) -> None:
    async with opened(tmp_path, **BOTH) as console:
        found, headers, body = await exchange(await tcp(console), data)
        assert found == code
        assert headers["content-type"] == "text/plain; charset=utf-8"
        assert headers["connection"] == "close"
        assert body.endswith(b"\n")
        assert b"evil" not in body
        if code == 401:
            assert headers["www-authenticate"] == "Bearer"
        # the next one is served
        assert await status(console, request("/")) == 200


async def test_heads_in_single_bytes_are_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        stream = await unix(console)
        for byte in upgrade():
            await stream.send_all(bytes([byte]))
        with trio.fail_after(PATIENCE):
            answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 101")
        await stream.aclose()


async def test_random_bytes_are_answered_or_dropped_and_cost_nobody(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with opened(tmp_path) as console:
        for _ in range(100):
            stream = await unix(console)
            await stream.send_all(chance.randbytes(chance.randrange(1, 400)))
            await trio.aclose_forcefully(stream)
        async with attached(await unix(console)) as client:
            assert "ok" in await client.ask("echo")


# ------------------------------------------------------------------ who


async def test_a_token_in_a_header_opens_a_session_of_its_level(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world, **BOTH) as console:
        for token, level in ((READ, "read"), (OPERATE, "operate")):
            headers = [(b"authorization", f"Bearer {token}".encode())]
            async with attached(await tcp(console), headers=headers) as client:
                assert client.hello["level"] == level
                assert client.hello["who"] == f"console token {level} from 127.0.0.1"
                answer = await client.ask("lease")
                assert ("error" in answer) == (level == "read")
                if level == "read":
                    assert answer["error"]["code"] == "not-allowed"


async def test_a_page_shows_its_token_in_the_first_message(tmp_path: Path) -> None:
    async with opened(tmp_path, **BOTH) as console:
        host = f"localhost:{port_of(console)}"
        headers = [(b"origin", f"http://{host}".encode())]
        async with attached(await tcp(console), headers=headers, token=READ, host=host) as client:
            assert client.hello["level"] == "read"


@pytest.mark.parametrize(
    "first", ['{"token":"wrong"}', '{"id":1,"do":"echo"}', "{}", "garbage", "", '{"token":7}']
)
async def test_a_wrong_first_message_opens_nothing(tmp_path: Path, first: str) -> None:
    async with opened(tmp_path, **BOTH) as console:
        async with attached(await tcp(console), hello=False) as client:
            await client.send(first)
            assert await client.closed() == 4401
            assert client.frames[0]["error"]["code"] == "not-allowed"
            assert "hello" not in client.frames[0]
        assert console.sessions == []
        assert console.door.refused["wrong-token"] == 1


async def test_another_user_is_refused_whatever_the_files_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as console:
        other = os.geteuid() + 4242
        monkeypatch.setattr(_listener, "peer_uid", lambda _: other)
        for data in (upgrade(), request("/"), upgrade(f"Authorization: Bearer {OPERATE}")):
            code, _, body = await exchange(await unix(console), data)
            assert code == 403
            assert b"belongs to user" in body
        assert console.door.refused == {"wrong-user": 3}


async def test_a_token_opens_nothing_on_the_unix_socket_and_is_not_needed(tmp_path: Path) -> None:
    async with opened(tmp_path, **BOTH) as console:
        headers = [(b"authorization", b"Bearer wrong")]
        async with attached(await unix(console), headers=headers) as client:
            assert client.hello["level"] == "operate"


# ------------------------------------------------------------------ slow, and many


async def test_whoever_says_nothing_is_closed(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with opened(tmp_path, **BOTH) as console:
        for sent in (b"", b"GET / HT", upgrade()):  # the last one shows no token
            stream = await tcp(console)
            if sent:
                await stream.send_all(sent)
            began = trio.current_time()
            with trio.fail_after(60):
                while await stream.receive_some():
                    pass
            assert 4 <= trio.current_time() - began <= 12
            await stream.aclose()


async def test_whoever_says_it_slowly_is_closed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(tmp_path, **BOTH) as console:
        stream = await tcp(console)
        began = trio.current_time()
        head = request("/", "X: " + "y" * 1000)
        with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
            for byte in head:
                await stream.send_all(bytes([byte]))
                await trio.sleep(0.5)
        assert trio.current_time() - began <= 12
        await stream.aclose()


async def test_many_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    async with opened(tmp_path, **BOTH, limits={"pending": 8}) as console:
        silent = [await tcp(console) for _ in range(40)]
        async with attached(await unix(console)) as client:  # not by the Unix socket
            assert "ok" in await client.ask("echo")
        assert await status(console, request("/")) == 200  # and not by TCP
        gone = 0
        for stream in silent[:30]:
            with trio.fail_after(PATIENCE):
                gone += await stream.receive_some() == b""
        assert gone == 30  # the oldest have made room
        for stream in silent:
            await stream.aclose()


async def test_one_console_more_than_there_may_be_is_told_so(tmp_path: Path) -> None:
    async with opened(tmp_path, **BOTH, limits={"sessions": 2}) as console:
        first, other = await unix(console), await unix(console)
        async with attached(first), attached(other) as second:
            code, headers, body = await exchange(await unix(console), upgrade())
            assert code == 503
            assert headers["retry-after"] == "5"
            assert b"2 consoles are attached" in body
            # a browser shows its page no status, so it is told by a message
            origin = [(b"origin", f"http://localhost:{port_of(console)}".encode())]
            host = f"localhost:{port_of(console)}"
            async with attached(
                await tcp(console), headers=origin, token=READ, hello=False, host=host
            ) as page:
                assert await page.closed() == 1013
                assert page.frames[0]["error"]["code"] == "busy"
            # who cannot prove himself takes no room, and learns nothing of it
            async with attached(await tcp(console), token="wrong", hello=False) as nobody:
                assert await nobody.closed() in (4401, 1006)
            assert "ok" in await second.ask("echo")
            assert len(console.sessions) == 2


async def test_who_may_only_look_leaves_room_for_who_has_to_act(tmp_path: Path) -> None:
    from trio_websocket import ConnectionRejected

    looking = [(b"authorization", f"Bearer {READ}".encode())]
    async with (
        opened(tmp_path, **BOTH, limits={"sessions": 8}) as console,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(7):
            await stack.enter_async_context(attached(await tcp(console), headers=looking))
        with pytest.raises(ConnectionRejected) as refused:
            await stack.enter_async_context(attached(await tcp(console), headers=looking))
        assert refused.value.status_code == 503
        async with attached(await tcp(console), token=READ, hello=False) as page:
            assert await page.closed() == 1013
        operator = await stack.enter_async_context(attached(await unix(console)))
        assert "ok" in await operator.ask("echo")
        with pytest.raises(ConnectionRejected):  # now all of them are taken
            await stack.enter_async_context(attached(await unix(console)))


async def test_two_hundred_consoles_at_once(tmp_path: Path) -> None:
    world = World()
    served: list[int] = []
    told: list[int] = []
    limits = {"pending": 256}
    async with opened(tmp_path, world, limits=limits) as console:
        done = trio.Event()

        async def one(nursery: trio.Nursery) -> None:
            from trio_websocket import ConnectionRejected

            try:
                async with attached(await unix(console)) as client:
                    assert "ok" in await client.ask("echo")
                    served.append(client.hello["pid"])
                    if len(served) + len(told) == 200:
                        done.set()
                    await trio.sleep_forever()
            except ConnectionRejected as refused:
                told.append(refused.status_code)
                if len(served) + len(told) == 200:
                    done.set()

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(one, nursery)
            with trio.fail_after(60):
                await done.wait()
            assert len(console.sessions) == 64
            nursery.cancel_scope.cancel()
    assert len(served) == 64
    assert told == [503] * 136


async def test_a_console_that_goes_makes_room(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world, limits={"sessions": 1}) as console:
        for _ in range(3):
            world.one_gone = trio.Event()
            async with attached(await unix(console)) as client:
                await client.ask("lease")
            with trio.fail_after(PATIENCE):
                await world.one_gone.wait()
            await trio.testing.wait_all_tasks_blocked()


async def test_running_out_of_descriptors_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as console:
        real = trio.SocketListener.accept
        failures = iter([OSError(24, "too many")] * 2)

        async def accept(listener: trio.SocketListener) -> trio.SocketStream:
            stream = await real(listener)
            failure = next(failures, None)
            if failure is None:
                return stream
            await trio.aclose_forcefully(stream)
            raise failure

        monkeypatch.setattr(trio.SocketListener, "accept", accept)
        with monkeypatch.context() as patched:
            patched.setattr(_listener, "_ACCEPT_PAUSE", 0.0)
            for _ in range(3):
                await trio.aclose_forcefully(await unix(console))
            async with attached(await unix(console)) as client:
                assert "ok" in await client.ask("echo")
