"""How a client answers its server in the handshake era: at once, in the background, or with an error.

* The reader never waits: taking a request in is one synchronous step.
* Every request is answered, by an error where nothing better can be said. Left out are only those that the
  server withdrew, those of a client that is over, and what comes while `ANSWERS` answers wait already.
* Whose request it is, is decided by the law in `afpool/protocol/_server_requests.py`, once, when it comes.
* A handler ends with its operation and with its client. What it answered leaves under the gate of the client
  and, where it belongs to an operation, under a recheck of that call: an answer whose ground is gone becomes
  an error.
* Over HTTP answers have a lane of their own: a request of the client's own whose server asks something before
  it answers holds the control lane meanwhile.

Nothing is kept of calls where a plan offers nothing.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.errors import PoolClosed
from ..protocol import INTERNAL_ERROR as FAILED
from ..protocol import (
    LATEST_HANDSHAKE,
    NOTHING_DECLARED,
    USER_REJECTED,
    Attribution,
    MalformedMessage,
    NotJson,
    decode_json,
    encode_error,
    encode_json,
    encode_result,
)
from ..transports import WireClosed
from ._control import Nothing
from ._own import send_own
from ._running import AnswerGate, Running
from ._server_requests import ElicitRequest, make_request
from ._stream_channel import StreamChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..protocol import Message
    from ..transports import Outgoing
    from ._client import Client
    from ._server_requests import ServerRequest, ServerRequests
    from ._trip import Trip

logger = logging.getLogger("afpool")

ANSWERS: Final = 64
ADDRESSES: Final = 256  # whose end is waited for, the newest


@final
class _Handler:
    """One request that a handler answers."""

    __slots__ = ("key", "request", "request_id", "running", "scope", "withdrawn")

    def __init__(
        self,
        key: bytes,
        request_id: object,
        request: ServerRequest,
        running: Running | None,
        deadline: float,
    ) -> None:
        self.key = key
        self.request_id = request_id
        self.request = request
        self.running = running
        self.scope = trio.CancelScope(deadline=deadline)
        self.withdrawn = False


@final
class Answering:
    """The answering side of one client.

    Attributes:
        offers: What the plan offers, if anything.
        tracks: Whether requests on their way are kept, so that one of the server's can be attributed.
        dropped: Requests that were not answered: in an era without them, or too many at once.
    """

    __slots__ = (
        "_addresses", "_book", "_client", "_handlers", "_left", "_posts", "_spawn", "_stopped", "_token",
        "capabilities", "dropped", "offers", "tracks",
    )  # fmt: skip

    def __init__(self, client: Client, offers: ServerRequests | None, spawn: Callable[..., None]) -> None:
        self.offers = offers
        self.capabilities = NOTHING_DECLARED if offers is None else offers.capabilities
        self.tracks = offers is not None
        self.dropped = 0
        self._client = client
        self._spawn = spawn
        self._handlers: dict[bytes, _Handler] = {}
        self._posts = 0
        self._stopped = False
        self._token = 0
        self._addresses: dict[str, None] = {}  # that were shown, and are not done yet
        self._book: Attribution[Running] = Attribution()
        self._left: dict[int, Trip] = {}  # whose caller has gone, and whose answer may still come

    # ------------------------------------------------------------------ whose it is

    @contextlib.contextmanager
    def running(self, caller: Any) -> Iterator[None]:
        """Let a caller be an operation that requests of the server can belong to."""
        running = caller.operation = Running(caller)
        try:
            yield
        finally:
            running.end()

    @contextlib.contextmanager
    def tracked(self, trip: Trip, running: Running | None) -> Iterator[None]:
        """Keep a request as unanswered while it is on its way, and beyond where its caller goes first."""
        self._token += 1
        token = self._token
        self._book.sent(token, running)
        try:
            yield
        finally:
            if not self._settled(token, trip):
                self._look_again()
                self._book.given_up(token)
                self._left[token] = trip

    def stream_of(self, running: Running | None) -> Callable[[Message], None]:
        """What is told of the messages on one request's own response stream."""
        return partial(self._heard, running)

    def doubt(self) -> None:
        """A request ended without proof that the server has ended it too."""
        self._book.doubt()

    def _settled(self, token: int, trip: Trip) -> bool:
        if trip.answered or (trip.over and not trip.begun):
            self._book.answered(token)
        elif trip.over:
            self._book.lost(token)
        else:
            return False
        return True

    def _look_again(self) -> None:
        for token, trip in tuple(self._left.items()):
            if self._settled(token, trip):
                del self._left[token]

    def _heard(self, running: Running | None, message: Message) -> None:
        if message.is_request:
            self._take(message, running)
        else:
            self._client.heard(message)

    def asked(self, message: Message) -> None:
        """Take in a request on a stream that several share. Synchronous."""
        running = None
        if self.tracks:
            self._look_again()
            running = self._book.whose()
        self._take(message, running)

    # ------------------------------------------------------------------ what is said to it

    def _take(self, message: Message, running: Running | None) -> None:
        client = self._client
        if self._stopped or client.stateless:
            self.dropped += 1
            return
        request_id, method = message.id, message.method
        if method == "ping":
            self._send(encode_result(request_id), None, request_id)
            return
        params = _params(message)
        version = LATEST_HANDSHAKE if client.negotiated is None else client.negotiated.version
        refusal = self.capabilities.refuses(method, params, version)
        if refusal is not None:
            self._refuse(request_id, refusal.code, refusal.reason)
            return
        offers = self.offers
        assert offers is not None
        assert method is not None
        key = encode_json(request_id)
        if key in self._handlers:
            return  # the same one again, as a resumed stream may repeat it; it is answered once
        if running is not None and running.over:
            self._refuse(request_id, FAILED, "the call that this belongs to has ended")
        elif len(self._handlers) >= offers.max_handlers:
            self._refuse(request_id, FAILED, "too many requests at once")
        else:
            request = make_request(
                method,
                params,
                client.server,
                client.projection,
                None if running is None else running.operation,
            )
            if isinstance(request, ElicitRequest) and request.mode == "url":
                self.shown(request.elicitation_id)
            now = client.settings.seams.now()
            deadline = now + offers.timeout if running is None else running.operation.deadline
            handler = self._handlers[key] = _Handler(key, request_id, request, running, deadline)
            if running is not None:
                running.add(handler.scope)
            try:
                self._spawn(self._handle, handler)
            except PoolClosed:
                self._ended(handler)

    def withdrawn(self, message: Message) -> None:
        """The server takes a request back: its handler is cancelled, and nothing is answered."""
        try:
            key = encode_json(_params(message).get("requestId"))
        except NotJson:
            return  # nothing that was asked under: an id is read as something that can be written
        handler = self._handlers.get(key)
        if handler is not None:
            handler.withdrawn = True
            handler.scope.cancel()

    def shown(self, elicitation_id: str | None) -> None:
        """An address is about to be shown to the host: its end may be told."""
        offers = self.offers
        if elicitation_id is None or offers is None or offers.on_elicitation_complete is None:
            return
        self._addresses.pop(elicitation_id, None)
        if len(self._addresses) >= ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[elicitation_id] = None

    def completed(self, message: Message) -> None:
        """Take a `notifications/elicitation/complete`; of what was not shown, or is done, nothing is told."""
        elicitation_id = _params(message).get("elicitationId") if self._addresses else None
        if not isinstance(elicitation_id, str) or elicitation_id not in self._addresses:
            return
        del self._addresses[elicitation_id]
        with contextlib.suppress(PoolClosed):
            self._spawn(self._tell, elicitation_id)

    async def _tell(self, elicitation_id: str) -> None:
        assert self.offers is not None
        assert self.offers.on_elicitation_complete is not None
        await trio.lowlevel.checkpoint()
        try:
            self.offers.on_elicitation_complete(elicitation_id)
        except Exception as error:  # noqa: BLE001 -- the app's code; its text may hold anything
            logger.error("on_elicitation_complete for server %r raised %s", self._client.server,  # noqa: TRY400
                         type(error).__name__)  # fmt: skip

    def stop(self) -> None:
        """The client is over: cancel what works on answers. Synchronous."""
        self._stopped = True
        for handler in tuple(self._handlers.values()):
            handler.scope.cancel()

    # ------------------------------------------------------------------ handlers

    async def _handle(self, handler: _Handler) -> None:
        request_id, running = handler.request_id, handler.running
        answer = encode_error(request_id, FAILED, "no answer in time")
        try:
            with handler.scope:
                try:
                    assert self.offers is not None
                    result = await self.offers.answer(handler.request)
                except Exception as error:  # noqa: BLE001 -- the app's code; its text may hold what it answers
                    self._failed(handler, type(error).__name__)
                    answer = encode_error(request_id, FAILED, "the client could not answer")
                else:
                    answer = (
                        encode_error(request_id, USER_REJECTED, "the user rejected the request")
                        if result is None
                        else encode_result(request_id, result)
                    )
        finally:
            self._ended(handler)
        if handler.withdrawn or self._stopped:
            return
        if handler.scope.cancelled_caught and running is not None and running.over:
            answer = encode_error(request_id, FAILED, "the call that this belonged to has ended")
            running = None
        self._send(answer, running, request_id)

    def _failed(self, handler: _Handler, word: str) -> None:
        logger.error("the handler of %s for server %r raised %s", handler.request.method,
                     self._client.server, word)  # fmt: skip
        if handler.running is not None:
            handler.running.note(word, self._client.settings.seams.now())

    def _ended(self, handler: _Handler) -> None:
        del self._handlers[handler.key]
        if handler.running is not None:
            handler.running.discard(handler.scope)

    # ------------------------------------------------------------------ sending

    def _refuse(self, request_id: object, code: int, reason: str) -> None:
        self._send(encode_error(request_id, code, reason), None, request_id)

    def _send(self, data: bytes, running: Running | None, request_id: object) -> None:
        client = self._client
        channel = client.channel
        gate = AnswerGate(client, running)
        if not isinstance(channel, StreamChannel):
            if self._posts >= ANSWERS:
                self.dropped += 1
                return
            with contextlib.suppress(PoolClosed):
                self._spawn(self._post, data, gate, request_id)
                self._posts += 1
            return

        def refused(_: Outgoing) -> None:
            if gate.closed:
                self._refuse(request_id, FAILED, "the client may not answer any more")

        with contextlib.suppress(WireClosed):
            channel.link.submit(data, gate, None, refused)

    async def _post(self, data: bytes, gate: AnswerGate, request_id: object) -> None:
        client = self._client
        channel = client.channel
        assert not isinstance(channel, StreamChannel)
        deadline = client.settings.seams.now() + client.settings.control_timeout
        try:
            # one that does not arrive is the server's loss
            with trio.CancelScope(deadline=deadline), contextlib.suppress(Exception):
                await send_own(
                    client, b"POST", channel.headers, Nothing(),
                    lane="answer", gate=gate, deadline=deadline, body=data,
                )  # fmt: skip
        finally:
            self._posts -= 1
        if gate.closed:
            self._refuse(request_id, FAILED, "the client may not answer any more")


def _params(message: Message) -> dict[str, Any]:
    if not message.params:
        return {}
    try:
        params = decode_json(message.params)
    except MalformedMessage:
        return {}
    return params if isinstance(params, dict) else {}
