"""A server on the official SDK, line 1 (handshake era): `one.py LOG`, in the environment of `mcp1`."""

from __future__ import annotations

import functools
import sys

import anyio
from logged import Logged
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from peer_process import serve_http

server = FastMCP("one")


@server.tool()
async def echo(text: str) -> str:
    """Return the text, with the server's name."""
    return f"one: {text}"


@server.tool()
async def steps(number: int, ctx: Context) -> str:
    """Report progress for each step, then answer."""
    for step in range(1, number + 1):
        await ctx.report_progress(step, number, f"step {step}")
    return f"one: {number} steps"


@server.tool()
async def linger(who: str, ctx: Context) -> str:
    """Report that it has begun, then do not answer for a long time."""
    await ctx.report_progress(1, 2, who)
    await anyio.sleep(300)
    return "one: it was long"


# A client believes only what `initialize` promised, which by default is no announcements.
lowlevel = server._mcp_server
lowlevel.create_initialization_options = functools.partial(
    lowlevel.create_initialization_options, NotificationOptions(tools_changed=True)
)
serve_http(Logged(server.streamable_http_app(), sys.argv[1]), 0)
