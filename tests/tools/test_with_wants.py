"""Tools of others that take stored artifacts: what a model sees, what runs, and that no ref runs as data."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from afpool import AfpoolError, InvalidArguments, ToolContext
from afpool.artifacts import (
    MemoryArtifacts,
    NewArtifact,
    NoArtifacts,
    NoArtifactStoreError,
    bind_artifacts,
)
from afpool.testing import FakeTool
from afpool.tools._derive import binding_of, derive, fact
from afpool.tools._fills import HostFilledArgumentError, from_identity
from afpool.tools._host_filled import host_filled, host_fills_of
from afpool.tools._redaction import RedactionPolicy
from afpool.tools._shown import redacted, shown_args_of
from afpool.tools._wants import WantsRefusedError
from afpool.tools._with_wants import with_wants
from tests.pool.kit import ALICE, world
from tests.tools.recording import Recording
from tests.tools.store_kit import OTHER, ROWS, SCOPE, Capability, Store, ref_number

SCHEMA = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {"type": "object"},
            "title": "Rows",
            "description": "The rows to sum.",
        },
        "note": {"type": "string", "maxLength": 3},
        "any": True,
    },
    "required": ["rows"],
    "additionalProperties": False,
}


class Report(Recording):
    """A tool with arguments that artifacts may stand in."""

    def __init__(self, name: str = "report", schema: Any = SCHEMA) -> None:
        super().__init__(schema, name)


def context(store: Store | None, **more: Any) -> ToolContext:
    return ToolContext(call_id="c", artifacts=None if store is None else Capability(store), **more)


# -- what a model sees


def test_the_model_is_asked_for_a_ref() -> None:
    base = Report()
    before = copy.deepcopy(SCHEMA)
    tool = with_wants(base, {"rows": ROWS})
    assert tool.wants == {"rows": ROWS}
    shown = tool.input_schema["properties"]["rows"]
    assert shown["type"] == "string"
    assert shown["title"] == "Rows"
    assert '"dataset/rows"' in shown["description"]
    assert shown["description"].endswith("The data: The rows to sum.")
    assert "items" not in shown
    assert {**tool.input_schema, "properties": None} == {**SCHEMA, "properties": None}
    assert tool.input_schema["properties"]["note"] == SCHEMA["properties"]["note"]
    assert base.input_schema == before == SCHEMA, "what was listed is not touched"
    assert base.wants is None


def test_a_string_that_was_meant_for_data_is_a_ref_now() -> None:
    tool = with_wants(Report(), {"note": ROWS, "any": ROWS})
    properties = tool.input_schema["properties"]
    assert "maxLength" not in properties["note"], "a ref has 26 characters"
    assert properties["any"]["type"] == "string"


def test_wants_add_up_and_disagree_aloud() -> None:
    tool = with_wants(with_wants(Report(), {"rows": ROWS}), {"rows": ROWS, "note": "text"})
    assert tool.wants == {"rows": ROWS, "note": "text"}
    assert "The data: A ref" not in tool.input_schema["properties"]["rows"]["description"]
    with pytest.raises(TypeError, match="'dataset/rows' for 'rows' already"):
        with_wants(tool, {"rows": "other"})
    assert with_wants(tool, {"rows": ROWS}) is tool


@pytest.mark.parametrize(
    ("wants", "says"),
    [
        ({}, "empty wants"),
        ({"rows": " "}, "no kind"),
        ({"row": ROWS}, "'report' does not list 'row' in its input schema"),
        ({"row": ROWS, "rows": ROWS, "x": ROWS}, "'row' and 'x'"),
    ],
)
def test_what_cannot_be_honoured_is_refused_where_it_is_made(wants: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        with_wants(Report(), wants)


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": []}, {"type": "object"}])
def test_a_tool_that_lists_no_properties_has_nowhere_to_pass_a_ref(schema: Any) -> None:
    with pytest.raises(TypeError, match="does not list 'rows'"):
        with_wants(Report(schema=schema), {"rows": ROWS})


def test_of_several_tools_each_takes_what_it_lists() -> None:
    one, two = Report(), Report("two", {"properties": {"note": {}}})
    three = Report("three", {"properties": {}})
    given = with_wants([one, two, three], {"rows": ROWS, "note": "text"})
    assert [tool.wants for tool in given] == [{"rows": ROWS, "note": "text"}, {"note": "text"}, None]
    assert given[2] is three
    assert isinstance(given, tuple)


def test_what_the_host_fills_cannot_be_passed_by_reference() -> None:
    fills = {"note": from_identity("principal")}
    filled = host_filled(Report(), fills)
    with pytest.raises(TypeError, match=r"does not list 'note'.*the host does not fill"):
        with_wants(filled, {"note": "text"})
    with pytest.raises(TypeError, match="none of the 1 tools lists 'note'"):
        with_wants([filled], {"note": "text", "rows": ROWS})
    with pytest.raises(TypeError, match="wants"):
        host_filled(with_wants(Report(), {"note": "text"}), fills)
    both = with_wants(filled, {"rows": ROWS})
    assert both.wants == {"rows": ROWS}
    assert "note" not in both.input_schema["properties"]
    assert host_fills_of(both) is not None


async def test_data_and_what_the_host_fills_run_together() -> None:
    store, base = Store(), Report()
    meta = store.add(data=[1])
    for decorated in (
        with_wants(host_filled(base, {"note": from_identity("principal")}), {"rows": ROWS}),
        host_filled(with_wants(base, {"rows": ROWS}), {"note": from_identity("principal")}),
    ):
        await decorated.execute({"rows": meta.ref}, context(store, identity=ALICE))
        assert dict(base.ran[-1][0]) == {"rows": [1], "note": "alice"}
        assert "alice" not in repr(base.ran.pop()[0])


async def test_a_value_for_what_the_host_fills_is_refused_before_a_store_is_asked() -> None:
    base = Report()
    for decorated in (
        with_wants(host_filled(base, {"note": from_identity("principal")}), {"rows": ROWS}),
        host_filled(with_wants(base, {"rows": ROWS}), {"note": from_identity("principal")}),
    ):
        with pytest.raises(HostFilledArgumentError) as refused:
            await decorated.execute({"rows": ref_number(1), "note": None}, context(None, identity=ALICE))
        assert refused.value.fields == ("note",)
        assert refused.value.call_id == "c"
    assert base.ran == []


async def test_a_toolset_becomes_a_mapping_by_the_same_names() -> None:
    listed = FakeTool("report", input_schema=SCHEMA)
    async with world(tools=[listed, FakeTool("other")]) as here:
        toolset = await here.pool.tools(ALICE)
        given = with_wants(toolset, {"rows": ROWS})
        assert list(given) == list(toolset) == ["report", "other"]
        assert given["report"].wants == {"rows": ROWS}
        assert given["other"].wants is None
        with pytest.raises(TypeError, match="none of the 2 tools lists 'row'"):
            with_wants(toolset, {"row": ROWS})


def test_of_several_tools_a_name_that_none_lists_is_refused() -> None:
    with pytest.raises(TypeError, match="none of the 2 tools lists 'row'"):
        with_wants(iter([Report(), Report("two")]), {"rows": ROWS, "row": ROWS})
    with pytest.raises(TypeError, match="empty wants"):
        with_wants([Report()], {})
    with pytest.raises(TypeError, match="for tools, not for str"):
        with_wants(["report"], {"rows": ROWS})  # type: ignore[list-item]


def test_private_facts_stay() -> None:
    base = derive(redacted(Report(), RedactionPolicy(keys=["note"])), facts={"k": "v"})
    tool = with_wants(base, {"rows": ROWS})
    assert fact(tool, "k") == "v"
    assert shown_args_of(tool, {"note": 1, "rows": "art_x"}) == {"note": "REDACTED", "rows": "art_x"}


# -- what runs


async def test_called_directly_the_data_takes_the_place_of_the_ref() -> None:
    store, base = Store(), Report()
    meta = store.add(data=[{"a": 1}])
    ctx = context(store, identity=ALICE)
    args = {"rows": meta.ref, "note": "x"}
    await with_wants(base, {"rows": ROWS}).execute(args, ctx)
    ((ran, seen),) = base.ran
    assert ran == {"rows": [{"a": 1}], "note": "x"}
    assert seen.wanted == {"rows": meta}
    assert (seen.identity, seen.call_id) == (ALICE, "c")
    assert ctx.wanted is None
    assert args == {"rows": meta.ref, "note": "x"}


async def test_what_a_door_has_redeemed_is_not_redeemed_again() -> None:
    store, base = Store(), Report()
    meta = store.add(data=[1])
    ctx = context(store, wanted={"rows": meta})
    args = {"rows": "art_is_now_data"}
    await with_wants(base, {"rows": ROWS}).execute(args, ctx)
    assert base.ran == [(args, ctx)]
    assert base.ran[0][1] is ctx
    assert store.calls == []


async def test_wants_of_two_decorations_are_redeemed_once_each() -> None:
    store, base = Store(), Report()
    rows, note = store.add(data=[1]), store.add("text", "hello")
    tool = with_wants(with_wants(base, {"rows": ROWS}), {"note": "text"})
    await tool.execute({"rows": rows.ref, "note": note.ref}, context(store))
    ((ran, seen),) = base.ran
    assert ran == {"rows": [1], "note": "hello"}
    assert seen.wanted == {"rows": rows, "note": note}
    assert store.count("get") == 2


async def test_what_is_optional_may_be_left_out() -> None:
    store, base = Store(), Report()
    args = {"rows": []}
    await with_wants(base, {"note": "text"}).execute(args, context(store))
    ((ran, seen),) = base.ran
    assert ran is args
    assert seen.wanted is None


@pytest.mark.parametrize("args", [{}, {"rows": None}, {"rows": [{"a": 1}]}, {"rows": ref_number(9)}])
async def test_nothing_runs_without_the_data(args: Any) -> None:
    base = Report()
    with pytest.raises(WantsRefusedError) as refused:
        await with_wants(base, {"rows": ROWS}).execute(args, context(Store()))
    assert (refused.value.code, refused.value.delivery, refused.value.call_id) == (
        "wants-refused",
        "not-sent",
        "c",
    )
    assert [refusal.arg_name for refusal in refused.value.refusals] == ["rows"]
    assert base.ran == []


@pytest.mark.parametrize("artifacts", [None, NoArtifacts()], ids=["absent", "unconfigured"])
async def test_nothing_runs_without_a_store(artifacts: Any) -> None:
    base = Report()
    ctx = ToolContext(call_id="c", artifacts=artifacts)
    with pytest.raises(NoArtifactStoreError, match='"report" was not run') as refused:
        await with_wants(base, {"rows": ROWS}).execute({"rows": ref_number(1)}, ctx)
    assert refused.value.call_id == "c"
    assert base.ran == []


async def test_it_works_with_a_store_of_the_package() -> None:
    base, store = Report(), MemoryArtifacts()
    mine, theirs = bind_artifacts(store, SCOPE), bind_artifacts(store, OTHER)
    new = NewArtifact(
        kind=ROWS, media_type="application/json", data=[{"a": 1}], label="sales", digest="sha-256"
    )
    meta, foreign = await mine.put(new), await theirs.put(new)
    tool = with_wants(base, {"rows": ROWS})
    ctx = ToolContext(artifacts=mine)
    await tool.execute({"rows": meta.ref}, ctx)
    assert base.ran[0][0] == {"rows": [{"a": 1}]}
    with pytest.raises(WantsRefusedError) as refused:
        await tool.execute({"rows": foreign.ref}, ctx)
    assert f'{meta.ref} ("sales", 9 bytes)' in refused.value.message
    assert refused.value.message.count(foreign.ref) == 1, "as what was passed, and not as what there is"


async def test_a_bound_tool_keeps_its_binding_and_its_server_gets_the_data() -> None:
    listed = FakeTool("report", lambda arguments, _: str(arguments), input_schema=SCHEMA)
    async with world(tools=[listed]) as here:
        bound = await here.tool(name="report")
        tool = with_wants(bound, {"rows": ROWS})
        assert binding_of(tool) is bound.binding
        assert bound.input_schema["properties"]["rows"]["type"] == "array"
        store = Store()
        meta = store.add(data=[{"a": 1}])
        ctx = ToolContext(identity=ALICE, artifacts=Capability(store, SCOPE))
        result = await tool.execute({"rows": meta.ref}, ctx)
        assert result.text == "{'rows': [{'a': 1}]}"
        with pytest.raises(AfpoolError, match="wants-refused"):
            await tool.execute({"rows": ref_number(9)}, ctx)
        assert here.sent("report") == 1


@pytest.mark.parametrize("given", [["rows"], "rows", None, 7])
@pytest.mark.parametrize("filled", [False, True])
async def test_arguments_that_are_no_object_are_refused_whatever_stands_around_the_tool(
    given: Any, filled: bool
) -> None:
    report = Report()
    tool = host_filled(report, {"note": from_identity("tenant")}) if filled else report
    with pytest.raises(InvalidArguments, match=f"a JSON object, not {type(given).__name__}") as caught:
        await with_wants(tool, {"rows": ROWS}).execute(given, context(Store()))
    assert (caught.value.call_id, caught.value.delivery) == ("c", "not-sent")
    assert report.ran == []
