"""Walk through every order of messages that a key's machine can get, breadth first, up to a depth.

Run it: `python tests/pool/explore.py [--depth N] [--seconds S]`. It prints states, edges, depth and seconds;
at a violation it prints the way there and ends with status 1.

A state is the machine and the world around it (`machine_world`) with all names taken away: clients carry
their holders and are sorted, waiters stand in their order, counters that nothing decides by are left out.
So two histories that nobody can tell apart are one state, and the walk is complete up to its depth for the
bounded world below. Where a crash is due, every point of a turn is tried: in it, and after each effect.
"""

from __future__ import annotations

import argparse
import gc
import marshal
import sys
import time
from pathlib import Path
from typing import Any

import attrs

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Reply
from afpool.pool import _messages as m
from afpool.pool import _machine
from afpool.pool._lists import ListState
from tests.pool.machine_world import (
    CONNECTING,
    HOLDING,
    LEAVING,
    NEW_TOOLS,
    OLD_TOOLS,
    PLANNING,
    ROLES,
    SETTLING,
    WAITING,
    A,
    Asker,
    B,
    Handle,
    Opening,
    World,
)

PLACES = 2
PHASES = (WAITING, LEAVING, HOLDING, SETTLING)
OPENING_PHASES = (PLANNING, CONNECTING)
CONTEXTS = (None, "A", "B")

State = bytes
Move = tuple[Any, ...]


@attrs.frozen
class Bounds:
    """How much there may be at once, and how many crashes in all."""

    askers: int = 4
    clients: int = 3
    drains: int = 1
    crashes: int = 1


BOUNDS = Bounds()


# ---------------------------------------------------------------------------- states


def freeze(world: World) -> State:
    """The state without names."""
    machine = world.machine
    waiting, leases, old = machine.waiting or {}, machine.leases or {}, machine.old or {}
    clients = []
    for client in world.clients.values():
        held = sorted(
            (PHASES.index(asker.phase), asker.ticket in leases, asker.from_crash)
            for asker in world.askers.values()
            if asker.client is client and asker.phase != WAITING
        )
        place = (
            0
            if machine.client is not None and machine.client.handle is client
            else 1 + (client.id not in old)
        )
        flags = (client.told, client.used, client.evicted, client.from_crash)
        waits = client.id in old and old[client.id].wait_for_close
        clients.append((place, CONTEXTS.index(client.context), flags, waits, tuple(held)))
    own = None if machine.client is None else machine.client.list
    queue = tuple(
        (
            ROLES.index(world.askers[ticket].role),
            0 if admit.list is None else 1 if admit.list is own else 2 if admit.list is world.shared else 0,
            world.askers[ticket].phase == LEAVING,
        )
        for ticket, (admit, _) in waiting.items()
    )
    openings = tuple(
        (live, OPENING_PHASES.index(opening.phase), CONTEXTS.index(opening.context))
        for live, group in ((True, world.openings), (False, world.overtaken))
        for opening in group.values()
    )
    opening = machine.opening
    flags = (
        machine.closed,
        machine.paused,
        machine.ghosts is not None,
        any(opening.orphan for opening in world.openings.values()),
        None if opening is None else opening.fresh,
        world.kick,
        world.crashes,
        len(world.drains),
        world.kept,
        machine._active,
    )
    # format 2 marks no shared objects: equal states give equal bytes
    return marshal.dumps((flags, openings, queue, tuple(sorted(clients))), 2)


def thaw(state: State) -> World:
    """A world in this state, with names of its own, always the same ones."""
    flags, openings, queue, clients = marshal.loads(state)
    closed, paused, ghostly, orphaned, fresh, kick, crashes, drains, kept, active = flags
    world = World(PLACES)
    machine = world.machine
    world.epoch = machine.epoch = 1
    world.closed = machine.closed = closed
    world.kick, world.crashes, world.kept = kick, crashes, kept
    machine.paused, machine._active = paused, active
    if ghostly:
        machine.ghosts = set()
    for place, context, (told, used, evicted, from_crash), waits, held in clients:
        client = Handle(world.next_id(), CONTEXTS[context] or "")
        client.told, client.used, client.evicted, client.from_crash = told, used, evicted, from_crash
        world.clients[client.id] = client
        known = _machine.ClientState(client.id, client.context, client)
        known.wait_for_close = waits
        # the next silence of any kind makes it suspect
        known.abandoned, known.silent = _machine.ABANDONED_IN_A_ROW - 1, _machine.TIMED_OUT_IN_A_ROW - 1
        if place == 0:
            machine.client = known
            known.list = _list(world)
        elif place == 1:
            machine.old = machine.old or {}
            machine.old[client.id] = known
        for phase, leased, old in held:
            asker = _asker(world, A if client.context == "A" else B, PHASES[phase])
            asker.client, asker.from_crash = client, old
            if phase == PHASES.index(LEAVING):
                asker.reply.abandon()
            else:
                asker.reply.set(client)
            if leased:
                machine.leases = machine.leases or {}
                machine.leases[asker.ticket] = known
                known.leases += 1
            else:
                assert machine.ghosts is not None
                machine.ghosts.add(asker.ticket)
    for live, phase, context in openings:
        opening = Opening(world.next_id(), OPENING_PHASES[phase], CONTEXTS[context])
        (world.openings if live else world.overtaken)[opening.token] = opening
        if live:
            machine.last_opening = opening.token
            opening.orphan = orphaned
        if live and not orphaned:
            machine.opening = _machine.Opening(opening.token, fresh)
            machine.opening.context = opening.context
    for role, listed, leaving in queue:
        asker = _asker(world, ROLES[role], LEAVING if leaving else WAITING)
        asker.message.list = (None, machine.client and machine.client.list, world.shared)[listed]
        asker.message.generation = 0 if asker.message.list is None else asker.message.list.generation
        if leaving:
            asker.reply.abandon()
        machine.waiting = machine.waiting or {}
        machine.waiting[asker.ticket] = (asker.message, asker.reply)
    for _ in range(drains):
        reply: Reply[None] = Reply()
        world.drains.append(reply)
        machine.draining = [*(machine.draining or []), reply]
    return world


def _list(world: World) -> ListState:
    state = ListState(world.next_id())
    state.received(OLD_TOOLS, 0, 1e9)  # type: ignore[arg-type]
    return state


def _asker(world: World, role: Any, phase: str) -> Asker:
    epoch = world.epoch if role.lease else None
    message = m.Admit(
        world.next_id(), role.lease, role.context, epoch, tool="search", digest="old", fresh=role.fresh
    )
    asker = world.askers[message.ticket] = Asker(role, message, Reply(), phase)
    return asker


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


SILENT_MOVES = ("cancel", "forget", "crash", "kicked")  # no turn of their own, or the one that ends a crash


def successors(state: State) -> list[tuple[Move, int | None]]:
    """Every way on, as a move and where in its turn the actor crashes."""
    world = thaw(state)
    ways: list[tuple[Move, int | None]] = [(move, None) for move in moves(world)]
    if not world.crashes:
        ways.extend((move, at) for move, _ in list(ways) for at in crashes(world, move))
    return ways


def crashes(world: World, move: Move) -> tuple[int, ...]:
    """Where the actor may crash during a move: in the turn (-1), or after that many of its effects."""
    if move[0] in SILENT_MOVES:
        return ()
    # all that the turn of a late `Opened` does is to have a client closed that nobody else knows
    late = move[0] == "opened" and (move[1] in world.overtaken or world.openings[move[1]].orphan)
    return (-1,) if late else (-1, 0, 1)


def take(state: State, move: Move, crash: int | None) -> World | None:
    """The world after one way on; None where a turn has not so many effects."""
    world = thaw(state)
    world.crash_next = crash
    make(world, move)
    if crash is not None and crash > 0 and world.effects <= crash:
        return None
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
    while level and walk.depth < depth:
        onward: list[State] = []
        for state in level:
            for move, crash in successors(state):
                try:
                    world = take(state, move, crash)
                    if world is None:
                        continue
                    found = freeze(world)
                    walk.edges += 1
                    walk.crashed += crash is not None
                    walk.per_move[move[0]] = walk.per_move.get(move[0], 0) + 1
                    if found in came:
                        continue
                    came[found] = (state, move, crash)
                    walk.states = len(came)
                    onward.append(found)
                    if len(came) % finish_every == 0:
                        world.finish()
                        walk.finished += 1
                except Exception as error:
                    raise Violation(_story(came, state, move, crash, error)) from error
            if time.perf_counter() > until:
                return
        level = onward
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
    parser.add_argument("--depth", type=int, default=6, help="moves from a root (default %(default)s)")
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
