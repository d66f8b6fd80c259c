"""Artifacts at the door: references that become data, and results that become references."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from afpool import CredentialRequirement, Identity, ScriptedCredentials, ToolContext, bearer
from afpool.artifacts import ArtifactStoreError, MemoryArtifacts, NewArtifact, Origin
from afpool.tools import ResultCeiling, ResultLimits, content_result, define_tool, with_result_ceiling
from tests.tools.door_kit import ALICE, SECRET, Ran, door, refused

ROWS = [{"n": 1}, {"n": 2}]
BOB = Identity(tenant="acme", principal="bob")


async def stored(store: Any, scope: Identity = ALICE, kind: str = "dataset/rows", data: Any = ROWS) -> str:
    meta = await store.put(scope, NewArtifact(kind=kind, media_type="application/json", data=data))
    return meta.ref


def counting() -> Ran:
    schema = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    return Ran(lambda args, ctx: len(args["data"]), input_schema=schema, wants={"data": "dataset/rows"})


async def test_a_reference_becomes_data_and_its_ticket_is_told() -> None:
    store = MemoryArtifacts()
    ref = await stored(store)
    through, work = door(store=store), counting()
    args = {"data": ref}
    result = await through(work.tool, args)
    assert result.text == "2"
    assert work.args == {"data": ROWS}
    assert args == {"data": ref}
    assert work.ctx.wanted is not None
    assert work.ctx.wanted["data"].ref == ref
    assert through.events.kinds == ["tool_start", "artifacts.resolved", "tool_end"]
    assert through.events.of("tool_start")["args"] == {"data": ref}
    resolved = through.events.of("artifacts.resolved")
    assert (resolved["ref"], resolved["via"], resolved["kind"], resolved["tool"]) == (
        ref, "get", "dataset/rows", "work",
    )  # fmt: skip
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms"}


@pytest.mark.parametrize(
    ("spoken", "reason"),
    [
        ("art_" + "x" * 22, "missing-or-expired"), ("x" * 1_000_000, "missing-or-expired"),
        ("of bob", "missing-or-expired"), ("other kind", "kind-mismatch"), (" ", "invalid-input"),
    ],
)  # fmt: skip
async def test_a_reference_that_does_not_resolve_refuses_and_teaches(spoken: str, reason: str) -> None:
    store = MemoryArtifacts()
    live = await stored(store)
    if spoken == "of bob":
        spoken = await stored(store, BOB)
    elif spoken == "other kind":
        spoken = await stored(store, kind="other")
    provider = ScriptedCredentials([])
    through, work = door(store=store, credentials=provider), counting()
    tool = define_tool(
        execute=lambda args, ctx: "x",
        name="work",
        input_schema=work.tool.input_schema,
        wants={"data": "dataset/rows"},
        needs=CredentialRequirement("crm"),
    )
    result = await through(tool, {"data": spoken})
    refused(result, "wants-refused")
    assert live in result.text
    assert len(result.text) < 2_000
    fact = through.events.of("artifacts.refused")
    assert (fact["op"], fact["reason"], fact["tool"]) == ("dispatch", reason, "work")
    assert not provider.requests
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms", "error"}


async def test_the_schema_is_asked_before_the_store() -> None:
    through, work = door(store=MemoryArtifacts()), counting()
    refused(await through(work.tool, {"data": ROWS}), "invalid-arguments")
    refused(await through(work.tool, {}), "invalid-arguments")


async def test_without_a_store_what_wants_artifacts_is_refused() -> None:
    through, work = door(), counting()
    result = await through(work.tool, {"data": "art_x"})
    refused(result, "ERR_NO_ARTIFACT_STORE")
    fact = through.events.of("artifacts.refused")
    assert (fact["op"], fact["reason"], fact["detail"]) == ("dispatch", "no-store", result.text)
    assert not work.calls


async def test_a_tool_that_uses_artifacts_where_there_is_no_store_is_told_what_is_missing() -> None:
    async def mint(args: Any, ctx: ToolContext) -> Any:
        assert not ctx.artifacts.configured
        return await ctx.artifacts.put(NewArtifact(kind="k", media_type="text/plain", data="d"))

    through = door()
    result = await through(define_tool(execute=mint, name="mint"))
    assert result.is_error
    assert "artifact store" in result.text
    assert "NoneType" not in result.text
    refusal = through.events.of("artifacts.refused")
    assert (refusal["op"], refusal["reason"], refusal["tool"]) == ("put", "no-store", "mint")
    idle = door()
    await idle(counting_nothing())
    assert idle.events.kinds == ["tool_start", "tool_end"]


async def test_a_tool_mints_under_the_runs_origin_and_another_redeems_it() -> None:
    store = MemoryArtifacts()
    through, work = door(store=store), counting()
    ref = (await through(minting(), run_id="r", call_id="c")).text
    meta = await store.head(ALICE, ref)
    assert meta is not None
    assert meta.origin is not None
    assert (meta.origin.run_id, meta.origin.call_id) == ("r", "c")
    assert (await through(work.tool, {"data": ref})).text == "2"
    refused(await through(work.tool, {"data": ref}, identity=BOB), "wants-refused")
    assert "artifacts.minted" in through.events.kinds


async def test_the_scope_is_the_runs_where_nobody_is_named() -> None:
    store = MemoryArtifacts()
    scope = Identity(conversation_id="run-1")
    ref = await stored(store, scope)
    through, work = door(store=store), counting()
    assert (await through(work.tool, {"data": ref}, identity=None, scope=scope)).code == "ok"
    assert work.ctx.identity is None
    refused(await through(work.tool, {"data": ref}, identity=None), "wants-refused")


@pytest.mark.parametrize(
    "nobody", [None, Identity(), lambda: None, Identity], ids=["nobody", "empty", "asked", "asked-empty"]
)
async def test_calls_of_nobodys_share_no_artifacts(nobody: Any) -> None:
    """Each is a run of its own, whose id is on its record and nowhere to be guessed."""
    store = MemoryArtifacts()
    through, work = door(store=store), counting()
    refs: list[tuple[str, str]] = []
    for _ in range(2):
        result = await through(minting(), identity=nobody, call_id="the same")
        refs.append((result.text, through.events[-1].run_id))
        assert work.calls == []
    (first, run), (_, other) = refs
    assert run != other
    assert run.startswith("run-")
    assert {event.run_id for event in through.events} == {run, other}
    assert {event.identity for event in through.events} == {None}
    # the host finds it by the run
    meta = await store.head(Identity(conversation_id=run), first)
    assert meta is not None
    assert meta.origin == Origin(run, "the same")
    for scope in (Identity(), Identity(conversation_id=other), Identity(conversation_id="the same")):
        assert (await store.head(scope, first)) is None
    refused(await through(work.tool, {"data": first}, identity=nobody), "wants-refused")


async def test_a_run_of_nobodys_keeps_its_artifacts_whoever_makes_its_calls() -> None:
    through, work = door(store=MemoryArtifacts()), counting()
    ref = (await through(minting(), identity=None, run_id="r")).text
    refused(await through(work.tool, {"data": ref}, identity=None, run_id="other"), "wants-refused")
    assert (await through(work.tool, {"data": ref}, identity=None, run_id="r")).code == "ok"


async def test_without_a_store_no_run_is_made_up() -> None:
    through = door()
    await through(counting_nothing(), identity=None)
    assert {event.run_id for event in through.events} == {None}


def minting() -> Any:
    async def mint(args: Any, ctx: ToolContext) -> str:
        meta = await ctx.artifacts.put(
            NewArtifact(kind="dataset/rows", media_type="application/json", data=ROWS)
        )
        return str(meta.ref)

    return define_tool(execute=mint, name="mint")


def counting_nothing() -> Any:
    return define_tool(execute=lambda args, ctx: "done", name="idle")


class Hanging(MemoryArtifacts):
    async def get(self, *what: Any) -> Any:
        await trio.sleep_forever()

    async def put(self, *what: Any, **more: Any) -> Any:
        await trio.sleep_forever()


class Broken(MemoryArtifacts):
    async def get(self, *what: Any) -> Any:
        raise RuntimeError(SECRET)

    async def put(self, *what: Any, **more: Any) -> Any:
        raise ArtifactStoreError("the disk is full")


async def test_a_store_that_hangs_or_fails_refuses_in_time(autojump_clock: trio.testing.MockClock) -> None:
    through, work = door(store=Hanging(), deadline=10.0), counting()
    refused(await through(work.tool, {"data": "art_" + "x" * 22}), "deadline-exceeded")
    through = door(store=Broken())
    result = await through(work.tool, {"data": "art_" + "x" * 22})
    refused(result, "ERR_ARTIFACT_STORE")
    assert SECRET not in result.text
    assert not work.calls


# ---------------------------------------------------------------------------- placement


async def test_a_long_result_is_stored_and_its_reference_handed_on() -> None:
    store = MemoryArtifacts()
    through = door(store=store, limits=ResultLimits(max_inline_chars=20))
    text = "y" * 21
    result = await through(Ran(text).tool)
    ticket = result.structured
    assert (ticket["placed"], ticket["kind"], ticket["media_type"], ticket["bytes"]) == (
        True, "tool-result/work", "text/plain", 21,
    )  # fmt: skip
    assert (result.code, result.is_error) == ("ok", False)
    kept = await store.get(ALICE, ticket["ref"])
    assert kept is not None
    assert kept.data == text
    end = through.events.of("tool_end")
    assert set(end) == {"call_id", "result", "duration_ms"}
    assert end["result"] == result.document
    assert text not in through.events.text


async def test_what_is_placed_can_be_wanted() -> None:
    store = MemoryArtifacts()
    through = door(store=store, limits=ResultLimits(max_inline_chars=5))
    result = await through(Ran({"rows": ROWS}, result_kind="dataset/rows").tool)
    assert result.structured["media_type"] == "application/json"
    work = counting()
    assert (await through(work.tool, {"data": result.structured["ref"]})).text == "1"
    assert work.args == {"data": {"rows": ROWS}}


async def test_what_is_short_is_handed_on_as_it_is() -> None:
    through = door(store=MemoryArtifacts(), limits=ResultLimits(max_inline_chars=20))
    answer = content_result([{"type": "text", "text": "y" * 20}], call_id="c")
    assert (await through(Ran(answer).tool, call_id="c")) is answer
    assert through.events.kinds == ["tool_start", "tool_end"]


LONG = "y" * 1_000
FAILED = content_result([{"type": "text", "text": LONG}], is_error=True)


@pytest.mark.parametrize(
    ("answer", "ceiling", "limits", "outcome"),
    [
        (LONG, 100, {"max_inline_chars": 50, "max_chars": 300}, "refused"),
        (LONG, 5_000, {"max_inline_chars": 50, "max_chars": 300}, "placed"),
        (LONG, None, {"max_inline_chars": 5_000, "max_chars": 300}, "cut"),
        (LONG, None, {"max_chars": 300}, "cut"),
        (LONG, None, {"max_inline_chars": 50}, "placed"),
        (LONG, 100, {}, "refused"),
        (LONG, None, {}, "whole"),
        (ValueError(LONG), 100, {"max_inline_chars": 50}, "failed"),
        (FAILED, 100, {"max_inline_chars": 50}, "whole"),
        (FAILED, 100, {"max_chars": 300}, "cut"),
    ],
)  # fmt: skip
async def test_ceiling_then_placement_then_cut(
    answer: Any, ceiling: int | None, limits: dict[str, int], outcome: str
) -> None:
    through = door(store=MemoryArtifacts(), limits=ResultLimits(**limits))
    tool = Ran(answer).tool
    if ceiling is not None:
        tool = with_result_ceiling(tool, ResultCeiling(ceiling, ("limit",)))
    result = await through(tool)
    if outcome == "refused":
        refused(result, "too-large", "answered")
        assert through.events.of("result_refused") == {
            "tool_name": "work", "size_chars": 1_000, "max_chars": ceiling, "narrow_by": ["limit"],
        }  # fmt: skip
    elif outcome == "placed":
        assert result.structured["placed"] is True
    elif outcome == "cut":
        assert '"truncated": true' in result.text
        assert len(result.text) <= 300
        assert result.is_error == isinstance(answer, type(result))
    elif outcome == "failed":
        refused(result, "tool-failed", "answered")
    else:
        assert result.text == LONG
    assert (LONG in through.events.text) == (outcome in ("whole", "failed"))


@pytest.mark.parametrize("store", [Broken, Hanging])
async def test_a_store_that_fails_costs_the_placement_and_not_the_result(
    store: type[Any], autojump_clock: trio.testing.MockClock
) -> None:
    through = door(store=store(), limits=ResultLimits(max_inline_chars=20), deadline=10.0)
    result = await through(Ran(LONG).tool)
    assert (result.code, result.text) == ("ok", LONG)


async def test_without_a_store_nothing_is_placed() -> None:
    assert (await door(limits=ResultLimits(max_inline_chars=20))(Ran(LONG).tool)).text == LONG


async def test_images_count_as_what_they_are() -> None:
    image = content_result([{"type": "image", "data": "A" * 5_000, "mimeType": "image/png"}])
    through = door(limits=ResultLimits(max_chars=300))
    assert "5025 characters" not in (await through(Ran(image).tool)).text
    refused(await door()(with_result_ceiling(Ran(image).tool, ResultCeiling(1_000))), "too-large", "answered")


def test_a_ceiling_is_one() -> None:
    with pytest.raises(TypeError, match="ResultCeiling"):
        with_result_ceiling(Ran().tool, 500)  # type: ignore[arg-type]


async def test_artifacts_are_the_runs_also_beside_a_credential() -> None:
    through = door(store=MemoryArtifacts(), credentials=ScriptedCredentials([bearer(SECRET)]))
    seen: list[Any] = []

    async def both(args: Any, ctx: ToolContext) -> str:
        seen.append((ctx.artifacts.configured, ctx.credential))
        return "x"

    await through(define_tool(execute=both, name="both", needs="crm"))
    assert seen[0][0] is True
    assert seen[0][1] is not None
