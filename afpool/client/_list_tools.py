"""Fetching a whole tool list, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from .._base.errors import ANSWERED, ProtocolError, TooLarge
from ..protocol import (
    METHOD,
    Era,
    MalformedMessage,
    PageGuard,
    decode_json,
    invalid_param_annotations,
    list_params,
    read_list_page,
)
from ._settings import ListAnswer
from ._trip import Rpc

if TYPE_CHECKING:
    from ..transports import Headers
    from ._client import Client


LIST_ANSWERS: Final = 4
"""How many answers of the largest size one list may take in all."""

MAX_TOOLS: Final = 100_000
"""How many tools one list may have."""

_TURN: Final = 256  # tools looked at between two turns of the other tasks
_LONG: Final = 64 * 1024  # bytes of a page that is read in several steps


async def fetch_tools(client: Client, deadline: float) -> ListAnswer:
    """Fetch the whole tool list, page by page.

    Raises:
        AfpoolError: A page could not be fetched or read, or the list is larger than a list may be.
    """
    most = LIST_ANSWERS * client.settings.max_message
    size = 0
    tools: list[bytes] = []
    left_out: list[tuple[str, str]] = []
    ttl: float | None = None
    cursor: str | None = None
    guard = PageGuard(client.settings.max_pages)
    headers: Headers = [(METHOD, b"tools/list")] if client.stateless else []
    era = Era.HANDSHAKE if client.negotiated is None else client.negotiated.era
    while True:
        rpc = Rpc("tools/list", list_params(cursor, client.meta), headers)
        answer = await client.control(rpc, deadline - client.settings.seams.now())
        assert answer.message is not None
        long = len(memoryview(answer.message.result))
        size += long
        if long > _LONG:
            await trio.lowlevel.checkpoint()  # the message was read in this step, and so would its page be
        try:
            page = read_list_page(answer.message.result, era)
            cursor = guard.follow(page)
        except MalformedMessage as error:
            raise ProtocolError(f"the tool list could not be read: {error.reason}") from None
        if long > _LONG:
            await trio.lowlevel.checkpoint()
        if size > most or len(tools) + len(left_out) + len(page.tools) > MAX_TOOLS:
            raise TooLarge(
                f"the tool list is larger than {most} bytes or {MAX_TOOLS} tools and was not read on",
                delivery=ANSWERED,
            )
        for index, raw in enumerate(page.tools):
            if index % _TURN == _TURN - 1:
                await trio.lowlevel.checkpoint()
            tool = bytes(raw)
            reason = _unfit(client, tool)
            if reason is None:
                tools.append(tool)
            else:
                left_out.append((f"#{len(tools) + len(left_out)}", reason))
        if client.stateless:
            seconds = page.ttl_ms / 1000
            ttl = seconds if ttl is None else min(ttl, seconds)
        if cursor is None:
            return ListAnswer(tools, ttl, tuple(left_out))


def _unfit(client: Client, tool: bytes) -> str | None:
    # 2026-07-28 over HTTP: a tool whose header annotations are invalid must not be offered.
    if not (client.stateless and client.carries_headers and b"x-mcp-header" in tool):
        return None
    try:
        document = decode_json(tool)
    except MalformedMessage:
        return None  # quarantined later, with the reader's own reason
    return invalid_param_annotations(document.get("inputSchema") if isinstance(document, dict) else None)
