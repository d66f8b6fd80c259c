"""Requests to a key's actor: how they are posted, and what becomes of one that gets no answer.

The actor toolkit knows nothing of MCP. Here a full mailbox and a crashed actor become errors of afpool's own,
and an actor that has crashed for good is buried by whoever meets it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from actors import ActorError, MailboxFull

from .._base.errors import ActorCrashed, Overloaded

if TYPE_CHECKING:
    from actors import Reply, Request

    from ._actor import KeyActor

T = TypeVar("T")


def post(actor: KeyActor, request: Request[T]) -> Reply[T]:
    """Post a request to an actor.

    Raises:
        Overloaded: Its mailbox is full.
        ActorCrashed: It was stopped after crashing again.
    """
    try:
        return actor.post(request)
    except MailboxFull:
        raise Overloaded(
            f"{actor.pool.limits.max_waiting} requests wait for this key's actor already; nothing was sent"
        ).saying("limit", "mailbox") from None
    except ActorError as error:
        actor.pool.background.bury(actor)
        raise ActorCrashed(
            f"the actor of this key crashed again and again and takes nothing any more "
            f"({type(error).__name__}); nothing was sent"
        ) from error


def taken(reply: Reply[T]) -> T:
    """Take what is in a reply slot; a crash becomes an error of afpool's own."""
    try:
        return reply.result()
    except ActorError as error:
        raise _no_answer(error) from error


async def waited(reply: Reply[T]) -> T:
    """Wait for a reply; a crash becomes an error of afpool's own."""
    try:
        return await reply.wait()
    except ActorError as error:
        raise _no_answer(error) from error


def _no_answer(error: ActorError) -> ActorCrashed:
    return ActorCrashed(f"the actor of this key does not answer ({type(error).__name__}); nothing was sent")
