"""A server on the official SDK, line 2 (2026-07-28): `two.py LOG`, in the environment of `mcp2`."""

from __future__ import annotations

import sys

import anyio
from logged import Logged
from mcp.server.mcpserver import Context, MCPServer
from peer_process import serve_http

server = MCPServer("two", version="1.0.0")


@server.tool()
async def echo(text: str) -> str:
    """Return the text, with the server's name."""
    return f"two: {text}"


@server.tool()
async def steps(number: int, ctx: Context) -> str:
    """Report progress for each step, then answer."""
    for step in range(1, number + 1):
        await ctx.report_progress(step, number, f"step {step}")
    return f"two: {number} steps"


@server.tool()
async def linger(who: str, ctx: Context) -> str:
    """Report that it has begun, then do not answer for a long time."""
    await ctx.report_progress(1, 2, who)
    await anyio.sleep(300)
    return "two: it was long"


@server.tool()
async def set_extra(present: bool, ctx: Context) -> str:
    """Add or remove the tool `extra`, and announce the changed list to whoever listens."""
    names = {tool.name for tool in await server.list_tools()}
    if present and "extra" not in names:
        server.add_tool(lambda: "extra", name="extra", description="There only for a while.")
    elif not present and "extra" in names:
        server.remove_tool("extra")
    await ctx.notify_tools_changed()
    return "present" if present else "absent"


serve_http(Logged(server.streamable_http_app(), sys.argv[1]), 0)
