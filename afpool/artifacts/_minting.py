"""From what a put was asked to what a store writes: one pipeline for all of them.

Rules:

* Nothing is stored of what is refused, and no refusal quotes a payload or a field of the scope.
* What only the store can judge (whether the expiry lies ahead on its clock, whether the parents are there) it
  judges in the same step as the writing.
* A ref is drawn last.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ._naming import mint_ref
from ._payload import SHAPES
from ._retention import MICROSECONDS, microseconds
from ._types import (
    ArtifactMeta,
    InvalidArtifactError,
    NewArtifact,
    NewStream,
    Origin,
    UnreadableArtifactError,
)

if TYPE_CHECKING:
    from ._payload import Payload, Shape, Work
    from ._retention import Retention

LONGEST: Final = {"kind": 256, "media_type": 256, "label": 1024, "origin.run_id": 256, "origin.call_id": 256}
MOST_PARENTS: Final = 256


@attrs.frozen(kw_only=True)
class Ticket:
    """A ticket as stores keep it: times in whole microseconds, the shape of the payload with it."""

    ref: str
    kind: str
    media_type: str
    bytes: int
    shape: Shape
    created: int
    label: str | None = None
    digest: str | None = None
    expires: int | None = None
    run_id: str | None = None
    call_id: str | None = None
    parents: tuple[str, ...] = ()

    def meta(self) -> ArtifactMeta:
        """Give it as it is shown."""
        origin = None if self.run_id is None and self.call_id is None else Origin(self.run_id, self.call_id)
        return ArtifactMeta(
            ref=self.ref,
            kind=self.kind,
            media_type=self.media_type,
            bytes=self.bytes,
            created_at=self.created / MICROSECONDS,
            label=self.label,
            digest=self.digest,
            expires_at=None if self.expires is None else self.expires / MICROSECONDS,
            origin=origin,
            parent_refs=self.parents,
        )

    def live(self, now: int) -> bool:
        """Whether it has not expired."""
        return self.expires is None or self.expires > now


def stored_ticket(asked: str, **facts: Any) -> Ticket:
    """Make a ticket of what was read from outside the process.

    Raises:
        UnreadableArtifactError: It is nothing that a put writes. `asked` is the ref for the error.
    """
    try:
        ticket = Ticket(**facts)
    except TypeError:
        raise UnreadableArtifactError(asked) from None
    whole = (ticket.bytes, ticket.created, 0 if ticket.expires is None else ticket.expires)
    texts = (ticket.ref, ticket.kind, ticket.media_type, *ticket.parents)
    maybe = (ticket.label, ticket.digest, ticket.run_id, ticket.call_id)
    if (
        ticket.shape in SHAPES
        and all(type(number) is int for number in whole)
        and all(type(text) is str for text in texts)
        and all(text is None or type(text) is str for text in maybe)
    ):
        return ticket
    raise UnreadableArtifactError(asked)


@attrs.frozen
class Draft:
    """A put that is well-formed: everything but when it is created and whether its parents are there.

    Attributes:
        ticket: `created` is 0 and `expires` what was asked for.
        data: The canonical payload; empty for a stream.
    """

    ticket: Ticket
    data: bytes = attrs.field(repr=False)

    def check_ahead(self, now: int) -> None:
        """Refuse an artifact that would be born expired.

        Raises:
            InvalidArtifactError: As said.
        """
        if not self.ticket.live(now):
            raise InvalidArtifactError(BORN_EXPIRED)

    def stamped(self, now: int, newest: int, retention: Retention) -> Ticket:
        """Give the ticket of the moment of writing, newer than the newest of its scope.

        How long it lives counts from now: a clock that was ahead for a moment leaves `newest` there for good.
        """
        expires = retention.expiry(now, self.ticket.expires)
        return attrs.evolve(self.ticket, created=max(now, newest + 1), expires=expires)


BORN_EXPIRED: Final = (
    "expires_at is not later than now on the store's clock; nothing was stored; name a later moment in "
    "seconds since 1970, or leave it out"
)


def _refuse(what: str, fix: str) -> InvalidArtifactError:
    return InvalidArtifactError(f"{what}; nothing was stored; {fix}")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refuse(f"{name} is of type {type(value).__name__}", "it must be a string")
    text = str.__str__(value)
    if len(text) > LONGEST[name]:
        raise _refuse(f"{name} has {len(text)} characters", f"at most {LONGEST[name]} are kept")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise _refuse(f"{name} holds an unpaired surrogate", "it must be text")
    return text


def _word(name: str, value: object) -> str:
    text = _text(name, value)
    if not text.strip():
        raise _refuse(f"{name} is blank", "it must say something")
    return text


def _optional(name: str, value: object) -> str | None:
    return None if value is None else _text(name, value)


def _expiry(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(f"expires_at is of type {type(value).__name__}", "it must be seconds since 1970")
    if not isfinite(value):
        raise _refuse("expires_at is not finite", "name a moment, or leave it out for no expiry")
    return microseconds(value)


def _parents(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, tuple | list):
        raise _refuse(f"parent_refs is of type {type(value).__name__}", "it must be a list of refs")
    if len(value) > MOST_PARENTS:
        raise _refuse(f"parent_refs names {len(value)} parents", f"at most {MOST_PARENTS} are kept")
    for ref in value:
        if not isinstance(ref, str):
            raise _refuse(f"parent_refs holds a value of type {type(ref).__name__}", "refs are strings")
    return tuple(dict.fromkeys(map(str.__str__, value)))


def _origin(value: object) -> Origin:
    if value is None:
        return Origin()
    if not isinstance(value, Origin):
        raise _refuse(f"origin is of type {type(value).__name__}", "it must be an Origin")
    return Origin(_optional("origin.run_id", value.run_id), _optional("origin.call_id", value.call_id))


def _common(new: NewArtifact | NewStream) -> dict[str, Any]:
    origin = _origin(new.origin)
    return {
        "kind": _word("kind", new.kind),
        "media_type": _word("media_type", new.media_type),
        "label": _optional("label", new.label),
        "expires": _expiry(new.expires_at),
        "run_id": origin.run_id,
        "call_id": origin.call_id,
        "parents": _parents(new.parent_refs),
        "created": 0,
    }


async def draft(new: NewArtifact, retention: Retention, work: Work) -> Draft:
    """Check and encode a put. At least one checkpoint, but what is small is encoded before it.

    Raises:
        InvalidArtifactError: It is malformed, or larger than a scope may hold.
        TypeError: `new` is no `NewArtifact`.
    """
    try:
        return await _draft(new, retention, work)
    finally:
        await trio.lowlevel.checkpoint()


async def _draft(new: NewArtifact, retention: Retention, work: Work) -> Draft:
    if not isinstance(new, NewArtifact):
        raise TypeError(f"a put takes a NewArtifact, not {type(new).__name__}")
    common = _common(new)
    if new.digest is not None and new.digest != "sha-256":
        raise _refuse("digest names an algorithm that is not known", "it must be 'sha-256' or None")
    payload: Payload = await work.encode(new.data, digest=new.digest is not None)
    retention.check_size(len(payload.data))
    ticket = Ticket(
        ref=mint_ref(), bytes=len(payload.data), shape=payload.shape, digest=payload.digest, **common
    )
    return Draft(ticket, payload.data)


def draft_stream(new: NewStream, retention: Retention) -> Draft:
    """Check a streamed put before its first piece is asked for.

    Raises:
        InvalidArtifactError: It is malformed, or larger than a scope may hold.
        TypeError: `new` is no `NewStream`.
    """
    if not isinstance(new, NewStream):
        raise TypeError(f"a streamed put takes a NewStream, not {type(new).__name__}")
    common = _common(new)
    if isinstance(new.bytes, bool) or not isinstance(new.bytes, int) or new.bytes < 0:
        raise _refuse("bytes is no length", "a streamed put says first how many bytes will come")
    retention.check_size(new.bytes)
    return Draft(Ticket(ref=mint_ref(), bytes=new.bytes, shape="binary", **common), b"")
