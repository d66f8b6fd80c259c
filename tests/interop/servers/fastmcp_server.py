"""A server on FastMCP, line 2 or 4: `stdio`, `http PORT` or `sse PORT`.

Run with the interpreter of `.cache/interop/fastmcp2` or `fastmcp4`.
"""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from peer_process import serve_http

server = FastMCP("fastmcp-peer")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


match sys.argv[1:]:
    case ["stdio"]:
        server.run("stdio", show_banner=False)
    case ["http", port]:
        serve_http(server.http_app(path="/mcp"), int(port))
    case ["sse", port]:
        serve_http(server.http_app(path="/sse", transport="sse"), int(port))
    case _:
        sys.exit("usage: fastmcp_server.py stdio | http PORT | sse PORT")
