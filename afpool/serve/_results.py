"""Results as a client of each revision can read them: nearly always the bytes that the server sent.

Rules:

* From 2025-06-18 on a result goes out as it came. In 2026-07-28 it says that it is complete, and who serves
  it.
* An older client is told what it has no words for (structured content, resource links, sound) as text.
* A refusal is a result. Its word and its verdict stand beside its text, for programs.
* A link to a resource of a server is given out under a name of the service's own, which says whose it is, for
  whom, and cannot be made by anybody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, is_version_at_least

from ..protocol import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._base.model import ToolResult

CODE_KEY: Final = "afpool/code"
DELIVERY_KEY: Final = "afpool/delivery"

_LINK: Final = b"resource_link"
_USUAL: Final = b'{"content":['
_COMPLETE: Final = msgspec.Raw(b'"complete"')
_write = msgspec.json.encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_object = msgspec.json.Decoder(dict[str, Any]).decode


def write_result(
    result: ToolResult, version: str, info: Mapping[str, Any], link: Callable[[str], str] | None
) -> bytes:
    """Write the result of a call for a client.

    Args:
        result: As the door gave it.
        version: Of the client's protocol.
        info: What the service says about itself.
        link: Renames the URI of a resource link; `None` where the tool is of no server.

    Raises:
        ProtocolError: The result is no JSON that anybody could read.
    """
    raw = result.raw
    if (link is not None and _LINK in raw) or not (raw.startswith(_USUAL) or _has_content(raw)):
        raw = encode_json(_plain(result.document, link))
    if not is_version_at_least(version, "2025-06-18"):
        raw = _write(_older(_read_object(raw), version))
    modern = version in MODERN_PROTOCOL_VERSIONS
    if not modern and result.error is None:
        return raw
    members = _members(raw)
    meta: dict[str, Any] = _read_object(members["_meta"]) if _is_object(members.get("_meta")) else {}
    if result.error is not None:
        meta |= {CODE_KEY: result.code, DELIVERY_KEY: result.delivery}
    if modern:
        members["resultType"] = _COMPLETE
        meta[SERVER_INFO_META_KEY] = info
    members["_meta"] = msgspec.Raw(_write(meta))
    return _write(members)


def _has_content(raw: bytes) -> bool:
    try:
        return bytes(_members(raw).get("content", b"")).lstrip().startswith(b"[")
    except (msgspec.DecodeError, RecursionError):
        return False  # whoever can read it otherwise writes it anew


def _is_object(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw).lstrip().startswith(b"{")


def _plain(document: dict[str, Any], link: Callable[[str], str] | None) -> dict[str, Any]:
    """Give a result the form that every revision knows, and rename its links."""
    told = dict(document)
    content = told.get("content")
    if not isinstance(content, list):
        value = told.pop("toolResult", told.get("structuredContent"))
        text = value if isinstance(value, str) else encode_json(value).decode()
        content = [] if value is None else [{"type": "text", "text": text}]
    told["content"] = content
    if link is not None:
        told["content"] = [
            {**block, "uri": link(block["uri"])}
            if isinstance(block, dict)
            and block.get("type") == "resource_link"
            and isinstance(block.get("uri"), str)
            else block
            for block in content
        ]
    return told


def _older(document: dict[str, Any], version: str) -> dict[str, Any]:
    """Say in text what a revision before 2025-06-18 has no form for."""
    structured = document.pop("structuredContent", None)
    sound = is_version_at_least(version, "2025-03-26")
    content = []
    for block in document.get("content", []):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "resource_link":
            name = block.get("name") or block.get("title") or "a resource"
            content.append({"type": "text", "text": f"{name}: {block.get('uri')}"})
        elif kind == "audio" and not sound:
            content.append({"type": "text", "text": f"[audio {block.get('mimeType', '')}]"})
        else:
            content.append(block)
    if structured is not None and not content:
        content.append({"type": "text", "text": _write(structured).decode()})
    document["content"] = content
    return document
