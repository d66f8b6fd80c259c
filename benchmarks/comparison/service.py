"""Scenarios about a host that runs for long and ends in order; and what a call and an idle user cost."""

from __future__ import annotations

import trio
from lab import BAD, Bench, Row, Scenario, word

from afpool.testing import FakeServer, Hang

USERS = 5
IDLE_USERS = 30
CALLS = 100


async def idle(bench: Bench) -> None:
    await bench.open("alice", idle=1.0)
    said = await bench.call("alice") if (await bench.child.ask("list", user="alice")).ok else None
    if said is None or not said.ok:
        bench.cell("idle", "no call", BAD)
        return
    began = trio.current_time()
    gone = await bench.seen(lambda: not bench.server.sessions, 4)
    took = trio.current_time() - began
    if gone and took < 0.5:
        bench.cell("idle", "none is kept", 0)
    else:
        bench.cell("idle", f"closed after {took:.1f} s" if gone else "kept (4 s)", 0 if gone else 1)


async def leaving(bench: Bench) -> None:
    before = (await bench.child.ask("facts")).fields
    users = [f"user-{number}" for number in range(USERS)]
    await bench.opened(*users)
    opened = bench.server.count("initialize")
    said = await bench.child.ask("shutdown", 10)
    await bench.seen(lambda: not bench.server.sessions and not bench.server.connections, 1)
    left = len(bench.server.sessions)
    bench.cell("ended", f"{opened - left} of {opened}" + ("" if said.ok else f", {word(said)}"), left)
    after = (await bench.child.ask("facts")).fields
    sockets = max(0, after["sockets"] - before["sockets"]) if after else -1
    bench.cell("sockets-left", str(sockets), sockets)


async def hung_delete(bench: Bench) -> None:
    await bench.opened("alice", "bob", "carol")
    bench.server.on("DELETE", Hang())
    said = await bench.child.ask("shutdown", 6)
    text = "no (6 s)" if said.ended == "late" else f"{said.seconds:.1f} s"
    bench.cell("hung-delete", text if said.ok or said.ended == "late" else f"{text}, error", said.seconds)


async def hung_child(bench: Bench) -> None:
    command = FakeServer.stdio_command({"tools": ["echo"], "ignore_eof": True, "ignore_sigterm": True})
    said = await bench.open("alice", command=command)
    said = await bench.child.ask("list", user="alice") if said.ok else said
    said = await bench.call("alice") if said.ok else said
    if not said.ok:
        bench.cell("hung-child", f"no call ({word(said)})", BAD)
        return
    said = await bench.child.ask("shutdown", 6)
    children = (await bench.child.ask("facts")).fields.get("children", -1)
    text = "no (6 s)" if said.ended == "late" else f"{said.seconds:.1f} s"
    bench.cell("hung-child", f"{text}, {children} left", said.seconds if not children else BAD)


async def idle_users(bench: Bench) -> None:
    await bench.opened("warm-1", "warm-2")
    before = (await bench.child.ask("facts")).fields
    await bench.opened(*(f"user-{number}" for number in range(IDLE_USERS)))
    after = (await bench.child.ask("facts")).fields
    kilobytes = max(0, after["rss"] - before["rss"]) / IDLE_USERS / 1024
    bench.cell("idle-memory", f"{kilobytes:.0f} kB", kilobytes)
    bench.cell("process-memory", f"{before['rss'] / 1e6:.0f} MB", before["rss"] / 1e6)


async def speed(bench: Bench) -> None:
    await bench.opened("alice")
    first = []
    for number in range(5):
        began = await bench.open(f"user-{number}")
        called = await bench.child.ask("list", user=f"user-{number}")
        first.append(began.seconds + called.seconds + (await bench.call(f"user-{number}")).seconds)
    cold = min(first) * 1e3
    bench.cell("first-call", f"{cold:.0f} ms", cold)
    said = await bench.child.ask("burst", 25, user="alice", tool="echo", times=CALLS)
    if said.ok:
        fastest = min(said.fields["times"]) * 1e3
        bench.cell("warm-call", f"{fastest:.1f} ms", fastest)
    else:
        bench.cell("warm-call", word(said), BAD)


def _row(key: str, title: str, slack: float = 0.0, least: float = 0.0, group: str = "service") -> Row:
    return Row(key, group, title, slack, least)


SCENARIOS = (
    Scenario(idle, (_row("idle", "a session that nobody uses; one second, where it can be set"),)),
    Scenario(
        leaving,
        (
            _row("ended", f"closing with {USERS} users: sessions ended at the server"),
            _row("sockets-left", "sockets left in the process"),
        ),
    ),
    Scenario(
        hung_delete,
        (_row("hung-delete", "closing 3 users while the server hangs: took", 0.3, 0.5),),
        limit=40,
    ),
    Scenario(
        hung_child,
        (_row("hung-child", "closing a child that ignores its end: took, children", 0.3, 0.5),),
        limit=40,
    ),
    Scenario(
        idle_users,
        (
            _row("process-memory", "memory of the process with two users", 0.1, group="costs"),
            _row("idle-memory", "memory of each further idle user", 0.2, 10, group="costs"),
        ),
        limit=60,
        fresh=True,
    ),
    Scenario(
        speed,
        (
            _row("first-call", "opening, list and first call of a user, fastest of 5", 0.2, 2, group="costs"),
            _row("warm-call", f"a further call, fastest of {CALLS}", 0.15, 0.1, group="costs"),
        ),
        limit=60,
        fresh=True,
    ),
)
