"""Requests as HTTP exchanges: one POST each, the answer as JSON or as an event stream.

Answers are correlated by exchange, not by id: servers put wrong ids, and none, on errors. An event stream
that ends early may be taken up again: `_resume.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

import trio

from .._base.errors import ServerFailed
from ..protocol import (
    Message,
    encode_notification,
    encode_request,
)
from ..transports import HttpLink, HttpRequest, Truncated, WireClosed, Woken
from ._answer_sink import AnswerSink
from ._header_rules import merged
from ._resume import Resumption, event_id_header
from ._trip import Answer, Rpc, ignore_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..transports import Headers, HttpExchange, HttpxExchange, HttpxLink, LaneName, Origin
    from ._client import Client
    from ._trip import Caller

    Link: TypeAlias = HttpLink | HttpxLink


@final
class Draft:
    """A request that is whole but for its signature.

    Attributes:
        request: Every byte of it, as it will be sent.
        request_id: The id that its body holds.
        rpc: What it was made from.
    """

    __slots__ = ("request", "request_id", "rpc")

    def __init__(self, request: HttpRequest, request_id: int, rpc: Rpc) -> None:
        self.request = request
        self.request_id = request_id
        self.rpc = rpc


@final
class HttpChannel:
    """One client's way to one HTTP endpoint.

    Attributes:
        target: Path and query; a redirect to the same origin changes it.
        headers: Sent with every request, lower-case pairs.
        on_message: Told of notifications and requests that come on any stream.
        movable: Whether `http` may become `https` where the server says so.
        resumes: The client whose answers may be asked for again where their stream ends early; `None` where
            its protocol version knows no such thing, and while it is being opened.
    """

    first_wait: ClassVar[str] = "connect"  # what a request waits for before it leaves

    __slots__ = (
        "_before", "_next", "headers", "link", "max_message", "movable", "on_message", "resumes", "target",
    )  # fmt: skip

    def __init__(
        self, link: Link, target: bytes, headers: Headers, max_message: int, *, movable: bool = True
    ) -> None:
        self.link = link
        self.target = target
        self.headers = headers
        self.max_message = max_message
        self.movable = movable
        self.on_message: Callable[[Message], None] = ignore_message
        self.resumes: Client | None = None
        self._before: Link | None = None
        self._next = 0

    @property
    def last_id(self) -> int:
        """The id of the latest request."""
        return self._next

    def next_id(self) -> int:
        """Count one more request of this client."""
        self._next += 1
        return self._next

    def trip(self, rpc: Rpc, headers: Headers) -> HttpTrip:
        """Make a trip; nothing happens before its `run`."""
        return HttpTrip(self, self._request(rpc, headers), rpc, self._next)

    def draft(self, rpc: Rpc, headers: Headers) -> Draft:
        """Make a request that lacks nothing but its signature; `signed_trip` sends it."""
        return Draft(self._request(rpc, headers), self._next, rpc)

    def _request(self, rpc: Rpc, headers: Headers) -> HttpRequest:
        self._next += 1
        request_id = self._next
        params = rpc.params
        if callable(params):
            params = params(request_id)
        body = (
            encode_notification(rpc.method, params)
            if rpc.notification
            else encode_request(request_id, rpc.method, params)
        )
        pairs = [*self.headers, *rpc.headers]
        if headers:
            pairs = merged(pairs, headers)
        return HttpRequest(b"POST", self.target, pairs, body)

    def signed_trip(self, draft: Draft, signature: Headers) -> HttpTrip:
        """Make a trip of a draft: nothing of it changes, the signature is added."""
        return HttpTrip(self, with_headers(draft.request, signature), draft.rpc, draft.request_id)

    def move(self, origin: Origin) -> None:
        """Use connections to another origin from now on; what is on the way on the old ones ends there."""
        assert isinstance(self.link, HttpLink)
        self._before = self.link
        self.link = self.link.moved(origin)

    def url(self) -> str:
        """Where requests go, whole."""
        origin = self.link.origin
        return f"{origin.scheme}://{origin.authority.decode()}{self.target.decode()}"

    def kill(self) -> None:
        """Close every connection at once."""
        self.link.close()
        if self._before is not None:
            self._before.close()


def with_headers(request: HttpRequest, headers: Headers) -> HttpRequest:
    """The same request with further headers, which replace those of the same name."""
    if not headers:
        return request
    return HttpRequest(request.method, request.target, merged([*request.headers], headers), request.body)


@final
class HttpTrip:
    """One POST and its answer."""

    __slots__ = ("_channel", "_exchange", "_lane", "_rest", "_sink", "request_id", "size")

    def __init__(self, channel: HttpChannel, request: HttpRequest, rpc: Rpc, request_id: int) -> None:
        self.request_id = request_id
        self.size = len(request.body)
        self._channel = channel
        self._lane: LaneName = rpc.lane
        self._rest: Resumption | None = None
        on_message = channel.on_message if rpc.on_message is None else rpc.on_message
        self._sink = AnswerSink(channel.max_message, on_message, rpc.on_progress, request_id, channel)
        self._exchange: HttpExchange | HttpxExchange = channel.link.exchange(request, self._sink, rpc.lane)

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        return self._exchange.begun

    @property
    def answered(self) -> bool:
        """Its answer has come; one without a JSON-RPC message is a sign of life all the same."""
        return self._sink.message is not None or (self._rest is None and self._exchange.complete)

    @property
    def over(self) -> bool:
        """Nothing more is to come."""
        return not self._exchange.held if self._rest is None else self._rest.over

    async def run(self, gate: Caller, deadline: float) -> Answer:
        """Send under the gate and wait for the answer; raises what the exchange raises.

        Raises:
            ResumeFailed: The answer's stream ended early, and the rest of it cannot be had.
        """
        try:
            await self._exchange.run(gate, deadline)
        except (Truncated, WireClosed) as error:
            if (isinstance(error, WireClosed) and error.local) or not self._may_go_on():
                raise
        else:
            if self._sink.message is not None or not self._may_go_on():
                return self._answer()
        self._rest = Resumption(self._channel, self._sink, self.request_id, self._lane, gate)
        try:
            await self._rest.run(deadline)
        except (Woken, trio.Cancelled):
            raise  # handed over: a cancel notice is still to be sent
        except BaseException:
            self._rest.over = True
            raise
        return self._answer()

    def _may_go_on(self) -> bool:
        parser = self._sink.parser
        return (
            parser is not None
            and self._sink.status == 200
            and self._channel.resumes is not None
            and event_id_header(parser.last_event_id) is not None
        )

    async def finish(self) -> Answer:
        """Wait on after a hand-over."""
        self._sink.on_progress = None
        if self._rest is None:
            await self._exchange.finish()
        else:
            await self._rest.finish()
        return self._answer()

    def _answer(self) -> Answer:
        try:
            return self._sink.answer()
        except ServerFailed:
            # Connections are laid by when their answer is there, before anybody has read it.
            if isinstance(self._channel.link, HttpLink):
                self._channel.link.drop_idle()
            raise

    def wake(self) -> None:
        """Make the task that waits raise `Woken`."""
        if self._rest is None:
            self._exchange.wake()
        else:
            self._rest.wake()

    def close(self) -> None:
        """Close the connection: the end of the response stream, if there was one."""
        if self._rest is None:
            self._exchange.close()
        else:
            self._rest.close()
