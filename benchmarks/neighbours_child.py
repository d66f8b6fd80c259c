"""A server on stdio for the neighbours: `python -IS neighbours_child.py`.

The tool `sleep` takes `seconds` to answer; `crash` ends the process.
"""

from __future__ import annotations

import json
import os
import select
import time

TYPE_CHECKING = False  # `typing` takes longer to import than all of the rest
if TYPE_CHECKING:
    from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("sleep", "crash")]


def send(message: dict[str, object]) -> None:
    left = memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    while left:
        left = left[os.write(1, left) :]


def take(message: dict[str, Any], later: list[tuple[float, dict[str, object]]]) -> None:
    method, rpc_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if rpc_id is None or method is None:
        return
    if method == "tools/call":
        if params["name"] == "crash":
            os._exit(1)
        seconds = float((params.get("arguments") or {}).get("seconds", 0))
        result = {"content": [{"type": "text", "text": "slept"}]}
        later.append((time.monotonic() + seconds, {"id": rpc_id, "result": result}))
    elif method == "initialize":
        info = {"name": "child", "version": "1"}
        opened = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": rpc_id, "result": opened})
    elif method == "tools/list":
        send({"id": rpc_id, "result": {"tools": TOOLS}})
    elif method == "ping":
        send({"id": rpc_id, "result": {}})
    else:
        send({"id": rpc_id, "error": {"code": -32601, "message": "Method not found"}})


def main() -> None:
    later: list[tuple[float, dict[str, object]]] = []
    rest = b""
    while True:
        now = time.monotonic()
        for due in [each for each in later if each[0] <= now]:
            later.remove(due)
            send(due[1])
        wait = min((each[0] for each in later), default=now + 60) - now
        if not select.select([0], [], [], max(wait, 0))[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            take(json.loads(line), later)


if __name__ == "__main__":
    main()
