"""Late words: messages about what is gone, which a key may get at any time and which must change nothing.

Their ids are of an asker that was answered, an opening that was given up, a client that was closed or never
taken, a list of somebody else, an epoch that is over. And there are the words that say what is so already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors import Answer, Reply, Request
from afpool._base.errors import NOT_SENT, AfpoolError, OpenFailed
from afpool.pool import _messages as m
from afpool.pool._lists import ListState
from tests.pool.machine_books import NEW_TOOLS, Handle
from tests.pool.machine_tears import watch

if TYPE_CHECKING:
    from tests.pool.machine_world import World

NOBODY: Final = 10**9  # an id that nothing in a world has

STRANGERS: Final = (
    m.Settle(NOBODY, held=False),
    m.Abandon(NOBODY, final=False),
    m.Abandon(NOBODY, final=True),
    m.OpenFailed(NOBODY, OpenFailed("no")),
    m.Listed(NOBODY, NEW_TOOLS, 0, 1e9),  # type: ignore[arg-type]
    m.ListChanged(NOBODY),
    m.ListChanged(list=ListState(NOBODY)),
    m.ClientLost(NOBODY, "lost"),
    m.ClientLost(NOBODY, "closed", closed=True),
)
TURNED_AWAY: Final = m.PlanChanged("A", NOBODY)
TOO_LATE: Final = m.Opened(NOBODY, NOBODY, "A", Handle(NOBODY, "A"))
OUTDATED: Final = tuple(
    m.Admit(NOBODY, lease, context, epoch=-1) for lease in (True, False) for context in (None, "A")
)
TWICE: Final = m.Settle(NOBODY, held=True)
EACH: Final = (*STRANGERS, TURNED_AWAY, TOO_LATE, *OUTDATED, TWICE)


def say_all(world: World) -> int:
    """Say every late word to the machine of a world; return how many there were."""
    for message in STRANGERS:
        effects = turn(world, message)
        assert not effects, f"a late {type(message).__name__} had effects: {effects}"
    assert turn(world, TURNED_AWAY) == ["told False"], "an opening that was given up was told to go on"
    closing = turn(world, TOO_LATE)
    closed = [effect.handle if type(effect) is m.CloseClient else effect for effect in closing]
    assert closed == [TOO_LATE.handle], "a late client is not closed, or more than that"
    for message in (*OUTDATED, TWICE):
        error = (turn(world, message) or [None])[0]
        assert isinstance(error, AfpoolError), f"a late {type(message).__name__} was taken"
        assert error.delivery == NOT_SENT, "I10: nothing of an ask that is refused here was sent"
    for client in (world.machine.old or {}).values():
        for message in (
            m.ClientLost(client.id, "lost"), m.ListChanged(client.id), m.Listed(client.id, NEW_TOOLS, 0, 1e9),
        ):  # fmt: skip
            effects = turn(world, message)
            assert not effects, f"{type(message).__name__} of an old client had effects: {effects}"
    return len(EACH) + 3 * len(world.machine.old or ())


def turn(world: World, message: Any) -> list[Any]:
    """One turn; its effects, with an answer in words, and what it raised in their place."""
    machine = world.machine
    reply: Reply[Any] | None = Reply() if isinstance(message, Request) else None
    try:
        if world.seen is None:
            effects = list(machine.turn(message, reply) or ())
        else:
            effects = list(watch(machine, message, reply, [], world.seen) or ())
    except AfpoolError as error:
        return [error.with_traceback(None)]  # its frames hold this world
    found: list[Any] = []
    for effect in effects:
        if type(effect) is m.Active and world.kick:
            # a machine that has crashed does not know what it last said; whatever has a turn makes it say it
            world.kept = effect.active
        else:
            found.append(f"told {effect.value}" if type(effect) is Answer else effect)
    return found
