"""A small actor toolkit for trio: synchronous turns, deferred replies, no task per actor."""

from __future__ import annotations

from ._actor import Actor
from ._core import Restart
from ._errors import ActorCrashed, ActorError, ActorStopped, DeadlinePassed, MailboxFull, Refusal
from ._machine import Machine
from ._messages import Answer, Effect, Refuse, Reply, Request, Undelivered
from ._observe import ActorInfo, Counts, TurnTrace

__all__ = [
    "Actor", "ActorCrashed", "ActorError", "ActorInfo", "ActorStopped", "Answer", "Counts",
    "DeadlinePassed", "Effect", "Machine", "MailboxFull", "Refusal", "Refuse", "Reply", "Request",
    "Restart", "TurnTrace", "Undelivered",
]  # fmt: skip
