"""A server on stdio for the neighbours: `python -IS neighbours_child.py`.

The tool `sleep` takes `seconds` to answer; `crash` ends the process.
"""

import json
import os
import select
import time

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("sleep", "crash")]


def send(message: dict) -> None:
    left = memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    while left:
        left = left[os.write(1, left) :]


def take(message: dict, later: list) -> None:
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
        capabilities: dict = {"tools": {}}
        info = {"name": "child", "version": "1"}
        version = "2025-11-25"
        send(
            {
                "id": rpc_id,
                "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info},
            }
        )
    elif method == "tools/list":
        send({"id": rpc_id, "result": {"tools": TOOLS}})
    elif method == "ping":
        send({"id": rpc_id, "result": {}})
    else:
        send({"id": rpc_id, "error": {"code": -32601, "message": "Method not found"}})


def main() -> None:
    later: list = []
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
