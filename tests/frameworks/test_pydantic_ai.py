"""pydantic-ai's own agent loop over two real servers, with its own scripted models."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import trio
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from afpool import IdentityMissing, ToolContext, define_tool
from afpool.adapters import pydantic_ai_toolset
from tests.frameworks.frameworks_kit import ALICE, BOB, WITHIN, Deps, in_asyncio


def by_deps(ctx: Any) -> Any:
    return ctx.deps.identity


def scripted(*rounds: list[tuple[str, Any]]) -> tuple[FunctionModel, list[Any]]:
    """A model that makes these calls, round by round, then stops; and what it was told of them."""
    told: list[Any] = []

    def answer(messages: list[Any], info: Any) -> ModelResponse:
        said = [message for message in messages if isinstance(message, ModelResponse)]
        told.extend(part for part in messages[-1].parts if isinstance(part, ToolReturnPart | RetryPromptPart))
        if len(said) == len(rounds):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(name, args) for name, args in rounds[len(said)]])

    return FunctionModel(answer), told


def test_the_agents_loop_calls_tools_of_both_servers() -> None:
    async def main(runtime: Any) -> None:
        model, told = scripted(
            [("add", {"a": 2, "b": 3}), ("counter", {})], [("header", '{"name": "x-tenant"}')]
        )
        agent = Agent(model, toolsets=[pydantic_ai_toolset(runtime, ALICE, id="afpool")])
        result = await agent.run("go")
        assert result.output == "done"
        assert [(part.tool_name, part.content, part.outcome) for part in told] == [
            ("add", "5", "success"),
            ("counter", "1", "success"),
            ("header", "acme", "success"),
        ]
        assert told[0].metadata.delivery == "answered"

    in_asyncio(main)


def test_an_agents_run_is_one_run() -> None:
    @define_tool
    async def run_id(ctx: ToolContext) -> str:
        await trio.lowlevel.checkpoint()
        return ctx.run_id or ""

    async def main(runtime: Any) -> None:
        toolset = pydantic_ai_toolset(runtime, identity_of=by_deps)
        seen = []
        for _ in range(2):
            model, told = scripted([("run_id", {})], [("run_id", {})])
            await Agent(model, deps_type=Deps, toolsets=[toolset]).run("go", deps=Deps(ALICE))
            assert told[0].content == told[1].content
            seen.append(told[0].content)
        assert seen[0] != seen[1]
        assert all(seen)

    in_asyncio(main, tools=[run_id])


def test_its_test_model_reads_the_schemas() -> None:
    async def main(runtime: Any) -> None:
        model = TestModel(call_tools=["echo", "whoami"])
        agent = Agent(model, deps_type=Deps, toolsets=[pydantic_ai_toolset(runtime, identity_of=by_deps)])
        assert '"echo":"a"' in (await agent.run("go", deps=Deps(ALICE))).output
        shown = {tool.name: tool for tool in model.last_model_request_parameters.function_tools}
        assert shown["add"].parameters_json_schema["required"] == ["a", "b"]
        assert shown["add"].description == "Add two integers."

    in_asyncio(main)


def test_refusals_teach_and_failures_are_failures() -> None:
    async def main(runtime: Any) -> None:
        model, told = scripted(
            [("add", {"a": "two"})], [("fail", {"message": "out of order"})], [("add", {"a": 1, "b": 1})]
        )
        agent = Agent(model, toolsets=[pydantic_ai_toolset(runtime, ALICE)])
        assert (await agent.run("go")).output == "done"
        first, second, third = told
        assert (first.outcome, first.retry.cause) == ("retried", "model_retry")
        assert "- b: required but missing" in str(first.content)
        assert isinstance(second, ToolReturnPart)
        assert second.outcome == "failed"
        assert "out of order" in str(second.content)
        assert third.content == "2"

    in_asyncio(main)


def test_two_tenants_at_once_never_mix() -> None:
    async def main(runtime: Any) -> None:
        toolset = pydantic_ai_toolset(runtime, identity_of=by_deps)

        async def one(number: int) -> None:
            who = (ALICE, BOB)[number % 2]
            model, told = scripted([("header", {"name": "x-tenant"})], [("header", {"name": "x-tenant"})])
            await Agent(model, deps_type=Deps, toolsets=[toolset]).run("go", deps=Deps(who))
            assert [part.content for part in told] == [who.tenant] * 2

        await asyncio.gather(*(one(n) for n in range(8)))

    in_asyncio(main)


def test_nobody_is_not_meant_by_accident() -> None:
    async def main(runtime: Any) -> None:
        agent = Agent(TestModel(), toolsets=[pydantic_ai_toolset(runtime, identity_of=by_deps)])
        with pytest.raises(IdentityMissing, match="NoneType, no identity"):
            await agent.run("go", deps=Deps(None))
        with pytest.raises(TypeError, match="not by both"):
            pydantic_ai_toolset(runtime, ALICE, identity_of=by_deps)

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
        model, _ = scripted([("stuck", {})])
        task = asyncio.create_task(Agent(model, toolsets=[pydantic_ai_toolset(runtime, ALICE)]).run("go"))
        assert await asyncio.to_thread(began.wait, WITHIN)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    in_asyncio(main, tools=[stuck])
