"""The OpenAI Agents SDK's own runner over two real servers, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
import trio
from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from afpool import IdentityMissing, define_tool
from afpool.adapters import openai_agents_tools
from tests.frameworks.frameworks_kit import ALICE, BOB, WITHIN, Deps, in_asyncio

set_tracing_disabled(True)


class Scripted(Model):
    """Makes these calls, round by round, then stops; notes the tools it was shown and what it was told."""

    def __init__(self, *rounds: list[tuple[str, Any]]) -> None:
        self.rounds = list(rounds)
        self.shown: list[Any] = []
        self.told: list[str] = []
        self.calls = 0

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 -- the framework's word
        *args: Any,
        **more: Any,
    ) -> ModelResponse:
        tools = args[1] if len(args) > 1 else more["tools"]
        self.shown = tools
        if not isinstance(input, str):
            outputs = [item for item in input if item.get("type") == "function_call_output"]
            self.told = [item["output"] for item in outputs]
        if not self.rounds:
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            output: list[Any] = [
                ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            ]
        else:
            output = []
            for name, args_ in self.rounds.pop(0):
                self.calls += 1
                text_ = args_ if isinstance(args_, str) else json.dumps(args_)
                output.append(
                    ResponseFunctionToolCall(
                        call_id=f"c{self.calls}", name=name, arguments=text_, type="function_call"
                    )
                )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError


def by_context(ctx: Any) -> Any:
    return ctx.context.identity


def test_the_runner_calls_tools_of_both_servers_and_refusals_teach() -> None:
    async def main(runtime: Any) -> None:
        model = Scripted(
            [("add", {"a": 2, "b": 3}), ("counter", {})],
            [("add", {"a": "two"}), ("add", "no JSON"), ("fail", {"message": "out of order"})],
        )
        agent = Agent(name="a", model=model, tools=await openai_agents_tools(runtime, ALICE))
        result = await Runner.run(agent, "go")
        assert result.final_output == "done"
        assert model.told[:2] == ["5", "1"]
        assert "- b: required but missing" in model.told[2]
        assert "are a JSON object, not" in model.told[3]
        assert "out of order" in model.told[4]
        shown = {tool.name: tool for tool in model.shown}
        assert shown["add"].params_json_schema["required"] == ["a", "b"]

    in_asyncio(main)


def test_two_tenants_at_once_never_mix() -> None:
    async def main(runtime: Any) -> None:
        tools = await openai_agents_tools(runtime, ALICE, identity_of=by_context)

        async def one(number: int) -> None:
            who = (ALICE, BOB)[number % 2]
            model = Scripted([("header", {"name": "x-tenant"})], [("header", {"name": "x-tenant"})])
            agent = Agent(name="a", model=model, tools=tools)
            await Runner.run(agent, "go", context=Deps(who))
            assert model.told == [who.tenant] * 2

        await asyncio.gather(*(one(n) for n in range(8)))
        with pytest.raises(IdentityMissing):
            await Runner.run(Agent(name="a", model=Scripted(), tools=tools), "go", context=Deps(None))

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
        agent = Agent(
            name="a", model=Scripted([("stuck", {})]), tools=await openai_agents_tools(runtime, ALICE)
        )
        task = asyncio.create_task(Runner.run(agent, "go"))
        assert await asyncio.to_thread(began.wait, WITHIN)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, WITHIN)

    in_asyncio(main, tools=[stuck])
