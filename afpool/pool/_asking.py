"""What the app is asked, each time anew: who calls, under what name an identity shares, which plan serves it.

* Whatever the app's code raises, or returns that is no answer, refuses that one request; nothing was sent.
  What it raised is the cause; its text, which may hold anything, is in no message.
* Who calls is asked at every recheck: a caller identity that cannot be asked is one that is not proven.
* What goes on in the background for a caller asks for the caller in the caller's context.
* The plan is asked for with the projection and nothing else of the identity: it decides for everybody who
  uses the key. So it is asked in the pool's context, and not in that of whoever happens to list.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
from typing import TYPE_CHECKING, final

import attrs
import trio

from actors import Reply

from .._base.errors import (
    NOT_SENT,
    AfpoolError,
    IdentityMismatch,
    IdentityMissing,
    PlanFailed,
    PoolClosed,
    ShareFailed,
)
from .._base.identity import Identity, encode_key
from .._base.untraced import unframed
from ..client import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.identity import CallerIdentity
    from ._actor import KeyActor


def ask_identity(identity: CallerIdentity) -> Identity:
    """Ask a caller identity.

    Raises:
        IdentityMissing: It is none, or could not be asked.
        IdentityMismatch: It is not who it was (`SameCaller`).
    """
    asked: object = identity
    cause: Exception | None = None
    if callable(identity):
        try:
            asked = identity()
        except IdentityMismatch:
            raise
        except Exception as error:  # noqa: BLE001 -- the app's code; whatever it raises means: nobody was named
            unframed(error)
            asked, cause = None, error
    if asked is None and cause is None:
        return Identity()  # refused by whatever is keyed on anything
    if not isinstance(asked, Identity):
        what = "could not be asked" if cause is not None else f"is {type(asked).__name__}, not an Identity"
        raise IdentityMissing(f"the caller identity {what}; nothing was sent") from cause
    return asked


@final
class SameCaller:
    """A caller that is asked again, and has to be who he was when he was first asked.

    What was put together for one is never run for another: arguments filled from his identity, his artifacts,
    his credential. So all that is done for a call asks this, and not the caller himself.
    """

    __slots__ = ("_caller", "who")

    def __init__(self, caller: Callable[[], Identity | None], who: Identity) -> None:
        self._caller = caller
        self.who = who

    def __call__(self) -> Identity | None:
        """Ask again.

        Raises:
            IdentityMismatch: He is somebody else by now, or nobody.
        """
        asked = self._caller()
        if (Identity() if asked is None else asked) != self.who:
            raise IdentityMismatch("the caller is not who began the call any more; nothing was sent")
        return asked


def same_caller(identity: CallerIdentity) -> CallerIdentity:
    """Ask a caller, and give one who has to stay who he is; an `Identity` and `None` stay what they are.

    Raises:
        IdentityMissing: He could not be asked.
    """
    if identity is None or isinstance(identity, Identity | SameCaller):
        return identity
    return SameCaller(identity, ask_identity(identity))


def in_this_context(identity: CallerIdentity) -> CallerIdentity:
    """Give a caller identity that is asked in the context of whoever names it, wherever work goes on.

    Who calls is often what a context variable says; in the pool's own context that would be nobody.
    """
    return functools.partial(contextvars.copy_context().run, identity) if callable(identity) else identity


def check_identity(
    actor: KeyActor, who: Identity | Callable[[], Identity | None] | None, keyed_on: tuple[str, ...]
) -> Identity:
    """Ask the caller identity, and raise unless it encodes to the actor's key.

    Args:
        actor: Of the key.
        who: The caller identity.
        keyed_on: The fields that the server was keyed on when whatever is asked for was bound.

    Raises:
        IdentityMismatch: It names somebody else, nobody, or could not be asked.
    """
    cause: BaseException | None = None
    if who is not None and not isinstance(who, Identity):
        try:
            who = who()
        except IdentityMismatch:
            raise
        except Exception as error:  # noqa: BLE001 -- the app's code; whatever it raises means: not proven
            who, cause = None, error
    if isinstance(who, Identity):
        try:
            if encode_key(actor.server.name, who, keyed_on) == actor.key:
                return who
        except IdentityMissing:
            pass
        text = "the caller's identity is not the one that this tool was listed for"
    else:
        text = "no caller identity was named"
    raise IdentityMismatch(f"{text}; nothing was sent") from cause


def ask_share(actor: KeyActor) -> str | None:
    """Ask the app for the authorization name of the actor's identity.

    Raises:
        ShareFailed: It raised, or returned something else than a string or `None`.
    """
    share = actor.pool.share
    if share is None:
        return None
    try:
        name = share(actor.server.name, actor.projection)
    except Exception as error:
        unframed(error)
        failure = ShareFailed(f"share raised {type(error).__name__}; nothing was sent")
        raise failure.saying("share", type(error).__name__) from error
    if name is not None and not isinstance(name, str):
        raise ShareFailed(f"share returned {type(name).__name__}, not a string or None; nothing was sent")
    if name is not None and not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ShareFailed("share returned a string with a lone surrogate; nothing was sent") from None
    return name


@attrs.frozen
class Resolved:
    """A plan and its context."""

    plan: Plan = attrs.field(repr=False)
    context: str


async def ask_plan(actor: KeyActor) -> Resolved:
    """Ask the app for the plan of a key now, in the caller's context.

    Raises:
        PlanFailed: It raised, or returned something that is no plan, or none that fits the server.
    """
    pool = actor.pool
    plan: object = actor.server.plan
    if plan is None and pool.plan is not None:
        try:
            plan = pool.plan(actor.server.name, actor.projection)
            if inspect.isawaitable(plan):
                plan = await plan
        except AfpoolError as error:
            unframed(error)
            raise error.with_traceback(None) from error.__cause__
        except Exception as error:
            unframed(error)
            failure = PlanFailed(f"plan raised {type(error).__name__}; nothing was sent")
            raise failure.saying("plan", type(error).__name__) from error
    if not isinstance(plan, Plan):
        raise PlanFailed(f"plan returned {type(plan).__name__}, not a Plan; nothing was sent")
    try:
        actor.server.check_plan(plan)
    except ValueError as error:
        raise PlanFailed(f"{error}; nothing was sent") from None
    # equal contexts of many keys are one string: each living binding holds it
    return Resolved(plan, sys.intern(plan.context(pool.context_secret)))


async def resolve_plan(actor: KeyActor) -> Resolved:
    """Ask the app for the plan of a key now, in the pool's context.

    Raises:
        PlanFailed: As `ask_plan`.
        PoolClosed: The pool was left before it was answered.
    """
    if actor.server.plan is not None:
        return await ask_plan(actor)
    reply: Reply[Resolved] = Reply()
    scope = trio.CancelScope()
    actor.pool.spawn(_resolve, actor, reply, scope)
    try:
        return await reply.wait()
    finally:
        scope.cancel()


async def _resolve(actor: KeyActor, reply: Reply[Resolved], scope: trio.CancelScope) -> None:
    try:
        with scope:
            reply.set(await ask_plan(actor))
    except AfpoolError as error:
        reply.fail(error)
    finally:  # where nothing has come
        reply.fail(PoolClosed("the pool is closed; nothing was sent", delivery=NOT_SENT))
