"""The plain loop over the vendors' own clients, whose HTTP is scripted, and two real servers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from afpool.adapters import TooManyRounds, message_loop
from afpool.tools import ANTHROPIC, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES
from tests.frameworks.frameworks_kit import ALICE, BOB, in_asyncio

USER = [{"role": "user", "content": "go"}]


def client_of(answers: list[dict[str, Any]], asked: list[dict[str, Any]]) -> httpx2.AsyncClient:
    left = iter(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        return httpx2.Response(200, json=next(left))

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def anthropic_answer(*calls: tuple[str, Any]) -> dict[str, Any]:
    blocks: list[Any] = [
        {"type": "tool_use", "id": f"t{at}", "name": name, "input": args}
        for at, (name, args) in enumerate(calls)
    ]
    return {
        "id": "m1", "type": "message", "role": "assistant", "model": "m",
        "content": blocks or [{"type": "text", "text": "done"}],
        "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def chat_answer(*calls: tuple[str, Any]) -> dict[str, Any]:
    made = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for at, (name, args) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else "done"}
    if calls:
        message["tool_calls"] = made
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def response_answer(*calls: tuple[str, Any]) -> dict[str, Any]:
    output: list[Any] = [
        {
            "type": "function_call", "id": f"fc{at}", "call_id": f"c{at}", "name": name,
            "arguments": json.dumps(args), "status": "completed",
        }
        for at, (name, args) in enumerate(calls)
    ]  # fmt: skip
    if not calls:
        text = {"type": "output_text", "text": "done", "annotations": []}
        output = [
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        ]
    return {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def ask_anthropic(http: httpx2.AsyncClient) -> Any:
    client = AsyncAnthropic(api_key="k", http_client=http, max_retries=0)

    async def ask(messages: list[Any], tools: list[Any]) -> Any:
        return await client.messages.create(model="m", max_tokens=10, messages=messages, tools=tools)

    return ask


def ask_chat(http: httpx2.AsyncClient) -> Any:
    client = AsyncOpenAI(api_key="k", http_client=http, max_retries=0)

    async def ask(messages: list[Any], tools: list[Any]) -> Any:
        return await client.chat.completions.create(model="m", messages=messages, tools=tools)

    return ask


def ask_responses(http: httpx2.AsyncClient) -> Any:
    client = AsyncOpenAI(api_key="k", http_client=http, max_retries=0)

    async def ask(messages: list[Any], tools: list[Any]) -> Any:
        return await client.responses.create(model="m", input=messages, tools=tools)

    return ask


WAYS = pytest.mark.parametrize(
    ("tool_format", "answer", "ask"),
    [
        (ANTHROPIC, anthropic_answer, ask_anthropic),
        (OPENAI_CHAT, chat_answer, ask_chat),
        (OPENAI_RESPONSES, response_answer, ask_responses),
    ],
    ids=["anthropic", "chat", "responses"],
)


@WAYS
def test_a_vendors_client_and_both_servers(tool_format: Any, answer: Any, ask: Any) -> None:
    rounds = [
        answer(("add", {"a": 2, "b": 3}), ("counter", {})),
        answer(("add", {"a": "two"}), ("header", {"name": "x-tenant"})),
        answer(),
    ]
    asked: list[Any] = []

    async def main(runtime: Any) -> None:
        async with client_of(rounds, asked) as http:
            said = await message_loop(runtime, ask(http), USER, tool_format, identity=ALICE)
        assert said[0] == USER[0]
        assert "done" in json.dumps(said[-1])
        assert len(asked) == 3
        told = json.dumps(asked[-1])
        assert "required but missing" in told
        assert "acme" in told
        names = json.dumps(asked[0]["tools"])
        assert all(f'"{name}"' in names for name in ("add", "counter"))
        if tool_format is ANTHROPIC:
            results = asked[-1]["messages"][-1]["content"]
            assert [block.get("is_error", False) for block in results] == [True, False]

    in_asyncio(main)


@WAYS
def test_two_tenants_at_once_never_mix(tool_format: Any, answer: Any, ask: Any) -> None:
    async def main(runtime: Any) -> None:
        async def one(number: int) -> None:
            who = (ALICE, BOB)[number % 2]
            asked: list[Any] = []
            async with client_of([answer(("header", {"name": "x-tenant"})), answer()], asked) as http:
                await message_loop(runtime, ask(http), USER, tool_format, identity=who)
            told = json.dumps(asked[-1])
            assert (who.tenant or "") in told
            assert ({"acme", "globex"} - {who.tenant}).pop() not in told

        await asyncio.gather(*(one(n) for n in range(4)))

    in_asyncio(main)


def test_its_bounds() -> None:
    async def main(runtime: Any) -> None:
        asked: list[Any] = []
        async with client_of([anthropic_answer(("counter", {}))] * 2, asked) as http:
            ask = ask_anthropic(http)
            with pytest.raises(TooManyRounds, match="after 2 rounds") as caught:
                await message_loop(runtime, ask, USER, ANTHROPIC, identity=ALICE, max_rounds=2)
            assert len(caught.value.messages) == 5, "to go on with"
            with pytest.raises(ValueError, match="max_rounds"):
                await message_loop(runtime, ask, USER, ANTHROPIC, identity=ALICE, max_rounds=0)
            with pytest.raises(ValueError, match="knows ANTHROPIC"):
                await message_loop(runtime, ask, USER, GEMINI, identity=ALICE)

    in_asyncio(main)
