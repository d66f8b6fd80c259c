"""What a host does by itself with tools and a shelf: it redeems references, and calls tools without a door.

Each gives what is wrong, one line each: data of somebody else's or of another kind that was given, a tool
that ran without what it wants, a value that nobody vended, a secret in an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import trio

import afpool
from afpool import Identity, Tool, ToolContext, bearer
from afpool.artifacts import ArtifactError, ArtifactStoreClosedError, ArtifactStoreError
from afpool.tools import (
    HOST_FILLED_PLACEHOLDER,
    answer_calls,
    assert_tool_wants,
    define_tool,
    from_credential,
    from_identity,
    host_filled,
    present_tool,
    resolve_wants,
    wants_needs_store_refusal,
    with_wants,
)
from tests.simulation.door_models import FORMATS

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from tests.simulation.driver_door_host import Shelf

SCHEMA: Final = {
    "type": "object",
    "properties": {"doc": {"type": "string"}, "more": {"type": "string"}, "note": {"type": "string"}},
    "required": ["doc"],
}
WANTS: Final = {"doc": "doc", "more": "doc", "note": "note"}


async def wants(chance: random.Random, shelf: Shelf | None, who: Identity, owned: str) -> list[str]:
    """References of every kind are redeemed: own ones of the right kind become data, others are refused."""
    if shelf is None:
        return []
    wrong: list[str] = []
    known = [ref for refs in shelf.refs.values() for ref in refs[-2:]]
    given: tuple[Any, ...] = (
        None, True, 7, 1.5, "", "  ", [], {}, "art_" + "0" * 22, "art_x", "x" * 300, ("x",), object(),
        *known * 3,
    )  # fmt: skip
    for _ in range(4):
        names = chance.sample(sorted(WANTS), chance.randint(0, 3))
        args = {name: chance.choice(given) for name in names}
        schema: Any = chance.choice((SCHEMA, None, True, {"required": 7}))
        until = chance.choice((None, trio.current_time() + 0.3, trio.current_time() + 90))
        try:
            found = await resolve_wants(shelf, who, "t", WANTS, args, schema, deadline=until)
        except (afpool.DeadlineExceeded, ArtifactStoreError, ArtifactStoreClosedError):
            continue  # the shelf is slow, broken or closed
        except ArtifactError as error:
            wrong.append(f"resolving {args!r} raised {error!r}")
            continue
        if not found.ok:
            if not found.refusals or not found.refusal.strip() or found.to_error().refusals != found.refusals:
                wrong.append(f"{args!r} is refused without a word")
            continue
        wrong += [
            f"{ref} of {meta.kind} is given for {name}" for name, meta in found.resolved
            if meta.kind != WANTS[name] or (ref := meta.ref) != args[name]
        ]  # fmt: skip
        for name in found.wanted:
            text = json.dumps(found.args[name], default=repr)
            if "owned-by:" in text and owned not in text and shelf.mood != "strays":
                wrong.append(f"{name} is given what is not theirs: {text[:200]}")
        if "doc" not in args and schema is SCHEMA:
            wrong.append(f"{args!r} is taken without what is required")
    for declared in (None, {}, 7, {7: "doc"}, {"doc": ""}, {"no": "doc"}):
        try:
            assert_tool_wants("t", declared, SCHEMA)  # type: ignore[arg-type]
        except TypeError:
            continue
        if declared is not None:
            wrong.append(f"wants of {declared!r} are taken")
    if "t" not in wants_needs_store_refusal("t", WANTS):
        wrong.append("a refusal does not name its tool")
    return wrong


# ------------------------------------------------------------------------------------------ called directly


async def _late() -> str:
    return "x"


READS: Final[Mapping[str, Callable[[Any], Any] | None]] = {
    "value": None,
    "nothing": lambda credential: None,
    "empty": lambda credential: "",
    "number": lambda credential: 7,
    "late": lambda credential: _late(),
    "raises": lambda credential: json.loads("{"),
    "other": lambda credential: f"x-{credential.token}",
}
TOKEN: Final = "canary-of-nobody-in-particular"


async def direct(chance: random.Random, shelf: Shelf | None, who: Identity, owned: str) -> list[str]:
    """Tools with fills and wants are executed without a door: with what they need, or not at all."""
    ran: list[Mapping[str, Any]] = []

    async def body(args: Any, ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        ran.append(args)
        if args.get("note") == "raises":
            raise ValueError(f"with {args.get('token')}")
        return json.dumps({"got": dict(args)})

    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("token", "who", "doc", "note")},
    }
    bare: Tool = define_tool(execute=body, name="t", input_schema=schema)
    name = chance.choice(sorted(READS))
    filled = host_filled(
        bare, {"token": from_credential("svc", read=READS[name]), "who": from_identity("principal")}
    )
    wrong: list[str] = []
    credential = chance.choice((None, bearer(TOKEN), bearer(TOKEN)))
    identity = chance.choice((who, who, None, Identity(tenant="t"), lambda: who))
    args: Any = chance.choice(({}, {"note": "raises"}, {"token": "x"}, {"TOKEN": "x"}, [], None))
    ctx = ToolContext(identity=identity, call_id="direct", credential=credential)
    told = await _told(filled, args, ctx)
    if ran and (
        credential is None or identity is None or name in {"nothing", "empty", "number", "late", "raises"}
    ):
        wrong.append(f"a tool ran without a value: {name}, {credential!r}, {identity!r}, {ran!r}")
    if ran and not isinstance(args, dict | None):
        wrong.append(f"a tool ran with {args!r}")
    if TOKEN in told.replace(HOST_FILLED_PLACEHOLDER, ""):
        wrong.append(f"a tool's end tells what was filled: {told}")
    ran.clear()
    wanting = with_wants(bare, {"doc": "doc"})
    ref = chance.choice(
        [None, "art_x", *(ref for refs in (shelf.refs.values() if shelf else ()) for ref in refs)]
    )
    given = {} if ref is None else {"doc": ref}
    await _told(wanting, chance.choice((given, given, [])), ToolContext(identity=who, call_id="direct"))
    if ran:
        wrong.append(f"a tool that wants artifacts ran without a store: {ran!r}")
    shown = present_tool(ways=chance.choice((None, ["table"])))
    told = await _told(
        shown, {"ref": ref or "art_x", "as": "table"}, ToolContext(identity=who, call_id="direct")
    )
    if "presented" in told:
        wrong.append(f"what nobody stored is presented: {told}")
    for count in (0, -1):
        try:
            await answer_calls(_NoTools(), [], FORMATS["plain"], at_once=count)
        except ValueError:
            continue
        wrong.append(f"{count} calls at once are taken")
    return wrong


async def _told(tool: Tool, args: Any, ctx: ToolContext) -> str:
    try:
        result = await tool.execute(args, ctx)
    except Exception as error:  # whatever it is, its words are looked at
        return f"{error!r} {error} {error.__cause__!r}"
    return repr(getattr(result, "raw", result))


class _NoTools:
    async def call(self, said: str, given: Any = None, *, deadline: float | None = None) -> Any:
        raise AssertionError(said)


LATER: Final[Mapping[str, Callable[..., Awaitable[list[str]]]]] = {"wants": wants, "direct": direct}
"""What takes time."""
