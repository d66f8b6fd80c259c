"""How a model writes a call, in the format of each vendor, and what it reads of the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from afpool.tools import ANTHROPIC, GEMINI, MCP, OPENAI_CHAT, OPENAI_RESPONSES, PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool.tools import ToolFormat

FORMATS: Final[Mapping[str, ToolFormat]] = {
    "messages": ANTHROPIC,
    "openai-chat": OPENAI_CHAT,
    "openai-responses": OPENAI_RESPONSES,
    "gemini": GEMINI,
    "mcp": MCP,
    "plain": PLAIN,
}


def written(model: str, call: str, name: str, args: Any, variant: int) -> Any:
    """A model's answer that makes one call, among things that are none.

    Args:
        model: Whose format.
        call: The model's name for the call.
        name: Of the tool.
        args: As the model gives them.
        variant: Which of the forms that there are: a whole response, its message, or only the list.
    """
    whole = variant % 3
    text = args if isinstance(args, str) else json.dumps(args)
    if model == "messages":
        content = [{"type": "text", "text": "let me see"}, 7, _tool_use(call, name, args)]
        return {"role": "assistant", "content": content} if whole else content
    if model == "openai-chat":
        calls = [{"id": call, "type": "function", "function": {"name": name, "arguments": text}}, {"id": "x"}]
        message = {"role": "assistant", "tool_calls": calls}
        return {"choices": [{"message": message}]} if whole == 2 else message if whole else calls
    if model == "openai-responses":
        items = [
            {"type": "reasoning"},
            {"type": "function_call", "call_id": call, "name": name, "arguments": text},
        ]
        return {"output": items} if whole else items
    if model == "gemini":
        shown = name if name[:1].isalpha() else f"_{name}"
        parts = [{"text": "hm"}, {"functionCall": {"id": call, "name": shown, "args": args}}]
        content = {"role": "model", "parts": parts}  # type: ignore[assignment]
        return {"candidates": [{"content": content}]} if whole == 2 else content if whole else parts
    if model == "mcp":
        number = int("".join(filter(str.isdigit, call)) or 1) if whole == 2 else call
        params = {"name": name, "arguments": args}
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        return request if whole else [{"method": "ping"}, request]
    one = {"id": call, "name": name, "args": args}
    return one if whole else [one]


def _tool_use(call: str, name: str, args: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": args}


def names_told(model: str, listed: list[dict[str, Any]]) -> list[str]:
    """The names in what a request lists as its tools."""
    if model == "gemini":
        return [one["name"] for each in listed for one in each["functionDeclarations"]]
    if model == "openai-chat":
        return [one["function"]["name"] for one in listed]
    return [one["name"] for one in listed]


def answers_to(model: str, told: list[dict[str, Any]]) -> list[Any]:
    """The model's names of the calls that an answer is to."""
    match model:
        case "messages":
            return [block["tool_use_id"] for message in told for block in message["content"]]
        case "openai-chat":
            return [message["tool_call_id"] for message in told]
        case "openai-responses":
            return [item["call_id"] for item in told]
        case "gemini":
            return [part["functionResponse"]["id"] for content in told for part in content["parts"]]
    return [one["id"] for one in told]
