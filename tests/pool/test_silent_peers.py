"""Peers that live and say nothing: stopped processes. They are noticed, replaced, and killed where ours.

What a stopped process has taken in is not known: its calls are in doubt. The three time-outs that make a
client suspect, and the ping, are counted in deadlines of the test's own.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

import afpool
from afpool import Plan, Server, StdioTransport
from afpool.testing import FakeServer, Hang, Rule
from tests.pool.kit import ALICE, memory_world, quiet, refused, until

if TYPE_CHECKING:
    from pathlib import Path

LATE = 1.5
"""Seconds that a call gets: enough for its request to leave whatever else the machine does."""

LIMITS: dict[str, Any] = {
    "ping_timeout": 0.2,
    "close_timeout": 2.0,
    "cancel_grace": 0.1,
    "settle_timeout": 1.0,
}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_child_that_was_stopped_is_replaced(era: Any, tmp_path: Path):
    log = tmp_path / "log"
    command = FakeServer.stdio_command({}, era=era, log=log)
    version = "2026-07-28" if era == "stateless" else "2025-11-25"
    plan = Plan(transport=StdioTransport.of(*command), protocol_version=version)
    async with afpool.open_pool([Server(name="files", plan=plan)], **LIMITS) as pool:
        with trio.fail_after(60):
            tool = (await pool.tools(ALICE))["echo"]
            # a list older than the child's word to tell of changes is asked for once more, by the next call
            await until(lambda: [each.stream for each in pool.statistics().actors] == ["listening"])
            await tool.call({"n": 1}, identity=ALICE)
            child = FakeServer.read_child_log(log).processes["server"]
            os.kill(child, signal.SIGSTOP)
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    call = tool.call({}, identity=ALICE, deadline=began + LATE)
                    nursery.start_soon(refused, call, "deadline-exceeded", "in-doubt")
            actor = pool._existing(pool.key_of(ALICE, "files"))
            await until(lambda: actor.machine.client is None)
            assert [event.kind for event in pool.records.events].count("suspect") == 1
            # the next list is asked for on a child of its own; the stopped one is killed meanwhile
            tool = (await pool.tools(ALICE))["echo"]
            assert (await tool.call({"n": 2}, identity=ALICE)).text == '{"n": 2}'
            assert FakeServer.read_child_log(log).processes["server"] != child
            await until(lambda: gone(child))
        quiet(pool)


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


async def late(tool: afpool.BoundTool) -> None:
    await refused(tool.call(identity=ALICE), "deadline-exceeded", "in-doubt", within=70)


@pytest.mark.parametrize(("at_once", "within"), [(True, 60.0 + 5.0), (False, 3 * 60.0 + 5.0)])
async def test_a_session_that_never_answers_is_replaced_in_the_time_that_is_stated(
    at_once: bool, within: float, autojump_clock: Any
):
    """With the defaults, as `docs/limits.md` has it: deadline 60 s, ping 5 s."""
    async with memory_world() as (server, _, pool):
        tool = (await pool.tools(ALICE))["echo"]
        await tool.call(identity=ALICE)
        actor = pool._existing(pool.key_of(ALICE, "files"))
        first = actor.machine.client
        rules = [Rule(method, Hang()) for method in ("tools/call", "ping")]
        server.engine.rules.rules += rules
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                if at_once:
                    nursery.start_soon(late, tool)
                else:
                    await late(tool)
        while actor.machine.client is first:
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.1)
            assert trio.current_time() - began < within + 1
        assert trio.current_time() - began <= within + 0.2
        del server.engine.rules.rules[:]
        again = (await pool.tools(ALICE))["echo"]
        assert (await again.call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
        assert len(server.wires) == 2
        await trio.sleep(60)
        quiet(pool)
