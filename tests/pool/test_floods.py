"""A server that says more than anybody asked for costs its own key: others are served, memory stays bounded.

The flooding server is a process of its own and writes as fast as the pool reads, which is more than 100,000
messages a second where the machine has a core for it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

import afpool
from afpool import HttpTransport, Plan, Server, StdioTransport
from afpool.testing import FakeServer
from tests.pool.kit import ALICE, BOB, memory_world, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALLS = 10
PATIENCE = 5.0  # seconds that one call of another key may take beside a flood, on a machine that is busy
GROWTH = 64 * 1024 * 1024  # bytes that the process may grow by meanwhile

KINDS = {
    "progress": '{"jsonrpc":"2.0","method":"notifications/progress",'
    '"params":{"progressToken":@request-id@,"progress":1}}',
    "list_changed": '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
    "answers to nobody": '{"jsonrpc":"2.0","id":987654,"result":{}}',
    "requests": '{"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{}}',
    "rubbish": "{}",
    "crumbs": "",
}


def resident() -> int:
    """How many bytes of this process are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def script(data: str) -> str:
    flood = {"method": "tools/call", "tool": "flood", "action": {"do": "Flood", "data": data}}
    return json.dumps({"tools": ["echo", {"name": "flood"}], "rules": [flood]})


@contextlib.asynccontextmanager
async def flooding(way: str, kind: str) -> AsyncIterator[Any]:
    """The transport of a server whose tool `flood` floods."""
    text = KINDS[kind]
    if way == "line":
        yield StdioTransport.of(*FakeServer.stdio_command(json.loads(script(text + "\n"))))
        return
    data = ":\n" if kind == "crumbs" else f"data: {text}\n\n"
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "afpool.testing", "http", "--script", script(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = b""
        with trio.fail_after(60):
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some(4096)
        yield HttpTransport(url=json.loads(line)["url"])
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await trio.aclose_forcefully(process.stdin)
            await trio.aclose_forcefully(process.stdout)


@pytest.mark.parametrize(
    ("way", "kind"),
    # over HTTP an answer is its request's, whatever its id: the first one would end the flood
    [
        (way, kind)
        for way in ("line", "event")
        for kind in KINDS
        if (way, kind) != ("event", "answers to nobody")
    ],
)
async def test_a_flood_costs_its_own_key(way: str, kind: str):
    async with flooding(way, kind) as transport, FakeServer.http() as calm:
        good = Plan(transport=HttpTransport(url=calm.url))

        def plan(server: str, who: afpool.Identity) -> Plan:
            return Plan(transport=transport, protocol_version="2025-11-25") if who == ALICE else good

        async with afpool.open_pool([Server(name="files")], plan=plan) as pool:
            flood = (await pool.tools(ALICE))["flood"]
            echo = (await pool.tools(BOB))["echo"]
            heard = 0

            def count(_: object) -> None:
                nonlocal heard
                heard += 1

            async with trio.open_nursery() as nursery:
                call = start(nursery, lambda: flood.call(identity=ALICE, call_id="f", on_progress=count))
                await trio.sleep(0.3)  # until it flows; what is measured is how it goes on beside it
                before = resident()
                for n in range(CALLS):
                    with trio.fail_after(PATIENCE):
                        await echo.call({"n": n}, identity=BOB)
                grown = resident() - before
                assert grown < GROWTH
                if call.done.is_set():
                    # a server that asks faster than it reads the answers has ended its stream
                    assert (way, kind) == ("line", "requests"), call.error
                    assert call.error is not None
                    assert call.error.code == "session-handle-lost"
                assert kind != "progress" or heard > 1000
                pool.cancel("f")
                with trio.fail_after(PATIENCE):
                    await call.done.wait()
                assert call.error is not None
                assert call.error.delivery == "in-doubt"
                pool.evict(pool.key_of(ALICE, "files"))
            assert pool.records.failures == 0


async def test_announcements_without_end_leave_the_record_to_others(autojump_clock):
    def announced() -> int:
        return sum(event.kind == "list-changed" for event in pool.records.events)

    async with memory_world() as (server, _, pool):
        for round_ in range(1, 4):
            tool = (await pool.tools(ALICE))["echo"]
            state = tool.binding.list
            before = state.notices
            for _ in range(10):
                for _ in range(500):
                    server.engine.streams.broadcast("notifications/tools/list_changed", None)
                await trio.testing.wait_all_tasks_blocked()
            assert state.notices == before + 5000
            assert announced() == round_
        kinds = [event.kind for event in pool.records.events]
        assert len(kinds) < 20
