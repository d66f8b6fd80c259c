"""Scenes of calls that took their time, and of calls that still do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from afpool.record import Record
from afpool.testing import Delay, FakeTool, Hang, Hold, echo_tool
from tests.explain.play import Play, ended
from tests.pool.kit import ALICE, BOB, start, until, world
from tests.pool.kit import Hold as Held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from afpool import BoundTool
    from tests.pool.kit import World

LONG = 0.08


async def play(play: Play) -> None:
    play.title("What takes its time")
    await each_stage(play)
    await each_deadline(play)
    await paused(play)
    await an_opening_under_way(play)
    await another_tenant(play)
    await left_the_record(play)


async def by_credential(w: World, tool: BoundTool) -> None:
    w.host.hold_credential = later()


async def by_signature(w: World, tool: BoundTool) -> None:
    w.host.hold_signature = later()


async def by_connect(w: World, tool: BoundTool) -> None:
    w.host.hold_connect = later()
    w.server.close_idle_connections()


async def by_list(w: World, tool: BoundTool) -> None:
    await w.announce(tool)
    w.server.on("tools/list", Delay(LONG), times=1)


async def by_server(w: World, tool: BoundTool) -> None:
    w.server.on("tools/call", Delay(LONG), times=1)


def later() -> Held:
    """Something that lets go by itself."""

    class Later(Held):
        async def wait(self) -> None:
            await trio.sleep(LONG)

    return Later()


STAGES: dict[str, tuple[Callable[[World, BoundTool], Awaitable[None]], str]] = {
    "credential": (by_credential, "while the credential was being fetched"),
    "sign": (by_signature, "while the request was being signed"),
    "connect": (by_connect, "while a connection was being made"),
    "list": (by_list, "while its tool list was being asked for again"),
    "server": (by_server, "while the server worked"),
}


async def each_stage(play: Play) -> None:
    for stage, (slow, told) in STAGES.items():
        async with world(credential=True, signer=True) as w:
            record, tool = Record(w.pool), await w.tool()
            await slow(w, tool)
            await ended(tool.call(identity=ALICE, call_id=stage))
            explanation = await play.why(
                f"a call that took long at `{stage}`", record, stage, ("ok", "", "answered"),
                rf"\d+ ms of it \(\d+ %\) {told}",
            )  # fmt: skip
            spent = next(c.facts["spent"] for c in explanation.clauses if "spent" in c.facts)
            play.check(f"{stage} took at least what it was made to take", holds=spent[stage] >= LONG * 0.9)


async def each_deadline(play: Play) -> None:
    """The same waits, with less time than they take."""
    for stage, (slow, told) in STAGES.items():
        async with world(credential=True, signer=True, pool={"close_timeout": 0.2}) as w:
            record, tool = Record(w.pool), await w.tool()
            await slow(w, tool)
            await ended(tool.call(identity=ALICE, call_id=stage, deadline=trio.current_time() + LONG / 2))
            verdict = "in-doubt" if stage == "server" else "not-sent"
            outcome = "failed" if stage == "server" else "refused"
            await play.why(
                f"the deadline passes at `{stage}`", record, stage, (outcome, "deadline-exceeded", verdict),
                rf"its deadline passed; \d+ ms of it \(\d+ %\) {told}",
                told=(rf"where the time went: `{stage}` \d+ ms",),
            )  # fmt: skip
    async with world(pool={"open_timeout": LONG, "close_timeout": 0.2}) as w:
        record, tool = Record(w.pool), await w.tool()
        await w.evict()
        w.server.on("initialize", Hang(), times=1)
        await ended(tool.call(identity=ALICE, call_id="late", deadline=trio.current_time() + LONG / 2))
        await play.why(
            "the deadline passes while a client is opened", record, "late",
            ("refused", "deadline-exceeded", "not-sent"), "while it waited for a place of its key",
            "an opening of its client was under way, at `initialize`",
        )  # fmt: skip
    async with world(pool={"open_timeout": LONG, "close_timeout": 0.2}) as w:
        record, tool = Record(w.pool), await w.tool()
        await w.evict()
        w.server.on("initialize", Hang(), times=1)
        await ended(tool.call(identity=ALICE, call_id="not open"))
        await play.why(
            "a client is not open within the time for it", record, "not open",
            ("refused", "open-failed", "not-sent"), "an opening of a client failed", event="open-failed",
            told=(r"begun for call `not open`, after \d+ ms .*initializing \d+ ms",),
        )  # fmt: skip


async def paused(play: Play) -> None:
    async with world() as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        key = w.pool.key_of(ALICE, "files")
        w.pool.pause(key, by="console uid 1000")
        await trio.sleep(0.02)
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="paused"))
        await until(lambda: w.pool.waiting == 1)
        await trio.sleep(0.02)
        now = record.explain("paused")
        play.show("a call that waits while an operator has paused its key", now)
        play.check(
            "the pause is told with who asked",
            holds="the key was paused by console uid 1000" in now.headline
            and "before the call began" in now.headline,
        )
        w.pool.resume(key, by="console uid 1000")
        await call.answer()
        await play.why(
            "the same call, once the key was resumed", record, "paused", ("ok", "", "answered"),
            "while it waited for a place of its key",
            told=("meanwhile the key was resumed by console uid 1000",),
        )  # fmt: skip
        w.pool.pause_server("files", by="console uid 7")
        await ended(tool.call(identity=ALICE, call_id="held", deadline=trio.current_time() + 0.05))
        await play.why(
            "the deadline passes while the whole server is paused", record, "held",
            ("refused", "deadline-exceeded", "not-sent"), "the server `files` was paused by console uid 7",
            event="paused",
        )  # fmt: skip
        w.pool.resume_server("files")


async def an_opening_under_way(play: Play) -> None:
    async with world() as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        await w.evict()
        released = trio.Event()
        w.server.on("initialize", Hold(released), times=1)
        first = start(nursery, lambda: tool.call(identity=ALICE, call_id="first"))
        await w.server.wait_for("initialize", 2)
        second = start(nursery, lambda: tool.call(identity=ALICE, call_id="second"))
        await until(lambda: w.pool.waiting == 2)
        await trio.sleep(0.02)
        now = record.explain("second")
        play.show("a call that waits for an opening which began for another call", now)
        play.check(
            "the opening is told, for whom and where it is",
            holds=any(
                "begun for call `first`" in c.text and "at `initialize` now" in c.text for c in now.clauses
            ),
        )
        released.set()
        await first.answer()
        await second.answer()


async def another_tenant(play: Play) -> None:
    tools = [FakeTool("report"), echo_tool()]
    async with world(tools=tools, pool={"max_in_flight": 1}) as w, trio.open_nursery() as nursery:
        record = Record(w.pool)
        mine, theirs = await w.pool.tools(ALICE), await w.pool.tools(BOB)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="report", times=1)
        holder = start(nursery, lambda: theirs["report"].call(identity=BOB, call_id="report"))
        await w.server.wait_for("tools/call")
        call = start(nursery, lambda: mine["echo"].call(identity=ALICE, call_id="slow"))
        await until(lambda: w.pool.admission.waiting == 1)
        await trio.sleep(LONG)
        released.set()
        await call.answer()
        await holder.answer()
        explanation = await play.why(
            "a call that waited until somebody else's long call gave its place back", record, "slow",
            ("ok", "", "answered"), "while it waited for a place of the runtime", "held by call `report`",
            told=(r"call `report` of `report` held a place, since .* before this call began; it ended",),
        )  # fmt: skip
        told = explanation.words() + str(explanation.as_json())
        play.check("whose call that was is not told", holds="bob" not in told and "alice" not in told)


async def left_the_record(play: Play) -> None:
    async with world(pool={"records": 2}) as w:
        record, tool = Record(w.pool), await w.tool()
        for number in range(4):
            await ended(tool.call(identity=ALICE, call_id=f"call {number}"))
        told = ""
        try:
            record.explain("call 0")
        except LookupError as error:
            told = str(error)
        play.check(
            "a call that left the record is said to may have",
            holds="may have left it" in told and "keeps 2 of the 4 calls" in told,
        )
        await play.why("a call that is kept", record, "call 3", ("ok", "", "answered"))
