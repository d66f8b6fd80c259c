"""Every failure this package raises on purpose: one root, and who has to act on it."""

from __future__ import annotations


class ActorError(Exception):
    """Root of everything the package raises on purpose."""


class Refusal(ActorError):
    """A turn said no on purpose: the asker gets it, the state stays as it was.

    Subclass it for the refusals of a protocol, or name other classes in `Actor(refusals=...)`.
    """


class MailboxFull(ActorError):
    """The request lane is at its limit. Nothing was enqueued; the sender may try again later."""


class ActorStopped(ActorError):
    """The actor was stopped; the request will never be answered. `__cause__` says why, where known."""


class ActorCrashed(ActorError):
    """A turn, or an effect of one, raised; `__cause__` is the original exception.

    Every asker gets an instance of its own, so that no two tasks share a traceback. `final` is True when
    the actor does not come back: it had no successor, or crashed too often.
    """

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class DeadlinePassed(ActorError):
    """The asker's deadline passed before the reply came. A late answer reaches nobody."""
