"""Attempts of one request: credential, signature, the trip, the verdict, and what may follow it.

An attempt has two phases, parted by its first byte. Before it, every await goes through `boundary`, which
asks the gate when the wait is over; a test parses this file and fails on any other await. `cross` is the one
exception: in it the first byte leaves, under the gate that the wire asks.

A request is sent again only after an answer whose verdict is `refused`, within the limits below, and every
further attempt passes every gate again. An answer that asks for input (2026-07-28) ends a round: what follows
is another request by the protocol's design, with attempts of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio

from .._base.credential import Anonymous, CredentialRequest, Issued, NeedsAuthorization
from .._base.errors import (
    IN_DOUBT,
    NOT_SENT,
    AfpoolError,
    AuthorizationRequired,
    ConnectionLost,
    CredentialFailed,
    Delivery,
    ElicitationRequired,
    LocalSessionHandleLostError,
    Overloaded,
    ProtocolError,
    ServerFailed,
    SessionExpiredError,
)
from .._base.untraced import by_itself, in_place_of
from ..protocol import (
    LOCATION,
    MULTI_ROUND,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
    Followup,
    Outcome,
    parse_challenges,
    parse_retry_after,
)
from ..transports import BadHttp, ConnectFailed, Truncated, Unsendable, WireClosed, Woken
from ._header_rules import checked
from ._http_channel import HttpChannel
from ._judging import concluded, judge
from ._redirects import REDIRECTS, go_to, redirect_target
from ._resume import ResumeFailed
from ._rounds import after_a_question, next_round
from ._signing import can_sign_again, signature
from ._sse_channel import SseChannel

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .._base.credential import Credential, Reason
    from ..transports import Headers
    from ._client import Client
    from ._trip import Answer, Caller, Rpc, Trip

T = TypeVar("T")

THROTTLED_ATTEMPTS: Final = 3
THROTTLED_SECONDS: Final = 10.0
THROTTLED_BASE: Final = 0.2
STEP_UPS: Final = 2


@final
class Tries:
    """What one request has used up of what may be tried, and what the provider is to know of its last answer.

    Args:
        before: Of the round before. Only the scopes that were asked for and the counts of rounds stay: a user
            may have taken an hour over a question.

    Attributes:
        rejected: The one further credential after a 401 is used up.
        reason: Why the provider is asked next; `call` again once it has answered.
        challenge: The challenge of the last answer, where the provider is asked because of it.
        carried: What the last request carried; `None` for one that was sent without.
        rounds: How many answers asked for input.
        unasked: How many of them asked nothing.
    """

    __slots__ = (
        "carried", "challenge", "reason", "redirects", "refusal", "rejected", "relisted", "rounds", "scopes",
        "step_ups", "throttled", "unasked", "waited",
    )  # fmt: skip

    def __init__(self, before: Tries | None = None) -> None:
        self.throttled = 1
        self.waited = 0.0
        self.rejected = False
        self.refusal: Answer | None = None  # the 401 that the next attempt follows
        self.scopes: tuple[str, ...] = ()
        self.step_ups = 0
        self.relisted = False
        self.redirects = 0
        self.rounds = 0
        self.unasked = 0
        self.reason: Reason = "call"
        self.challenge: str | None = None
        self.carried: Credential | None = None
        if before is not None:
            self.scopes = before.scopes
            self.rounds = before.rounds
            self.unasked = before.unasked


async def attempts(client: Client, caller: Caller, rpc: Rpc) -> Answer:
    """Send a request, again where its answer allows it, and return the answer that holds a result.

    Raises:
        AfpoolError: The failure, with its verdict.
        trio.Cancelled: `caller.trip` says whether bytes left.
    """
    tries = Tries()
    first = rpc
    try:
        while True:
            answer = await attempt(client, caller, rpc, tries)
            outcome = judge(client, answer)
            if outcome.error is None:
                return answer
            caller.noted("answer", what_came(answer, outcome))
            if outcome.followup is Followup.INPUT_REQUIRED and first.method in MULTI_ROUND:
                tries = Tries(tries)
                tries.rounds += 1
                caller.questioned()
                rpc = await boundary("input", next_round(client, caller, first, answer, tries), caller)
                continue
            error = _error_of(client, answer, outcome)
            again = _follow(client, caller, answer, outcome, tries, error)
            if again is None:
                concluded(client, outcome)
                raise error
            if again is not NOTHING:
                await boundary("retry", again, caller)
    except AfpoolError as failure:
        if not tries.rounds:
            raise
        raise after_a_question(failure)  # noqa: B904 -- it names its cause, or is the failure itself


def what_came(answer: Answer, outcome: Outcome) -> str:
    """Say in a few words, none of them the server's, what an answer was that holds no result."""
    if outcome.followup is Followup.INPUT_REQUIRED:
        return "input-required"
    words = []
    if answer.status is not None and (answer.status != 200 or outcome.body is None):
        words.append(f"http {answer.status}")
    if outcome.body is not None:
        words.append(f"error {outcome.body.code}")
    if outcome.error is SessionExpiredError:
        words.append("session")
    return " ".join(words) or "unreadable"


NOTHING: Final = object()


async def attempt(client: Client, caller: Caller, rpc: Rpc, tries: Tries) -> Answer:
    """Make one attempt; return whatever answer came."""
    caller.ask("attempt")
    headers: Headers = []
    if client.requirement is not None and client.carries_headers:
        headers = [*await boundary("credential", credential_headers(client, tries), caller)]
    answering = client.answering
    if answering.tracks:
        rpc.on_message = answering.stream_of(caller.operation)
    channel = client.channel
    if client.settings.signer is not None and isinstance(channel, HttpChannel | SseChannel):
        draft = channel.draft(rpc, headers)
        headers = []  # it holds them; see below
        signing = signature(client, draft.request, channel.url(), tries.refusal)
        signed = await boundary("sign", signing, caller)
        client.carried.note_headers(signed)
        trip: Trip = channel.signed_trip(draft, signed)
        del draft, signing, signed
    else:
        trip = channel.trip(rpc, headers)
    del headers  # a failure of the trip carries this frame, and a traceback may be shown with its locals
    for credential in client.carried:
        caller.carries(credential)
    caller.trip = trip
    caller.started(trip.size)
    if answering.tracks:
        with answering.tracked(trip, caller.operation):
            return await cross(trip, caller, client)
    return await cross(trip, caller, client)


async def boundary(name: str, waiting: Awaitable[T], caller: Caller) -> T:
    """Wait for something before the first byte, and come back through the gate.

    Where the awaited thing failed and the gate is closed as well, the refusal is the outcome.
    """
    try:
        with caller.bounded(name):
            value = await waiting
    except AfpoolError as error:
        caller.failed(name, error.code)
        raise
    caller.ask(name)
    return value


async def cross(trip: Trip, caller: Caller, client: Client) -> Answer:
    """Let the first byte leave and wait for the answer; a failure gets its verdict before any recovery."""
    try:
        return await trip.run(caller, caller.deadline)
    except Woken:
        raise caller.woken() from None
    except ConnectFailed as error:
        caller.failed("connect", f"connect failed: {error.reason}")
        unsent = ConnectionLost(f"{error}; nothing was sent", delivery=NOT_SENT)
        raise unsent.saying("connect", f"connect failed: {error.reason}") from error
    except WireClosed as error:
        if not trip.begun:
            caller.failed("write", "the wire is closed")
        elif caller.interrupted is not None:
            # It was ended from outside, and its wire then closed: the first is what happened.
            raise caller.interrupted from error
        lost = _lost(trip, client, str(error))
        raise (lost if trip.begun else lost.saying("write", "the wire is closed")) from error
    except Truncated as error:
        raise ConnectionLost(
            "the connection broke in the middle of the answer; the request was sent and may have run",
            delivery=IN_DOUBT,
        ) from error
    except ResumeFailed as error:
        text = f"the answer's stream ended early and cannot be taken up again: {error}"
        kind = LocalSessionHandleLostError if error.over else ConnectionLost
        raise kind(f"{text}; the request was sent and may have run", delivery=IN_DOUBT) from error
    except BadHttp as error:
        raise ServerFailed(
            f"the answer is not HTTP/1.1 ({error}); whether the request ran is not known"
        ) from error
    except Unsendable as error:
        raise CredentialFailed(f"{error}; nothing was sent") from error
    except MemoryError:
        pass  # not its context either: the frames of what was raised hold all that was read
    if trip.begun:
        raise ConnectionLost(
            "this process has no memory for the answer; the request was sent and may have run",
            delivery=IN_DOUBT,
        )
    raise Overloaded("this process has no memory for the request; nothing was sent")


def _lost(trip: Trip, client: Client, why: str) -> AfpoolError:
    delivery: Delivery = IN_DOUBT if trip.begun else NOT_SENT
    sent = "the request was sent and may have run" if trip.begun else "nothing was sent"
    if client.carries_headers and client.lost is None and client.retired != "killed":
        return ConnectionLost(f"the connection was lost; {sent}", delivery=delivery)
    return LocalSessionHandleLostError(f"the client's stream has ended ({why}); {sent}", delivery=delivery)


# ---------------------------------------------------------------------------- what may follow


def _follow(
    client: Client, caller: Caller, answer: Answer, outcome: Outcome, tries: Tries, error: AfpoolError
) -> Any:
    """Decide whether another attempt may follow: what to wait for first, `NOTHING`, or `None` for no."""
    follow = outcome.followup
    if follow is Followup.WAIT_AND_RETRY:
        delay = error.retry_after
        if delay is None:
            ceiling = THROTTLED_BASE * 2 ** (tries.throttled - 1)
            delay = ceiling / 2 + client.settings.seams.random.random() * ceiling / 2
        if tries.throttled >= THROTTLED_ATTEMPTS or tries.waited + delay > THROTTLED_SECONDS:
            return None
        tries.throttled += 1
        tries.waited += delay
        return trio.sleep(delay)  # noqa: ASYNC105 -- awaited by `boundary`
    if follow is Followup.NEW_CREDENTIAL:
        if not another_credential(client, answer, tries):
            return None
        new_credential(answer, tries)
        return NOTHING
    if follow is Followup.STEP_UP:
        return step_up(client, answer, tries)
    if follow is Followup.REDIRECT:
        return NOTHING if redirect(client, answer, tries) else None
    if follow is Followup.RELIST:
        if tries.relisted:
            return None
        tries.relisted = True
        return caller.relist()
    return None


def another_credential(client: Client, answer: Answer, tries: Tries) -> bool:
    """Whether a 401 may be followed by an attempt with another credential or signature: once."""
    if tries.rejected:
        return False
    if can_sign_again(client):
        tries.refusal = answer
    return client.requirement is not None or tries.refusal is not None


def redirect(client: Client, answer: Answer, tries: Tries) -> bool:
    """Follow a 307 or 308 within the origin, three times at most; whether it is followed."""
    location = redirect_target(client, answer.status, answer.header(LOCATION))
    if location is None or tries.redirects >= REDIRECTS:
        return False
    tries.redirects += 1
    go_to(client, location)
    return True


def new_credential(answer: Answer, tries: Tries) -> None:
    """Have the provider told of a 401: one more credential may follow it."""
    tries.rejected = True
    tries.reason = "challenge" if tries.carried is None else "refresh"
    tries.challenge = challenge_of(answer)


def challenge_of(answer: Answer) -> str | None:
    """Every `www-authenticate` of an answer as one field (RFC 9110 § 5.3); `None` where there is none."""
    values = [value.decode("latin-1") for name, value in answer.headers or () if name == WWW_AUTHENTICATE]
    return ", ".join(values) if values else None


def step_up(client: Client, answer: Answer, tries: Tries) -> object | None:
    """Ask for the scopes of a challenge as well, if they have grown; `None` when there is nothing to ask."""
    requirement = client.requirement
    if requirement is None or tries.step_ups >= STEP_UPS:
        return None
    wanted: list[str] = list(tries.scopes or requirement.scopes)
    field = challenge_of(answer)
    for challenge in parse_challenges(field):
        for scope in challenge.params.get("scope", "").split():
            if scope not in wanted:
                wanted.append(scope)
    if len(wanted) == len(tries.scopes or requirement.scopes):
        return None  # nothing that was not asked for before
    tries.step_ups += 1
    tries.scopes = tuple(wanted)
    tries.reason = "step-up"
    tries.challenge = field
    return NOTHING


def _error_of(client: Client, answer: Answer, outcome: Outcome) -> AfpoolError:
    retry_after = parse_retry_after(answer.header(RETRY_AFTER), client.settings.seams.unix_now())
    error = outcome.to_error(retry_after=retry_after, www_authenticate=answer.header(WWW_AUTHENTICATE))
    if isinstance(error, ElicitationRequired):
        for address in error.elicitations:
            client.answering.shown(address.elicitation_id)
    body = outcome.body
    if body is not None and body.message and not isinstance(error, ProtocolError):
        error.message = f"{error.message}: {body.message[:1024]}"
    return client.carried.clean(error)


# ---------------------------------------------------------------------------- the credential


async def credential_headers(client: Client, tries: Tries) -> Headers:
    """Ask the provider for what the plan requires, as header pairs."""
    requirement = client.requirement
    provider = client.settings.credentials
    assert requirement is not None
    if provider is None:
        raise CredentialFailed(
            f"the plan requires a credential for {requirement.service!r} and the pool has no credential "
            "provider; nothing was sent"
        )
    reason = tries.reason
    request = CredentialRequest(
        service=requirement.service,
        scopes=tries.scopes or requirement.scopes,
        mode=requirement.mode,
        identity=client.projection,
        reason=reason,
        rejected=reason == "refresh",
        resource=client.resource,
        required=requirement.scopes,
        challenge=None if tries.challenge is None else client.carried.text(tries.challenge),
        refused=None if reason == "call" else tries.carried,
    )
    given: object = None
    failure: CredentialFailed | None = None
    try:
        given = await provider.get(request)
    except AfpoolError as error:
        raise by_itself(error) from None
    except Exception as error:  # noqa: BLE001 -- the host's own code, which may raise anything
        failure = in_place_of(
            error,
            CredentialFailed(
                f"the credential provider raised {type(error).__name__} for {requirement.service!r}; "
                "nothing was sent"
            ),
        ).saying("credential", type(error).__name__)
    if failure is not None:
        raise failure  # out here, where what the provider raised does not become its context
    if isinstance(given, NeedsAuthorization):
        client.needs_authorization(given)
        raise AuthorizationRequired(
            f"somebody has to authorize {requirement.service!r} first; nothing was sent; "
            "its address went to the host",
            delivery=NOT_SENT,
        )
    if isinstance(given, Anonymous):
        if reason != "call":
            raise AuthorizationRequired(
                f"the server wants a credential for {requirement.service!r} and the credential provider has "
                "none; nothing was sent",
                delivery=NOT_SENT,
                www_authenticate=request.challenge,
            )
        tries.carried = None
        return []
    if not isinstance(given, Issued):
        raise CredentialFailed(
            f"the credential provider returned {type(given).__name__} for {requirement.service!r}; "
            "nothing was sent"
        )
    tries.carried = given.credential
    client.carried.note(given.credential)
    tries.reason, tries.challenge = "call", None
    return checked(given.credential.to_headers(), "the credential")
