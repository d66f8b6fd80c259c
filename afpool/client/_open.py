"""Opening a client: from a plan to a negotiated incarnation.

The negotiation itself decides without I/O (`afpool.protocol.Negotiation`); here its steps are carried out.
The verdict on the era is the endpoint's and is shared; everything that carries requests is the client's own.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import trio

from .._base.errors import (
    NOT_SENT,
    AfpoolError,
    ConnectionLost,
    LocalSessionHandleLostError,
    OpenFailed,
    PoolClosed,
    ProtocolError,
    ServerFailed,
    TooLarge,
)
from ..protocol import (
    LATEST_HANDSHAKE,
    METHOD,
    PROTOCOL_VERSION,
    RETRY_AFTER,
    SESSION_ID,
    Done,
    Era,
    Failed,
    FailureKind,
    NeedCredential,
    Negotiation,
    Respawn,
    Send,
    era_of,
    parse_retry_after,
    stateless_meta,
)
from ._attempt import Tries, attempt, redirect
from ._client import Client
from ._control import Control
from ._http_channel import HttpChannel
from ._http_way import http_channel
from ._open_stream import PROBE_HTTP, NoStream, open_stream
from ._plan import HttpTransport, Plan, WebSocketTransport
from ._sse_channel import SseChannel
from ._stream_channel import StreamChannel
from ._stream_way import stream_way
from ._trip import Rpc
from ._upgrade import credential_wanted, upgraded

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.identity import Identity
    from ..protocol import Message, Negotiated
    from ..transports import Headers, StdioProcess
    from ._endpoint import Endpoint
    from ._settings import ClientSettings, Hooks, Unheard
    from ._stages import Stages
    from ._trip import Answer

# Silence is taken for a server of before 2026, so a server that is only slow to start must not look like one.
PROBE_STREAM: Final = 6.0
HANDSHAKE: Final = 30.0
REAPING: Final = 1.0
# How a server that speaks HTTP+SSE alone answers a POST to the address of its stream.
NO_STREAMABLE: Final = (400, 404, 405)


async def open_client(
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
    stages: Stages,
) -> Client:
    """Open one incarnation.

    Args:
        client_id: Process-wide, never used twice.
        server: The server's name.
        plan: How to get there.
        context: The plan's context.
        projection: Whom the client acts for.
        endpoint: What all keys of this endpoint share.
        settings: What all clients of the pool have in common.
        hooks: Told of what happens to the client once it is open.
        spawn: Runs background work in the runtime's nursery.
        stages: Told which stage it is in: `connect`, `credential` or `initialize`.

    Raises:
        OpenFailed: With what went wrong; nothing was sent of any call.
        AuthorizationRequired: The server wants a credential that could not be had.
        CredentialFailed: The provider or signer raised.

    Cancelled, it leaves no connection and no process behind. The caller owns the deadline.
    """
    opener = _Opener(client_id, server, plan, context, projection, endpoint, settings, hooks, spawn, stages)
    try:
        client = await opener.run()
        await client.ready()
        return opener.hand_over(client)
    except BaseException:
        await opener.drop()
        raise


class _Muffled:
    """Hooks of a client that is not open yet."""

    def list_changed(self, client: Client, /) -> None:
        """Nobody has listed yet."""

    def stream_lost(self, client: Client, why: Unheard, /) -> None:
        """Nobody listens yet."""

    def lost(self, client: Client, reason: str, /) -> None:
        """The opening itself notices."""

    def told(self, client: Client, message: Message, /) -> None:
        """Nobody asked for anything yet."""


class _Opener:
    def __init__(
        self,
        client_id: int,
        server: str,
        plan: Plan,
        context: str,
        projection: Identity,
        endpoint: Endpoint,
        settings: ClientSettings,
        hooks: Hooks,
        spawn: Callable[..., None],
        stages: Stages,
    ) -> None:
        self._stages = stages
        self._made = {
            "client_id": client_id,
            "server": server,
            "plan": plan,
            "context": context,
            "projection": projection,
            "endpoint": endpoint,
            "settings": settings,
            "spawn": spawn,
        }
        self._plan = plan
        version = plan.protocol_version
        self._capabilities = plan.capabilities.encode(*() if version is None else (version,))
        self._endpoint = endpoint
        self._settings = settings
        self._hooks = hooks
        self._spawn = spawn
        self._client: Client | None = None
        self._answer: Answer | None = None  # to the last request
        self._begun: Negotiated | None = None  # the server has a session for us

    async def drop(self) -> None:
        """Leave nothing behind. Shielded: a child that was killed has to be reaped, which takes no time.

        A session that the server has opened already is ended in the background, within `control_timeout`.
        """
        client, self._client = self._client, None
        if client is None:
            return
        begun, self._begun = self._begun, None
        if begun is not None and begun.session_id is not None and isinstance(client.channel, HttpChannel):
            if client.negotiated is None:
                client.channel.headers = [*client.channel.headers, *_session_headers(begun)]
                client.negotiated = begun
            with contextlib.suppress(PoolClosed):
                self._spawn(client.aclose, self._settings.seams.now() + self._settings.control_timeout)
                return
        client.kill()
        if client.process is not None:
            await client.process.aclose(self._settings.seams.now() + REAPING, eof_grace=0, term_grace=0)

    async def run(self) -> Client:
        transport = self._plan.transport
        streaming = transport.streaming if isinstance(transport, HttpTransport) else "streamable"
        if streaming == "sse":
            return await self._run_sse()
        if streaming == "auto" and self._endpoint.speaks_sse() and self._handshake_fits():
            try:
                return await self._run_sse()
            except NoStream:
                self._endpoint.forget_era()  # it may have been replaced since
                await self.drop()
        try:
            return await self._negotiate(await self._make(), self._endpoint.era())
        except OpenFailed as failure:
            if streaming != "auto" or not self._may_be_sse(failure):
                raise
            try:
                return await self._run_sse()
            except NoStream:
                raise failure from None

    def _may_be_sse(self, failure: OpenFailed) -> bool:
        """Whether both eras of Streamable HTTP were refused as a server of 2024-11-05 refuses them."""
        return failure.http_status in NO_STREAMABLE and self._handshake_fits()

    def _handshake_fits(self) -> bool:
        pinned = self._plan.protocol_version
        return pinned is None or era_of(pinned) is Era.HANDSHAKE

    async def _run_sse(self) -> Client:
        """Open over HTTP+SSE.

        Raises:
            NoStream: The server does not speak it here.
        """
        await self.drop()
        client = await self._make(sse=True)
        await open_stream(client, self._settings, self._stages)
        # This transport knows the handshake era only: it is offered, and nothing is probed.
        return await self._negotiate(client, Era.HANDSHAKE, self._plan.protocol_version or LATEST_HANDSHAKE)

    async def _negotiate(self, client: Client, remembered: Era | None, pinned: str | None = None) -> Client:
        negotiation = Negotiation(
            "stream" if client.shared_stream else "http",
            pinned or self._plan.protocol_version,
            remembered,
            client_name=self._settings.client_name,
            client_version=self._settings.client_version,
            capabilities=self._capabilities,
        )
        tries = Tries()
        while True:
            self._begun = negotiation.begun
            step = negotiation.next()
            if isinstance(step, Send):
                await self._send(client, negotiation, step, tries)
            elif isinstance(step, NeedCredential):
                assert self._answer is not None
                failure = credential_wanted(client, self._answer, step.http_status, tries)
                if failure is not None:
                    raise failure
                negotiation.resumed()
            elif isinstance(step, Respawn):
                # the old process is gone before the new one starts: some servers own what they serve
                await self._end(client)
                client = await self._make()
                negotiation.respawned()
            elif isinstance(step, Failed):
                answer = self._answer
                retry_after = None
                if answer is not None:
                    retry_after = parse_retry_after(
                        answer.header(RETRY_AFTER), self._settings.seams.unix_now()
                    )
                raise client.carried.clean(_failed(step, retry_after))
            else:
                assert isinstance(step, Done)
                return self._done(client, step.negotiated)

    def _done(self, client: Client, negotiated: Negotiated) -> Client:
        if self._plan.protocol_version is None:
            self._endpoint.remember(negotiated.era, sse=isinstance(client.channel, SseChannel))
        meta = b""
        channel = client.channel
        if negotiated.era is Era.STATELESS:
            meta = stateless_meta(
                negotiated.version,
                self._settings.client_name,
                self._settings.client_version,
                self._capabilities,
            )
        if not isinstance(channel, StreamChannel):
            channel.headers = [*channel.headers, *_session_headers(negotiated)]
        client.opened(negotiated, meta)
        return client

    def hand_over(self, client: Client) -> Client:
        """Let the owner be told of what happens to it from now on."""
        if client.lost is not None:
            raise OpenFailed(f"the server ended right after it was opened ({client.lost}); nothing was sent")
        client.hooks = self._hooks
        return client

    # ------------------------------------------------------------------ steps

    async def _send(self, client: Client, negotiation: Negotiation, step: Send, tries: Tries) -> None:
        headers = []
        if client.carries_headers:
            if step.version is not None:
                headers.append((PROTOCOL_VERSION, step.version.encode()))
            if step.era is Era.STATELESS:
                headers.append((METHOD, step.method.encode()))
            if step.session_id is not None:
                headers.append((SESSION_ID, step.session_id.encode()))
        probe = PROBE_STREAM if client.shared_stream else PROBE_HTTP
        seconds = probe if step.timeout == "probe" else HANDSHAKE
        caller = Control(client, self._settings.seams.now() + seconds, self._stages)
        rpc = Rpc(step.method, step.params, headers, notification=step.notification)
        self._answer = None
        answer: Answer | None = None
        with trio.CancelScope(deadline=caller.deadline):
            try:
                answer = await attempt(client, caller, rpc, tries)
            except LocalSessionHandleLostError:
                negotiation.ended()
                return
            except ConnectionLost as error:
                if error.delivery == NOT_SENT:
                    raise OpenFailed(f"no connection to the server: {error.message}") from error
                negotiation.ended()
                return
            except ProtocolError:
                negotiation.unreadable("a message that is none")
                return
            except (ServerFailed, TooLarge) as error:
                what = error.message.partition(";")[0]
                raise OpenFailed(
                    f"the server speaks no MCP that can be read: {what}; nothing of a call was sent"
                ) from error
            finally:
                trip = caller.trip
                if trip is not None and not trip.over:
                    trip.close()
        if answer is None:
            negotiation.silent()
            return
        self._feed(client, negotiation, step, answer, tries)

    def _feed(
        self, client: Client, negotiation: Negotiation, step: Send, answer: Answer, tries: Tries
    ) -> None:
        self._answer = answer
        if answer.status is None:
            if step.notification:
                negotiation.sent()
            else:
                negotiation.answered(answer.message)
            return
        if redirect(client, answer, tries):
            return
        if answer.message is None and answer.hint and not step.notification:
            negotiation.unreadable("a body that is no JSON-RPC", status=answer.status)
            return
        negotiation.answered(answer.message, status=answer.status, session_id=answer.header(SESSION_ID))

    # ------------------------------------------------------------------ channels

    async def _make(self, *, sse: bool = False) -> Client:
        self._stages.begin("connect")
        settings = self._settings
        transport = self._plan.transport
        if isinstance(transport, WebSocketTransport):
            return await upgraded(self._unopened, Client.kill, transport, self._spawn, self._stages)
        if isinstance(transport, HttpTransport):
            return self._keep(http_channel(transport, self._endpoint, settings, self._spawn, sse=sse))
        way = await stream_way(transport, settings)
        client = self._keep(way.channel, way.process)
        for runs in way.background:
            self._spawn(runs)
        return client

    def _unopened(self) -> Client:
        return self._keep(StreamChannel(None, self._settings.max_message, self._settings.seams))

    def _keep(
        self, channel: HttpChannel | SseChannel | StreamChannel, process: StdioProcess | None = None
    ) -> Client:
        made: dict[str, Any] = self._made
        # Kept before anything else can fail, so that `drop` finds it.
        client = self._client = Client(**made, hooks=_Muffled(), channel=channel, process=process)
        return client

    async def _end(self, client: Client) -> None:
        self._client = None
        client.channel.kill()
        if client.process is not None:
            await client.process.aclose(self._settings.seams.now() + self._settings.control_timeout)
        client.kill()


def _session_headers(negotiated: Negotiated) -> Headers:
    """What every request of an open session names."""
    headers: Headers = [(PROTOCOL_VERSION, negotiated.version.encode())]
    if negotiated.session_id is not None:
        headers.append((SESSION_ID, negotiated.session_id.encode()))
    return headers


def _failed(step: Failed, retry_after: float | None) -> AfpoolError:
    text = f"the server could not be opened: {step.reason}; nothing was sent"
    if step.error is not None and step.error.message:
        text = f"{text} (it says: {step.error.message[:200]})"
    failure = OpenFailed(text, http_status=step.http_status, retry_after=retry_after)
    if step.kind is FailureKind.INCOMPATIBLE:
        failure.__cause__ = ProtocolError(step.reason)
    return failure
