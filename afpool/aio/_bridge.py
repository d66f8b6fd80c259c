"""A runtime in a thread of its own: trio runs there, and jobs come in from loops and threads.

Rules:

* Everything that belongs to trio is touched in that thread only. What comes in is put into one inbox, in
  order, from anywhere; the first of several wakes trio, the others ride along. A word is put down before it
  is looked whether trio is awake, and trio says that it is asleep again before it takes the first.
* Each job is a task, in a copy of its caller's context. Whatever it raises is its caller's; nothing that is
  raised there ends the thread.
* Closing: no new job is taken, the pool closes as it always does, so that each call of a server gets its
  verdict; what else runs (tools of the host's own) has the rest of `close_timeout`, and is then cancelled.
  Whoever still waits is told `pool-closed`: `not-sent` where nothing has begun, else `in-doubt`.
* When the thread has ended, however it did, nobody waits: whatever is left in the inbox is refused by whoever
  sees it first, the one who put it there or the thread that ends. Whoever pops a word is who looks at it.
* The thread is a daemon, so that an interpreter never waits for a runtime that somebody forgot; `_exits.py`
  closes those before the interpreter goes.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.errors import IN_DOUBT, NOT_SENT
from ..runtime import RuntimeConfig, open_runtime
from . import _exits
from ._jobs import NOTHING, Outcome
from ._places import LoopPlace, OwnLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import TypeAlias

    from ..runtime import Runtime
    from ._jobs import Job
    from ._places import Place, Word

    Source: TypeAlias = "RuntimeConfig | Callable[[], AbstractAsyncContextManager[RuntimeConfig]] | None"

CLOSE_TIMEOUT: Final = 5.0
_OWN_LOOP_WITHIN: Final = 2.0

HERE: contextvars.ContextVar[tuple[Bridge, Place | None]] = contextvars.ContextVar("afpool_aio_here")
"""Through which bridge something runs on trio's side, and where its caller is; `None` in the background."""


@final
class Bridge:
    """One runtime in its thread.

    Args:
        source: As `open_runtime` of this package.
        fields: Fields of `RuntimeConfig`.
        trio_options: Arguments of `trio.run`.
        home: The loop of whoever opens it, if there is one.
    """

    def __init__(
        self,
        source: Source,
        fields: Mapping[str, Any],
        trio_options: Mapping[str, Any],
        home: LoopPlace | None,
    ) -> None:
        self.gone = False
        self._source = source
        self._fields = fields
        self._trio_options = trio_options
        self._home = home
        self._own_loop: OwnLoop | None = None
        self._inbox: deque[Word] = deque()
        self._awake = True  # trio looks into the inbox by itself when it begins to run
        self._token: trio.lowlevel.TrioToken | None = None
        self._runtime: Runtime | None = None
        self._calls: trio.Nursery | None = None
        self._running: dict[Job, None] = {}
        self._idle = trio.Event()
        self._stop = trio.Event()
        self._whole = trio.CancelScope()
        self._stopping = False
        self._opening: Job | None = None
        self._closers: list[Job] = []
        self._failure: BaseException | None = None
        self._close_timeout = CLOSE_TIMEOUT
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ from anywhere

    def start(self, opening: Job) -> None:
        """Start the thread; the job is finished when the runtime is open, or could not be opened."""
        self._opening = opening
        # work for several belongs to the context that the runtime was opened in
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._serve,), name="afpool-runtime", daemon=True
        )
        _exits.watch(self)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Have a job done."""
        self._post(self._begin, job)

    def withdraw(self, job: Job) -> None:
        """Cancel a job; it is finished all the same."""
        self._post(self._withdraw, job)

    def tell(self, deliver: Callable[..., object], *args: Any) -> None:
        """Have `deliver(*args)` called in the runtime's thread, where that still runs; it must not raise."""
        self._post(deliver, *args)

    def close(self, closer: Job) -> None:
        """Have it closed; the job is finished when the thread has ended, with what closing raised."""
        self._post(self._close, closer)

    def abandon(self) -> None:
        """Have it closed, and wait for nothing."""
        self._post(self._ask_to_stop)

    def join(self, within: float) -> None:
        """Wait until the thread has ended, at most so many seconds."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, within))

    @property
    def patience(self) -> float:
        """Seconds that closing takes at most, about."""
        return self._close_timeout * 2 + 1.0

    def forked(self) -> None:
        """Be gone: this is the child of a fork, and the thread is the parent's."""
        self.gone = True
        self._thread = None
        self._inbox.clear()

    def home(self) -> LoopPlace:
        """Give the loop for coroutines whose caller has none: the opener's while it runs, else an own one."""
        home = self._home
        if home is not None and home.loop.is_running():
            return home
        if self._own_loop is None:
            self._own_loop = OwnLoop()
        return self._own_loop.place

    def _post(self, deliver: Callable[..., object], *args: Any) -> None:
        self._inbox.append((deliver, args))
        if not self._awake:
            self._awake = True
            token = self._token
            if token is not None:
                with contextlib.suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._take)
        if self.gone:  # if it goes after this line, the thread sweeps
            self._sweep()

    def _sweep(self) -> None:
        """Refuse what has come too late."""
        while self._inbox:
            try:
                deliver, args = self._inbox.popleft()
            except IndexError:
                return
            if deliver == self._begin:
                args[0].finish(args[0].if_closed(NOT_SENT))
            elif deliver == self._close:
                failure, self._failure = self._failure, None  # told once
                args[0].finish(Outcome(error=failure))

    # ------------------------------------------------------------------ the thread

    def _serve(self) -> None:
        try:
            trio.run(self._main, **self._trio_options)
        except BaseException as error:  # noqa: BLE001 -- told to whoever opens, or closes
            self._failure = error
        finally:
            if self._own_loop is not None:
                self._own_loop.close(_OWN_LOOP_WITHIN)
            self.gone = True
            self._token = self._runtime = self._calls = None
            opening, self._opening = self._opening, None
            if opening is not None:
                opening.finish(Outcome(error=self._failure))
                self._failure = None
            for job in self._running:  # only where trio itself has failed
                job.finish(job.if_closed(IN_DOUBT))
            closers, self._closers = self._closers, []
            for closer in closers:
                closer.finish(Outcome(error=self._failure))
            if closers:
                self._failure = None
            self._sweep()

    async def _main(self) -> None:
        HERE.set((self, None))
        self._token = trio.lowlevel.current_trio_token()
        failure: BaseException | None = None
        with self._whole:
            self._take()
            async with contextlib.AsyncExitStack() as stack:
                config = self._source
                if config is not None and not isinstance(config, RuntimeConfig):
                    config = await stack.enter_async_context(config())
                async with trio.open_nursery() as calls:
                    try:
                        await self._open(config, calls)
                    except BaseException as error:  # noqa: BLE001 -- raised below, as itself and in no group
                        failure = error
                    calls.cancel_scope.cancel()
                if failure is not None:
                    raise failure

    async def _open(self, config: RuntimeConfig | None, calls: trio.Nursery) -> None:
        async with open_runtime(config, **self._fields) as runtime:
            self._close_timeout = runtime.config.pool.get("close_timeout", CLOSE_TIMEOUT)
            self._runtime, self._calls = runtime, calls
            opening, self._opening = self._opening, None
            assert opening is not None
            opening.finish(Outcome(runtime))
            await self._stop.wait()
            until = trio.current_time() + self._close_timeout
            runtime.close()
        # the pool is closed, and each call of a server has had its verdict
        with trio.move_on_at(until):
            while self._running:
                self._idle = trio.Event()
                await self._idle.wait()

    def _take(self) -> None:
        self._awake = False
        for _ in range(len(self._inbox)):
            try:
                deliver, args = self._inbox.popleft()
            except IndexError:
                return
            deliver(*args)

    def _begin(self, job: Job) -> None:
        calls = self._calls
        if calls is None or (self._stopping and not job.inner) or calls.cancel_scope.cancel_called:
            job.finish(job.if_closed(NOT_SENT))
            return
        self._running[job] = None
        job.context.run(self._spawn, job, calls)

    def _spawn(self, job: Job, calls: trio.Nursery) -> None:
        HERE.set((self, job.place))
        calls.start_soon(self._perform, job, calls)

    async def _perform(self, job: Job, calls: trio.Nursery) -> None:
        outcome = NOTHING
        try:
            with trio.CancelScope() as job.scope:
                if job.withdrawn:
                    job.scope.cancel()
                remaining = job.remaining()
                until = None if remaining is None else trio.current_time() + remaining
                told = None if job.on_progress is None else job.report
                assert self._runtime is not None
                outcome = Outcome(await job.step(self._runtime, until, told))
        except BaseException as error:  # noqa: BLE001 -- it is the caller's, whatever it is
            outcome = job.if_closed(IN_DOUBT) if calls.cancel_scope.cancel_called else Outcome(error=error)
        finally:
            del self._running[job]
            if not self._running:
                self._idle.set()
            job.finish(outcome)

    def _withdraw(self, job: Job) -> None:
        job.withdrawn = True
        if job.scope is not None:
            job.scope.cancel()

    def _close(self, closer: Job) -> None:
        self._closers.append(closer)
        self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        self._stopping = True
        self._stop.set()
        if self._calls is None:  # not open yet, and nobody waits for that any more
            self._whole.cancel()


def time_left(timeout: float | None, deadline: float | None, now: Callable[[], float]) -> float | None:
    """Give the seconds until whichever comes first: so many from now, or a moment on the caller's clock."""
    if deadline is None:
        return timeout
    left = deadline - now()
    return left if timeout is None else min(left, timeout)
