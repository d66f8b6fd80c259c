"""`tail`, `watch actors`, `watch overview`, `trace`: what is told, to whom, and when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from afpool.console import CommandError
from afpool.console._grid import IN_FRAME
from afpool.console._slices import encode
from tests.console.desk_kit import Desk, desk, frame, memory_desk
from tests.pool.kit import ALICE, BOB, person, refused

if TYPE_CHECKING:
    from trio.testing import MockClock

    from afpool.console import Stream


async def told(stream: Stream) -> list[dict[str, Any]]:
    """The events of the next frame, as they go out."""
    found = await frame(stream)
    decoded: dict[str, Any] = msgspec.json.decode(await encode(found))
    assert decoded["dropped"] == 0
    events: list[dict[str, Any]] = decoded["events"]
    return events


async def silent(stream: Stream) -> None:
    """Nothing is told for a while of virtual time."""
    with trio.move_on_after(5) as scope:
        assert (await stream.next()) is None, "something was told"
    assert scope.cancelled_caught


async def fail(at: Desk, tool: Any, call_id: str) -> None:
    at.pool.invalidate(identity=ALICE)
    await refused(tool.call({}, identity=ALICE, call_id=call_id), "binding-changed")


async def test_calls_and_events_are_told_as_they_happen(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        stream = await at.stream("tail", at.reader)
        tool = await at.world.tool(ALICE)
        kinds = [event["kind"] for event in await told(stream)]
        assert kinds == ["opened", "list"]
        await tool.call({}, identity=ALICE, call_id="c-1")
        (call,) = await told(stream)
        assert (call["kind"], call["call_id"], call["outcome"]) == ("call", "c-1", "ok")
        assert call["key"] == at.actor(ALICE).shown
        assert call["at"] > 1_700_000_000
        stream.close()
        await tool.call({}, identity=ALICE)
        assert await stream.next() is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tail calls", ["good", "bad"]),
        ("tail refusals", ["bad"]),
        ("tail events", ["opened", "list", "revoked", "closed"]),
        ("tail kind=event", ["opened", "list", "revoked", "closed"]),
        ("tail kind=call", ["good", "bad"]),
        ("tail kind=call outcome=refused,failed", ["bad"]),
        ("tail kind=revoked", ["revoked"]),
        ("tail kind=call,revoked", ["good", "revoked", "bad"]),
        ("tail outcome=ok", ["good"]),
        ("tail code=binding-changed", ["bad"]),
        ("tail calls tenant=acme", ["good", "bad"]),
        ("tail calls tenant=acm", []),
        ("tail calls principal=alice tool=echo server=files", ["good", "bad"]),
        ("tail calls conversation=x", []),
        ("tail call=bad", ["bad"]),
        ("tail slower=1h", []),
        ("tail server=files", ["opened", "list", "good", "revoked", "closed", "bad"]),
        ("tail server=other", []),
        ("tail key=KEY", ["opened", "list", "good", "revoked", "closed", "bad"]),
        ("tail key=k:nothing", []),
        ("tail events client=1000000", []),
    ],
)
async def test_what_is_followed(line: str, expected: list[str], autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        shown = at.pool.digest.show(at.pool.key_of(ALICE, "files"))
        stream = await at.stream(line.replace("KEY", shown), at.reader)
        tool = await at.world.tool(ALICE)
        await tool.call({}, identity=ALICE, call_id="good")
        await fail(at, tool, "bad")
        await trio.sleep(1)
        names = []
        if expected:
            names = [event.get("call_id", event["kind"]) for event in await told(stream)]
        assert sorted(names) == sorted(expected)
        await silent(stream)


async def test_what_has_been_can_be_told_first(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        tool = await at.world.tool(ALICE)
        for number in range(5):
            await tool.call({}, identity=ALICE, call_id=f"c-{number}")
            await trio.sleep(0.1)
        stream = await at.stream("tail calls last=2")
        assert [call["call_id"] for call in await told(stream)] == ["c-3", "c-4"]
        both = await at.stream("tail last=3")
        assert [one.get("call_id") for one in await told(both)] == ["c-2", "c-3", "c-4"]
        events = await at.stream("tail events last=2")
        assert [one["kind"] for one in await told(events)] == ["opened", "list"]


@pytest.mark.parametrize(
    "line",
    [
        "tail everything", "tail events outcome=ok", "tail events tenant=a", "tail server=", "tail code=!x",
        "tail last=x", "tail last=99999", "tail slower=x", "tail colour=red", "tail calls calls",
    ],
)  # fmt: skip
async def test_what_cannot_be_followed_is_refused(line: str) -> None:
    async with memory_desk() as at:
        await at.refused(line, "bad-option", at.reader)
        assert not at.pool.records._on_event[1:]  # nothing was hooked in, beside what counts


@given(
    name=st.sampled_from(
        ["kind", "outcome", "code", "server", "tool", "key", "client", "slower", "tenant", "last"]
    ),
    value=st.text(max_size=20),
)
def test_any_filter_is_taken_or_refused(name: str, value: str) -> None:
    async def main() -> None:
        async with memory_desk() as at:
            try:
                stream = await at.registry.run(["tail"], at.reader, {name: value})
            except CommandError as refusal:
                code = refusal.code
            else:
                code = "bad-option"
                stream.close()  # type: ignore[union-attr]
            assert code == "bad-option"

    trio.run(main)


async def test_a_tail_costs_nothing_once_it_is_closed(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        before = (len(at.pool.records._on_use), len(at.pool.records._on_event))
        streams = [await at.stream(line) for line in ("tail", "tail events", "tail calls")]
        assert len(at.pool.records._on_use) == before[0] + 2
        assert len(at.pool.records._on_event) == before[1] + 2
        for stream in streams:
            stream.close()
        assert (len(at.pool.records._on_use), len(at.pool.records._on_event)) == before


async def test_a_console_that_does_not_read_loses_events_and_the_pool_does_not_wait(
    autojump_clock: MockClock,
) -> None:
    async with memory_desk() as at:
        tool = await at.world.tool(ALICE)
        stream: Any = await at.stream("tail calls")
        stream._kept = 10
        for number in range(25):
            await tool.call({}, identity=ALICE, call_id=f"c-{number}")
        found = await frame(stream)
        assert (len(found["events"]), found["dropped"]) == (10, 15)


# ---------------------------------------------------------------------------- watch actors


async def grid(stream: Stream) -> tuple[dict[str, list[Any]], list[str]]:
    found = (await frame(stream))["actors"]
    return {row[0]: row for row in found["set"]}, found["gone"]


async def test_the_grid_comes_whole_and_then_by_what_changes(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        keep = [at.pool.actor_for("files", person(number)) for number in range(2 * IN_FRAME + 10)]
        stream = await at.stream("watch actors", at.reader)
        cells: dict[str, list[Any]] = {}
        sizes = []
        for _ in range(3):
            rows, gone = await grid(stream)
            assert not gone
            sizes.append(len(rows))
            cells |= rows
        assert sizes == [IN_FRAME, IN_FRAME, 10]
        assert set(cells) == {actor.shown for actor in keep}
        assert cells[keep[0].shown] == [keep[0].shown, "files", "idle", 0, 16, 0, None, None]
        await silent(stream)
        at.pool.pause(keep[3].key)
        rows, gone = await grid(stream)
        assert {key: row[2] for key, row in rows.items()} == {keep[3].shown: "paused"}
        at.pool.resume(keep[3].key)
        await grid(stream)
        lost = keep.pop().shown
        rows, gone = await grid(stream)
        assert (rows, gone) == ({}, [lost])
        await silent(stream)


async def test_what_a_cell_shows_is_what_the_table_shows(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        stream = await at.stream("watch actors")
        tool = await at.world.tool(ALICE)
        await tool.call({}, identity=ALICE)
        rows, _ = await grid(stream)
        (row,) = await at.rows("show actors columns=key,server,state,in_flight,max,waiting,client,generation")
        assert rows[row["key"]] == list(row.values())
        await at.world.announce(tool) if hasattr(at.world.server, "streams") else None


async def test_an_empty_pool_is_an_empty_grid_and_a_second_watcher_gets_all_of_it(
    autojump_clock: MockClock,
) -> None:
    async with memory_desk() as at:
        first = await at.stream("watch actors every=500ms")
        assert await grid(first) == ({}, [])
        keep = at.pool.actor_for("files", ALICE)
        assert list((await grid(first))[0]) == [keep.shown]
        second = await at.stream("watch actors")
        assert list((await grid(second))[0]) == [keep.shown]
        await at.refused("watch actors every=1ms", "bad-option")
        first.close()
        assert await first.next() is None


async def test_keys_are_gone_through_once_for_all_watchers(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        keep = [at.pool.actor_for("files", person(number)) for number in range(3)]
        streams: list[Any] = [await at.stream("watch actors") for _ in range(20)]
        for stream in streams:
            assert len((await grid(stream))[0]) == len(keep)
        assert streams[0]._grid is streams[1]._grid
        assert streams[0]._grid.look == 1


async def test_the_overview_comes_again_and_again(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        stream = await at.stream("watch overview every=2s")
        first = (await frame(stream))["overview"]
        began = trio.current_time()
        second = (await frame(stream))["overview"]
        assert trio.current_time() - began == pytest.approx(2)
        assert second["uptime"] - first["uptime"] == pytest.approx(2)
        stream.close()
        assert await stream.next() is None


# ---------------------------------------------------------------------------- trace


async def test_a_trace_tells_every_message_of_one_actor_and_of_no_other(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        tool = await at.world.tool(ALICE)
        other = await at.world.tool(BOB)
        key = at.actor(ALICE).shown
        await at.refused(f"trace {key} on", "not-allowed", at.reader)
        stream = await at.stream(f"trace {key[:9]} on")
        (began,) = [event for event in at.pool.records.events if event.kind == "traced"]
        assert began.facts == {"why": "on", "by": "console uid 1000"}
        await tool.call({"secret": "s3cret"}, identity=ALICE, call_id="c-1")
        await other.call({}, identity=BOB)
        events = await told(stream)
        turns = [event for event in events if event["kind"] == "turn"]
        assert [turn["message"] for turn in turns] == ["Admit", "Settle"]
        assert {turn["actor"] for turn in turns} == {key}
        assert all(turn["took"] > 0 for turn in turns)
        assert [event["call_id"] for event in events if event["kind"] == "call"] == ["c-1"]
        assert "s3cret" not in str(events)
        done = await at.ask(f"trace {key} off")
        assert done["kind"] == "done"
        assert await stream.next() is None
        assert stream.ended == "ended by console uid 1000"
        error = await at.refused(f"trace {key} off", "failed")
        assert "nothing was changed" in error.message
        await at.refused(f"trace {key} maybe", "bad-option")


async def test_a_trace_is_bounded_in_messages_and_in_time(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        tool = await at.world.tool(ALICE)
        key = at.actor(ALICE).shown
        short = await at.stream(f"trace {key} on limit=3")
        for _ in range(3):
            await tool.call({}, identity=ALICE)
        turns = [event for event in await told(short) if event["kind"] == "turn"]
        assert len(turns) == 3
        assert await short.next() is None
        timed = await at.stream(f"trace {key} on for=10s")
        began = trio.current_time()
        while await timed.next() is not None:
            pass
        assert trio.current_time() - began == pytest.approx(10)
        assert timed.ended == "its time is up"
        assert not at.actor(ALICE)._observer.hooks  # type: ignore[union-attr]


async def test_a_trace_that_is_closed_costs_its_actor_nothing_more() -> None:
    async with desk() as at:
        await at.world.tool(ALICE)
        actor = at.actor(ALICE)
        stream = await at.stream(f"trace {actor.shown} on")
        assert actor._observer is not None
        assert len(actor._observer.hooks) == 1
        stream.close()
        assert not actor._observer.hooks
        ended = [event for event in at.pool.records.events if event.kind == "traced"][-1]
        assert ended.facts["why"] == "off: stopped"
