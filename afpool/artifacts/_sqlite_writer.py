"""The one thread that writes a SQLite store: what waits is committed together.

Rules:

* Writes run in the order in which they were submitted, in one thread, on one connection.
* A write is answered after the commit that holds it, never before.
* A refusal of one write is its own: nothing of it was written, the others of its commit stand. Where the
  database fails, the commit is rolled back and each write is tried in a commit of its own.
* A caller who leaves before the thread has taken its write has written nothing. One who leaves later has its
  write undone: nobody knows the ref.
* A file that is not at its path any more is not written: whoever opened it anew would find nothing of it.
* Which of the two it was is settled by taking the job's one claim, which succeeds once.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

import trio

from .._base.errors import IN_DOUBT, NOT_SENT
from ._sqlite_turns import Turns, Uses
from ._types import ArtifactError, ArtifactStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.errors import Delivery
    from .._base.identity import Identity
    from ._retention import Retention
    from ._types import Swept

T = TypeVar("T")

TOGETHER: Final = 128
"""Writes in one commit, at most."""
CLEAR_EVERY: Final = 100_000
"""Microseconds between two looks for what has expired in scopes that nobody puts into."""


@final
class Job(Generic[T]):
    """One write: what it does in a transaction, and what came of it.

    Args:
        run: Called in the writer's thread with the turns of the transaction and the time.
        undo: Called on the loop with what `run` returned, if nobody waits for it any more.

    Attributes:
        done: Set on the loop, after the commit.
        error: Why it failed, if it did; then `value` is not there.
        withdrawn: It will not be done: who waited left before it was begun.
    """

    __slots__ = ("_claim", "_undo", "abandoned", "done", "error", "run", "value", "withdrawn")

    value: T

    def __init__(self, run: Callable[[Turns, int], T], undo: Callable[[T], object] | None = None) -> None:
        self.run = run
        self._undo = undo
        self._claim = [None]
        self.done = trio.Event()
        self.error: Exception | None = None
        self.abandoned = False
        self.withdrawn = False

    def claim(self) -> bool:
        """Take the job; one of its two sides succeeds, once. Any thread."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    def leave(self) -> None:
        """Wait no longer for it. On the loop, once."""
        self.withdrawn = self.claim()
        self.abandoned = not self.withdrawn
        if self.done.is_set():
            self.settle()

    def settle(self) -> None:
        """Wake who waits, or undo what nobody waits for. On the loop."""
        self.done.set()
        if self.abandoned and self.error is None and self._undo is not None:
            self._undo(self.value)


def failure(error: Exception, delivery: Delivery, doing: str) -> ArtifactStoreError:
    """Give the error that a caller gets for one of SQLite's, whose own text may hold what it was given."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    became = "nothing was changed" if delivery == NOT_SENT else "whether it was done is not known"
    return ArtifactStoreError(
        f"SQLite failed while {doing} ({name}); {became}; see that its disk has room and works, that the "
        "file is still there, and that no other process holds it for long",
        delivery=delivery,
    )


@final
class Writer:
    """The thread and its queue.

    Args:
        connection: Its own from now on.
        retention: The store's limits.
        clock: Microseconds since 1970.
        uses: What the readers note.
        told: Called on the loop with a scope and what it gave up without a put of its own.
        there: Says whether the file is still at its path. Blocking.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        retention: Retention,
        clock: Callable[[], int],
        uses: Uses,
        told: Callable[[Identity, Swept], object],
        there: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._retention = retention
        self._clock = clock
        self._uses = uses
        self._told = told
        self._there = there
        self._queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._loop = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name="afpool artifacts writer", daemon=True)
        self._clear_at = 0
        self.stopped = False
        self.ended = trio.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job[Any]) -> None:
        """Hand over a write, unless the thread is to end: then it is not done."""
        if not self.stopped:
            self._queue.put(job)

    def stop(self) -> None:
        """Let the thread end after what was submitted; `ended` is set when it has."""
        self.stopped = True
        self._queue.put(None)

    # In the thread.

    def _run(self) -> None:
        try:
            going = True
            while going:
                batch, going = self._take()
                if batch:
                    given_up = self._commit_or_say(batch)
                    self._post(self._settle, batch, given_up)
        finally:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._post(self.ended.set)

    def _post(self, fn: Callable[..., object], *what: object) -> None:
        with contextlib.suppress(trio.RunFinishedError):  # then nobody waits for anything
            self._loop.run_sync_soon(fn, *what)

    def _take(self) -> tuple[list[Job[Any]], bool]:
        """Wait for a job and take what else waits; say whether to go on."""
        batch: list[Job[Any]] = []
        job = self._queue.get()
        while job is not None:
            if job.claim():
                batch.append(job)
            if len(batch) >= TOGETHER:
                return batch, True
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit_or_say(self, batch: list[Job[Any]]) -> list[tuple[Identity, Swept]]:
        """Do the jobs, if the file is there; whatever happens, the thread goes on and each is answered."""
        try:
            if self._there():
                return self._commit(batch)
            for job in batch:
                job.error = ArtifactStoreError(
                    "the file of the store was moved away or removed, or its directory was: what is written "
                    "now would be lost; nothing was changed; put it back, or open a store anew"
                )
        except Exception as error:  # noqa: BLE001 -- no memory, most likely
            self._roll_back()
            for job in batch:
                job.error = job.error or failure(error, IN_DOUBT, "writing")
        return []

    def _commit(self, batch: list[Job[Any]]) -> list[tuple[Identity, Swept]]:
        """Do the jobs in one transaction; each has a value or an error afterwards."""
        turns = Turns(self._connection, self._retention, self._uses)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            now = self._clock()
            for job in batch:
                try:
                    job.value = job.run(turns, now)
                except ArtifactError as refusal:
                    job.error = refusal
            if not now < self._clear_at <= now + CLEAR_EVERY:  # also where the clock was set back
                self._clear_at = now + CLEAR_EVERY
                turns.clear_one_scope(now)
            turns.finish()
        except Exception as error:  # noqa: BLE001 -- whatever it is, somebody waits for an answer
            self._roll_back()
            if len(batch) > 1:
                return self._commit_singly(batch)
            named = isinstance(error, sqlite3.Error | MemoryError)
            batch[0].error = failure(error, NOT_SENT, "writing") if named else error
            return []
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            for job in batch:
                job.error = job.error or failure(error, IN_DOUBT, "committing")
            return []
        return turns.given_up

    def _commit_singly(self, batch: list[Job[Any]]) -> list[tuple[Identity, Swept]]:
        given_up: list[tuple[Identity, Swept]] = []
        for job in batch:
            job.error = None
            given_up += self._commit([job])
        return given_up

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(Exception):
                self._connection.execute("ROLLBACK")

    # On the loop.

    def _settle(self, batch: list[Job[Any]], given_up: list[tuple[Identity, Swept]]) -> None:
        for job in batch:
            job.settle()
        for identity, swept in given_up:
            self._told(identity, swept)
