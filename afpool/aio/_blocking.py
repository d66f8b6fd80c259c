"""The runtime for threads that wait: what `afpool.Runtime` offers, as plain functions.

* Any number of threads may call at once; each is served in its own thread while it waits.
* Times: `timeout` counts from now, `deadline` is a moment on `time.monotonic()`; the earlier counts.
* ^C cancels the call and is raised when that has ended, by the engine's rules; a second one waits no longer.
* A thread that runs a loop of asyncio or trio is refused: it would stand still.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self, final

from ..runtime._run import new_run, resumed_run
from . import _steps as steps
from ._bridge import time_left
from ._jobs import Job, in_thread, refuse_loops
from ._places import ThreadPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._base.identity import CallerIdentity, Identity
    from .._base.model import Progress, Tool, ToolResult
    from ..artifacts import Artifact, ArtifactMeta, ArtifactPage, BoundArtifacts, NewArtifact
    from ..runtime import Run, Runtime, RuntimeToolset
    from ..tools import ToolFormat
    from ._asynchronous import AsyncRuntime
    from ._bridge import Bridge
    from ._jobs import Step
    from ._steps import Handle


def _cross(handle: Handle, step: Step, timeout: float | None, deadline: float | None, **more: Any) -> Any:
    return in_thread(handle.bridge, step, seconds=time_left(timeout, deadline, time.monotonic), **more)


@final
class BlockingArtifacts:
    """An artifact store as a run sees it, for threads: the five verbs of `Artifacts`."""

    __slots__ = ("_bridge", "_inner")

    def __init__(self, bridge: Bridge, inner: BoundArtifacts) -> None:
        self._bridge = bridge
        self._inner = inner

    @property
    def configured(self) -> bool:
        """Whether there is a store: `True`."""
        return self._inner.configured

    def put(self, new: NewArtifact) -> ArtifactMeta:
        """See `ArtifactStore.put`."""
        meta: ArtifactMeta = in_thread(self._bridge, lambda *_: self._inner.put(new))
        return meta

    def head(self, ref: str) -> ArtifactMeta | None:
        """See `ArtifactStore.head`."""
        meta: ArtifactMeta | None = in_thread(self._bridge, lambda *_: self._inner.head(ref))
        return meta

    def get(self, ref: str) -> Artifact | None:
        """See `ArtifactStore.get`."""
        found: Artifact | None = in_thread(self._bridge, lambda *_: self._inner.get(ref))
        return found

    def delete(self, ref: str) -> None:
        """See `ArtifactStore.delete`."""
        in_thread(self._bridge, lambda *_: self._inner.delete(ref))

    def list(self, **options: Any) -> ArtifactPage:
        """See `ArtifactStore.list`."""
        page: ArtifactPage = in_thread(self._bridge, lambda *_: self._inner.list(**options))
        return page


@final
class BlockingTool(steps.CrossingTool):
    """A tool of an `BlockingToolset`."""

    __slots__ = ("_toolset",)

    def __init__(self, inner: Tool, toolset: BlockingToolset) -> None:
        super().__init__(inner)
        self._toolset = toolset

    def call(self, args: Any = None, **options: Any) -> ToolResult:
        """Call it; see `BlockingToolset.call`."""
        return self._toolset.call(self.name, args, **options)


@final
class BlockingToolset(steps.CrossingToolset[BlockingTool]):
    __doc__ = steps.CrossingToolset.__doc__

    def _make(self, inner: Tool) -> BlockingTool:
        return BlockingTool(inner, self)

    def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> ToolResult:
        """Call a tool by its shown name, through the door; see `BlockingRuntime.dispatch`."""
        result: ToolResult = _cross(
            self._handle,
            steps.calling(self._inner, name, args, call_id),
            timeout,
            deadline,
            on_progress=on_progress,
            if_closed=steps.refused_call(call_id),
        )
        return result

    def answer(
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
            deadline: A moment on `time.monotonic()`, for all of it.
            at_once: How many run at once.

        Raises:
            ValueError: `at_once` is not positive.
            PoolClosed: The runtime is closed.
        """
        step = steps.answering(self._inner, message, tool_format, at_once)
        items: list[dict[str, Any]] = _cross(self._handle, step, timeout, deadline)
        return items


@final
class BlockingRun:
    """One run. Made by `BlockingRuntime.run` and `BlockingRuntime.resume`.

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
    def artifacts(self) -> BlockingArtifacts | None:
        """The artifact store as the run sees it; `None` where there is none."""
        bound = self._inner.artifacts
        return None if bound is None else BlockingArtifacts(self._handle.bridge, bound)

    def toolset(
        self, *, timeout: float | None = None, deadline: float | None = None, refresh: bool = False
    ) -> BlockingToolset:
        """List what the run may call; what its calls mean from now on. See `BlockingRuntime.toolset`."""
        inner: RuntimeToolset = _cross(
            self._handle, steps.listing_of(self._inner, refresh), timeout, deadline
        )
        return BlockingToolset(self._handle, inner)

    def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> ToolResult:
        """Call a tool by the name that the run's toolset shows; see `BlockingRuntime.dispatch`."""
        result: ToolResult = _cross(
            self._handle,
            steps.calling(self._inner, name, args, call_id),
            timeout,
            deadline,
            on_progress=on_progress,
            if_closed=steps.refused_call(call_id),
        )
        return result

    def answer(
        self,
        message: Any,
        tool_format: ToolFormat,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        at_once: int = 1,
    ) -> list[dict[str, Any]]:
        """Make the calls in a model's answer, in this run; see `BlockingToolset.answer`."""
        step = steps.answering(self._inner, message, tool_format, at_once)
        items: list[dict[str, Any]] = _cross(self._handle, step, timeout, deadline)
        return items

    def checkpoint(self) -> dict[str, Any]:
        """Give what the run is gone on with from: plain JSON, for any process. Synchronous; see `Run`.

        Raises:
            IdentityMissing: The caller could not be asked who it is.
        """
        return self._inner.checkpoint()

    def __repr__(self) -> str:
        return f"<BlockingRun {self.run_id}>"


@final
class BlockingRuntime:
    """A runtime in a thread of its own, for threads that wait; also a context manager that closes it.

    Made by `afpool.aio.open_runtime_sync`.
    """

    __slots__ = ("__weakref__", "_handle", "_trio")

    def __init__(self, handle: Handle, runtime: Runtime) -> None:
        self._handle = handle
        self._trio = runtime

    @property
    def asyncio(self) -> AsyncRuntime:
        """The same runtime for asyncio loops."""
        from ._asynchronous import AsyncRuntime

        return AsyncRuntime(self._handle, self._trio)

    def toolset(
        self,
        identity: CallerIdentity = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        refresh: bool = False,
    ) -> BlockingToolset:
        """List everything that an identity may call; see `Runtime.toolset`.

        Args:
            identity: Who it is for: an `Identity`, or a callable that returns one; it is called in the
                runtime's thread, in a copy of this context.
            timeout: Seconds from now; the runtime's default when absent.
            deadline: A moment on `time.monotonic()`; the earlier of both counts.
            refresh: Ask the servers again, whatever is known.

        Raises:
            IdentityMissing: The caller could not be asked who it is.
            IdentityMismatch: The caller became somebody else meanwhile.
            PoolClosed: The runtime is closed.
            TypeError: The rules of a server name an argument that none of its tools declares.
        """
        inner: RuntimeToolset = _cross(self._handle, steps.listing(identity, refresh), timeout, deadline)
        return BlockingToolset(self._handle, inner)

    def dispatch(
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
            deadline: A moment on `time.monotonic()`; the earlier of both counts.
            on_progress: Told of progress in this thread and context, in order, before the result.

        Returns:
            The tool's answer, or a refusal or failure as a result. A runtime that is closed refuses
            `pool-closed`.

        Raises:
            KeyboardInterrupt: ^C came, and the call was cancelled and has ended.
            RuntimeError: An asyncio or trio loop runs in this thread.
        """
        result: ToolResult = _cross(
            self._handle,
            steps.dispatching(identity, name, args, call_id),
            timeout,
            deadline,
            on_progress=on_progress,
            if_closed=steps.refused_call(call_id),
        )
        return result

    def run(self, identity: CallerIdentity = None, run_id: str | None = None) -> BlockingRun:
        """Begin a run. Synchronous; see `Runtime.run`.

        Raises:
            ValueError: The id is no string, or empty.
        """
        return BlockingRun(self._handle, new_run(self._trio, identity, run_id))

    def resume(
        self, checkpoint: Mapping[str, Any] | str | bytes, identity: CallerIdentity = None
    ) -> BlockingRun:
        """Go on with a paused run. Synchronous; see `Runtime.resume`.

        Raises:
            ValueError: It is no checkpoint, or none of this runtime's.
        """
        return BlockingRun(self._handle, resumed_run(self._trio, checkpoint, identity))

    def run_in_trio(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function(runtime, *args)` in the runtime's thread: for all that has no method here.

        Args:
            function: Given the `afpool.Runtime`, whose `pool` is there, too. Synchronous, or asynchronous
                for trio; a synchronous one must be quick.
            args: Passed on.

        Raises:
            PoolClosed: The runtime is closed.

        Whatever it returns or raises comes back. ^C as for a call.
        """
        return in_thread(self._handle.bridge, steps.performing(function, args))

    def close(self) -> None:
        """Close it: no new call is taken, sent ones settle, clients are closed, within `close_timeout`.

        Whoever still waits for a call is told. Idempotent. ^C while it waits is raised when it is closed; a
        second one leaves closing to the runtime's thread.
        """
        refuse_loops()
        self._handle.closing()
        place = ThreadPlace()
        closer = Job(steps.nothing, place)
        self._handle.bridge.close(closer)
        interrupted: BaseException | None = None
        while closer.outcome is None:
            try:
                place.take()
            except BaseException as error:
                if interrupted is not None:
                    raise
                interrupted = error
        if interrupted is not None:
            raise interrupted
        self._handle.bridge.join(1.0)  # it has said its last word
        closer.outcome.unwrap()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<BlockingRuntime>"
