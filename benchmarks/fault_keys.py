"""Rows about many calls and many keys: what one failure costs those who have nothing to do with it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import trio
from fault_lab import ALICE, BOB, ERAS, at_once, bench, letter, middle, tally

from afpool import AfpoolError, Identity
from afpool.testing import Delay, Hang

if TYPE_CHECKING:
    from fault_lab import Bench, Lab

    from afpool.testing import Arrival

LIVE_KEYS = 200
CONNECTING = 8


async def eight_at_once(lab: Lab) -> None:
    """Calls of one key run beside each other."""
    for era in ERAS:
        async with bench(lab, era) as place:
            await place.call("sleep", seconds=0)
            began = trio.current_time()
            ended = await at_once(8, lambda _, place=place: place.call("sleep", seconds=0.5))
            wall = trio.current_time() - began
            lab.row(
                f"{letter(era)} 8 calls of 0.5 s, one key",
                "8 ok, about 0.5 s",
                f"{tally(ended)}, {wall:.2f} s",
                good=tally(ended) == "8 ok" and wall < 0.75,
            )


async def first_calls(lab: Lab) -> None:
    """However many want a client, it is opened once."""
    for era in ERAS:
        async with bench(lab, era) as place:
            ended = await at_once(100, lambda _, place=place: place.call())
            method = "initialize" if era == "handshake" else "server/discover"
            opened = place.server.count(method)
            lab.row(
                f"{letter(era)} 100 first calls, one key",
                "100 ok, opened 1x",
                f"{tally(ended)}, opened {opened}x",
                good=tally(ended) == "100 ok" and opened == 1,
            )


async def hung_opening(lab: Lab) -> None:
    """One key's server that never answers its opening is nobody else's trouble."""
    for era in ERAS:
        async with bench(lab, era) as place:
            method = "initialize" if era == "handshake" else "server/discover"
            place.server.on(method, Hang(), when=lambda arrival: arrival.headers.get("x-who") == "bob")
            await place.call()
            before = middle([await place.call() for _ in range(200)])
            cold = Identity(tenant="acme", principal="carol")
            async with trio.open_nursery() as nursery:

                async def hang(place: Bench = place) -> None:
                    with contextlib.suppress(AfpoolError):
                        await place.pool.tools(BOB)

                nursery.start_soon(hang)
                await place.server.wait_until(
                    lambda server=place.server, method=method: any(
                        arrival.headers.get("x-who") == "bob" for arrival in server.arrivals(method)
                    )
                )
                during = middle([await place.call() for _ in range(200)])
                first = await place.call(who=cold)
                nursery.cancel_scope.cancel()
            lab.row(
                f"{letter(era)} another's opening hangs",
                "calls as before; third key ok",
                f"{during * 1e3:.1f} ms, {before * 1e3:.1f} before; {first.word}",
                good=during <= 1.5 * before + 0.001 and first.word == "ok" and first.seconds < 1,
            )


async def restarted(lab: Lab) -> None:
    """After a restart every key opens again, a few at a time, and no call is in doubt."""
    people = [Identity(tenant=f"t{n % 7}", principal=f"p{n}") for n in range(LIVE_KEYS)]
    for era in ERAS:
        async with bench(lab, era, limits={"max_connecting": CONNECTING}) as place:
            await at_once(LIVE_KEYS, lambda n, place=place: place.tool("pay", people[n]))
            await place.server.restart()
            place.server.on("initialize", Delay(0.02))
            mark = len(place.server.log)
            first = await at_once(LIVE_KEYS, lambda n, place=place: place.call(who=people[n]))
            second = await at_once(LIVE_KEYS, lambda n, place=place: place.call(who=people[n]))
            opened, most = openings(place.server.log[mark:])
            doubtful = sum("in-doubt" in each.word for each in (*first, *second))
            doubt = f", {doubtful} IN DOUBT" if doubtful else ""
            handshake = era == "handshake"
            lab.row(
                f"{letter(era)} restart, {LIVE_KEYS} live keys",
                f"{LIVE_KEYS} ok, {LIVE_KEYS if handshake else 0} opened, <= {CONNECTING} at once",
                f"{tally(second)}, {opened} opened, {most} at once{doubt}",
                good=doubtful == 0
                and tally(second) == f"{LIVE_KEYS} ok"
                and (opened == LIVE_KEYS if handshake else not opened)
                and most <= CONNECTING,
            )


def openings(log: list[Arrival]) -> tuple[int, int]:
    """How many handshakes a log holds, and how many were under way at once.

    One is under way from its `initialize` to its `notifications/initialized`; both come on one connection.
    """
    under_way: set[int] = set()
    count = most = 0
    for arrival in log:
        if arrival.name == "initialize":
            count += 1
            under_way.add(arrival.connection)
            most = max(most, len(under_way))
        elif arrival.name == "notifications/initialized":
            under_way.discard(arrival.connection)
    return count, most


async def other_key(lab: Lab) -> None:
    """A key whose session is gone leaves the sessions of the others alone."""
    async with bench(lab, "handshake") as place:
        await place.call(who=ALICE)
        await place.call(who=BOB)
        kept = place.client_id(ALICE)
        place.pool.invalidate(identity=BOB, reason="left the company")
        refused = await place.call(who=BOB)
        other = await place.call(who=ALICE)
        lab.row(
            "2025 host revokes another key",
            "binding-changed not-sent; ok",
            f"{refused.word}; {other.word}{'' if place.client_id(ALICE) == kept else ', NEW CLIENT'}",
            good=(refused.word, other.word) == ("binding-changed not-sent", "ok")
            and place.client_id(ALICE) == kept,
        )


ROWS = (eight_at_once, first_calls, hung_opening, restarted, other_key)
