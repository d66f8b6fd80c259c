"""Structured results against their tool's schema: only where asked, compiled once, nothing fetched."""

from __future__ import annotations

import logging

import jsonschema_rs
import pytest

from afpool import InvalidOutput, ToolResult
from afpool._base import compiled as ready
from afpool.testing import FakeTool
from tests.pool.kit import ALICE, refused, world

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def tool(result, schema=None, name="echo"):
    return FakeTool(
        name, lambda arguments, arrival: result, outputSchema=SCHEMA if schema is None else schema
    )


def structured(value, **more):
    return {"content": [], "structuredContent": value, **more}


async def test_it_is_only_done_where_it_is_asked_for():
    async with world(tools=[tool(structured({"n": "secret"}))]) as here:
        bound = await here.tool()
        result = await bound.call(identity=ALICE)
        assert result.structured == {"n": "secret"}
        with pytest.raises(InvalidOutput) as caught:
            await bound.validate_output(result)
        assert caught.value.result is result
        assert caught.value.call_id == result.call_id
        assert "secret" not in str(caught.value)
        assert "properties/n/type" in caught.value.message


async def test_a_server_may_ask_for_it_with_every_call(monkeypatch):
    compiled = []
    real = jsonschema_rs.validator_for
    monkeypatch.setattr(
        ready.jsonschema_rs, "validator_for", lambda *a, **k: (compiled.append(1), real(*a, **k))[1]
    )
    tools = [
        tool(structured({"n": 1})),
        tool(structured([]), name="wrong"),
        tool({"content": []}, name="none"),
        tool({"content": [], "isError": True}, name="failed"),
        tool(structured({"n": 1, "x": "y" * 70_000}), name="large"),
        tool(structured({"n": "1", "x": "y" * 70_000}), name="large-wrong"),
        FakeTool("plain", lambda arguments, arrival: structured(7)),
    ]
    async with world(tools=tools, server={"validate_output": True}) as here:
        bound = await here.pool.tools(ALICE)
        for name in ("echo", "echo", "failed", "plain", "large"):
            await bound[name].call(identity=ALICE)
        for name in ("wrong", "none", "large-wrong"):
            await refused(bound[name].call(identity=ALICE), "invalid-output", "answered")
        # one schema in one definition each, whatever it was asked
        assert len(compiled) == 6


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        {"type": "nonsense"},
        {"type": "object", "properties": {"n": {"pattern": "(?=a)b"}}},
        {"$schema": "https://example.com/unknown", "type": "object"},
    ],
    ids=["remote", "type", "pattern", "dialect"],
)
async def test_a_schema_that_cannot_be_compiled_disables_it_with_one_warning(schema, caplog):
    async with world(tools=[tool(structured({"n": "x"}), schema)], server={"validate_output": True}) as here:
        bound = await here.tool()
        with caplog.at_level(logging.WARNING, "afpool"):
            for _ in range(3):
                assert (await bound.call(identity=ALICE)).structured == {"n": "x"}
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "files/echo" in caplog.text


async def test_a_deep_result_is_an_error_and_not_a_crash():
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    recursive = {"type": "array", "items": {"$ref": "#"}}
    async with world(tools=[tool(structured(deep), recursive)], server={"validate_output": True}) as here:
        assert (await (await here.tool()).call(identity=ALICE)).has_structured
    for _ in range(500):
        deep = [deep]
    async with world(tools=[tool(structured(deep), recursive)], server={"validate_output": True}) as here:
        await refused((await here.tool()).call(identity=ALICE), "invalid-output", "answered")


def doubling(levels):
    """Two ways at each of so many steps: followed, they are 2 ** levels."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    defs[f"d{levels}"] = {"type": "integer"}
    return {"properties": {"y": {"properties": {"x": {"$ref": "#/$defs/d0"}}}}, "$defs": defs}


def left_over(levels):
    schema = {"properties": {"n": {"type": "integer"}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return {"properties": {"y": {"properties": {"x": schema}}}}


@pytest.mark.parametrize(
    ("schema", "inner"),
    [(doubling(16), "s"), (doubling(60), "s"), (left_over(12), {"n": 1}), (left_over(60), {"n": 1})],
    ids=["few ways", "ways without end", "few left over", "left over without end"],
)
async def test_a_schema_that_would_be_followed_without_end_never_meets_a_result(schema, inner):
    async with world(tools=[tool(structured({"y": {"x": inner}}), schema)]) as here:
        bound = await here.tool()
        result = await bound.call(identity=ALICE)
        with pytest.raises(InvalidOutput, match="not validated: it is nested deeper than 1 levels"):
            await bound.validate_output(result)


async def test_a_schema_that_is_dear_at_once_disables_it_with_one_warning(caplog):
    schema = doubling(60)
    schema["properties"] = {"x": {"$ref": "#/$defs/d0"}}
    async with world(tools=[tool(structured({"x": "s"}), schema)], server={"validate_output": True}) as here:
        bound = await here.tool()
        with caplog.at_level(logging.WARNING, "afpool"):
            for _ in range(2):
                assert (await bound.call(identity=ALICE)).structured == {"x": "s"}
        assert len(caplog.records) == 1
        assert "many thousand times" in caplog.text


async def test_a_pattern_that_takes_too_long_is_left_out_and_the_rest_holds(caplog):
    schema = {"properties": {"n": {"pattern": "(?=a)b", "minLength": 2}}}
    tools = [tool(structured({"n": "xx"}), schema), tool(structured({"n": "x"}), schema, "short")]
    async with world(tools=tools, server={"validate_output": True}) as here:
        bound = await here.pool.tools(ALICE)
        with caplog.at_level(logging.WARNING, "afpool"):
            assert (await bound["echo"].call(identity=ALICE)).structured == {"n": "xx"}
        assert "validated without them" in caplog.text
        await refused(bound["short"].call(identity=ALICE), "invalid-output", "answered")


def test_links_and_embedded_resources():
    result = ToolResult(
        b'{"content":[{"type":"resource_link","uri":"a://b"},'
        b'{"type":"resource","resource":{"uri":"c://d","text":"t"}},{"type":"resource","resource":7}],'
        b'"structuredContent":null}',
        "id",
    )
    assert [link["uri"] for link in result.resource_links] == ["a://b"]
    assert [(part.uri, part.text) for part in result.resources] == [("c://d", "t")]
    assert result.has_structured
    assert result.structured is None
