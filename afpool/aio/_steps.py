"""What the asynchronous and the blocking face have in common: the steps on trio's side, and what is held."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from .._base.errors import AfpoolError
from .._base.model import Tool
from .._base.seams import Seams
from ..tools import answer_calls
from ..tools._derive import held_input_schema
from ..tools._results import error_result
from ._jobs import Outcome, closed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._base.errors import Delivery
    from .._base.identity import CallerIdentity
    from .._base.model import JsonObject, ToolContext, ToolResult
    from ..runtime import Run, Runtime, RuntimeToolset
    from ..tools import ToolFormat
    from ._bridge import Bridge
    from ._jobs import Step, Told


@final
class Handle:
    """A bridge as all faces of one runtime hold it; when the last has gone unclosed, the runtime is closed.

    Attributes:
        bridge: The bridge.
    """

    __slots__ = ("__weakref__", "_forgotten", "bridge")

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._forgotten = weakref.finalize(self, _forgotten, bridge)
        self._forgotten.atexit = False  # `_exits.py` sees to that

    def closing(self) -> None:
        """Note that it is closed in good order."""
        self._forgotten.detach()


def _forgotten(bridge: Bridge) -> None:
    if not bridge.gone:
        bridge.abandon()
        warnings.warn("a runtime of afpool.aio was never closed", ResourceWarning, stacklevel=2)


def held(owner: object, bridge: Bridge, inner: object) -> None:
    """Let go of an object of trio's side in trio's thread, when its owner here has gone."""
    weakref.finalize(owner, bridge.tell, _let_go, inner).atexit = False


def _let_go(_inner: object) -> None:
    """Take the last reference; it is dropped where this runs."""


# ---------------------------------------------------------------------------- steps


def refused_call(call_id: str | None) -> Callable[[Delivery], Outcome]:
    """Give what a call gives where the runtime is closed: a result, as always."""

    def refuse(delivery: Delivery) -> Outcome:
        error = closed(delivery).error
        assert isinstance(error, AfpoolError)
        return Outcome(error_result(error, call_id or f"call-{Seams().next_id()}"))

    return refuse


def listing(identity: CallerIdentity, refresh: bool) -> Step:
    """`Runtime.toolset`."""

    def step(runtime: Runtime, until: float | None, _told: Told) -> Awaitable[RuntimeToolset]:
        return runtime.toolset(identity, deadline=until, refresh=refresh)

    return step


def listing_of(run: Run, refresh: bool) -> Step:
    """`Run.toolset`."""

    def step(_runtime: Runtime, until: float | None, _told: Told) -> Awaitable[RuntimeToolset]:
        return run.toolset(deadline=until, refresh=refresh)

    return step


def dispatching(identity: CallerIdentity, name: str, args: Any, call_id: str | None) -> Step:
    """`Runtime.dispatch`."""

    def step(runtime: Runtime, until: float | None, told: Told) -> Awaitable[ToolResult]:
        return runtime.dispatch(identity, name, args, call_id=call_id, deadline=until, on_progress=told)

    return step


def calling(callee: RuntimeToolset | Run, name: str, args: Any, call_id: str | None) -> Step:
    """`RuntimeToolset.call` or `Run.call`."""

    def step(_runtime: Runtime, until: float | None, told: Told) -> Awaitable[ToolResult]:
        return callee.call(name, args, call_id=call_id, deadline=until, on_progress=told)

    return step


def answering(callee: RuntimeToolset | Run, message: Any, tool_format: ToolFormat, at_once: int) -> Step:
    """`answer_calls`."""

    def step(_runtime: Runtime, until: float | None, _told: Told) -> Awaitable[list[dict[str, Any]]]:
        return answer_calls(callee, message, tool_format, deadline=until, at_once=at_once)

    return step


async def nothing(_runtime: Runtime, _until: float | None, _told: Told) -> None:
    """Do nothing, for whoever only waits for the thread itself."""


def performing(function: Callable[..., Any], args: tuple[Any, ...]) -> Step:
    """Anything else, synchronous or not."""

    async def step(runtime: Runtime, _until: float | None, _told: Told) -> Any:
        value = function(runtime, *args)
        return await value if hasattr(value, "__await__") else value

    return step


# ---------------------------------------------------------------------------- what is listed


class CrossingTool(Tool):
    """A tool as it is seen from outside the runtime's thread: what it is can be read, `call` runs it."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Tool) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The name that a model calls it by."""
        return self._inner.name

    @property
    def description(self) -> str:
        """What a model reads about it."""
        return self._inner.description

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of the arguments; for reading only."""
        return held_input_schema(self._inner)

    @property
    def output_schema(self) -> JsonObject | None:
        """JSON Schema of the structured result, where there is one."""
        return self._inner.output_schema

    @property
    def annotations(self) -> JsonObject | None:
        """The listed hints; they are the server's word and nothing more."""
        return self._inner.annotations

    @property
    def source(self) -> str | None:
        """The server that listed it; `None` for a tool of the host's own."""
        return self._inner.source

    @property
    def wants(self) -> Mapping[str, str] | None:
        """Argument name to the kind of the artifact that a reference passed there must name."""
        return self._inner.wants

    def execute(self, args: JsonObject, ctx: ToolContext) -> Awaitable[ToolResult]:
        """Refuse: it belongs to the runtime that listed it.

        Raises:
            TypeError: Always.
        """
        del args, ctx
        raise TypeError(f"the tool {self.name!r} is called with `call`, and is no tool for another runtime")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


T = TypeVar("T", bound=CrossingTool)


class CrossingToolset(Mapping[str, T], Generic[T]):
    """What one identity may call, as it was listed: a mapping from shown name to tool, made when touched.

    The formats of `afpool.tools` take it as it is: `OPENAI_CHAT.tools(toolset)`.

    Attributes:
        identity: Whose, as its caller gave it.
        renamed: Shown name to server and listed name, of the tools that are not called as they are listed.
        problems: Server to why it could not be listed; its tools are missing.
        withheld: Server to why none of its tools is offered.
        quarantined: `server/tool` to why a single tool is not offered.
        unsettled: Servers whose list kept changing while it was asked for.
    """

    def __init__(self, handle: Handle, inner: RuntimeToolset) -> None:
        self._handle = handle
        self._inner = inner
        self._made: dict[str, T] = {}
        self.identity = inner.identity
        self.renamed = inner.renamed
        self.problems = inner.problems
        self.withheld = inner.withheld
        self.quarantined = inner.quarantined
        self.unsettled = inner.unsettled
        held(self, handle.bridge, inner)

    def __getitem__(self, name: str) -> T:
        tool = self._made.get(name)
        if tool is None:
            tool = self._made[name] = self._make(self._inner[name])
        return tool

    def _make(self, inner: Tool) -> T:
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, name: object) -> bool:
        return name in self._inner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tools>"
