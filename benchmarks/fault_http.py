"""Rows about one HTTP exchange that goes wrong: what it costs the call, its siblings and the next call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from fault_lab import ALICE, ERAS, bench, letter, tally

from afpool.testing import Drop, Hang, Status, Truncate

if TYPE_CHECKING:
    from fault_lab import Bench, Ended, Lab

BACK = 0.05  # seconds within which a cancelled caller is back
CAP = 256 * 1024  # bytes of the largest answer that the rows about size read


async def sessions(lab: Lab) -> None:
    """A forgotten session is refused, not repeated; the next call opens another one."""
    for spelling in ("404", "404-text", "400-json", "400-text"):
        async with bench(lab, "handshake") as place:
            await place.call()
            before = place.client_id()
            place.server.forget_sessions(spelling)
            first = await place.call()
            second = await place.call()
            fresh = place.client_id() not in {None, before}
            lab.row(
                f"2025 session lost, {spelling}",
                "session-expired refused; next ok",
                f"{first.word}; next {second.word}{'' if fresh else ', SAME CLIENT'}",
                good=first.word == "session-expired refused" and second.word == "ok" and fresh,
            )


async def _with_sibling(
    lab: Lab, era: str, what: str, word: str, tool: str, action: Any, **arguments: Any
) -> None:
    async with bench(lab, era, limits={"max_message": CAP}) as place:
        await place.call("pay")
        await place.tool(tool)
        if action is not None:
            place.server.on("tools/call", action, tool=tool, times=1)

        async def fault() -> tuple[Ended, Ended]:
            return await place.call(tool, **arguments), await place.call("pay")

        sibling, (struck, following) = await place.beside(fault)
        lab.row(
            f"{letter(era)} {what}",
            f"{word}, ok, ok",
            f"{struck.word}, {sibling.word}, {following.word}",
            good=(struck.word, sibling.word, following.word) == (word, "ok", "ok"),
        )


async def broken_answers(lab: Lab) -> None:
    """An answer that is cut, wrong or too large, with a sibling of one second in flight."""
    lost = "connection-lost in-doubt"
    for era in ERAS:
        await _with_sibling(lab, era, "drops the connection", lost, "pay", Drop(after_execution=True))
        await _with_sibling(
            lab, era, "resets the connection", lost, "pay", Drop(reset=True, after_execution=True)
        )
        await _with_sibling(lab, era, "cuts the answer's body", lost, "pay", Truncate())
        await _with_sibling(
            lab,
            era,
            "answers HTTP 500",
            "server-failed in-doubt",
            "pay",
            Status(500, body=b"oops", after_execution=True),
        )
        await _with_sibling(
            lab,
            era,
            f"answers 1 MB, cap {CAP // 1024} KB",
            "too-large answered",
            "big",
            None,
            size=4 * CAP,
        )


async def throttled(lab: Lab) -> None:
    """429 is a refusal, so the same call goes out again after the time that the server named."""
    for era in ERAS:
        async with bench(lab, era) as place:
            await place.call()
            place.server.on("tools/call", Status(429, headers={"retry-after": "0"}), times=2)
            struck = await place.call()
            arrived = place.server.count("tools/call") - 1
            lab.row(
                f"{letter(era)} answers 429 twice",
                "ok, 3 requests, 1 run",
                f"{struck.word}, {arrived} requests, {place.server.executions['pay'] - 1} run",
                good=(struck.word, arrived, place.server.executions["pay"]) == ("ok", 3, 2),
            )


async def stuck_notices(lab: Lab) -> None:
    """A notification whose POST hangs must not hold up a call past its deadline."""
    async with bench(lab, "handshake") as place:
        await place.call()
        place.server.forget_sessions()
        await place.call()  # refused; the next call opens another session
        place.server.on("notifications/initialized", Hang())
        stuck = await place.call(within=2)
        lab.row(
            "2025 `initialized` POST hangs",
            "deadline 2 s: back in <= 2.1 s",
            f"{stuck.word} {stuck.seconds:.2f} s",
            good=stuck.seconds <= 2.1 and (stuck.word == "ok" or stuck.word.endswith("not-sent")),
        )
    async with bench(lab, "handshake") as place:
        await place.call("sleep", seconds=0)
        place.server.on("notifications/cancelled", Hang())
        with trio.move_on_after(0.1):
            await place.call("sleep", seconds=5)
        await place.server.wait_for("notifications/cancelled")
        following = await place.call(within=2)
        lab.row(
            "2025 `cancelled` POST hangs",
            "next ok in <= 2.1 s",
            f"{following.word} in {following.seconds:.3f} s",
            good=following.word == "ok" and following.seconds <= 2.1,
        )


async def cancelled(lab: Lab) -> None:
    """A cancelled caller is back at once, and the server is told."""
    for era in ERAS:
        async with bench(lab, era) as place:
            await place.call("sleep", seconds=0)
            before = place.server.count("tools/call")
            back = 0.0
            async with trio.open_nursery() as nursery:

                async def call(place: Bench = place) -> None:
                    await place.call("sleep", seconds=3)

                nursery.start_soon(call)
                await place.server.wait_for("tools/call", before + 1)
                asked = trio.current_time()
                nursery.cancel_scope.cancel()
            back = trio.current_time() - asked
            with trio.move_on_after(2):
                await place.server.wait_until(lambda server=place.server: bool(server.cancelled))
            told = len(place.server.cancelled)
            lab.row(
                f"{letter(era)} caller cancels a 3 s call",
                f"back in < {BACK * 1e3:.0f} ms, server told",
                f"back in {back * 1e3:.1f} ms, told {told}x",
                good=back < BACK and told == 1,
            )


async def closed_before_use(lab: Lab) -> None:
    """A connection that the server closed while it was kept is noticed before anything is sent on it."""
    tries = 50
    for era in ERAS:
        async with bench(lab, era) as place:
            await place.call()
            ended = []
            for _ in range(tries):
                place.server.close_idle_connections()
                await trio.sleep(0.002)
                ended.append(await place.call())
            good = all(each.word == "ok" for each in ended)
            doubtful = sum("in-doubt" in each.word for each in ended)
            lab.row(
                f"{letter(era)} closes before use, {tries}x",
                f"{tries} ok, 0 in-doubt",
                f"{tally(ended)}, {doubtful} in-doubt",
                good=good,
            )


async def hung_delete(lab: Lab) -> None:
    """Leaving the pool is bounded whatever the server does with the end of the session."""
    began = 0.0
    async with bench(lab, "handshake", limits={"close_timeout": 1.0}) as place:
        await place.call(who=ALICE)
        place.server.on("DELETE", Hang())
        began = trio.current_time()
    took = trio.current_time() - began
    lab.row(
        "2025 DELETE hangs",
        "pool of 1 s left in <= 1.25 s",
        f"{took:.2f} s",
        good=took <= 1.25,
    )


ROWS = (sessions, broken_answers, throttled, stuck_notices, cancelled, closed_before_use, hung_delete)
