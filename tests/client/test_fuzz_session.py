"""A client and a server that does anything: results and our errors come out, in time, and nothing is left.

The whole client (pool, opening, listing, calls, cancellations, closing) runs over scripted wires under a mock
clock: a wire in memory, and a socket pair that stands for TCP, also with HTTP+SSE on it. `AFPOOL_FUZZ=50`
makes it run fifty times as many examples.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any
from unittest import mock

import attrs
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import afpool
from afpool import HttpTransport, MemoryTransport, Plan, Seams, Server
from afpool.transports import StreamLink, WireClosed, memory_link_pair
from tests.pool.kit import ALICE, quiet, write

if TYPE_CHECKING:
    from afpool import Pool
    from afpool.transports import MemoryWire

MORE = int(os.environ.get("AFPOOL_FUZZ", "1"))
LIMITS: dict[str, Any] = {
    "deadline": 20.0,
    "open_timeout": 15.0,
    "settle_timeout": 10.0,
    "max_message": 20_000,
    "backoff": 0.1,
    "backoff_max": 0.2,
}

# ---------------------------------------------------------------------------- what a server may do


@attrs.frozen
class Move:
    """What happens on one request: wait, then write, then close or not."""

    kind: str
    data: bytes = b""
    wait: float = 0.0
    size: int = 1 << 20
    close: bool = False


FRAGMENTS = st.sampled_from(
    [
        b'{"jsonrpc":"2.0","id":@id@,"result":{}}', b'{"jsonrpc":"2.0","id":@id@,"result":{"tools":7}}',
        b'{"jsonrpc":"2.0","id":@id@,"result":{"tools":[{"name":"a"}],"nextCursor":"x"}}',
        b'{"jsonrpc":"2.0","id":@id@,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}}',
        b'{"jsonrpc":"2.0","id":@id@,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}',
        b'{"jsonrpc":"2.0","id":@id@,"result":{"resultType":"input_required","requestState":"x"}}',
        b'{"jsonrpc":"2.0","id":@id@,"error":{"code":-32020,"message":"again"}}',
        b'{"jsonrpc":"2.0","id":@id@,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}',
        b'{"jsonrpc":"2.0","id":@id@,"error":{"code":-32600,"message":"Session not found"}}',
        b'{"jsonrpc":"2.0","id":@id@,"error":"x"}', b'{"id":@id@}', b'{"id":1,"result":NaN}',
        b'{"id":"@id@","result":null}',
        b'{"id":2,"result":{}}', b'{"id":9999,"error":{}}', b'{"method":"notifications/tools/list_changed"}',
        b'{"method":"notifications/progress","params":{"progressToken":@id@,"progress":' + b"9" * 400 + b"}}",
        b'{"method":"notifications/progress","params":{"progressToken":@id@,"progress":1}}',
        b'{"method":"notifications/cancelled","params":{"requestId":@id@}}',
        b'{"method":"notifications/subscriptions/acknowledged"}',
        b'{"id":"\\ud800","method":"ping"}', b'{"id":[],"method":"ping"}', b'{"id":7,"method":"roots/list"}',
        b'[{"id":@id@,"result":{}},7]', b"[]", b"{", b"\xff", b"null", b"x" * 25_000, b"[" * 5000,
        b'{"id":@id@,"result":"' + b"y" * 25_000 + b'"}', b"",
    ]
)  # fmt: skip
TEXTS = st.lists(FRAGMENTS | st.binary(max_size=8), min_size=1, max_size=3)
STATUSES = st.sampled_from([200, 202, 204, 301, 307, 400, 401, 403, 404, 405, 429, 500, 503])
FIELDS = st.lists(
    st.sampled_from(
        [
            b"retry-after: 1", b"retry-after: 99999999999999", b"location: /other", b"location: http://[",
            b"connection: close",
            b"location: //127.0.0.1:9/\xe9", b'www-authenticate: Bearer scope="a b"', b"mcp-session-id: abc",
            b"keep-alive: timeout=0",
            b"mcp-session-id: \x01", b"content-type: text/event-stream", b"content-type: application/json",
            b"x: \xff",
        ]
    ),
    max_size=2,
)  # fmt: skip


def line(texts: list[bytes]) -> bytes:
    return b"".join(text + b"\n" for text in texts)


def events(texts: list[bytes], ids: list[bytes]) -> bytes:
    return b"".join(
        (ids[number % len(ids)] if ids else b"") + b"data: " + text + b"\n\n"
        for number, text in enumerate(texts)
    )


IDS = st.lists(
    st.sampled_from(
        [
            b"id: e1\n",
            b"id: e2\nretry: 100\n",
            b"id:\n",
            b"id: \x00\n",
            b"retry: 999999999\n",
            b"event: endpoint\n",
            b"",
        ]
    ),
    max_size=3,
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """An HTTP answer of some kind."""
    kind = draw(st.sampled_from(["body", "events", "raw"]))
    texts = draw(TEXTS)
    if kind == "raw":
        return draw(
            st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"", b"\0"])
        ) + b"".join(texts)
    fields = b"".join(field + b"\r\n" for field in draw(FIELDS))
    head = b"HTTP/1.1 %d X\r\n" % draw(STATUSES) + fields
    if kind == "events":
        return head + b"content-type: text/event-stream\r\n\r\n" + events(texts, draw(IDS))
    return head + b"content-length: %d\r\n\r\n" % (len(texts[0]) + draw(st.integers(-1, 1))) + texts[0]


def moves(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Move]]:
    odd = st.builds(
        Move,
        st.just("odd"),
        data,
        st.sampled_from([0.0, 0.0, 1.0, 25.0]),
        st.sampled_from([1, 7, 1 << 20]),
        st.booleans(),
    )
    plain = st.sampled_from([Move("good"), Move("good", wait=3.0), Move("good", size=5)])
    return st.lists(
        st.one_of(plain, plain, plain, odd, odd, st.sampled_from([Move("silent"), Move("odd", close=True)])),
        min_size=1,
        max_size=14,
    )


def good(message: Any, era: str) -> Any:
    """The answer of a server in order, or `None` to a notification."""
    method, request_id = message.get("method"), message.get("id")
    if request_id is None or method is None:
        return None
    result: Any = {}
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}}
    elif method == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "hello"}]}
    elif method == "server/discover":
        if era == "handshake":
            return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "no"}}
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "subscriptions/listen":
        return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "no"}}
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


class Playing:
    """A server that plays its moves in order, and is in order itself once they are used up."""

    def __init__(
        self, script: list[Move], era: str, nursery: trio.Nursery, streams: list[bytes] | None
    ) -> None:
        self.script = iter(script)
        self.streams = None if streams is None else iter(streams)  # answers to a GET; `None`: HTTP+SSE
        self.stream: trio.SocketStream | None = None
        self.era = era
        self.nursery = nursery

    def next(self, message: Any) -> Move:
        """The move on a message; notifications use none up."""
        if not isinstance(message, dict) or message.get("id") is None or "method" not in message:
            return Move("good")
        return next(self.script, Move("good"))

    # In memory: a line each.

    async def connect_wire(self) -> MemoryWire:
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_link_pair()
        self.nursery.start_soon(self._lines, theirs)
        return ours

    async def _lines(self, wire: MemoryWire) -> None:
        rest = b""
        with contextlib.suppress(WireClosed):
            while data := await wire.receive():
                *lines, rest = (rest + data).split(b"\n")
                for each in lines:
                    message = json.loads(each)
                    move = self.next(message)
                    await trio.sleep(move.wait)
                    text = move.data.replace(b"@id@", json.dumps(message.get("id")).encode())
                    answer = good(message, self.era)
                    if move.kind == "good" and answer is not None:
                        text = json.dumps(answer).encode() + b"\n"
                    for at in range(0, min(len(text), 60), move.size):
                        await write(wire, text[at : at + move.size])
                        await trio.lowlevel.checkpoint()
                    await write(wire, text[60:] if move.size <= 60 else b"")
                    if move.close:
                        wire.close()
        wire.close()

    # Over HTTP: an exchange each.

    async def connect_socket(self, family: int, address: Any) -> socket.socket:
        del family, address
        await trio.lowlevel.checkpoint()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.nursery.start_soon(self._exchanges, trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
        return ours

    async def _exchanges(self, stream: trio.SocketStream) -> None:
        data = b""
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while True:
                    while b"\r\n\r\n" not in data:
                        more = await stream.receive_some(65536)
                        if not more:
                            return
                        data += more
                    head, _, data = data.partition(b"\r\n\r\n")
                    length = next(
                        (
                            int(each[15:])
                            for each in head.lower().split(b"\r\n")
                            if each.startswith(b"content-length:")
                        ),
                        0,
                    )
                    while len(data) < length:
                        data += await stream.receive_some(65536)
                    body, data = data[:length], data[length:]
                    message = json.loads(body) if body else {"method": head[:3].decode()}
                    if self.streams is None:
                        await self._old(stream, message)
                        continue
                    move = self.next(message)
                    await trio.sleep(move.wait)
                    if move.kind == "silent":
                        await trio.sleep_forever()
                    text = move.data.replace(b"@id@", json.dumps(message.get("id")).encode())
                    if move.kind == "good":
                        text = self._good_http(message)
                    for at in range(0, min(len(text), 60), move.size):
                        await stream.send_all(text[at : at + move.size])
                        await trio.lowlevel.checkpoint()
                    await stream.send_all(text[60:] if move.size <= 60 else b"")
                    if move.close:
                        return

    async def _old(self, stream: trio.SocketStream, message: Any) -> None:
        """HTTP+SSE: a POST is taken, its answer goes to the stream."""
        if message.get("method") == "GET":
            self.stream = stream
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /m\n\n"
            )
            return
        move = self.next(message)
        await trio.sleep(move.wait)
        answer = good(message, self.era)
        data = move.data.replace(b"@id@", json.dumps(message.get("id")).encode())
        if move.kind == "good":
            data = b"" if answer is None else b"data: " + json.dumps(answer).encode() + b"\n\n"
        assert self.stream is not None
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            for at in range(0, len(data), max(move.size, 1000)):
                await self.stream.send_all(data[at : at + max(move.size, 1000)])
            if move.close:
                await self.stream.aclose()
        await stream.send_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")

    def _good_http(self, message: Any) -> bytes:
        if message.get("method") == "GET":
            assert self.streams is not None
            return next(self.streams, b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
        answer = good(message, self.era)
        if answer is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        body = json.dumps(answer).encode()
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )


# ---------------------------------------------------------------------------- what a client does


async def attempt(doing: Any, within: float) -> Any:
    """Do something that ends in time, with a value or with an error of ours whose verdict may be."""
    with trio.fail_after(within):
        try:
            return await doing
        except afpool.AfpoolError as error:
            sound(error)
            return None


def sound(error: afpool.AfpoolError) -> None:
    assert error.delivery in type(error).deliveries
    str(error).encode()


def float_of(step: afpool.Progress) -> None:
    assert isinstance(step.progress, float)


async def session(pool: Pool, leave: list[float]) -> None:
    """Open, list, call, cancel, refresh: whatever the server makes of it."""
    found = await attempt(pool.tools(ALICE), 60)
    for patience in leave:
        if found is None or "echo" not in found:
            found = await attempt(pool.refresh(ALICE), 60)
            continue
        tool = found["echo"]
        with trio.move_on_after(patience):
            result = await attempt(tool.call({"n": 1}, identity=ALICE, on_progress=float_of), 30)
            if result is not None:
                with contextlib.suppress(afpool.ProtocolError):
                    _ = (result.code, result.text)
        if patience > 50:
            found = await attempt(pool.tools(ALICE), 60)


async def play(way: str, era: str, script: list[Move], leave: list[float], streams: list[bytes]) -> None:
    async with trio.open_nursery() as nursery:
        server = Playing(script, era, nursery, None if way == "sse" else streams)
        transport: Any = (
            MemoryTransport(name="m", connect=server.connect_wire)
            if way == "line"
            else HttpTransport(url="http://127.0.0.1:9/mcp", streaming="sse" if way == "sse" else "auto")
        )
        options = {**LIMITS, "seams": Seams(connect=server.connect_socket)}
        async with afpool.open_pool(
            [Server(name="files", plan=Plan(transport=transport))], **options
        ) as pool:
            await session(pool, leave)
            await trio.sleep(60)  # what was given up has settled by now
            quiet(pool)
            for client in pool.openings.clients.values():
                # a subscription that is neither refused nor ended stays open, and nothing else
                listens = client.stream_state in ("connecting", "listening")
                assert len(getattr(client.channel, "_pending", ())) <= listens
            with trio.fail_after(LIMITS["open_timeout"] + 5):
                await pool.aclose()
        assert pool.records.failures == 0
        assert not pool.openings.clients
        nursery.cancel_scope.cancel()


LEAVE = st.lists(st.sampled_from([0.0, 0.5, 5.0, 100.0]), min_size=2, max_size=5)


def fuzz(examples: int) -> Any:
    return settings(max_examples=examples * MORE, suppress_health_check=list(HealthCheck))


def run(
    way: str, era: str, script: list[Move], leave: list[float], streams: list[bytes] | None = None
) -> None:
    # A stream that ends by a fault of ours looks like one that its server ended.
    faults: list[Exception] = []
    with mock.patch.object(StreamLink, "_fail", lambda link, error: faults.append(error)):
        trio.run(
            play, way, era, script, leave, streams or [], clock=trio.testing.MockClock(autojump_threshold=0)
        )
    assert not faults


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@given(script=moves(TEXTS.map(line)), leave=LEAVE)
@example(
    script=[Move("good"), Move("good"), Move("good"), Move("odd", b'{"id":@id@}\n')], leave=[100.0, 100.0]
)
@fuzz(60)
def test_sessions_over_lines(era: str, script: list[Move], leave: list[float]) -> None:
    run("line", era, script, leave)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@given(script=moves(answers()), leave=LEAVE, streams=st.lists(answers(), max_size=6))
@fuzz(60)
def test_sessions_over_http(era: str, script: list[Move], leave: list[float], streams: list[bytes]) -> None:
    run("http", era, script, leave, streams)


@given(script=moves(st.builds(events, TEXTS, IDS)), leave=LEAVE)
@fuzz(60)
def test_sessions_over_http_sse(script: list[Move], leave: list[float]) -> None:
    run("sse", "handshake", script, leave)
