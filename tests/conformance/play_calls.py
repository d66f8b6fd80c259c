"""Scenarios of plain lists and calls, and of the headers and schemas that belong to them."""

from __future__ import annotations

from .playing import ALICE, Case, listed, plays, pool_for


@plays("initialize", "json-schema-ref-no-deref")
async def only_list(case: Case) -> None:
    """Open and list."""
    async with pool_for(case) as pool:
        await listed(pool)


@plays("tools_call", "http-standard-headers")
async def add(case: Case) -> None:
    """Call a tool with two numbers, where there is one."""
    async with pool_for(case) as pool:
        tools = await listed(pool)
        for tool in tools.values():
            (await tool.call({"a": 5, "b": 3}, identity=ALICE)).raise_for_error()


@plays("http-custom-headers")
async def replay(case: Case) -> None:
    """Make the calls that the context holds."""
    async with pool_for(case) as pool:
        tools = await listed(pool)
        for call in case.context["toolCalls"]:
            await tools[call["name"]].call(call["arguments"], identity=ALICE)


@plays("http-invalid-tool-headers")
async def every_tool(case: Case) -> None:
    """Call whatever is offered; the others are quarantined."""
    async with pool_for(case) as pool:
        tools = await listed(pool)
        for tool in tools.values():
            wanted = tool.input_schema.get("required", ())
            await tool.call(dict.fromkeys(wanted, "eu"), identity=ALICE)
        print(f"offered: {', '.join(tools)}; quarantined: {len(tools.quarantined)}")


@plays("json-schema-2020-12-preservation")
async def echo_schema(case: Case) -> None:
    """Hand a schema back as it was listed."""
    async with pool_for(case) as pool:
        tools = await listed(pool)
        schema = tools["json_schema_2020_12_tool"].input_schema
        await tools["json_schema_echo"].call({"schema": schema}, identity=ALICE)


@plays("sse-retry")
async def reconnect(case: Case) -> None:
    """Make a call whose answer comes on a second stream."""
    async with pool_for(case) as pool:
        tools = await listed(pool)
        (await tools["test_reconnection"].call(identity=ALICE)).raise_for_error()
