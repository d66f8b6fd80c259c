"""The uses of a runtime's calls: one for each, from before its tool is known; and which runs are open."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from afpool import Identity, ServerRules, ToolContext, ToolResult, Use
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import OpenRun
from afpool.runtime._offers import Offers
from afpool.testing import Drop, FakeTool, Hold, JsonRpcError
from afpool.testing import Progress as Reported
from afpool.tools import Deny, Hook, binding_of, define_tool, from_identity
from tests.pool.bound_kit import KEY
from tests.runtime.runtime_kit import ALICE, BOB, Here, runtime, said, taking
from tests.tools.door_kit import Ran, refused

if TYPE_CHECKING:
    from afpool import Tool


def uses(here: Here) -> list[Use]:
    """Of the calls that have ended; none is filed twice, none is left over."""
    filed = list(here.runtime.pool.records.uses)
    assert len({id(use) for use in filed}) == len(filed)
    assert not here.runtime.running
    return filed


def stages(use: Use) -> list[str]:
    return [stage for stage, _ in use.stages]


async def test_a_servers_call_has_one_use_with_what_both_know() -> None:
    async with runtime({"files": [said("files", "read")], "other": [said("other", "read")]}) as here:
        toolset = await here.runtime.toolset(ALICE)
        result = await toolset.call("files__read", {"q": 1}, call_id="c")
        assert result.code == "ok"
        (use,) = uses(here)
        assert (use.call_id, use.server, use.tool, use.name) == ("c", "files", "read", "files__read")
        assert (use.method, use.outcome, use.delivery, use.who) == ("tools/call", "ok", "answered", ALICE)
        assert use.shown == b'{"q":1}'
        # what the pool knows
        assert use.key == binding_of(toolset["files__read"]).actor.key  # type: ignore[union-attr]
        assert (use.attempts, use.client_id is None, use.context is None) == (1, False, False)
        assert use.bytes_in > 20
        passed = stages(use)
        assert passed[:2] == ["schema", "arguments"]
        assert "sent" in passed[2:]
        assert "run" not in passed


async def test_what_the_door_refuses_of_a_servers_tool_is_filed_under_its_server() -> None:
    fill = {"files": ServerRules(fill={"tenant": from_identity("tenant")})}
    tool = taking("files", "read", tenant={"type": "string"}, n={"type": "integer"})
    denying = Hook("h", before=lambda call: Deny("no") if call.call_id == "denied" else None)
    async with runtime({"files": [tool]}, rules=fill, hooks=[denying]) as here:
        toolset = await here.runtime.toolset(ALICE)
        await toolset.call("read", {"n": "x"}, call_id="wrong")
        await toolset.call("read", {"tenant": "x"}, call_id="filled")
        await toolset.call("read", {"n": 1}, call_id="denied")
        nameless = Identity(principal="alice")
        await (await here.runtime.toolset(nameless)).call("read", {"n": 1}, call_id="nothing")
        told = {use.call_id: use for use in uses(here)}
        assert {name: (use.code, stages(use)[-1]) for name, use in told.items()} == {
            "wrong": ("invalid-arguments", "arguments"), "filled": ("ERR_HOST_FILLED_ARGUMENT", "fill"),
            "denied": ("denied", "hooks"), "nothing": ("ERR_HOST_FILLED_VALUE_MISSING", "run"),
        }  # fmt: skip
        for use in told.values():
            assert (use.server, use.tool, use.method) == ("files", "read", "tools/call")
            assert isinstance(use.key, str)
            assert (use.outcome, use.attempts) == ("refused", 0)
        assert here.sent("files") == 0


async def test_the_verdict_of_a_failed_call_is_the_results() -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        toolset = await here.runtime.toolset(ALICE)
        for action in (Drop(), JsonRpcError(-32603, "no")):
            here.servers["files"].on("tools/call", action, times=1)
            result = await toolset.call("read")
            use = uses(here)[-1]
            assert (use.code, use.delivery, use.outcome) == (result.code, result.delivery, "failed")


async def test_a_tool_of_the_hosts_own_and_what_it_calls() -> None:
    async def work(args: Any, ctx: ToolContext) -> str:
        first = await ctx.tools.call("read", {"n": 1})
        second = await ctx.tools.call("missing")
        return f"{first.code} {second.code}"

    local = define_tool(execute=work, name="work")
    async with runtime({"files": [said("files", "read")]}, tools=[local]) as here:
        run = here.runtime.run(ALICE, "r")
        assert (await run.call("work", call_id="c")).text == "ok unknown-tool"
        read, missing, outer = uses(here)
        assert (outer.call_id, outer.server, outer.method, outer.parent) == ("c", "", "", None)
        assert stages(outer) == ["schema", "arguments", "run"]
        assert (read.call_id, read.server, read.parent) == ("c:inner:1", "files", "c")
        assert (missing.call_id, missing.code, missing.parent) == ("c:inner:2", "unknown-tool", "c")
        assert {use.run_id for use in (read, missing, outer)} == {"r"}
        assert {use.who for use in (read, missing, outer)} == {ALICE}


async def test_a_tool_that_hands_its_context_on_has_a_use_of_its_own() -> None:
    """What it calls past the door is another call, which the pool files."""
    held: list[Tool] = []

    async def work(args: Any, ctx: ToolContext) -> ToolResult:
        for number in (1, 2):
            result = await held[0].execute({"n": number}, ctx)
        return result

    async with runtime(
        {"files": [said("files", "read")]},
        tools=[define_tool(execute=work, name="work")],
        server={"files": {"call_id_key": KEY}},
    ) as here:
        here.servers["files"].recognise_repeats(KEY)
        held.append((await here.runtime.toolset(ALICE))["read"])
        result = await here.runtime.run(ALICE, "r").call("work", call_id="c")
        assert (result.code, result.call_id) == ("ok", "c")
        read, again, outer = uses(here)
        assert [(use.server, use.tool, use.call_id, use.parent) for use in (read, again, outer)] == [
            ("files", "read", "c.2", "c"), ("files", "read", "c.3", "c"), ("", "work", "c", None),
        ]  # fmt: skip
        assert here.servers["files"].execution_count("read") == 2, "neither is a repeat of the other"
        assert not here.servers["files"].repeats
        assert "sent" in stages(read)
        assert stages(outer) == ["schema", "arguments", "run"]


async def test_both_attempts_of_a_call_that_is_repeated_are_filed() -> None:
    async with runtime({"files": [said("files", "read")]}, repeat="when-nothing-ran") as here:
        toolset = await here.runtime.toolset(ALICE)
        here.servers["files"].forget_sessions("404")
        result = await toolset.call("read", {"q": 1}, call_id="c")
        assert result.code == "ok"
        first, second = uses(here)
        assert (first.call_id, first.code, first.delivery) == ("c", "session-expired", "refused")
        assert (first.outcome, first.repeated_of) == ("refused", None)
        assert stages(first)[-1] == "listing"
        assert (second.call_id, second.repeated_of, second.outcome) == ("c:again", "c", "ok")
        assert first.ended_at is not None
        assert second.began_at == first.ended_at
        for name in ("server", "tool", "name", "who", "shown", "method", "key"):
            assert getattr(second, name) == getattr(first, name)
        assert first.client_id != second.client_id
        assert (first.attempts, second.attempts) == (1, 1)


async def test_listing_to_find_a_name_is_a_part_of_the_call() -> None:
    async with runtime({"files": [said("files", "read")]}, tools=[Ran(name="own").tool]) as here:
        event = trio.Event()
        here.servers["files"].on("tools/list", Hold(event), times=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: here.runtime.dispatch(ALICE, "read", {"q": 1}, call_id="c"))
            await here.servers["files"].wait_for("tools/list", 1)
            (waiting,) = here.runtime.running.values()
            assert (waiting.call_id, waiting.name, waiting.waits_for) == ("c", "read", "listing")
            assert (waiting.server, waiting.who, waiting.stages) == ("", ALICE, [])
            event.set()
        (use,) = uses(here)
        assert use is waiting
        assert (use.server, use.outcome, use.shown) == ("files", "ok", b'{"q":1}')
        assert stages(use)[0] == "listing"
        # where the tool is at hand nobody lists
        await here.runtime.dispatch(ALICE, "own")
        assert "listing" not in stages(uses(here)[-1])


@pytest.mark.parametrize("how", ["dispatch", "run"])
async def test_listing_counts_in_the_deadline_of_a_call(
    how: str, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that brings no deadline has the runtime's once, and not once for each of its waits."""

    async def hang(args: Any, ctx: ToolContext) -> str:
        await trio.sleep_forever()
        return "never"

    ask = Offers.toolset

    async def late(offers: Offers, *args: Any, **more: Any) -> Any:
        await trio.sleep(6)
        offers.local["hang"] = define_tool(execute=hang, name="hang")
        return await ask(offers, *args, **more)

    monkeypatch.setattr(Offers, "toolset", late)
    async with runtime({}, deadline=10.0) as here:
        began = trio.current_time()
        if how == "run":
            result = await here.runtime.run(ALICE).call("hang")
        else:
            result = await here.runtime.dispatch(ALICE, "hang")
        refused(result, "deadline-exceeded", "in-doubt")
        assert trio.current_time() - began == pytest.approx(10)
        (use,) = uses(here)
        assert [(stage, round(at)) for stage, at in use.stages] == [
            ("listing", 6), ("schema", 6), ("arguments", 6), ("run", 10),
        ]  # fmt: skip


async def test_a_call_that_is_cancelled_while_its_tool_is_looked_for_is_filed() -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        here.servers["files"].on("tools/list", Hold(trio.Event()), times=1)
        for call in (here.runtime.dispatch, None):
            async with trio.open_nursery() as nursery:
                if call is None:
                    nursery.start_soon(here.runtime.run(ALICE, "r").call, "read")
                else:
                    nursery.start_soon(call, ALICE, "read")
                await trio.testing.wait_all_tasks_blocked()
                assert len(here.runtime.running) == 1
                nursery.cancel_scope.cancel()
        for use in uses(here):
            assert (use.outcome, use.code, use.delivery) == ("cancelled", "cancelled", "not-sent")
            assert stages(use) == ["listing"]
        assert [use.run_id for use in uses(here)] == [None, "r"]


async def test_a_listing_that_fails_refuses_the_call_and_is_where_it_ended() -> None:
    def nobody() -> Identity:
        raise LookupError("no")

    async with runtime({"files": [said("files", "read")]}) as here:
        refused(await here.runtime.dispatch(nobody, "read"), "identity-missing")
        assert stages(uses(here)[-1]) == ["listing"]


async def test_running_calls_are_listed_across_a_reload() -> None:
    go = trio.Event()

    async def wait(args: Any, ctx: ToolContext) -> str:
        await go.wait()
        return "done"

    tool = define_tool(execute=wait, name="wait")
    async with runtime({}, tools=[tool]) as here, trio.open_nursery() as nursery:
        nursery.start_soon(here.runtime.dispatch, ALICE, "wait")
        await trio.testing.wait_all_tasks_blocked()
        before = here.runtime.door
        here.runtime.reconfigure(hooks=[Hook("h", before=lambda call: None)])
        assert here.runtime.door is not before
        nursery.start_soon(here.runtime.dispatch, ALICE, "wait")
        await trio.testing.wait_all_tasks_blocked()
        first, second = here.runtime.running.values()
        assert (first.waits_for, second.waits_for) == ("run", "run")
        assert (stages(first), stages(second)) == (["schema", "arguments"], ["hooks", "schema", "arguments"])
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        assert {id(use) for use in uses(here)} == {id(first), id(second)}


async def test_reports_of_a_server_count_once() -> None:
    async def work(arguments: Any, arrival: Any) -> Any:
        for number in range(3):
            yield Reported(number, 9)
        yield "done"

    told: list[Any] = []
    async with runtime({"files": [FakeTool("work", work)]}) as here:
        toolset = await here.runtime.toolset(ALICE)
        result = await toolset.call("work", on_progress=told.append)
        assert result.text == "done"
        (use,) = uses(here)
        assert (use.reports, use.reported) == (len(told), (2, 9))
        assert len(told) == 3


# ---------------------------------------------------------------------------- artifacts


async def test_whoever_asks_is_told_of_what_calls_and_runs_put() -> None:
    told: list[tuple[Any, Any, Any]] = []

    async def work(args: Any, ctx: ToolContext) -> str:
        await ctx.artifacts.put(NewArtifact(kind="rows", media_type="a/b", data=[1]))
        return "done"

    tool = define_tool(execute=work, name="work")
    async with runtime({}, tools=[tool], artifacts=MemoryArtifacts()) as here:
        here.runtime.on_minted = lambda meta, scope, use: told.append((meta, scope, use))
        run = here.runtime.run(ALICE, "r")
        assert run.artifacts is not None
        meta = await run.artifacts.put(NewArtifact(kind="rows", media_type="a/b", data=[2]))
        await run.call("work", call_id="c")
        here.runtime.reconfigure(deadline=9.0)
        await run.call("work", call_id="d")
        assert [(scope, use and use.call_id) for _, scope, use in told] == [
            (ALICE, None), (ALICE, "c"), (ALICE, "d"),
        ]  # fmt: skip
        assert told[0][0] == meta
        assert [use.minted for _, _, use in told if use is not None] == [
            [meta.ref] for meta, _, _ in told[1:]
        ]
        # whose it is where nobody is named: the run's own
        nobodys = here.runtime.run(None, "s")
        await nobodys.call("work", call_id="e")
        assert told[-1][1] == nobodys.scope
        assert told[-1][2].who is None
        assert told[-1][2].run_id == "s"


# ---------------------------------------------------------------------------- runs


async def test_open_runs_are_those_that_somebody_holds(autojump_clock: trio.testing.MockClock) -> None:
    go = trio.Event()

    async def wait(args: Any, ctx: ToolContext) -> str:
        await ctx.tools.call("quick")
        await go.wait()
        return "done"

    tools = [define_tool(execute=wait, name="wait"), Ran(name="quick").tool]
    async with runtime({}, tools=tools) as here:
        began = trio.current_time()
        assert here.runtime.runs() == []
        first = here.runtime.run(ALICE, "one")
        await trio.sleep(2)
        second = here.runtime.run(lambda: BOB, "two")
        third = here.runtime.run(None, "three")
        assert here.runtime.runs() == [
            OpenRun(run_id="one", who=ALICE, began_at=began, calls=0, running=0, last_call_at=None),
            # he has not been asked yet
            OpenRun(run_id="two", who=None, began_at=began + 2, calls=0, running=0, last_call_at=None),
            OpenRun(run_id="three", who=None, began_at=began + 2, calls=0, running=0, last_call_at=None),
        ]
        await trio.sleep(1)
        await first.call("quick")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.call, "wait")
            nursery.start_soon(first.call, "wait")
            nursery.start_soon(second.call, "wait")
            await trio.sleep(1)
            assert [(run.run_id, run.who, run.calls, run.running) for run in here.runtime.runs()] == [
                ("one", ALICE, 3, 2), ("two", BOB, 1, 1), ("three", None, 0, 0),
            ]  # fmt: skip
            assert here.runtime.runs()[0].last_call_at == began + 3
            # one that is only under way is held by its call
            del first, third
            gc.collect()
            assert [run.run_id for run in here.runtime.runs()] == ["one", "two"]
            go.set()
        gc.collect()
        assert [run.run_id for run in here.runtime.runs()] == ["two"]
        resumed = here.runtime.resume(second.checkpoint())
        assert [(run.run_id, run.who, run.calls) for run in here.runtime.runs()] == [
            ("two", BOB, 1), ("two", BOB, 0),
        ]  # fmt: skip
        assert resumed.calls == 0
        del second, resumed
        gc.collect()
        assert here.runtime.runs() == []
        assert not len(here.runtime.open_runs)


async def test_runs_are_begun_and_dropped_in_other_threads_while_they_are_listed() -> None:
    async with runtime({}) as here:
        begin = here.runtime.run

        def many() -> None:
            for _ in range(2_000):
                begin(ALICE)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(trio.to_thread.run_sync, many)
            for _ in range(500):
                here.runtime.runs()
                await trio.lowlevel.checkpoint()
        gc.collect()
        assert here.runtime.runs() == []


async def test_whoever_a_run_acts_for_is_as_the_last_call_found_him() -> None:
    who: list[Identity] = [ALICE]
    async with runtime({}, tools=[Ran(name="quick").tool]) as here:
        run = here.runtime.run(lambda: who[0], "r")
        await run.call("quick")
        assert run.who == ALICE
        who[0] = BOB
        await run.call("quick")
        assert [one.who for one in here.runtime.runs()] == [BOB]
