"""The tools of several servers in one view: whose name is whose, and what a dead server costs."""

from __future__ import annotations

import contextlib

import pytest
import trio

import afpool
from afpool import HttpTransport, Plan, Server
from afpool.testing import FakeServer, FakeTool, text_result
from tests.pool.kit import ALICE


def saying(server: str, *names: str) -> list[FakeTool]:
    return [FakeTool(name, lambda arguments, arrival: text_result(server)) for name in names]


@contextlib.asynccontextmanager
async def servers(**listed: tuple[str, ...]):
    """Open a pool over fake servers, each with the tools of these names; each tool says whose it is."""
    async with contextlib.AsyncExitStack() as stack:
        fakes = {
            name: await stack.enter_async_context(FakeServer.http(tools=saying(name, *tools)))
            for name, tools in listed.items()
        }
        plans = [
            Server(name=name, plan=Plan(transport=HttpTransport(url=fake.url)))
            for name, fake in fakes.items()
        ]
        yield await stack.enter_async_context(afpool.open_pool(plans))


async def owners(toolset: afpool.Toolset) -> dict[str, str]:
    return {name: (await tool.call(identity=ALICE)).text for name, tool in toolset.items()}


async def test_a_name_of_two_servers_is_qualified_and_leads_to_its_own():
    async with servers(a=("x", "y"), b=("x", "z")) as pool:
        toolset = await pool.tools(ALICE)
        assert await owners(toolset) == {"a__x": "a", "y": "a", "b__x": "b", "z": "b"}
        assert len(toolset) == 4
        assert {name: catalog.names for name, catalog in toolset.catalogs.items()} == {
            "a": ("x", "y"), "b": ("x", "z"),
        }  # fmt: skip
        with pytest.raises(KeyError):
            toolset["x"]
        assert "x" not in toolset
        assert "a__x" in toolset
        alone = await pool.tools(ALICE, "a")
        assert "x" in alone
        assert "z" not in alone


async def test_no_server_gets_the_calls_of_another_ones_qualified_name():
    async with servers(a=("x",), b=("x", "a__x")) as pool:
        toolset = await pool.tools(ALICE)
        assert await owners(toolset) == {"a__x": "a", "b__x": "b", "b__a__x": "b"}


async def test_a_tool_that_reads_like_its_own_qualified_name_is_told_apart():
    async with servers(a=("x", "a__x"), b=("x",)) as pool:
        toolset = await pool.tools(ALICE)
        assert await owners(toolset) == {"a__x": "a", "a__a__x": "a", "b__x": "b"}


async def test_a_server_that_cannot_be_listed_costs_its_own_tools_and_nobody_gets_its_names():
    async with FakeServer.http(tools=saying("a", "x", "dead__x", "odd name")) as fake:
        plans = [
            Server(name="a", plan=Plan(transport=HttpTransport(url=fake.url))),
            Server(name="dead", plan=Plan(transport=HttpTransport(url="http://127.0.0.1:9/mcp"))),
        ]
        async with afpool.open_pool(plans) as pool:
            with trio.fail_after(20):
                toolset = await pool.tools(ALICE)
            assert await owners(toolset) == {"x": "a", "a__dead__x": "a", "odd name": "a"}
            assert toolset.problems["dead"].code == "open-failed"
