"""The five verbs as a run or a tool gets them: bound to one scope, with facts for the record.

Rules:

* The scope is closed over: nothing that is passed to a verb changes whose artifacts they are.
* The origin is the host's: what a caller puts in its place is overwritten.
* The words of what is put are told again, by whoever comes upon it: they are stored without what is secret to
  whoever puts.
* Facts come in the order in which things happened, after they have: of a put what it gave up, then what it
  stored. Deleting and listing are on no record.
* A store that answers with another artifact than it was asked for is not believed; one whose answer has not
  the form of one has failed (`_sound`).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import attrs
import trio

from .._base.errors import IN_DOUBT
from ._facts import ArtifactExpired, ArtifactMinted, ArtifactRefused, ArtifactResolved
from ._naming import checked_scope
from ._sound import artifact_or_none, page, ticket, ticket_or_none
from ._telling import tell
from ._types import (
    DEFAULT_PAGE,
    Artifact,
    ArtifactIntegrityError,
    ArtifactMeta,
    ArtifactPage,
    ArtifactStore,
    ArtifactStream,
    InvalidArtifactError,
    NewArtifact,
    NewStream,
    NoArtifactStoreError,
    Origin,
    StreamingArtifactStore,
    Swept,
    UnknownParentRefError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable

    from ._facts import ArtifactOp, ArtifactRefusalReason, FactSink
    from ._types import ArtifactScope


New = TypeVar("New", NewArtifact, NewStream)


class Artifacts(Protocol):
    """The five verbs without a scope, as `ToolContext.artifacts` has them."""

    @property
    def configured(self) -> bool:
        """Whether there is a store behind them; if not, every verb refuses."""
        ...

    async def put(self, new: NewArtifact) -> ArtifactMeta:
        """See `ArtifactStore.put`."""
        ...

    async def head(self, ref: str) -> ArtifactMeta | None:
        """See `ArtifactStore.head`."""
        ...

    async def get(self, ref: str) -> Artifact | None:
        """See `ArtifactStore.get`."""
        ...

    async def delete(self, ref: str) -> None:
        """See `ArtifactStore.delete`."""
        ...

    async def list(
        self, *, kind: str | None = None, cursor: str | None = None, limit: int = DEFAULT_PAGE
    ) -> ArtifactPage:
        """See `ArtifactStore.list`."""
        ...


class BoundArtifacts:
    """A store seen from inside one scope. Made by `bind_artifacts`."""

    __slots__ = ("_on_fact", "_origin", "_scope", "_store", "_words")

    def __init__(
        self,
        store: ArtifactStore,
        scope: ArtifactScope,
        origin: Origin | None,
        on_fact: FactSink | None,
        words: Callable[[str], str] | None = None,
    ) -> None:
        self._words = words
        self._store = store
        self._scope = scope
        self._origin = origin
        self._on_fact = on_fact

    @property
    def configured(self) -> bool:
        """Whether there is a store: `True`."""
        return True

    async def put(self, new: NewArtifact) -> ArtifactMeta:
        """Store `new` under the scope and origin that this is bound to.

        Raises:
            InvalidArtifactError: It is malformed, or larger than its scope may hold.
            UnknownParentRefError: A parent is not there in this scope.
            ArtifactStoreError: The store failed.
        """
        if isinstance(new, NewArtifact):
            new = self._own(new)
        try:
            meta = await self._store.put(self._scope, new, on_swept=self._expired)
        except (UnknownParentRefError, InvalidArtifactError) as error:
            self._refused_put(error)
            raise
        meta = ticket(meta, "put", IN_DOUBT)
        self._tell(ArtifactMinted(meta))
        return meta

    async def head(self, ref: str) -> ArtifactMeta | None:
        """Give the ticket of a ref, or `None`."""
        meta = ticket_or_none(await self._store.head(self._scope, ref), "head")
        if meta is None or meta.ref != ref:
            self._refuse("head", "missing-or-expired", ref)
            return None
        self._tell(ArtifactResolved(meta.ref, "head", meta.kind, meta.bytes))
        return meta

    async def get(self, ref: str) -> Artifact | None:
        """Give ticket and payload of a ref, or `None`.

        Raises:
            ArtifactIntegrityError: The payload is not what its digest says.
            ArtifactStoreError: The store failed.
        """
        try:
            found = artifact_or_none(await self._store.get(self._scope, ref))
        except ArtifactIntegrityError as error:
            self._refuse("get", "digest-mismatch", ref, str(error))
            raise
        if found is None or found.meta.ref != ref:
            self._refuse("get", "missing-or-expired", ref)
            return None
        self._tell(ArtifactResolved(found.meta.ref, "get", found.meta.kind, found.meta.bytes))
        return found

    async def delete(self, ref: str) -> None:
        """See that the artifact is not there."""
        await self._store.delete(self._scope, ref)

    async def list(
        self, *, kind: str | None = None, cursor: str | None = None, limit: int = DEFAULT_PAGE
    ) -> ArtifactPage:
        """Give one page of tickets, newest first."""
        return page(await self._store.list(self._scope, kind=kind, cursor=cursor, limit=limit))

    def unrecorded(self) -> BoundArtifacts:
        """Give the same artifacts seen without anything being recorded, for looking around."""
        return BoundArtifacts(self._store, self._scope, None, None)

    def _own(self, new: New) -> New:
        """Give what is put with the origin of the host, in words that may be told again."""
        words = self._words
        if words is None:
            return attrs.evolve(new, origin=self._origin)
        told = {"kind": new.kind, "media_type": new.media_type, "label": new.label}
        clean: dict[str, Any] = {name: words(word) for name, word in told.items() if isinstance(word, str)}
        return attrs.evolve(new, origin=self._origin, **clean)

    def _expired(self, swept: Swept) -> None:
        self._tell(ArtifactExpired(swept.ref, swept.reason, swept.kind, swept.bytes))

    def _refused_put(self, error: UnknownParentRefError | InvalidArtifactError) -> None:
        unknown = isinstance(error, UnknownParentRefError)
        self._refuse("put", "unknown-parent" if unknown else "invalid-input", None, str(error))

    def _refuse(
        self, op: ArtifactOp, reason: ArtifactRefusalReason, ref: object, detail: str | None = None
    ) -> None:
        spoken = ref if isinstance(ref, str) else None
        self._tell(ArtifactRefused(op, reason, spoken, detail))

    def _tell(self, fact: ArtifactMinted | ArtifactResolved | ArtifactExpired | ArtifactRefused) -> None:
        tell(self._on_fact, fact)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class BoundStreamingArtifacts(BoundArtifacts):
    """The same over a store that streams, with its two further verbs."""

    __slots__ = ()

    async def put_stream(self, new: NewStream, chunks: AsyncIterable[bytes]) -> ArtifactMeta:
        """Store what `chunks` hold; see `StreamingArtifactStore.put_stream`."""
        if isinstance(new, NewStream):
            new = self._own(new)
        store = cast("StreamingArtifactStore", self._store)
        try:
            meta = await store.put_stream(self._scope, new, chunks, on_swept=self._expired)
        except (UnknownParentRefError, InvalidArtifactError) as error:
            self._refused_put(error)
            raise
        meta = ticket(meta, "put_stream", IN_DOUBT)
        self._tell(ArtifactMinted(meta))
        return meta

    def get_stream(self, ref: str) -> AbstractAsyncContextManager[ArtifactStream | None]:
        """Open an artifact for reading in pieces; see `StreamingArtifactStore.get_stream`."""
        return self._get_stream(ref)

    @asynccontextmanager
    async def _get_stream(self, ref: str) -> AsyncIterator[ArtifactStream | None]:
        store = cast("StreamingArtifactStore", self._store)
        async with store.get_stream(self._scope, ref) as stream:
            if stream is None or ticket(stream.meta, "get_stream").ref != ref:
                self._refuse("get", "missing-or-expired", ref)
                yield None
            else:
                meta = stream.meta
                self._tell(ArtifactResolved(meta.ref, "get", meta.kind, meta.bytes))
                yield stream


def bind_artifacts(
    store: ArtifactStore,
    scope: ArtifactScope,
    *,
    origin: Origin | None = None,
    on_fact: FactSink | None = None,
    words: Callable[[str], str] | None = None,
) -> BoundArtifacts:
    """Bind a store to one scope.

    Args:
        store: The store. Where it streams, what is returned does too (`BoundStreamingArtifacts`).
        scope: Whose artifacts.
        origin: What is noted on everything that is put; a caller's own is discarded.
        on_fact: Told of what happens, synchronously; one that raises misses a fact and disturbs no verb.
        words: Takes what is secret out of the words that are put (kind, media type, label): they are told
            again whenever the artifact is. Synchronous, must not raise.

    Raises:
        TypeError: `scope` is no `Identity`.
    """
    # what `isinstance(store, StreamingArtifactStore)` asks, without its price: this is done for every call
    streaming = callable(getattr(store, "put_stream", None)) and callable(getattr(store, "get_stream", None))
    kind = BoundStreamingArtifacts if streaming else BoundArtifacts
    return kind(store, checked_scope(scope), origin, on_fact, words)


_HOW: Final = (
    "the verb {} was used and no artifact store is attached; nothing was done; attach one where the runtime "
    "is opened (MemoryArtifacts, SqliteArtifacts or RedisArtifacts), or branch on `configured` of the "
    "artifacts, and hand small results on in the result itself"
)


class NoArtifacts:
    """The five verbs where there is no store: each says what is missing, and does nothing.

    Args:
        on_fact: Told of each refusal.
    """

    __slots__ = ("_on_fact",)

    def __init__(self, on_fact: FactSink | None = None) -> None:
        self._on_fact = on_fact

    @property
    def configured(self) -> bool:
        """Whether there is a store: `False`."""
        return False

    async def _refuse(self, op: ArtifactOp, ref: object = None) -> NoArtifactStoreError:
        await trio.lowlevel.checkpoint()
        spoken = ref if isinstance(ref, str) else None
        tell(self._on_fact, ArtifactRefused(op, "no-store", spoken, None))
        return NoArtifactStoreError(_HOW.format(op))

    async def put(self, new: NewArtifact) -> ArtifactMeta:  # noqa: ARG002 -- it refuses whatever comes
        """Refuse.

        Raises:
            NoArtifactStoreError: Always.
        """
        raise await self._refuse("put")

    async def head(self, ref: str) -> ArtifactMeta | None:
        """Refuse, as `put` does."""
        raise await self._refuse("head", ref)

    async def get(self, ref: str) -> Artifact | None:
        """Refuse, as `put` does."""
        raise await self._refuse("get", ref)

    async def delete(self, ref: str) -> None:
        """Refuse, as `put` does."""
        raise await self._refuse("delete", ref)

    async def list(
        self,
        *,
        kind: str | None = None,  # noqa: ARG002 -- as above
        cursor: str | None = None,  # noqa: ARG002
        limit: int = DEFAULT_PAGE,  # noqa: ARG002
    ) -> ArtifactPage:
        """Refuse, as `put` does."""
        raise await self._refuse("list")
