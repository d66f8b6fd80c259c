"""Scenes at the door: calls by name, hooks, arguments, tools of the host's own, references, stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from afpool import CredentialRequirement, Identity, ScriptedCredentials, ToolContext
from afpool.artifacts import ArtifactIntegrityError, ArtifactStoreError, MemoryArtifacts, NewArtifact
from afpool.artifacts import UnreadableArtifactError as Unreadable
from afpool.testing import FakeTool
from afpool.tools import (
    Deny,
    Hook,
    ResultCeiling,
    define_tool,
    from_identity,
    host_filled,
    with_result_ceiling,
)
from afpool.tools._known import KnownTools
from tests.explain.play import Play, ended
from tests.runtime.runtime_kit import ALICE, runtime
from tests.tools.store_kit import Store

if TYPE_CHECKING:
    from afpool import Tool
    from tests.runtime.runtime_kit import Here

SECRET = "s3cret-value"
LIMITED = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "maximum": 10}},
    "required": ["limit"],
}


async def play(play: Play) -> None:
    play.title("At the door")
    await names_and_hooks(play)
    await deadlines(play)
    await tools_of_the_host(play)
    await a_fault_of_the_door(play)
    await filled_arguments(play)
    await references(play)
    await stores_that_a_tool_meets(play)
    await a_call_that_is_repeated(play)


def own(execute: Any, name: str = "work", **declared: Any) -> Tool:
    declared.setdefault("input_schema", {"type": "object"})
    return define_tool(execute=execute, name=name, **declared)


async def call(here: Here, call_id: str, name: str = "work", args: Any = None, who: Any = ALICE) -> None:
    await ended(here.runtime.dispatch(who, name, args, call_id=call_id))


async def done(args: Any, ctx: ToolContext) -> Any:
    await trio.lowlevel.checkpoint()
    return "done"


async def names_and_hooks(play: Play) -> None:
    async with runtime(tools=[own(done)]) as here:
        record = here.runtime.record
        await call(here, "no such name", "wrok")
        await play.why(
            "a model calls a tool that there is not", record, "no such name",
            ("refused", "unknown-tool", "not-sent"), "is offered no tool of this name",
            told=("the tool was not run", "now: call one of the tools that there are"),
        )  # fmt: skip

        def nobody() -> Identity:
            raise LookupError(SECRET)

        await call(here, "nobody", who=nobody)
        explanation = await play.why(
            "the caller cannot be asked who it is", record, "nobody",
            ("refused", "identity-missing", "not-sent"), "names none of the fields",
        )  # fmt: skip
        play.check("what was raised is not told", holds=SECRET not in explanation.words())

    def deny(hooked: Any) -> Deny:
        return Deny(f"not on a sunday {SECRET}")

    def withhold(hooked: Any, result: Any) -> Deny:
        return Deny("it holds a name")

    async with runtime(tools=[own(done)], hooks=[Hook("calendar", before=deny)]) as here:
        await call(here, "denied")
        await play.why(
            "a hook of the host's denies the call", here.runtime.record, "denied",
            ("refused", "denied", "not-sent"), "at the door, at `hooks`", "the hook is `calendar`",
            told=("the tool was not run", "now: ask who set the hook"),
        )  # fmt: skip
    async with runtime(tools=[own(done)], hooks=[Hook("names", after=withhold)]) as here:
        await call(here, "withheld")
        await play.why(
            "a hook withholds the result of a tool that has run", here.runtime.record, "withheld",
            ("failed", "denied", "answered"), "withheld the result", "the hook is `names`",
            told=("the tool was run",),
        )  # fmt: skip

    async def slow(hooked: Any) -> None:
        await trio.sleep(0.1)

    async with runtime(tools=[own(done)], hooks=[Hook("slow", before=slow)]) as here:
        await call(here, "slow hook")
        await play.why(
            "a hook takes its time", here.runtime.record, "slow hook", ("ok", "", "answered"),
            r"\d+ ms of it \(\d+ %\) while hooks were being asked",
        )  # fmt: skip


async def deadlines(play: Play) -> None:
    async def asleep(*call: Any) -> Any:
        await trio.sleep_forever()

    async with runtime(tools=[own(asleep)], deadline=0.1) as here:
        await call(here, "late")
        await play.why(
            "the deadline passes while a tool of the host's own runs", here.runtime.record, "late",
            ("failed", "deadline-exceeded", "in-doubt"), "while the tool ran",
            told=("the tool had begun, and nothing proves how far it got",),
        )  # fmt: skip
    async with runtime(tools=[own(done)], hooks=[Hook("slow", before=asleep)], deadline=0.1) as here:
        await call(here, "late hook")
        await play.why(
            "the deadline passes while a hook is asked", here.runtime.record, "late hook",
            ("refused", "deadline-exceeded", "not-sent"), "at the door, at `hooks`",
            r"its deadline passed; \d+ ms of it \(\d+ %\) while hooks were being asked",
        )  # fmt: skip


async def tools_of_the_host(play: Play) -> None:
    async def broken(args: Any, ctx: ToolContext) -> Any:
        await trio.sleep(0.05)
        raise KeyError(SECRET)

    async def promises(args: Any, ctx: ToolContext) -> Any:
        return {"n": "not a number"}

    class Torn(dict[str, Any]):
        def __iter__(self) -> Any:
            raise RuntimeError(SECRET)

        def keys(self) -> Any:
            raise RuntimeError(SECRET)

    tools = [
        own(broken, "broken"),
        own(done, "strict", input_schema=LIMITED),
        own(promises, "promises", output_schema={"properties": {"n": {"type": "integer"}}}),
        with_result_ceiling(own(long, "long"), ResultCeiling(max_chars=9)),
        own(needs_consent, "consent", needs=CredentialRequirement("crm")),
    ]
    credentials = ScriptedCredentials([OSError(SECRET)])
    async with runtime(tools=tools, credentials=credentials) as here:
        record = here.runtime.record
        await call(here, "raised", "broken")
        explanation = await play.why(
            "a tool of the host's own raises", record, "raised", ("failed", "tool-failed", "answered"),
            "while the tool ran", "it raised `KeyError`", told=("the tool was run",),
        )  # fmt: skip
        play.check("what it raised is not told", holds=SECRET not in explanation.words())
        await call(here, "too much", "strict", {"limit": 11})
        await play.why(
            "arguments that the tool's schema does not allow", record, "too much",
            ("refused", "invalid-arguments", "not-sent"), "what is wrong with them: `/limit maximum`",
            told=("the tool was not run", "now: mend the arguments"),
        )  # fmt: skip
        await call(here, "another form", "promises")
        await play.why(
            "a result of another form than was promised", record, "another form",
            ("failed", "invalid-output", "answered"), "not what the tool's output schema allows",
        )  # fmt: skip
        await call(here, "long", "long")
        await play.why(
            "a result that is longer than its ceiling", record, "long", ("failed", "too-large", "answered"),
            "larger than what is taken",
        )  # fmt: skip
        await call(here, "no credential", "consent")
        explanation = await play.why(
            "the provider of a tool's credential raises", record, "no credential",
            ("refused", "credential-failed", "not-sent"), "at the door, at `credential`",
        )  # fmt: skip
        play.check("what the provider raised is not told", holds=SECRET not in explanation.words())


async def a_fault_of_the_door(play: Play) -> None:
    """No host can bring it about: the door's own code raises."""
    async with runtime(tools=[own(done)]) as here:

        def fail(self: Any, tool: Any) -> Any:
            raise MemoryError(SECRET)

        kept = KnownTools.get
        KnownTools.get = fail  # type: ignore[method-assign]
        try:
            await call(here, "fault")
        finally:
            KnownTools.get = kept  # type: ignore[method-assign]
        explanation = await play.why(
            "a fault of the door's own, before the tool ran", here.runtime.record, "fault",
            ("refused", "tool-failed", "not-sent"), "a fault on the way to the tool ended it",
            told=("the tool was not run",),
        )  # fmt: skip
        play.check("what was raised is not told", holds=SECRET not in explanation.words())


async def long(args: Any, ctx: ToolContext) -> Any:
    return "x" * 100


async def needs_consent(args: Any, ctx: ToolContext) -> Any:
    return "done"


async def filled_arguments(play: Play) -> None:
    schema = {"type": "object", "properties": {"q": {}, "who": {"type": "string"}}}
    tool = host_filled(own(done, input_schema=schema), {"who": from_identity("conversation_id")})
    async with runtime(tools=[tool]) as here:
        record = here.runtime.record
        await call(here, "claimed", args={"who": SECRET})
        explanation = await play.why(
            "a model gives a value for an argument that the host fills", record, "claimed",
            ("refused", "ERR_HOST_FILLED_ARGUMENT", "not-sent"), "an argument that the host fills",
            told=("now: leave that argument out",),
        )  # fmt: skip
        play.check("the value is not told", holds=SECRET not in str(explanation.as_json()))
        await call(here, "nothing to fill", args={"q": "x"})
        await play.why(
            "the caller has nothing of what the host fills in", record, "nothing to fill",
            ("refused", "ERR_HOST_FILLED_VALUE_MISSING", "not-sent"), "the host had no value",
        )  # fmt: skip


def wanting() -> Tool:
    schema = {"type": "object", "properties": {"rows": {"type": "string"}}, "required": ["rows"]}
    return own(done, input_schema=schema, wants={"rows": "dataset/rows"})


class Failing(Store):
    """A store whose disk is gone."""

    async def get(self, scope: Any, ref: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise ArtifactStoreError(f"the disk is gone {SECRET}")


async def references(play: Play) -> None:
    async with MemoryArtifacts() as store, runtime(tools=[wanting()], artifacts=store) as here:
        record = here.runtime.record
        await call(here, "no such rows", args={"rows": "art_" + "0" * 22})
        await play.why(
            "a model names rows that are not there", record, "no such rows",
            ("refused", "wants-refused", "not-sent"), "at the door, at `wants`",
            "the store said `dispatch missing-or-expired`", told=("now: pass references",),
        )  # fmt: skip
        await store.aclose()
        await call(here, "closed", args={"rows": "art_" + "0" * 22})
        await play.why(
            "the store was closed before", record, "closed",
            ("refused", "ERR_ARTIFACT_STORE_CLOSED", "not-sent"), "the artifact store was closed",
        )  # fmt: skip
    async with runtime(tools=[wanting()], artifacts=Failing()) as here:
        await call(here, "no disk", args={"rows": "art_" + "0" * 22})
        explanation = await play.why(
            "the store fails", here.runtime.record, "no disk",
            ("refused", "ERR_ARTIFACT_STORE", "not-sent"), "the artifact store failed",
        )  # fmt: skip
        play.check("what the store said is not told", holds=SECRET not in explanation.words())


class Damaged(Store):
    """A store that holds what it cannot read, and may have written what it could not confirm."""

    def __init__(self, sound: MemoryArtifacts) -> None:
        super().__init__()
        self.sound = sound

    async def get(self, scope: Any, ref: str) -> Any:
        await trio.lowlevel.checkpoint()
        if ref.endswith("1"):
            raise Unreadable(ref)
        raise ArtifactIntegrityError(ref, "sha-256:1", "sha-256:2")

    async def put(self, scope: Any, new: Any, **more: Any) -> Any:
        if new.kind == "lost":
            await trio.lowlevel.checkpoint()
            raise ArtifactStoreError("the connection broke", delivery="in-doubt")
        return await self.sound.put(scope, new, **more)


async def stores_that_a_tool_meets(play: Play) -> None:
    """A tool that has begun and raises has failed, whatever it was told: what it met is noted."""
    ref = "art_" + "0" * 21

    async def meet(args: Any, ctx: ToolContext) -> Any:
        artifacts = ctx.artifacts
        assert artifacts is not None
        if args["what"] == "get":
            return await artifacts.get(ref + args["end"])
        return await artifacts.put(NewArtifact(media_type="text/plain", **args["new"]))

    malformed = {"kind": " ", "data": "x"}
    orphan = {"kind": "note", "data": "x", "parent_refs": [ref + "9"]}
    cases: list[tuple[str, Any, str, tuple[str, str]]] = [
        ("puts what is malformed", {"what": "put", "new": malformed}, "InvalidArtifactError",
         ("ERR_INVALID_ARTIFACT", "not-sent")),
        ("names a parent that is not there", {"what": "put", "new": orphan}, "UnknownParentRefError",
         ("ERR_UNKNOWN_PARENT_REF", "not-sent")),
        ("gets what is not what its digest says", {"what": "get", "end": "0"}, "ArtifactIntegrityError",
         ("ERR_ARTIFACT_INTEGRITY", "answered")),
        ("gets what cannot be read", {"what": "get", "end": "1"}, "UnreadableArtifactError",
         ("ERR_UNREADABLE_ARTIFACT", "answered")),
        ("puts what may have been stored", {"what": "put", "new": {"kind": "lost", "data": "x"}},
         "ArtifactStoreError", ("ERR_ARTIFACT_STORE", "in-doubt")),
    ]  # fmt: skip
    async with MemoryArtifacts() as sound, runtime(tools=[own(meet)], artifacts=Damaged(sound)) as here:
        for number, (did, args, kind, instead) in enumerate(cases):
            await call(here, f"met {number}", args=args)
            await play.why(
                f"a tool of the host's own {did}", here.runtime.record, f"met {number}",
                ("failed", "tool-failed", "answered"), f"it raised `{kind}`", instead_of=instead,
            )  # fmt: skip
    async with runtime(tools=[own(meet)]) as here:
        await call(here, "no store", args=cases[0][1])
        await play.why(
            "a tool of the host's own puts, and there is no store", here.runtime.record, "no store",
            ("failed", "tool-failed", "answered"), "it raised `NoArtifactStoreError`",
            instead_of=("ERR_NO_ARTIFACT_STORE", "not-sent"),
        )  # fmt: skip


async def a_call_that_is_repeated(play: Play) -> None:
    tools = [FakeTool("search", inputSchema={"type": "object"})]
    async with runtime({"crm": tools}, repeat="when-nothing-ran") as here:
        record = here.runtime.record
        held = await here.runtime.toolset(ALICE)  # as long as it is held, its names mean its tools
        await call(here, "warm", "search")
        here.servers["crm"].forget_sessions("404")
        await call(here, "first", "search")
        uses = record.calls(where=lambda use: use.repeated_of == "first")
        play.check("there is a second attempt", holds=len(uses) == 1 and "search" in held)
        if uses:
            await play.why(
                "a session was lost, nothing had run, and the runtime calls once more", record,
                uses[0].call_id, ("ok", "", "answered"),
                told=("it is the second attempt of call `first`, which ended with `session-expired`",),
            )  # fmt: skip
        await play.why(
            "the first attempt of the same", record, "first", ("refused", "session-expired", "refused"),
            event="client-lost",
        )  # fmt: skip
