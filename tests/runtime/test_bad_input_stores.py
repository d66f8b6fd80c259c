"""Artifact stores that misbehave, through the whole door: the call is refused, or its result stays inline."""

from __future__ import annotations

import json
import logging
from typing import Any

import attrs
import pytest
import trio

from afpool import Identity, ToolContext
from afpool.artifacts import Artifact, ArtifactIntegrityError, ArtifactMeta, ArtifactPage
from afpool.runtime import ServerRules
from afpool.testing import FakeTool
from afpool.tools import ResultLimits, define_tool
from tests.runtime.bad_input_kit import one_of_each, spotless
from tests.runtime.odd_things import called, deep, ring
from tests.runtime.runtime_kit import ALICE, runtime
from tests.tools.door_kit import SECRET, Ran
from tests.tools.store_kit import ROWS, Store

REF = "art_" + "0" * 22
META = ArtifactMeta(ref=REF, kind=ROWS, media_type="application/json", bytes=4, created_at=1.0)
SCHEMA = {"type": "object", "properties": {"rows": {"type": "string"}}, "required": ["rows"]}
FAILED, WANT = "ERR_ARTIFACT_STORE", "wants-refused"


def meta(**facts: Any) -> ArtifactMeta:
    return attrs.evolve(META, **facts)


GETS: dict[str, tuple[Any, str, str]] = {
    "a text": (SECRET, FAILED, "what is not an artifact (str)"),
    "a list": ([SECRET], FAILED, "what is not an artifact (list)"),
    "an artifact without a ticket": (Artifact(None, SECRET), FAILED, "what is not an artifact"),  # type: ignore[arg-type]
    "a kind that is none": (Artifact(meta(kind=object()), 1), FAILED, "what is not an artifact"),
    "a length that is none": (Artifact(meta(bytes=SECRET), 1), FAILED, "what is not an artifact"),
    "a time that is none": (Artifact(meta(created_at=float("nan")), 1), FAILED, "what is not an artifact"),
    "a label that is none": (Artifact(meta(label=[SECRET]), 1), FAILED, "what is not an artifact"),
    "another ref": (Artifact(meta(ref="art_" + "1" * 22), SECRET), WANT, "named nothing that was stored"),
    "another kind": (Artifact(meta(kind="text"), SECRET), WANT, 'an artifact of kind "text"'),
    "another digest": (ArtifactIntegrityError(REF, "sha-256:a", "sha-256:b"), WANT, "was not run"),
    "an error of its own": (RuntimeError(SECRET), FAILED, "failed (RuntimeError)"),
    "an error of the system": (OSError(5, SECRET), FAILED, "failed (OSError)"),
    "nothing": (None, WANT, "named nothing that was stored"),
}  # fmt: skip


@pytest.mark.parametrize("which", GETS)
async def test_a_store_that_answers_oddly_refuses_the_call(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, code, says = GETS[which]
    store = Store()

    async def get(ref: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    store.on_get = get
    work = Ran(input_schema=SCHEMA, wants={"rows": ROWS})
    served: list[Any] = []
    listed = FakeTool("served", lambda args, arrival: served.append(args) or "ran", inputSchema=SCHEMA)
    with caplog.at_level(logging.DEBUG, "afpool"):
        async with runtime(
            {"files": [listed]},
            rules={"files": ServerRules(wants={"rows": ROWS})},
            tools=[work.tool],
            artifacts=store,
        ) as here:
            for name in ("work", "served"):
                result = await called(here, name, {"rows": REF})
                assert (result.code, result.delivery) == (code, "not-sent"), result.text
                assert says in result.text, result.text
                assert "was not run" in result.text or "fault of the store" in result.text
                if result.error is not None:
                    result.error.__cause__ = result.error.__context__ = None  # the store's own
                spotless(result, list(here.events), hidden=(SECRET,))
            toolset = await here.runtime.toolset(ALICE)
            with pytest.raises(Exception) as caught:  # noqa: PT011 -- which one is looked at below
                await toolset["work"].execute(
                    {"rows": REF}, ToolContext(identity=ALICE, artifacts=here.runtime.run(ALICE).artifacts)
                )
            assert getattr(caught.value, "code", None) == code
    assert not work.calls
    assert not served
    assert SECRET not in caplog.text


PAGES: dict[str, Any] = {
    "a text": SECRET,
    "nothing": None,
    "rows that are none": ArtifactPage((1, None, SECRET)),  # type: ignore[arg-type]
    "a cursor that is none": ArtifactPage((), [SECRET]),  # type: ignore[arg-type]
    "a row of another scope's": ArtifactPage((meta(ref="art_" + "1" * 22, label=SECRET),)),
    "a row of another kind": ArtifactPage((meta(kind="text", label=SECRET),)),
    "a label that is none": ArtifactPage((meta(label=[SECRET]),)),
    "a cursor that comes again": ArtifactPage((), "again"),
    "pages without end": lambda number: ArtifactPage((), f"page {number}"),
    "rows without end": ArtifactPage((META,) * 10_000, "more"),
    "an error": RuntimeError(SECRET),
}


@pytest.mark.parametrize("which", PAGES)
async def test_a_store_that_lists_oddly_costs_the_teaching_and_not_the_refusal(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()

    async def get(ref: str) -> None:
        return None

    async def pages(cursor: str | None, limit: int) -> Any:
        answer = PAGES[which]
        if isinstance(answer, Exception):
            raise answer
        return answer(store.count("list")) if callable(answer) else answer

    store.on_get, store.on_list = get, pages
    work = Ran(input_schema=SCHEMA, wants={"rows": ROWS})
    with caplog.at_level(logging.DEBUG, "afpool"):
        async with runtime(tools=[work.tool], artifacts=store) as here:
            store.calls.clear()
            result = await here.runtime.dispatch(ALICE, "work", {"rows": REF})
            assert (result.code, result.delivery) == (WANT, "not-sent"), result.text
            assert store.count("list") <= 50
            assert store.count("head") <= 200
            assert len(result.text) < 4_000
            spotless(result, list(here.events), hidden=(SECRET,))
    assert not work.calls
    assert SECRET not in caplog.text


@pytest.mark.parametrize("verb", ["get", "list", "head"])
async def test_a_store_that_hangs_is_waited_for_until_the_deadline(
    verb: str, autojump_clock: trio.testing.MockClock
) -> None:
    async def hangs(*what: Any) -> Any:
        await trio.sleep_forever()

    store = Store()
    store.add(scope=ALICE)
    setattr(store, f"on_{verb}", hangs)
    work = Ran(input_schema=SCHEMA, wants={"rows": ROWS})
    async with runtime(tools=[work.tool], artifacts=store, deadline=7.0) as here:
        begun = trio.current_time()
        result = await here.runtime.dispatch(ALICE, "work", {"rows": REF})
        assert result.code == ("deadline-exceeded" if verb == "get" else WANT)
        assert result.delivery == "not-sent"
        assert trio.current_time() - begun == (7.0 if verb == "get" else 2.0)
    assert not work.calls


PUTS: dict[str, Any] = {
    "a text": SECRET,
    "nothing": None,
    "a ticket that is none": meta(kind=object(), bytes=float("nan")),
    "an error of its own": RuntimeError(SECRET),
    "an error of the system": OSError(28, SECRET),
}


@pytest.mark.parametrize("which", PUTS)
async def test_a_store_that_cannot_store_costs_the_placement_and_not_the_result(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(Store):
        async def put(self, *what: Any, **more: Any) -> Any:
            await trio.lowlevel.checkpoint()
            if isinstance(PUTS[which], Exception):
                raise PUTS[which]
            return PUTS[which]

    limits = ResultLimits(max_inline_chars=10)
    with caplog.at_level(logging.DEBUG, "afpool"):
        async with runtime(tools=[Ran("x" * 100).tool], artifacts=Bad(), results=limits) as here:
            result = await called(here)
            assert (result.code, result.text) == ("ok", "x" * 100)
            spotless(result, list(here.events), hidden=(SECRET,))
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "data", [b"\xff", float("nan"), "\ud800", {1: 2}], ids=["bytes", "nan", "half", "keys"]
)
async def test_what_was_stored_and_is_no_json_is_not_sent_to_a_server(data: Any) -> None:
    store = Store()
    ref = store.add(data=data, scope=ALICE).ref
    served: list[Any] = []
    listed = FakeTool("served", lambda args, arrival: served.append(args) or "ran", inputSchema=SCHEMA)
    rules = {"files": ServerRules(wants={"rows": ROWS})}
    async with runtime({"files": [listed]}, rules=rules, artifacts=store) as here:
        result = await called(here, "served", {"rows": ref})
        assert (result.code, result.delivery) == ("invalid-arguments", "not-sent"), result.text
        assert not served


async def test_a_tool_that_uses_such_a_store_itself_is_told_what_is_at_fault() -> None:
    store = Store()

    async def odd(*what: Any) -> Any:
        return SECRET

    store.on_get = store.on_head = store.on_list = odd

    async def execute(args: Any, ctx: ToolContext) -> Any:
        verbs = {"get": ctx.artifacts.get, "head": ctx.artifacts.head}
        return await (verbs[args["verb"]](REF) if args["verb"] in verbs else ctx.artifacts.list())

    tool = define_tool(execute=execute, name="work", input_schema={"type": "object"})
    async with runtime(tools=[tool], artifacts=store) as here:
        for verb in ("get", "head", "list"):
            result = await here.runtime.dispatch(ALICE, "work", {"verb": verb})
            assert result.code == "tool-failed"
            assert f"the artifact store answered {verb} with what is not" in result.text
            one_of_each(here.events)
            here.events.clear()
            spotless(result, hidden=(SECRET,))


@pytest.mark.parametrize("data", [ring(), deep()], ids=["ring", "deep"])
async def test_what_was_stored_without_an_end_reaches_no_server(data: Any) -> None:
    store = Store()
    store.on_get = lambda ref: _given(Artifact(META, data))
    listed = FakeTool("served", lambda args, arrival: "ran", inputSchema=SCHEMA)
    rules = {"files": ServerRules(wants={"rows": ROWS})}
    async with runtime({"files": [listed]}, rules=rules, artifacts=store) as here:
        result = await called(here, "served", {"rows": REF})
        assert (result.code, result.delivery) == ("invalid-arguments", "not-sent"), result.text
        assert here.sent("files") == 0
        spotless(json.dumps([event.payload for event in here.events]), result, hidden=(SECRET,))


async def _given(value: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return value


async def test_another_tenants_artifact_is_never_asked_for() -> None:
    store = Store()
    ref = store.add(scope=Identity(tenant="globex", principal="alice"), label=SECRET).ref
    work = Ran(input_schema=SCHEMA, wants={"rows": ROWS})
    async with runtime(tools=[work.tool], artifacts=store) as here:
        result = await called(here, args={"rows": ref})
        assert result.code == WANT
        assert {call[1] for call in store.calls} == {ALICE}
        spotless(result, list(here.events), hidden=(SECRET,))
