"""What the HTTP endpoint answers as usual: media types, sessions, GET, POST, DELETE.

The order of the checks is that of real servers: target, method, media types, JSON, session, then the
message itself. Every check is made when its turn comes, so a session that a rule's wait has outlived is lost.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ._envelope import HANDSHAKE_VERSIONS, INVALID_REQUEST, PARSE_ERROR, encode, error_message
from ._replies import (
    JSON_TYPE,
    SSE_TYPE,
    Reply,
    empty_reply,
    json_reply,
    lost_session,
    missing_session,
    open_event_stream,
    text_reply,
)

if TYPE_CHECKING:
    from ._exchange import Exchange
    from ._ledger import Arrival
    from ._server import FakeServer


class Endpoint:
    """The usual answers of one server."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    async def answer(self, exchange: Exchange, message: Any) -> Reply:
        """Do what a request asks for and say how it is answered. `message` is its decoded body."""
        arrival, server = exchange.arrival, self._server
        engine = server.engine
        if arrival.target.partition("?")[0] != server.path:
            return text_reply(404, "Not Found")
        if arrival.http_method == "GET":
            return self._open_stream(exchange)
        if arrival.http_method == "DELETE":
            return self._delete(exchange)
        if arrival.http_method != "POST":
            return text_reply(405, "Method Not Allowed", {"allow": "GET, POST, DELETE"})
        if (refused := self._unacceptable(arrival)) is not None:
            return refused
        if arrival.kind == "response":
            if exchange.era == "handshake" and (refused := self._session_refused(exchange)) is not None:
                return refused
            engine.questions.resolve(message)
            return empty_reply(202)
        named = exchange.era == "handshake" and arrival.method != "initialize"
        if named and (refused := self._session_refused(exchange)) is not None:
            return refused
        if arrival.kind == "notification":
            engine.notified(exchange)
            return empty_reply(202)
        answer = await engine.respond(exchange)
        headers = {}
        if exchange.opened_session and exchange.session is not None and exchange.session.id is not None:
            headers["mcp-session-id"] = exchange.session.id
        stream = None
        if answer.listen is not None:
            stream = open_event_stream(subscription_id=arrival.id, methods=answer.listen)
        return Reply(answer.status, encode(answer.message), JSON_TYPE, headers, answer.message, stream)

    def _unacceptable(self, arrival: Arrival) -> Reply | None:
        headers = arrival.headers
        if self._server.strict:
            if not headers.get("content-type", "").startswith(JSON_TYPE):
                return text_reply(415, "Content-Type must be application/json")
            accept = headers.get("accept", "")
            if JSON_TYPE not in accept or SSE_TYPE not in accept:
                refusal = "Not Acceptable: Client must accept both application/json and text/event-stream"
                return json_reply(error_message("server-error", INVALID_REQUEST, refusal), 406)
        if arrival.kind == "invalid":
            try:
                json.loads(arrival.body)
            except ValueError:
                return json_reply(error_message(None, PARSE_ERROR, "Parse error"), 400)
            return json_reply(error_message(None, INVALID_REQUEST, "Invalid Request"), 400)
        return None

    def _session_refused(self, exchange: Exchange) -> Reply | None:
        arrival, engine = exchange.arrival, self._server.engine
        version = arrival.headers.get("mcp-protocol-version")
        if engine.use_sessions:
            if arrival.session_id is None:
                return missing_session(engine.dialect, engine.new_id)
            exchange.session = engine.sessions.get(arrival.session_id)
            if exchange.session is None:
                return lost_session(engine.lost_spelling)
            negotiated = exchange.session.version
            if version is None and negotiated is not None and negotiated >= "2025-06-18":
                engine.ledger.violations.append(f"{arrival.name} without mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_VERSIONS:
            text = f"Bad Request: Unsupported protocol version: {version}"
            return json_reply(error_message("server-error", INVALID_REQUEST, text), 400)
        return None

    def _open_stream(self, exchange: Exchange) -> Reply:
        engine = self._server.engine
        if exchange.era == "stateless" or not engine.use_sessions or not self._server.get_stream:
            return text_reply(405, "Method Not Allowed", {"allow": "POST"})
        if SSE_TYPE not in exchange.arrival.headers.get("accept", ""):
            return text_reply(406, "Not Acceptable: Client must accept text/event-stream")
        if (refused := self._session_refused(exchange)) is not None:
            return refused
        session = exchange.session
        assert session is not None
        last_id = exchange.arrival.headers.get("last-event-id")
        for kept in self._server.kept:
            if kept.session is session and last_id in kept.ids:
                return Reply(200, kept.rest(), SSE_TYPE)
        if session.listener is not None:
            text = "Conflict: Only one SSE stream is allowed per session"
            return json_reply(error_message("server-error", INVALID_REQUEST, text), 409)
        stream = open_event_stream()
        stream.listener.session = session
        return Reply(200, stream=stream)

    def _delete(self, exchange: Exchange) -> Reply:
        engine = self._server.engine
        if exchange.era == "stateless" or not engine.use_sessions:
            return text_reply(405, "Method Not Allowed", {"allow": "POST"})
        if (refused := self._session_refused(exchange)) is not None:
            return refused
        assert exchange.arrival.session_id is not None
        engine.end_session(exchange.arrival.session_id)
        return empty_reply(200)
