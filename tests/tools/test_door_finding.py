"""A call that has begun before anybody knows which tool it means: its use while it waits, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from afpool import Identity
from afpool._base.errors import StaleTools, UnknownTool
from afpool.tools._asking import Asking
from afpool.tools._correction import MAX_NAME
from tests.tools.door_kit import ALICE, SECRET, Ran, Through, door


def asking(through: Through, **facts: Any) -> Asking:
    return Asking(**{"name": "work", "tool": None, "identity": ALICE, "run_id": "r", **facts})


async def test_it_is_under_way_while_its_tool_is_looked_for_and_goes_on_as_the_same_call() -> None:
    through, work = door(), Ran()
    asked = asking(through)
    with through.door.finding(asked):
        (use,) = through.door.running.values()
        assert (use.waits_for, use.who, use.run_id, use.name) == ("listing", ALICE, "r", "work")
    assert use.waits_for is None
    asked.tool = work.tool
    await through.door.dispatch(asked)
    assert through.uses == [use]
    assert not through.door.running
    assert [stage for stage, _ in use.stages] == ["listing", "schema", "arguments", "run"]
    assert (use.outcome, use.who, work.ctx.call_id) == ("ok", ALICE, use.call_id)


@pytest.mark.parametrize("who", [None, Identity(), lambda: ALICE], ids=["nobody", "empty", "asked later"])
async def test_whoever_is_nobody_or_has_to_be_asked_is_not_in_it_yet(who: Any) -> None:
    through = door()
    asked = asking(through, identity=who)
    with through.door.finding(asked):
        (use,) = through.door.running.values()
        assert use.who is None
    through.door.abandon(use)


async def test_a_refusal_while_it_is_looked_for_is_the_ending_of_that_call() -> None:
    through = door()
    asked = asking(through)
    with pytest.raises(StaleTools), through.door.finding(asked):
        raise StaleTools("The list has changed", delivery="not-sent")
    assert not through.uses, "whoever looked for it dispatches the refusal"
    asked.problem = UnknownTool("There is no tool 'work'; nothing ran")
    result = await through.door.dispatch(asked)
    (use,) = through.uses
    assert (use.outcome, use.code, use.call_id) == ("refused", "unknown-tool", result.call_id)
    assert [stage for stage, _ in use.stages] == ["listing"]


async def test_one_that_is_cancelled_while_it_is_looked_for_has_not_run() -> None:
    begun: list[str] = []
    through = door(begin=lambda use: begun.append(use.name))
    with trio.CancelScope() as scope, through.door.finding(asking(through)):
        scope.cancel()
        await trio.lowlevel.checkpoint()
    (use,) = through.uses
    assert (use.outcome, use.delivery, use.run_id, use.who) == ("cancelled", "not-sent", "r", ALICE)
    assert not through.door.running
    assert begun == ["work"]


async def test_a_name_is_kept_up_to_what_a_tool_may_be_called() -> None:
    for length, kept in ((MAX_NAME, "n" * MAX_NAME), (MAX_NAME + 1, "n" * MAX_NAME + "…")):
        through = door()
        await through(None, name="n" * length)
        assert through.uses[0].name == kept


def test_what_is_asked_for_shows_no_arguments_and_no_secrets() -> None:
    asked = Asking(name="work", tool=None, args={"token": SECRET})
    assert SECRET not in repr(asked)
