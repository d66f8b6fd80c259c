"""Quiet moments of the soak: nothing is under way, so what there is now has to be what there was before.

While calls run, places are counted beside what callers hold. At a quiet moment every caller stands still, the
servers are up, nothing is paused; then, within stated times, each place is back, each key that nobody holds a
tool of is forgotten, every call is judged, and descriptors, tasks, threads, children and memory are what they
were at the first quiet moment, within `Bounds`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from soak_world import WARY, children, is_desk

if TYPE_CHECKING:
    from collections.abc import Callable

    from soak_books import Books
    from soak_trouble import Trouble
    from soak_work import Hold, Work
    from soak_world import World

    from afpool import Runtime

LIBC: Final = ctypes.CDLL(None)
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_NUMBERS: Final = re.compile("[0-9]+")
SETTLES: Final = 10.0
"""Seconds until every place is back: `settle_timeout`, `close_timeout`, a back-off, one after another."""

FORGOTTEN: Final = 60.0
"""Seconds until every key is forgotten. Most go with their idle client; a list that changed often is asked
for up to half a minute later, and a listing that nobody waits for any more goes on until then."""


@attrs.frozen
class Bounds:
    """How much more there may be than at the first quiet moment.

    Attributes:
        descriptors: Open files and sockets.
        tasks: Of trio.
        threads: That are not trio's workers; these end when they were idle for ten seconds.
        workers: trio's, whatever there was before: those of names, files, records.
        children: Processes.
        objects: That the collector knows of, in all; the rings of the record are full by then, but uses
            differ.
        megabytes: Of resident memory.
    """

    descriptors: int = 0
    tasks: int = 0
    threads: int = 0
    workers: int = 24
    children: int = 0
    objects: int = 25_000
    megabytes: float = 24.0


@attrs.frozen
class Held:
    """What the process holds; of what has names, how many there are of each.

    By name, because what was there at the first moment and has ended since must not make room for what leaks.
    """

    descriptors: Counter[str]
    tasks: Counter[str]
    threads: Counter[str]
    workers: int
    children: Counter[str]
    objects: int
    megabytes: float

    @classmethod
    def now(cls) -> Held:
        """Look, after a full collection."""
        if hasattr(LIBC, "malloc_trim"):
            gc.collect()
            LIBC.malloc_trim(0)
        names = [thread.name for thread in threading.enumerate()]
        return cls(
            descriptors=descriptors(),
            tasks=tasks_by_name(),
            threads=Counter(unnumbered(name) for name in names if not name.startswith("Trio ")),
            workers=sum(name.startswith("Trio ") for name in names),
            children=Counter(filter(None, map(command_of, children()))),
            objects=len(gc.get_objects()),
            megabytes=int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6,
        )

    def count(self, field: str) -> float:
        """How many, or how much, of one of the fields."""
        held = getattr(self, field)
        return held.total() if isinstance(held, Counter) else held

    def above(self, first: Held, bounds: Bounds) -> list[str]:
        """What is more than it may be."""
        found = []
        for field in attrs.fields(Held):
            now, allowed = getattr(self, field.name), getattr(bounds, field.name)
            before = 0 if field.name == "workers" else getattr(first, field.name)
            if isinstance(now, Counter):
                more = now - before
                if more.total() > allowed:
                    new = ", ".join(f"{count} {name}" for name, count in more.most_common(8))
                    found.append(
                        f"{field.name}: {now.total()}, before {before.total()}; more than before: {new}"
                    )
            elif now > before + allowed:
                found.append(f"{field.name}: {now:,.6g}, before {before:,.6g}, at most {allowed:,.6g} more")
        return found


class Quiet:
    """Makes quiet moments, and looks at places all the while.

    Attributes:
        first: What there was at the first one.
        last: At the last one.
        moments: How many there were.
        checks: How often places were counted.
    """

    def __init__(
        self,
        world: World,
        books: Books,
        hold: Hold,
        work: Work,
        trouble: Trouble,
        bounds: Bounds,
        settles: float = SETTLES,
    ) -> None:
        self.world = world
        self.books = books
        self.hold = hold
        self.work = work
        self.trouble = trouble
        self.bounds = bounds
        self._later = settles
        self.first: Held | None = None
        self.last: Held | None = None
        self.moments = 0
        self.checks = 0
        self._kinds: Counter[str] = Counter()
        self._collected = 0.0

    # ------------------------------------------------------------------ while calls run

    async def watch(self, runtime: Runtime) -> None:
        """Count places beside what callers hold, again and again."""
        while await self.hold.passed():
            for why in self.counted(runtime):
                self.books.broken(f"places: {why}")
            await trio.sleep(0.1)

    def counted(self, runtime: Runtime) -> list[str]:
        """What does not agree at this moment. Synchronous: it is one moment."""
        self.checks += 1
        pool = runtime.pool
        told = pool.statistics()
        limits = pool.limits
        found = []
        under_way = self.books.open + told.settling
        if told.in_flight + told.waiting + told.waiting_runtime > under_way:
            found.append(
                f"{told.in_flight} in flight and {told.waiting} + {told.waiting_runtime} waiting, "
                f"of {self.books.open} open calls and {told.settling} that settle"
            )
        if told.in_flight > limits.max_in_flight:
            found.append(f"{told.in_flight} in flight, of {limits.max_in_flight}")
        if told.in_flight != len(pool.inside):
            found.append(f"{told.in_flight} in flight, and {len(pool.inside)} are known to be inside")
        found += [
            f"{each.in_flight} in flight at a key of {each.server}, of {limits.max_operations}"
            for each in told.actors
            if not 0 <= each.in_flight <= limits.max_operations
        ]
        if told.clients > limits.max_clients:
            found.append(f"{told.clients} clients, of {limits.max_clients}")
        return found

    # ------------------------------------------------------------------ a quiet moment

    async def moment(self, runtime: Runtime) -> None:
        """Have one: wait for everybody, judge, compare; the next part begins after it."""
        self.hold.begin()
        await self._until(
            lambda: not (self.books.open or self.trouble.busy or self.work.opened),
            "callers come back",
            2 * WARY,
        )
        self._resume_all(runtime)
        await self._until(lambda: not self._held(runtime), "places come back", self._patience)
        for why in self._held(runtime):
            self.books.broken(f"places at a quiet moment: {why}")
        self.work.held.clear()
        await self._until(lambda: not self._kept(runtime), "keys are forgotten", FORGOTTEN)
        for why in self._kept(runtime, loudly=True):
            self.books.broken(f"at a quiet moment: {why}")
        await self._read()
        self.books.judge()
        await self._until(
            lambda: not [pid for pid in children() if is_desk(pid)], "children end", self._patience
        )
        if self.first is not None:
            first = self.first
            await self._until(
                lambda: not Held.now().above(first, self.bounds), "nothing is left over", self._patience
            )
        self._compare()
        self.moments += 1
        self.hold.end()

    @property
    def _patience(self) -> float:
        """Seconds that what has to come back is waited for; before the first moment always as stated."""
        return SETTLES if self.first is None else self._later

    async def _until(self, true: Callable[[], bool], what: str, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while not true():  # noqa: ASYNC110 -- it looks from outside
                await trio.sleep(0.1)
            return
        self.books.broken(f"{what}: not within {seconds:g} s")

    def _resume_all(self, runtime: Runtime) -> None:
        """What a console paused and was cut off from is held for a minute."""
        for name in tuple(runtime.pool.held_servers):
            runtime.pool.resume_server(name)
        for actor in list(runtime.pool.kept):
            if actor.machine.paused:
                runtime.pool.resume(actor.key)

    def _held(self, runtime: Runtime) -> list[str]:
        """Places that are not back."""
        pool = runtime.pool
        told = pool.statistics()
        counts: dict[str, Any] = {
            "in flight": told.in_flight,
            "waiting": told.waiting,
            "waiting for the runtime": told.waiting_runtime,
            "settling": told.settling,
            "inside": len(pool.inside),
            "handed": len(pool.handed),
            "running in the pool": len(pool.running),
            "running in the runtime": len(runtime.running),
            "between two passes": len(pool.between),
            "in the waiting room": pool.room.count,
            "of keys": sum(each.in_flight + each.waiting for each in told.actors),
        }
        return [f"{count} {what}" for what, count in counts.items() if count]

    def _kept(self, runtime: Runtime, *, loudly: bool = False) -> list[str]:
        """Keys and clients that nobody holds anything of."""
        if loudly or trio.current_time() > self._collected + 1:
            gc.collect()  # what an exception was caught in holds itself, until it is collected
            self._collected = trio.current_time()
        pool = runtime.pool
        told = pool.statistics()
        counts = {
            "keys": told.keys,
            "clients": told.clients,
            "shared lists": told.shared_lists,
            "openings": len(pool.openings.under_way),
            "rooms of clients": pool.openings.rooms.used,
        }
        left = [f"{count} {what} are left" for what, count in counts.items() if count]
        if left and loudly:
            rooms = {pool.digest.show(key): count for key, count in pool.openings.rooms._keys.items()}
            self.books.note(f"rooms are held by {rooms}; clients {list(pool.openings.clients)}")
            for event in list(pool.records.events):
                if event.key in rooms:
                    self.books.note(f"event {event}")
        return left

    async def _read(self) -> None:
        """Take in the logs, until nothing comes any more."""
        while self.books.read(self.world.logs().items()):  # noqa: ASYNC110 -- it looks from outside
            await trio.sleep(0.2)

    def _compare(self) -> None:
        held = Held.now()
        kinds = Counter(type(each).__name__ for each in gc.get_objects())
        if self.first is None:
            self.first, self._kinds = held, kinds
        more = held.above(self.first, self.bounds)
        for why in more:
            self.books.broken(f"at a quiet moment: {why}")
        if more:
            grown = (kinds - self._kinds).most_common(8)
            self.books.note(f"grown: {', '.join(f'{name} +{count}' for name, count in grown)}")
        self.last = held


def descriptors() -> Counter[str]:
    """The process's descriptors, by what they are."""
    found: Counter[str] = Counter()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[unnumbered(str(path.readlink()).partition(":[")[0])] += 1
    return found


def tasks_by_name() -> Counter[str]:
    """trio's tasks, by the names of their functions."""
    found: Counter[str] = Counter()
    root = trio.lowlevel.current_root_task()
    left = [] if root is None else [root]
    while left:
        task = left.pop()
        found[unnumbered(task.name)] += 1
        for nursery in task.child_nurseries:
            left += nursery.child_tasks
    return found


def command_of(pid: int) -> str:
    """How that process was started; nothing for one that has gone."""
    try:
        return unnumbered(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
    except OSError:
        return ""


def unnumbered(name: str) -> str:
    """A name without the numbers that differ from one of a kind to the next."""
    return _NUMBERS.sub("#", name)
