"""The formats of Anthropic, OpenAI (chat and responses), Gemini, MCP, and plain JSON; see `_formats`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, final

from ._formats import (
    Answered,
    ModelCall,
    ToolFormat,
    Tools,
    each,
    objects,
    parsed,
    plain_text,
    root_object,
    text,
)
from ._reading import read_text, reading_parts

if TYPE_CHECKING:
    from .._base.model import Tool, ToolResult

# Names that begin with a digit or a dash, and those that would be read as one of them with an underscore.
_NOT_GEMINIS: Final = re.compile(r"_*[^A-Za-z_]")


@final
class _Anthropic:
    """The Messages API: `tools`, `tool_use` blocks, and a user message of `tool_result` blocks."""

    def tools(self, tools: Tools) -> list[dict[str, Any]]:
        return [
            {"name": tool.name, "description": tool.description, "input_schema": root_object(tool)}
            for tool in each(tools)
        ]

    def calls(self, message: Any) -> list[ModelCall]:
        content = message.get("content") if isinstance(message, dict) else message
        return [
            ModelCall(text(block.get("id")), text(block.get("name")), block.get("input"))
            for block in objects(content)
            if block.get("type") == "tool_use"
        ]

    def results(self, answered: Answered) -> list[dict[str, Any]]:
        blocks = [self._block(call, result) for call, result in answered]
        return [{"role": "user", "content": blocks}] if blocks else []

    @staticmethod
    def _block(call: ModelCall, result: ToolResult) -> dict[str, Any]:
        parts = reading_parts(result)
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id}
        if len(parts) == 1 and isinstance(parts[0], str):
            block["content"] = parts[0]
        else:
            block["content"] = [
                {"type": "text", "text": part}
                if isinstance(part, str)
                else {
                    "type": "image",
                    "source": {"type": "base64", "media_type": part[0], "data": part[1]},
                }
                for part in parts
                if part  # an empty text block is refused
            ]
        if result.is_error:
            block["is_error"] = True
        return block


@final
class _OpenAIChat:
    """Chat completions: `tools` of functions, `tool_calls`, and a `tool` message for each."""

    def tools(self, tools: Tools) -> list[dict[str, Any]]:
        return [{"type": "function", "function": _function(tool)} for tool in each(tools)]

    def calls(self, message: Any) -> list[ModelCall]:
        if isinstance(message, dict) and "choices" in message:
            first = next(iter(objects(message["choices"])), {})
            message = first.get("message")
        made = []
        for call in objects(message.get("tool_calls") if isinstance(message, dict) else message):
            function = call.get("function")
            if isinstance(function, dict):
                name, arguments = text(function.get("name")), parsed(function.get("arguments"))
                made.append(ModelCall(text(call.get("id")), name, arguments))
        return made

    def results(self, answered: Answered) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call.id, "content": plain_text(result)}
            for call, result in answered
        ]


@final
class _OpenAIResponses:
    """The Responses API: `tools` of functions, `function_call` items, a `function_call_output` for each."""

    def tools(self, tools: Tools) -> list[dict[str, Any]]:
        # strict is the API's default, and takes schemas of one shape only
        return [{"type": "function", **_function(tool), "strict": False} for tool in each(tools)]

    def calls(self, message: Any) -> list[ModelCall]:
        items = message.get("output") if isinstance(message, dict) else message
        return [
            ModelCall(text(item.get("call_id")), text(item.get("name")), parsed(item.get("arguments")))
            for item in objects(items)
            if item.get("type") == "function_call"
        ]

    def results(self, answered: Answered) -> list[dict[str, Any]]:
        return [
            {"type": "function_call_output", "call_id": call.id, "output": self._output(result)}
            for call, result in answered
        ]

    @staticmethod
    def _output(result: ToolResult) -> Any:
        parts = reading_parts(result)
        if all(isinstance(part, str) for part in parts):
            return plain_text(result)
        return [
            {"type": "input_text", "text": part}
            if isinstance(part, str)
            else {"type": "input_image", "image_url": f"data:{part[0]};base64,{part[1]}"}
            for part in parts
        ]


def _function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": root_object(tool)}


@final
class _Gemini:
    """`generateContent`: function declarations, `functionCall` parts, a content of `functionResponse` parts.

    A name that does not begin as Gemini wants it has an underscore in front there, and none here.
    """

    def tools(self, tools: Tools) -> list[dict[str, Any]]:
        declared = [
            {
                "name": _gemini_name(tool.name),
                "description": tool.description or tool.name,
                "parametersJsonSchema": root_object(tool),
            }
            for tool in each(tools)
        ]
        return [{"functionDeclarations": declared}] if declared else []

    def calls(self, message: Any) -> list[ModelCall]:
        if isinstance(message, dict) and "candidates" in message:
            first = next(iter(objects(message["candidates"])), {})
            message = first.get("content")
        made = []
        for part in objects(message.get("parts") if isinstance(message, dict) else message):
            call = part.get("functionCall")
            if isinstance(call, dict):
                name = text(call.get("name"))
                if name.startswith("_") and _NOT_GEMINIS.match(name[1:]):
                    name = name[1:]
                made.append(ModelCall(text(call.get("id")), name, call.get("args")))
        return made

    def results(self, answered: Answered) -> list[dict[str, Any]]:
        parts = []
        for call, result in answered:
            response: dict[str, Any] = {"name": _gemini_name(call.name)}
            if call.id:
                response["id"] = call.id
            if result.is_error:
                response["response"] = {"error": read_text(result)}
            else:
                structured = result.structured
                response["response"] = {
                    "output": structured if isinstance(structured, dict) else read_text(result)
                }
            parts.append({"functionResponse": response})
        return [{"role": "user", "parts": parts}] if parts else []


def _gemini_name(name: str) -> str:
    return f"_{name}"[:64] if _NOT_GEMINIS.match(name) else name


@final
class _Mcp:
    """MCP: tools as `tools/list` lists them, `tools/call` requests, and JSON-RPC responses."""

    def tools(self, tools: Tools) -> list[dict[str, Any]]:
        listed = []
        for tool in each(tools):
            one: dict[str, Any] = {"name": tool.name, "description": tool.description}
            one["inputSchema"] = dict(tool.input_schema) or {"type": "object"}
            output, annotations = tool.output_schema, tool.annotations
            if output is not None:
                one["outputSchema"] = output
            if annotations is not None:
                one["annotations"] = annotations
            listed.append(one)
        return listed

    def calls(self, message: Any) -> list[ModelCall]:
        made = []
        for request in objects([message] if isinstance(message, dict) else message):
            params, number = request.get("params"), request.get("id")
            if request.get("method") == "tools/call" and isinstance(params, dict):
                call_id = number if type(number) is int else text(number)
                made.append(ModelCall(call_id, text(params.get("name")), params.get("arguments")))
        return made

    def results(self, answered: Answered) -> list[dict[str, Any]]:
        return [{"jsonrpc": "2.0", "id": call.id, "result": result.document} for call, result in answered]


@final
class _Plain:
    """Plain JSON, for an agent with a format of its own."""

    def tools(self, tools: Tools) -> list[dict[str, Any]]:
        listed = []
        for tool in each(tools):
            one: dict[str, Any] = {"name": tool.name, "description": tool.description}
            one["input_schema"] = dict(tool.input_schema)
            output, annotations, source = tool.output_schema, tool.annotations, tool.source
            optional = {"output_schema": output, "annotations": annotations, "source": source}
            one |= {key: value for key, value in optional.items() if value is not None}
            listed.append(one)
        return listed

    def calls(self, message: Any) -> list[ModelCall]:
        return [
            ModelCall(text(call.get("id")), text(call.get("name")), call.get("args"))
            for call in objects([message] if isinstance(message, dict) else message)
        ]

    def results(self, answered: Answered) -> list[dict[str, Any]]:
        told = []
        for call, result in answered:
            one: dict[str, Any] = {"id": call.id, "name": call.name, "is_error": result.is_error}
            one |= {"code": result.code, "delivery": result.delivery, "text": read_text(result)}
            if result.has_structured:
                one["structured"] = result.structured
            told.append(one)
        return told


ANTHROPIC: Final[ToolFormat] = _Anthropic()
"""Anthropic's Messages API."""
OPENAI_CHAT: Final[ToolFormat] = _OpenAIChat()
"""OpenAI's chat completions, and the many APIs that speak as they do."""
OPENAI_RESPONSES: Final[ToolFormat] = _OpenAIResponses()
"""OpenAI's Responses API."""
GEMINI: Final[ToolFormat] = _Gemini()
"""Google's `generateContent`."""
MCP: Final[ToolFormat] = _Mcp()
"""The Model Context Protocol."""
PLAIN: Final[ToolFormat] = _Plain()
"""Plain JSON."""
