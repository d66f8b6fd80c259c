"""Back over: asyncio code that the runtime calls. Tools, hooks, providers and plans written for asyncio.

Rules:

* It runs in the loop of whoever calls; in the one that the runtime was opened in where the caller has none (a
  thread, work for several); in one of the runtime's own where neither runs.
* It runs in a copy of the call's context. A context that it is given has its asynchronous parts turned round,
  so that they can be awaited where it runs; its deadline is on the loop's clock.
* A call that is cancelled, or late, cancels it and waits until it has ended, but not longer than a grace: a
  loop that has stopped, or code that takes no cancellation, must not keep the runtime from going on.
* A cancellation of its own, which nobody here asked for, is a failure of that code, and not the call's.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, final

import attrs
import trio

from .._base.model import ToolContext
from ._bridge import HERE
from ._jobs import Outcome, in_loop
from ._places import LoopPlace

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from .._base.model import ToolResult
    from ._bridge import Bridge

logger = logging.getLogger("afpool")

P = ParamSpec("P")
R = TypeVar("R")

GRACE: Final = 5.0


def from_asyncio(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make an asyncio coroutine function callable by the runtime; also a decorator.

    For tools (under `define_tool`), hooks, `plan`, the `get` of a credential provider: whatever the runtime
    awaits. The function runs in the loop of whoever calls, in a copy of the call's context; where the caller
    has no loop, in the one that opened the runtime, or else in one of the runtime's own. The parts of a
    `ToolContext` that it is given (`tools`, `artifacts`, `credentials`) are awaited in that loop.

    Awaited from asyncio itself it is the function.

    Args:
        function: An asyncio coroutine function, or a method that is one.

    Raises:
        TypeError: It is no coroutine function.

    When its call is cancelled or late it is cancelled too, and waited for at most five seconds.
    """
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"from_asyncio takes a coroutine function, not {type(function).__name__}")

    @functools.wraps(function)
    async def crossing(*args: P.args, **kwargs: P.kwargs) -> R:
        if not trio.lowlevel.in_trio_run():
            return await function(*args, **kwargs)
        here = HERE.get(None)
        if here is None:
            name = getattr(function, "__qualname__", "it")
            raise RuntimeError(f"{name} runs in asyncio, and this runtime was not opened by afpool.aio")
        bridge, place = here
        errand = _Errand(bridge, place if isinstance(place, LoopPlace) else bridge.home(), function)
        value: R = await errand.run(args, kwargs)
        return value

    return crossing


def told_in_asyncio(function: Callable[P, object]) -> Callable[P, None]:
    """Make a callback that the runtime calls be called where its caller is; also a decorator.

    For `on_event`, `on_use`, `on_authorization` and the like, which the runtime calls in its own thread:
    `function` is called in the caller's loop, or in the thread that waits for the call, in order and before
    the call's result. Its own result is dropped; what it raises is logged by its class.

    Args:
        function: A synchronous function.
    """

    def called(context: contextvars.Context, args: Any, kwargs: Any) -> None:
        try:
            context.run(function, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- nobody is there to take it
            logger.warning(
                "%s raised %s", getattr(function, "__qualname__", "a callback"), type(error).__name__
            )

    @functools.wraps(function)
    def telling(*args: P.args, **kwargs: P.kwargs) -> None:
        here = HERE.get(None)
        if here is None or not trio.lowlevel.in_trio_run():
            function(*args, **kwargs)
            return
        bridge, place = here
        (bridge.home() if place is None else place).post(called, contextvars.copy_context(), args, kwargs)

    return telling


@final
class _Errand:
    """One run of asyncio code on behalf of trio's side."""

    def __init__(self, bridge: Bridge, place: LoopPlace, function: Callable[..., Any]) -> None:
        self._bridge = bridge
        self._place = place
        self._function = function
        self._done = trio.Event()
        self._outcome: Outcome | None = None  # written in the loop, read after `_done`
        self._task: asyncio.Task[Any] | None = None  # the loop's
        self._withdrawn = False  # the loop's

    async def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function there, and wait for it here."""
        context = contextvars.copy_context()
        clock = trio.current_time
        now = clock()
        if not self._place.post(self._start, context, args, kwargs, now):
            raise RuntimeError("the asyncio loop that this runs in is closed; it did not run")
        try:
            await self._done.wait()
        except trio.Cancelled:
            self._place.post(self._withdraw)
            with trio.CancelScope(shield=True, deadline=clock() + GRACE):
                await self._done.wait()
            raise
        assert self._outcome is not None
        return self._outcome.unwrap()

    # ------------------------------------------------------------------ in the loop

    def _start(
        self, context: contextvars.Context, args: tuple[Any, ...], kwargs: dict[str, Any], now: float
    ) -> None:
        if self._withdrawn:
            self._bridge.tell(self._done.set)
            return
        ahead = self._place.loop.time() - now  # of trio's clock
        args = tuple(self._turned(one, ahead) for one in args)
        kwargs = {name: self._turned(one, ahead) for name, one in kwargs.items()}
        try:
            coroutine = self._function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- arguments that it does not take
            self._outcome = Outcome(error=error)
            self._bridge.tell(self._done.set)
            return
        name = getattr(self._function, "__qualname__", "a coroutine")
        self._task = self._place.loop.create_task(coroutine, name=name, context=context)
        self._task.add_done_callback(self._ended)

    def _turned(self, value: Any, ahead: float) -> Any:
        return turned_round(value, self._bridge, ahead) if isinstance(value, ToolContext) else value

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error: BaseException | None = None
        if task.cancelled():
            error = RuntimeError(f"{task.get_name()} was cancelled in its asyncio loop")
        else:
            error = task.exception()
            if error is not None and not isinstance(error, Exception):
                # the loop itself has been told of it, and ends
                error = RuntimeError(f"{task.get_name()} ended with {type(error).__name__}")
        self._outcome = Outcome(error=error) if error is not None else Outcome(task.result())
        self._bridge.tell(self._done.set)

    def _withdraw(self) -> None:
        self._withdrawn = True
        if self._task is not None:
            self._task.cancel()


def turned_round(ctx: ToolContext, bridge: Bridge, ahead: float) -> ToolContext:
    """Give a tool's context as asyncio code can use it.

    Args:
        ctx: As the runtime made it.
        bridge: Back to the runtime.
        ahead: What a moment on trio's clock is more by on the loop's.
    """

    def over(told: Callable[[Any], object] | None) -> Callable[[Any], None] | None:
        return None if told is None else lambda report: bridge.tell(told, report)

    return attrs.evolve(
        ctx,
        deadline=None if ctx.deadline is None else ctx.deadline + ahead,
        on_progress=over(ctx.on_progress),
        progress=over(ctx.progress),
        artifacts=None if ctx.artifacts is None else AsyncArtifacts(bridge, ctx.artifacts),
        credentials=None if ctx.credentials is None else _Credentials(bridge, ctx.credentials),
        tools=None if ctx.tools is None else _Tools(bridge, ctx.tools),
    )


class _Across:
    """An object of trio's side, whose asynchronous methods are awaited in asyncio."""

    __slots__ = ("_bridge", "_inner")

    def __init__(self, bridge: Bridge, inner: Any) -> None:
        self._bridge = bridge
        self._inner = inner

    async def _do(self, method: str, *args: Any, **kwargs: Any) -> Any:
        do = functools.partial(getattr(self._inner, method), *args, **kwargs)
        return await in_loop(self._bridge, lambda *_: do(), inner=True)


@final
class AsyncArtifacts(_Across):
    """An artifact store as a run or a tool sees it, for asyncio: the five verbs of `Artifacts`."""

    __slots__ = ()

    @property
    def configured(self) -> bool:
        """Whether there is a store behind them; if not, every verb refuses."""
        return bool(self._inner.configured)

    async def put(self, new: Any) -> Any:
        """See `ArtifactStore.put`."""
        return await self._do("put", new)

    async def head(self, ref: str) -> Any:
        """See `ArtifactStore.head`."""
        return await self._do("head", ref)

    async def get(self, ref: str) -> Any:
        """See `ArtifactStore.get`."""
        return await self._do("get", ref)

    async def delete(self, ref: str) -> None:
        """See `ArtifactStore.delete`."""
        await self._do("delete", ref)

    async def list(self, **options: Any) -> Any:
        """See `ArtifactStore.list`."""
        return await self._do("list", **options)


@final
class _Credentials(_Across):
    __slots__ = ()

    async def get(self, request: Any) -> Any:
        return await self._do("get", request)


@final
class _Tools(_Across):
    __slots__ = ()

    def has(self, name: str) -> bool:
        return bool(self._inner.has(name))

    async def call(self, name: str, args: Any = None) -> ToolResult:
        result: ToolResult = await self._do("call", name, args)
        return result
