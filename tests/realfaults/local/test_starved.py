"""A host that holds the loop: its function blocks for a second, and deadlines pass while nobody looks.

The servers are processes of their own, so that they answer meanwhile. An answer that came in time is the
caller's however late it is read; no server is taken for silent because nobody listened.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Plan, Seams, Server
from afpool.tools import define_tool
from tests.realfaults.local.local_kit import ALICE, LIMITS, asked, child_plan, noted, tool_of, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

ANSWER = 0.3
DEADLINE = 0.8
HELD = 1.2


@contextlib.contextmanager
def http_server(*rules: dict[str, Any], builtin: str = "echo") -> Iterator[str]:
    """A server in a process of its own, with a tool `do`; give its URL."""
    script = json.dumps({"tools": [{"name": "do", "builtin": builtin}], "rules": list(rules)})
    command = [sys.executable, "-m", "afpool.testing", "http", "--script", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        assert process.stdin is not None
        process.stdin.close()


def slow(seconds: float, method: str = "tools/call", **more: Any) -> dict[str, Any]:
    return {"method": method, "action": {"do": "Delay", "seconds": seconds}, **more}


@contextlib.asynccontextmanager
async def pool_of(kind: str, tmp_path: Path, *, answer: float = ANSWER, **more: Any) -> AsyncIterator[Any]:
    with contextlib.ExitStack() as stack:
        if kind == "stdio":
            plan = child_plan(tmp_path / "log")
        else:
            url = stack.enter_context(http_server(slow(answer)))
            plan = Plan(transport=HttpTransport(url=url, streaming="streamable"))
        async with afpool.open_pool([Server(name="files", plan=plan)], **{**LIMITS, **more}) as pool:
            yield pool


def begun(pool: Any) -> int:
    return sum(call.begun for call in pool.running.values())


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_an_answer_that_came_in_time_is_the_callers(kind: str, tmp_path: Path):
    """Eight at once, three times: which task of the loop comes first afterwards is chance and counts not."""
    async with pool_of(kind, tmp_path) as pool:
        tool = await tool_of(pool)
        found: list[Any] = []
        for _ in range(3):
            async with trio.open_nursery() as nursery:

                async def call(number: int) -> None:
                    found.append(await asked(tool, seconds=DEADLINE, do="echo", n=number))

                for number in range(8):
                    nursery.start_soon(call, number)
                await until(lambda: begun(pool) == 8 or kind == "stdio")
                time.sleep(HELD)  # noqa: ASYNC251 -- what a host should not do, and does
        assert [one for one in found if isinstance(one, afpool.AfpoolError)] == []
        assert len(found) == 24
        assert [event.kind for event in pool.records.events if event.kind in ("suspect", "silent")] == []


async def test_an_answer_that_did_not_come_is_late_and_in_doubt(tmp_path: Path):
    """Late once each; the server is alive, and that it was not heard for a while costs it nothing."""
    async with pool_of("http", tmp_path, answer=30.0) as pool:
        tool = await tool_of(pool)
        actor = pool._existing(pool.key_of(ALICE, "files"))
        client = actor.machine.client
        found: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def call(number: int) -> None:
                found.append(await asked(tool, seconds=DEADLINE, n=number))

            for number in range(4):
                nursery.start_soon(call, number)
            await until(lambda: begun(pool) == 4)
            time.sleep(HELD)  # noqa: ASYNC251
        assert {(one.code, one.delivery) for one in found} == {("deadline-exceeded", "in-doubt")}
        await until(lambda: "suspect" in [event.kind for event in pool.records.events])
        await trio.sleep(2 * LIMITS["ping_timeout"])
        assert "silent" not in [event.kind for event in pool.records.events]
        assert actor.machine.client is client


async def test_a_suspect_is_not_judged_by_a_loop_that_was_held(tmp_path: Path):
    """The ping's time is over before its request has left, since the host held the loop: it is sent again."""
    hold = False
    ping = 0.9  # a busy machine has to answer the second one in time

    async def connect(family: int, address: Any) -> Any:
        nonlocal hold
        if hold:
            hold = False
            time.sleep(1.2 * ping)  # noqa: ASYNC251
        return await Seams().connect(family, address)

    async with pool_of(
        "http", tmp_path, answer=30.0, seams=Seams(connect=connect), ping_timeout=ping
    ) as pool:
        tool = await tool_of(pool)
        actor = pool._existing(pool.key_of(ALICE, "files"))
        client = actor.machine.client

        def seen(event: Any) -> None:
            nonlocal hold
            if event.kind == "suspect":
                idle = client.handle.channel.link._idle
                while idle:
                    idle.pop().wire.close()
                hold = True

        pool.records.tap(on_event=seen)
        with trio.fail_after(60):
            # on a busy machine a call may be over before its request has left: that says nothing of anybody
            while "suspect" not in [event.kind for event in pool.records.events]:
                async with trio.open_nursery() as nursery:
                    for number in range(3):
                        nursery.start_soon(lambda n: asked(tool, seconds=DEADLINE, n=n), number)
        await until(lambda: not hold)
        await trio.sleep(4 * ping)
        assert "silent" not in [event.kind for event in pool.records.events]
        assert actor.machine.client is client


@pytest.mark.parametrize("where", ["share", "sink", "tool"])
async def test_whatever_of_the_host_holds_the_loop(where: str, tmp_path: Path):
    """`share`, a sink, a tool that is a plain function: all verdicts are true afterwards."""
    hold: list[str] = []

    def held(*_: Any) -> None:
        if where in hold:
            hold.remove(where)
            time.sleep(HELD)

    def share(*_: Any) -> None:
        if where == "share":
            held()

    @define_tool
    def busy() -> str:
        """Hold the loop."""
        held()
        return "done"

    log = tmp_path / "log"
    server = Server(name="files", plan=child_plan(log))
    async with afpool.open_runtime(servers=[server], tools=[busy], share=share) as runtime:
        toolset = await runtime.toolset(ALICE)
        if where == "sink":
            runtime.pool.records.tap(on_use=held)
        found: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def call(number: int, **more: Any) -> None:
                limit = trio.current_time() + DEADLINE
                arguments = {"n": number, **more}
                found.append(await toolset.call("do", arguments, deadline=limit))

            for number in range(4):
                nursery.start_soon(call, number)
            await until(lambda: len(noted(log).ran) == 4)
            hold.append(where)
            nursery.start_soon(call, 4)
            if where == "tool":
                nursery.start_soon(toolset.call, "busy", {})
        ran = noted(log).ran
        assert sorted(ran) == sorted(set(ran))
        for result in found:
            assert not result.is_error or "deadline" in result.text
        result = await toolset.call("do", {"n": 99})
        assert result.text == "99"
