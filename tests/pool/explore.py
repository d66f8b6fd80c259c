"""Walk through every order of messages that a key's machine can get, breadth first, up to a depth.

Run it: `python tests/pool/explore.py [--depth N] [--seconds S]`. It prints states, edges, depth and seconds;
at a violation it prints the way there and ends with status 1.

The walk is complete up to its depth for a bounded world: two contexts, of which one lists through a shared
entry, two places, four askers, three clients, one drain, one crash. Where a crash is due, every point of a
turn is tried: in it, and after each of its effects.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any

import attrs

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from afpool.pool import _messages as m
from tests.pool.machine_books import HOLDING, NEW_TOOLS, OLD_TOOLS, PLANNING, ROLES, SETTLING, WAITING, A
from tests.pool.machine_states import PLACES, State, freeze, thaw
from tests.pool.machine_world import World

Move = tuple[Any, ...]


@attrs.frozen
class Bounds:
    """How much there may be at once, and how many crashes in all."""

    askers: int = 4
    clients: int = 3
    drains: int = 1
    crashes: int = 1


BOUNDS = Bounds()


# ---------------------------------------------------------------------------- moves


def moves(world: World, bounds: Bounds = BOUNDS) -> list[Move]:
    """What may happen next within the bounds; of things that nobody can tell apart, one."""
    found: list[Move] = []
    machine = world.machine
    if world.kick:
        found.append(("kicked",))
    more = len(world.askers) < bounds.askers
    if more:
        found.extend(("admit", index) for index in range(len(ROLES)))
    seen = set()
    for asker in world.askers.values():
        if asker.phase == WAITING:
            found.append(("cancel", asker.ticket))
            continue
        look = (asker.phase, asker.client and asker.client.id, asker.ticket in (machine.waiting or ()))
        if look in seen and not look[2]:
            continue
        seen.add(look)
        found.append(("settle", asker.ticket))
        if asker.phase == HOLDING:
            found.append(("time_out", asker.ticket))
            if more:
                found.append(("nest", asker.ticket))
        elif asker.phase == SETTLING:
            found.append(("give_up", asker.ticket))
    room = len(world.clients) < bounds.clients
    for opening in world.openings.values():
        if opening.phase == PLANNING:
            found.extend(("plan", opening.token, context, wait) for context in "AB" for wait in (None, 2.0))
        elif room:
            found.append(("opened", opening.token))
        found.append(("open_failed", opening.token))
    for opening in world.overtaken.values():
        found.extend((("forget", opening.token), ("open_failed", opening.token)))
        if opening.phase == PLANNING:
            found.append(("plan", opening.token, "A", None))
        elif room:
            found.append(("opened", opening.token))
    for client in world.clients.values():
        if client.told:
            found.append(("close_done", client.id))
        found.append(("lose", client.id))
        found.extend(("listed", client.id, new) for new in (False, True))
        found.append(("notice", client.id))
    found.extend(("plan_seen", context) for context in "AB")
    found.extend((("shared_moves", False), ("shared_moves", True), ("evict",), ("revoke",)))
    found.append(("resume",) if machine.paused else ("pause",))
    if len(world.drains) < bounds.drains:
        found.append(("drain",))
    if not world.closed:
        found.append(("close",))
    if world.crashes < bounds.crashes:
        found.append(("crash",))
    return found


def make(world: World, move: Move) -> None:
    """Let one thing happen."""
    name, *rest = move
    if name == "admit":
        world.admit(ROLES[rest[0]])
    elif name in ("cancel", "settle", "time_out", "give_up", "nest"):
        getattr(world, name)(world.askers[rest[0]])
    elif name in ("plan", "opened", "open_failed", "forget"):
        opening = world.openings.get(rest[0]) or world.overtaken[rest[0]]
        getattr(world, name)(opening, *rest[1:])
    elif name in ("close_done", "lose", "notice"):
        getattr(world, name)(world.clients[rest[0]])
    elif name == "listed":
        world.listed(world.clients[rest[0]], NEW_TOOLS if rest[1] else OLD_TOOLS)
    elif name == "shared_moves":
        world.shared_moves(ends=rest[0])
    elif name in ("pause", "resume", "drain"):
        world.send({"pause": m.Pause, "resume": m.Resume, "drain": m.Drain}[name]())
    else:
        getattr(world, name)(*rest)
    while len(world.overtaken) > 1:  # one at a time is enough: the machine knows none of them
        del world.overtaken[next(iter(world.overtaken))]


# no turn of their own, or the one that ends a crash
SILENT_MOVES = ("cancel", "forget", "crash", "kicked")


def crashes(world: World, move: Move, effects: int) -> range:
    """Where the actor may crash during a move: in the turn (-1), or after that many of its effects."""
    if move[0] in SILENT_MOVES:
        return range(0)
    # all that the turn of a late `Opened` does is to have a client closed that nobody else knows
    late = move[0] == "opened" and (move[1] in world.overtaken or world.openings[move[1]].orphan)
    return range(-1, 0 if late else effects)


def take(state: State, move: Move, crash: int | None) -> World:
    """The world after one move, or after the crash in the middle of it."""
    world = thaw(state)
    world.crash_next = crash
    make(world, move)
    return world


# ---------------------------------------------------------------------------- the walk


def roots() -> list[State]:
    """Where walks begin."""
    empty, idle, full, replaced, overtaken = (World(PLACES) for _ in range(5))

    def opens(world: World) -> None:
        (opening,) = world.openings.values()
        world.plan(opening, "A")
        world.opened(opening)

    for world in (idle, full, replaced):
        first = world.admit(A)
        opens(world)
        if world is idle:
            world.settle(first)
    full.admit(A)
    full.admit(A)
    # a client that is still used, and the one that came after it
    replaced.lose(next(iter(replaced.clients.values())))
    replaced.admit(A)
    opens(replaced)
    # an opening that was cancelled and does not know yet, and the next one, as far as the first
    asker = overtaken.admit(A)
    overtaken.plan(next(iter(overtaken.openings.values())), "A")
    overtaken.cancel(asker)
    overtaken.settle(asker)
    overtaken.admit(A)
    overtaken.plan(next(iter(overtaken.openings.values())), "A")
    return [freeze(world) for world in (empty, idle, full, replaced, overtaken)]


@attrs.define
class Walk:
    """What a walk has seen."""

    states: int = 0
    edges: int = 0
    depth: int = 0
    finished: int = 0
    crashed: int = 0
    seconds: float = 0.0
    per_move: dict[str, int] = attrs.field(factory=dict)


class Violation(AssertionError):
    """The way to a broken invariant."""


def explore(depth: int, *, seconds: float = float("inf"), finish_every: int = 4) -> Walk:
    """Walk to a depth, or until the time is up.

    Args:
        depth: Moves from a root.
        seconds: When to stop; the depth in the answer is then the last one that was complete.
        finish_every: Of how many new states one is driven to its end, where nothing may be left.
    """
    began = time.perf_counter()
    walk = Walk()
    collecting = gc.isenabled()
    gc.disable()  # worlds hold no cycles, and a walk makes nothing but worlds
    try:
        _walk(walk, depth, began + seconds, finish_every)
    finally:
        if collecting:
            gc.enable()
    walk.seconds = time.perf_counter() - began
    return walk


def _walk(walk: Walk, depth: int, until: float, finish_every: int) -> None:
    came: dict[State, tuple[State, Move, int | None] | None] = dict.fromkeys(roots())
    level = list(came)
    onward: list[State] = []

    def step(state: State, move: Move, crash: int | None) -> int:
        try:
            world = take(state, move, crash)
            found = freeze(world)
            effects = world.effects
            walk.edges += 1
            walk.crashed += crash is not None
            walk.per_move[move[0]] = walk.per_move.get(move[0], 0) + 1
            if found not in came:
                came[found] = (state, move, crash)
                walk.states = len(came)
                onward.append(found)
                if len(came) % finish_every == 0:
                    walk.finished += 1
                    world.finish()
        except Exception as error:
            raise Violation(_story(came, state, move, crash, error)) from error
        return effects

    while level and walk.depth < depth:
        for state in level:
            here = thaw(state)
            for move in moves(here):
                effects = step(state, move, None)
                if not here.crashes:
                    for crash in crashes(here, move, effects):
                        step(state, move, crash)
            if time.perf_counter() > until:
                return
        level, onward = onward, []
        walk.depth += 1


def _story(came: dict[State, Any], state: State, move: Move, crash: int | None, error: Exception) -> str:
    way = [(move, crash)]
    back = came[state]
    while back is not None:
        way.append(back[1:])
        back = came[back[0]]
    lines = [
        f"  {' '.join(map(str, step))}{'' if at is None else f'  crash at {at}'}"
        for step, at in reversed(way)
    ]
    return "\n".join([f"{type(error).__name__}: {error}", *lines])


def main() -> int:
    """Explore and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depth", type=int, default=5, help="moves from a root (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    try:
        walk = explore(options.depth, seconds=options.seconds)
    except Violation as violation:
        print(violation)
        return 1
    print(
        f"{walk.states} states, {walk.edges} edges, depth {walk.depth}, {walk.seconds:.1f} s; "
        f"{walk.crashed} crashes in a turn, {walk.finished} states driven to their end"
    )
    for name, times in sorted(walk.per_move.items(), key=lambda pair: -pair[1]):
        print(f"  {times:9} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
