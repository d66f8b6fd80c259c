"""The floor: what a careful loop by hand costs on the same wire, for the same messages.

The work is that of any client: encode the arguments, write the request in one piece, parse the answer's
HTTP, decode it, look at its id and its result. Nothing is prepared that depends on the call. JSON is
msgspec's, the fastest there is here; there is no pool, no identity, no gate, no record and no time-out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import h11
import msgspec
import trio
import trio_websocket
from responders import STATELESS, TEXT, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windows import Call

RESPONDERS = str(Path(__file__).with_name("responders.py"))
META = {
    VERSION_KEY: STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "bare", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = [
    ("accept", "application/json, text/event-stream"),
    ("content-type", "application/json"),
    ("mcp-protocol-version", STATELESS),
    ("mcp-method", "tools/call"),
    ("mcp-name", "echo"),
]

LARGE = 4 * 2**20

_encode = msgspec.json.encode
_decode = msgspec.json.decode


class Requests:
    """Makes requests with ids of their own and checks what comes back; of a `size`, where one is given."""

    def __init__(self, size: int = 0) -> None:
        self._id = 0
        self._size = size or len(TEXT)
        self._arguments = {"size": size} if size else {"text": TEXT}

    def next(self) -> tuple[int, bytes]:
        self._id += 1
        params = {"name": "echo", "arguments": self._arguments, "_meta": META}
        return self._id, _encode({"jsonrpc": "2.0", "id": self._id, "method": "tools/call", "params": params})

    def check(self, wanted: int, message: Any) -> None:
        if message["id"] != wanted or len(message["result"]["content"][0]["text"]) != self._size:
            raise RuntimeError("the answer is not the one to this request")


@asynccontextmanager
async def http(url: str, size: int = 0) -> AsyncIterator[Call]:
    """One kept connection per place; h11 over a trio stream."""
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    host = ("host", where.netloc)
    connections: dict[int, tuple[trio.SocketStream, h11.Connection]] = {}
    requests = Requests(size)

    async def call(place: int) -> None:
        connection = connections.get(place)
        if connection is None:
            opened = await trio.open_tcp_stream(where.hostname, where.port)
            connection = connections[place] = opened, h11.Connection(h11.CLIENT)
        stream, state = connection
        rpc_id, body = requests.next()
        headers = [host, *HEADERS, ("content-length", str(len(body)))]
        head = state.send(h11.Request(method="POST", target=where.path, headers=headers))
        state.send(h11.Data(data=body))
        state.send(h11.EndOfMessage())
        await stream.send_all(head + body)
        status, parts = 0, []
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                state.receive_data(await stream.receive_some(65536))
            elif type(event) is h11.Data:
                parts.append(event.data)
            elif type(event) is h11.Response:
                status = event.status_code
            elif type(event) is h11.EndOfMessage:
                break
            else:
                raise RuntimeError(f"an unexpected {event!r}")
        state.start_next_cycle()
        if status != 200:
            raise RuntimeError(f"HTTP {status}")
        requests.check(rpc_id, _decode(b"".join(parts)))

    yield call
    for stream, _ in connections.values():
        await stream.aclose()


class Waiting(Requests):
    """Requests on one stream, whose answers one reader hands to whoever waits for their id."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[int, trio.lowlevel.Task] = {}
        self._answers: dict[int, Any] = {}

    def heard(self, line: bytes | str) -> None:
        message = _decode(line)
        rpc_id = message["id"]
        self._answers[rpc_id] = message
        task = self._tasks.pop(rpc_id, None)
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def answer(self, rpc_id: int) -> None:
        if rpc_id not in self._answers:  # where writing waits, the answer may have come meanwhile
            self._tasks[rpc_id] = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
        self.check(rpc_id, self._answers.pop(rpc_id))


@asynccontextmanager
async def stdio(_: str) -> AsyncIterator[Call]:
    """A child whose answers one reader hands to whoever waits for their id."""
    command = [sys.executable, RESPONDERS, "stdio"]
    child = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert isinstance(child.stdin, trio.lowlevel.FdStream)
    assert child.stdout is not None
    stdin, stdout, fd = child.stdin, child.stdout, child.stdin.fileno()
    waiting = Waiting()

    async def read() -> None:
        rest = b""
        while data := await stdout.receive_some(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                waiting.heard(line)

    async def call(_: int) -> None:
        rpc_id, body = waiting.next()
        line = body + b"\n"
        # 64 such lines fit in an empty pipe several times over, so a short write is a fault of this loop
        if os.write(fd, line) != len(line):
            raise RuntimeError("the pipe is full: more calls at once than this loop is made for")
        await waiting.answer(rpc_id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield call
        await stdin.aclose()
        await child.wait()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def websocket(url: str) -> AsyncIterator[Call]:
    """One connection of trio-websocket's, used by all places at once."""
    waiting = Waiting()

    async def read() -> None:
        with suppress(trio_websocket.ConnectionClosed):
            while True:
                waiting.heard(await connection.get_message())

    async def call(_: int) -> None:
        rpc_id, body = waiting.next()
        await connection.send_message(body.decode())
        await waiting.answer(rpc_id)

    async with (
        trio_websocket.open_websocket_url(url, subprotocols=["mcp"]) as connection,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(read)
        yield call
        nursery.cancel_scope.cancel()


large_http = partial(http, size=LARGE)
