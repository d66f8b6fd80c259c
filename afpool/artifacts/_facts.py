"""What goes on the record about artifacts: tickets and words, never a payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from ._types import ArtifactMeta, ArtifactRef, SweepReason

ArtifactOp: TypeAlias = Literal["put", "head", "get", "delete", "list", "dispatch"]
ArtifactRefusalReason: TypeAlias = Literal[
    "no-store", "missing-or-expired", "unknown-parent", "digest-mismatch", "invalid-input", "kind-mismatch"
]


def _excerpt(ref: str | None) -> str | None:
    return None if ref is None else ref[:64]


def _as_json(fact: ArtifactFact) -> dict[str, Any]:
    return attrs.asdict(fact, recurse=False, filter=lambda _, value: value is not None)


@attrs.frozen
class ArtifactMinted:
    """A put stored an artifact.

    Attributes:
        meta: Its ticket.
    """

    event: ClassVar[str] = "artifacts.minted"

    meta: ArtifactMeta

    def as_json(self) -> dict[str, Any]:
        """Give plain data for a record; an absent fact is an absent key."""
        return self.meta.as_json()


@attrs.frozen
class ArtifactResolved:
    """A ref was redeemed.

    Attributes:
        ref: The ref.
        via: `head` or `get`.
        kind: Of the artifact.
        bytes: Of the artifact.
    """

    event: ClassVar[str] = "artifacts.resolved"

    ref: ArtifactRef
    via: Literal["head", "get"]
    kind: str
    bytes: int

    def as_json(self) -> dict[str, Any]:
        """Give plain data for a record."""
        return _as_json(self)


@attrs.frozen
class ArtifactExpired:
    """A put gave up an artifact for age or room.

    Attributes:
        ref: The ref.
        reason: `ttl`, `max-bytes` or `max-count`.
        kind: Of the artifact.
        bytes: Of the artifact.
    """

    event: ClassVar[str] = "artifacts.expired"

    ref: ArtifactRef
    reason: SweepReason
    kind: str
    bytes: int

    def as_json(self) -> dict[str, Any]:
        """Give plain data for a record."""
        return _as_json(self)


@attrs.frozen
class ArtifactRefused:
    """A verb, or a dispatch that needed an artifact, was refused.

    Attributes:
        op: The verb, or `dispatch`.
        reason: Why, as a word.
        ref: The ref that was spoken, where there was one; at most 64 characters of it.
        detail: The sentence, where there is one.
    """

    event: ClassVar[str] = "artifacts.refused"

    op: ArtifactOp
    reason: ArtifactRefusalReason
    ref: ArtifactRef | None = attrs.field(default=None, converter=_excerpt)
    detail: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Give plain data for a record; an absent fact is an absent key."""
        return _as_json(self)


@attrs.frozen
class ArtifactPresented:
    """A model showed its user an artifact; whoever hosts it does the showing.

    Attributes:
        meta: The ticket, as it was at that moment.
        way: How it is to be shown.
        label: What to write above it, if anything.
    """

    event: ClassVar[str] = "artifacts.presented"

    meta: ArtifactMeta
    way: str
    label: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Give plain data for a record; an absent fact is an absent key."""
        told = {"ref": self.meta.ref, "as": self.way, "snapshot": self.meta.as_json()}
        return told if self.label is None else {**told, "label": self.label}


ArtifactFact: TypeAlias = (
    ArtifactMinted | ArtifactResolved | ArtifactExpired | ArtifactRefused | ArtifactPresented
)
FactSink: TypeAlias = Callable[[ArtifactFact], object]
