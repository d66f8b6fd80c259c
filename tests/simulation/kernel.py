"""One run of a simulated world: the same seed gives the same run, byte for byte.

What would differ from run to run is taken over here, for the time of the run:

* the clock is trio's mock clock, which jumps as soon as nobody can go on;
* the order in which ready tasks run is shuffled by the seed (trio offers that for tests);
* `os.urandom`, for keys and masks that libraries make;
* what a module draws as it loads is not the seed's: which modules are loaded already is the process's;
* garbage is not collected while a world runs, so that no finalizer runs at a moment of its own choosing, and
  where it is asked for, only what the world has made is looked through (`gc.freeze`);
* threads: `Sim.in_thread` runs the function in the loop, a while later;
* a signal wakes no task of trio's own, which would be shuffled with the world's: the alarm of `_guard` comes
  after real seconds, so where the machine is busy enough, in the middle of a run.

A run that takes too much real time is ended with the stacks of all tasks, whatever it is busy with.
"""

from __future__ import annotations

import gc
import math
import os
import random
import signal
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio
import trio._core._run as scheduler
from trio.testing import MockClock

from afpool import Seams
from tests.simulation.network import Network

if TYPE_CHECKING:
    import types
    from collections.abc import Awaitable, Callable, Iterator, Sequence

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""What the calendar says when a world begins."""


class RanTooLong(BaseException):
    """A run took more real time than it may; the text holds the stacks of its tasks."""


@attrs.define(eq=False)
class Sim:
    """A world that runs.

    Attributes:
        seed: What decides everything.
        seams: For a pool, and for everything else that takes seams.
        network: The network.
        clock: The clock.
        random: The world's dice; the network's, the scheduler's and the pool's are others.
        nursery: Ends with the world. Servers and whatever belongs to the world run in it.
        trace: Lines of what happened; everybody may append.
        thread_seconds: How long a function "in a thread" takes, at most.
    """

    seed: str
    seams: Seams
    network: Network
    clock: MockClock
    random: random.Random
    nursery: trio.Nursery
    trace: list[str] = attrs.field(repr=False)
    thread_seconds: float = 0.001
    _id: int = 0

    def next_id(self) -> int:
        """The next id of this world; the seam of that name."""
        self._id += 1
        return self._id

    def note(self, line: str) -> None:
        """Append a line with the time in front."""
        self.trace.append(f"{trio.current_time():.6f} {line}")


def dice(seed: str, what: str) -> random.Random:
    """A source of chance of its own for one purpose."""
    return random.Random(f"{seed}/{what}")


def run_world(
    main: Callable[[Sim], Awaitable[object]],
    seed: str | int,
    *,
    real_seconds: float = 20.0,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> bytes:
    """Run one world to its end and return its trace.

    Args:
        main: Given the world; when it returns, what still runs in the world's nursery is cancelled.
        seed: What decides everything.
        real_seconds: How long it may work; see `_guard`.
        instruments: Watch trio's loop.

    Raises:
        RanTooLong: It took longer.
        BaseException: What `main` raised, as itself where it is one.
    """
    seed = str(seed)
    clock = MockClock(autojump_threshold=0)
    trace: list[str] = []
    with _own(seed), _guard(real_seconds) as scope:
        trio.run(
            _run, main, seed, clock, trace, scope,
            clock=clock, instruments=instruments, strict_exception_groups=True,
        )  # fmt: skip
    return "\n".join(trace).encode()


async def _run(
    main: Callable[[Sim], Awaitable[object]],
    seed: str,
    clock: MockClock,
    trace: list[str],
    scope: trio.CancelScope,
) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)  # the loop never waits for long: it jumps; trio puts back what was before
    with scope:
        await _live(main, seed, clock, trace)


async def _live(
    main: Callable[[Sim], Awaitable[object]], seed: str, clock: MockClock, trace: list[str]
) -> None:
    network = Network(f"{seed}/network", trace, clock.current_time)
    _hasten(clock, network)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        sim = Sim(seed, Seams(), network, clock, dice(seed, "world"), nursery, trace)
        sim.seams = Seams(
            now=clock.current_time,
            unix_now=lambda: EPOCH + clock.current_time(),
            random=dice(seed, "pool"),
            next_id=sim.next_id,
            connect=network.connect,
            resolve=network.resolve,
            in_thread=_threads(sim, dice(seed, "threads")),
            spawn=network.children.spawn,
        )
        await nursery.start(network.run)
        try:
            await main(sim)
        except BaseException as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None


def _hasten(clock: MockClock, network: Network) -> None:
    """Make a run cheaper: nothing of the clock but its jumps is used, and the network's due things are jumped
    to as the deadlines of tasks are, so that its task needs no deadline of its own for each of them.
    """
    changed: Any = clock

    def jump() -> None:
        deadlines = scheduler.GLOBAL_RUN_CONTEXT.runner.deadlines
        until = min(deadlines.next_deadline(), network.wakes_at)
        if changed._virtual_base < until < math.inf:
            changed._virtual_base = until
        if network.wakes_at <= until < math.inf:
            network.rouse()

    changed._autojump = jump
    changed.current_time = lambda: changed._virtual_base
    network.now = clock.current_time


def _threads(
    sim: Sim, chance: random.Random
) -> Callable[[Callable[[], T], trio.CapacityLimiter], Awaitable[T]]:
    async def in_thread(function: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        async with limiter:
            await trio.sleep(chance.random() * sim.thread_seconds)
            return function()

    return in_thread


@contextmanager
def _own(seed: str) -> Iterator[None]:
    """Take over what would differ from run to run."""
    chance = dice(seed, "urandom")
    real = os.urandom, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, gc.isenabled()
    state = scheduler._r.getstate()
    changed: Any = scheduler
    drawn: Any = random
    machinery: Any = sys.modules["_frozen_importlib"]
    load = machinery._load_unlocked
    os.urandom = drawn._urandom = chance.randbytes  # `secrets` holds on to the latter
    changed._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(f"{seed}/scheduler")
    libraries = random.getstate()  # what libraries roll, such as the payload of a WebSocket ping
    random.seed(f"{seed}/libraries")
    machinery._load_unlocked = lambda spec: _load(load, spec, real[0])
    gc.disable()
    gc.freeze()  # what was there before belongs to no world, and most of it is code
    try:
        yield
    finally:
        machinery._load_unlocked = load
        os.urandom, changed._ALLOW_DETERMINISTIC_SCHEDULING, collecting = real
        drawn._urandom = os.urandom
        scheduler._r.setstate(state)
        random.setstate(libraries)
        gc.collect()
        gc.unfreeze()
        if collecting:
            gc.enable()


def _load(load: Callable[[Any], Any], spec: Any, urandom: Callable[[int], bytes]) -> Any:
    """Load a module, and let it draw from what is nobody's."""
    drawn: Any = random
    chance, state = os.urandom, random.getstate()
    os.urandom = drawn._urandom = urandom
    try:
        return load(spec)
    finally:
        os.urandom = drawn._urandom = chance
        random.setstate(state)


@contextmanager
def _guard(seconds: float) -> Iterator[trio.CancelScope]:
    """End a run that has worked for so many seconds; gives the scope that it has to run in.

    Seconds of this process on a core, so that a busy machine ends nobody; in ten times as many real ones it
    is ended in any case.

    It is cancelled first, which leaves nothing behind. Where that does not help (a step that does not end, a
    cancellation that is ignored) an exception is raised in the middle of whatever runs. Only a main thread
    can do it.
    """
    scope = trio.CancelScope()
    if threading.current_thread() is not threading.main_thread():
        yield scope
        return
    stacks: list[str] = []
    worked, began = time.process_time(), time.monotonic()

    def ring(number: int, frame: types.FrameType | None) -> None:
        del number
        left = seconds - (time.process_time() - worked)
        if left > 0 and time.monotonic() - began < 10 * seconds:
            signal.setitimer(signal.ITIMER_REAL, max(0.1, left))
            return
        here = "".join(traceback.format_stack(frame))
        stacks.append(f"more than {seconds:g} real seconds\n{tasks()}\n{here}")
        if len(stacks) > 1:
            raise RanTooLong(stacks[0])
        trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, seconds / 10))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield scope
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if stacks:
        raise RanTooLong(stacks[0])


def tasks() -> str:
    """Where every task of this run stands."""
    root = trio.lowlevel.current_root_task()
    lines: list[str] = []

    def walk(task: trio.lowlevel.Task, depth: int) -> None:
        lines.append(f"{'  ' * depth}{task.name}")
        for frame, number in task.iter_await_frames():
            code = frame.f_code
            lines.append(f"{'  ' * depth}  {code.co_filename.rpartition('/')[2]}:{number} {code.co_qualname}")
        for nursery in task.child_nurseries:
            for child in sorted(nursery.child_tasks, key=lambda each: each._counter):
                walk(child, depth + 1)

    if root is not None:
        walk(root, 0)
    return "\n".join(lines)
