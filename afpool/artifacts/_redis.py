"""The store in Redis: one for several processes, on one machine or many.

Rules:

* What must happen in one step is one script (`_redis_scripts.py`): limits hold exactly, whoever puts.
* A payload larger than a piece never travels whole: it is staged piece by piece under a key of its own, which
  Redis clears away if nobody finishes, and put in place by the script that writes the ticket, last.
* Time is Redis's own, so that all processes agree, unless the host gives a clock.
* How durable an artifact is, Redis's own settings say.
"""

from __future__ import annotations

import inspect
import ssl
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, final

import trio

from .._base.errors import IN_DOUBT
from .._base.seams import Seams
from .._base.secret import Secret
from ._minting import Draft, Ticket, draft, draft_stream
from ._naming import checked_ref, checked_scope
from ._paging import page_of, page_size, read_cursor
from ._payload import Payload, Work
from ._redis_link import Link, check_url
from ._redis_rows import judge, keys_of, or_empty, parents_of, read_put, rest_of, stamped, ticket_of
from ._redis_scripts import DELETE, FIND, LIST, PLAN, PUT, STAGE, age_after
from ._retention import MICROSECONDS, Retention, check_seconds, microseconds
from ._telling import tell
from ._types import (
    DEFAULT_PAGE,
    Artifact,
    ArtifactStoreClosedError,
    ArtifactStoreError,
    ArtifactStream,
    InvalidArtifactError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ._redis_rows import Answer, Keys
    from ._redis_scripts import Script
    from ._types import ArtifactMeta, ArtifactPage, ArtifactScope, NewArtifact, NewStream, SweepSink

PIECE: Final = 256 * 1024
"""Bytes of a payload that travel at once."""
LARGEST: Final = 512 * 1024 * 1024
"""Bytes that Redis holds under one key."""
STAGED_FOR: Final = 300
"""Seconds after its last piece that Redis keeps what nobody finished."""
_PIECES_AT_ONCE: Final = 8


@final
class RedisArtifacts:
    """Artifacts in Redis 6 or newer, shared by all processes that name the same server, database and prefix.

    Opened by `async with`. All processes should set the same limits: each put makes room by its own. What it
    needs, the extra `afpool[redis]` brings.

    Args:
        url: `redis://host:port/db`, `rediss://…` for TLS, or `unix:///path`; may hold user and password.
        password: The password, if it is not in the URL.
        ssl_context: For `rediss`; by default the system's authorities and the host name are checked.
        prefix: Of all keys; two stores with different prefixes know nothing of each other.
        ttl: Seconds that an artifact lives at most; `None` for no limit.
        max_bytes_per_scope: Payload bytes that a scope holds at most; `None` for no limit.
        max_count_per_scope: Artifacts that a scope holds at most; `None` for no limit.
        timeout: Seconds that a verb waits for Redis at most; of a large payload, for each piece.
        clock: Seconds since 1970; Redis's own by default. A minute off Redis's at most.
        seams: Threads.

    Raises:
        TypeError: An address, prefix or limit is of the wrong type.
        ValueError: The address or the prefix is not understood, or a limit is not positive.
    """

    def __init__(
        self,
        url: str,
        *,
        password: str | Secret | None = None,
        ssl_context: ssl.SSLContext | None = None,
        prefix: str = "afpool:artifacts",
        ttl: float | None = None,
        max_bytes_per_scope: int | None = None,
        max_count_per_scope: int | None = None,
        timeout: float = 10.0,
        clock: Callable[[], float] | None = None,
        seams: Seams | None = None,
    ) -> None:
        if not isinstance(prefix, str) or not prefix.strip() or set(prefix) & set("{} \t\r\n\0"):
            raise ValueError("the prefix of a Redis store must be a word without spaces and braces")
        self.prefix = prefix
        self.retention = Retention(
            ttl=ttl, max_bytes_per_scope=max_bytes_per_scope, max_count_per_scope=max_count_per_scope
        )
        check_seconds("timeout", timeout)
        if ssl_context is None and check_url(url).startswith("rediss:"):
            ssl_context = ssl.create_default_context()
        self._link = Link(
            Secret(check_url(url)),
            None if password is None else Secret(password),
            ssl_context,
            prefix,
            timeout,
        )
        self._clock = clock
        self._work = Work(Seams() if seams is None else seams)
        self._pieces = trio.CapacityLimiter(_PIECES_AT_ONCE)
        self._tasks: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._ended = trio.Event()

    # Opening and closing.

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._link.closed:
            raise ArtifactStoreClosedError(
                "a Redis store is opened once; nothing was done; make another object for the same keys"
            )
        self._tasks = trio.open_nursery()
        nursery = await self._tasks.__aenter__()
        try:
            await nursery.start(self._run)
            await self._link.command(b"PING")
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            await self._link.run(task_status)
        finally:
            self._ended.set()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._link.close()
        if self._tasks is not None:
            # Not told of the body's error, which would come back in a group.
            await self._tasks.__aexit__(None, None, None)

    async def aclose(self) -> None:
        """Drop the connection; later verbs are refused. What is stored stays. Closing twice is fine."""
        opened = self._tasks is not None
        self._link.close()
        with trio.CancelScope(shield=True):
            if opened:
                await self._ended.wait()
        await trio.lowlevel.checkpoint()

    # The verbs.

    async def put(
        self, scope: ArtifactScope, new: NewArtifact, *, on_swept: SweepSink | None = None
    ) -> ArtifactMeta:
        """See `ArtifactStore.put`. Cancelled: what was stored meanwhile is taken away again."""
        keys = self._keys(scope)
        made = await draft(new, self.retention, self._work)
        self._check_fits(made)
        if len(made.data) <= PIECE:
            return await self._mint(keys, made, made.data, on_swept)
        async with self._staging(keys, made) as stage:
            for at in range(0, len(made.data), PIECE):
                await stage(made.data[at : at + PIECE])
            return await self._mint(keys, made, None, on_swept)

    async def put_stream(
        self,
        scope: ArtifactScope,
        new: NewStream,
        chunks: AsyncIterable[bytes],
        *,
        on_swept: SweepSink | None = None,
    ) -> ArtifactMeta:
        """See `StreamingArtifactStore.put_stream`. What it gives up goes with the last step, not before."""
        keys = self._keys(scope)
        await trio.lowlevel.checkpoint()
        made = draft_stream(new, self.retention)
        self._check_fits(made)
        ticket = made.ticket
        plan = await self._run_script(PLAN, keys, or_empty(ticket.expires), *parents_of(ticket))
        judge(plan, ticket)
        async with self._staging(keys, made) as stage:
            buffer, seen = bytearray(), 0
            async with _closing(chunks):
                async for chunk in chunks:
                    seen += len(chunk)
                    if seen > ticket.bytes:
                        break
                    buffer += chunk
                    while len(buffer) > PIECE:
                        await stage(bytes(buffer[:PIECE]))
                        del buffer[:PIECE]
            if seen != ticket.bytes:
                more = "more" if seen > ticket.bytes else "fewer"
                raise InvalidArtifactError(
                    f"the stream was said to hold {ticket.bytes} bytes and holds {more}; nothing was stored; "
                    "say the exact length"
                )
            if seen <= PIECE:
                return await self._mint(keys, made, bytes(buffer), on_swept)
            await stage(bytes(buffer))
            return await self._mint(keys, made, None, on_swept)

    async def head(self, scope: ArtifactScope, ref: str) -> ArtifactMeta | None:
        """See `ArtifactStore.head`."""
        ticket, _ = await self._find(scope, ref, -1)
        return None if ticket is None else ticket.meta()

    async def get(self, scope: ArtifactScope, ref: str) -> Artifact | None:
        """See `ArtifactStore.get`. A large payload comes in pieces."""
        ticket, data = await self._find(scope, ref, PIECE)
        if ticket is None:
            return None
        if data is None:
            pieces: list[bytes] = []
            while piece := await self._piece(scope, ticket.ref, len(pieces)):
                pieces.append(piece)
            data = b"".join(pieces)
            if len(data) != ticket.bytes and (await self._find(scope, ref, -1))[0] is None:
                return None  # it went meanwhile
        payload = Payload(ticket.shape, data, ticket.digest)
        return Artifact(ticket.meta(), await self._work.decode(ticket.ref, ticket.bytes, payload))

    @asynccontextmanager
    async def get_stream(self, scope: ArtifactScope, ref: str) -> AsyncIterator[ArtifactStream | None]:
        """See `StreamingArtifactStore.get_stream`.

        While its pieces are read they may raise `ArtifactStoreError`: the artifact went meanwhile.
        """
        ticket, _ = await self._find(scope, ref, 0)
        if ticket is None:
            yield None
        else:
            chunks = self._chunks(scope, ticket)
            try:
                yield ArtifactStream(ticket.meta(), chunks)
            finally:
                await chunks.aclose()

    async def delete(self, scope: ArtifactScope, ref: str) -> None:
        """See `ArtifactStore.delete`. Cancelled: it may have been deleted."""
        keys, known = self._keys(scope), checked_ref(ref)
        await trio.lowlevel.checkpoint()
        if known is not None or self._link.closed:
            await self._run_script(DELETE, keys, known or "")

    async def list(
        self,
        scope: ArtifactScope,
        *,
        kind: str | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE,
    ) -> ArtifactPage:
        """See `ArtifactStore.list`."""
        keys, size, after = self._keys(scope), page_size(limit), read_cursor(cursor)
        await trio.lowlevel.checkpoint()
        kinds = ("0", "") if kind is None else ("1", kind)
        answer = await self._run_script(LIST, keys, *kinds, age_after(*after) if after else "", size + 1)
        pairs = zip(answer[::2], answer[1::2], strict=True)
        return page_of([ticket_of(bytes(ref).decode(), bytes(ticket)) for ref, ticket in pairs], size)

    # What they stand on.

    def _keys(self, scope: ArtifactScope) -> Keys:
        return keys_of(self.prefix, checked_scope(scope))

    async def _run_script(self, script: Script, keys: Keys, *args: Any, staged: str | None = None) -> Answer:
        now = "" if self._clock is None else str(microseconds(self._clock()))
        names = keys.all if staged is None else [*keys.all, staged]
        return await self._link.run_script(script, names, now, *args)

    def _check_fits(self, made: Draft) -> None:
        if made.ticket.bytes > LARGEST:
            raise InvalidArtifactError(
                f"the payload has {made.ticket.bytes} bytes and Redis holds {LARGEST} under one key; "
                "nothing was stored; store it in parts"
            )

    async def _mint(
        self, keys: Keys, made: Draft, data: bytes | None, on_swept: SweepSink | None
    ) -> ArtifactMeta:
        ticket, limits = made.ticket, self.retention
        ttl = None if limits.ttl is None else int(limits.ttl * MICROSECONDS)
        try:
            answer = await self._run_script(
                PUT, keys, ticket.ref, ticket.kind, rest_of(ticket), ticket.bytes,
                *map(or_empty, (ticket.expires, ttl, limits.max_bytes_per_scope, limits.max_count_per_scope)),
                data or b"", *parents_of(ticket), staged=keys.staged(ticket.ref) if data is None else None,
            )  # fmt: skip
        except trio.Cancelled:
            # behind the put on the same connection, for nobody knows the ref
            self._link.send(b"EVALSHA", DELETE.digest, len(keys.all), *keys.all, "", ticket.ref)
            raise
        except ArtifactStoreError as error:
            if error.delivery == IN_DOUBT:
                self._link.start_soon(partial(self._run_script, DELETE, keys, ticket.ref))
            raise
        created, expires, swept = read_put(answer, ticket)
        for one in swept:
            tell(on_swept, one)
        return stamped(ticket, created, expires).meta()

    @asynccontextmanager
    async def _staging(self, keys: Keys, made: Draft) -> AsyncIterator[Callable[[bytes], Any]]:
        """Give a function that stages the next piece; what is not put in place in the end is dropped."""
        key, at = keys.staged(made.ticket.ref), 0

        async def stage(piece: bytes) -> None:
            nonlocal at
            async with self._pieces:
                judge(await self._run_script(STAGE, keys, at, piece, STAGED_FOR, staged=key), made.ticket)
            at += len(piece)

        try:
            yield stage
        except BaseException:
            self._link.send(b"UNLINK", key)
            raise

    async def _piece(self, scope: ArtifactScope, ref: str, number: int) -> bytes:
        at = number * PIECE
        async with self._pieces:
            return bytes(
                await self._link.command(b"GETRANGE", self._keys(scope).payload(ref), at, at + PIECE - 1)
            )

    async def _chunks(self, scope: ArtifactScope, ticket: Ticket) -> AsyncGenerator[bytes, None]:
        for number in range(-(-ticket.bytes // PIECE)):
            piece = await self._piece(scope, ticket.ref, number)
            if not piece:
                raise ArtifactStoreError(
                    f"{ticket.ref} went while it was read: what was read of it is not all"
                )
            yield piece

    async def _find(self, scope: ArtifactScope, ref: str, most: int) -> tuple[Ticket | None, bytes | None]:
        keys, known = self._keys(scope), checked_ref(ref)
        await trio.lowlevel.checkpoint()
        if known is None:
            self._link.check_open()
            return None, None
        use = "1" if self.retention.by_use else "0"
        answer = await self._run_script(FIND, keys, known, use, most)
        if not answer:
            return None, None
        ticket = ticket_of(known, bytes(answer[0]))
        return ticket, bytes(answer[1]) if len(answer) > 1 else None

    def __repr__(self) -> str:
        return f"<RedisArtifacts {self.prefix!r}: {'closed' if self._link.closed else 'open'}>"


@asynccontextmanager
async def _closing(chunks: AsyncIterable[bytes]) -> AsyncIterator[None]:
    """Finish a generator that is left early; anything else that gives chunks is its owner's to close."""
    try:
        yield
    finally:
        if inspect.isasyncgen(chunks):
            await chunks.aclose()
