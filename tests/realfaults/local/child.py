"""A small MCP server on stdio that does wrong what only a real process can do wrong, when it is told to.

Standard library only, so that fifty of them start in a second. What it ran stands in the file that is its
first argument, one number a line, written before anything else is done: verdicts are judged by it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

LOG = sys.argv[1]
HABITS = sys.argv[2:]


def note(text: str) -> None:
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{text}\n".encode())
    os.close(file)


def say(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def answered(number: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n"


def text_of(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def chatter() -> None:
    while True:
        os.write(2, b"warning: nothing of this is an error\n" * 1000)


def sleeps_with_the_pipe(*, elsewhere: bool) -> None:
    if os.fork() == 0:
        if elsewhere:
            os.setsid()
        note(f"grandchild {os.getpid()}")
        time.sleep(120)
        os._exit(0)


def act(number: Any, arguments: dict[str, Any]) -> None:
    what = arguments.get("do", "echo")
    note(f"ran {arguments.get('n')}")
    answer = answered(number, text_of(f"{arguments.get('n')}"))
    match what:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "half":
            say(answer[: len(answer) // 2])
            time.sleep(120)
        case "half and die":
            say(answer[: len(answer) // 2])
            os._exit(1)
        case "deaf":
            os.close(1)
            time.sleep(120)
        case "out of memory":
            big = answered(number, text_of("x" * 4_000_000))
            say(big[:2_000_000])
            resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))
            say(big[2_000_000:] + b"x" * 2**30)
        case "chatter":
            threading.Thread(target=chatter, daemon=True).start()
            say(answer)
        case "fork" | "fork elsewhere":
            sleeps_with_the_pipe(elsewhere=what == "fork elsewhere")
            say(answer)
        case "sleep":
            time.sleep(arguments["seconds"])
            say(answer)
        case "big":
            say(answered(number, text_of("x" * arguments["size"])))
        case "answer and die":
            say(answer)
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            say(answer)


def main() -> None:
    note(f"started {os.getpid()}")
    if "ignores SIGTERM" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        number = message.get("id")
        match message.get("method"):
            case "initialize":
                version = message["params"]["protocolVersion"]
                about = {"name": "child", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
                say(answered(number, result))
            case "tools/list":
                tool = {"name": "do", "inputSchema": {"type": "object"}}
                say(answered(number, {"tools": [tool]}))
            case "tools/call":
                act(number, message["params"].get("arguments", {}))
            case "ping":
                say(answered(number, {}))
            case _ if number is not None:
                error = {"code": -32601, "message": "not known"}
                say(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode() + b"\n")
            case _:
                pass
    while "ignores the end" in HABITS:
        time.sleep(60)


main()
