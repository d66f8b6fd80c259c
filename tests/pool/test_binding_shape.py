"""What a listed tool looks like, and what it was listed under."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from afpool.testing import FakeTool, Result
from tests.pool.kit import ALICE, BOB, world

SCHEMA = {
    "type": "object",
    "properties": {"q": {"$ref": "#/$defs/q"}},
    "$defs": {"q": {"type": ["string", "null"]}},
}
MEMBERS: dict[str, Any] = {
    "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True},
    "title": "Find",
}


async def test_a_tool_that_says_nothing_of_its_arguments_takes_any() -> None:
    async with world() as here:
        here.server.on("tools/list", Result({"tools": [{"name": "bare"}]}))
        tool = await here.tool(name="bare")
        assert tool.input_schema == {}
        assert tool.output_schema is None
        assert tool.description == "MCP tool: bare"


async def test_a_tool_is_as_it_was_listed() -> None:
    listed = FakeTool("find", description="Finds things.", input_schema=SCHEMA, **MEMBERS)
    async with world(tools=[listed]) as here:
        tool = await here.tool(name="find")
        assert (tool.name, tool.description, tool.source) == ("find", "Finds things.", "files")
        assert tool.input_schema == SCHEMA
        assert list(tool.input_schema) == list(SCHEMA)
        assert tool.output_schema == MEMBERS["outputSchema"]
        assert tool.annotations == {"readOnlyHint": True}
        assert (tool.needs, tool.wants) == (None, None)
        held = json.loads(tool.binding.definition.raw)
        assert (held["name"], held["title"], held["inputSchema"]) == ("find", "Find", SCHEMA)


async def test_a_tool_without_a_description_says_which_it_is() -> None:
    async with world(tools=[FakeTool("find")]) as here:
        assert "find" in (await here.tool(name="find")).description


async def test_a_binding_names_key_context_list_generation_client_and_definition() -> None:
    async with world() as here:
        tool, again = await here.tool(), await here.tool()
        others = await here.tool(BOB)
        binding = tool.binding
        assert binding.actor is again.binding.actor
        assert binding.actor is not others.binding.actor
        assert binding.actor.key == here.pool.key_of(ALICE, "files")
        assert binding.context.startswith("pc:")
        assert (binding.shared, binding.authorization) == (False, None)
        assert (binding.generation, binding.list.generation) == (1, 1)
        assert binding.list is not others.binding.list
        assert isinstance(binding.client_id, int)
        assert binding.client_id != others.binding.client_id
        assert binding.definition.name == "echo"
        for field in attrs.fields(type(binding)):
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                setattr(binding, field.name, None)


async def test_a_shared_binding_names_the_entrys_list_and_no_client() -> None:
    async with world() as here:
        here.host.names |= {"alice": "team", "bob": "team"}
        alices, bobs = await here.tool(), await here.tool(BOB)
        assert alices.binding.shared
        assert alices.binding.client_id is bobs.binding.client_id is None
        assert alices.binding.list is bobs.binding.list
        assert alices.binding.actor is not bobs.binding.actor
        assert alices.binding.authorization == "team"
        assert "team" not in repr(alices.binding) + repr(alices)
