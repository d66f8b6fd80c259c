"""FastMCP's proxy before a server: `PYTHON serve_fastmcp.py default|kept URL [ERA]`; prints its URL.

Run with the interpreter of `.cache/interop/fastmcp4`, on uvicorn, as FastMCP itself runs. `default` is what
`create_proxy(URL)` gives: a new session upstream for every request. `kept` is the fastest that can be made of
it and still keeps callers apart: one client for each caller's token, connected once, in the era of its
callers. It serves until stdin ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from typing import Any

import uvicorn
from fastmcp.server import create_proxy
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.providers.proxy import FastMCPProxy, StatefulProxyClient


def kept(url: str, era: str) -> Any:
    """A proxy whose clients upstream stay connected, one for each token."""
    clients: dict[str, Any] = {}

    def of_caller() -> Any:
        token = get_http_request().headers["authorization"]
        if token not in clients:
            # entering it again does not connect it again, and leaving it does not disconnect it
            clients[token] = StatefulProxyClient(url, mode=era)
        return clients[token]

    return FastMCPProxy(client_factory=of_caller)


def main() -> None:
    logging.disable(logging.CRITICAL)
    # asyncio turns Nagle's delay off only where the protocol is named, as it is where uvicorn binds by itself
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    proxy = create_proxy(sys.argv[2]) if sys.argv[1] == "default" else kept(*sys.argv[2:])
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    app = proxy.http_app(path="/mcp")
    config = uvicorn.Config(app, lifespan="on", log_level="critical", access_log=False)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
