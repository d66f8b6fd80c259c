"""A call that was dispatched by name has one use: who dispatched it makes and files it, the pool writes."""

from __future__ import annotations

import attrs
import pytest
import trio

from afpool import Identity, ToolContext, Use
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import ALICE, BOB, refused, start, world
from tests.pool.test_in_doubt import KEY, LOST, Asked, ids, recognising


def door(call_id: str = "mine", *, tool: str = "", name: str = "files__echo") -> Use:
    """A use as a door makes it."""
    use = Use(call_id, "", tool, trio.current_time() - 1)
    use.name = name
    use.run_id = "run"
    use.marks += ("hooks", trio.current_time())
    return use


def context(use: Use, who: Identity = ALICE) -> ToolContext:
    return ToolContext(identity=who, call_id=use.call_id, run_id=use.run_id, use=use)


async def test_the_pool_writes_into_it_and_leaves_filing_to_whoever_made_it():
    async with world() as w:
        tool, use = await w.tool(), door(tool="echo")
        began = use.began_at
        result = await tool.execute({}, context(use))
        assert result.call_id == "mine"
        assert not w.pool.records.uses
        assert (use.server, use.tool, use.name, use.call_id) == ("files", "echo", "files__echo", "mine")
        assert (use.outcome, use.delivery, use.attempts, use.began_at) == ("ok", "answered", 1, began)
        assert (use.key, use.context) == (tool.binding.actor.key, tool.binding.context)
        assert (use.client_id, use.generation) == (tool.binding.client_id, 1)
        assert use.ended_at is None
        assert use.waits_for is None
        stages = [stage for stage, _ in use.stages]
        assert stages[:2] == ["hooks", "start"]
        assert stages[-2:] == ["sent", "answered"]
        w.pool.records.file(use)
        assert list(w.pool.records.uses) == [use]


async def test_a_use_whose_maker_did_not_know_the_tool_takes_its_name():
    async with world() as w:
        tool, use = await w.tool(), door(name="")
        await tool.execute({}, context(use))
        assert (use.tool, use.name) == ("echo", "echo")


async def test_a_refusal_is_written_into_it_too():
    async with world() as w:
        tool, use = await w.tool(), door()
        await refused(tool.execute({}, context(use, BOB)), "identity-mismatch")
        assert (use.outcome, use.code, use.delivery) == ("refused", "identity-mismatch", "not-sent")
        w.pool.invalidate(identity=ALICE)
        use = door()
        error = await refused(tool.execute({}, context(use)), "binding-changed")
        assert error.call_id == "mine"
        assert use.happened.kind == "revoked"
        assert not w.pool.records.uses


async def test_it_is_found_while_it_runs():
    async with world() as w, trio.open_nursery() as nursery:
        tool, use, event = await w.tool(), door(), trio.Event()
        w.server.on("tools/call", HoldAnswer(event), times=1)
        outcome = start(nursery, lambda: tool.execute({}, context(use)))
        await w.server.wait_for("tools/call")
        assert w.pool.records.find("mine") == [use]
        assert use.waits_for == "server"
        event.set()
        await outcome.answer()
        assert w.pool.records.find("mine") == []


async def test_a_further_call_with_the_same_context_has_a_use_and_an_id_of_its_own():
    async with world(server={"call_id_key": KEY}) as w:
        tool, use = await w.tool(), door()
        ctx = context(use)
        await tool.execute({"n": 1}, ctx)
        marks = list(use.marks)
        for number in (2, 3):
            result = await tool.execute({"n": number}, ctx)
            assert result.call_id == "mine", "it is the outer call that is answered"
        assert use.marks == marks
        second, third = w.pool.records.uses
        assert [(each.call_id, each.parent, each.run_id) for each in (second, third)] == [
            ("mine.2", "mine", "run"),
            ("mine.3", "mine", "run"),
        ]
        assert ids(w.server) == ["mine", "mine.2", "mine.3"], "a server that knows ids again is not misled"


async def test_a_further_call_is_withdrawn_with_the_call_that_it_belongs_to():
    async with world() as w, trio.open_nursery() as nursery:
        tool, use = await w.tool(), door()
        ctx = context(use)
        await tool.execute({}, ctx)
        w.server.on("tools/call", HoldAnswer(trio.Event()), times=1)
        outcome = start(nursery, lambda: tool.execute({}, ctx))
        await w.server.wait_for("tools/call", 2)
        assert w.pool.cancel("mine")
        await outcome.done.wait()
        assert outcome.error is not None
        assert outcome.error.code == "cancelled"


async def test_a_call_that_is_repeated_goes_on_in_it_and_each_pass_before_is_filed(autojump_clock):
    asked = Asked()
    async with world(**recognising(asked)) as w:
        w.server.recognise_repeats(KEY)
        w.server.on("tools/call", LOST, times=1)
        tool, use = await w.tool(), door()
        await tool.execute({}, context(use))
        (first,) = w.pool.records.uses
        assert first is not use
        assert (first.call_id, first.code, first.delivery, first.repeat) == (
            "mine", "connection-lost", "in-doubt", 0,
        )  # fmt: skip
        assert (use.call_id, use.outcome, use.code, use.delivery, use.repeat) == (
            "mine", "ok", None, "answered", 1,
        )  # fmt: skip
        assert use.marks[: len(first.marks)] == first.marks, "it tells the whole of it"
        assert use.began_at == first.began_at
        assert ids(w.server) == ["mine", "mine"]


async def test_who_called_is_kept_for_selecting_by():
    async with world() as w:
        tool = await w.tool()
        await tool.call(identity=ALICE)
        await tool.call(identity=w.host.who)
        await refused(tool.call(identity=BOB), "identity-mismatch")
        assert [use.who for use in w.pool.records.uses] == [ALICE, ALICE, BOB]
        assert "alice" not in repr(list(w.pool.records.uses))


async def test_a_further_call_that_is_repeated_goes_on_under_its_own_id(autojump_clock):
    """Under the id of the first one its server would take it for the first one's repeat, or run it again."""
    asked = Asked()
    async with world(**recognising(asked)) as w:
        w.server.recognise_repeats(KEY)
        tool, use = await w.tool(), door()
        ctx = context(use)
        await tool.execute({"n": 1}, ctx)
        facts = (list(use.marks), use.attempts, use.repeat, use.outcome)
        w.server.on("tools/call", LOST, times=1)
        await tool.execute({"n": 2}, ctx)
        assert ids(w.server) == ["mine", "mine.2", "mine.2"]
        assert w.server.execution_count("echo") == 2
        assert (use.marks, use.attempts, use.repeat, use.outcome) == facts, "the first one's is left alone"
        assert [(each.call_id, each.parent, each.repeat, each.outcome) for each in w.pool.records.uses] == [
            ("mine.2", "mine", 0, "failed"),
            ("mine.2", "mine", 1, "ok"),
        ]
        await tool.execute({"n": 3}, ctx)
        assert ids(w.server)[-1] == "mine.3"


async def test_a_pass_after_its_door_has_ended_goes_on_under_the_id_of_the_one_before(autojump_clock):
    async with world(**recognising(Asked())) as w:
        w.server.recognise_repeats(KEY)
        tool, use = await w.tool(), door()
        use.parent = "outer"
        w.server.on("tools/call", LOST, times=1)

        def ends(told: Use) -> str:
            w.pool.records.file(told)  # whoever dispatched it has not waited for it
            return "repeat"

        w.pool.on_in_doubt = ends
        await tool.execute({}, attrs.evolve(context(use), call_id="another"))
        assert ids(w.server) == ["mine", "mine"]
        assert w.server.execution_count("echo") == 1
        assert [(each.call_id, each.parent, each.repeat) for each in w.pool.records.uses] == [
            ("mine", "outer", 0),
            ("mine", "outer", 1),
        ]


async def test_a_call_with_a_use_that_is_filed_has_its_own():
    async with world() as w:
        tool, use = await w.tool(), door()
        use.outcome = "ok"
        w.pool.records.file(use)
        marks = list(use.marks)
        await tool.execute({}, context(use))
        assert use.marks == marks
        assert [(each.call_id, each.parent) for each in w.pool.records.uses] == [
            ("mine", None),
            ("mine.1", "mine"),
        ]


@pytest.mark.parametrize("end", ["ok", "failed", "cancelled"])
async def test_a_call_that_its_door_does_not_wait_for_changes_nothing_that_is_filed(end):
    async with world() as w, trio.open_nursery() as nursery:
        tool, use, event = await w.tool(), door(), trio.Event()
        w.server.on("tools/call", HoldAnswer(event), times=1)
        if end == "failed":
            w.server.on("tools/call", LOST, times=1)
        with trio.CancelScope() as scope:
            nursery.start_soon(left_behind, tool, use, scope, w, event, end)
            if end == "failed":
                await refused(tool.execute({}, context(use)), "connection-lost", "in-doubt")
            else:
                await tool.execute({}, context(use))
        filed, late = w.pool.records.uses
        assert filed is use
        assert (use.outcome, use.code, use.delivery) == ("ok", None, "answered")
        assert (late.call_id, late.parent, late.outcome) == ("mine.2", "mine", end)
        assert late.client_id == tool.binding.client_id
        assert late.ended_at is not None
        assert late.ended_at > use.ended_at


async def left_behind(tool, use, scope, w, event, end) -> None:
    """What a door files while the call that it has begun still runs."""
    await w.server.wait_for("tools/call")
    use.outcome, use.delivery = "ok", "answered"
    w.pool.records.file(use)
    if end == "cancelled":
        scope.cancel()
    else:
        event.set()


async def test_a_pass_that_is_filed_is_not_changed_by_the_next():
    use = door()
    use.minted, use.took, use.facts = ["a"], ["b"], [("answer", "http 503", 1.0)]
    use.request_id, use.bytes_in, use.tool_error, use.kept = 7, 10, True, 900
    first = use.split()
    for mine in (use.minted, use.took):
        mine.append("c")
    use.note("answer", "http 200", 2.0)
    assert (first.minted, first.took, first.facts) == (["a"], ["b"], [("answer", "http 503", 1.0)])
    assert (first.request_id, first.bytes_in, first.tool_error, first.kept) == (7, 10, True, 0)
    assert (use.request_id, use.bytes_in, use.tool_error) == (None, 0, False)


async def test_every_call_that_belongs_to_one_is_withdrawn_with_it():
    async with world() as w, trio.open_nursery() as nursery:
        tool, use = await w.tool(), door()
        ctx = context(use)
        w.server.on("tools/call", HoldAnswer(trio.Event()), times=4)
        calls = [start(nursery, lambda: tool.execute({}, ctx)) for _ in range(3)]
        other = start(nursery, lambda: tool.call(identity=ALICE, call_id="mine.too"))
        await w.server.wait_for("tools/call", 4)
        assert w.pool.cancel("mine")
        for call in calls:
            with trio.fail_after(5):
                await call.done.wait()
            assert call.error is not None
            assert call.error.code == "cancelled"
        assert not other.done.is_set()
        events = [event for event in w.pool.records.events if event.kind == "withdrawn"]
        assert len(events) == 1
        assert all(each.happened is use.happened for each in w.pool.records.uses)
        assert use.happened == events[0]
        nursery.cancel_scope.cancel()
