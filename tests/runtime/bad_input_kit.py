"""What the tests of bad input share: one runtime with tools of every kind, the ways into it, and a search.

Two values must be found nowhere: the credential (`SECRET`), and the value of an argument that a view hides
(`HIDDEN`), which nobody but the tool itself is given.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import attrs
import trio

from afpool import AfpoolError, StaticCredentials, ToolContext, ToolResult
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import Runtime, RuntimeToolset, ServerRules
from afpool.testing import FakeTool
from afpool.tools import (
    ANTHROPIC,
    GEMINI,
    MCP,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    PLAIN,
    RedactionPolicy,
    answer_calls,
    define_tool,
    from_credential,
    from_identity,
    host_filled,
    redacted,
)
from tests.runtime.runtime_kit import ALICE, BOB, Here, runtime
from tests.tools.door_kit import SECRET

HIDDEN = "h1dden-argument-value"
ROWS = "dataset/rows"
Q = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
FILLED = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "token": {"type": "string"}, "tenant": {"type": "string"}},
    "required": ["q", "token"],
}
Call: TypeAlias = Callable[[str, Any], Awaitable[ToolResult]]


@attrs.define(eq=False)
class Scene:
    """The runtime, its toolset for Alice, refs of everybody, and which tools have run."""

    here: Here
    toolset: RuntimeToolset
    refs: Mapping[str, str]
    ran: list[str]
    inner: list[Any]

    @property
    def runtime(self) -> Runtime:
        return self.here.runtime

    def forget(self) -> None:
        """Begin anew for another call."""
        self.ran.clear()
        self.here.events.clear()

    def has_run(self) -> bool:
        return bool(self.ran)


@contextlib.asynccontextmanager
async def scene(**config: Any) -> AsyncIterator[Scene]:
    """Open it: `filled`, `closed`, `hides`, `wanting` are the host's, `server` and `server_filled` not."""
    ran: list[str] = []

    def tool(name: str, schema: Any, **declared: Any) -> Any:
        def execute(args: Any, ctx: ToolContext) -> str:
            ran.append(name)
            return f"{name} ran"

        return define_tool(execute=execute, name=name, input_schema=schema, **declared)

    async def outer(args: Any, ctx: ToolContext) -> Any:
        return await ctx.tools.call(args["name"], inner[0])

    inner: list[Any] = [None]
    own = [
        host_filled(
            tool("filled", FILLED), {"token": from_credential("crm"), "tenant": from_identity("tenant")}
        ),
        tool("closed", {**Q, "additionalProperties": False}),
        redacted(
            tool("hides", {"type": "object", "properties": {"secret": {"type": "string", "maxLength": 5}}}),
            RedactionPolicy(keys=["secret"], patterns=["pass"], deep=True),
        ),
        tool("wanting", {"type": "object", "properties": {"rows": {"type": "string"}}}, wants={"rows": ROWS}),
        define_tool(execute=outer, name="outer", needs="other"),
    ]

    def answer(name: str) -> Any:
        def answered(arguments: Any, arrival: Any) -> str:
            ran.append(name)
            return f"{name} ran with {sorted(arguments)}"

        return answered

    listed = [
        FakeTool("server", answer("server"), inputSchema=Q),
        FakeTool("server_filled", answer("server_filled"), inputSchema=FILLED),
    ]
    store = MemoryArtifacts()
    config.setdefault("tools", own)
    config.setdefault("artifacts", store)
    config.setdefault("credentials", StaticCredentials({"crm": SECRET, "other": "an0ther-s3cret-one"}))
    async with runtime(
        {"files": listed}, rules={"files": ServerRules(fill={"token": from_credential("crm")})}, **config
    ) as here:
        refs = {}
        for who, identity, kind in (
            ("own", ALICE, ROWS),
            ("foreign", BOB, ROWS),
            ("other kind", ALICE, "text"),
        ):
            meta = await store.put(
                identity, NewArtifact(kind=kind, media_type="application/json", data=[HIDDEN])
            )
            refs[who] = meta.ref
        yield Scene(here, await here.runtime.toolset(ALICE), refs, ran, inner)


# ---------------------------------------------------------------------------- ways in


def ways(at: Scene) -> dict[str, Call]:
    """Every way that ends in the door and gives a result."""

    async def dispatch(name: str, args: Any) -> ToolResult:
        return await at.runtime.dispatch(ALICE, name, args)

    async def call(name: str, args: Any) -> ToolResult:
        return await at.toolset.call(name, args)

    async def run(name: str, args: Any) -> ToolResult:
        return await at.runtime.run(ALICE).call(name, args)

    async def resumed(name: str, args: Any) -> ToolResult:
        paused = at.runtime.run(ALICE)
        await paused.toolset()
        return await at.runtime.resume(json.loads(json.dumps(paused.checkpoint()))).call(name, args)

    return {"dispatch": dispatch, "toolset.call": call, "run.call": run, "resumed run": resumed}


async def through_another_tool(at: Scene, name: str, args: Any) -> ToolResult:
    """Call it from inside a tool of the host's own that has a credential."""
    at.inner[0] = args
    return await at.runtime.dispatch(ALICE, "outer", {"name": name})


MESSAGES: dict[str, tuple[Any, Callable[[str, Any], Any]]] = {
    "anthropic": (
        ANTHROPIC,
        lambda name, args: {"content": [{"type": "tool_use", "id": "1", "name": name, "input": args}]},
    ),
    "openai chat": (
        OPENAI_CHAT,
        lambda name, args: {
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": name, "arguments": args}}]
        },
    ),
    "openai responses": (
        OPENAI_RESPONSES,
        lambda name, args: {
            "output": [{"type": "function_call", "call_id": "1", "name": name, "arguments": args}]
        },
    ),
    "gemini": (
        GEMINI,
        lambda name, args: {"parts": [{"functionCall": {"id": "1", "name": name, "args": args}}]},
    ),
    "mcp": (
        MCP,
        lambda name, args: {
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": args},
        },
    ),
    "plain": (PLAIN, lambda name, args: {"id": "1", "name": name, "args": args}),
}  # fmt: skip


async def through_format(at: Scene, which: str, name: str, args: Any) -> str:
    """Call it as a model's API writes it; gives what goes back, as text."""
    spoken, message = MESSAGES[which]
    answers = await answer_calls(at.toolset, message(name, args), spoken)
    assert len(answers) == 1
    return json.dumps(answers, ensure_ascii=False)


async def directly(at: Scene, name: str, args: Any) -> AfpoolError | None:
    """Execute the tool without a door; gives the refusal that it raises."""
    try:
        await at.toolset[name].execute(args, ToolContext(identity=ALICE, call_id="direct"))
    except AfpoolError as error:
        return error
    return None


# ---------------------------------------------------------------------------- looking for what is hidden


def everything_said(*things: Any) -> str:
    """All that is written in results, events and errors: in words, in bytes, in a chain."""
    said: list[str] = []
    seen: set[int] = set()
    stack = list(things)
    while stack:
        one = stack.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, ToolResult):
            said += (one.raw.decode("utf-8", "replace"), repr(one))
            stack.append(one.error)
        elif isinstance(one, BaseException):
            for shown in (str, repr, lambda one: repr(vars(one))):
                with contextlib.suppress(Exception):  # one that cannot be shown shows nothing
                    said.append(shown(one))
            said += getattr(one, "__notes__", ())
            stack += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
        elif isinstance(one, list | tuple):
            stack.extend(one)
        elif hasattr(one, "payload"):
            # an event that is no JSON would raise here
            said += (json.dumps(one.payload, ensure_ascii=False, allow_nan=False), repr(one))
        else:
            said.append(str(one))
    return "\n".join(said)


def spotless(*things: Any, hidden: tuple[str, ...] = (SECRET, HIDDEN, "an0ther-s3cret-one")) -> None:
    """No hidden value is in any of these."""
    said = everything_said(*things)
    for value in hidden:
        assert value not in said, value


def one_of_each(events: Any) -> None:
    """Each start has one end, and the ends come after."""
    kinds = [event.kind for event in events if event.kind in ("tool_start", "tool_end")]
    depth = 0
    for kind in kinds:
        depth += 1 if kind == "tool_start" else -1
        assert depth >= 0, kinds
    assert depth == 0, kinds


@contextlib.contextmanager
def bounded(seconds: float = 60.0) -> Any:
    """Fail where nothing comes to an end."""
    with trio.fail_after(seconds):
        yield
