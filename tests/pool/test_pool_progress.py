"""Progress: in order, in the caller's own task, bounded, and never at the cost of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool.testing import FakeTool, Notice, Progress, echo_tool
from tests.pool.kit import ALICE, memory_world, quiet, refused, world

if TYPE_CHECKING:
    import afpool

STEPS = [Progress(n, 5, f"step {n}") for n in range(1, 6)]


async def stepping(arguments: Any, arrival: Any) -> Any:
    for step in STEPS:
        yield step
        yield Notice("notifications/message", {"level": "info", "data": "x"})
    if arguments.get("forever"):
        await trio.sleep_forever()
    yield "done"


@pytest.fixture(params=["handshake", "stateless", "memory"])
async def progressing(request):
    """A pool over a server whose tool reports progress, and how to call it."""
    tools = [FakeTool("steps", stepping), echo_tool()]
    if request.param == "memory":
        async with memory_world(tools=tools) as (_, _, pool):
            yield pool
    else:
        async with world(tools=tools, http={"era": request.param}) as w:
            yield w.pool


async def test_progress_comes_in_order_in_the_task_of_the_caller(progressing):
    tool = (await progressing.tools(ALICE))["steps"]
    me = trio.lowlevel.current_task()
    told = []

    def on_progress(progress: afpool.Progress) -> None:
        assert trio.lowlevel.current_task() is me
        told.append((progress.progress, progress.total, progress.message))

    assert (await tool.call(identity=ALICE, on_progress=on_progress)).text == "done"
    assert told == [(float(n), 5.0, f"step {n}") for n in range(1, 6)]
    use = progressing.records.uses[-1]
    assert (use.reports, use.reported) == (5, (5.0, 5.0))
    quiet(progressing)


async def test_a_callback_that_raises_costs_its_notification_only(progressing):
    tool = (await progressing.tools(ALICE))["steps"]
    told = []

    def on_progress(progress: afpool.Progress) -> None:
        told.append(progress.progress)
        raise LookupError("secret")

    assert (await tool.call(identity=ALICE, on_progress=on_progress)).text == "done"
    assert len(told) == 5
    use = progressing.records.uses[-1]
    assert [(stage, word) for stage, word, _ in use.facts] == [("progress", "LookupError")]
    quiet(progressing)


async def test_a_callback_that_withdraws_its_own_call(progressing):
    """The call is not waiting at that moment: it has to notice all the same."""
    tool = (await progressing.tools(ALICE))["steps"]
    call = tool.call(
        {"forever": True}, identity=ALICE, call_id="c", on_progress=lambda _: progressing.cancel("c")
    )
    error = await refused(call, "cancelled", "in-doubt")
    assert error.call_id == "c"
    assert (await (await progressing.tools(ALICE))["echo"].call(identity=ALICE)).text == "{}"


async def test_a_flood_of_progress_keeps_the_newest(autojump_clock):
    async def flood(arguments: Any, arrival: Any) -> Any:
        for n in range(1, 1001):
            yield Progress(n)
        yield "done"

    async with memory_world(tools=[FakeTool("flood", flood)]) as (_, _, pool):
        told: list[float] = []
        tool = (await pool.tools(ALICE))["flood"]
        await tool.call(identity=ALICE, on_progress=lambda progress: told.append(progress.progress))
        assert told == sorted(told)
        assert told[-1] == 1000
        quiet(pool)


async def test_progress_after_the_caller_has_gone_reaches_nobody(autojump_clock):
    async def steps(arguments: Any, arrival: Any) -> Any:
        for n in range(1, 5):
            await trio.sleep(1)
            yield Progress(n)
        yield "done"

    async with world(tools=[FakeTool("steps", steps, cancellable=False)]) as w:
        tool = await w.tool(name="steps")
        told: list[float] = []
        with trio.move_on_after(2.5):
            await tool.call(identity=ALICE, on_progress=lambda progress: told.append(progress.progress))
        await trio.sleep(5)
        assert told == [1, 2]
        quiet(w.pool)
