"""Opening a server of unknown era, as a state machine without I/O.

Rules (protocol revisions 2024-11-05 to 2026-07-28, lifecycle and transports; and what servers do):

* A pin sends no probe: a stateless version is taken at its word, a handshake version is offered.
* Otherwise `server/discover` is asked first, except of a server remembered as handshake.
* Only an answer decides an era. Silence and death of a *stream* peer on the probe count as one: old servers
  die of it, so the peer is started anew and sent `initialize`. An HTTP connection that fails and the status
  of an outage (5xx without a JSON-RPC answer, 408, 425, 429) fail the opening and decide nothing.
* A description with a version in common is stateless; so is an error that only a stateless server sends
  (-32020, -32021). -32022 with a version in common is asked once more at that version; with none but
  versions unknown here it is an incompatibility. Everything else falls back to `initialize`.
* `initialize` answered -32022 is proof of a stateless server (a slow one whose late answer to the probe
  locked the connection): it is probed once more. An error to `initialize` from a server that was remembered
  as handshake, and therefore never probed, makes the memory doubtful: probed once as well.
* The session id is taken from the successful `initialize` and from no other answer.
* No state is entered twice, so an opening ends after at most five messages, those sent again with a new
  credential apart.

Drive it with `next()`, which says what to do and changes nothing, and with one of the inputs, which say
what came of it.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Final

from ._eras import (
    HANDSHAKE_VERSIONS,
    LATEST_HANDSHAKE,
    LATEST_STATELESS,
    STATELESS_VERSIONS,
    Era,
    Negotiated,
    era_of,
    initialize_params,
    meta_params,
    stateless_meta,
)
from ._json import MalformedMessage
from ._jsonrpc import (
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_VERSION,
    ErrorBody,
    Message,
    decode_error,
)
from ._results import read_discovered, read_initialized, read_supported
from ._steps import Done, Failed, FailureKind, NeedCredential, Respawn, Send

if TYPE_CHECKING:
    from ._steps import Step, TransportKind

_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")
_OUTAGES: Final = frozenset({408, 425, 429})


class _State(enum.Enum):
    PROBE = enum.auto()
    PROBE_AGAIN = enum.auto()  # at a version that -32022 named
    RESPAWN = enum.auto()
    INITIALIZE = enum.auto()
    PROBE_LAST = enum.auto()  # after `initialize` was refused: this answer decides
    INITIALIZED = enum.auto()  # the notification is on its way
    DONE = enum.auto()
    FAILED = enum.auto()


_PROBES = frozenset({_State.PROBE, _State.PROBE_AGAIN})
_WAITING = frozenset(
    {_State.PROBE, _State.PROBE_AGAIN, _State.INITIALIZE, _State.PROBE_LAST, _State.INITIALIZED}
)


class Negotiation:
    """One opening.

    Args:
        kind: `http`, or `stream` for stdio and WebSocket.
        pinned_version: The protocol version from configuration, or `None` to find out.
        remembered: The era that the endpoint was last seen in, or `None`.
        client_name: Sent as `clientInfo`.
        client_version: The same.
        capabilities: What the client declares, a raw JSON object.

    Raises:
        ValueError: The pinned version is not one that is spoken here.
    """

    def __init__(
        self,
        kind: TransportKind,
        pinned_version: str | None = None,
        remembered: Era | None = None,
        *,
        client_name: str = "afpool",
        client_version: str = "0",
        capabilities: bytes = b"{}",
    ) -> None:
        self._kind = kind
        self._client = (client_name, client_version, capabilities)
        self._probed = False
        self._pinned = pinned_version is not None
        self._hostile = False
        self._offer = LATEST_HANDSHAKE
        self._version = LATEST_STATELESS
        self._credential: int | None = None
        self._failed: Failed | None = None
        self._respawn: Respawn | None = None
        self._negotiated: Negotiated | None = None
        self._state = _State.PROBE
        if pinned_version is not None:
            era = era_of(pinned_version)
            if era is None:
                raise ValueError("the pinned protocol version is not one that is spoken here")
            if era is Era.STATELESS:
                self._adopt_unasked(pinned_version)
            else:
                self._offer = pinned_version
                self._state = _State.INITIALIZE
        elif remembered is Era.HANDSHAKE:
            self._state = _State.INITIALIZE

    def next(self) -> Step:
        """Say what to do now. Changes nothing: the same until something is fed."""
        if self._credential is not None:
            return NeedCredential(self._credential)
        if self._state in _PROBES or self._state is _State.PROBE_LAST:
            meta = stateless_meta(self._version, *self._client)
            return Send("server/discover", meta_params(meta), Era.STATELESS, self._version, "probe")
        if self._state is _State.INITIALIZE:
            params = initialize_params(*self._client, version=self._offer)
            return Send("initialize", params, Era.HANDSHAKE, None, "handshake")
        if self._state is _State.RESPAWN:
            assert self._respawn is not None
            return self._respawn
        if self._state is _State.FAILED:
            assert self._failed is not None
            return self._failed
        assert self._negotiated is not None
        if self._state is _State.DONE:
            return Done(self._negotiated)
        return Send(
            "notifications/initialized",
            None,
            Era.HANDSHAKE,
            self._negotiated.version,
            "handshake",
            notification=True,
            session_id=self._negotiated.session_id,
        )

    @property
    def begun(self) -> Negotiated | None:
        """What the server has agreed to, from its answer on.

        A session that came with it is there and has to be ended, whatever becomes of the opening.
        """
        return self._negotiated

    # Inputs

    def answered(
        self,
        message: Message | None,
        *,
        status: int = 200,
        session_id: str | None = None,
    ) -> None:
        """An answer came.

        Args:
            message: The JSON-RPC response, or `None` where the HTTP answer held none.
            status: The HTTP status; 200 on a stream.
            session_id: The `mcp-session-id` field of this answer; used only where it may be.

        Raises:
            ValueError: The message is no response; requests and notifications of the server are the
                driver's to handle.
        """
        self._expect_waiting()
        if message is not None and not message.is_response:
            raise ValueError("only a response is an answer")
        if status in (401, 403):
            self._credential = status
            return
        if self._state is _State.INITIALIZED:
            self._initialized(status)
        elif message is None or status in _OUTAGES:
            self._bare(status)
        elif message.is_error:
            self._error(decode_error(message.error), status)
        elif self._state is _State.INITIALIZE:
            self._initialize_result(message, status, session_id)
        else:
            self._discover_result(message, status)

    def unreadable(self, reason: str, *, status: int = 200) -> None:
        """An answer came that is no JSON-RPC; `reason` quotes nothing of it."""
        self._expect_waiting()
        if status in (401, 403):
            self._credential = status
        elif self._state is _State.INITIALIZED:
            self._initialized(status)
        elif self._state in _PROBES or not 200 <= status < 300:
            self._bare(status)
        else:
            self._fail(f"the answer could not be read: {reason}", FailureKind.INCOMPATIBLE, status)

    def silent(self) -> None:
        """The time-out of the step passed without an answer."""
        self._expect_waiting()
        if self._state in _PROBES:
            if self._kind == "stream":
                self._start_anew("silent on the probe")
            else:
                # Not taken for an era: `initialize` must be answered before anything is remembered.
                self._state = _State.INITIALIZE
            return
        self._fail("no answer in time", FailureKind.OUTAGE)

    def ended(self) -> None:
        """The peer of a stream ended (end of file, exit, close); over HTTP, the exchange failed."""
        self._expect_waiting()
        if self._kind == "stream" and self._state in _PROBES:
            self._start_anew("ended on the probe")
            return
        self._fail("the connection ended without an answer", FailureKind.OUTAGE)

    def sent(self) -> None:
        """A notification left on a stream."""
        self._expect_waiting()
        if self._state is not _State.INITIALIZED:
            raise RuntimeError("a request is done when it is answered")
        self._state = _State.DONE

    def respawned(self) -> None:
        """The peer was started anew, as `Respawn` asked."""
        if self._state is not _State.RESPAWN:
            raise RuntimeError("no respawn was asked for")
        self._state = _State.INITIALIZE

    def resumed(self) -> None:
        """There is a new credential, as `NeedCredential` asked: the same step is sent again."""
        if self._credential is None:
            raise RuntimeError("no credential was asked for")
        self._credential = None

    # Transitions

    def _expect_waiting(self) -> None:
        if self._credential is not None or self._state not in _WAITING:
            raise RuntimeError(f"nothing is awaited in {self._state.name}")
        if self._state is not _State.INITIALIZE and self._state is not _State.INITIALIZED:
            self._probed = True

    @staticmethod
    def _is_outage(status: int) -> bool:
        return status >= 500 or status in _OUTAGES

    def _bare(self, status: int) -> None:
        """An HTTP answer without a JSON-RPC one."""
        if self._is_outage(status):
            self._fail(f"HTTP status {status}", FailureKind.OUTAGE, status)
        elif self._state in _PROBES:
            self._state = _State.INITIALIZE
        elif self._state is _State.INITIALIZE and self._may_probe_last():
            self._state = _State.PROBE_LAST
        else:
            self._fail(f"HTTP status {status} without an answer", FailureKind.INCOMPATIBLE, status)

    def _error(self, error: ErrorBody, status: int) -> None:
        code = error.code
        if self._state is _State.INITIALIZE:
            self._initialize_error(error, status)
        elif code in (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY):
            self._adopt_unasked(self._version)
        elif self._state is _State.PROBE_LAST:
            self._fail("neither era was accepted", FailureKind.REFUSED, status, error)
        elif code == UNSUPPORTED_VERSION:
            supported = read_supported(error.data)
            mutual = _newest_mutual(supported)
            if mutual is not None and self._state is _State.PROBE:
                self._version = mutual
                self._state = _State.PROBE_AGAIN
            elif supported is not None and not any(v in HANDSHAKE_VERSIONS for v in supported):
                self._fail("no protocol version in common", FailureKind.INCOMPATIBLE, status, error)
            else:
                self._state = _State.INITIALIZE
        else:
            self._state = _State.INITIALIZE

    def _initialize_error(self, error: ErrorBody, status: int) -> None:
        if error.code == UNSUPPORTED_VERSION and not self._pinned:
            supported = read_supported(error.data)
            mutual = LATEST_STATELESS if supported is None else _newest_mutual(supported)
            if mutual is None:
                self._fail("no protocol version in common", FailureKind.INCOMPATIBLE, status, error)
                return
            self._version = mutual
            self._state = _State.PROBE_LAST
        elif self._may_probe_last():
            self._state = _State.PROBE_LAST
        else:
            self._fail("`initialize` was answered with an error", FailureKind.REFUSED, status, error)

    def _may_probe_last(self) -> bool:
        return not self._probed and not self._pinned

    def _discover_result(self, message: Message, status: int) -> None:
        found = version = None
        try:
            found = read_discovered(message.result)
            version = _newest_mutual(found.versions)
        except MalformedMessage:
            pass
        if found is None or version is None:
            if self._state is _State.PROBE_LAST:
                self._fail("no protocol version in common", FailureKind.INCOMPATIBLE, status)
            else:
                self._state = _State.INITIALIZE
            return
        self._negotiated = Negotiated(
            era=Era.STATELESS,
            version=version,
            server_name=found.server_name,
            server_version=found.server_version,
            capabilities=found.capabilities,
            instructions=found.instructions,
            ttl_ms=found.ttl_ms,
            cache_scope=found.cache_scope,
        )
        self._state = _State.DONE

    def _initialize_result(self, message: Message, status: int, session_id: str | None) -> None:
        try:
            found = read_initialized(message.result)
        except MalformedMessage as error:
            self._fail(error.reason, FailureKind.INCOMPATIBLE, status)
            return
        if not 200 <= status < 300:
            self._fail(f"a result under HTTP status {status}", FailureKind.INCOMPATIBLE, status)
            return
        if found.version not in HANDSHAKE_VERSIONS:
            self._fail("a protocol version that is not spoken here", FailureKind.INCOMPATIBLE, status)
            return
        if session_id is not None and not _SESSION_ID.fullmatch(session_id):
            self._fail("a session id that cannot be sent back", FailureKind.INCOMPATIBLE, status)
            return
        self._negotiated = Negotiated(
            era=Era.HANDSHAKE,
            version=found.version,
            server_name=found.server_name,
            server_version=found.server_version,
            capabilities=found.capabilities,
            instructions=found.instructions,
            session_id=session_id,
            probe_hostile=self._hostile,
        )
        self._state = _State.INITIALIZED

    def _initialized(self, status: int) -> None:
        """The HTTP answer to the notification; whatever body it has says nothing."""
        if 200 <= status < 300:
            self._state = _State.DONE
        else:
            kind = FailureKind.OUTAGE if self._is_outage(status) else FailureKind.REFUSED
            self._fail(f"`initialized` was answered with HTTP status {status}", kind, status)

    def _adopt_unasked(self, version: str) -> None:
        self._negotiated = Negotiated(era=Era.STATELESS, version=version, asked=False)
        self._state = _State.DONE

    def _start_anew(self, reason: str) -> None:
        self._hostile = True
        self._respawn = Respawn(reason)
        self._state = _State.RESPAWN

    def _fail(
        self,
        reason: str,
        kind: FailureKind,
        http_status: int | None = None,
        error: ErrorBody | None = None,
    ) -> None:
        self._failed = Failed(reason, kind, http_status if self._kind == "http" else None, error)
        self._state = _State.FAILED


def _newest_mutual(versions: tuple[str, ...] | None) -> str | None:
    mutual = [v for v in STATELESS_VERSIONS if v in (versions or ())]
    return mutual[-1] if mutual else None
