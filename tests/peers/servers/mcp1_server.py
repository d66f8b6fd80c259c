"""A server on the official SDK, line 1: the legacy era only, over Streamable HTTP, WebSocket and stdio.

Run with the interpreter of `.cache/peers/mcp1`: `mcp1_server.py http PORT`, `... ws PORT` or `... stdio`.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.lowlevel import NotificationOptions
from mcp.server.websocket import websocket_server
from peer_process import serve_http, wanted_transport
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

warnings.filterwarnings("ignore", message="The WebSocket server transport is deprecated")
server = FastMCP("mcp1-peer")
appended: list[str] = []


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
async def sleep(seconds: float) -> str:
    """Answer after so many seconds."""
    await anyio.sleep(seconds)
    return f"slept {seconds}"


@server.tool()
async def fail(message: str) -> str:
    """Answer with a tool error that carries the message."""
    raise ToolError(message)


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Report progress for each step, then answer."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"counted {steps}"


@server.tool()
async def append(text: str) -> int:
    """Keep the text; answer how often this text was kept, which shows a call that ran twice."""
    appended.append(text)
    return appended.count(text)


@server.tool()
async def kept() -> list[str]:
    """All texts kept so far, in order."""
    return appended


@server.tool()
async def header(name: str, ctx: Context) -> str:
    """Return this HTTP header of the request that carried the call, or the empty string."""
    request = ctx.request_context.request
    return request.headers.get(name, "") if request is not None else ""


@server.tool()
async def set_extra(present: bool, ctx: Context) -> str:
    """Add or remove the tool `extra`, and announce the changed list."""
    names = {tool.name for tool in await server.list_tools()}
    if present and "extra" not in names:
        server.add_tool(lambda: "extra", name="extra", description="There only for a while.")
    elif not present and "extra" in names:
        server.remove_tool("extra")
    await ctx.session.send_tool_list_changed()
    return "present" if present else "absent"


class OverWebSocket:
    """The SDK's own WebSocket transport as an ASGI app."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        lowlevel = server._mcp_server
        async with websocket_server(scope, receive, send) as (read, write):
            await lowlevel.run(read, write, lowlevel.create_initialization_options())


class Choice(BaseModel):
    """What the user is asked for."""

    colour: str = "red"
    sure: bool


@server.tool()
async def choose(thing: str, ctx: Context) -> str:
    """Ask the user, then answer what was chosen."""
    answer = await ctx.elicit(f"Which {thing}?", Choice)
    return (
        f"{thing}: {answer.data.colour}, {answer.data.sure}" if answer.action == "accept" else answer.action
    )


def main() -> None:
    """Serve on the transport that the command line names."""
    # A client believes only what `initialize` promised, which by default is no announcements.
    lowlevel = server._mcp_server
    lowlevel.create_initialization_options = functools.partial(
        lowlevel.create_initialization_options, NotificationOptions(tools_changed=True)
    )
    transport, port = wanted_transport(sys.argv)
    if transport == "stdio":
        server.run("stdio")
    elif transport == "ws":
        serve_http(Starlette(routes=[WebSocketRoute("/mcp", OverWebSocket())]), port, "ws")
    else:
        serve_http(server.streamable_http_app(), port)


main()
