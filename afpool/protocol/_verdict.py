"""What an answer proves: which error it is, what is known about delivery, what may be tried next.

The tables below are the whole law. `refused` is a closed list of answers that prove that nothing ran;
`answered` is a JSON-RPC answer to this request, good or bad; every other answer leaves it `in-doubt`. The
verdict is decided here before any recovery starts, from the answer alone.

Order, HTTP:

1. A session that had worked and is now unknown to the server (handshake era): `SessionExpiredError`.
   Then a 400 by which a server of the other era turns everything away: refused, to be negotiated anew.
2. A status that refuses by itself: 401, 403 with a challenge, 405, 406, 413, 415, 421, 429; 307 and 308 to
   the same origin.
3. A JSON-RPC answer, whatever its status.
4. Any other status: in doubt.

Over HTTP+SSE a POST only hands the message over: there every 4xx refuses, and 5xx leaves it in doubt.

Follow-ups are what a caller *may* do, within its own limits and through every gate again.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from afpool._base.errors import (
    ANSWERED,
    IN_DOUBT,
    REFUSED,
    AfpoolError,
    AuthorizationRequired,
    Delivery,
    ElicitationRequired,
    ProtocolError,
    ServerError,
    ServerFailed,
    ServerRefused,
    SessionExpiredError,
)

from ._elicitation import read_url_elicitations
from ._eras import VERSION_KEY, Era
from ._headers import BodyKind
from ._json import MalformedMessage, decode_json
from ._jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
    ErrorBody,
    Message,
    decode_error,
)

if TYPE_CHECKING:
    from ._results import CallResult


class Followup(enum.Enum):
    """What may be tried after an answer."""

    NONE = "none"
    WAIT_AND_RETRY = "wait-and-retry"
    NEW_CREDENTIAL = "new-credential"
    STEP_UP = "step-up"
    RELIST = "relist"
    RENEGOTIATE = "renegotiate"
    REDIRECT = "redirect"
    INPUT_REQUIRED = "input-required"


class Outcome(NamedTuple):
    """One answer, judged.

    Attributes:
        error: The class to raise where nothing follows, or `None` for a result.
        delivery: What is known about the request having run.
        followup: What may be tried.
        reason: Our own words; quotes nothing of the peer.
        http_status: Of the answer; `None` on a stream.
        body: The peer's JSON-RPC error, where there was one. Its text is the peer's.
    """

    error: type[AfpoolError] | None
    delivery: Delivery
    followup: Followup
    reason: str
    http_status: int | None = None
    body: ErrorBody | None = None

    def to_error(
        self, *, retry_after: float | None = None, www_authenticate: str | None = None
    ) -> AfpoolError:
        """Make the exception.

        Args:
            retry_after: Seconds, from the answer's `retry-after`.
            www_authenticate: The challenge of a 401 or 403.
        """
        assert self.error is not None
        error = self.error(
            self.reason,
            delivery=self.delivery,
            retry_after=retry_after,
            http_status=self.http_status,
            www_authenticate=www_authenticate,
        )
        if isinstance(error, ServerError) and self.body is not None:
            error.error_code = self.body.code
            error.data = _data(self.body)
            if isinstance(error, ElicitationRequired):
                error.elicitations = read_url_elicitations(error.data)
        return error


def _data(body: ErrorBody) -> object:
    if body.data is None:
        return None
    try:
        return decode_json(body.data)
    except MalformedMessage:
        return None


_REFUSED_STATUS: Final[dict[int, tuple[type[AfpoolError], Followup, str]]] = {
    401: (AuthorizationRequired, Followup.NEW_CREDENTIAL, "the server wants another credential (HTTP 401)"),
    405: (ServerRefused, Followup.NONE, "the server takes no such request here (HTTP 405)"),
    406: (ServerRefused, Followup.NONE, "the server offers no acceptable answer (HTTP 406)"),
    413: (ServerRefused, Followup.NONE, "the request is too large for the server (HTTP 413)"),
    415: (ServerRefused, Followup.NONE, "the server does not take this media type (HTTP 415)"),
    421: (ServerRefused, Followup.NONE, "the server does not answer for this origin (HTTP 421)"),
    429: (ServerRefused, Followup.WAIT_AND_RETRY, "the server asks to wait (HTTP 429)"),
}

_REFUSED_CODE: Final[dict[int, tuple[Followup, str]]] = {
    PARSE_ERROR: (Followup.NONE, "the server could not parse the request (-32700)"),
    INVALID_REQUEST: (Followup.NONE, "the server found the request invalid (-32600)"),
    METHOD_NOT_FOUND: (Followup.NONE, "the server knows no such method (-32601)"),
    HEADER_MISMATCH: (Followup.RELIST, "headers and body differ for the server (-32020): list again"),
    UNSUPPORTED_VERSION: (Followup.RENEGOTIATE, "the server does not speak this version (-32022)"),
}

# Codes that speak of the request itself: their texts may hold "session" and mean an argument.
_ABOUT_THE_REQUEST: Final = frozenset(
    {
        PARSE_ERROR,
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        INTERNAL_ERROR,
        HEADER_MISMATCH,
        MISSING_CLIENT_CAPABILITY,
        UNSUPPORTED_VERSION,
        URL_ELICITATION_REQUIRED,
        -32002,  # resource not found
    }
)

_RESULT_200: Final = Outcome(None, ANSWERED, Followup.NONE, "a result", 200)

_HINT_BYTES = 2048
_LOST = re.compile(
    r"not (?:been )?(?:found|initiali[sz]ed|valid|exist)|n't exist|missing|unknown|invalid|expired|terminated"
    r"|no valid|no longer|no such|required|no session"
)


def says_session_lost(text: str) -> bool:
    """Say whether a text names a session that is missing, unknown, not initialized or invalid."""
    text = text[:_HINT_BYTES].lower()
    return "not initialized" in text or ("session" in text and _LOST.search(text) is not None)


def classify_http(
    status: int,
    body_kind: BodyKind,
    message: Message | None,
    *,
    had_session: bool,
    era: Era,
    text_hint: bytes = b"",
    challenge: bool = False,
    same_origin: bool = False,
) -> Outcome:
    """Judge the HTTP answer to one request.

    Args:
        status: Of the answer.
        body_kind: What its body is.
        message: The JSON-RPC response in it, or `None` where none could be read. Its id does not matter.
        had_session: The request named a session id that had worked.
        era: The era that the request was sent in.
        text_hint: The first bytes of a body that is no JSON-RPC.
        challenge: The answer carries a `www-authenticate` that could be read.
        same_origin: The answer is a 307 or 308 whose target is of the same origin.
    """
    if (
        status == 200
        and message is not None
        and message.method is None
        and message.result
        and not message.error
    ):
        return _RESULT_200  # what nearly every answer is
    if message is not None and not message.is_response:
        message = None
    body = decode_error(message.error) if message is not None and message.is_error else None
    if had_session and era is Era.HANDSHAKE and _session_lost(status, message, body, text_hint):
        return Outcome(
            SessionExpiredError,
            REFUSED,
            Followup.NONE,
            "the server no longer knows the session",
            status,
            body,
        )
    if status == 400 and _speaks_another_era(message, body, era, text_hint):
        reason = "the server speaks another protocol version now"
        return Outcome(ServerRefused, REFUSED, Followup.RENEGOTIATE, reason, status, body)
    if status == 403 and challenge:
        reason = "the server wants more scopes (HTTP 403)"
        return Outcome(AuthorizationRequired, REFUSED, Followup.STEP_UP, reason, status, body)
    refused = _REFUSED_STATUS.get(status)
    if refused is not None:
        error, followup, reason = refused
        return Outcome(error, REFUSED, followup, reason, status, body)
    if status in (307, 308) and same_origin:
        reason = f"the server sends elsewhere (HTTP {status})"
        return Outcome(ServerRefused, REFUSED, Followup.REDIRECT, reason, status, body)
    if body is not None:
        return _json_rpc_error(body, status)
    if message is not None:
        return Outcome(None, ANSWERED, Followup.NONE, "a result", status)
    return _no_answer(status, body_kind)


def _speaks_another_era(message: Message | None, body: ErrorBody | None, era: Era, text_hint: bytes) -> bool:
    """Whether a 400 is the door of the other era, which turns everything away before anything of it runs.

    A handshake server misses the session that a stateless request has none of, and says so under an id that
    is not the request's; a stateless server misses the version in the request's `_meta`.
    """
    if era is Era.HANDSHAKE:
        return body is not None and body.code == INVALID_PARAMS and VERSION_KEY in body.message
    if message is None:
        return says_session_lost(text_hint[:_HINT_BYTES].decode("utf-8", "replace"))
    return (
        body is not None
        and body.code not in _ABOUT_THE_REQUEST
        and message.response_id is None
        and says_session_lost(body.message)
    )


def classify_posted(outcome: Outcome) -> Outcome:
    """Refine the outcome of a POST that only hands a message over (HTTP+SSE, 2024-11-05).

    Its answer comes on the stream, so a POST that is refused by its status, whatever is said with it, was
    not taken: nothing ran.
    """
    status = outcome.http_status
    if outcome.delivery in (IN_DOUBT, ANSWERED) and status is not None and 400 <= status < 500:
        reason = f"the server did not take the message (HTTP {status})"
        return Outcome(ServerRefused, REFUSED, Followup.NONE, reason, status, outcome.body)
    return outcome


def _session_lost(status: int, message: Message | None, body: ErrorBody | None, text_hint: bytes) -> bool:
    if status not in (400, 404) or (message is not None and body is None):
        return False
    if body is None:
        return status == 404 or says_session_lost(text_hint[:_HINT_BYTES].decode("utf-8", "replace"))
    if body.code in _ABOUT_THE_REQUEST:
        return False
    # With a session id in the request, 404 means the session and nothing else (Streamable HTTP).
    return status == 404 or says_session_lost(body.message)


def _json_rpc_error(body: ErrorBody, status: int | None) -> Outcome:
    refused = None if body.code is None else _REFUSED_CODE.get(body.code)
    if refused is not None:
        followup, reason = refused
        return Outcome(ServerRefused, REFUSED, followup, reason, status, body)
    if body.code == URL_ELICITATION_REQUIRED:
        reason = "the server wants its user to visit an address first (-32042); the tool may have begun"
        return Outcome(ElicitationRequired, ANSWERED, Followup.NONE, reason, status, body)
    code = "without a code" if body.code is None else str(body.code)[:20]
    return Outcome(
        ServerError, ANSWERED, Followup.NONE, f"the server answered with an error ({code})", status, body
    )


def _no_answer(status: int, body_kind: BodyKind) -> Outcome:
    if not 200 <= status < 300:
        reason = f"HTTP {status} without a JSON-RPC answer: whether the request ran is not known"
    elif body_kind is BodyKind.JSON:
        reason = f"the answer could not be read (HTTP {status})"
        return Outcome(ProtocolError, ANSWERED, Followup.NONE, reason, status)
    elif body_kind is BodyKind.SSE:
        reason = "the response stream ended without an answer: whether the request ran is not known"
    elif body_kind is BodyKind.EMPTY:
        reason = f"HTTP {status} and no body to a request: whether it ran is not known"
    else:
        reason = f"HTTP {status} and a body that is no JSON-RPC: whether the request ran is not known"
    return Outcome(ServerFailed, IN_DOUBT, Followup.NONE, reason, status)


def classify_stream(message: Message) -> Outcome:
    """Judge the answer to one request on a stream (stdio, WebSocket).

    Raises:
        ValueError: The message is no response.
    """
    if not message.is_response:
        raise ValueError("only a response is an answer")
    if message.is_error:
        return _json_rpc_error(decode_error(message.error), None)
    return Outcome(None, ANSWERED, Followup.NONE, "a result")


def classify_result(result: CallResult, outcome: Outcome) -> Outcome:
    """Refine the outcome of a result by what the result says: an answer, or a request for input."""
    if result.input_required:
        return outcome._replace(followup=Followup.INPUT_REQUIRED, reason="the server asks for input first")
    return outcome


def unreadable_result(error: MalformedMessage, http_status: int | None = None) -> Outcome:
    """Judge a JSON-RPC answer whose result could not be read."""
    return Outcome(
        ProtocolError, ANSWERED, Followup.NONE, f"the answer could not be read: {error.reason}", http_status
    )
