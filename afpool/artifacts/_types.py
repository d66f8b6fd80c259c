"""What an artifact store takes, gives and raises: shapes, the port, its errors.

The laws of the port, which every store keeps and the public suite checks:

* The scope comes first, always. A ref alone opens nothing.
* Missing, expired, another scope's and malformed refs are one answer, `None`, and never an error. Deleting
  what is not there is agreement.
* A payload never rides on `head` or `list`, and what was stored shares nothing with what was given or is
  returned.
* A store may only tighten an expiry. What it gives up for room or age it names at that `put`.
* No error quotes a payload or a field of the scope.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import attrs

from .._base.errors import ANSWERED, IN_DOUBT, NOT_SENT, AfpoolError, Delivery
from .._base.identity import Identity

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

ArtifactScope: TypeAlias = Identity
"""Whose artifacts: the three fields together, compared exactly; absent and empty are the same absence."""

ArtifactRef: TypeAlias = str
"""`art_` and 22 characters of `A-Za-z0-9`, drawn at random."""

SweepReason: TypeAlias = Literal["ttl", "max-bytes", "max-count"]
StoreProblem: TypeAlias = Literal["cannot-open", "not-our-schema", "newer-schema"]

DEFAULT_PAGE = 50
"""Artifacts on one page of `list`, where nothing else is asked for."""


@attrs.frozen
class Origin:
    """What made an artifact: facts of the host, never of a model or a tool.

    Attributes:
        run_id: The run.
        call_id: The tool call.
    """

    run_id: str | None = None
    call_id: str | None = None


@attrs.frozen(kw_only=True)
class ArtifactMeta:
    """The claim ticket: everything about an artifact except its payload. Absent facts are `None`.

    Attributes:
        ref: Its name within its scope.
        kind: The host's word for what it is, compared exactly: `dataset/rows` is one kind, no family.
        media_type: As given at the put.
        bytes: Length of the canonical payload.
        created_at: Seconds since 1970 on the store's clock, whole microseconds.
        label: For people.
        digest: `sha-256:` and 64 lowercase hexadecimal digits over the canonical payload, where asked for.
        expires_at: Seconds since 1970; from then on the artifact is not there.
        origin: What made it.
        parent_refs: The artifacts that it was made from; each was there in the same scope at that moment.
    """

    ref: ArtifactRef
    kind: str
    media_type: str
    bytes: int
    created_at: float
    label: str | None = None
    digest: str | None = None
    expires_at: float | None = None
    origin: Origin | None = None
    parent_refs: tuple[ArtifactRef, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Give plain data for a record; an absent fact is an absent key."""
        facts: dict[str, Any] = {"ref": self.ref, "kind": self.kind, "media_type": self.media_type}
        facts |= {"bytes": self.bytes, "created_at": self.created_at}
        for name in ("label", "digest", "expires_at"):
            if getattr(self, name) is not None:
                facts[name] = getattr(self, name)
        if self.origin is not None:
            facts["origin"] = attrs.asdict(self.origin, filter=lambda _, value: value is not None)
        if self.parent_refs:
            facts["parent_refs"] = list(self.parent_refs)
        return facts


@attrs.frozen(kw_only=True)
class NewArtifact:
    """What a `put` is asked to store. Nothing is checked here; the put refuses what is malformed.

    Attributes:
        kind: Not blank.
        media_type: Not blank.
        data: `str` (stored as text), `bytes` (binary) or a JSON value: `dict` with string keys, `list`,
            `tuple`, `int`, `float`, `bool`, `None`. NaN and infinities are no JSON.
        label: For people.
        digest: `"sha-256"`: keep a digest and check it at every `get`.
        expires_at: Seconds since 1970, later than now.
        origin: A capability that is bound to a run puts its own here.
        parent_refs: Artifacts of the same scope that are there now.
    """

    kind: str
    media_type: str
    data: Any = attrs.field(repr=False)
    label: str | None = None
    digest: Literal["sha-256"] | None = None
    expires_at: float | None = None
    origin: Origin | None = None
    parent_refs: Sequence[ArtifactRef] = ()


@attrs.frozen
class Artifact:
    """A claim ticket and its payload, decoded anew for this answer: changing it changes nobody else's.

    Attributes:
        meta: The claim ticket.
        data: `str`, `bytes` or a JSON value, as it was put; a tuple comes back as a list.
    """

    meta: ArtifactMeta
    data: Any = attrs.field(repr=False)


@attrs.frozen
class ArtifactPage:
    """One page of a scope's artifacts, newest first.

    Attributes:
        items: Tickets, ordered by `created_at` descending, then by `ref`.
        cursor: Where the next page starts; `None` exactly where there is none.
    """

    items: tuple[ArtifactMeta, ...]
    cursor: str | None = None


@attrs.frozen
class Swept:
    """An artifact that a `put` gave up for age or for room.

    Attributes:
        ref: Its name.
        reason: `ttl`, `max-bytes` or `max-count`.
        kind: Its kind.
        bytes: Its length.
    """

    ref: ArtifactRef
    reason: SweepReason
    kind: str
    bytes: int


SweepSink: TypeAlias = Callable[[Swept], object]


@attrs.frozen(kw_only=True)
class NewStream:
    """What a `put_stream` is asked to store: binary, of a length that is said first; never with a digest.

    Attributes:
        kind: Not blank.
        media_type: Not blank.
        bytes: The exact length of what the chunks hold.
        label: For people.
        expires_at: Seconds since 1970, later than now.
        origin: As in `NewArtifact`.
        parent_refs: As in `NewArtifact`.
    """

    kind: str
    media_type: str
    bytes: int
    label: str | None = None
    expires_at: float | None = None
    origin: Origin | None = None
    parent_refs: Sequence[ArtifactRef] = ()


@attrs.frozen
class ArtifactStream:
    """A claim ticket and its canonical payload in pieces. The digest, if any, is not checked on this way.

    Attributes:
        meta: The claim ticket.
        chunks: Pieces of `bytes`, in order, none of them empty.
    """

    meta: ArtifactMeta
    chunks: AsyncIterator[bytes] = attrs.field(repr=False)


class ArtifactStore(Protocol):
    """The port of five verbs. Every one of them is a checkpoint, also where it refuses."""

    async def put(
        self, scope: ArtifactScope, new: NewArtifact, *, on_swept: SweepSink | None = None
    ) -> ArtifactMeta:
        """Store `new` and give its ticket; once it returns the artifact is as durable as the store is.

        Args:
            scope: Whose it is.
            new: What to store. It is encoded before anything is waited for.
            on_swept: Told of each artifact that this put gave up, once the put is certain, before it returns.

        Raises:
            InvalidArtifactError: `new` is malformed, or larger than the whole budget. Nothing was stored
                or swept.
            UnknownParentRefError: A parent is not there in this scope. Nothing is stored.
            ArtifactStoreError: The store failed; its verdict says whether the artifact may be there.

        Cancelled: the artifact may have been stored, but its ref is known to nobody.
        """
        ...

    async def head(self, scope: ArtifactScope, ref: ArtifactRef) -> ArtifactMeta | None:
        """Give the ticket, or `None`. The payload is not read."""
        ...

    async def get(self, scope: ArtifactScope, ref: ArtifactRef) -> Artifact | None:
        """Give ticket and payload, or `None`.

        Raises:
            ArtifactIntegrityError: The payload is not what its digest says.
        """
        ...

    async def delete(self, scope: ArtifactScope, ref: ArtifactRef) -> None:
        """See that the artifact is not there. That it was not is no error."""
        ...

    async def list(
        self,
        scope: ArtifactScope,
        *,
        kind: str | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE,
    ) -> ArtifactPage:
        """Give one page of tickets, newest first.

        Args:
            scope: Whose.
            kind: Only artifacts of this kind.
            cursor: Of the page before; one that no page gave reads as the start.
            limit: At most so many, at least 1. A store may give fewer, never none where there are some.
        """
        ...


@runtime_checkable
class StreamingArtifactStore(Protocol):
    """What a store offers beside the five verbs if, and only if, it never holds a whole streamed payload.

    Presence is the promise: `isinstance(store, StreamingArtifactStore)` asks for it.
    """

    async def put_stream(
        self,
        scope: ArtifactScope,
        new: NewStream,
        chunks: AsyncIterable[bytes],
        *,
        on_swept: SweepSink | None = None,
    ) -> ArtifactMeta:
        """Store what `chunks` hold. Retention plans on `new.bytes`; the ticket is written last.

        Raises:
            InvalidArtifactError: `new` is malformed or larger than the whole budget (`chunks` is not
                touched), or `chunks` held more or fewer bytes than was said. Nothing is left behind.
            UnknownParentRefError: A parent is not there in this scope.
            ArtifactStoreError: The store failed.
        """
        ...

    def get_stream(
        self, scope: ArtifactScope, ref: ArtifactRef
    ) -> AbstractAsyncContextManager[ArtifactStream | None]:
        """Open an artifact of any shape for reading in pieces: `None` where `get` would answer `None`."""
        ...


class ArtifactError(AfpoolError):
    """Root of what artifact stores raise on purpose."""

    code: ClassVar[str] = "ERR_ARTIFACT"


class InvalidArtifactError(ArtifactError):
    """A put is malformed, or larger than its scope may hold. Nothing was stored or swept."""

    code = "ERR_INVALID_ARTIFACT"
    deliveries: ClassVar[tuple[Delivery, ...]] = (NOT_SENT,)


class UnknownParentRefError(ArtifactError):
    """A put named parents that are not there in its scope. Nothing was stored.

    `unresolved` holds the refs, in the order given.
    """

    code = "ERR_UNKNOWN_PARENT_REF"
    deliveries = (NOT_SENT,)

    def __init__(self, unresolved: Sequence[ArtifactRef]) -> None:
        self.unresolved = tuple(unresolved)
        shown = ", ".join(repr(ref[:40]) for ref in self.unresolved[:10])
        more = f" and {len(self.unresolved) - 10} more" if len(self.unresolved) > 10 else ""
        super().__init__(
            f"the put names parents that are not in its scope: {shown}{more}; nothing was stored; "
            "store each parent first and name the ref that its put gave, or leave it out"
        )


class ArtifactIntegrityError(ArtifactError):
    """A stored payload is not what its digest says. `head` still answers."""

    code = "ERR_ARTIFACT_INTEGRITY"
    deliveries = (ANSWERED,)

    def __init__(self, ref: ArtifactRef, expected: str, actual: str) -> None:
        self.ref, self.expected, self.actual = ref, expected, actual
        super().__init__(
            f"the payload of {ref} does not match its digest: {expected} was stored, {actual} was read; "
            "it was withheld; make the artifact again and use the new ref (head still describes this one)"
        )


class UnreadableArtifactError(ArtifactError):
    """A record is there under the ref and cannot be read, which is not the same as missing."""

    code = "ERR_UNREADABLE_ARTIFACT"
    deliveries = (ANSWERED,)

    def __init__(self, ref: ArtifactRef) -> None:
        self.ref = ref
        super().__init__(
            f"the stored record of {ref} is damaged or of a later version; it was left as it is; "
            "delete it and make the artifact again, or read it with the version that wrote it"
        )


class UnreadableArtifactStoreError(ArtifactError):
    """What was to be opened as a store is none, or one of a later version. Nothing in it was changed."""

    code = "ERR_UNREADABLE_ARTIFACT_STORE"
    deliveries = (NOT_SENT,)

    def __init__(self, place: str, problem: StoreProblem, advice: str) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place} cannot be used as an artifact store ({problem}): {advice}")


class ArtifactStoreError(ArtifactError):
    """The store failed: disk, server or connection. `in-doubt`: a put or delete may have happened."""

    code = "ERR_ARTIFACT_STORE"
    deliveries = (NOT_SENT, IN_DOUBT)


class ArtifactStoreClosedError(ArtifactError):
    """The store was closed before this verb began; nothing was done."""

    code = "ERR_ARTIFACT_STORE_CLOSED"
    deliveries = (NOT_SENT,)


class NoArtifactStoreError(ArtifactError):
    """No store is attached where a verb was used; nothing was done."""

    code = "ERR_NO_ARTIFACT_STORE"
    deliveries = (NOT_SENT,)
