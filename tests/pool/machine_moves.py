"""What may happen next in a world, and letting it happen.

`moves` is for walks through reduced states (`machine_states` says what that leaves out), `all_moves` for
those through worlds as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afpool.pool import _messages as m
from tests.pool.machine_books import (
    HOLDING,
    NEW_TOOLS,
    OLD_TOOLS,
    OTHER_TOOLS,
    PLANNING,
    SETTLING,
    WAITING,
    Asker,
)

if TYPE_CHECKING:
    from tests.pool.machine_states import Scope
    from tests.pool.machine_world import World

Move = tuple[Any, ...]

TOOLS = {"old": OLD_TOOLS, "new": NEW_TOOLS, "other": OTHER_TOOLS}

# of which message a turn is made by each move
MESSAGES = {
    "admit": "Admit", "nest": "Admit", "plan": "PlanChanged", "plan_seen": "PlanChanged", "drain": "Drain",
    "opened": "Opened", "late_opened": "Opened", "open_failed": "OpenFailed", "withdraw": "Settle",
    "settle": "Settle", "time_out": "Abandon", "give_up": "Abandon", "listed": "Listed",
    "notice": "ListChanged", "shared_moves": "ListChanged", "lose": "ClientLost", "close_done": "ClientLost",
    "evict": "Evict", "kicked": "Evict", "revoke": "Revoke", "reconfigure": "Reconfigure", "pause": "Pause",
    "resume": "Resume", "close": "Close", "halt": "Limit", "go": "Limit",
}  # fmt: skip


def moves(world: World, scope: Scope) -> list[Move]:
    """What may happen next within the scope; of things that nobody can tell apart, one."""
    machine = world.machine
    found: list[Move] = [("pause",), ("resume",), ("evict",), ("revoke",), ("close",)]
    found.extend(("reconfigure", how) for how in ("bindings", "clients", "removed"))
    if scope.halts:
        found.extend((("halt",), ("go",)))
    more = len(world.askers) < scope.askers
    if more:
        found.extend(("admit", role) for role in scope.roles)
    seen = set()
    waiting, leases = machine.waiting or {}, machine.leases or {}
    for ticket, asker in world.askers.items():
        if ticket in waiting:
            found.append(("withdraw", ticket))
            continue
        look = (asker.client and asker.client.id, ticket in leases, has_inner(world, asker))
        if look in seen:
            continue
        seen.add(look)
        found.extend((name, ticket) for name in ("settle", "time_out", "give_up"))
        if more:
            found.extend(("nest", ticket, role) for role in scope.roles if role.lease)
    for token, opening in world.openings.items():
        if opening.orphan:  # whatever it says, nobody waits for it
            found.append(("open_failed", token))
            continue
        if opening.phase == PLANNING:
            found.extend(("plan", token, context, wait) for context in scope.contexts for wait in (None, 2.0))
        elif len(world.clients) < scope.clients:
            found.append(("opened", token))
        found.append(("open_failed", token))
    found.extend(("close_done", client.id) for client in world.clients.values() if client.told)
    live = machine.client
    if live is not None:
        found.extend(("listed", live.id, tools) for tools in TOOLS)
        found.extend((("lose", live.id), ("notice", live.id)))
        found.extend(("plan_seen", context) for context in scope.contexts)
    found.extend((("shared_moves", "new"), ("shared_moves", "ends")))
    if scope.recheck_lists:
        found.append(("shared_moves", "other"))
    if len(world.drains) < scope.drains:
        found.append(("drain",))
    if world.kick:
        found.append(("kicked",))
    if may_crash(world, scope):
        found.append(("crash",))
        if len(world.clients) < scope.clients:
            found.append(("late_opened",))
    return found


def may_crash(world: World, scope: Scope) -> bool:
    """Whether the actor may crash once more, and go on.

    Before the `Evict` that follows a crash at once, another crash is one too many in so short a time: it ends
    the actor for good, and there is no machine any more that anything could be asked of.
    """
    return world.crashes < scope.crashes and not world.kick


def is_late(world: World, move: Move) -> bool:
    """Whether a move brings a client that nobody waits for.

    All that its turn does is to have that client closed, of which nobody else knows: where just that fails
    there is nothing that a successor could do better.
    """
    if move[0] == "opened":
        return move[1] in world.overtaken or world.openings[move[1]].orphan
    return move[0] == "late_opened"


def has_inner(world: World, asker: Asker) -> bool:
    """Whether the call waits for one that was made from inside it."""
    return any(asker.ticket in admit.chain for admit, _ in (world.machine.waiting or {}).values())


def all_moves(world: World, scope: Scope) -> list[Move]:
    """What may happen next, with everybody's late words one by one."""
    found = [move for move in moves(world, scope) if move[0] not in PER_ASKER]
    more = len(world.askers) < scope.askers
    for ticket, asker in world.askers.items():
        if asker.phase == WAITING:
            found.append(("cancel", ticket))
            continue
        found.append(("leave", ticket))
        if asker.phase == HOLDING:
            found.append(("time_out", ticket))
            if more:
                found.extend(("nest", ticket, role) for role in scope.roles if role.lease)
        elif asker.phase == SETTLING:
            found.append(("give_up", ticket))
    for token, opening in world.overtaken.items():
        found.extend((("forget", token), ("open_failed", token)))
        if opening.phase == PLANNING:
            found.append(("plan", token, "A", None))
        elif len(world.clients) < scope.clients:
            found.append(("opened", token))
    for id_ in world.clients:
        found.extend((("listed", id_, "new"), ("lose", id_), ("notice", id_)))
    return found


PER_ASKER = ("withdraw", "settle", "time_out", "give_up", "nest")


def make(world: World, move: Move) -> None:
    """Let one thing happen."""
    name, *rest = move
    if name == "admit":
        world.admit(rest[0])
    elif name == "withdraw":
        asker, crash = world.askers[rest[0]], world.crash_next
        world.crash_next = None
        world.cancel(asker)
        world.crash_next = crash
        world.settle(asker, twice=False)
    elif name == "settle":
        world.settle(world.askers[rest[0]], twice=False)
    elif name == "leave":
        world.settle(world.askers[rest[0]])
    elif name == "give_up":
        asker = world.askers[rest[0]]
        asker.phase = SETTLING
        world.give_up(asker)
    elif name in ("cancel", "time_out", "nest"):
        getattr(world, name)(world.askers[rest[0]], *rest[1:])
    elif name in ("plan", "opened", "open_failed", "forget"):
        opening = world.openings.get(rest[0]) or world.overtaken[rest[0]]
        getattr(world, name)(opening, *rest[1:])
    elif name in ("close_done", "lose", "notice"):
        getattr(world, name)(world.clients[rest[0]])
    elif name == "listed":
        world.listed(world.clients[rest[0]], TOOLS[rest[1]])
    elif name == "shared_moves":
        world.shared_moves(None if rest[0] == "ends" else TOOLS[rest[0]])
    elif name == "late_opened":
        world.late_opened("A")
    elif name in ("pause", "resume", "drain"):
        world.send({"pause": m.Pause, "resume": m.Resume, "drain": m.Drain}[name]())
    else:
        getattr(world, name)(*rest)


def shown(move: Move) -> str:
    """A move in words."""
    return " ".join(getattr(part, "name", str(part)) for part in move)
