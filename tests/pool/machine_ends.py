"""The end of everything: if nothing new comes, and whatever is under way ends, then nothing is left.

Nobody waits for an answer (I7), every place is back (I4), no client is open (I9), no opening runs, and the
key has nothing to live for and holds nothing (I11): then it is `at_rest`.

In a walk this is asked of every state and of every order in which things may end: among the moves with which
what is under way ends (`ending`) there is no circle, and where there are none left the world is at rest. So
whichever way it goes from there, it ends, and ends well.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from afpool.pool import _messages as m
from tests.pool.machine_books import PLANNING, WAITING
from tests.pool.machine_moves import has_inner

if TYPE_CHECKING:
    from tests.pool.machine_moves import Move
    from tests.pool.machine_world import World

ALWAYS = ("kicked", "plan", "opened", "open_failed", "close_done", "settle")


def ending(world: World, found: list[Move]) -> list[Move]:
    """Those of the moves that end something which is under way, and begin nothing.

    A call that waits for another one, which was made from inside it, does not end before that one. An
    operator who has paused a key resumes it at last. When all is quiet the client is closed for having been
    idle.
    """
    ends = [
        move
        for move in found
        if move[0] in ALWAYS and (move[0] != "settle" or not has_inner(world, world.askers[move[1]]))
    ]
    if world.machine.paused:
        ends.append(("resume",))
    if world.machine.limits.halted:
        ends.append(("go",))
    if not ends and world.machine.client is not None and world.machine.idle:
        ends.append(("evict",))
    return ends


def at_rest(world: World) -> None:
    """Assert that nothing is left."""
    machine = world.machine
    assert not world.askers, f"I7: never answered: {world.askers}"
    assert not world.drains, "I7: a drain was never answered"
    assert machine.in_flight == 0, "I4: a place has leaked"
    assert not world.clients, "I9: a client was never closed"
    assert not world.openings, "I7: an opening never ended"
    assert world.kept is False, "I11: a key without anything is kept"
    held = machine.waiting or machine.leases or machine.old or machine.opening
    assert not held, "I11: a key without anything holds something"


def finish(world: World) -> None:
    """Let everything that is under way in a world end, in one order of many; then it must be at rest."""
    for _ in range(100):
        if world.kick:
            world.kicked()
        elif world.machine.paused:
            world.send(m.Resume())
        elif world.machine.limits.halted:
            world.go()
        elif done := next((a for a in world.askers.values() if a.phase != WAITING), None):
            world.settle(done)
        elif told := next((c for c in world.clients.values() if c.told), None):
            world.close_done(told)
        elif opening := next(iter([*world.openings.values(), *world.overtaken.values()]), None):
            if opening.phase == PLANNING:
                world.plan(opening, "A")
            else:
                world.opened(opening)
        elif world.machine.client is not None and not world.askers:
            world.evict()
        else:
            break
    at_rest(world)


class Endings:
    """The moves by which things end, as a graph over the numbers of states."""

    def __init__(self) -> None:
        self._from = array("l")
        self._to = array("l")

    def __len__(self) -> int:
        return len(self._from)

    def add(self, state: int, after: int) -> None:
        """Something that was under way in a state ends, and leads to another."""
        self._from.append(state)
        self._to.append(after)

    def circle(self, states: int) -> list[int]:
        """States from which things may go on ending for ever; none, if all is well."""
        into = array("l", bytes(8 * states))
        leads: list[list[int]] = [[] for _ in range(states)]
        for state, after in zip(self._from, self._to, strict=True):
            into[after] += 1
            leads[state].append(after)
        free = [state for state in range(states) if not into[state]]
        for state in free:  # grows: a state is free once all that lead to it were taken away
            for after in leads[state]:
                into[after] -= 1
                if not into[after]:
                    free.append(after)
        return [state for state in range(states) if into[state]]
