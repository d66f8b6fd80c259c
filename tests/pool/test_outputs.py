"""Structured results against their tool's schema: only where asked, compiled once, nothing fetched."""

from __future__ import annotations

import logging

import jsonschema_rs
import pytest

from afpool import InvalidOutput, ToolResult
from afpool.pool import _outputs
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
        _outputs.jsonschema_rs, "validator_for", lambda *a, **k: (compiled.append(1), real(*a, **k))[1]
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
