"""The official SDK's server, answering by itself: `python serve_sdk.py events|json`; prints its URL.

It runs on hypercorn's trio worker, as `afpool serve` does, and serves until stdin ends. `events` is how the
SDK's application comes: its answers to the handshake era are event streams. `json` is its other way.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from responders import TOOLS


def application(*, json_response: bool) -> Any:
    """A server with the responder's tool."""

    async def listed(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool.model_validate(tool) for tool in TOOLS])

    async def called(_: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=params.arguments["text"])])

    server: Any = Server("responder", on_list_tools=listed, on_call_tool=called)
    return server.streamable_http_app(json_response=json_response)


def end_with_stdin() -> None:
    """End this process when whoever started it has gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    logging.disable(logging.CRITICAL)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.errorlog = config.accesslog = None
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    end_with_stdin()
    trio.run(serve, application(json_response=sys.argv[1] == "json"), config)


if __name__ == "__main__":
    main()
