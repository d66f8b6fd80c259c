"""The client of the official Python SDK, line 1; run in the environment of `mcp1`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import httpx
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client
from scenario import Changes, main

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Mcp1:
    """A session of the SDK's."""

    def __init__(self, session: ClientSession, changed: Changes) -> None:
        self.session = session
        self.changed = changed

    async def tools(self) -> list[str]:
        """List the tools."""
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any], on_progress: Any = None) -> str:
        """Call a tool."""

        async def told(progress: float, total: float | None, _message: str | None) -> None:
            await on_progress(progress, total)

        result = await self.session.call_tool(
            name, arguments, progress_callback=None if on_progress is None else told
        )
        assert not result.isError, result
        return result.content[0].text

    async def cancelled(self, name: str, arguments: dict[str, Any]) -> str:
        """Take a call back. Line 1 of the SDK leaves the notification to the app."""
        began = anyio.Event()
        ended = ["given up"]

        async def told(*_: Any) -> None:
            began.set()

        async def calling() -> None:
            try:
                ended[0] = str(await self.session.call_tool(name, arguments, progress_callback=told))
            except McpError as error:
                ended[0] = error.error.message

        async with anyio.create_task_group() as tasks:
            request_id = self.session._request_id
            tasks.start_soon(calling)
            await began.wait()
            params = types.CancelledNotificationParams(requestId=request_id)
            await self.session.send_notification(
                types.ClientNotification(types.CancelledNotification(params=params))
            )
            tasks.cancel_scope.cancel()
        return ended[0]


@contextlib.asynccontextmanager
async def connect(url: str, token: str, _mode: str | None) -> AsyncIterator[Mcp1]:
    """Connect."""
    changed = Changes()

    async def handle(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(
            message.root, types.ToolListChangedNotification
        ):
            changed.tell()

    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write, message_handler=handle) as session,
    ):
        await session.initialize()
        yield Mcp1(session, changed)


main(connect)
