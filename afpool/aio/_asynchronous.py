"""The runtime for asyncio: what `afpool.Runtime` offers, awaited in any loop.

* Every method may be used from any asyncio loop, several at once; it is served in the loop that awaits it.
* Times: `timeout` counts from now, `deadline` is a moment on `loop.time()`; the earlier of both counts.
* A task that is cancelled cancels its call and goes on when that has ended, by the engine's rules: a request
  that left is settled behind it. Cancelled once more it waits no longer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, final

from ..runtime._run import new_run, resumed_run
from . import _steps as steps
from ._bridge import time_left
from ._from_trio import AsyncArtifacts
from ._jobs import Job, in_loop
from ._places import place_of_running_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._base.identity import CallerIdentity, Identity
    from .._base.model import Progress, Tool, ToolResult
    from ..runtime import Run, Runtime, RuntimeToolset
    from ..tools import ToolFormat
    from ._blocking import BlockingRuntime
    from ._jobs import Step
    from ._steps import Handle


async def _cross(
    handle: Handle, step: Step, timeout: float | None, deadline: float | None, **more: Any
) -> Any:
    seconds = time_left(timeout, deadline, lambda: asyncio.get_running_loop().time())
    return await in_loop(handle.bridge, step, seconds=seconds, **more)


@final
class AsyncTool(steps.CrossingTool):
    """A tool of an `AsyncToolset`."""

    __slots__ = ("_toolset",)

    def __init__(self, inner: Tool, toolset: AsyncToolset) -> None:
        super().__init__(inner)
        self._toolset = toolset

    async def call(self, args: Any = None, **options: Any) -> ToolResult:
        """Call it; see `AsyncToolset.call`."""
        return await self._toolset.call(self.name, args, **options)


@final
class AsyncToolset(steps.CrossingToolset[AsyncTool]):
    __doc__ = steps.CrossingToolset.__doc__

    def _make(self, inner: Tool) -> AsyncTool:
        return AsyncTool(inner, self)

    async def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> ToolResult:
        """Call a tool by its shown name, through the door; see `AsyncRuntime.dispatch`."""
        result: ToolResult = await _cross(
            self._handle,
            steps.calling(self._inner, name, args, call_id),
            timeout,
            deadline,
            on_progress=on_progress,
            if_closed=steps.refused_call(call_id),
        )
        return result

    async def answer(
        self,
        message: Any,
        tool_format: ToolFormat,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        at_once: int = 1,
    ) -> list[dict[str, Any]]:
        """Make the calls in a model's answer and give what the next request says about them.

        See `afpool.tools.answer_calls`; all calls of one answer cross over together.

        Args:
            message: The model's answer, in plain JSON.
            tool_format: Of its API.
            timeout: Seconds from now, for all of it.
            deadline: A moment on `loop.time()`, for all of it.
            at_once: How many run at once.

        Raises:
            ValueError: `at_once` is not positive.
            PoolClosed: The runtime is closed.
        """
        step = steps.answering(self._inner, message, tool_format, at_once)
        items: list[dict[str, Any]] = await _cross(self._handle, step, timeout, deadline)
        return items


@final
class AsyncRun:
    """One run. Made by `AsyncRuntime.run` and `AsyncRuntime.resume`.

    Attributes:
        run_id: Of the run.
        identity: Who it acts for, as its caller named them.
    """

    __slots__ = ("__weakref__", "_handle", "_inner", "identity", "run_id")

    def __init__(self, handle: Handle, inner: Run) -> None:
        self._handle = handle
        self._inner = inner
        self.run_id = inner.run_id
        self.identity = inner.identity
        steps.held(self, handle.bridge, inner)

    @property
    def scope(self) -> Identity:
        """Whose artifacts it sees; see `Run.scope`."""
        return self._inner.scope

    @property
    def artifacts(self) -> AsyncArtifacts | None:
        """The artifact store as the run sees it; `None` where there is none."""
        bound = self._inner.artifacts
        return None if bound is None else AsyncArtifacts(self._handle.bridge, bound)

    async def toolset(
        self, *, timeout: float | None = None, deadline: float | None = None, refresh: bool = False
    ) -> AsyncToolset:
        """List what the run may call; what its calls mean from now on. See `AsyncRuntime.toolset`."""
        inner: RuntimeToolset = await _cross(
            self._handle, steps.listing_of(self._inner, refresh), timeout, deadline
        )
        return AsyncToolset(self._handle, inner)

    async def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> ToolResult:
        """Call a tool by the name that the run's toolset shows; see `AsyncRuntime.dispatch`."""
        result: ToolResult = await _cross(
            self._handle,
            steps.calling(self._inner, name, args, call_id),
            timeout,
            deadline,
            on_progress=on_progress,
            if_closed=steps.refused_call(call_id),
        )
        return result

    async def answer(
        self,
        message: Any,
        tool_format: ToolFormat,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        at_once: int = 1,
    ) -> list[dict[str, Any]]:
        """Make the calls in a model's answer, in this run; see `AsyncToolset.answer`."""
        step = steps.answering(self._inner, message, tool_format, at_once)
        items: list[dict[str, Any]] = await _cross(self._handle, step, timeout, deadline)
        return items

    def checkpoint(self) -> dict[str, Any]:
        """Give what the run is gone on with from: plain JSON, for any process. Synchronous; see `Run`.

        Raises:
            IdentityMissing: The caller could not be asked who it is.
        """
        return self._inner.checkpoint()

    def __repr__(self) -> str:
        return f"<AsyncRun {self.run_id}>"


@final
class AsyncRuntime:
    """A runtime in a thread of its own, for asyncio. Made by `afpool.aio.open_runtime`."""

    __slots__ = ("__weakref__", "_handle", "_trio")

    def __init__(self, handle: Handle, runtime: Runtime) -> None:
        self._handle = handle
        self._trio = runtime

    @property
    def blocking(self) -> BlockingRuntime:
        """The same runtime for threads that wait."""
        from ._blocking import BlockingRuntime

        return BlockingRuntime(self._handle, self._trio)

    async def toolset(
        self,
        identity: CallerIdentity = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        refresh: bool = False,
    ) -> AsyncToolset:
        """List everything that an identity may call; see `Runtime.toolset`.

        Args:
            identity: Who it is for: an `Identity`, or a callable that returns one; it is called in the
                runtime's thread, in a copy of this context.
            timeout: Seconds from now; the runtime's default when absent.
            deadline: A moment on `loop.time()`; the earlier of both counts.
            refresh: Ask the servers again, whatever is known.

        Raises:
            IdentityMissing: The caller could not be asked who it is.
            IdentityMismatch: The caller became somebody else meanwhile.
            PoolClosed: The runtime is closed.
            TypeError: The rules of a server name an argument that none of its tools declares.
        """
        inner: RuntimeToolset = await _cross(
            self._handle, steps.listing(identity, refresh), timeout, deadline
        )
        return AsyncToolset(self._handle, inner)

    async def dispatch(
        self,
        identity: CallerIdentity,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> ToolResult:
        """Call a tool by name; see `Runtime.dispatch`.

        Args:
            identity: Who calls: an `Identity`, a callable that returns one and is asked again, or `None`.
            name: As a toolset shows it.
            args: What the model sent.
            call_id: Stable over everything that belongs to the call; made up when absent.
            timeout: Seconds from now, over everything; the runtime's default when absent.
            deadline: A moment on `loop.time()`; the earlier of both counts.
            on_progress: Told of progress in this loop and context, in order, before the result; synchronous.

        Returns:
            The tool's answer, or a refusal or failure as a result. A runtime that is closed refuses
            `pool-closed`.

        Raises:
            asyncio.CancelledError: The task was cancelled; the call was, too, and has ended.
        """
        result: ToolResult = await _cross(
            self._handle,
            steps.dispatching(identity, name, args, call_id),
            timeout,
            deadline,
            on_progress=on_progress,
            if_closed=steps.refused_call(call_id),
        )
        return result

    def run(self, identity: CallerIdentity = None, run_id: str | None = None) -> AsyncRun:
        """Begin a run. Synchronous; see `Runtime.run`.

        Raises:
            ValueError: The id is no string, or empty.
        """
        return AsyncRun(self._handle, new_run(self._trio, identity, run_id))

    def resume(
        self, checkpoint: Mapping[str, Any] | str | bytes, identity: CallerIdentity = None
    ) -> AsyncRun:
        """Go on with a paused run. Synchronous; see `Runtime.resume`.

        Raises:
            ValueError: It is no checkpoint, or none of this runtime's.
        """
        return AsyncRun(self._handle, resumed_run(self._trio, checkpoint, identity))

    async def run_in_trio(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function(runtime, *args)` in the runtime's thread: for all that has no method here.

        Args:
            function: Given the `afpool.Runtime`, whose `pool` is there, too. Synchronous, or asynchronous
                for trio; a synchronous one must be quick.
            args: Passed on.

        Raises:
            PoolClosed: The runtime is closed.

        Whatever it returns or raises comes back. Cancellation as for a call.
        """
        return await in_loop(self._handle.bridge, steps.performing(function, args))

    async def aclose(self) -> None:
        """Close it: no new call is taken, sent ones settle, clients are closed, within `close_timeout`.

        Whoever still waits for a call is told. Idempotent. A task that is cancelled meanwhile waits until it
        is closed; cancelled once more it leaves that to the runtime's thread.
        """
        self._handle.closing()
        place = place_of_running_loop()
        closer = Job(steps.nothing, place)
        self._handle.bridge.close(closer)
        cancelled: asyncio.CancelledError | None = None
        while closer.outcome is None:
            closer.waiter = place.loop.create_future()
            try:
                await closer.waiter
            except asyncio.CancelledError as error:
                if cancelled is not None:
                    raise
                cancelled = error
        if cancelled is not None:
            raise cancelled
        self._handle.bridge.join(1.0)  # it has said its last word
        closer.outcome.unwrap()

    def __repr__(self) -> str:
        return "<AsyncRuntime>"
