"""Vendors' formats: the shapes that their APIs publish, and a round trip of each through the door."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import jsonschema_rs
import pytest
import trio
from hypothesis import given

from afpool.tools import (
    ANTHROPIC,
    GEMINI,
    MCP,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    PLAIN,
    ModelCall,
    ToolFormat,
    answer_calls,
    content_result,
    define_tool,
    derive,
    from_identity,
    host_filled,
)
from afpool.tools._asking import Asking
from tests.tools.door_kit import ALICE, SECRET, Ran, Through, door

if TYPE_CHECKING:
    from afpool import Tool, ToolResult

ALL = {
    "anthropic": ANTHROPIC, "chat": OPENAI_CHAT, "responses": OPENAI_RESPONSES, "gemini": GEMINI, "mcp": MCP,
    "plain": PLAIN,
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"location": {"type": "string", "description": "City"}},
    "required": ["location"],
}


def weather(**more: Any) -> Tool:
    return define_tool(
        execute=lambda args, ctx: {"temperature": 20, "at": args["location"]},
        name="get_weather",
        description="Weather now",
        input_schema=SCHEMA,
        **more,
    )


class Callee:
    """Calls tools through a door."""

    def __init__(self, *tools: Tool) -> None:
        self.through: Through = door()
        self.tools = {tool.name: tool for tool in tools}
        self.running = 0
        self.most = 0

    async def call(self, name: str, args: Any = None, *, deadline: float | None = None) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.through.door.dispatch(
                Asking(name=name, tool=self.tools.get(name), args=args, identity=ALICE, deadline=deadline)
            )
        finally:
            self.running -= 1


# What each API publishes: tools as it lists them, an answer with a call, what follows it.
ARGUMENTS = '{"location": "Paris"}'
OUTPUT = '{"temperature":20,"at":"Paris"}'
PUBLISHED: dict[str, tuple[Any, Any, Any]] = {
    "anthropic": (
        [{"name": "get_weather", "description": "Weather now", "input_schema": SCHEMA}],
        {
            "id": "msg_01", "type": "message", "role": "assistant", "stop_reason": "tool_use",
            "content": [
                {"type": "text", "text": "I'll look."},
                {"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"location": "Paris"}},
            ],
        },
        [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_01", "content": OUTPUT},
        ]}],
    ),
    "chat": (
        [{"type": "function", "function": {
            "name": "get_weather", "description": "Weather now", "parameters": SCHEMA,
        }}],
        {
            "id": "chatcmpl-1", "object": "chat.completion",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": {
                    "name": "get_weather", "arguments": ARGUMENTS,
                }}],
            }}],
        },
        [{"role": "tool", "tool_call_id": "call_1", "content": OUTPUT}],
    ),
    "responses": (
        [{
            "type": "function", "name": "get_weather", "description": "Weather now", "parameters": SCHEMA,
            "strict": False,
        }],
        {
            "id": "resp_1", "object": "response",
            "output": [
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {
                    "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather",
                    "arguments": ARGUMENTS, "status": "completed",
                },
            ],
        },
        [{"type": "function_call_output", "call_id": "call_1", "output": OUTPUT}],
    ),
    "gemini": (
        [{"functionDeclarations": [{
            "name": "get_weather", "description": "Weather now", "parametersJsonSchema": SCHEMA,
        }]}],
        {"candidates": [{"content": {"role": "model", "parts": [
            {"text": "I'll look."},
            {"functionCall": {"id": "fn-1", "name": "get_weather", "args": {"location": "Paris"}}},
        ]}}]},
        [{"role": "user", "parts": [{"functionResponse": {
            "name": "get_weather", "id": "fn-1",
            "response": {"output": {"temperature": 20, "at": "Paris"}},
        }}]}],
    ),
    "mcp": (
        [{"name": "get_weather", "description": "Weather now", "inputSchema": SCHEMA}],
        {
            "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "get_weather", "arguments": {"location": "Paris"}},
        },
        [{"jsonrpc": "2.0", "id": 7, "result": {
            "content": [{"type": "text", "text": OUTPUT}],
            "structuredContent": {"temperature": 20, "at": "Paris"},
        }}],
    ),
    "plain": (
        [{"name": "get_weather", "description": "Weather now", "input_schema": SCHEMA}],
        {"id": "1", "name": "get_weather", "args": {"location": "Paris"}},
        [{
            "id": "1", "name": "get_weather", "is_error": False, "code": "ok", "delivery": "answered",
            "text": OUTPUT, "structured": {"temperature": 20, "at": "Paris"},
        }],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
async def test_what_the_api_publishes_there_and_back(name: str) -> None:
    listed, answer, follows = PUBLISHED[name]
    tool = weather()
    assert ALL[name].tools([tool]) == listed
    assert ALL[name].tools({tool.name: tool}) == listed
    json.dumps(listed)
    assert await answer_calls(Callee(tool), answer, ALL[name]) == follows


@pytest.mark.parametrize("name", ALL)
def test_a_message_alone_reads_as_the_whole_response_does(name: str) -> None:
    answer = PUBLISHED[name][1]
    inner = {
        "anthropic": lambda: answer["content"],
        "chat": lambda: answer["choices"][0]["message"],
        "responses": lambda: answer["output"],
        "gemini": lambda: answer["candidates"][0]["content"],
    }.get(name, lambda: [answer])()
    whole = ALL[name].calls(answer)
    assert ALL[name].calls(inner) == whole
    assert [(call.name, call.args) for call in whole] == [("get_weather", {"location": "Paris"})]
    assert "Paris" not in repr(whole)


def said(name: str, follows: list[dict[str, Any]]) -> tuple[str, bool]:
    """The text that a model is told, and whether the format says that it is a failure."""
    (one,) = follows
    if name == "anthropic":
        (block,) = one["content"]
        return block["content"], block.get("is_error", False)
    if name == "chat":
        return one["content"], False
    if name == "responses":
        return one["output"], False
    if name == "gemini":
        response = one["parts"][0]["functionResponse"]["response"]
        return response.get("error") or response["output"], "error" in response
    if name == "mcp":
        return one["result"]["content"][0]["text"], one["result"].get("isError", False)
    return one["text"], one["is_error"]


def with_args(name: str, args: Any) -> Any:
    answer = json.loads(json.dumps(PUBLISHED[name][1]))
    if name == "anthropic":
        answer["content"][1]["input"] = args
    elif name == "chat":
        answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = args
    elif name == "responses":
        answer["output"][1]["arguments"] = args
    elif name == "gemini":
        answer["candidates"][0]["content"]["parts"][1]["functionCall"]["args"] = args
    elif name == "mcp":
        answer["params"]["arguments"] = args
    else:
        answer["args"] = args
    return answer


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("args", ["{not json", '{"a": NaN}', "[1]", 3, ["x"], "\ud800"])
async def test_arguments_that_are_no_object_are_refused_at_the_door(name: str, args: Any) -> None:
    callee = Callee(weather())
    follows = await answer_calls(callee, with_args(name, args), ALL[name])
    text, failed = said(name, follows)
    assert text.startswith("The arguments of get_weather are a JSON object, not ")
    assert failed == (name not in ("chat", "responses"))
    assert callee.through.events.kinds == ["tool_start", "tool_end"]


@pytest.mark.parametrize("name", ["chat", "responses"])
async def test_no_arguments_at_all_are_an_empty_object(name: str) -> None:
    work = Ran(name="get_weather")
    for args in ("", " ", "{}", None):
        await answer_calls(Callee(work.tool), with_args(name, args), ALL[name])
    assert [args for args, _ in work.calls] == [{}] * 4


@pytest.mark.parametrize("name", ALL)
async def test_refusals_and_failures_are_told(name: str) -> None:
    text, failed = said(name, await answer_calls(Callee(), PUBLISHED[name][1], ALL[name]))
    assert text == "There is no tool 'get_weather', and no other one; nothing ran"
    assert failed == (name not in ("chat", "responses"))
    no = Ran(content_result([{"type": "text", "text": "no"}], is_error=True), name="get_weather")
    text, failed = said(name, await answer_calls(Callee(no.tool), PUBLISHED[name][1], ALL[name]))
    assert text == ("Error: no" if name in ("chat", "responses") else "no")


PICTURE = content_result(
    [
        {"type": "text", "text": "before"},
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        {"type": "text", "text": "after"},
        {"type": "audio", "data": "QUJD", "mimeType": "audio/wav"},
        {"type": "image", "data": "QUJD", "mimeType": "image/tiff"},
    ]
)


async def test_images_are_passed_on_where_the_api_takes_them() -> None:
    callee = Callee(Ran(PICTURE, name="get_weather").tool)
    tail = "after\n[audio: audio/wav, 3 bytes]\n[image: image/tiff, 3 bytes]"
    follows = {name: await answer_calls(callee, PUBLISHED[name][1], ALL[name]) for name in ALL}
    assert follows["anthropic"][0]["content"][0]["content"] == [
        {"type": "text", "text": "before"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"type": "text", "text": tail},
    ]
    assert follows["responses"][0]["output"] == [
        {"type": "input_text", "text": "before"},
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD"},
        {"type": "input_text", "text": tail},
    ]
    text = f"before\n[image: image/png, 3 bytes]\n{tail}"
    assert follows["chat"][0]["content"] == text
    assert follows["gemini"][0]["parts"][0]["functionResponse"]["response"] == {"output": text}
    assert follows["mcp"][0]["result"] == PICTURE.document


async def test_several_calls_are_answered_in_order() -> None:
    order: list[str] = []

    async def work(args: Any, ctx: Any) -> str:
        order.append(args["n"])
        await trio.lowlevel.checkpoint()
        return str(args["n"])

    tool = define_tool(execute=work, name="t", input_schema={})
    content = [{"type": "tool_use", "id": f"i{n}", "name": "t", "input": {"n": n}} for n in range(5)]
    for at_once, most in ((1, 1), (3, 3), (9, 5)):
        order.clear()
        callee = Callee(tool)
        (message,) = await answer_calls(callee, {"content": content}, ANTHROPIC, at_once=at_once)
        assert [block["content"] for block in message["content"]] == ["0", "1", "2", "3", "4"]
        assert [block["tool_use_id"] for block in message["content"]] == ["i0", "i1", "i2", "i3", "i4"]
        assert callee.most == most
        if at_once == 1:
            assert order == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="at_once"):
        await answer_calls(Callee(), {}, ANTHROPIC, at_once=0)


@pytest.mark.parametrize("name", ALL)
async def test_an_answer_without_calls_needs_no_answer(name: str) -> None:
    for nothing in (
        {},
        [],
        None,
        "text",
        3,
        {"content": "hello"},
        {"choices": []},
        {"candidates": [{}]},
        [3, "x"],
    ):
        if name == "plain" and nothing not in ([], None, "text", 3, [3, "x"]):
            continue
        assert ALL[name].calls(nothing) == []
        assert await answer_calls(Callee(), nothing, ALL[name]) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "content", "type", "tool_use", "choices", "message", "tool_calls", "function", "output",
                    "name", "candidates", "parts", "functionCall", "arguments", "id", "params", "method",
                ]
            ),
            inner | st.sampled_from(["tool_use", "function_call", "tools/call"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(sorted(ALL)), JSON)
def test_whatever_a_model_says_is_read(name: str, message: Any) -> None:
    for call in ALL[name].calls(message):
        assert isinstance(call.name, str)
        assert isinstance(call.id, str | int)


# ---------------------------------------------------------------------------- schemas as vendors take them


@pytest.mark.parametrize("name", ["anthropic", "chat", "responses", "gemini"])
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": None},
        {"type": ["object", "null"], "properties": {"a": {}}},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"anyOf": [{}]}}},
        {"$ref": "#/$defs/args", "$defs": {"args": {"type": "object", "properties": {"a": {"enum": [1]}}}}},
        {"$ref": "#/$defs/none"},
        {"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"properties": {"a": {}}, "not": {"required": ["x"]}}},
        {"$ref": "#/a", "a": {"$ref": "#/a"}},
    ],
)
def test_at_its_root_a_schema_is_of_an_object_and_never_narrower(name: str, schema: Any) -> None:
    tool = derive(weather(), input_schema=schema)
    listed = ALL[name].tools([tool])[0]
    shown = (
        listed.get("input_schema")
        or listed.get("parameters")
        or (listed.get("function") or {}).get("parameters")
        or listed["functionDeclarations"][0]["parametersJsonSchema"]
    )
    assert shown["type"] == "object"
    assert isinstance(shown["properties"], dict)
    assert not set(shown) & {"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "if"}
    assert tool.input_schema == schema
    for args in ({}, {"a": 1}, {"a": 1, "b": 2}, {"x": 0}):
        try:
            allowed = jsonschema_rs.is_valid(schema, args)
        except ValueError:
            continue
        assert jsonschema_rs.is_valid(shown, args) or not allowed
    shown["properties"]["spoilt"] = {}
    assert tool.input_schema == schema


def test_what_the_host_fills_is_in_no_format() -> None:
    tool = host_filled(
        derive(weather(), input_schema={"properties": {"location": {}, "tenant_id": {"const": SECRET}}}),
        {"tenant_id": from_identity("tenant")},
    )
    for tool_format in ALL.values():
        text = json.dumps(tool_format.tools([tool]))
        assert "location" in text
        assert "tenant_id" not in text
        assert SECRET not in text


def test_what_else_a_tool_declares_is_told_where_there_is_a_place_for_it() -> None:
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = weather(output_schema=output, annotations={"readOnlyHint": True})
    (mcp,) = MCP.tools([tool])
    assert (mcp["outputSchema"], mcp["annotations"]) == (output, {"readOnlyHint": True})
    (plain,) = PLAIN.tools([tool])
    assert (plain["output_schema"], plain["annotations"]) == (output, {"readOnlyHint": True})
    assert MCP.tools([derive(tool, input_schema={})])[0]["inputSchema"] == {"type": "object"}
    assert ALL["gemini"].tools([]) == []


def test_a_name_that_gemini_refuses_comes_back_as_it_was() -> None:
    names = ["1st", "-x", "_ok", "ok", "_1st", "__1st", "_", "__", "_-", "Ok"]
    shown = [
        GEMINI.tools([derive(weather(), name=name)])[0]["functionDeclarations"][0]["name"] for name in names
    ]
    assert all(one[0].isalpha() or one[0] == "_" for one in shown)
    assert len(set(shown)) == len(names)
    message = {"parts": [{"functionCall": {"name": one}} for one in shown]}
    assert [call.name for call in GEMINI.calls(message)] == names
    result = GEMINI.results([(ModelCall("", "1st", {}), content_result([]))])
    assert result[0]["parts"][0]["functionResponse"] == {"name": "_1st", "response": {"output": ""}}


def test_formats_are_what_the_port_says() -> None:
    formats: list[ToolFormat] = list(ALL.values())
    assert all(callable(one.tools) for one in formats)


def test_of_a_message_of_mcp_only_calls_of_tools_are_read() -> None:
    params = {"name": "search", "arguments": {}}
    other = {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": params}
    assert MCP.calls([other]) == []
    assert [call.name for call in MCP.calls([{**other, "method": "tools/call"}])] == ["search"]
