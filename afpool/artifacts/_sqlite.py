"""The store in a SQLite file: durable, for any number of tasks, and for several processes of one machine.

Rules:

* Whoever waits for a put waits for its commit, with `synchronous=FULL` and a write-ahead log: what was
  acknowledged survives the process and the machine.
* All writing is one thread's (`_sqlite_writer.py`); readers have connections and threads of their own.
* The loop never touches the database.
* Every wait is bounded by `timeout`.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

import trio

from .._base.errors import IN_DOUBT, NOT_SENT
from .._base.identity import identity_namespace
from .._base.seams import Seams
from ._minting import draft
from ._naming import checked_ref, checked_scope
from ._paging import page_of, page_size, read_cursor
from ._payload import Payload, Work, open_payload
from ._retention import Retention, check_count, check_seconds, microseconds
from ._sqlite_file import checked_path, open_to_read, open_to_write
from ._sqlite_turns import GET, HEAD, Uses, listing, ticket_of
from ._sqlite_writer import Job, Writer, failure
from ._telling import tell
from ._types import (
    DEFAULT_PAGE,
    Artifact,
    ArtifactPage,
    ArtifactStoreClosedError,
    ArtifactStoreError,
    InvalidArtifactError,
    UnreadableArtifactError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .._base.identity import Identity
    from ._minting import Ticket
    from ._types import ArtifactMeta, ArtifactScope, NewArtifact, SweepSink, Swept

T = TypeVar("T")

WAITING: Final = 1024
"""Writes that wait for the thread at once, at most; who comes then waits for room first."""
LARGEST: Final = 999_000_000
"""Bytes of a payload; SQLite itself takes a billion in a row."""
_NOTED: Final = 4096  # uses that wait to be written down


@final
class SqliteArtifacts:
    """Artifacts in a SQLite file, opened by `async with` or `aopen` and closed by `aclose`.

    A file that is no store, or one of a later version, is refused and left as it is. A new one is readable by
    its owner alone. Where a scope would hold too much, what it used least recently goes; of uses in another
    process this one learns a little late.

    Args:
        file: Its path, on a local disk. SQLite keeps two more files beside it while it is open.
        ttl: Seconds that an artifact lives at most; `None` for no limit.
        max_bytes_per_scope: Payload bytes that a scope holds at most; `None` for no limit.
        max_count_per_scope: Artifacts that a scope holds at most; `None` for no limit.
        on_given_up: Called with a scope and a `Swept` for what goes without a put of its own scope.
        timeout: Seconds that a verb waits at most.
        busy_timeout: Seconds that a write waits at most for another process's.
        readers: Threads that read at once.
        seams: Clock and threads.

    Raises:
        TypeError: `file` is no path, or a limit no number.
        ValueError: `file` is blank or `:memory:`, or a limit is not positive.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        *,
        ttl: float | None = None,
        max_bytes_per_scope: int | None = None,
        max_count_per_scope: int | None = None,
        on_given_up: Callable[[ArtifactScope, Swept], object] | None = None,
        timeout: float = 30.0,
        busy_timeout: float = 5.0,
        readers: int = 2,
        seams: Seams | None = None,
    ) -> None:
        self.path = checked_path(file)
        self.retention = Retention(
            ttl=ttl, max_bytes_per_scope=max_bytes_per_scope, max_count_per_scope=max_count_per_scope
        )
        check_seconds("timeout", timeout)
        check_seconds("busy_timeout", busy_timeout)
        check_count("readers", readers)
        self._timeout = timeout
        self._busy_timeout = busy_timeout
        self._on_given_up = on_given_up
        self._seams = Seams() if seams is None else seams
        self._work = Work(self._seams)
        self._reading = trio.CapacityLimiter(readers)
        self._opening = trio.CapacityLimiter(1)
        self._room = trio.Semaphore(WAITING)
        self._uses = Uses()
        self._idle: list[sqlite3.Connection] = []
        self._writer: Writer | None = None
        self._opened = False
        self._closed = False

    # Opening and closing.

    async def aopen(self) -> Self:
        """Open the file, and make it where there is none.

        Raises:
            UnreadableArtifactStoreError: It cannot be used as a store. Nothing in it was changed.
            ArtifactStoreClosedError: The store was closed or is open already.
        """
        await trio.lowlevel.checkpoint()
        if self._closed or self._opened:
            raise ArtifactStoreClosedError(
                "a SQLite store is opened once; nothing was done; make another object for the same file"
            )
        self._opened = True
        try:
            connection, there = await trio.to_thread.run_sync(self._open_file, limiter=self._opening)
            writer = Writer(connection, self.retention, self._now, self._uses, self._tell, there)
            try:
                writer.start()
            except BaseException:
                connection.close()
                raise
        except RuntimeError as error:
            self._opened = False
            raise ArtifactStoreError(
                f"the store {self.path} cannot be opened: there can be no further thread in this process; "
                "nothing was changed"
            ) from error
        except BaseException:
            self._opened = False
            raise
        self._writer = writer
        return self

    def _open_file(self) -> tuple[sqlite3.Connection, Callable[[], bool]]:
        path = self.path.absolute()  # the process may change its directory
        connection = open_to_write(self.path, busy_timeout=self._busy_timeout)
        try:
            self._uses.start_after(connection)
            opened = path.stat()
        except (sqlite3.Error, OSError) as error:
            connection.close()
            refusal = failure(error, NOT_SENT, "opening")
        else:

            def there() -> bool:
                try:
                    return os.path.samestat(path.stat(), opened)
                except OSError:
                    return False

            return connection, there
        raise refusal

    async def aclose(self) -> None:
        """Refuse new verbs, commit what waits, and close the file. Closing twice is fine.

        Cancelled: the same, since nothing waits longer than `timeout`.
        """
        first, self._closed = not self._closed, True
        writer = self._writer
        if writer is not None:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._timeout):
                if first:
                    try:
                        # when this is done, what nobody waits for any more has been handed over to be undone
                        last = Job(lambda turns, _: turns.write_all_uses())
                        writer.submit(last)
                        await last.done.wait()
                    finally:
                        writer.stop()
                    try:
                        await trio.to_thread.run_sync(self._close_idle, limiter=self._opening)
                    except RuntimeError:  # there can be no further thread
                        self._close_idle()
                await writer.ended.wait()
        await trio.lowlevel.checkpoint()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return await self.aopen()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # The verbs.

    async def put(
        self, scope: ArtifactScope, new: NewArtifact, *, on_swept: SweepSink | None = None
    ) -> ArtifactMeta:
        """See `ArtifactStore.put`. Cancelled: what was stored meanwhile is taken away again."""
        name = identity_namespace(checked_scope(scope))
        made = await draft(new, self.retention, self._work)
        if len(made.data) > LARGEST:
            raise InvalidArtifactError(
                f"the payload has {len(made.data)} bytes and SQLite holds {LARGEST} in one row; nothing was "
                "stored; store it in parts"
            )

        def undo(done: tuple[Ticket, list[Swept]]) -> None:
            if self._writer is not None:
                self._writer.submit(Job(lambda turns, _: turns.delete(name, done[0].ref)))

        ticket, swept = await self._write(Job(lambda turns, now: turns.put(name, made, now), undo), "put")
        for one in swept:
            tell(on_swept, one)
        return ticket.meta()

    async def head(self, scope: ArtifactScope, ref: str) -> ArtifactMeta | None:
        """See `ArtifactStore.head`."""
        name, known = identity_namespace(checked_scope(scope)), checked_ref(ref)
        if known is None:
            await self._absent()
            return None
        row = await self._read(lambda connection: connection.execute(HEAD, (name, known)).fetchone())
        ticket = self._used(name, known, row)
        return None if ticket is None else ticket.meta()

    async def get(self, scope: ArtifactScope, ref: str) -> Artifact | None:
        """See `ArtifactStore.get`. Reading, checking and decoding are one thread's."""
        name, known = identity_namespace(checked_scope(scope)), checked_ref(ref)
        if known is None:
            await self._absent()
            return None
        found: tuple[tuple[Any, ...], Any] | None = await self._read(
            lambda connection: self._open(connection, name, known)
        )
        if found is None:
            return None
        row, data = found
        ticket = self._used(name, known, row)
        return None if ticket is None else Artifact(ticket.meta(), data)

    def _open(
        self, connection: sqlite3.Connection, name: str, ref: str
    ) -> tuple[tuple[Any, ...], Any] | None:
        row = connection.execute(GET, (name, ref)).fetchone()
        if row is None:
            return None
        *facts, data = row
        ticket = ticket_of(tuple(facts), ref)
        if not ticket.live(self._now()):
            return None
        if not isinstance(data, bytes):
            raise UnreadableArtifactError(ref)
        return tuple(facts), open_payload(ref, ticket.bytes, Payload(ticket.shape, data, ticket.digest))

    def _used(self, name: str, ref: str, row: tuple[Any, ...] | None) -> Ticket | None:
        """Read a row, and note its use."""
        now = self._now()
        ticket = None if row is None else ticket_of(row, ref)
        if ticket is None or not ticket.live(now):
            return None
        if self.retention.by_use:
            self._uses.note(name, ref, now)
            if self._uses.waiting > _NOTED and self._writer is not None:
                self._uses.waiting = 0
                self._writer.submit(Job(lambda turns, _: turns.write_all_uses()))
        return ticket

    async def delete(self, scope: ArtifactScope, ref: str) -> None:
        """See `ArtifactStore.delete`. Cancelled: it may have been deleted."""
        name, known = identity_namespace(checked_scope(scope)), checked_ref(ref)
        if known is None:
            await self._absent()
            return
        await trio.lowlevel.checkpoint()
        await self._write(Job(lambda turns, _: turns.delete(name, known)), "delete")

    async def list(
        self,
        scope: ArtifactScope,
        *,
        kind: str | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE,
    ) -> ArtifactPage:
        """See `ArtifactStore.list`."""
        name, size = identity_namespace(checked_scope(scope)), page_size(limit)
        statement, parameters = listing(name, kind, read_cursor(cursor), size + 1, self._now())
        rows = await self._read(lambda connection: connection.execute(statement, parameters).fetchall())
        return page_of([ticket_of(row, str(row[0])[:64]) for row in rows], size)

    async def _absent(self) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open()

    # What they stand on.

    async def _write(self, job: Job[T], verb: str) -> T:
        """Have a job done. A checkpoint has been passed before."""
        self._check_open()
        submitted = False
        with trio.move_on_after(self._timeout):
            try:
                self._room.acquire_nowait()
            except trio.WouldBlock:
                await self._room.acquire()
            try:
                writer = self._check_open()
                writer.submit(job)
                submitted = True
                await self._outcome(job)
            finally:
                self._room.release()
            if job.error is not None:
                raise job.error
            return job.value
        waited = f"the {verb} was not finished in {self._timeout:g} s"
        if not submitted or job.withdrawn:
            raise ArtifactStoreError(f"{waited} for those before it; nothing was changed; try again later")
        raise ArtifactStoreError(
            f"{waited} and may yet be done; what a late put stores is taken away again; see whether the disk "
            "works",
            delivery=IN_DOUBT,
        )

    async def _outcome(self, job: Job[Any]) -> None:
        try:
            await job.done.wait()
        except BaseException:
            job.leave()
            raise

    async def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        await trio.lowlevel.checkpoint()
        self._check_open()
        with trio.move_on_after(self._timeout):
            try:
                result: T = await self._seams.in_thread(lambda: self._with_connection(fn), self._reading)
            except (sqlite3.Error, MemoryError) as error:
                refusal = failure(error, NOT_SENT, "reading")
            else:
                return result
            raise refusal
        raise ArtifactStoreError(
            f"nothing could be read in {self._timeout:g} s; nothing was changed; try again"
        )

    def _with_connection(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        # In a thread; taking from and adding to a list are single steps.
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = open_to_read(self.path, busy_timeout=self._busy_timeout)
        try:
            return fn(connection)
        finally:
            self._idle.append(connection)
            if self._closed:
                self._close_idle()

    def _check_open(self) -> Writer:
        if self._closed:
            raise ArtifactStoreClosedError(
                f"the store {self.path} was closed; nothing was done; open it again with another object"
            )
        if self._writer is None:
            raise ArtifactStoreClosedError(
                f"the store {self.path} is not open yet; nothing was done; use `async with` or `aopen`"
            )
        return self._writer

    def _tell(self, identity: Identity, swept: Swept) -> None:
        tell(self._on_given_up, identity, swept)

    def _now(self) -> int:
        return microseconds(self._seams.unix_now())

    def __repr__(self) -> str:
        state = "closed" if self._closed else "not open" if self._writer is None else "open"
        return f"<SqliteArtifacts {str(self.path)!r}: {state}>"
