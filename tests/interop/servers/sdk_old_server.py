"""A server on an early release of the official SDK: `stdio`, `sse PORT`, and `http PORT` where it knows that.

Run with the interpreter of `.cache/interop/mcp1_4` or `mcp1_8`. These releases read annotations as they
stand, so they are no strings here; and the first has no app of its own for HTTP+SSE.
"""

import sys

from mcp.server.fastmcp import FastMCP
from mcp.server.sse import SseServerTransport
from peer_process import serve_http
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

server = FastMCP("old-peer")
sse = SseServerTransport("/messages/")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def stream(request: Request) -> Response:
    """Serve one client as long as its event stream is open."""
    lowlevel = server._mcp_server
    async with sse.connect_sse(request.scope, request.receive, request._send) as (read, write):
        await lowlevel.run(read, write, lowlevel.create_initialization_options())
    return Response()


match sys.argv[1:]:
    case ["stdio"]:
        server.run("stdio")
    case ["sse", port]:
        routes = [Route("/sse", stream), Mount("/messages/", app=sse.handle_post_message)]
        serve_http(Starlette(routes=routes), int(port))
    case ["http", port]:
        serve_http(server.streamable_http_app(), int(port))
    case _:
        sys.exit("usage: sdk_old_server.py stdio | sse PORT | http PORT")
