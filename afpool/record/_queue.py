"""The bounded queue in front of whatever takes records: filing never waits and never fails.

Rules:

* `file` and `event` run in a call's last step. They append, or count what they drop; nothing else.
* One task takes what waits, makes plain data of it a slice of the loop at a time, and has it written in a
  thread of the sink's own, under a limiter of its own: a disk that hangs holds that thread and nobody else.
* A full queue, by count or by bytes, drops the newest. What is written after a gap says how long it was.
* What a writer could not take is kept and tried again after a pause that grows; meanwhile the queue fills and
  then drops. It is said in the log once for each kind of trouble, without a word of what was to be written.
* Closing writes what is there and says what was lost, within a bound, whatever the thread does.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

import attrs
import trio

from .._base.errors import Overloaded
from .._base.use import Use
from ._json import Digests, call_line, event_as_json, unix_offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.seams import Seams
    from ..pool import Pool
    from ._json import CallLine

logger = logging.getLogger("afpool.record")
logger.addHandler(logging.NullHandler())

SLICE: Final = 64
"""Records that are made plain in one go: about a quarter of a millisecond."""
BATCH: Final = 1024
"""Records in one write."""
LINGER: Final = 0.1
"""Seconds that a first record waits for others, so that a busy process makes few writes."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
SILENCE: Final = 600.0
"""Seconds for which the same trouble is not said again."""
_OF_ONE: Final = 1024
"""Bytes that are counted for a record beside its arguments."""


class Block(NamedTuple):
    """Records as a writer takes them, in one piece.

    Attributes:
        data: What it takes.
        records: How many records that is; a word about a gap is none.
    """

    data: Any
    records: int


@attrs.frozen
class Written:
    """What became of a batch.

    Attributes:
        rest: What of it is to be written again, in the same order.
        refused: So many records of the others were not taken: the host's function raised.
        trouble: Why the rest could not be written: a word, never a value.
    """

    rest: list[Block] = attrs.field(factory=list)
    refused: int = 0
    trouble: str | None = None


class Writer(Protocol):
    """Does the I/O. Both methods run in the sink's thread and may block."""

    def write(self, batch: list[Block]) -> Written:
        """Write a batch, which it may keep."""
        ...

    def close(self) -> None:
        """Let go of everything. Nothing is written afterwards."""
        ...


@attrs.frozen
class SinkState:
    """How a sink is doing.

    Attributes:
        name: Its name.
        queued: Records that wait.
        written: Records that it took.
        dropped: Records that found the queue full, or were lost when it closed.
        refused: Records that it was given and that failed there.
        trouble: Why it cannot write now; `None` while it can.
    """

    name: str
    queued: int
    written: int
    dropped: int
    refused: int
    trouble: str | None


@final
class QueuedSink:
    """A sink whose records are written elsewhere, by a `Writer`.

    Args:
        name: Stands in the log and in metrics.
        writer: Does the I/O.
        plain: From plain records to blocks of them; on the loop.
        seams: Clocks and threads.
        most: Records that may wait.
        most_bytes: Bytes that those may hold, about.
        close_timeout: Seconds that closing takes at most.

    Attributes:
        dropped: Records that found the queue full, or were lost at the end.
        written: Records that were written.
        refused: Records that failed in the writer's hands.
        trouble: Why it cannot write now.
    """

    def __init__(
        self,
        name: str,
        writer: Writer,
        *,
        plain: Callable[[list[CallLine | dict[str, Any]]], list[Block]],
        seams: Seams,
        most: int = 8192,
        most_bytes: int = 16 * 2**20,
        close_timeout: float = 2.0,
    ) -> None:
        self.name = name
        self.dropped = self.written = self.refused = 0
        self.trouble: str | None = None
        self._writer = writer
        self._plain = plain
        self._seams = seams
        self._digests: Digests | None = None
        self._most = most
        self._easy = min(most, BATCH)  # fewer than these are taken without looking twice
        self._most_bytes = most_bytes
        self._close_timeout = close_timeout
        self._items: deque[Any] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._gap = 0  # dropped since the last record that found room
        self._gaps = 0  # words about such among the items
        self._held: list[Block] = []  # made plain, and not yet written
        self._idle = False
        self._wake = trio.Event()
        self._hurry = trio.Event()
        self._closing = trio.Event()
        self._running = False
        self._ended = trio.Event()
        self._scope = trio.CancelScope(shield=True)
        self._limiter = trio.CapacityLimiter(1)
        self._said: dict[str, float] = {}

    # ------------------------------------------------------------------ filing

    def attach(self, pool: Pool) -> None:
        """Take what a pool files from now on. Synchronous; once."""
        self._digests = Digests(pool.digest)
        pool.records.tap(on_use=self.file, on_event=self.event)

    def file(self, use: Use) -> None:
        """Take the use of an ended call. Synchronous; never raises."""
        shown = use.shown
        size = _OF_ONE if shown is None else _OF_ONE + len(shown)
        if use.was is not None:  # a call that a changed definition refused holds both
            size += len(use.was.raw) + (0 if use.became is None else len(use.became.raw))
        items = self._items
        if self._gap or self._idle or len(items) >= self._easy or self._bytes + size > self._most_bytes:
            self._put(use, size)
        else:
            self._bytes += size
            items.append(use)
            self._sizes.append(size)

    def event(self, event: object) -> None:
        """Take an event of the pool. Synchronous; never raises."""
        self._put(event, _OF_ONE)

    def _put(self, item: object, size: int) -> None:
        items = self._items
        waiting = len(items)
        if waiting >= self._most or self._bytes + size > self._most_bytes:
            self.dropped += 1
            self._gap += 1
            return
        if self._gap:
            self._tell_gap()
        self._bytes += size
        items.append(item)
        self._sizes.append(size)
        if self._idle:
            self._idle = False
            self._wake.set()
        elif waiting == BATCH:
            self._hurry.set()

    def _tell_gap(self) -> None:
        self._items.append(_Gap(self._gap, self._seams.now()))
        self._sizes.append(0)
        self._gaps += 1
        self._gap = 0

    @property
    def state(self) -> SinkState:
        """How it is doing."""
        queued = len(self._items) - self._gaps + sum(block.records for block in self._held)
        return SinkState(self.name, queued, self.written, self.dropped, self.refused, self.trouble)

    # ------------------------------------------------------------------ writing

    def begin(self, nursery: trio.Nursery) -> None:
        """Write what is filed in a task of a nursery, until `aclose`; no other cancellation ends it.

        Not by `nursery.start`: interrupted while it waits, that cancels its task and waits for it.
        """
        self._running = True
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._feed()
                if not self._scope.cancel_called:
                    await self._in_thread(self._writer.close)
        except Exception as error:  # noqa: BLE001 -- a sink that fails costs its records, never the runtime
            logger.error("the sink %r failed (%s)", self.name, type(error).__name__)  # noqa: TRY400 -- its text may hold anything
        finally:
            self._running = False
            self._closing.set()
            self._ended.set()

    async def _feed(self) -> None:
        pause = FIRST_PAUSE
        while True:
            if not self._held:
                await self._gather()
                if not self._items:
                    return
                await self._make_plain()
            before = sum(block.records for block in self._held)
            written = await self._write(self._held)
            self._held = written.rest
            self.refused += written.refused
            self.written += before - written.refused - sum(block.records for block in written.rest)
            self._note(written.trouble)
            if written.trouble is None:
                pause = FIRST_PAUSE
            elif self._closing.is_set():
                return
            else:
                with trio.move_on_after(pause):
                    await self._closing.wait()
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _gather(self) -> None:
        """Wait for a first record, and a moment for more."""
        closing = self._closing
        if not self._items and not closing.is_set():
            self._wake = trio.Event()
            self._idle = True
            await self._wake.wait()
        if len(self._items) <= BATCH and not closing.is_set():
            self._hurry = trio.Event()
            with trio.move_on_after(LINGER):
                await self._hurry.wait()
        if closing.is_set() and self._gap:
            self._tell_gap()

    async def _make_plain(self) -> None:
        items, sizes = self._items, self._sizes
        unix = unix_offset(self._seams)
        made = 0
        while items and made < BATCH:
            taken = self._take()
            made += len(taken)
            self._bytes -= sum([sizes.popleft() for _ in taken])
            self._hold(taken, unix)
            await trio.lowlevel.checkpoint()

    def _take(self) -> list[Any]:
        items = self._items
        if not self._gaps:
            return [items.popleft() for _ in range(min(SLICE, len(items)))]
        taken: list[Any] = []  # a word about a gap is taken alone: it is no record
        while items and len(taken) < SLICE:
            if isinstance(items[0], _Gap):
                if not taken:
                    self._gaps -= 1
                    taken.append(items.popleft())
                break
            taken.append(items.popleft())
        return taken

    def _hold(self, taken: list[Any], unix: float) -> None:
        digests = self._digests
        assert digests is not None, "it was attached to a pool"
        try:
            made = self._plain(
                [
                    call_line(item, digests, unix) if type(item) is Use else _plain(item, unix)
                    for item in taken
                ]
            )
        except Exception:  # noqa: BLE001 -- one of them; the others are written
            if len(taken) == 1:
                self.refused += 1
                return
            for item in taken:
                self._hold([item], unix)
        else:
            self._held += [Block(block.data, 0) for block in made] if isinstance(taken[0], _Gap) else made

    async def _write(self, batch: list[Any]) -> Written:
        if not batch:
            return Written()
        writer = self._writer
        try:
            written: Written = await self._in_thread(lambda: writer.write(batch))
        except Overloaded:
            return Written(batch, trouble="no further thread can be started")
        except Exception as error:  # noqa: BLE001 -- whatever it is, it costs this batch and no other
            return Written(refused=sum(block.records for block in batch), trouble=type(error).__name__)
        return written

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await self._seams.in_thread(work, self._limiter)

    def _note(self, trouble: str | None) -> None:
        before, self.trouble = self.trouble, trouble
        if trouble is not None:
            now = self._seams.now()
            if trouble not in self._said or now - self._said[trouble] > SILENCE:
                self._said[trouble] = now
                logger.warning(
                    "the sink %r cannot write (%s): it is tried again; what finds its queue full is dropped",
                    self.name,
                    trouble,
                )
        elif before is not None:
            logger.info("the sink %r writes again; %d records were dropped so far", self.name, self.dropped)

    # ------------------------------------------------------------------ closing

    async def aclose(self) -> None:
        """Write what waits, within `close_timeout`, and say what was lost. Idempotent; a checkpoint."""
        self._closing.set()
        self._hurry.set()
        if self._idle:
            self._idle = False
            self._wake.set()
        with trio.CancelScope(shield=True):
            if self._running:
                with trio.move_on_after(self._close_timeout):
                    await self._ended.wait()
                self._scope.cancel()
                await self._ended.wait()
            else:
                await trio.lowlevel.checkpoint()
        lost = self.state.queued
        self._items.clear()
        self._sizes.clear()
        self._held, self._gaps = [], 0
        self._bytes = self._most_bytes  # what comes now has nowhere to go
        if lost:
            self.dropped += lost
            logger.warning("the sink %r was closed, and %d records of it were not written", self.name, lost)


@attrs.frozen
class _Gap:
    records: int
    at: float


def _plain(item: Any, unix: float) -> dict[str, Any]:
    if isinstance(item, _Gap):
        return {"kind": "dropped", "at": item.at + unix, "records": item.records}
    return event_as_json(item, unix=unix)
