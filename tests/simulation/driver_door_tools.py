"""The tools of a host's own in a simulated world: each run is filed, with whatever the tool got.

What a tool does its kind says (`LocalKind`). A tool's text is JSON with its mark, so that an answer that went
astray is seen by its text; those that have a credential say it aloud wherever they can, so that it is seen
where it gets through.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import attrs
import msgspec
import trio

import afpool
from afpool import CredentialRequest, CredentialRequirement, Progress, Tool, ToolContext, ToolResult
from afpool.artifacts import ArtifactError, NewArtifact
from afpool.tools import (
    RedactionPolicy,
    ResultCeiling,
    args_redacted_by,
    content_result,
    define_tool,
    derive,
    from_credential,
    from_identity,
    host_filled,
    present_tool,
    redacted,
    with_argument_view,
    with_result_ceiling,
    with_wants,
)
from tests.simulation.door_aloud import ALOUD, say
from tests.simulation.door_wide import wide_schema
from tests.simulation.driver_door_host import plain, value_of
from tests.simulation.driver_secrets import AppFault
from tests.simulation.ground_door import LocalEnded, LocalRan, scope_of
from tests.simulation.world_door import DEEP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.simulation.driver_door import Door
    from tests.simulation.world_door import LocalKind, LocalSpec

OWNED: Final = "owned-by:"
"""How what an artifact of the host's holds says whose it is."""

ANYTHING: Final[Mapping[str, Any]] = {"type": "object"}


class Colour(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@attrs.define
class Place:
    """Where something is."""

    name: str
    height: float = 0.0


class LocalTools:
    """Makes the tools of a door.

    Args:
        door: What calls them.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self._run = door.run

    def made(self, specs: tuple[LocalSpec, ...], revision: int = 0) -> list[Tool]:
        """The tools of these specs; of another revision they are other tools under the same names."""
        return [self._made(spec, revision) for spec in specs if self._fits(spec.kind)]

    def _fits(self, kind: LocalKind) -> bool:
        return kind != "takes" or self._door.spec.store

    def _made(self, spec: LocalSpec, revision: int) -> Tool:
        special = {
            "typed": self._typed, "own-class": self._own_class, "filled": self._filled, "takes": self._takes,
            "presents": self._presents,
        }.get(spec.kind)  # fmt: skip
        if special is not None:
            return special(spec)
        declared: dict[str, Any] = {
            "name": spec.name,
            "description": f"{spec.kind}, revision {revision}",
            "input_schema": dict(ANYTHING),
        }
        if spec.kind in {"needs", "calls"}:
            declared["needs"] = CredentialRequirement(DEEP, (), "user") if spec.kind == "needs" else None
        if spec.kind == "structured":
            declared["output_schema"] = {
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
            }
            declared["annotations"] = {"readOnlyHint": True}
        if spec.kind == "wide":
            declared["input_schema"] = wide_schema(spec.seed)
        if spec.kind == "large":
            declared["result_kind"] = "doc"
            if revision % 2:
                declared["result_ceiling"] = ResultCeiling(3000, ("size",))
        body: Callable[[Any, ToolContext], Any] = {
            "says": self._says, "slow": self._slow, "raises": self._raises, "refuses": self._refuses,
            "odd": self._odd, "structured": self._structured, "large": self._large, "blocks": self._blocks,
            "needs": self._needs, "asks": self._asks, "puts": self._puts, "shelf": self._shelf,
            "calls": self._calls, "at-once": self._says, "wide": self._says,
        }[spec.kind]  # fmt: skip
        if spec.kind == "at-once":
            execute: Any = functools.partial(self._told_at_once, spec)
        else:
            execute = self._filing(spec, body)
        tool: Tool = define_tool(execute=execute, **declared)
        if spec.kind == "slow" and revision % 2:
            tool = with_argument_view(tool, lambda args: {"only": sorted(map(str, args))})
        return tool

    # ------------------------------------------------------------------ filing

    def _begin(self, spec: LocalSpec, args: Any, ctx: ToolContext) -> dict[str, Any]:
        who = plain(ctx.identity)
        self._run.ground.file(
            LocalRan(
                call=ctx.call_id or "",
                tool=spec.name,
                scope=scope_of(who),
                args=dict(args) if isinstance(args, Mapping) else args,
                credential=None if ctx.credential is None else value_of(ctx.credential),
            )
        )
        self._run.counts[f"local:{spec.kind}"] += 1
        mark = args.get("mark") if isinstance(args, Mapping) else None
        return {"mark": mark, "tool": spec.name}

    def _filing(
        self, spec: LocalSpec, body: Callable[[Any, ToolContext], Awaitable[Any]]
    ) -> Callable[[Any, ToolContext], Awaitable[Any]]:
        async def execute(args: Any, ctx: ToolContext) -> Any:
            said = self._begin(spec, args, ctx)
            how = "raised"
            try:
                result = await body({**args, "said": said}, ctx)
            except trio.Cancelled:
                how = "cancelled"
                raise
            except ArtifactError as error:
                self._run.counts[f"door:{error.code}"] += 1
                raise
            else:
                how = "returned"
                return result
            finally:
                self._run.ground.file(LocalEnded(call=ctx.call_id or "", how=how))

        return execute

    def _told_at_once(self, spec: LocalSpec, args: Any, ctx: ToolContext) -> Any:
        said = self._begin(spec, args, ctx)
        self._run.ground.file(LocalEnded(call=ctx.call_id or "", how="returned"))
        if args.get("later"):
            return self._later(said)
        return said if args.get("object") else json.dumps({**said, "got": _json(args)})

    @staticmethod
    async def _later(said: dict[str, Any]) -> str:
        await trio.lowlevel.checkpoint()
        return json.dumps(said)

    # ------------------------------------------------------------------ bodies

    @staticmethod
    async def _says(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        return json.dumps({**args["said"], "got": _json(args)})

    @staticmethod
    async def _slow(args: Any, ctx: ToolContext) -> Any:
        for step in range(int(args.get("steps", 2))):
            await trio.sleep(float(args.get("seconds", 0.3)))
            if ctx.progress is not None:
                ctx.progress(Progress(step, 5, f"step {step}"))
                ctx.progress({"step": step, "words": ["x"] * step})
                if args.get("odd"):
                    ctx.progress(object())
        return args["said"]

    @staticmethod
    async def _raises(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        failure = AppFault(f"it broke at {args['said']['mark']}" + "x" * int(args.get("size", 0)))
        failure.add_note("a note")
        raise failure from KeyError(args["said"]["mark"])

    @staticmethod
    async def _refuses(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        if args.get("how") == "invalid":
            raise afpool.InvalidArguments("nothing of that kind here")
        raise afpool.StaleTools("the list that this stands on has changed")

    @staticmethod
    async def _odd(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        return {
            "none": None, "object": object(), "set": {1, 2}, "nan": float("nan"), "bytes": b"\xff",
            "list": [1, "two", None], "number": 7, "struct": Place("here"),
            "result": ToolResult(b'{"content": 7}', ctx.call_id or ""),
            "no-json": ToolResult(b"{", ctx.call_id or ""),
            "legacy": ToolResult(b'{"toolResult": {"a": 1}}', ctx.call_id or ""),
            "other-call": content_result([{"type": "text", "text": "x"}], call_id="another"),
        }.get(args.get("how", "none"))  # fmt: skip

    @staticmethod
    async def _structured(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        if args.get("none"):
            return json.dumps(args["said"])
        return {**args["said"], "n": "no number" if args.get("bad") else 1}

    @staticmethod
    async def _large(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        pad = args.get("of", "x") * int(args.get("size", 5000))
        if args.get("rows"):
            return {**args["said"], "rows": [pad[:50]] * int(args["rows"])}
        if args.get("fails"):
            return content_result(
                [{"type": "text", "text": json.dumps({**args["said"], "pad": pad})}],
                is_error=True,
                call_id=ctx.call_id or "",
            )
        return json.dumps({**args["said"], "pad": pad})

    @staticmethod
    async def _blocks(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        return content_result(blocks(json.dumps(args["said"])), call_id=ctx.call_id or "")

    async def _needs(self, args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        if ctx.progress is not None:
            ctx.progress({"with": value_of(ctx.credential)})
            ctx.progress(Progress(1, 2, f"with {value_of(ctx.credential)}"))
        return await self._aloud(args, ctx, value_of(ctx.credential))

    async def _aloud(self, args: Any, ctx: ToolContext, value: str) -> Any:
        """Say a value wherever a tool can say something."""
        how = args.get("how", "text")
        if how == "raises":
            failure = AppFault(f"told {value}")
            failure.add_note(f"note: {value}")
            raise failure from ValueError(f"cause: {value}")
        if how == "refuses":
            raise afpool.InvalidArguments(f"refused: {value}")
        if how == "key":
            return {**args["said"], value: 1, "inside": {"deep": [value, {value: value}]}}
        if how == "puts" and ctx.artifacts is not None:
            await ctx.artifacts.put(
                NewArtifact(kind=f"of {value}", media_type="text/plain", data="x", label=f"for {value}")
            )
        if how == "calls" and ctx.tools is not None:
            return await self._call_one(args, ctx, {"text": value, value: 1})
        if how in ALOUD:
            return say(how, args["said"], value, ctx)
        if how == "blocks":
            return content_result(blocks(f"{json.dumps(args['said'])} {value}"), call_id=ctx.call_id or "")
        if how == "escaped":
            return json.dumps({**args["said"], "inside": json.dumps({"value": value})})
        return json.dumps({**args["said"], "value": value})

    async def _asks(self, args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        who = plain(ctx.identity)
        if ctx.credentials is None or who is None:
            return json.dumps(args["said"])
        answer = await ctx.credentials.get(CredentialRequest(DEEP, (), "user", who))
        credential = getattr(answer, "credential", None)
        if credential is None:
            return json.dumps({**args["said"], "answer": type(answer).__name__})
        return await self._aloud(args, ctx, value_of(credential))

    async def _puts(self, args: Any, ctx: ToolContext) -> Any:
        whose = scope_of(plain(ctx.identity))
        size = int(args.get("size", 10))
        meta = await ctx.artifacts.put(
            NewArtifact(
                kind=args.get("kind", "doc"),
                media_type="text/plain",
                data=f"{OWNED}{whose}; {args['said']['mark']} {'x' * size}",
                digest="sha-256" if args.get("digest") else None,
                parent_refs=[args["parent"]] if args.get("parent") else (),
            )
        )
        return {**args["said"], "ref": meta.ref}

    async def _shelf(self, args: Any, ctx: ToolContext) -> Any:
        shelf, ref, verb = ctx.artifacts, args.get("doc", "art_none"), args.get("verb", "get")
        found: Any
        if verb == "list":
            page = await shelf.list(kind=args.get("kind"), limit=2)
            found = [row.ref for row in page.items]
        elif verb == "delete":
            found = await shelf.delete(ref)
        else:
            found = await (shelf.head(ref) if verb == "head" else shelf.get(ref))
            data = getattr(found, "data", None)
            meta = getattr(found, "meta", found)
            found = None if found is None else {"kind": meta.kind, "data": data}
        return {**args["said"], "found": found}

    async def _calls(self, args: Any, ctx: ToolContext) -> Any:
        """Call others, one after another or at once."""
        texts: list[Any] = []
        calls = [one for one in args.get("calls", ()) if isinstance(one, Mapping)]
        if args.get("at_once"):
            async with trio.open_nursery() as nursery:
                for one in calls:
                    nursery.start_soon(self._door.inner, ctx, one, texts)
        else:
            for one in calls:
                result = await self._door.inner(ctx, one, texts)
                if args.get("strict") and result is not None:
                    result.raise_for_error()
        return {**args["said"], "told": texts}

    async def _call_one(self, args: Any, ctx: ToolContext, inner: Mapping[str, Any]) -> Any:
        texts: list[Any] = []
        await self._door.inner(ctx, {"tool": "says", "args": dict(inner)}, texts)
        return {**args["said"], "told": texts}

    # ------------------------------------------------------------------ tools of another form

    def _typed(self, spec: LocalSpec) -> Tool:
        begin = self._begin

        async def typed(
            mark: str,
            ctx: ToolContext,
            count: Annotated[int, msgspec.Meta(ge=0, le=9)] = 1,
            colour: Colour = Colour.RED,
            where: Place | None = None,
            many: list[float] | None = None,
            way: Literal["up", "down"] = "up",
        ) -> dict[str, Any]:
            """Count something.

            Args:
                mark: Of the call.
                count: How many.
                colour: Which one.
                where: The place.
            """
            said = begin(spec, {"mark": mark, "count": count}, ctx)
            self._run.ground.file(LocalEnded(call=ctx.call_id or "", how="returned"))
            return {**said, "count": count, "colour": colour.value, "where": where and where.name, "way": way}

        tool = define_tool(typed, name=spec.name)
        return redacted(tool, RedactionPolicy(["many"], fields={"where": ["name"]}))

    def _own_class(self, spec: LocalSpec) -> Tool:
        return OwnTool(spec.name, self._filing(spec, self._own))

    @staticmethod
    async def _own(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        match args.get("how"):
            case "refuses":
                raise afpool.SessionExpiredError("its own session")
            case "raises":
                raise RuntimeError(f"at {args['said']['mark']}")
            case "rubbish":
                return {"content": 7}
        return content_result([{"type": "text", "text": json.dumps(args["said"])}], call_id=ctx.call_id or "")

    def _filled(self, spec: LocalSpec) -> Tool:
        async def body(args: Any, ctx: ToolContext) -> Any:
            await trio.lowlevel.checkpoint()
            if ctx.progress is not None:
                ctx.progress(Progress(1, 1, str(args.get("token"))))
            return await self._aloud(args, ctx, str(args.get("token")))

        tool: Tool = define_tool(
            execute=self._filing(spec, body),
            name=spec.name,
            description="filled",
            input_schema={
                "type": "object",
                "properties": {
                    "mark": {"type": "string"},
                    "how": {"type": "string"},
                    "account": {"type": "string"},
                    "token": {"type": "string"},
                },
                "required": ["account", "token"],
            },
        )
        tool = host_filled(tool, {"account": from_identity("principal")})
        (tool,) = host_filled([tool], {"token": from_credential(DEEP, mode="user", read=value_of)})
        tool = with_result_ceiling(tool, ResultCeiling(100_000))
        return with_argument_view(tool, args_redacted_by(RedactionPolicy(["how"])))

    def _presents(self, spec: LocalSpec) -> Tool:
        async def execute(args: Any, ctx: ToolContext, base: Any) -> Any:
            self._begin(spec, args, ctx)
            try:
                return await base(args, ctx)
            finally:
                self._run.ground.file(LocalEnded(call=ctx.call_id or "", how="returned"))

        return derive(present_tool(spec.name, ways=("table", "chart")), execute=execute)

    def _takes(self, spec: LocalSpec) -> Tool:
        tool: Tool = define_tool(
            execute=self._filing(spec, self._took),
            name=spec.name,
            description="takes",
            input_schema={
                "type": "object",
                "properties": {"mark": {"type": "string"}, "doc": {"type": "string"}, "note": {}},
                "required": ["doc"],
            },
        )
        return with_wants(tool, {"doc": "doc"})

    @staticmethod
    async def _took(args: Any, ctx: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        return {**args["said"], "doc": args.get("doc"), "kinds": sorted(ctx.wanted or {})}


class OwnTool(Tool):
    """A tool of a class of the host's own."""

    def __init__(self, name: str, run: Callable[[Any, ToolContext], Awaitable[Any]]) -> None:
        self._name = name
        self._run = run

    @property
    def name(self) -> str:
        """See `Tool`."""
        return self._name

    @property
    def description(self) -> str:
        """See `Tool`."""
        return "of a class of the host's own"

    @property
    def input_schema(self) -> dict[str, Any]:
        """See `Tool`."""
        return {"type": "object", "properties": {"mark": {"type": "string"}}}

    async def execute(self, args: Any, ctx: ToolContext) -> Any:
        """See `Tool`."""
        return await self._run(args, ctx)


def blocks(text: str) -> list[Mapping[str, Any]]:
    """Content of every kind."""
    return [
        {"type": "text", "text": text},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/odd"},
        {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "doc://a", "text": text, "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "doc://b", "blob": "aGVsbG8="}},
        {"type": "resource_link", "uri": "doc://c", "name": "c"},
        {"type": "unheard-of", "x": 1},
    ]


def _json(value: Any) -> Any:
    """A value as JSON has it, as far as it has it; without what the driver put in."""
    if isinstance(value, Mapping):
        return {str(key): _json(member) for key, member in value.items() if key != "said"}
    if isinstance(value, list | tuple):
        return [_json(member) for member in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
