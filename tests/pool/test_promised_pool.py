"""Callers beside one another, a definition that is only spelled otherwise, what a server hears of a call."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio

from afpool import Identity
from afpool.testing import FakeTool, echo_tool
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import ALICE, BOB, CAROL, quiet, refused, start, world

CHAT = Identity(tenant="acme", principal="alice", conversation_id="c1")
OTHER_CHAT = Identity(tenant="acme", principal="alice", conversation_id="c2")


async def test_calls_of_several_conversations_run_at_the_same_time_each_on_its_own_client():
    people = (ALICE, BOB, CAROL, CHAT, OTHER_CHAT)
    async with world() as w, trio.open_nursery() as nursery:
        tools = [await w.tool(who) for who in people]
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event))
        calls = [
            start(nursery, lambda tool=tool, who=who: tool.call(identity=who))
            for tool, who in zip(tools, people, strict=True)
        ]
        # all of them have arrived before any of them is answered
        await w.server.wait_for("tools/call", len(people))
        assert not any(call.done.is_set() for call in calls)
        assert w.pool.statistics().clients == len(people)
        event.set()
        for call in calls:
            await call.answer()
        arrivals = w.server.arrivals("tools/call")
        assert len({arrival.session_id for arrival in arrivals}) == len(people)
        assert len({arrival.connection for arrival in arrivals}) == len(people)
        quiet(w.pool)


async def test_a_conversation_has_one_client_however_often_it_calls():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool(CHAT)
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event))
        calls = [start(nursery, lambda: tool.call(identity=CHAT)) for _ in range(5)]
        await w.server.wait_for("tools/call", 5)
        event.set()
        for call in calls:
            await call.answer()
        assert (w.pool.statistics().clients, w.server.count("initialize")) == (1, 1)
        assert len({arrival.session_id for arrival in w.server.arrivals("tools/call")}) == 1


async def test_another_conversation_of_the_same_person_is_refused():
    async with world() as w:
        tool = await w.tool(CHAT)
        for who in (OTHER_CHAT, ALICE):
            await refused(tool.call(identity=who), "identity-mismatch")
        assert w.sent() == 0
        await tool.call(identity=CHAT)


@pytest.mark.parametrize(
    ("schema", "same"),
    [
        ({"properties": {"b": {"type": "number"}, "a": {"minimum": 1.0}}, "type": "object"}, True),
        ({"type": "object", "properties": {"a": {"minimum": 1}, "b": {"type": "number"}}}, True),
        ({"type": "object", "properties": {"a": {"minimum": True}, "b": {"type": "number"}}}, False),
        ({"type": "object", "properties": {"a": {"minimum": 1}, "b": {"type": "number"}}, "$id": "x"}, False),
    ],
    ids=["other order and 1.0", "as it was", "true is not 1", "more"],
)
async def test_a_replaced_clients_list_is_compared_by_what_it_says_and_not_by_its_spelling(
    schema: Any, same: bool
):
    first = {"type": "object", "properties": {"a": {"minimum": 1}, "b": {"type": "number"}}}
    listed = FakeTool("find", lambda *_: "found", input_schema=first)
    async with world(tools=[listed, echo_tool()]) as w:
        tool = await w.tool(name="find")
        w.server.set_tools([FakeTool("find", lambda *_: "found", input_schema=schema)], notify=False)
        await w.evict()
        if same:
            assert (await tool.call(identity=ALICE)).text == "found"
            use = w.pool.records.uses[-1]
            assert use.list_id != tool.binding.list.id
        else:
            await refused(tool.call(identity=ALICE), "stale-tools")
            assert w.sent("find") == 0


async def test_a_list_is_kept_and_asked_for_again_where_that_is_wanted():
    async with world() as w:
        first = await w.pool.tools(ALICE)
        again = await w.pool.tools(ALICE)
        assert w.server.count("tools/list") == 1
        assert again["echo"].binding.list is first["echo"].binding.list
        w.server.set_tools([echo_tool(), FakeTool("more")], notify=False)
        assert "more" not in await w.pool.tools(ALICE)
        fresh = await w.pool.refresh(ALICE)
        assert "more" in fresh
        assert "more" in await w.pool.tools(ALICE), "what was asked for takes the place of what was kept"
        assert w.server.count("tools/list") == 2


async def test_closing_ends_every_client_once_and_again_does_nothing():
    async with world() as w:
        tools = {who: await w.tool(who) for who in (ALICE, BOB, CHAT)}
        report = await w.pool.aclose()
        assert report.closed == 3
        deleted = w.server.count("DELETE")
        assert deleted == 3
        again = await w.pool.aclose()
        assert again == report
        assert w.server.count("DELETE") == deleted
        for who, tool in tools.items():
            await refused(tool.call(identity=who), "pool-closed")
            await refused(w.pool.refresh(who), "pool-closed")
        assert w.sent() == 0


async def test_what_a_call_is_bounded_by_is_in_no_message():
    """A deadline, a callable identity, a progress callback: none of it is in what is sent."""
    async with world() as w:
        tool = await w.tool()
        deadline = trio.current_time() + 50
        await tool.call({"n": 1}, identity=lambda: ALICE, deadline=deadline, call_id="mine")
        (arrival,) = w.server.arrivals("tools/call")
        assert set(arrival.params) <= {"name", "arguments", "_meta"}
        assert arrival.params["arguments"] == {"n": 1}
        for word in ("mine", "acme", "alice", "deadline"):
            assert word not in json.dumps(arrival.params)


async def test_a_call_that_is_cancelled_is_withdrawn_at_the_server():
    event = trio.Event()

    async def hang(arguments: Any, arrival: Any) -> str:
        event.set()
        await trio.sleep_forever()
        return "never"

    with trio.fail_after(20):
        async with world(tools=[FakeTool("hang", hang), echo_tool()], pool={"close_timeout": 2.0}) as w:
            tools = await w.pool.tools(ALICE)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: tools["hang"].call(identity=ALICE))
                    await event.wait()
                    scope.cancel()
            assert scope.cancelled_caught
            call = w.server.arrivals("tools/call")[0]
            with trio.fail_after(5):
                await w.server.wait_until(lambda: w.server.cancelled == [call.id])
            assert w.server.count("notifications/cancelled") == 1
            # the client serves on
            assert not (await tools["echo"].call(identity=ALICE)).is_error
            assert w.server.count("initialize") == 1


def slots(cls: type) -> list[str]:
    names = [name for one in cls.__mro__ for name in getattr(one, "__slots__", ())]
    return [name for name in names if not name.startswith("__")]


async def test_what_is_filed_and_shown_holds_a_digest_of_whom_it_is_for_and_never_who(caplog):
    who = Identity(tenant="tenant-zqx", principal="principal-zqx", conversation_id="talk-zqx")
    uses: list[Any] = []
    caplog.set_level(logging.DEBUG)
    async with world(pool={"on_use": uses.append}) as w:
        tool = await w.tool(who)
        key = w.pool.key_of(who, "files")
        assert "-zqx" in key
        await tool.call(identity=who)
        error = await refused(tool.call(identity=ALICE), "identity-mismatch")
        await w.evict(who)
        actor = tool.binding.actor
        filed = [*w.pool.records.events, *w.pool.records.uses, *uses]
        assert len(filed) >= 6
        # a use keeps the key itself for whoever joins records; nothing shows it
        told = [repr([getattr(one, name) for name in slots(type(one)) if name != "key"]) for one in filed]
        for one in (*filed, w.pool.statistics(), w.pool, tool, tool.binding, actor, actor.info(), error, who):
            told += [repr(one), str(one)]
        assert [one for one in told if "-zqx" in one] == []
        assert actor.shown.startswith("k:")
        assert {event.key for event in w.pool.records.events} == {actor.shown}
        assert "-zqx" not in caplog.text
    async with world() as w:
        # the next process, or pool, shows another one
        assert (await w.tool(who)).binding.actor.shown != actor.shown
