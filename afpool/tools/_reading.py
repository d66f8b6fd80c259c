"""Results read: for a model as words, for a program as an object.

Rules:

* What is no text is described for a model: kind, type and size, never its bytes. What is no result at all is
  described by its shape: member names, never their values.
* A program gets what is there or an error, never something near it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .._base.errors import InvalidOutput, ProtocolError, ToolError
from ._results import ERROR_CHARS, mended

if TYPE_CHECKING:
    from .._base.model import ToolResult

MAX_DEPTH: Final = 64
MAX_NODES: Final = 1_000_000
MAX_TEXT: Final = 16_000_000
ERROR_BLOCKS: Final = 32
SHAPE_KEYS: Final = 8
_MAX_WORD: Final = 80
_MAX_URI: Final = 2_000

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Kinds of image that model providers take."""


# ---------------------------------------------------------------------------- reading for a model


def read_text(result: ToolResult) -> str:
    """Give what a model reads of a result.

    Text blocks are joined by newlines; other blocks are described in brackets. A result without blocks reads
    as its legacy `toolResult`, else as its structured content in JSON. One that is no result is described.

    Raises:
        ProtocolError: The result is no readable JSON object.
    """
    document = result.document
    content = document.get("content")
    if isinstance(content, list) and content:
        return "\n".join(map(_described, content))
    if "toolResult" in document:
        legacy = document["toolResult"]
        return legacy if isinstance(legacy, str) else _compact(legacy)
    if "structuredContent" in document:
        return _compact(document["structuredContent"])
    if isinstance(content, list):
        return ""
    return f"The tool answered something that is no tool result: {shape_of(document)}."


def reading_parts(result: ToolResult) -> list[str | tuple[str, str]]:
    """Give what a model that takes images is given of a result, in order: texts, and images as type and data.

    Consecutive texts are one. What is neither is described.

    Raises:
        ProtocolError: The result is no readable JSON object.
    """
    content = result.document.get("content")
    if not isinstance(content, list) or not content:
        return [read_text(result)]
    parts: list[str | tuple[str, str]] = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "image":
            kind, data = block.get("mimeType"), block.get("data")
            if kind in IMAGES and isinstance(data, str):
                parts.append((kind, data))
                continue
        text = _described(block)
        if parts and isinstance(parts[-1], str):
            parts[-1] += f"\n{text}"
        else:
            parts.append(text)
    return parts


def reading_size(result: ToolResult) -> int:
    """Count the characters that a model is given of a result: its text, and the data of images and others."""
    size = len(read_text(result))
    for block in result.content:
        for holder in (block, block.get("resource")):
            if isinstance(holder, dict):
                size += sum(len(data) for key in ("data", "blob") if isinstance(data := holder.get(key), str))
    return size


def _described(block: Any) -> str:
    if not isinstance(block, dict):
        return "[unreadable block]"
    kind = block.get("type")
    text = block.get("text")
    if kind == "text" and isinstance(text, str):
        return text
    if kind in ("image", "audio"):
        return f"[{kind}: {_facts(block.get('mimeType'), _data_size(block.get('data')))}]"
    if kind == "resource" and isinstance(resource := block.get("resource"), dict):
        return _resource(resource)
    if kind == "resource_link":
        size = block.get("size")
        facts = _facts(
            _word(block.get("title") or block.get("name")),
            block.get("mimeType"),
            f"{size} bytes" if type(size) is int else None,
        )
        return f"[resource link: {_uri(block)}{facts and f' ({facts})'}]"
    return f"[{_word(kind) or 'unknown block'}]"


def _resource(resource: dict[str, Any]) -> str:
    facts = _facts(resource.get("mimeType"), _data_size(resource.get("blob")))
    head = f"[resource: {_uri(resource)}{facts and f' ({facts})'}]"
    text = resource.get("text")
    return f"{head}\n{text}" if isinstance(text, str) else head


def _facts(*facts: Any) -> str:
    return ", ".join(word for fact in facts if (word := _word(fact)))


def _word(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= _MAX_WORD else value[: _MAX_WORD - 1] + "…"


def _uri(holder: dict[str, Any]) -> str:
    uri = holder.get("uri")
    if not isinstance(uri, str):
        return "without a URI"
    return uri if len(uri) <= _MAX_URI else uri[: _MAX_URI - 1] + "…"


def _data_size(data: Any) -> str | None:
    # Base64 of it: counted, not decoded.
    return f"{len(data.rstrip('=')) * 3 // 4} bytes" if isinstance(data, str) else None


def _compact(value: Any) -> str:
    return json.dumps(mended(value), ensure_ascii=False, separators=(",", ":"))


def shape_of(value: Any) -> str:
    """Describe a JSON value by its shape, for a refusal: kind and member names, never a value."""
    if isinstance(value, Mapping):
        if not value:
            return "an object without members"
        names = [_word(name) for name in list(value)[:SHAPE_KEYS]]
        more = f" and {len(value) - SHAPE_KEYS} more" if len(value) > SHAPE_KEYS else ""
        return f"an object with the members {', '.join(names)}{more}"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return "a number" if isinstance(value, int | float) else f"a {type(value).__name__}"


# ---------------------------------------------------------------------------- reading for a program


def read_structured(result: ToolResult, *, or_json: bool = False) -> dict[str, Any]:
    """Give the structured content of a result as an object.

    Args:
        result: What a tool answered.
        or_json: Also take exactly one text block that is a JSON object, where there is no structured content.

    Raises:
        ToolError: The tool says that it failed.
        InvalidOutput: There is none, or it is no object, or one nested deeper than 64 or larger than a
            million values. Nothing of it is quoted. One that is there is never passed over for text.
        ProtocolError: The result is no readable JSON object.
    """
    if result.is_error and result.error is None:
        failed = ToolError(error_text(result))
        failed.call_id = result.call_id
        raise failed
    result.raise_for_error()
    document = result.document
    if "structuredContent" in document:
        value = document["structuredContent"]
    elif or_json:
        value = _one_json_text(document)
    else:
        raise _no_structured(result, "the tool answered no structured content")
    if not isinstance(value, dict):
        raise _no_structured(result, f"the structured content is no object but {shape_of(value)}")
    if not _within_limits(value):
        raise _no_structured(
            result, f"the structured content is nested deeper than {MAX_DEPTH} or has over {MAX_NODES} values"
        )
    return value


def _one_json_text(document: dict[str, Any]) -> Any:
    content = document.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        text = content[0].get("text")
        if content[0].get("type") == "text" and isinstance(text, str) and len(text) <= MAX_TEXT:
            try:
                return msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                return None
    return None


def _no_structured(result: ToolResult, why: str) -> InvalidOutput:
    error = InvalidOutput(f"{why}; the tool has run")
    error.call_id = result.call_id
    error.result = result
    return error


def _within_limits(root: Any) -> bool:
    nodes = 0
    level = [root]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            members = value.values() if isinstance(value, dict) else value
            nodes += len(members)
            below.extend(member for member in members if isinstance(member, dict | list))
        if nodes > MAX_NODES:
            return False
        if not below:
            return True
        level = below
    return False


def error_text(result: ToolResult) -> str:
    """Give the words of a tool that failed: its text blocks only, at most 32 and 8,192 characters.

    A result without such a text gives a sentence that says so.
    """
    try:
        blocks = result.content[: ERROR_BLOCKS + 1]
    except ProtocolError:
        blocks = []
    texts = [
        block["text"]
        for block in blocks
        if block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
    text = "\n".join(texts)
    if len(texts) == len(blocks) <= ERROR_BLOCKS and len(text) <= ERROR_CHARS and text.strip():
        return text
    return "The tool says that it failed; what else it answered was not read."
