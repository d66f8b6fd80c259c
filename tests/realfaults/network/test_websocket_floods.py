"""A WebSocket that floods, on real sockets: control frames without end, or one message without end."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Server, WebSocketTransport
from afpool.testing import FakeServer
from tests.pool.kit import ALICE, BOB
from tests.realfaults.network.odd_kit import LIMITS, PATIENCE, listen


@pytest.mark.parametrize("flood", ["pings", "fragments", "pongs"])
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "reads nothing"])
async def test_a_websocket_that_floods_costs_its_own_key(flood: str, reads: bool):
    """Control frames without end, or one message without end: the call ends, memory does not grow."""
    frame = {
        "pings": b"\x89\x7d" + b"p" * 125,
        "pongs": b"\x8a\x7d" + b"p" * 125,
        "fragments": b"\x00\x7e\xff\xff" + b"x" * 65535,
    }[flood]

    async def misbehave(stream: Any) -> None:
        if flood == "fragments":
            await stream.send_all(b"\x01\x01{")
        while True:
            await stream.send_all(frame * 8)

    with trio.fail_after(PATIENCE):
        async with FakeServer.ws() as server, FakeServer.http() as calm, trio.open_nursery() as nursery:

            async def relay(stream: trio.SocketStream) -> None:
                """Carry a connection until a call comes; what follows is no answer to it."""
                upstream = await trio.open_tcp_stream("127.0.0.1", server.port)
                flooding = False

                async def up() -> None:
                    nonlocal flooding
                    async for data in stream:
                        if not flooding:
                            await upstream.send_all(data)
                            if started.is_set():
                                flooding = True
                                inner.start_soon(misbehave, stream)
                        elif not reads:
                            await trio.sleep_forever()

                async def down() -> None:
                    async for data in upstream:
                        if not flooding:
                            await stream.send_all(data)

                with contextlib.suppress(Exception):
                    async with upstream, trio.open_nursery() as inner:
                        inner.start_soon(down)
                        await up()
                        inner.cancel_scope.cancel()

            started = trio.Event()
            port = await listen(nursery, relay)
            transport = WebSocketTransport(url=f"ws://127.0.0.1:{port}/mcp")

            def plan(_: str, who: Identity) -> Plan:
                if who == BOB:
                    return Plan(transport=HttpTransport(url=calm.url))
                return Plan(transport=transport, protocol_version="2025-11-25")

            async with afpool.open_pool(
                [Server(name="files")], plan=plan, max_message=1_000_000, cancel_grace=0.2, **LIMITS
            ) as pool:
                tool, bobs = (await pool.tools(ALICE))["echo"], (await pool.tools(BOB))["echo"]
                started.set()
                before = resident()
                async with trio.open_nursery() as calls:
                    calls.start_soon(_doubtful, tool, trio.current_time() + 0.5)
                    for n in range(15):
                        assert (await bobs.call({"n": n}, identity=BOB)).text == json.dumps({"n": n})
                        await trio.sleep(0.02)
                assert resident() - before < 60_000_000
                server.clear_log()
                pool.evict(pool.key_of(ALICE, "files"))
            nursery.cancel_scope.cancel()


async def _doubtful(tool: afpool.BoundTool, deadline: float) -> None:
    with pytest.raises(afpool.AfpoolError) as caught:
        await tool.call({"n": 1}, identity=ALICE, deadline=deadline)
    assert (caught.value.code, caught.value.delivery) in {
        ("deadline-exceeded", "in-doubt"),
        ("session-handle-lost", "in-doubt"),
    }


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
