"""The client that the conformance suite runs: afpool, used as an app uses it.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/driver.py URL

The suite starts one process per scenario and appends the address of its server. The environment names the
scenario and the protocol version that the server speaks, and holds a JSON context where a scenario has one.
Everything goes through `open_pool`, `Pool.tools` and bound tools; the version is found out, not told.

Ends with status 0 and a last line on stdout where everything went as the scenario wants it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from afpool import HttpTransport, Identity, Plan, Pool, Server, Toolset, open_pool
from tests.conformance.reading import DONE

ALICE: Final = Identity(tenant="acme", principal="alice")
SECONDS: Final = 60.0


@attrs.frozen
class Case:
    """What the suite tells about a scenario.

    Attributes:
        url: The server's MCP endpoint.
        version: The protocol version that the server speaks.
        context: What the scenario gives the client to know; mostly empty.
    """

    url: str
    version: str
    context: dict[str, Any]


Play: TypeAlias = Callable[[Case], Awaitable[None]]
PLAYS: dict[str, Play] = {}


def plays(*scenarios: str) -> Callable[[Play], Play]:
    """Register a function for scenarios."""

    def register(play: Play) -> Play:
        PLAYS.update(dict.fromkeys(scenarios, play))
        return play

    return register


def pool_for(case: Case) -> Any:
    """Open a pool with the suite's server in it."""
    return open_pool([Server(name="suite", plan=Plan(transport=HttpTransport(url=case.url)))])


async def listed(pool: Pool) -> Toolset:
    """List the tools; raises what the listing ended with."""
    tools = await pool.tools(ALICE)
    for problem in tools.problems.values():
        raise problem
    return tools


@plays("initialize", "json-schema-ref-no-deref")
async def only_list(case: Case) -> None:
    """Open and list."""
    async with pool_for(case) as pool:
        await listed(pool)


@plays("tools_call", "http-standard-headers", "request-metadata")
async def add(case: Case) -> None:
    """Call a tool with two numbers, where there is one."""
    async with pool_for(case) as pool:
        tools = await listed(pool)
        for name in tools:
            await tools[name].call({"a": 5, "b": 3}, identity=ALICE)


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


async def main(scenario: str, case: Case) -> None:
    """Play one scenario within its time."""
    with trio.fail_after(SECONDS):
        await PLAYS[scenario](case)


if __name__ == "__main__":
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if name not in PLAYS:
        sys.exit(f"driver: nobody plays {name}")
    trio.run(
        main,
        name,
        Case(
            url=sys.argv[-1],
            version=os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
            context=json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
        ),
    )
    print(DONE)
