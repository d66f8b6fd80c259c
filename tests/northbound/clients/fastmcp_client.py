"""FastMCP's client; run in the environment of `fastmcp4`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from mcp.client.subscriptions import listen
from scenario import Changes, main

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Fast:
    """A client of FastMCP's."""

    def __init__(self, client: Client, changed: Changes) -> None:
        self.client = client
        self.changed = changed

    async def tools(self) -> list[str]:
        """List the tools."""
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any], on_progress: Any = None) -> str:
        """Call a tool."""

        async def told(progress: float, total: float | None, _message: str | None) -> None:
            await on_progress(progress, total)

        result = await self.client.call_tool(
            name, arguments, progress_handler=None if on_progress is None else told
        )
        return result.content[0].text

    async def cancelled(self, name: str, arguments: dict[str, Any]) -> str:
        """Take a call back."""
        began = anyio.Event()
        ended = ["given up"]

        async def told(*_: Any) -> None:
            began.set()

        async def calling() -> None:
            ended[0] = str(await self.client.call_tool(name, arguments, progress_handler=told))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(calling)
            await began.wait()
            tasks.cancel_scope.cancel()
        return ended[0]


class Handler(MessageHandler):
    """Hears of changes."""

    def __init__(self, changed: Changes) -> None:
        self.changed = changed

    async def on_tool_list_changed(self, _message: Any) -> None:
        """Hear of one."""
        self.changed.tell()


@contextlib.asynccontextmanager
async def connect(url: str, token: str, mode: str | None) -> AsyncIterator[Fast]:
    """Connect. Without sessions changes are told on a stream that is asked for."""
    changed = Changes()
    async with Client(
        url, auth=token, message_handler=Handler(changed), mode=mode or "auto", timeout=30
    ) as client:
        if mode == "legacy":
            yield Fast(client, changed)
            return
        # FastMCP has no word of its own for this yet; the session is the SDK's
        async with (
            listen(client.session, tools_list_changed=True) as changes,
            anyio.create_task_group() as tasks,
        ):

            async def hear() -> None:
                async for _event in changes:
                    changed.tell()

            tasks.start_soon(hear)
            yield Fast(client, changed)
            tasks.cancel_scope.cancel()


main(connect)
