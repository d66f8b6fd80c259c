"""Scenarios about users who share a host: whose token goes out with whose call, and who waits for whom."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import trio
from lab import BAD, Bench, Row, Scenario, seconds, token_of, word

from afpool.testing import FakeTool, Hang, echo_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool.testing import Arrival

ROTATIONS = 50
AT_ONCE = 100


async def two_users(bench: Bench) -> None:
    await bench.opened("alice", "bob")
    owner: dict[int, str] = {}
    begun = []
    for _ in range(20):
        for user in ("alice", "bob"):
            n = next(bench.numbers)
            owner[n] = user
            begun.append(await bench.begin(user, n=n))
    await bench.at_once(*begun, within=20)
    right = wrong = 0
    tokens: defaultdict[str, set[str]] = defaultdict(set)
    for arrival in bench.server.arrivals("tools/call"):
        whose = owner.get(arrival.arguments["n"])
        if whose is not None:
            good = token_of(arrival) == f"token-of-{whose}"
            right, wrong = right + good, wrong + (not good)
            tokens[arrival.session_id or ""].add(whose)
    shared = sum(len(users) > 1 for users in tokens.values())
    # a call that did not come is slow or lost, and no leak: it is never counted as under another's token
    text = f"{wrong} of {right + wrong} under another's token"
    absent = len(owner) - right - wrong
    bench.cell("own-token", text + (f"; {absent} did not come in 20 s" if absent else ""), wrong)
    bench.cell("shared-sessions", str(shared), shared)


async def rotation(bench: Bench) -> None:
    await bench.opened("alice")
    expected: dict[int, str] = {}
    for number in range(ROTATIONS):
        token = f"token-{number}"
        await bench.child.ask("rotate", user="alice", token=token)
        n = next(bench.numbers)
        expected[n] = token
        await bench.call("alice", n=n)
    used = sum(
        token_of(arrival) == expected[arrival.arguments["n"]]
        for arrival in bench.server.arrivals("tools/call")
        if arrival.arguments["n"] in expected
    )
    alive = len(bench.server.sessions)
    bench.cell("rotated", f"{used} of {ROTATIONS}", ROTATIONS - used)
    opened = bench.server.count("initialize")
    bench.cell("after-rotation", f"{opened} opened, {alive} alive", max(alive, 1) - 1)


async def hung_opening(bench: Bench) -> None:
    def bobs(arrival: Arrival) -> bool:
        return token_of(arrival) == "token-of-bob"

    for method in ("server/discover", "initialize"):
        bench.server.on(method, Hang(), when=bobs)
    await bench.opened("alice")
    stuck = await bench.child.begin("open", user="bob", url=bench.server.url, token="token-of-bob")
    hangs = await bench.seen(lambda: any(bobs(each) for each in bench.server.arrivals()), 1)
    warm, cold = await bench.at_once(
        await bench.begin("alice", timeout=4),
        await bench.child.begin("open", user="carol", url=bench.server.url, token="token-of-carol"),
        within=4,
    )
    await stuck.cancel()
    bench.cell("hung-warm", _waited(warm), warm.seconds if warm.ok else BAD)
    text = _waited(cold) + ("" if hangs else " (bob's call opens nothing)")
    bench.cell("hung-cold", text, cold.seconds if cold.ok else BAD)


def _waited(said: Any) -> str:
    return seconds(said.seconds) if said.ok else f"{word(said)} ({said.seconds:.0f} s)"


async def slow_call(bench: Bench) -> None:
    await bench.opened("alice", "bob")
    slow = await bench.begin("alice", "sleep", seconds=2)
    await bench.seen(lambda: bench.server.executions["sleep"] == 1)
    other = await bench.call("bob")
    own = await bench.call("alice")
    await slow.said()
    bench.cell("slow-other", _waited(other), other.seconds if other.ok else BAD)
    bench.cell("slow-own", _waited(own), own.seconds if own.ok else BAD)


async def own_list(bench: Bench) -> None:
    def listed(arrival: Arrival) -> list[FakeTool]:
        return [echo_tool(), echo_tool(f"of-{token_of(arrival).removeprefix('token-of-')}")]

    bench.server.set_tools_for(listed)
    await bench.opened("alice", "bob")
    said = await bench.child.ask("list", user="bob")
    names = {tool["name"] for tool in said.fields.get("tools", [])}
    text = "alice's" if "of-alice" in names else "his own" if "of-bob" in names else word(said)
    bench.cell("own-list", text, text != "his own")


async def eight(bench: Bench) -> None:
    await bench.opened("alice")
    began = trio.current_time()
    said = await bench.at_once(
        *[await bench.begin("alice", "sleep", seconds=0.5) for _ in range(8)], within=10
    )
    took = trio.current_time() - began
    good = sum(each.ok for each in said)
    bench.cell(
        "eight", f"{seconds(took)}" + ("" if good == 8 else f", {good} ok"), took if good == 8 else BAD
    )


async def hundred(bench: Bench) -> None:
    running = [0, 0]

    async def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str:
        del arguments, arrival
        running[0] += 1
        running[1] = max(running)
        await trio.sleep(0.2)
        running[0] -= 1
        return "done"

    bench.server.set_tools([echo_tool(), FakeTool("work", handler)], notify=False)
    await bench.opened("alice")
    began = trio.current_time()
    begun = [await bench.begin("alice", "work", timeout=12) for _ in range(AT_ONCE)]
    said = await bench.at_once(*begun, within=10)
    took = trio.current_time() - began
    good = sum(each.ok for each in said)
    bench.cell("hundred", f"{running[1]} at once; {good} ok, {took:.1f} s", AT_ONCE - good)


async def ambient(bench: Bench) -> None:
    said = await bench.child.ask("ambient", url=bench.server.url)
    if said.ended == "lacking":
        bench.cell("ambient", "it has no such place")
        return
    numbers = {n: f"token-{n}" for n in (next(bench.numbers) for _ in range(4))}
    begun = [
        await bench.child.begin("ambient_call", token=token, args={"n": n}) for n, token in numbers.items()
    ]
    await bench.at_once(*begun)
    seen = {arrival.arguments["n"]: token_of(arrival) for arrival in bench.server.arrivals("tools/call")}
    right = sum(seen.get(n) == token for n, token in numbers.items())
    others = sorted({token for n, token in seen.items() if token != numbers.get(n)})
    bench.cell("ambient", f"{right} of 4" + (f"; else {', '.join(others)}" if others else ""), 4 - right)


def _row(key: str, title: str, slack: float = 0.0, least: float = 0.0) -> Row:
    return Row(key, "isolation", title, slack, least)


SCENARIOS = (
    Scenario(
        two_users,
        (
            _row("own-token", "two users at once, 20 calls each: those that arrived"),
            _row("shared-sessions", "sessions that carried calls of both"),
        ),
    ),
    Scenario(
        rotation,
        (
            _row("rotated", f"{ROTATIONS} new tokens of one user: calls under the newest"),
            _row("after-rotation", "the server's sessions by then"),
        ),
        limit=60,
    ),
    Scenario(
        hung_opening,
        (
            _row("hung-warm", "one user's opening hangs: a call of another", 0.5, 0.2),
            _row("hung-cold", "the opening of a third", 1.0, 0.3),
        ),
        limit=40,
    ),
    Scenario(
        slow_call,
        (
            _row("slow-other", "a call of 2 s: a call of another user beside it", 0.5, 0.2),
            _row("slow-own", "another call of the same user beside it", 0.5, 0.2),
        ),
    ),
    Scenario(own_list, (_row("own-list", "the server shows each user other tools: what bob is shown"),)),
    Scenario(eight, (_row("eight", "8 calls of 0.5 s at once, one user", 0.3, 0.2),)),
    Scenario(hundred, (_row("hundred", f"{AT_ONCE} calls of 0.2 s at once, one user"),), limit=40),
    Scenario(ambient, (_row("ambient", "authentication that reads a context variable: under the caller's"),)),
)
