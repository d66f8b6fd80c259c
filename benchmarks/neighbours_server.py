"""The servers of the neighbours, each role in a process of its own.

    python neighbours_server.py healthy             # four servers, one of each kind
    python neighbours_server.py noisy               # one of the kinds that are made trouble with
    python neighbours_server.py drain URL TROUBLE   # asks the noisy one as a tenant would, without the pool

A process prints where it listens, as one line of JSON. The noisy one misbehaves from a line of stdin that
names a trouble until the next line; the drain asks from one line until the next. Both are nice.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import trio

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from afpool.testing import FakeServer, FakeTool, Hang, Notice, RawBytes, Status, sleep_tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from afpool.testing import Arrival

HUGE: Final = 100 * 1024 * 1024
TOOLS: Final = 5000
FLOOD_PERIOD: Final = 0.01  # seconds
FLOOD_SIZE: Final = 10  # notifications each time: a thousand a second
CHANGE_PERIOD: Final = 1.0  # a changed list each second
CHILD: Final = (sys.executable, "-IS", str(Path(__file__).parent / "neighbours_child.py"))
NICE: Final = 10
LOG: Final = {"level": "info", "data": "the same again"}


class Noise:
    """What the noisy server does now."""

    def __init__(self) -> None:
        self.trouble = "none"
        self._lists = 0
        text = b'"' + b"y" * HUGE + b'"'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text)
        self.server = FakeServer.http(answer="sse", tools=[FakeTool("sleep", self._sleep)])
        for trouble, method, action in (
            ("hangs in calls", "tools/call", Hang()),
            ("100 MB answers", "tools/call", RawBytes(head + text)),
            ("429 to calls", "tools/call", Status(429, {"retry-after": "1"})),
        ):
            self.server.on(method, action, when=self._in(trouble))

    def _in(self, trouble: str) -> Any:
        return lambda _: self.trouble == trouble

    async def _sleep(self, arguments: Mapping[str, Any], arrival: Arrival) -> AsyncGenerator[Any, None]:
        del arrival
        seconds = float(arguments.get("seconds", 0))
        if self.trouble == "notifications":
            until = trio.current_time() + 5
            while self.trouble == "notifications" and trio.current_time() < until:
                for _ in range(FLOOD_SIZE):
                    yield Notice("notifications/message", LOG)
                await trio.sleep(FLOOD_PERIOD)
        await trio.sleep(seconds)
        yield "slept"

    async def change_lists(self) -> None:
        """A list of 5,000 tools, each described anew, announced again and again."""
        usual = list(self.server.engine.tools)
        while True:
            await trio.sleep(CHANGE_PERIOD)
            if self.trouble == "5,000 tools":
                self._lists += 1
                said = f"list {self._lists} " + "y" * 150
                large = [FakeTool(f"tool-{number}", description=said) for number in range(TOOLS)]
                self.server.set_tools([*usual, *large])
            elif self._lists:
                self._lists = 0
                self.server.set_tools(usual)


def deaf() -> tuple[str, list[socket.socket]]:
    """An address at which connecting never ends: nobody accepts, and there is no room to wait in."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    kept = [listening]
    for _ in range(4):
        caller = socket.socket()
        caller.setblocking(False)
        caller.connect_ex(listening.getsockname())
        kept.append(caller)
    return f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", kept


async def noisy() -> None:
    """Serve, and misbehave as stdin says."""
    os.nice(NICE)
    noise = Noise()
    where, kept = deaf()
    async with noise.server as server, trio.open_nursery() as nursery:
        nursery.start_soon(noise.change_lists)
        nursery.start_soon(forget, [server])
        print(json.dumps({"noisy": server.url, "deaf": where}), flush=True)
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            while data := await stdin.receive_some(4096):
                noise.trouble = data.decode().split("\n")[-2]
                if noise.trouble == "none":
                    server.close_connections()  # what is in the middle of a hundred megabytes ends here
        nursery.cancel_scope.cancel()
    del kept


async def healthy() -> None:
    """Serve until the end of stdin."""
    servers = {
        "http": FakeServer.http(tools=[sleep_tool()]),
        "http-sse": FakeServer.http(answer="sse", tools=[sleep_tool()]),
        "http-stateless": FakeServer.http(era="stateless", tools=[sleep_tool()]),
        "websocket": FakeServer.ws(tools=[sleep_tool()]),
    }
    async with trio.open_nursery() as nursery:
        for server in servers.values():
            await nursery.start(server.run)
        nursery.start_soon(forget, list(servers.values()))
        print(json.dumps({kind: server.url for kind, server in servers.items()}), flush=True)
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            while await stdin.receive_some(4096):
                pass
        nursery.cancel_scope.cancel()


async def forget(servers: list[FakeServer]) -> None:
    """The ledger is not needed."""
    while True:
        await trio.sleep(2)
        for server in servers:
            server.clear_log()


# ------------------------------------------------------------------ the noise alone


class Drain:
    """Asks the noisy server as its tenant does, and throws away what comes: its noise without the pool."""

    def __init__(self, url: str, trouble: str, callers: int, pause: float) -> None:
        self._at = urlsplit(url)
        self._trouble = trouble
        self._callers = callers
        self._pause = pause
        self._on = threading.Event()

    def run(self) -> None:
        """Ask from one line of stdin until the next."""
        os.nice(NICE)
        for _ in range(self._callers):
            threading.Thread(target=self._calls, daemon=True).start()
        print(json.dumps({}), flush=True)
        for line in sys.stdin:
            if line.strip() == "none":
                self._on.clear()
            else:
                self._on.set()

    def _calls(self) -> None:
        while True:
            self._on.wait()
            with contextlib.suppress(OSError):
                if self._trouble == "crash in call":
                    self._crash()
                else:
                    self._one()
            time.sleep(self._pause)

    def _crash(self) -> None:
        """Start a child, ask it for what a client asks for, and see it end in a call."""
        opening = {"protocolVersion": "2025-11-25", "capabilities": {},
                   "clientInfo": {"name": "drain", "version": "1"}}  # fmt: skip
        with subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            for method, params in (
                ("initialize", opening),
                ("tools/list", {}),
                ("tools/call", {"name": "crash", "arguments": {}}),
            ):
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                child.stdin.write(json.dumps(message).encode() + b"\n")
                child.stdin.flush()
                child.stdout.readline()

    def _one(self) -> None:
        with socket.create_connection((self._at.hostname or "", self._at.port or 0), 5) as sock:
            session = self._post(sock, "initialize", protocolVersion="2025-11-25", capabilities={},
                                 clientInfo={"name": "drain", "version": "1"})  # fmt: skip
            if self._trouble == "5,000 tools":
                self._post(sock, "tools/list", session=session)
                time.sleep(CHANGE_PERIOD)
            else:
                self._post(sock, "tools/call", session=session, name="sleep", arguments={"seconds": 0.1})

    def _post(self, sock: socket.socket, method: str, session: str = "", **params: Any) -> str:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        more = f"mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n" if session else ""
        head = (
            f"POST {self._at.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\n{more}content-length: {len(body)}\r\n\r\n"
        )
        sock.sendall(head.encode() + body)
        first, got = b"", 0
        while self._on.is_set() and got < 16 * 1024 * 1024:
            data = sock.recv(1 << 16)
            if not data:
                break
            got += len(data)
            first = (first + data)[-4096:] if method != "initialize" else first + data
            if first.endswith((b"0\r\n\r\n", b"}\n\n")) or b"\r\n0\r\n" in first[-16:]:
                break
        for line in first.split(b"\r\n"):
            if line.lower().startswith(b"mcp-session-id:"):
                return line.partition(b":")[2].strip().decode()
        return ""


def main() -> None:
    if sys.argv[1] == "drain":
        url, trouble, callers, pause = sys.argv[2:]
        Drain(url, trouble, int(callers), float(pause)).run()
    else:
        trio.run({"noisy": noisy, "healthy": healthy}[sys.argv[1]])


if __name__ == "__main__":
    main()
