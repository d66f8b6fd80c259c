"""States of a world as bytes, without names, and worlds made from them.

A state is the machine and the books with all names taken away: clients carry their holders and are sorted,
waiters stand in their order, counters that nothing decides by are left out. So two histories that nobody can
tell apart are one state. `freeze(thaw(state)) == state`.
"""

from __future__ import annotations

import marshal
from typing import Any

from actors import Reply
from afpool.pool import _messages as m
from afpool.pool._key_places import ABANDONED_IN_A_ROW, TIMED_OUT_IN_A_ROW
from afpool.pool._key_state import ClientState
from afpool.pool._key_state import Opening as KeyOpening
from afpool.pool._lists import ListState
from tests.pool.machine_books import (
    CONNECTING,
    HOLDING,
    LEAVING,
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
)
from tests.pool.machine_world import World

PLACES = 2
PHASES = (WAITING, LEAVING, HOLDING, SETTLING)
OPENING_PHASES = (PLANNING, CONNECTING)
CONTEXTS = (None, "A", "B")

State = bytes


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
        machine.told_active,
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
    machine.paused, machine.told_active = paused, active
    if ghostly:
        machine.ghosts = set()
    for place, context, (told, used, evicted, from_crash), waits, held in clients:
        client = Handle(world.next_id(), CONTEXTS[context] or "")
        client.told, client.used, client.evicted, client.from_crash = told, used, evicted, from_crash
        world.clients[client.id] = client
        known = ClientState(client.id, client.context, client)
        known.wait_for_close = waits
        # the next silence of any kind makes it suspect
        known.abandoned, known.silent = ABANDONED_IN_A_ROW - 1, TIMED_OUT_IN_A_ROW - 1
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
            machine.opening = KeyOpening(opening.token, fresh)
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
    state.received(OLD_TOOLS, 0, 1e9)
    return state


def _asker(world: World, role: Any, phase: str) -> Asker:
    epoch = world.epoch if role.lease else None
    message = m.Admit(
        world.next_id(), role.lease, role.context, epoch, tool="search", digest="old", fresh=role.fresh
    )
    asker = world.askers[message.ticket] = Asker(role, message, Reply(), phase)
    return asker
