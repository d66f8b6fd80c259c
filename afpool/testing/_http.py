"""One connection of the HTTP front: h11 over a stream.

Rules and invariants:

* Two tasks per connection: the reader takes bytes at all times, so that the end of the connection is seen
  while a request waits; the other handles one request after the other.
* A request is filed when it has been read in full, and then belongs to the rules; the checks and the answer
  of a real server come after them.
* An answer is one write. Only event streams that stay open, and `Sse(split=...)`, write more often.
* When the client is gone, nothing is written any more; what still runs follows the rules of `_exchange`.
* Nothing here waits for real time.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import h11
import trio

from ._endpoint import Endpoint
from ._exchange import Exchange
from ._http_scripted import scripted
from ._replies import (
    SSE_TYPE,
    EventStream,
    Reply,
    empty_reply,
    event,
    json_reply,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._envelope import (
        Message,
    )
    from ._ledger import Arrival
    from ._line import Line
    from ._server import FakeServer
    from ._sse_front import SseFront

_READ = 65536
NO_BODY: Final = (204, 304)
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _GoneError(Exception):
    """The client has closed, or we have: there is nobody to write to."""


class HttpExchange(Exchange):
    """An exchange whose early messages open an event stream as its answer."""

    __slots__ = ("_connection", "deliver")

    def __init__(self, connection: HttpConnection, arrival: Arrival) -> None:
        engine = connection.server.engine
        session_id = arrival.session_id
        session = engine.sessions.get(session_id) if session_id and arrival.method != "initialize" else None
        super().__init__(arrival, engine.era_of(arrival, None), session, session_id)
        self._connection = connection
        self.deliver: Callable[[Message], None] | None = None  # HTTP+SSE: onto the session's stream

    async def emit(self, message: Message) -> None:
        if self.deliver is not None:
            self.deliver(message)
            await trio.lowlevel.checkpoint()
            return
        # Half an event on the stream would spoil the answer that may follow it.
        with trio.CancelScope(shield=True):
            await self._connection.emit(message)


class HttpConnection:
    """One connection, from accept to close."""

    def __init__(self, server: FakeServer, line: Line, number: int) -> None:
        self.server = server
        self.number = number
        self.gone = False
        self.idle = True
        self._line = line
        self._stream = line.stream
        self._http = h11.Connection(h11.SERVER)
        self._inbox: list[bytes | bytearray] = []
        self._more = trio.Event()
        self._scope = trio.CancelScope()
        self._exchange: HttpExchange | None = None
        self.streaming = False
        self._requests = 0
        self.endpoint = Endpoint(server)

    # Life

    async def run(self) -> None:
        """Serve until either side closes. Raises nothing but what is wrong with the fake itself."""
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._read)
                with suppress(_GoneError, trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._serve()
                    if not self.gone:
                        await self._stream.aclose()
                nursery.cancel_scope.cancel()
        finally:
            self.close()

    def close(self, *, reset: bool = False) -> None:
        """Close the connection now; `reset` makes the client see a reset instead of an end."""
        self._line.close(reset)
        self._lost()

    def kill(self) -> None:
        """Close the connection and end whatever still runs for this connection."""
        self.close()
        self._scope.cancel()

    def _lost(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._more.set()
        self.server.connection_lost(self)
        if self._exchange is not None:
            self._withdraw(self._exchange)

    def _withdraw(self, exchange: HttpExchange) -> None:
        if exchange.answered:
            return
        if exchange.era == "stateless" and exchange.arrival.method == "tools/call":
            self.server.ledger.cancel(exchange.arrival.id)
        if exchange.ends_with_connection or (exchange.era == "stateless" and exchange.cancellable):
            exchange.scope.cancel()

    async def _read(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._stream.receive_some(_READ):
                self._inbox.append(data)
                self._more.set()
        self._lost()

    async def write(self, data: bytes) -> None:
        """Write bytes; raises where there is nobody to write to any more, which ends the connection."""
        if self.gone:
            raise _GoneError
        await self._stream.send_all(data)

    # Requests

    async def _serve(self) -> None:
        while (request := await self._next_request()) is not None:
            self.idle = False
            body = await self._read_body()
            if body is None or not await self._handle(request, body):
                return
            self._http.start_next_cycle()
            self.streaming = False
            self.idle = True

    async def _next_event(self) -> Any:
        while True:
            try:
                found = self._http.next_event()
            except h11.RemoteProtocolError:
                self.server.ledger.arrive(None, b"", connection=self.number, http_method="?")
                await self.write(_BAD_REQUEST)
                return None
            if found is not h11.NEED_DATA:
                return found
            if not self._inbox:
                if self.gone:
                    return None
                if self._http.they_are_waiting_for_100_continue:
                    await self.write(self.framed(h11.InformationalResponse(status_code=100, headers=[])))
                self._more = trio.Event()
                await self._more.wait()
            for data in self._inbox:
                self._http.receive_data(bytes(data))
            self._inbox.clear()

    async def _next_request(self) -> h11.Request | None:
        found = await self._next_event()
        return found if isinstance(found, h11.Request) else None

    async def _read_body(self) -> bytes | None:
        pieces: list[bytes] = []
        while True:
            found = await self._next_event()
            if isinstance(found, h11.Data):
                pieces.append(bytes(found.data))
            elif isinstance(found, h11.EndOfMessage):
                return b"".join(pieces)
            else:
                return None

    async def _handle(self, request: h11.Request, body: bytes) -> bool:
        """Answer one request; says whether the connection can take another."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in request.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        verb, target = request.method.decode("ascii"), request.target.decode("latin-1")
        self._requests += 1
        route = self.server.routes.get(target.partition("?")[0])
        if route is not None:
            return await self._send_reply(await route(self, verb, headers, body))
        message: Any = None
        if verb == "POST":
            with suppress(ValueError):
                message = json.loads(body)
        arrival = self.server.ledger.arrive(
            message, body, connection=self.number, http_method=verb, target=target, headers=headers
        )
        exchange = HttpExchange(self, arrival)
        engine = self.server.engine
        if self.server.sse is not None:
            return await self._over_sse(self.server.sse, exchange, message)
        is_request = arrival.kind == "request"
        self._exchange = exchange
        if is_request:
            engine.begin(exchange)
        if self.gone:
            self._withdraw(exchange)
        try:
            with exchange.scope:
                action = await engine.rules.decide(arrival)
                if action is not None:
                    return await scripted(self, exchange, action, message)
                return await self.answer(exchange, await self.endpoint.answer(exchange, message))
            if self.gone:
                return False
            # A notice has cancelled it: the HTTP exchange still has to end somehow.
            answer = engine.cancelled_answer(exchange)
            return await self.answer(
                exchange, empty_reply(204) if answer is None else json_reply(answer.message, answer.status)
            )
        finally:
            self._exchange = None
            if is_request:
                engine.end(exchange)

    async def _over_sse(self, front: SseFront, exchange: HttpExchange, message: Any) -> bool:
        if exchange.arrival.http_method != "GET":
            return await front.handle(self, exchange, message)  # a posted message outlives its connection
        self._exchange = exchange
        try:
            with exchange.scope:
                return await front.handle(self, exchange, message)
            return False
        finally:
            self._exchange = None

    # Answers

    async def answer(self, exchange: HttpExchange, reply: Reply) -> bool:
        """Send a reply; says whether the connection can take another request."""
        if reply.stream is not None:
            return await self.pump(exchange, reply.stream, reply.message)
        # From here on neither a notice nor the end of the connection is a cancellation.
        exchange.answered = True
        exchange.cancellable = False
        return await self._send_reply(reply, may_stream=exchange.arrival.kind == "request")

    async def _send_reply(self, reply: Reply, *, may_stream: bool = False) -> bool:
        wants_stream = may_stream and self.server.answer == "sse" and reply.status == 200
        if reply.message is not None and (self.streaming or wants_stream):
            head = b"" if self.streaming else self.head_of_stream(reply.headers)
            data = self.framed(h11.Data(data=event(reply.message)))
            await self.write(head + data + self.framed(h11.EndOfMessage()))
            return self.reusable()
        if self.streaming:
            await self.write(self.framed(h11.EndOfMessage()))
            return self.reusable()
        headers = dict(reply.headers)
        if reply.content_type is not None and not any(name.lower() == "content-type" for name in headers):
            headers["content-type"] = reply.content_type
        body = b"" if reply.status in NO_BODY else reply.body  # whatever a rule wants to say with it
        if self.server.answer != "json-chunked" or not body:
            headers["content-length"] = str(len(body))
        data = self.head(reply.status, headers)
        if body:
            data += self.framed(h11.Data(data=body))
        await self.write(data + self.framed(h11.EndOfMessage()))
        return self.reusable()

    async def emit(self, message: Message) -> None:
        """Send a message ahead of the answer: the answer becomes an event stream."""
        if self.gone:
            return
        head = b"" if self.streaming else self.head_of_stream({})
        with suppress(_GoneError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.write(head + self.framed(h11.Data(data=event(message))))

    async def pump(
        self, exchange: HttpExchange, stream: EventStream, first: Message | None, opening: bytes = b""
    ) -> bool:
        """Keep an event stream open until either side ends it."""
        engine = self.server.engine
        exchange.ends_with_connection = True
        data = b"" if self.streaming else self.head_of_stream({})
        if opening:
            data += self.framed(h11.Data(data=opening))
        if first is not None:
            data += self.framed(h11.Data(data=event(first)))
        engine.streams.add(stream.listener)
        try:
            await self.write(data)
            while True:
                message, last = await stream.queue.receive()
                data = b"" if message is None else self.framed(h11.Data(data=event(message)))
                if last:
                    data += self.framed(h11.EndOfMessage())
                await self.write(data)
                if last:
                    return self.reusable()
        finally:
            engine.streams.remove(stream.listener)

    async def until_gone(self, exchange: HttpExchange) -> bool:
        """Answer nothing and wait until the client has gone; it cannot take another request then."""
        exchange.cancellable = False
        exchange.ends_with_connection = True
        while not self.gone:
            self._more = trio.Event()
            await self._more.wait()
        return False

    # Bytes

    def framed(self, item: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> bytes:
        """What h11 makes of an item."""
        return self._http.send(item) or b""

    def head(self, status: int, headers: Mapping[str, str]) -> bytes:
        """A head; it says so where the connection is closed after this answer."""
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        limit = self.server.keep_alive_max_requests
        if limit is not None and self._requests >= limit:
            pairs.append((b"connection", b"close"))
        return self.framed(h11.Response(status_code=status, headers=pairs))

    def head_of_stream(self, headers: Mapping[str, str]) -> bytes:
        """The head of an event stream; the answer is one from now on."""
        self.streaming = True
        return self.head(200, {**headers, "content-type": SSE_TYPE, "cache-control": "no-cache"})

    def reusable(self) -> bool:
        """Whether the connection can take another request."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
