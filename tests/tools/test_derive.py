"""A derived tool differs in what was given and in nothing else."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from afpool import CredentialRequirement, Tool, ToolContext, ToolResult
from afpool.tools import binding_of, derive
from afpool.tools._derive import SAME, base_of, fact, held_input_schema, schema_holder
from tests.pool.kit import ALICE, BOB, refused, world
from tests.tools.recording import Recording

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
CALL = ToolContext(call_id="c")


def shown(tool: Tool) -> tuple[Any, ...]:
    return (
        tool.name, tool.description, tool.input_schema, tool.output_schema, tool.annotations, tool.source,
        tool.needs, tool.wants,
    )  # fmt: skip


def test_what_is_not_given_is_the_bases() -> None:
    base = Recording(SCHEMA)
    assert shown(derive(base)) == shown(base)
    assert (base.needs, base.wants, base.annotations, base.output_schema, base.source) == (None,) * 5


GIVEN = {
    "name": "other",
    "description": "something else",
    "input_schema": {"type": "object", "properties": {}},
    "output_schema": {"type": "object"},
    "needs": CredentialRequirement("crm"),
    "wants": {"q": "dataset/rows"},
}


@given(st.lists(st.sets(st.sampled_from(sorted(GIVEN))), min_size=1, max_size=4))
def test_what_is_given_differs_and_the_rest_stays(layers: list[set[str]]) -> None:
    base = Recording(SCHEMA)
    tool: Tool = base
    for names in layers:
        arguments: dict[str, Any] = {name: GIVEN[name] for name in names}
        tool = derive(tool, **arguments)
    changed = set().union(*layers)
    for name, value in GIVEN.items():
        assert getattr(tool, name) == (value if name in changed else getattr(base, name))
    assert base_of(tool) is base
    assert shown(base) == shown(Recording(SCHEMA))


def test_none_takes_away_what_the_base_has() -> None:
    tool = derive(Recording(SCHEMA), needs=CredentialRequirement("crm"), wants={"q": "k"}, output_schema={})
    bare = derive(tool, needs=None, wants=None, output_schema=None)
    assert (bare.needs, bare.wants, bare.output_schema) == (None, None, None)
    assert tool.wants == {"q": "k"}


def test_the_nearest_fact_counts_and_facts_are_seen_by_nobody_else() -> None:
    one = derive(Recording(SCHEMA), facts={"a": 1, "secret-view": "nobody reads this"})
    two = derive(derive(one, facts={"a": 2, "b": None}), name="renamed")
    assert (fact(two, "a"), fact(two, "b"), fact(two, "secret-view")) == (2, None, "nobody reads this")
    assert (fact(one, "a"), fact(one, "b")) == (1, None)
    assert fact(Recording(SCHEMA), "a") is None
    assert "nobody reads this" not in repr(two)
    assert shown(derive(two, facts={"more": 3})) == shown(two)


async def test_what_stands_around_calls_the_base_as_it_sees_fit() -> None:
    base = Recording(SCHEMA)

    async def twice(args: Any, ctx: ToolContext, run: Any) -> ToolResult:
        await run({**args, "n": 1}, ctx)
        return await run({**args, "n": 2}, ctx)

    async def marked(args: Any, ctx: ToolContext, run: Any) -> ToolResult:
        return await run({**args, "marked": True}, ctx)

    tool = derive(derive(derive(base, execute=twice), name="renamed"), execute=marked)
    await derive(tool, description="untouched run").execute({"q": "x"}, CALL)
    assert base.given == [{"q": "x", "marked": True, "n": 1}, {"q": "x", "marked": True, "n": 2}]


def test_a_schema_that_was_read_can_be_changed_without_changing_the_tools() -> None:
    tool = derive(Recording(SCHEMA), input_schema=SCHEMA, output_schema={"type": "object", "enum": [[1]]})
    tool.input_schema["properties"]["q"]["type"] = "integer"
    output = tool.output_schema
    assert output is not None
    output["enum"][0].append(2)
    assert tool.input_schema == SCHEMA
    assert SCHEMA["properties"] == {"q": {"type": "string"}}
    assert tool.output_schema == {"type": "object", "enum": [[1]]}


def test_the_schema_belongs_to_the_derivation_that_gave_it() -> None:
    base = Recording(SCHEMA)
    one = derive(derive(base, name="x"), input_schema={"type": "object"})
    two = derive(derive(one, facts={"f": 1}), name="y")
    assert schema_holder(derive(base, name="x")) is base
    assert schema_holder(two) is one
    assert held_input_schema(two) is held_input_schema(one)
    assert held_input_schema(base) is SCHEMA


def test_a_mapping_given_is_copied() -> None:
    wants = {"q": "kind"}
    tool = derive(Recording(SCHEMA), wants=wants)
    wants["q"] = "changed"
    assert tool.wants == {"q": "kind"}
    with pytest.raises(TypeError):
        tool.wants["q"] = "changed"  # type: ignore[index]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 1}, {"name": None}, {"description": None}, {"input_schema": []}, {"input_schema": None},
        {"output_schema": True}, {"needs": "crm"}, {"wants": ["q"]},
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(wrong))} of a derived tool"):
        derive(Recording(SCHEMA), **wrong)


def test_only_tools_are_derived_from() -> None:
    with pytest.raises(TypeError, match="only a tool"):
        derive(print)  # type: ignore[arg-type]
    assert repr(SAME) == "SAME"


def test_a_tool_of_the_hosts_own_has_no_binding() -> None:
    assert binding_of(derive(Recording(SCHEMA), name="x")) is None


async def test_a_derived_bound_tool_keeps_its_binding_and_runs_in_it() -> None:
    async with world() as here:
        bound = await here.tool()
        tool = derive(derive(bound, name="files__echo", facts={"f": 1}), needs=CredentialRequirement("crm"))
        assert binding_of(tool) is bound.binding
        assert tool.source == "files"
        assert schema_holder(tool) is bound.binding.definition
        result = await tool.execute({"text": "hello"}, ToolContext(identity=ALICE))
        assert result.text == '{"text": "hello"}'
        await refused(tool.execute({"text": "hello"}, ToolContext(identity=BOB)), "identity-mismatch")
        assert here.sent() == 1


def test_the_packages_names_are_loaded_when_touched() -> None:
    import afpool.tools

    assert set(afpool.tools.__all__) <= set(dir(afpool.tools))
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        afpool.tools.NoSuchName  # noqa: B018 -- touching it is the test
