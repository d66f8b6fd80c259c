"""Refusals that several places make, in the same words: what happened, what was (not) sent, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.errors import NOT_SENT, AfpoolError, BindingChanged, OpenBackoff, PoolClosed, StaleTools

if TYPE_CHECKING:
    from ._key_state import KeyState
    from ._pool import Pool


def stale(listed: int, now: int) -> StaleTools:
    """The refusal of a call whose list is no longer true."""
    if listed == now:
        text = "its server announced a change that was not looked at yet"
    else:
        text = f"the list has changed since (generation {listed}, now {now})"
    return StaleTools(
        f"the tool's list is not known to be true: {text}; nothing was sent; list the tools again"
    )


def shown_otherwise() -> StaleTools:
    """The refusal of a call whose client has received another list since, under another name."""
    return StaleTools(
        "the tool's list is not known to be true: its client has received another one since, under another "
        "authorization name; nothing was sent; list the tools again"
    )


def pool_closing(pool: Pool) -> PoolClosed:
    """The refusal of a call that has sent nothing when the pool is left."""
    error = PoolClosed("the pool is closing; nothing was sent", delivery=NOT_SENT)
    return error.because(pool.closed_by)


def revoked() -> BindingChanged:
    return BindingChanged(
        "the authorization behind this tool was revoked; nothing was sent; list the tools again"
    )


def reconfigured() -> BindingChanged:
    """The refusal of a call whose server is configured otherwise by now, or not at all."""
    return BindingChanged(
        "the configuration of this server has changed since; nothing was sent; list the tools again"
    )


def epoch_over(key: KeyState, epoch: int) -> BindingChanged:
    """The refusal of what stands on an epoch of the key that is over."""
    return revoked() if key.revoked > epoch else reconfigured()


def other_plan() -> BindingChanged:
    """The refusal of a call whose plan is no longer the one in force."""
    return BindingChanged(
        "the plan for this identity differs from the one that the tool was listed under; nothing was sent; "
        "list the tools again"
    )


def backing_off(seconds: float) -> OpenBackoff:
    return OpenBackoff(
        f"the last opening failed; the next one is tried in {seconds:.1f} s, or at once by a refresh; "
        "nothing was sent",
        retry_after=seconds,
    )


def copy_error(error: AfpoolError) -> AfpoolError:
    """One exception object per waiter: a shared one would mix their tracebacks."""
    twin = type(error)(
        error.message,
        delivery=error.delivery,
        retry_after=error.retry_after,
        http_status=error.http_status,
        www_authenticate=error.www_authenticate,
    )
    twin.__cause__ = error.__cause__
    twin.noted = error.noted
    return twin.because(error.happened)
