"""A server on the official SDK, line 2: both protocol eras, over Streamable HTTP, WebSocket and stdio.

Run with the interpreter of `.cache/peers/mcp2`: `mcp2_server.py http PORT`, `... ws PORT` or `... stdio`.
Line 2 of the SDK has no WebSocket transport; the bridge below is what an app would write itself.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Annotated

import anyio
from mcp.server.lowlevel import NotificationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from peer_process import serve_http, wanted_transport
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

server = MCPServer("mcp2-peer", version="1.0.0")
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
    return (ctx.headers or {}).get(name, "")


@server.tool()
async def set_extra(present: bool, ctx: Context) -> str:
    """Add or remove the tool `extra`, and announce the changed list in the form of the caller's era."""
    names = {tool.name for tool in await server.list_tools()}
    if present and "extra" not in names:
        server.add_tool(lambda: "extra", name="extra", description="There only for a while.")
    elif not present and "extra" in names:
        server.remove_tool("extra")
    await ctx.notify_tools_changed()  # reaches listeners of the modern era
    await ctx.session.send_tool_list_changed()  # reaches sessions of the legacy era
    return "present" if present else "absent"


async def over_websocket(websocket: WebSocket) -> None:
    """Carry text messages between a WebSocket and the streams that the SDK's server runs on."""
    await websocket.accept(subprotocol="mcp")
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def inward() -> None:
        async with to_server:
            async for text in websocket.iter_text():
                try:
                    message = jsonrpc_message_adapter.validate_json(text, by_name=False)
                except ValueError as error:
                    await to_server.send(error)
                else:
                    await to_server.send(SessionMessage(message))

    async def outward() -> None:
        async with from_server:
            async for sent in from_server:
                await websocket.send_text(sent.message.model_dump_json(by_alias=True, exclude_unset=True))

    lowlevel = server._lowlevel_server
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inward)
        tasks.start_soon(outward)
        await lowlevel.run(read, write, lowlevel.create_initialization_options())
        tasks.cancel_scope.cancel()


class Choice(BaseModel):
    """What the user is asked for."""

    colour: str = "red"
    sure: bool


async def ask_for_a_choice(thing: str) -> Elicit[Choice]:
    """Ask: by a request in the legacy era, in the result in the modern one."""
    return Elicit(f"Which {thing}?", Choice)


@server.tool()
async def choose(thing: str, choice: Annotated[Choice, Resolve(ask_for_a_choice)]) -> str:
    """Ask the user, then answer what was chosen."""
    return f"{thing}: {choice.colour}, {choice.sure}"


def main() -> None:
    """Serve on the transport that the command line names."""
    # A legacy client believes only what `initialize` promised, which by default is no announcements.
    lowlevel = server._lowlevel_server
    lowlevel.create_initialization_options = functools.partial(
        lowlevel.create_initialization_options, NotificationOptions(tools_changed=True)
    )
    transport, port = wanted_transport(sys.argv)
    if transport == "stdio":
        server.run("stdio")
    elif transport == "ws":
        serve_http(Starlette(routes=[WebSocketRoute("/mcp", over_websocket)]), port, "ws")
    else:
        serve_http(server.streamable_http_app(), port)


main()
