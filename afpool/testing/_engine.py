"""The MCP half of the fake: answers messages, knows nothing of sockets.

Rules and invariants:

* The handshake era lives in sessions; over HTTP a session exists from the answer to `initialize` until
  DELETE, `forget_sessions` or a restart. The stateless era reads nothing but the request at hand.
* A stream transport whose server speaks both eras is locked to the era of its first exchange.
* A `requestState` comes back as it was given, and only where one was given; all else is a violation.
* A tool runs inside its exchange's cancel scope, and is filed in the ledger in the step in which it starts.
  An exchange that was cancelled before that step files no execution.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import trio

from ._envelope import (
    CANCELLED,
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    META_SERVER,
    META_VERSION,
    METHOD_NOT_FOUND,
    STATELESS_STATUS,
    STATELESS_VERSIONS,
    Dialect,
    Era,
    Message,
    RpcError,
    RpcId,
    check_envelope,
    check_routing_headers,
    check_version_header,
    error_message,
    meta_of,
    notification,
    result_message,
    unsupported_version,
)
from ._exchange import (
    LIST_CHANGED,
    Advertise,
    Answer,
    Exchange,
    Listen,
    LostSpelling,
    Session,
    tag_subscription,
)
from ._ledger import Arrival, Ledger
from ._offers import UPDATED, Offers
from ._pages import page_of
from ._questions import Questions
from ._repeats import Repeats
from ._rules import Rules
from ._streams import Streams, honour
from ._tools import Ask, FakeTool, Notice, Progress, echo_tool, text_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Eras: TypeAlias = Literal["handshake", "stateless", "both"]


def unguessable_id() -> str:
    """A session id as servers make them."""
    return secrets.token_hex(16)


class Engine:
    """Sessions, lists, calls and notifications of one fake server."""

    def __init__(
        self,
        eras: Eras = "handshake",
        tools: Sequence[FakeTool] | None = None,
        *,
        dialect: Dialect = "python",
        sessions: bool = True,
        advertise: Advertise | None = None,
        ids: Callable[[], str] | None = None,
    ) -> None:
        self.new_id = unguessable_id if ids is None else ids
        self.eras: Eras = eras
        self.dialect: Dialect = dialect
        self.use_sessions = sessions
        self.advertise = Advertise() if advertise is None else advertise
        self.tools: list[FakeTool] = [echo_tool()] if tools is None else list(tools)
        self.tools_for: Callable[[Arrival], Sequence[FakeTool]] | None = None
        self.ledger = Ledger()
        self.rules = Rules()
        self.offers = Offers()
        self.repeats = Repeats()
        self.sessions: dict[str, Session] = {}
        self.lost_spelling: LostSpelling = "404"
        self.listen_enabled = True
        self.answer_cancelled = True
        self.initialize_refusal = -32022
        self.streams = Streams(self.ledger.wake)
        self._running: dict[tuple[str, RpcId], Exchange] = {}
        self.questions = Questions(self.ledger)
        self._states: set[str] = set()  # every `requestState` that was given, as JSON

    # Eras and sessions

    def era_of(self, arrival: Arrival, session: Session | None) -> Era:
        """Which era a message belongs to."""
        if self.eras != "both":
            return self.eras
        if arrival.method == "initialize":
            return "handshake"
        if arrival.http_method:
            if arrival.session_id is not None:
                return "handshake"
            version = arrival.headers.get("mcp-protocol-version")
            if version is not None and version not in HANDSHAKE_VERSIONS:
                return "stateless"
        elif session is not None and session.locked is not None:
            return session.locked
        named = META_VERSION in meta_of(arrival.params)
        return "stateless" if named else "handshake"

    @property
    def versions(self) -> tuple[str, ...]:
        """Every version that is served, newest first."""
        served: tuple[str, ...] = ()
        if self.eras != "handshake":
            served += STATELESS_VERSIONS
        if self.eras != "stateless":
            served += HANDSHAKE_VERSIONS[::-1]
        return served

    def end_session(self, session_id: str) -> bool:
        """Forget one session and end its stream; says whether it was there."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return False
        if session.listener is not None:
            self.streams.finish(session.listener, None)
        self.ledger.wake()
        return True

    def forget_sessions(self, spelling: LostSpelling | None) -> None:
        """Forget all sessions; `spelling` says how their loss is answered from now on (None: as before)."""
        if spelling is not None:
            self.lost_spelling = spelling
        for session_id in list(self.sessions):
            self.end_session(session_id)

    # Exchanges

    def begin(self, exchange: Exchange) -> None:
        """Make a request known to cancellation notices."""
        if exchange.peer is None:
            return
        key = (exchange.peer, exchange.arrival.id)
        if key in self._running:
            self.ledger.violations.append(f"request id {exchange.arrival.id!r} is used twice at a time")
        self._running[key] = exchange

    def end(self, exchange: Exchange) -> None:
        """The request has been answered or given up."""
        if exchange.peer is not None:
            key = (exchange.peer, exchange.arrival.id)
            if self._running.get(key) is exchange:
                del self._running[key]

    def notified(self, exchange: Exchange) -> None:
        """Take in a notification."""
        arrival = exchange.arrival
        if arrival.method == "notifications/cancelled":
            self._cancel(exchange.peer, arrival.params.get("requestId"))
        elif arrival.method == "notifications/initialized" and exchange.session is not None:
            session = exchange.session
            session.initialized = True
            if self.advertise.list_changed_after_initialized:
                if session.listener is not None:
                    session.listener.offer(LIST_CHANGED, None)
                else:
                    session.pending.append(notification(LIST_CHANGED))

    def _cancel(self, peer: str | None, rpc_id: RpcId) -> None:
        for listener in self.streams.open:
            if listener.session is None and listener.subscription_id == rpc_id and peer is not None:
                self.streams.remove(listener)
                return
        self.ledger.cancel(rpc_id)
        running = None if peer is None else self._running.get((peer, rpc_id))
        if running is not None and running.cancellable:
            running.scope.cancel()

    async def respond(self, exchange: Exchange) -> Answer:
        """Do what a request asks for and answer it. Protocol errors are answers, not exceptions."""
        arrival = exchange.arrival
        try:
            if exchange.era == "handshake":
                result = await self._handshake(exchange)
            else:
                result = await self._stateless(exchange)
        except RpcError as error:
            status = 200
            if exchange.era == "stateless" and arrival.http_method:
                status = STATELESS_STATUS.get(error.code, 200)
            return Answer(error_message(arrival.id, error.code, error.message, error.data), status)
        if exchange.session is not None and exchange.session.locked is None:
            exchange.session.locked = exchange.era
        if isinstance(result, Listen):
            params = tag_subscription({"notifications": result.honoured}, arrival.id)
            acknowledged = notification("notifications/subscriptions/acknowledged", params)
            return Answer(acknowledged, 200, result.methods)
        return Answer(result_message(arrival.id, result))

    def cancelled_answer(self, exchange: Exchange) -> Answer | None:
        """How a request that a notice has cancelled is answered, if at all."""
        if not self.answer_cancelled:
            return None
        return Answer(error_message(exchange.arrival.id, CANCELLED, "Request cancelled"))

    # The handshake era

    async def _handshake(self, exchange: Exchange) -> Any:
        arrival, session = exchange.arrival, exchange.session
        method = arrival.method
        if method == "initialize":
            return self._initialize(exchange)
        if method == "ping":
            return {}
        if session is not None and not session.initialized:
            self.ledger.violations.append(f"{method} before notifications/initialized")
            if self.dialect == "python":
                raise RpcError(INVALID_PARAMS, "Received request before initialization was complete")
        if method == "tools/list":
            return self._list(arrival)
        if method == "tools/call":
            return await self._call(exchange)
        if (found := self._offered(arrival)) is not None:
            return found
        if method == "logging/setLevel":
            if session is not None:
                session.log_level = arrival.params.get("level")
            return {}
        if method in ("resources/subscribe", "resources/unsubscribe") and self.offers.subscribable_uris:
            uri = self.offers.find(arrival.params.get("uri")).uri
            if session is not None:
                (session.subscribed.add if method.endswith("/subscribe") else session.subscribed.discard)(uri)
            return {}
        if self.dialect == "python" and method == "server/discover":
            raise RpcError(INVALID_PARAMS, "Invalid request parameters")
        raise RpcError(METHOD_NOT_FOUND, "Method not found")

    def _initialize(self, exchange: Exchange) -> Message:
        offered = exchange.arrival.params.get("protocolVersion")
        session = exchange.session
        if session is not None and session.locked == "stateless":
            raise unsupported_version(offered, STATELESS_VERSIONS)
        if session is None and self.use_sessions:
            session = Session(self.new_id())
            assert session.id is not None
            self.sessions[session.id] = session
            exchange.session = session
            exchange.opened_session = True
        version = offered if offered in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        if session is not None:
            session.version = version
        result: Message = {
            "protocolVersion": version,
            "capabilities": self._capabilities(),
            "serverInfo": {"name": self.advertise.name, "version": "1"},
        }
        if self.advertise.instructions is not None:
            result["instructions"] = self.advertise.instructions
        return result

    def _capabilities(self) -> Message:
        tools: Message = {"listChanged": True} if self.advertise.list_changed else {}
        return {"tools": tools, **self.offers.capabilities, **self.advertise.capabilities}

    def _offered(self, arrival: Arrival) -> Message | None:
        """The answer to a request for what is no tool; None where it is not offered."""
        assert arrival.method is not None
        listing = self.offers.listing(arrival.method)
        if listing is not None:
            return page_of(*listing, arrival, self.advertise)
        return self.offers.answer(arrival.method, arrival.params)

    # The stateless era

    async def _stateless(self, exchange: Exchange) -> Any:
        arrival = exchange.arrival
        method, params = arrival.method, arrival.params
        assert method is not None
        if method == "initialize":
            if self.initialize_refusal == METHOD_NOT_FOUND:
                raise RpcError(METHOD_NOT_FOUND, "Method not found")
            raise unsupported_version(params.get("protocolVersion"), self.versions)
        if arrival.http_method:
            check_version_header(arrival.headers, params)
        check_envelope(params, self.versions, STATELESS_VERSIONS)
        if arrival.http_method:
            tool = self._find(arrival) if method == "tools/call" else None
            schema = None if tool is None else tool.input_schema
            check_routing_headers(arrival.headers, method, params, schema)
        if method == "tools/call":
            self._check_state(params)
            result = self._complete(await self._call(exchange))
            if "requestState" in result:
                self._states.add(json.dumps(result["requestState"]))
            return result
        if method == "tools/list":
            return self._complete(self._cacheable(self._list(arrival)))
        if (offered := self._offered(arrival)) is not None:
            cacheable = method.endswith("/list") or method == "resources/read"
            return self._complete(self._cacheable(offered) if cacheable else offered)
        if method == "server/discover":
            found: Message = {"supportedVersions": list(self.versions), "capabilities": self._capabilities()}
            if self.advertise.instructions is not None:
                found["instructions"] = self.advertise.instructions
            found["_meta"] = {META_SERVER: {"name": self.advertise.name, "version": "1"}}
            return self._complete(self._cacheable(found))
        if method == "subscriptions/listen" and self.listen_enabled:
            return honour(params, self.offers.subscribable_uris, list_changed=self.advertise.list_changed)
        raise RpcError(METHOD_NOT_FOUND, "Method not found")

    def _check_state(self, params: Mapping[str, Any]) -> None:
        if "requestState" not in params:
            return
        state = params["requestState"]
        if json.dumps(state) not in self._states and state not in self.rules.states_given:
            self.ledger.violations.append("a requestState that was never given")

    def _complete(self, result: Message) -> Message:
        if self.advertise.result_type is not None:
            result.setdefault("resultType", self.advertise.result_type)
        return result

    def _cacheable(self, result: Message) -> Message:
        if self.advertise.ttl_ms is not None:
            result["ttlMs"] = self.advertise.ttl_ms
            result["cacheScope"] = self.advertise.cache_scope
        return result

    # Tools

    def _tools(self, arrival: Arrival) -> Sequence[FakeTool]:
        return self.tools if self.tools_for is None else self.tools_for(arrival)

    def _find(self, arrival: Arrival) -> FakeTool | None:
        return next((tool for tool in self._tools(arrival) if tool.name == arrival.tool), None)

    def _list(self, arrival: Arrival) -> Message:
        return page_of("tools", [tool.listed for tool in self._tools(arrival)], arrival, self.advertise)

    async def _call(self, exchange: Exchange) -> Message:
        arrival = exchange.arrival
        tool = self._find(arrival)
        if tool is None:
            message = f"Unknown tool: {arrival.tool}"
            if exchange.era == "handshake" and self.dialect == "typescript":
                return text_result(message, is_error=True)
            raise RpcError(INVALID_PARAMS, message)
        if exchange.scope.cancel_called:
            await trio.lowlevel.checkpoint()  # raises Cancelled: nothing has run
        return await self.repeats.once(meta_of(arrival.params), lambda: self._run(exchange, tool))

    async def _run(self, exchange: Exchange, tool: FakeTool) -> Message:
        arrival = exchange.arrival
        arguments = arrival.arguments
        exchange.cancellable = tool.cancellable
        session_id = None if exchange.session is None else exchange.session.id
        self.ledger.execute(tool.name, arguments, session_id, arrival)
        token = meta_of(arrival.params).get("progressToken")

        async def say(item: Progress | Notice | Ask) -> Any:
            if isinstance(item, Ask):
                return await self.questions.ask(exchange.emit, item.method, item.params)
            if isinstance(item, Notice):
                await exchange.emit(notification(item.method, item.params))
            elif token is not None:
                params: Message = {"progressToken": token, "progress": item.progress}
                if item.total is not None:
                    params["total"] = item.total
                if item.message is not None:
                    params["message"] = item.message
                await exchange.emit(notification("notifications/progress", params))
            return None

        result = await tool.run(arguments, arrival, say)
        exchange.cancellable = True
        # The engine adds members to the result; a handler may answer the same object each time.
        return dict(result)

    def set_tools(self, tools: Sequence[FakeTool], *, notify: bool) -> None:
        """Change the list, and tell every open stream."""
        self.tools = list(tools)
        if notify:
            self.streams.broadcast(LIST_CHANGED, None)

    def update_resource(self, uri: str, contents: str | bytes) -> int:
        """See `FakeServer.update_resource`."""
        self.offers.rewrite(uri, contents)
        return self.streams.broadcast(UPDATED, {"uri": uri})

    def end_streams(self, *, graceful: bool) -> int:
        """End every notification stream; says how many. See `FakeServer.end_streams`."""
        return self.streams.end(graceful=graceful, result=self._complete({}))
