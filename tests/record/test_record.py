"""The record of a pool and of a runtime: what it finds, and what it says of what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.record import Record
from afpool.testing import FakeTool, Hold
from afpool.tools import define_tool
from tests.pool.kit import ALICE, until, world
from tests.runtime.runtime_kit import ALICE as CALLER
from tests.runtime.runtime_kit import runtime

if TYPE_CHECKING:
    from afpool import ToolContext


async def test_calls_are_found_running_and_ended() -> None:
    async with world(pool={"records": 3}) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        with pytest.raises(LookupError, match="no call has ended yet"):
            record.explain("c-1")
        await tool.call(identity=ALICE, call_id="c-1")
        with pytest.raises(LookupError, match="holds every call since the pool was opened"):
            record.explain("c-2")
        released = trio.Event()
        w.server.on("tools/call", Hold(released), times=1)
        nursery.start_soon(lambda: tool.call(identity=ALICE, call_id="c-2"))
        await w.server.wait_for("tools/call", 2)
        (running,) = record.running()
        assert record.call("c-2") == [running]
        assert record.explain("c-2").headline.startswith("`echo` has run for")
        assert record.explain("c-2").as_json()["use"]["outcome"] is None
        released.set()
        await until(lambda: not w.pool.running)
        assert record.call("c-2") == [running]
        for number in range(3, 6):
            await tool.call(identity=ALICE, call_id=f"c-{number}")
        assert [use.call_id for use in record.calls()] == ["c-5", "c-4", "c-3"]
        assert [use.call_id for use in record.calls(limit=1)] == ["c-5"]
        assert [use.call_id for use in record.calls(where=lambda use: use.call_id < "c-5")] == ["c-4", "c-3"]
        with pytest.raises(LookupError, match="may have left it, since the record keeps 3 of the 5 calls"):
            await record.why("c-1")


async def test_a_record_that_is_off_says_so() -> None:
    async with world(pool={"records": 0}) as w:
        record, tool = Record(w.pool), await w.tool()
        await tool.call(identity=ALICE, call_id="c-1")
        with pytest.raises(LookupError, match="which keeps no call"):
            record.explain("c-1")


async def test_an_unknown_artifact_is_told_from_an_unknown_call() -> None:
    async with world() as w:
        with pytest.raises(LookupError, match=r"no artifact `art_0+` is on the record.*by its scope"):
            await Record(w.pool).why("art_" + "0" * 22)


async def test_the_newest_of_several_uses_is_explained() -> None:
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        await tool.call(identity=ALICE, call_id="same")
        w.pool.invalidate(identity=ALICE, reason="left")
        with pytest.raises(Exception, match="binding-changed"):
            await tool.call(identity=ALICE, call_id="same")
        assert len(record.call("same")) == 2
        assert record.explain("same").headline.startswith("refused `binding-changed`")
        assert record.explained(record.call("same")[1]).headline.startswith("answered")


async def test_a_runtime_knows_its_calls_from_before_their_tool_is_known() -> None:
    started, go_on = trio.Event(), trio.Event()

    async def slow(args: Any, ctx: ToolContext) -> str:
        started.set()
        await go_on.wait()
        return "done"

    tool = define_tool(execute=slow, name="work", input_schema={"type": "object"})
    async with runtime({"crm": [FakeTool("search")]}, tools=[tool]) as here, trio.open_nursery() as nursery:
        record = here.runtime.record
        nursery.start_soon(lambda: here.runtime.dispatch(CALLER, "work", {}, call_id="own"))
        await started.wait()
        assert [use.call_id for use in record.running()] == ["own"]
        assert "now has been running" in record.explain("own").headline
        go_on.set()
        await until(lambda: not here.runtime.running)
        await here.runtime.dispatch(CALLER, "search", {}, call_id="theirs")
        assert [use.call_id for use in record.calls()] == ["theirs", "own"]
        assert record.explain("own").headline.startswith("returned ")


async def test_a_call_under_way_in_door_and_pool_is_one() -> None:
    async with runtime({"crm": [FakeTool("search")]}) as here, trio.open_nursery() as nursery:
        released = trio.Event()
        here.servers["crm"].on("tools/call", Hold(released))
        nursery.start_soon(lambda: here.runtime.dispatch(CALLER, "search", {}, call_id="one"))
        await here.servers["crm"].wait_for("tools/call")
        assert len(here.runtime.record.running()) == 1
        assert len(here.runtime.record.call("one")) == 1
        released.set()


async def test_what_a_runtime_mints_is_on_its_record_also_after_a_reload() -> None:
    async def put(args: Any, ctx: ToolContext) -> str:
        assert ctx.artifacts is not None
        return (await ctx.artifacts.put(NewArtifact(kind="note", media_type="a/b", data="x"))).ref

    tool = define_tool(execute=put, name="put", input_schema={"type": "object"})
    told: list[Any] = []
    async with MemoryArtifacts() as store, runtime(tools=[tool], artifacts=store) as here:
        here.runtime.on_minted = lambda meta, scope, use: told.append(meta.ref)
        for deadline in (50.0, 40.0):
            ref = (await here.runtime.dispatch(CALLER, "put", {})).text
            assert "of `put`" in (await here.runtime.record.why(ref)).headline
            here.runtime.reconfigure(here.runtime.config, deadline=deadline)
        assert len(told) == 2
