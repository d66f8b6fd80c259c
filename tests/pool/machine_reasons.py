"""Nobody is refused without a reason, and the reason that is told is the true one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afpool._base.errors import (
    NOT_SENT,
    AfpoolError,
    BindingChanged,
    OpenBackoff,
    Overloaded,
    PoolClosed,
    StaleTools,
)
from afpool.pool import _messages as m
from tests.pool.machine_books import WAITING

if TYPE_CHECKING:
    from tests.pool.machine_world import World


def plan_of(world: World, message: Any) -> str | None:
    """The context that the key has, or gets in the turn of a message; before that turn."""
    machine = world.machine
    if isinstance(message, m.PlanChanged):
        return message.context
    known = machine.client or machine.opening
    return None if known is None else known.context


def check_reason(world: World, admit: m.Admit, error: AfpoolError, message: Any, plan: str | None) -> None:
    """Check a refusal of an ask that was made in the turn of `message`, before which the plan was `plan`."""
    assert error.delivery == NOT_SENT, "I10: whoever is refused in here has sent nothing"
    machine = world.machine
    if isinstance(error, PoolClosed):
        right = world.closed
    elif isinstance(error, StaleTools):
        right = admit.list is not None and (not admit.list.alive or world.outdated(admit))
    elif isinstance(error, BindingChanged):
        ends = isinstance(message, (m.Revoke, m.Reconfigure)) or world.removed
        over = ends or (admit.epoch is not None and admit.epoch != world.epoch)
        right = over or (admit.context is not None and plan is not None and admit.context != plan)
    elif isinstance(error, OpenBackoff):
        refresh = any(a.role.fresh and a.phase == WAITING for a in world.askers.values())
        assert not refresh, "a refresh, which tries at once, waits out a back-off"
        right = isinstance(message, m.PlanChanged) and message.retry_after is not None
    elif isinstance(error, Overloaded):
        holds = any(ticket in (machine.leases or machine.ghosts or ()) for ticket in admit.chain)
        right = holds or len(machine.waiting or ()) >= world.limits.max_waiting
    else:
        right = isinstance(message, m.OpenFailed)
    assert right, f"an ask was refused with {error.code} for no reason"
