"""One HTTP/1.1 connection: a wire, what h11 knows of it, and whether it may be used again.

Rules:

* A kept connection is used again only after a look at it without waiting: not idle for longer than was
  agreed, nothing unread on it, not closed by the server.
* Bytes behind a finished answer that belong to no request make a connection unusable.
* A message whose answer was complete before its own end leaves a *tail*. The tail is read when the
  connection is next looked at, never waited for; one that is longer or older than it should be ends the
  connection.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, cast

import h11

from afpool.transports._plain import Body, Head, read_head
from afpool.transports._request import HttpRequest, encode_head
from afpool.transports._wire import Wire, WireClosed

MAX_HEAD: Final = 64 * 1024
"""The most bytes that a response's head may have."""

MAX_BEFORE_ANSWER: Final = 4 * MAX_HEAD
"""The most bytes that are read before the head of the final answer is there."""

FRAMING: Final = 512 * 1024
"""The most bytes of a body that may be no content (sizes of chunks, their extensions, trailers), beside
`FRAMING_PER_BYTE` for each byte of content."""

FRAMING_PER_BYTE: Final = 16

MAX_TAIL: Final = 64 * 1024
"""The most bytes of a tail that are read in order to keep a connection."""

READ_BODY: Final = 64 * 1024
"""How much is read at once of a body."""

READ_EVENTS: Final = 8 * 1024
"""How much is read at once of a body that may hold many messages, each of them work: between two reads every
other task has its turn."""

_CRUMBS: Final = 32  # pieces in one read, from which on they are as much work as events

MAX_TAIL_AGE: Final = 1.0
"""Seconds after which a tail that is still open costs the connection."""

Headers = list[tuple[bytes, bytes]]

_FRAMING_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
_NEED_DATA: Final = h11.NEED_DATA
_END: Final = h11.EndOfMessage()
_WITHOUT_BODY: Final = frozenset({b"HEAD", b"CONNECT"})


class BadHttp(Exception):
    """What the server sent is not the HTTP/1.1 that was asked for. Quotes no byte of it."""


class Truncated(Exception):
    """The connection ended in the middle of an answer."""


class Sink(Protocol):
    """Takes an answer as it arrives. What it raises ends the connection and passes to the reader."""

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the status and the headers, names in lower case."""
        ...

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece of the body; true when the answer is complete and its end need not be awaited."""
        ...


_TOLD: dict[bytes, h11.Request] = {}


def _told(method: bytes) -> h11.Request:
    """Stand for any request of a method: how an answer may look depends on nothing else of it."""
    event = _TOLD.get(method)
    if event is None:
        headers = [(b"host", b"h"), (b"content-length", b"0")]
        event = _TOLD[method] = h11.Request(method=method, target=b"/", headers=headers)
    return event


class HttpConnection:
    """A wire with its HTTP state. Used by one exchange at a time.

    Args:
        wire: Connected; closed with this connection.
        expiry: Seconds for which an idle connection may be used again, unless the server says less.
        now: Trio's clock.

    Attributes:
        wire: Handed in.
        answering: The head of the present answer came.
        read_size: How many bytes to read next, at most. Depends on nothing but what came.
        expires: When, on trio's clock, the idle connection may no longer be used.
        tail_since: When an answer was complete whose end has not come yet.
    """

    __slots__ = (
        "_body",
        "_content",
        "_ended",
        "_framed",
        "_head_bytes",
        "_keep_for",
        "_method",
        "_parser",
        "_spare",
        "answering",
        "expires",
        "read_size",
        "tail_since",
        "wire",
    )

    def __init__(self, wire: Wire, expiry: float, now: float) -> None:
        self.wire = wire
        self.expires = now + expiry
        self.tail_since: float | None = None
        self.answering = False
        self.read_size = READ_BODY
        self._keep_for = expiry
        self._method = b""
        self._body: Body | None = None  # of this answer, where its head is a plain one
        self._parser: h11.Connection | None = None  # of this answer, where not all of it is plain
        self._spare: h11.Connection | None = None
        self._head_bytes = 0
        self._framed = 0  # bytes received since the head, read by h11
        self._content = 0  # of these, what was content
        self._ended = False

    def encode(self, request: HttpRequest, host: bytes) -> bytes:
        """The bytes of the request, in one piece.

        Raises:
            Unsendable: The request cannot be said in HTTP/1.1, such as for a line break in a header's
                value. Quotes no value.
        """
        self._parser = self._body = None
        self._method = request.method
        self._head_bytes = 0
        self.answering = False
        self.read_size = READ_BODY
        self._ended = False
        return encode_head(request, host) + request.body

    def feed(self, data: bytes, sink: Sink) -> bool:
        """Take bytes that were received (`b""`: the end of the stream) and give the sink its part.

        Returns:
            Whether the sink has its answer, or the message has ended.

        Raises:
            BadHttp: What came is not an answer to the request.
            Truncated: The stream ended inside the answer.
            WireClosed: The stream ended before the answer.
            Exception: What the sink raised.
        """
        if not self.answering:
            if not data and not self._head_bytes:
                raise WireClosed("the server closed the connection without an answer", local=False)
            self._head_bytes += len(data)
            if self._head_bytes > MAX_BEFORE_ANSWER:
                raise BadHttp("the server sends interim answers without end")
        if self._parser is None:
            body = self._body
            if body is None:
                head = None if self._method in _WITHOUT_BODY else read_head(data)
                if head is not None:
                    end, length = head.end, head.length
                    if len(data) - end == length:
                        return self._feed_whole(head, data[end:], sink)
                    body = self._body = Body(b"" if length is not None else data[:end], length)
                    self._on_head(head.status, head.headers, sink)
                    data = data[end:]
                    if not data:
                        return False
            if body is not None:
                complete = self._feed_plain(body, data, sink)
                if body.odd is None:
                    return complete
                self._hand_over(body)
                if complete:
                    self._ended = self._skip_to_end()
                    return True
                return self._feed_odd(data, sink)
            self._parser = self._new_parser()
        assert self._parser is not None
        self._parser.receive_data(data)
        self._framed += len(data)
        return self._feed_odd(data, sink)

    def _feed_whole(self, head: Head, content: bytes, sink: Sink) -> bool:
        """Give the sink the usual answer, all of which came at once."""
        self._ended = True
        self._on_head(head.status, head.headers, sink)
        if content:
            sink.data(content)
        return True

    def _feed_plain(self, body: Body, data: bytes, sink: Sink) -> bool:
        """Give the sink what came of a plain body; whether it has its answer."""
        if not data:
            raise Truncated("the server closed the connection in the middle of an answer")
        pieces = body.take(data)
        self._ended = body.ended
        if len(pieces) > _CRUMBS:
            self.read_size = READ_EVENTS
        return any(map(sink.data, pieces)) or body.ended

    def _hand_over(self, body: Body) -> None:
        """Let h11 read the rest of an answer: to it, it is an answer that begins here."""
        parser = self._parser = self._new_parser()
        parser.receive_data(body.for_h11())
        parser.next_event()  # the head, which the sink has

    def _feed_odd(self, data: bytes, sink: Sink) -> bool:
        """Give the sink what h11 makes of what it received; `data` is what came last."""
        connection = self._parser
        assert connection is not None
        pieces = 0
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                break
            if event is _NEED_DATA:
                if self._framed - self._content > FRAMING + FRAMING_PER_BYTE * self._content:
                    raise BadHttp("the server's answer is nearly all chunk extensions")
                if pieces > _CRUMBS:
                    self.read_size = READ_EVENTS
                return False
            # h11's events are final classes with an abstract base, which makes `isinstance` dear
            kind: Any = type(event)
            if kind is h11.Data:
                chunk = bytes(cast("h11.Data", event).data)
                pieces += 1
                self._content += len(chunk)
                if sink.data(chunk):
                    self._ended = self._skip_to_end()
                    return True
            elif kind is h11.EndOfMessage:
                self._ended = True
                return True
            elif isinstance(event, h11.Response):
                if event.http_version[:2] != b"1.":
                    break
                headers = [(name.lower(), value) for name, value in event.headers.raw_items()]
                if _FRAMING_HEADERS.issubset(name for name, _ in headers):
                    # RFC 9112, section 6.3: whoever is on the way may have read the other one
                    raise BadHttp("the server's answer states its length in two ways")
                self._on_head(event.status_code, headers, sink)
            elif not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                # An upgrade was never asked for.
                break
        # Raised out here: h11's error quotes what the server sent.
        if not data:
            raise Truncated("the server closed the connection in the middle of an answer")
        what = "the body of the server's answer" if self.answering else "the server's answer"
        raise BadHttp(f"{what} is not HTTP/1.1, or its head is larger than {MAX_HEAD} bytes")

    def _new_parser(self) -> h11.Connection:
        """Make h11 ready for an answer: tell it that a request of this method was sent."""
        parser, self._spare = self._spare, None
        if parser is None:
            parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        parser.send(_told(self._method))
        parser.send(_END)
        self._framed = self._content = 0
        return parser

    def rest(self, now: float) -> bool:
        """Lay the connection by after an answer; false when it must be closed."""
        if self.wire.closed:
            return False
        self.expires = now + self._keep_for
        if self._ended:
            return self._next_cycle()
        self.tail_since = now
        return True

    def rest_unsent(self) -> bool:
        """Lay the connection by after a request that never left; false when it must be closed."""
        return self.wire.alive()

    def look(self, now: float) -> bool | None:
        """Look whether it can carry a request: true, false (close it), or `None` (its tail is still open)."""
        if self.tail_since is not None:
            if not self._read_tail():
                return False
            if not self._ended:
                return None if now - self.tail_since <= MAX_TAIL_AGE else False
            self.tail_since = None
            if not self._next_cycle():
                return False
        return now < self.expires and self.wire.alive()

    def _on_head(self, status: int, headers: Headers, sink: Sink) -> None:
        if self._head_bytes > MAX_HEAD and sum(len(name) + len(value) for name, value in headers) > MAX_HEAD:
            raise BadHttp(f"the head of the server's answer is larger than {MAX_HEAD} bytes")
        self.answering = True
        for name, value in headers:
            if name == b"content-encoding":
                if value.strip().lower() not in {b"identity", b""}:
                    raise BadHttp("the server's answer has a content encoding that was not asked for")
            elif name == b"keep-alive":
                self._keep_for = min(self._keep_for, _announced(value))
            elif name == b"content-type" and value.startswith(b"text/event-stream"):
                self.read_size = READ_EVENTS
        sink.head(status, headers)

    def _skip_to_end(self) -> bool:
        """Pass over what is buffered of an answer that is complete; whether its end was there."""
        parser = self._parser
        assert parser is not None
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError:
                return False
            if isinstance(event, h11.EndOfMessage):
                return True
            if not isinstance(event, h11.Data):
                return False

    def _read_tail(self) -> bool:
        """Read what has come of the tail; false when the connection is of no more use."""
        budget = MAX_TAIL
        while not self._ended:
            try:
                data = self.wire.receive_nowait()
            except WireClosed:
                return False
            if data is None:
                return True
            budget -= len(data)
            if not data or budget < 0:
                return False
            parser = self._parser
            if parser is None:
                body = self._body
                assert body is not None
                body.take(data)
                self._ended = body.ended
                if body.odd is None:
                    continue
                self._hand_over(body)
                parser = self._parser
                assert parser is not None
            else:
                parser.receive_data(data)
            self._ended = self._skip_to_end()
            if parser.their_state is h11.ERROR:
                return False
        return True

    def _next_cycle(self) -> bool:
        parser, self._parser = self._parser, None
        body, self._body = self._body, None
        if parser is None:
            return body is None or not body.excess
        left, ended = parser.trailing_data
        if left or ended or parser.our_state is not h11.DONE or parser.their_state is not h11.DONE:
            # Bytes that no request asked for, the end of the stream, or a server that said it would close.
            return False
        parser.start_next_cycle()
        self._spare = parser
        return True


def _announced(value: bytes) -> float:
    """Seconds for which the server's `Keep-Alive` header lets an idle connection be used, less one."""
    for part in value.split(b","):
        name, _, seconds = part.strip().partition(b"=")
        if name.strip().lower() == b"timeout":
            digits = seconds.strip().strip(b'"')
            if digits.isdigit():
                return max(0.0, float(digits[:9]) - 1.0)
    return float("inf")
