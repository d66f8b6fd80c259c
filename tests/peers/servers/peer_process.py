"""How a peer server lives and dies: one loopback port, one ready line, gone when its stdin closes.

The scripts beside this file run in virtual environments of their own, so this file uses nothing but the
standard library and uvicorn, which each of those environments has.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any


def exit_when_stdin_closes() -> None:
    """End the process when whoever started it is gone, however that one died."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="stdin watch", daemon=True).start()


def serve_http(app: Any, port: int, scheme: str = "http") -> None:
    """Serve an ASGI app on 127.0.0.1 and print `ready URL` on stdout once the socket listens.

    Args:
        app: The ASGI application.
        port: The port, or 0 for one that the kernel picks; the ready line names it.
        scheme: What the ready line says: `http`, or `ws` for an app that serves WebSockets.
    """
    import uvicorn

    logging.disable(logging.INFO)
    sock = socket.create_server(("127.0.0.1", port), backlog=512)
    exit_when_stdin_closes()
    print(f"ready {scheme}://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[sock])


def wanted_transport(argv: list[str]) -> tuple[str, int]:
    """Read `http PORT`, `ws PORT` or `stdio` from the command line."""
    match argv[1:]:
        case ["stdio"]:
            return "stdio", 0
        case ["http" | "ws" as transport, port]:
            return transport, int(port)
        case _:
            sys.exit(f"usage: {Path(argv[0]).name} stdio | http PORT | ws PORT")
