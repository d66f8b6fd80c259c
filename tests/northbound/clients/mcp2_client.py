"""The client of the official Python SDK, line 2, in either era; run in the environment of `mcp2`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from scenario import Changes, main

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Mcp2:
    """A client of the SDK's."""

    def __init__(self, client: Client, changed: Changes) -> None:
        self.client = client
        self.changed = changed

    async def tools(self) -> list[str]:
        """List the tools."""
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any], on_progress: Any = None) -> str:
        """Call a tool."""

        async def told(progress: float, total: float | None, _message: str | None) -> None:
            await on_progress(progress, total)

        result = await self.client.call_tool(
            name, arguments, progress_callback=None if on_progress is None else told
        )
        assert not result.is_error, result
        return result.content[0].text

    async def cancelled(self, name: str, arguments: dict[str, Any]) -> str:
        """Take a call back."""
        began = anyio.Event()
        ended = ["given up"]

        async def told(*_: Any) -> None:
            began.set()

        async def calling() -> None:
            ended[0] = str(await self.client.call_tool(name, arguments, progress_callback=told))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(calling)
            await began.wait()
            tasks.cancel_scope.cancel()
        return ended[0]


@contextlib.asynccontextmanager
async def connect(url: str, token: str, mode: str | None) -> AsyncIterator[Mcp2]:
    """Connect. Without sessions changes are told on a stream that is asked for."""
    changed = Changes()

    async def handle(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.tell()

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=mode or "auto", message_handler=handle
        ) as client,
    ):
        if mode == "legacy":
            yield Mcp2(client, changed)
            return
        async with (
            client.listen(tools_list_changed=True) as changes,
            anyio.create_task_group() as tasks,
        ):

            async def listen() -> None:
                async for _event in changes:
                    changed.tell()

            tasks.start_soon(listen)
            yield Mcp2(client, changed)
            tasks.cancel_scope.cancel()


main(connect)
