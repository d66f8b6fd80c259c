"""Tool lists as a client gets them: every tool of a toolset in the words of its server, page by page.

Rules:

* A tool is told as it was listed (title, annotations, output schema, icons, `_meta`), under its shown name,
  with the schema that is left of it once the host has filled in what is the host's.
* Each tool is judged by the SDK's own form of the client's revision. What is wrong with an optional part
  costs that part, what is wrong with a tool costs that tool, and never the list.
* A cursor belongs to one list. Where the list has changed meanwhile it is refused, so that nobody joins two.
* Servers that could not be listed are named beside the tools of the others, by name and code.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import trio
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ..tools import binding_of
from ..tools._derive import held_input_schema
from ._rpc import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.model import Tool
    from ..runtime import RuntimeToolset

logger = logging.getLogger("afpool.serve")

PAGE: Final = 500
PROBLEMS_KEY: Final = "afpool/problems"
_AT_ONCE: Final = 50
_OPTIONAL: Final = ("outputSchema", "annotations", "icons", "title", "_meta")
# what promises something that is not served here
_NOT_OURS: Final = ("execution",)
_X_HEADER: Final = b"x-mcp-header"

_write = msgspec.json.encode


@final
class Listed:
    """The list of one toolset for one era.

    Attributes:
        tools: Each tool as raw JSON, by shown name.
        mirrored: The input schemas of those whose arguments are mirrored in headers, by shown name.
        digest: Of the list.
    """

    __slots__ = ("digest", "mirrored", "problems", "tools")

    def __init__(
        self, tools: dict[str, bytes], mirrored: dict[str, Mapping[str, Any]], problems: dict[str, str]
    ) -> None:
        self.tools = tools
        self.mirrored = mirrored
        self.problems = problems
        digest = hashlib.blake2b(digest_size=12)
        for raw in tools.values():
            digest.update(b"%d:" % len(raw))
            digest.update(raw)
        self.digest = digest.hexdigest()

    def page(self, cursor: object, *, modern: bool, meta: Mapping[str, Any]) -> bytes:
        """Write one page as a result, raw JSON.

        Args:
            cursor: As the client gave it, or `None`.
            modern: Whether for the stateless era.
            meta: Members of the result's `_meta`.

        Raises:
            RpcError: The cursor is none of this list's.
        """
        start = self._start(cursor)
        all_tools = list(self.tools.values())
        parts = [b'{"tools":[', b",".join(all_tools[start : start + PAGE]), b"]"]
        if start + PAGE < len(all_tools):
            parts.append(b',"nextCursor":"%b.%d"' % (self.digest.encode(), start + PAGE))
        if modern:
            parts.append(b',"resultType":"complete","ttlMs":0,"cacheScope":"private"')
        told = dict(meta)
        if self.problems:
            told[PROBLEMS_KEY] = self.problems
        if told:
            parts += (b',"_meta":', _write(told))
        parts.append(b"}")
        return b"".join(parts)

    def _start(self, cursor: object) -> int:
        if cursor is None:
            return 0
        digest, _, at = str(cursor).partition(".")
        if digest == self.digest and at.isascii() and at.isdigit() and len(at) < 9:
            start = int(at)
            if start % PAGE == 0 and 0 < start < len(self.tools):
                return start
        raise RpcError(
            INVALID_PARAMS, "the cursor belongs to no list that is in force; list the tools from the start"
        )


async def list_toolset(toolset: RuntimeToolset, *, version: str) -> Listed:
    """Write down a toolset for a client. A checkpoint where it is long.

    Args:
        toolset: Of the caller.
        version: Of the protocol, in which each tool is judged.
    """
    tools: dict[str, bytes] = {}
    mirrored: dict[str, Mapping[str, Any]] = {}
    for number, name in enumerate(toolset, 1):
        document = describe(toolset[name], name, version)
        if document is not None:
            tools[name] = raw = _write(document)
            if _X_HEADER in raw and find_invalid_x_mcp_header(document["inputSchema"]) is None:
                mirrored[name] = document["inputSchema"]
        if not number % _AT_ONCE:
            await trio.lowlevel.checkpoint()
    problems = {server: error.code for server, error in toolset.problems.items()}
    problems |= {server: why.partition(":")[0] for server, why in toolset.withheld.items()}
    return Listed(tools, mirrored, problems)


def describe(tool: Tool, name: str, version: str) -> dict[str, Any] | None:
    """Say what a tool is, in the form of a revision; `None` where it has none that a client could read."""
    binding = binding_of(tool)
    document: dict[str, Any] = {} if binding is None else binding.definition.document
    for key in _NOT_OURS:
        document.pop(key, None)
    schema = dict(held_input_schema(tool))
    schema.setdefault("type", "object")
    document |= {"name": name, "description": tool.description, "inputSchema": schema}
    for key, value in (("outputSchema", tool.output_schema), ("annotations", tool.annotations)):
        if value is None:
            document.pop(key, None)
        else:
            document[key] = value
    if _fault(document, version) is None:
        return document
    for key in _OPTIONAL:
        if key in document and _fault(
            {"name": name, "inputSchema": {"type": "object"}, key: document[key]}, version
        ):
            del document[key]
    fault = _fault(document, version)
    if fault is None:
        return document
    logger.warning(
        "the tool %s cannot be told to clients of %s: %s is not as it must be", name, version, fault
    )
    return None


def _fault(document: Mapping[str, Any], version: str) -> str | None:
    """Name the part of a tool that the revision does not allow; `None` where there is none."""
    result: dict[str, Any] = {"tools": [document]}
    if version in MODERN_PROTOCOL_VERSIONS:
        result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    try:
        methods.validate_server_result("tools/list", version, result)
    except ValidationError as error:
        return ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"][2:4]) or "it"
    return None
