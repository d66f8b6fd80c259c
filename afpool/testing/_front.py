"""What stdio and WebSocket have in common: one stream per client, messages told apart by their ids.

Rules and invariants:

* A message is filed when it has been read; notifications are taken in at once (unless a rule concerns them),
  requests each in a task of their own, so a slow tool holds up nobody. Requests that come in one piece
  may be served in any order.
* Everything that leaves goes through one queue and one writer, which the front brings: messages never mix.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ._actions import (
    SAME_ID,
    Answering,
    Body,
    CloseFrame,
    Drop,
    Flood,
    JsonRpcError,
    RawBytes,
    Result,
    Truncate,
    flooded,
    with_id,
)
from ._envelope import PARSE_ERROR, Message, encode, error_message, notification, result_message
from ._exchange import Exchange, Listener, Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._engine import Engine
    from ._ledger import Arrival


class StreamExchange(Exchange):
    """An exchange whose early messages go out on the stream like everything else."""

    __slots__ = ("_front",)

    def __init__(self, front: StreamFront, arrival: Arrival) -> None:
        era = front.engine.era_of(arrival, front.session)
        super().__init__(arrival, era, front.session, front.peer)
        self._front = front

    async def emit(self, message: Message) -> None:
        self._front.send(message)
        await trio.lowlevel.checkpoint()


class StreamFront(ABC):
    """One client's stream.

    Attributes:
        joins: Whether bytes that end messages of their own may be queued together.

    Args:
        engine: What the server is.
        peer: Tells this stream's requests from those of others.
        connection: Number of the connection in the ledger.
        headers: Of the request that opened the stream, where there was one.
    """

    def __init__(self, engine: Engine, peer: str, *, connection: int = 0) -> None:
        self.engine = engine
        self.joins = False
        self.peer = peer
        self.session = Session(None)
        self.number = connection
        self.headers: Mapping[str, str] = {}
        self._listeners: list[Listener] = []

    # ------------------------------------------------------------------ what a front brings

    @abstractmethod
    def queue(self, data: bytes, kind: str) -> None:
        """Have one message written; `kind` is `answer` for the answer to a request."""

    @abstractmethod
    async def misbehave(self, action: Answering, usual: bytes) -> None:
        """Carry out a `Drop`, `Truncate`, `RawBytes` or `CloseFrame`; `usual` is the answer it is for."""

    @abstractmethod
    async def drained(self) -> None:
        """Wait until next to nothing is queued any more."""

    def opened(self) -> None:  # noqa: B027 -- most have nothing to add
        """An `initialize` or `server/discover` has been answered with a result."""

    # ------------------------------------------------------------------ messages

    def send(self, message: Message, kind: str = "") -> None:
        """Have a message written."""
        self.queue(encode(message), kind)

    def file(self, body: bytes) -> tuple[Arrival, Any]:
        """Put what has just been read into the ledger; also returns it decoded, `None` if it is no JSON."""
        message: Any = None
        with suppress(ValueError):
            message = json.loads(body)
        arrival = self.engine.ledger.arrive(message, body, connection=self.number, headers=self.headers)
        return arrival, message

    def take(self, arrival: Arrival, message: Any, nursery: trio.Nursery) -> None:
        """Handle what has been filed; what takes time runs in `nursery`."""
        engine = self.engine
        if arrival.kind == "invalid":
            self.send(error_message(None, PARSE_ERROR, "Parse error"))
            return
        exchange = StreamExchange(self, arrival)
        if arrival.kind == "request":
            engine.begin(exchange)
        elif not engine.rules.concern(arrival):
            # In the reader's own step: what follows may depend on it.
            self._take_in(exchange, message)
            return
        nursery.start_soon(self._handle, exchange, message)

    def forget_streams(self) -> None:
        """The client is gone, and with it whatever listened for it."""
        for listener in self._listeners:
            self.engine.streams.remove(listener)
        self._listeners.clear()

    def _take_in(self, exchange: Exchange, message: Message) -> None:
        if exchange.arrival.kind == "response":
            self.engine.questions.resolve(message)
        else:
            self.engine.notified(exchange)

    async def _handle(self, exchange: Exchange, message: Message) -> None:
        engine, arrival = self.engine, exchange.arrival
        is_request = arrival.kind == "request"
        try:
            with exchange.scope:
                action = await engine.rules.decide(arrival)
                if action is not None:
                    await self._scripted(exchange, action, message)
                elif is_request:
                    answer = await self._respond(exchange)
                    exchange.cancellable = False
                    self._answer(exchange, answer)
                else:
                    self._take_in(exchange, message)
            if exchange.scope.cancelled_caught and (late := engine.cancelled_answer(exchange)) is not None:
                self.send(late.message, "answer")
        finally:
            if is_request:
                engine.end(exchange)

    async def _respond(self, exchange: Exchange) -> Message:
        answer = await self.engine.respond(exchange)
        if answer.listen is not None:
            self._listen(exchange, answer.listen)
        return answer.message

    def _listen(self, exchange: Exchange, methods: frozenset[str]) -> None:
        subscription = exchange.arrival.id

        def finish(final: Message | None) -> None:
            self.engine.streams.remove(listener)
            self.send(
                notification("notifications/cancelled", {"requestId": subscription})
                if final is None
                else final
            )

        self._add(
            listener := Listener(self.send, finish, subscription_id=subscription, methods=methods),
        )

    def _add(self, listener: Listener) -> None:
        self._listeners.append(listener)
        self.engine.streams.add(listener)

    def _answer(self, exchange: Exchange, message: Message) -> None:
        self.send(message, "answer")
        method = exchange.arrival.method
        if method not in {"initialize", "server/discover"} or "error" in message:
            return
        if method == "initialize" and self.session.listener is None:
            self._add(Listener(self.send, _stays_open, session=self.session))
        self.opened()

    async def _scripted(self, exchange: Exchange, action: Answering, message: Message) -> None:
        is_request = exchange.arrival.kind == "request"
        usual: Message | None = None
        if action.after_execution or isinstance(action, Truncate):
            if is_request:
                usual = await self._respond(exchange)
            else:
                self._take_in(exchange, message)
        exchange.cancellable = False
        rpc_id = exchange.arrival.id
        match action:
            case RawBytes():
                await self.misbehave(attrs.evolve(action, data=with_id(action.data, rpc_id)), b"")
            case Drop() | Truncate() | CloseFrame():
                await self.misbehave(action, b"" if usual is None else encode(usual))
            case Body():
                self.queue(with_id(action.data, rpc_id), "answer")
            case Flood():
                for data in flooded(action, rpc_id, joined=self.joins):
                    self.queue(data, "")
                    await self.drained()
                if is_request:
                    self._answer(exchange, await self._respond(exchange))
                else:
                    self._take_in(exchange, message)
            case Result():
                answer_id = rpc_id if action.id is SAME_ID else action.id
                self._answer(exchange, result_message(answer_id, action.result))
            case JsonRpcError():
                answer_id = rpc_id if action.id is SAME_ID else action.id
                self.send(error_message(answer_id, action.code, action.message, action.data), "answer")
            case _:
                # Hang and HoldStream: never an answer.
                return


def _stays_open(final: Message | None) -> None:
    """Such a stream ends with its connection only."""
    del final
