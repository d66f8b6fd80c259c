"""Every failure that afpool raises on purpose, and what it says about delivery.

One root, `AfpoolError`. A class answers *whose fault and what now*: its `code` is a stable word for
programs, its `delivery` says what is known about the server having seen the request:

* `not-sent`  no byte of the request left: it may be repeated
* `refused`   an answer came that proves nothing ran: it may be repeated
* `in-doubt`  bytes left and nothing proves what became of them: think first
* `answered`  a JSON-RPC answer to this request came: believe it

A message says what happened, what was (not) sent and what to do. It never holds a credential, a value
that was hidden, or a name of a key in clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

if TYPE_CHECKING:
    from .model import UrlElicitation

Delivery: TypeAlias = Literal["not-sent", "refused", "in-doubt", "answered"]

NOT_SENT: Delivery = "not-sent"
REFUSED: Delivery = "refused"
IN_DOUBT: Delivery = "in-doubt"
ANSWERED: Delivery = "answered"


class AfpoolError(Exception):
    """Root of everything afpool raises on purpose.

    Args:
        message: What happened, what was (not) sent, what to do.
        delivery: The verdict; must be one of the class's `deliveries`. Defaults to the first of them.
        retry_after: Seconds after which another try makes sense, where the server or a back-off says so.
        http_status: The status of the HTTP answer behind this failure, where there was one.
        www_authenticate: The challenge header that came with a 401 or 403, where there was one.

    Attributes:
        happened: The pool's event that caused it, where there is one; for the record.
        noted: A stage and a word for the record, such as the limit that was reached, or the class of what the
            app's own code raised; `None` where there is no such.
    """

    code: ClassVar[str] = "afpool-error"
    deliveries: ClassVar[tuple[Delivery, ...]] = ("not-sent", "refused", "in-doubt", "answered")

    def __init__(
        self,
        message: str,
        *,
        delivery: Delivery | None = None,
        retry_after: float | None = None,
        http_status: int | None = None,
        www_authenticate: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.delivery: Delivery = self.deliveries[0] if delivery is None else delivery
        if self.delivery not in self.deliveries:
            raise ValueError(
                f"{type(self).__name__} cannot be {self.delivery!r}, only one of {self.deliveries}"
            )
        self.call_id: str | None = None
        self.retry_after = retry_after
        self.http_status = http_status
        self.www_authenticate = www_authenticate
        self.happened: Any = None
        self.noted: tuple[str, str] | None = None

    def because(self, event: Any) -> Self:
        """Name the event that caused it, and be returned; `None` names none."""
        self.happened = event
        return self

    def saying(self, stage: str, word: str) -> Self:
        """Have a word noted on the record, and be returned."""
        self.noted = stage, word
        return self

    def __str__(self) -> str:
        return f"{self.code} ({self.delivery}): {self.message}"


class IdentityMismatch(AfpoolError):
    """The calling run's identity does not encode to the key that the tool was listed for."""

    code = "identity-mismatch"
    deliveries = (NOT_SENT,)


class IdentityMissing(AfpoolError):
    """The identity names none of the fields that the server is keyed on."""

    code = "identity-missing"
    deliveries = (NOT_SENT,)


class StaleTools(AfpoolError):
    """The list that the tool came from is no longer true. List again."""

    code = "stale-tools"
    deliveries = (NOT_SENT,)


class BindingChanged(AfpoolError):
    """The plan, the authorization name or the key's epoch differs from what the tool was listed under."""

    code = "binding-changed"
    deliveries = (NOT_SENT,)


class ShareFailed(AfpoolError):
    """The app's `share` raised, or returned something else than a string or `None`."""

    code = "share-failed"
    deliveries = (NOT_SENT,)


class NotApproved(AfpoolError):
    """The tool's definition differs from the one that was pinned."""

    code = "not-approved"
    deliveries = (NOT_SENT,)


class InvalidArguments(AfpoolError):
    """The arguments are not what the operation takes. The message names the place, never the value."""

    code = "invalid-arguments"
    deliveries = (NOT_SENT,)


class NotOffered(AfpoolError):
    """The server's negotiated capabilities do not hold what the operation needs."""

    code = "not-offered"
    deliveries = (NOT_SENT,)


class UnknownTool(AfpoolError):
    """There is no tool of that name for whoever calls. The message names what there is."""

    code = "unknown-tool"
    deliveries = (NOT_SENT,)


class CallDenied(AfpoolError):
    """A hook of the host's denied the call, or (`answered`) withheld the result of one that has run.

    `hook` is the name of the hook, where one alone is to be named.
    """

    code = "denied"
    deliveries = (NOT_SENT, ANSWERED)

    hook: str | None = None


class Overloaded(AfpoolError):
    """A limit of afpool's own is reached; the message names it and the numbers."""

    code = "overloaded"
    deliveries = (NOT_SENT,)


class PlanFailed(AfpoolError):
    """The app's `plan` raised, or returned no usable plan."""

    code = "plan-failed"
    deliveries = (NOT_SENT,)


class OpenFailed(AfpoolError):
    """A client could not be opened: nobody listens, TLS failed, the command does not exist, no MCP spoken."""

    code = "open-failed"
    deliveries = (NOT_SENT,)


class OpenBackoff(AfpoolError):
    """A recent opening under the same plan failed; `retry_after` says when the next one is tried."""

    code = "open-backoff"
    deliveries = (NOT_SENT,)


class CredentialFailed(AfpoolError):
    """The credential provider or the signer raised."""

    code = "credential-failed"
    deliveries = (NOT_SENT,)


class AuthorizationRequired(AfpoolError):
    """Somebody has to authorize first. The address for it goes to the host's callback only."""

    code = "authorization-required"
    deliveries = (NOT_SENT, REFUSED)


class DeadlineExceeded(AfpoolError):
    """The call's absolute deadline passed."""

    code = "deadline-exceeded"
    deliveries = (NOT_SENT, IN_DOUBT)


class CallCancelled(AfpoolError):
    """The call was withdrawn by its host (not by a trio cancellation, which stays `trio.Cancelled`)."""

    code = "cancelled"
    deliveries = (NOT_SENT, IN_DOUBT)


class PoolClosed(AfpoolError):
    """The pool is closed or closing."""

    code = "pool-closed"
    deliveries = (NOT_SENT, IN_DOUBT)


class ClientClosed(AfpoolError):
    """The client was killed or evicted under the call."""

    code = "client-closed"
    deliveries = (NOT_SENT, IN_DOUBT)


class SessionExpiredError(AfpoolError):
    """The server no longer knows the session. The next call opens a new incarnation."""

    code = "session-expired"
    deliveries = (REFUSED,)


class LocalSessionHandleLostError(AfpoolError):
    """The incarnation ended on our side of the wire: child exited, socket closed, process restarted."""

    code = "session-handle-lost"
    deliveries = (NOT_SENT, IN_DOUBT)


class ConnectionLost(AfpoolError):
    """One HTTP connection was cut under a living session."""

    code = "connection-lost"
    deliveries = (NOT_SENT, IN_DOUBT)


class ServerRefused(AfpoolError):
    """The server answered that it ran nothing."""

    code = "server-refused"
    deliveries = (REFUSED,)


class ServerFailed(AfpoolError):
    """An HTTP status without a JSON-RPC answer; nothing proves what ran."""

    code = "server-failed"
    deliveries = (IN_DOUBT,)


class ServerError(AfpoolError):
    """A JSON-RPC error answer. `error_code` and `data` are the server's own."""

    code = "server-error"
    deliveries = (ANSWERED,)

    error_code: int | None = None
    data: object = None


class ElicitationRequired(ServerError):
    """The server wants its user to visit an address before it is asked again (-32042).

    `elicitations` holds the addresses. Whether the tool ran up to there only the server knows, so the verdict
    is `answered` and never `refused`.
    """

    code = "elicitation-required"

    elicitations: tuple[UrlElicitation, ...] = ()


class InputRequired(AfpoolError):
    """The server answered with questions, and the call did not get past them.

    `answered`: they were not answered: nothing of the kind is offered, a handler failed, or there were too
    many. `in-doubt`: the next round was refused. In both cases the tool may have run up to its question.
    """

    code = "input-required"
    deliveries = (ANSWERED, IN_DOUBT)


class ProtocolError(AfpoolError):
    """An answer came and could not be read."""

    code = "protocol-error"
    deliveries = (ANSWERED,)


class TooLarge(AfpoolError):
    """An answer is larger than the cap for it."""

    code = "too-large"
    deliveries = (ANSWERED,)


class ToolError(AfpoolError):
    """The tool answered `isError`; raised only where asked (`ToolResult.raise_for_error`)."""

    code = "tool-error"
    deliveries = (ANSWERED,)


class ToolFailed(AfpoolError):
    """A tool of the host's own raised, or returned what is no result. It has run, up to there.

    `not-sent` where a fault on the way to it ended the call, and it was not run.
    """

    code = "tool-failed"
    deliveries = (ANSWERED, NOT_SENT)


class InvalidOutput(AfpoolError):
    """The structured content is not what the tool's output schema allows; raised only where asked.

    `result` is the `ToolResult` that came: the tool has run.
    """

    code = "invalid-output"
    deliveries = (ANSWERED,)

    result: object = None


class ActorCrashed(AfpoolError):
    """The key's actor crashed. Its admission state is gone; what was sent keeps its own answer."""

    code = "actor-crashed"
    deliveries = (NOT_SENT, IN_DOUBT)


class NotOwner(AfpoolError):
    """Another process owns this key (fleet)."""

    code = "not-owner"
    deliveries = (NOT_SENT,)
