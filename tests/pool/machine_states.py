"""States of a world as bytes, reduced to what can make a difference, and worlds made from them.

Two histories are one state if the machine, and whoever watches it, cannot tell what may follow on them. What
is left out, and why that leaves no order of messages out:

* **Names.** Ids are never used twice and only ever compared with one another; so clients are written down
  with their holders and sorted, waiters in their order, and `thaw` gives names of its own.
* **Whom the machine does not know**: openings that were cancelled and do not know yet, clients whose closing
  it was told of or that it never took, askers whom it has answered or refused. All that they can do is to
  send late messages. Such messages are possible at any time, so they are tried in every state, and must
  change nothing (`machine_late`).
* **What the machine cannot see.** It never reads a reply, so it does not know whether a waiter still listens:
  leaving (`cancel`) commutes with everything, and only the `Settle` of it is a move. And whether a holder
  works, or has given up and lets its request settle, is not told apart: whoever holds a place may say at any
  time what either may say. The same goes for a holder that was cancelled before it learned of its place.
* **What nothing decides by**: whether a call that is bound by no list in force never was bound by one; the
  context and the list of a client that is no longer the key's; what a crashed machine had counted on its
  clients, and whether an opening was to wait for them (it waits for all); how many silences were counted in
  a row (the next one of any kind makes a client suspect, see `test_machine_suspicion` for the counting);
  the number of an epoch, beside whether a waiter's is over; which of them a revocation began.

The third point asks for more than can happen, never for less. `test_machine_reduced` walks at random without
any of this, and finds each state that it meets among the reduced ones.

`freeze(thaw(state)) == state`.
"""

from __future__ import annotations

import marshal
from typing import Any

import attrs

from actors import Reply
from afpool.pool import _messages as m
from afpool.pool._key_places import ABANDONED_IN_A_ROW, TIMED_OUT_IN_A_ROW
from afpool.pool._key_state import ClientState
from afpool.pool._key_state import Opening as KeyOpening
from afpool.pool._lists import ListState
from tests.pool.machine_books import (
    CONNECTING,
    HOLDING,
    OLD_TOOLS,
    PLANNING,
    ROLES,
    A,
    Asker,
    Handle,
    Opening,
    Role,
)
from tests.pool.machine_world import World

CONTEXTS = (None, "A", "B")
TAKEN: Reply[Any] = Reply()  # whoever holds a place has read its reply
TAKEN.set(None)
LIVE, OLD, UNKNOWN = range(3)
KINDS = {(role.lease, role.context, role.fresh): role for role in ROLES}

State = bytes


@attrs.frozen
class Scope:
    """How much there is in a world that is walked through.

    Attributes:
        name: What it is called.
        places: `max_operations`.
        askers: Who may ask or hold at once.
        clients: Incarnations at once, those that still close included.
        drains: Drains at once.
        crashes: How often the actor may crash.
        roles: What may be asked.
        max_waiting: As the limit of a key.
        recheck_lists: Likewise.
        contexts: What plans may say.
        halts: Whether its server may be held as a whole.
    """

    name: str = "two places"
    places: int = 2
    askers: int = 4
    clients: int = 3
    drains: int = 1
    crashes: int = 1
    roles: tuple[Role, ...] = ROLES
    max_waiting: int = 256
    recheck_lists: bool = False
    contexts: str = "AB"
    halts: bool = False

    def world(self) -> World:
        """An empty one."""
        return World(self.places, self.max_waiting, recheck_lists=self.recheck_lists)


# ---------------------------------------------------------------------------- to bytes


def freeze(world: World) -> State:
    """The state; the machine's account and the books', wherever a check compares them."""
    machine = world.machine
    waiting, leases, old = machine.waiting or {}, machine.leases or {}, machine.old or {}
    live = machine.client
    inner: dict[int, int] = {}  # holder -> calls of its own that wait
    for admit, _ in waiting.values():
        for ticket in admit.chain:
            inner[ticket] = inner.get(ticket, 0) + 1
    holders: dict[int, list[tuple[bool, int, int]]] = {}
    for ticket, asker in world.askers.items():
        if asker.client is not None and ticket not in waiting:
            place = (ticket not in leases, inner.get(ticket, 0), ticket)
            holders.setdefault(asker.client.id, []).append(place)
    clients = []
    for id_, client in world.clients.items():
        known = live if live is not None and live.id == id_ else old.get(id_)
        held = holders.get(id_, [])
        if known is None:
            if client.told and not held:
                continue
            clients.append((UNKNOWN, 0, client.told, client.evicted, client.from_crash, False, 0, held))
            continue
        context = CONTEXTS.index(client.context) if known is live else 0
        counted = 0 if client.from_crash else known.leases
        waits = known.wait_for_close and machine.ghosts is None
        clients.append(
            (
                OLD if known is not live else LIVE,
                context, client.told, client.evicted, client.from_crash, waits, counted, held,
            )
        )  # fmt: skip
    if inner or len(clients) > 1:
        for client in clients:
            client[-1].sort()
        clients.sort(key=_without_names)
    where = {}
    if inner:
        for at, client in enumerate(clients):
            for number, (_, _, ticket) in enumerate(client[-1]):
                where[ticket] = 1 + at * 8 + number
    own = None if live is None else live.list
    queue = []
    for ticket, (admit, _) in waiting.items():
        bound = admit.list
        listed = 1 if bound is own and bound is not None else 2 if bound is world.shared else 0
        inside = where.get(admit.chain[0], 0) if admit.chain else 0
        known = ticket in world.askers
        queue.append((known, admit.lease, admit.context, admit.fresh, listed, inside, world.outdated(admit)))
    opening = machine.opening
    openings = [
        (opening is not None and token == opening.token, token == machine.last_opening, each.orphan)
        for token, each in world.openings.items()
    ]
    planned = None if opening is None else (CONTEXTS.index(opening.context), opening.fresh)
    flags = (
        machine.closed, world.closed, machine.paused, world.paused, machine.removed, world.removed,
        machine.limits.halted, world.halted, machine.ghosts is not None,
        world.kick, world.kept, machine.told_active, world.crashes,
        len(world.drains), len(machine.draining or ()), machine.epoch - world.epoch,
        machine.revoked - world.revoked,
        len(world.askers), machine.in_flight, len(old),
    )  # fmt: skip
    places = [(*client[:-1], tuple([place[:2] for place in client[-1]])) for client in clients]
    # format 2 marks no shared objects: equal states give equal bytes
    return marshal.dumps((flags, planned, openings, queue, places), 2)


def _without_names(client: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*client[:-1], [place[:2] for place in client[-1]])


# ---------------------------------------------------------------------------- from bytes


def thaw(state: State, scope: Scope) -> World:
    """A world in this state, with names of its own, always the same ones."""
    flags, planned, openings, queue, clients = marshal.loads(state)
    (
        closed, _, paused, _, removed, _, halted, _, ghostly, kick, kept, told_active, crashes, drains,
        _, _, _, _, _, _,
    ) = flags  # fmt: skip
    world = scope.world()
    world.checking = False
    machine = world.machine
    world.epoch = machine.epoch = 1
    world.closed = machine.closed = closed
    world.paused = machine.paused = paused
    world.removed = machine.removed = removed
    world.halted = halted
    machine.limits = world.now_limited()
    world.kick, world.crashes, world.kept = kick, crashes, kept
    machine.told_active = told_active
    if ghostly:
        machine.ghosts = set()
    holders: dict[int, int] = {}
    for at, (place, context, told, evicted, from_crash, waits, _, held) in enumerate(clients):
        client = Handle(world.next_id(), CONTEXTS[context] or "A")
        client.told, client.evicted, client.from_crash = told, evicted, from_crash
        client.used = True
        world.clients[client.id] = client
        known = ClientState(client.id, client.context, client)
        known.wait_for_close = waits
        # the next silence of any kind makes it suspect
        known.abandoned, known.silent = ABANDONED_IN_A_ROW - 1, TIMED_OUT_IN_A_ROW - 1
        if place == LIVE:
            machine.client = known
            known.list = _list(world)
        elif place == OLD:
            machine.old = machine.old or {}
            machine.old[client.id] = known
        for number, (ghost, _) in enumerate(held):
            ticket = world.next_id()
            asker = world.askers[ticket] = Asker(A, ticket, None, TAKEN, HOLDING)
            asker.client = client
            holders[1 + at * 8 + number] = ticket
            if ghost:
                asker.from_crash = True
                if machine.ghosts is not None:
                    machine.ghosts.add(ticket)
            else:
                machine.leases = machine.leases or {}
                machine.leases[ticket] = known
                known.leases += 1
    for wanted, last, orphan in openings:
        context = CONTEXTS[planned[0]] if wanted else "A"
        opening = Opening(world.next_id(), PLANNING if context is None else CONNECTING, context)
        world.openings[opening.token] = opening
        opening.orphan = orphan
        if last:
            machine.last_opening = opening.token
        if wanted:
            machine.opening = KeyOpening(opening.token, planned[1])
            machine.opening.context = context
    if queue:
        lists = (None, machine.client and machine.client.list, world.shared)
        machine.waiting = {}
        for _, lease, context, fresh, listed, inside, _ in queue:
            role, ticket, bound = KINDS[lease, context, fresh], world.next_id(), lists[listed]
            message = m.Admit(
                ticket, lease, context, 1 if lease else None, bound, 0 if bound is None else bound.generation,
                "search" if lease else None, "old" if lease else None, (holders[inside],) if inside else (),
                fresh,
            )  # fmt: skip
            reply: Reply[Any] = Reply()
            world.askers[ticket] = Asker(role, ticket, message, reply)
            machine.waiting[ticket] = (message, reply)
    for _ in range(drains):
        drained: Reply[None] = Reply()
        world.drains.append(drained)
        machine.draining = [*(machine.draining or []), drained]
    return world


def _list(world: World) -> ListState:
    state = ListState(world.next_id())
    state.received(OLD_TOOLS, 0, 1e9)
    return state
