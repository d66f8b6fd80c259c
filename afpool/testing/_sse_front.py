"""The HTTP+SSE transport of 2024-11-05: one stream for all answers, one POST per message.

Rules:

* GET opens the stream; its first event, `endpoint`, names where this session's messages are posted. The
  session ends with its stream.
* A message is taken with 202 and answered on the stream. What a rule scripts as a JSON-RPC answer goes out on
  the stream; a status, a dropped connection or silence is the POST's own.
* A POST anywhere else is answered 405 at the stream's path and 404 elsewhere, as servers of then do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import attrs

from ._actions import Answering, JsonRpcError, Result
from ._exchange import Session
from ._http_scripted import scripted
from ._replies import empty_reply, open_event_stream, scripted_reply, text_reply

if TYPE_CHECKING:
    from ._envelope import Message
    from ._exchange import Listener
    from ._http import HttpConnection, HttpExchange
    from ._server import FakeServer


class SseFront:
    """What a server of that transport does with each HTTP request.

    Attributes:
        endpoint: Sent as the data of the `endpoint` event; `{}` stands for the session id.
        accept_late: The POST of a request is answered only after its answer went out on the stream.
    """

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.endpoint = "/messages/?session_id={}"
        self.accept_late = False

    async def handle(self, connection: HttpConnection, exchange: HttpExchange, message: Any) -> bool:
        """Answer one HTTP request; says whether the connection can take another."""
        arrival, server = exchange.arrival, self._server
        parts = urlsplit(arrival.target)
        action = await server.engine.rules.decide(arrival)
        if parts.path == server.path:
            if action is not None:
                return await scripted(connection, exchange, action, message)
            if arrival.http_method != "GET":
                return await connection.answer(
                    exchange, text_reply(405, "Method Not Allowed", {"allow": "GET"})
                )
            return await self._stream(connection, exchange)
        if parts.path != urlsplit(self.endpoint).path or arrival.http_method != "POST":
            return await connection.answer(exchange, text_reply(404, "Not Found"))
        session = server.engine.sessions.get(parse_qs(parts.query).get("session_id", [""])[0])
        if session is None or session.listener is None:
            return await connection.answer(exchange, text_reply(404, "Could not find session"))
        return await self._message(connection, exchange, action, message, session)

    async def _stream(self, connection: HttpConnection, exchange: HttpExchange) -> bool:
        engine = self._server.engine
        session = Session(engine.new_id())
        assert session.id is not None
        engine.sessions[session.id] = session
        stream = open_event_stream()
        stream.listener.session = session
        opening = f"event: endpoint\ndata: {self.endpoint.format(session.id)}\n\n".encode()
        try:
            return await connection.pump(exchange, stream, None, opening)
        finally:
            engine.sessions.pop(session.id, None)

    async def _message(
        self,
        connection: HttpConnection,
        exchange: HttpExchange,
        action: Answering | None,
        message: Any,
        session: Session,
    ) -> bool:
        arrival = exchange.arrival
        exchange.session, exchange.peer = session, session.id
        listener = session.listener
        assert listener is not None
        exchange.deliver = listener.deliver
        if action is not None and not isinstance(action, (JsonRpcError, Result)):
            if action.after_execution:
                await self._run(exchange, message)
            return await scripted(connection, exchange, attrs.evolve(action, after_execution=False), message)
        if arrival.kind == "invalid":
            return await connection.answer(exchange, text_reply(400, "Could not parse message"))
        if arrival.kind != "request":
            await self._run(exchange, message)
        elif self.accept_late:
            await self._respond(exchange, action, listener)
        else:
            self._server.start_soon(self._respond, exchange, action, listener)
        return await connection.answer(exchange, empty_reply(202))

    async def _run(self, exchange: HttpExchange, message: Any) -> None:
        """Take a message as what it is. The answer to a request is not sent."""
        engine, arrival = self._server.engine, exchange.arrival
        if arrival.kind == "response":
            engine.questions.resolve(message)
        elif arrival.kind == "notification":
            engine.notified(exchange)
        elif arrival.kind == "request":
            await engine.respond(exchange)

    async def _respond(self, exchange: HttpExchange, action: Answering | None, listener: Listener) -> None:
        engine = self._server.engine
        engine.begin(exchange)
        answer: Message | None = None
        try:
            with exchange.scope:
                if action is None or action.after_execution:
                    answer = (await engine.respond(exchange)).message
                if action is not None:
                    answer = scripted_reply(action, exchange.arrival.id).message
            if exchange.scope.cancelled_caught:
                cancelled = engine.cancelled_answer(exchange)
                answer = None if cancelled is None else cancelled.message
        finally:
            engine.end(exchange)
        if answer is not None:
            listener.deliver(answer)
