"""One live MCP connection, opened from one plan for one key: an incarnation, never reopened.

Invariants: I1 and I12 (it serves one key and one projection, and owns what carries its requests). Where
there is no session (2026-07-28 over HTTP) the incarnation is this object with what it discovered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.errors import AfpoolError
from ..protocol import (
    LOG_LEVEL_KEY,
    LOG_NOTICE,
    METHOD,
    NAME,
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    UPDATED_NOTICE,
    Era,
    call_params,
    decode_json,
    header_value,
    join_meta,
    meta_member,
    meta_params,
    param_header_map,
    param_headers,
    resumes,
    trace_members,
)
from . import _ends
from ._answering import Answering
from ._attempt import attempts
from ._carried import Carried
from ._control import Control, Told
from ._errand import run_errand
from ._http_channel import HttpChannel
from ._list_tools import fetch_tools
from ._listen import Listener
from ._own import dressed
from ._sse_channel import SseChannel
from ._stream_channel import StreamChannel
from ._trip import Rpc, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._base.credential import CredentialRequirement, NeedsAuthorization
    from .._base.identity import Identity
    from ..protocol import Message, Negotiated
    from ..transports import Headers, HttpRequest, StdioProcess
    from ._attempt import Tries
    from ._endpoint import Endpoint
    from ._ends import Ending
    from ._errand import Received
    from ._plan import Plan
    from ._settings import ClientSettings, Hooks, ListAnswer
    from ._trip import Answer, Trip

logger = logging.getLogger("afpool")

OTHER_VERSION: Final = "protocol version no longer spoken"
NOTICE: Final = "notifications/tools/list_changed"
ELICITED: Final = "notifications/elicitation/complete"
FOR_THE_HOST: Final = frozenset({LOG_NOTICE, PROMPTS_CHANGED, RESOURCES_CHANGED, UPDATED_NOTICE})

CALL_METHOD: Final = (METHOD, b"tools/call")


@final
class Client:
    """One incarnation. Made by `open_client`.

    Attributes:
        id: Process-wide, never used twice.
        context: The plan context that it was opened under.
        projection: Whom it acts for.
        negotiated: Era, version, session and what the server said of itself.
        meta: Members of `_meta` that every request carries.
        lost: Why it is over, if it is.
        retired: Why its key uses it no longer, if so; what runs on it goes on.
        entry: The shared list that it is a member of; the pool's to set.
        shown: The last list that it received; the pool's to set.
        opening: The number of the event that it was opened with, and `ended`, the event that ended it; the
            pool's to set.
        answering: What the server asks, and who answers.
        carried: The credentials that its requests carry.
        opened_at: When it was made, on the runtime's clock.
        ends_at: When it is too old to be used, on the runtime's clock; the pool's to set.
        spawn: Runs background work; raises `PoolClosed` in the last moments of a pool.
    """

    __slots__ = (
        "__weakref__", "_name_headers", "_plain_meta", "answering", "carried", "channel", "context",
        "ended", "endpoint", "ends_at", "entry", "hooks", "id", "listener", "lost", "meta", "negotiated",
        "opened_at", "opening", "plan", "process", "projection", "requirement", "resource", "retired",
        "server", "settings", "shown", "spawn",
    )  # fmt: skip

    def __init__(
        self,
        *,
        client_id: int,
        server: str,
        plan: Plan,
        context: str,
        projection: Identity,
        endpoint: Endpoint,
        settings: ClientSettings,
        hooks: Hooks,
        spawn: Callable[..., None],
        channel: HttpChannel | SseChannel | StreamChannel,
        process: StdioProcess | None,
    ) -> None:
        self.id = client_id
        self.server = server
        self.plan = plan
        self.context = context
        self.projection = projection
        self.endpoint = endpoint
        self.settings = settings
        self.hooks = hooks
        self.channel = channel
        self.process = process
        self.requirement: CredentialRequirement | None = plan.credential
        self.resource: str = getattr(plan.transport, "resource", "")
        self.carried = Carried(getattr(plan.transport, "headers", ()))
        self.negotiated: Negotiated | None = None
        self.lost: str | None = None
        self.retired: str | None = None
        self.entry: Any = None
        self.shown: Any = None
        self.opening: int | None = None
        self.ended: Any = None
        self.opened_at = settings.seams.now()
        self.ends_at = float("inf")
        self.spawn = spawn
        self.meta = b""
        self._plain_meta = b""
        self._name_headers: dict[str, tuple[bytes, bytes]] = {}
        self.listener = Listener(self, spawn)
        self.answering = Answering(self, plan.requests, spawn)
        channel.on_message = self._message
        if not isinstance(channel, HttpChannel):
            channel.on_lost = self.lose

    # ------------------------------------------------------------------ what it is

    @property
    def carries_headers(self) -> bool:
        """Whether each request is an HTTP exchange of its own."""
        return not isinstance(self.channel, StreamChannel)

    @property
    def shared_stream(self) -> bool:
        """Whether the answers to all requests share one stream."""
        return not isinstance(self.channel, HttpChannel)

    @property
    def stateless(self) -> bool:
        """Whether the server keeps no session for it."""
        return self.negotiated is not None and self.negotiated.era is Era.STATELESS

    @property
    def cancel_by_closing(self) -> bool:
        """Whether closing the response stream is the cancel, so that nothing else is sent or to come."""
        return self.carries_headers and self.stateless

    @property
    def listening(self) -> bool:
        """Whether changes of the list are heard of now."""
        return self.listener.state == "listening" and self.listener.hears_tools

    @property
    def may_hear(self) -> bool:
        """Whether changes may have been heard of: the server has not said that it announces none."""
        return self.listener.state not in ("unasked", "unsupported") and self.listener.hears_tools

    @property
    def stream_state(self) -> str:
        """`unasked`, `connecting`, `listening`, `lost` or `unsupported`."""
        state = self.listener.state
        return "unsupported" if state == "listening" and not self.listener.hears_tools else state

    def offers(self, *path: str) -> bool:
        """Whether the server's capabilities hold a member; see `Negotiated.offers`."""
        return self.negotiated is not None and self.negotiated.offers(*path)

    @property
    def has_session(self) -> bool:
        """Whether it has a session over HTTP: an id from `initialize`, or the place where it posts."""
        negotiated = self.negotiated
        return negotiated is not None and (
            negotiated.session_id is not None or isinstance(self.channel, SseChannel)
        )

    @property
    def outdated(self) -> bool:
        """Whether it is over because its server speaks another protocol version now."""
        return self.lost == OTHER_VERSION

    def opened(self, negotiated: Negotiated, meta: bytes) -> None:
        """The negotiation is done."""
        self.negotiated = negotiated
        self.meta = self._plain_meta = meta
        if isinstance(self.channel, HttpChannel) and resumes(negotiated.version):
            self.channel.resumes = self
        if self.answering.tracks:
            self.listener.start_for_questions()

    async def ready(self) -> None:
        """Wait shortly until the server can ask what the plan offers to answer."""
        if self.answering.tracks:
            await self.listener.ready()

    def log_from(self, level: str) -> None:
        """Ask for log messages with every request from now on; there is no session to remember it."""
        self.meta = join_meta(self._plain_meta, meta_member(LOG_LEVEL_KEY, level))

    # ------------------------------------------------------------------ calls

    async def call(self, call: Any) -> bytes:
        """Call a tool and return the raw result object.

        Args:
            call: A `Caller` and `ToolCaller`: its gate is asked at every boundary of every attempt.

        Raises:
            AfpoolError: The failure, with its verdict.
            trio.Cancelled: `call.trip` says whether bytes left and has to be settled then.
        """
        definition = call.definition
        headers: Headers = []
        if self.stateless and self.carries_headers:
            headers = [CALL_METHOD, self._name_header(definition.name)]
            if b"x-mcp-header" in definition.raw:
                headers += param_headers(param_header_map(definition.input_schema), decode_json(call.args))
        name, args, meta = definition.name, call.args, self.meta
        if call.use.trace is not None:
            meta = join_meta(meta, trace_members(call.use.trace, call.use.trace_state))
        if call.call_id_key is not None:
            meta = join_meta(meta, meta_member(call.call_id_key, call.use.call_id))
        params: bytes | Callable[[int], bytes]
        told = None
        if call.on_progress is None:
            params = call_params(name, args, meta=meta)
        else:
            told = Told(call.on_progress, call.use, self.settings.seams.now)

            def with_token(request_id: int) -> bytes:
                return call_params(name, args, meta=meta, progress_token=request_id)

            params = with_token
        answer = await self.operate(call, Rpc("tools/call", params, headers, "call", told))
        return result_of(answer)

    def operate(self, call: Any, rpc: Rpc) -> Awaitable[Answer]:
        """Send a request that somebody waits for as an operation, so that what the server asks belongs to it.

        Args:
            call: A `Caller`, and an `OperationCaller` where the plan offers to answer.
            rpc: The request of the first round.

        Raises:
            AfpoolError: As `attempts`.
        """
        return self._operation(call, rpc) if self.answering.tracks else attempts(self, call, rpc)

    async def _operation(self, call: Any, rpc: Rpc) -> Answer:
        with self.answering.running(call):
            return await attempts(self, call, rpc)

    async def errand(self, call: Any) -> Received:
        """Run what is not a tool call; see `run_errand`."""
        return await run_errand(self, call)

    def _name_header(self, name: str) -> tuple[bytes, bytes]:
        pair = self._name_headers.get(name)
        if pair is None:
            pair = self._name_headers[name] = (NAME, header_value(name))
        return pair

    # ------------------------------------------------------------------ the client's own requests

    async def control(self, rpc: Rpc, timeout: float) -> Answer:
        """Send a request or notice of the client's own; takes no place, uses the control lane."""
        caller = Control(self, self.settings.seams.now() + timeout)
        with trio.CancelScope(deadline=caller.deadline):
            try:
                return await attempts(self, caller, rpc)
            finally:
                trip = caller.trip
                if trip is not None and not trip.over:
                    trip.close()
        raise caller.woken()

    async def list_tools(self, deadline: float) -> ListAnswer:
        """Fetch the whole tool list, page by page.

        Raises:
            AfpoolError: A page could not be fetched or read.
        """
        return await fetch_tools(self, deadline)

    async def ping(self, deadline: float) -> None:
        """Ask for a sign of life; any answer is one.

        Raises:
            AfpoolError: There was none.
        """
        method = "server/discover" if self.stateless else "ping"
        headers: Headers = [(METHOD, method.encode())] if self.stateless else []
        try:
            # not behind a list of ours that hangs: that is no sign of death
            rpc = Rpc(method, meta_params(self.meta), headers, "answer")
            await self.control(rpc, deadline - self.settings.seams.now())
        except AfpoolError as error:
            if error.delivery not in ("answered", "refused"):
                raise

    async def listen(self) -> None:
        """Make sure that changes are listened to, and wait shortly until it is known whether they are."""
        await self.listener.start()

    # ------------------------------------------------------------------ for attempts

    async def dressed(self, request: HttpRequest, tries: Tries) -> HttpRequest | None:
        """A request of its own with credential and signature; `None` where they cannot be had."""
        return await dressed(self, request, tries)

    def needs_authorization(self, needs: NeedsAuthorization) -> None:
        """Hand the address to the host and to nobody else."""
        callback = self.settings.on_authorization
        if callback is not None:
            try:
                callback(self.server, self.projection, needs)
            except Exception as error:  # noqa: BLE001 -- the app's code; its text may hold the address
                logger.error("on_authorization raised %s", type(error).__name__)  # noqa: TRY400 -- as above

    # ------------------------------------------------------------------ what the server sends by itself

    def _message(self, message: Message) -> None:
        if message.is_request:
            self.answering.asked(message)
        else:
            self.heard(message)

    def heard(self, message: Message) -> None:
        """Take in a notification."""
        if message.method == NOTICE:
            if not self.stateless or self.listener.belongs(message):
                self.hooks.list_changed(self)
        elif message.method == _ends.CANCELLED and not self.stateless:
            self.answering.withdrawn(message)
        elif message.method == ELICITED and not self.stateless:
            self.answering.completed(message)
        elif message.method in FOR_THE_HOST:
            self.hooks.told(self, message)
        elif message.method is not None:
            self.listener.heard(message)

    # ------------------------------------------------------------------ ends

    def prune(self, now: float) -> float:
        """Close kept connections past their time; return when to look again."""
        if isinstance(self.channel, StreamChannel):
            return float("inf")
        link = self.channel.link
        link.prune()
        return now + self.settings.keepalive_expiry if link.statistics().idle else float("inf")

    def lose(self, reason: str) -> None:
        """The incarnation is over by the server's or the wire's doing. Tells the owner once."""
        if self.lost is None:
            self.lost = reason
            self.listener.stop()
            self.answering.stop()
            if self.retired is None:
                self.hooks.lost(self, reason)

    def outdate(self) -> None:
        """The server speaks another protocol version now; a pinned one leaves nothing to negotiate."""
        if self.plan.protocol_version is None:
            self.endpoint.forget_era()
            self.lose(OTHER_VERSION)

    def retire(self, reason: str) -> None:
        """The key uses it no longer; what runs on it goes on."""
        if self.retired is None:
            self.retired = reason

    async def aclose(self, deadline: float) -> Ending:
        """End the session in order within the deadline; a child gets EOF, then TERM, then KILL."""
        return await _ends.aclose(self, deadline)

    def kill(self) -> None:
        """End it at once; synchronous."""
        _ends.kill(self)

    def cancel(self, trip: Trip) -> trio.Event | None:
        """Tell the server that nobody waits for an answer any more. Synchronous; nothing is waited for.

        Returns:
            On a shared stream: set when the notice leaves, or is given up.
        """
        return _ends.give_up(self, trip)

    def __repr__(self) -> str:
        return f"<Client {self.id} of {self.server}{'' if self.lost is None else ', ' + self.lost}>"
