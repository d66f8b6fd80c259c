"""What an answer proves, and what it ends: the verdict of one answer to one request of a client.

* The verdict is decided from the answer and from what the client is, before any recovery starts; nothing in
  `judge` changes anything. A client that was lost in the meantime does not change what an answer proves.
* What follows from the verdict is a step of its own, `concluded`, taken once for an answer that ends its
  request: the incarnation may be over by it.

The tables are `protocol/_verdict.py`; here they are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._base.errors import ANSWERED, IN_DOUBT, InputRequired, ProtocolError, SessionExpiredError
from ..protocol import (
    LOCATION,
    WWW_AUTHENTICATE,
    BodyKind,
    Era,
    Followup,
    MalformedMessage,
    Outcome,
    classify_http,
    classify_posted,
    classify_stream,
    is_complete,
    parse_challenge,
    read_call_result,
)
from ._redirects import redirect_target

if TYPE_CHECKING:
    from ._client import Client
    from ._trip import Answer

A_RESULT: Final = Outcome(None, ANSWERED, Followup.NONE, "a result", 200)


def judge(client: Client, answer: Answer) -> Outcome:
    """Decide what an answer proves, before any recovery starts."""
    message = answer.message
    negotiated = client.negotiated
    era = Era.STATELESS if negotiated is None else negotiated.era
    if answer.status == 200 and message is not None and message.is_response and not message.is_error:
        outcome = A_RESULT
    elif answer.status is None:
        if message is None:
            return Outcome(None, ANSWERED, Followup.NONE, "sent")
        outcome = classify_stream(message)
    else:
        outcome = classify_http(
            answer.status,
            answer.kind or BodyKind.EMPTY,
            message,
            had_session=client.has_session,
            era=era,
            text_hint=answer.hint,
            challenge=parse_challenge(answer.header(WWW_AUTHENTICATE)) is not None,
            same_origin=redirect_target(client, answer.status, answer.header(LOCATION)) is not None,
        )
        if client.shared_stream:
            outcome = classify_posted(outcome)
    if outcome.error is None and message is not None and era is Era.STATELESS:
        if is_complete(message.result):
            return outcome
        try:
            result = read_call_result(message.result, era)
        except MalformedMessage as error:
            return outcome._replace(
                error=ProtocolError, reason=f"the answer could not be read: {error.reason}"
            )
        if result.input_required:
            return outcome._replace(
                error=InputRequired,
                followup=Followup.INPUT_REQUIRED,
                reason="the server asks for input where it may not; the request has not ended",
            )
    return outcome


def concluded(client: Client, outcome: Outcome) -> None:
    """An answer that ends its request may end the incarnation too; called after the verdict."""
    if outcome.delivery == IN_DOUBT:
        client.answering.doubt()
    if outcome.error is SessionExpiredError:
        client.lose("session expired")
    elif outcome.followup is Followup.RENEGOTIATE:
        client.outdate()
