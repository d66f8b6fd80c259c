"""LangChain's own agent over two real servers, with its fake chat model."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import trio
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from afpool import define_tool
from afpool.adapters import langchain_tools
from tests.frameworks.frameworks_kit import ALICE, BOB, WITHIN, in_asyncio


class Scripted(GenericFakeChatModel):
    """The framework's own; it is told of tools and makes the calls that stand in its messages."""

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


def scripted(*rounds: list[tuple[str, Any]]) -> Scripted:
    messages = []
    for number, calls in enumerate(rounds):
        made = [
            {"name": name, "args": args, "id": f"c{number}-{at}", "type": "tool_call"}
            for at, (name, args) in enumerate(calls)
        ]
        messages.append(AIMessage("", tool_calls=made))
    return Scripted(messages=iter([*messages, AIMessage("done")]))


def told(state: Any) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


ASKED = {"messages": [{"role": "user", "content": "go"}]}


def test_the_agent_calls_tools_of_both_servers_and_refusals_teach() -> None:
    @define_tool(name="odd")
    async def odd(config: str, run_manager: str = "m") -> str:
        await trio.lowlevel.checkpoint()
        return config + run_manager

    async def main(runtime: Any) -> None:
        tools = await langchain_tools(runtime, ALICE)
        model = scripted(
            [("add", {"a": 2, "b": 3}), ("counter", {})],
            [("add", {"a": "two"}), ("fail", {"message": "out of order"})],
            [("odd", {"config": "mine"})],
        )
        state = await create_agent(model, tools).ainvoke(ASKED)
        assert state["messages"][-1].content == "done"
        first, second, third, fourth, fifth = told(state)
        assert [(one.content, one.status) for one in (first, second)] == [("5", "success"), ("1", "success")]
        assert first.artifact.delivery == "answered"
        assert third.status == fourth.status == "error"
        assert "- b: required but missing" in third.content
        assert "out of order" in fourth.content
        assert fifth.content == "minem", "arguments that are called as the framework's own"
        add = next(tool for tool in tools if tool.name == "add")
        assert add.args_schema["required"] == ["a", "b"]
        assert add.description == "Add two integers."

    in_asyncio(main, tools=[odd])


def test_two_tenants_at_once_never_mix_in_loops_and_threads() -> None:
    async def main(runtime: Any) -> None:
        tools = await langchain_tools(
            runtime, ALICE, identity_of=lambda config: config["configurable"]["identity"]
        )

        async def one(number: int) -> None:
            who = (ALICE, BOB)[number % 2]
            agent = create_agent(scripted([("header", {"name": "x-tenant"})]), tools)
            config: Any = {"configurable": {"identity": who}}
            if number < 6:
                state = await agent.ainvoke(ASKED, config)
            else:
                state = await asyncio.to_thread(agent.invoke, ASKED, config)
            assert [message.content for message in told(state)] == [who.tenant]

        await asyncio.gather(*(one(n) for n in range(8)))
        state = await create_agent(scripted([("counter", {})]), tools).ainvoke(ASKED)
        assert told(state)[0].status == "error", "nobody was named"
        assert "identity_of raised KeyError; nothing was sent" in told(state)[0].content

    in_asyncio(main)


def test_a_cancelled_run_cancels_its_call() -> None:
    began, ended = threading.Event(), threading.Event()

    @define_tool
    async def stuck() -> str:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return "never"

    async def main(runtime: Any) -> None:
        agent = create_agent(scripted([("stuck", {})]), await langchain_tools(runtime, ALICE))
        task = asyncio.create_task(agent.ainvoke(ASKED))
        assert await asyncio.to_thread(began.wait, WITHIN)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, WITHIN)

    in_asyncio(main, tools=[stuck])
