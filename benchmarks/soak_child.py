"""The soak's server on stdio: `python -IS soak_child.py LOG`; few modules, since many are started.

It writes its log as `soak_server.py` does and does what calls ask for, by the same words. Its credential came
with its environment.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

TYPE_CHECKING = False  # `typing` takes longer to import than all of the rest
if TYPE_CHECKING:
    from typing import Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
TOOLS = [
    {"name": name, "description": "Does as it is told.", "inputSchema": {"type": "object"}}
    for name in ("do", "same")
]


class Child:
    """Reads lines, answers some at once and others when their time has come."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._credential = f"Bearer {os.environ['SOAK_CREDENTIAL']}"
        self._later: list[tuple[float, object, dict[str, object]]] = []  # when, for which request, what

    def run(self) -> None:
        """Serve until the end of stdin."""
        rest = b""
        while True:
            now = time.monotonic()
            for due in sorted((each for each in self._later if each[0] <= now), key=lambda each: each[0]):
                self._later.remove(due)
                self._write(due[2])
            wait = min((each[0] for each in self._later), default=now + 60) - now
            if not select.select([0], [], [], max(wait, 0))[0]:
                continue
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _log(self, entry: dict[str, object]) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def _write(self, message: dict[str, object]) -> None:
        self._send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(1, left) :]

    def _take(self, message: dict[str, Any]) -> None:
        method, rpc_id, params = message.get("method"), message.get("id"), message.get("params") or {}
        line = {
            "pid": os.getpid(), "came": method or "response", "session": None, "connection": 0,
            "credential": self._credential,
        }  # fmt: skip
        arguments = params.get("arguments") or {}
        if method == "tools/call":
            line |= {"n": arguments.get("n"), "who": arguments.get("who")}
        self._log(line)
        if method == "notifications/cancelled":
            self._later = [each for each in self._later if each[1] != params.get("requestId")]
        if rpc_id is None or method is None:
            return
        if method == "tools/call":
            self._call(rpc_id, arguments, (params.get("_meta") or {}).get("progressToken"))
        elif method == "initialize":
            asked = params.get("protocolVersion")
            self._result(
                rpc_id,
                protocolVersion=asked if asked in VERSIONS else VERSIONS[0],
                capabilities={"tools": {"listChanged": True}},
                serverInfo={"name": "desk", "version": "1"},
            )
        elif method == "tools/list":
            self._result(rpc_id, tools=TOOLS)
        elif method == "ping":
            self._result(rpc_id)
        else:
            self._write({"id": rpc_id, "error": {"code": -32601, "message": "Method not found"}})

    def _result(self, rpc_id: object, **result: object) -> None:
        self._write({"id": rpc_id, "result": result})

    def _call(self, rpc_id: object, arguments: dict[str, Any], token: object) -> None:
        how, number, who = (arguments.get(name) for name in ("how", "n", "who"))
        if how == "drop":
            os._exit(1)
        if how == "hang":
            return
        if how == "rpc-error":
            self._write({"id": rpc_id, "error": {"code": -32000, "message": "no such thing"}})
            return
        if how == "garbage":
            self._send(b'{"jsonrpc": "2.0", "id": ' + json.dumps(rpc_id).encode() + b', "result": \n')
            return
        self._log({"run": number, "who": who})
        if how == "drop-after":
            os._exit(1)
        failed = how in {"error", "raise"}
        text = f"call {number} failed" if failed else f"call {number} of {who}"
        if how == "big":
            text = "x" * int(arguments.get("size", 100_000))
        result = {"content": [{"type": "text", "text": text}], "isError": failed}
        answer: dict[str, object] = {"id": rpc_id, "result": result}
        if how == "truncate":
            data = json.dumps({"jsonrpc": "2.0", **answer}).encode()
            self._send(data[: len(data) // 2])
            os._exit(1)
        now = time.monotonic()
        if how == "slow":
            self._later.append((now + float(arguments.get("seconds", 0.1)), rpc_id, answer))
        elif how == "progress":
            if token is not None:
                for step in range(1, 5):
                    report = {
                        "progressToken": token,
                        "progress": step,
                        "total": 4,
                        "message": f"call {number}",
                    }
                    note: dict[str, object] = {"method": "notifications/progress", "params": report}
                    self._later.append((now + 0.02 * step, rpc_id, note))
            self._later.append((now + 0.1, rpc_id, answer))
        else:
            self._write(answer)


if __name__ == "__main__":
    Child(sys.argv[1]).run()
