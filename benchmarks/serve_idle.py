"""What idle clients take of a service: each has a session, has listed its tools, keeps its stream open."""

from __future__ import annotations

import http.client
import json
import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

SESSION = "mcp-session-id"


def resident(pid: int) -> int:
    """Memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settle(url: str, token: str, stack: ExitStack) -> None:
    """Be one more client that has begun and waits for what it may be told."""
    parts = urlsplit(url)
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    with closing(http.client.HTTPConnection(parts.netloc, timeout=30)) as connection:

        def post(method: str, params: dict[str, Any] | None = None, key: int | None = 1) -> None:
            message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
            if key is not None:
                message["id"] = key
            connection.request("POST", parts.path, json.dumps(message), headers)
            response = connection.getresponse()
            response.read()
            if response.status not in (200, 202):
                raise RuntimeError(f"{method} was answered {response.status}")
            if method == "initialize":
                headers[SESSION] = response.headers[SESSION]

        info = {"name": "idle", "version": "1"}
        post("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        post("notifications/initialized", key=None)
        post("tools/list")
    stream = stack.enter_context(closing(http.client.HTTPConnection(parts.netloc, timeout=30)))
    stream.request("GET", parts.path, headers=headers)
    response = stack.enter_context(stream.getresponse())
    if response.status != 200:
        raise RuntimeError(f"a stream was answered {response.status}")


def growth(url: str, pid: int, tokens: Sequence[str], sessions: int) -> int:
    """Bytes that a service grows by with so many idle sessions, after one of each identity is there."""
    with ExitStack() as stack:
        for token in tokens:
            settle(url, token, stack)
        before = resident(pid)
        for number in range(sessions):
            settle(url, tokens[number % len(tokens)], stack)
        return resident(pid) - before
