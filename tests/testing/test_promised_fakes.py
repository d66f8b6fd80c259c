"""A server for tests is a server: what it lists, takes and answers is the same over every transport."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from afpool import PoolClosed, Server, ToolError, open_pool
from afpool.testing import FakeTool, echo_tool, in_memory
from tests.testing.test_fake_memory import ALICE, KINDS, make, plan_for

LISTED: dict[str, Any] = {
    "description": "Finds.",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "title": "Find",
    "_meta": {"agentfootprint": {"resultKind": "rows"}, "example.org/x": [1, {"y": None}]},
}


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


def fail(arguments: Any, arrival: Any) -> Any:
    return {"content": [{"type": "text", "text": f"no {arguments['q']}"}], "isError": True}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_of_it_is_one_like_any_other(kind: str, clock: trio.testing.MockClock) -> None:
    async with make(kind, tools=[FakeTool("find", fail, **LISTED), echo_tool()]) as server:
        pool_of = open_pool([Server(name="desk", plan=plan_for(server))], seams=in_memory(server))
        async with pool_of as pool:
            tools = await pool.tools(ALICE)
            find = tools["find"]
            # all that it was listed with, and nothing of it is read as anything but data
            assert json.loads(find.binding.definition.raw) == {"name": "find", **LISTED}
            assert (find.name, find.description, find.source) == ("find", "Finds.", "desk")
            assert (find.input_schema, find.output_schema) == (LISTED["inputSchema"], LISTED["outputSchema"])
            assert find.annotations == LISTED["annotations"]
            assert (find.needs, find.wants) == (None, None)
            assert server.count("tools/list") == 1
            assert (await pool.tools(ALICE))["find"].binding.list is find.binding.list
            assert server.count("tools/list") == 1
            # what failed is a result; its call's record says whose tool it was
            result = await find.call({"q": "luck"}, identity=ALICE, call_id="c")
            with pytest.raises(ToolError, match="no luck") as caught:
                result.raise_for_error()
            use = pool.records.uses[-1]
            assert (use.server, use.tool, use.call_id) == ("desk", "find", "c")
            assert caught.value.call_id == use.call_id
            # no arguments are an empty object
            assert (await tools["echo"].call(identity=ALICE)).text == "{}"
        with pytest.raises(PoolClosed):
            await pool.tools(ALICE)
