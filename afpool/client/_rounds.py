"""What a client does when its request is answered with questions (`input_required`, revision 2026-07-28).

* All questions of a round are looked at before the first is put to anybody: one that nothing was declared
  for ends the call, and no answer is made up for it.
* Handlers run in the call's task, one after the other; between two of them the gate is asked again.
* The place of the call is held through its rounds. Each round is a request of its own, through every gate.
* Once a question came, part of the tool may have run. So what refuses the call after that says neither
  `not-sent` nor `refused`: see `after_a_question`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio

from .._base.errors import IN_DOUBT, NOT_SENT, REFUSED, AfpoolError, InputRequired, ProtocolError
from ..protocol import (
    ELICITATION_CREATE,
    MAX_ROUNDS,
    ROOTS_LIST,
    SAMPLING_CREATE,
    MalformedMessage,
    NotJson,
    encode_json,
    read_call_result,
    read_input_requests,
    round_params,
    round_wait,
)
from ._server_requests import make_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol import InputRequest
    from ._attempt import Tries
    from ._client import Client
    from ._server_requests import ServerRequest
    from ._trip import Answer, Caller, Rpc

logger = logging.getLogger("afpool")

KNOWN: Final = (ROOTS_LIST, SAMPLING_CREATE, ELICITATION_CREATE)


async def next_round(client: Client, caller: Caller, first: Rpc, answer: Answer, tries: Tries) -> Rpc:
    """Answer the questions of a round and make the request of the next.

    Args:
        client: Whose server asks.
        caller: Whose call it is; its gate is asked between two questions.
        first: The request of the first round.
        answer: The `input_required` result.
        tries: Counts the rounds, this one included.

    Raises:
        InputRequired: The questions cannot be answered, or there were too many.
        ProtocolError: They cannot be read.
        AfpoolError: The gate has closed between two questions.
    """
    if tries.rounds > MAX_ROUNDS:
        raise InputRequired(
            f"the server asked again after {MAX_ROUNDS} rounds and was not answered; the tool may have run "
            "in part"
        )
    assert answer.message is not None
    asked = read_call_result(answer.message.result)
    try:
        requests = read_input_requests(asked.input_requests)
    except MalformedMessage as error:
        raise ProtocolError(
            f"the server's questions could not be read: {error.reason}; the tool has not ended"
        ) from None
    responses = None
    if requests:
        responses = await _responses(client, caller, requests)
    else:
        await trio.sleep(round_wait(tries.unasked))
        tries.unasked += 1
    params, state = first.params, asked.request_state
    assert params is not None
    if callable(params):
        return attrs.evolve(first, params=_with_id(params, responses, state))
    return attrs.evolve(first, params=round_params(params, responses, state))


def _with_id(
    params: Callable[[int], bytes], responses: bytes | None, state: bytes | None
) -> Callable[[int], bytes]:
    def make(request_id: int) -> bytes:
        return round_params(params(request_id), responses, state)

    return make


async def _responses(client: Client, caller: Caller, requests: list[InputRequest]) -> bytes:
    answering = client.answering
    negotiated = client.negotiated
    assert negotiated is not None
    for request in requests:
        refusal = answering.capabilities.refuses(request.method, request.params, negotiated.version)
        if refusal is not None:
            raise InputRequired(
                f"the server asks for {_shown(request.method)}, which is not answered ({refusal.reason}); "
                "the tool may have run in part"
            )
    running = caller.operation
    operation = None if running is None else running.operation
    parts = []
    for number, request in enumerate(requests):
        if number:
            caller.ask("input")
        asked = make_request(
            request.method, request.params, client.server, client.projection, operation, request.key
        )
        parts.append(_key(request.key) + b":" + await _answer(client, asked))
    return b"{" + b",".join(parts) + b"}"


async def _answer(client: Client, request: ServerRequest) -> bytes:
    offers = client.answering.offers
    assert offers is not None
    try:
        result = await offers.answer(request)
    except Exception as error:
        logger.error(  # noqa: TRY400 -- the app's code; its text may hold what it answers
            "the handler of %s for server %r raised %s", request.method, client.server, type(error).__name__
        )
        raise InputRequired(
            f"the handler of {request.method} raised {type(error).__name__}, so the server's question was "
            "not answered; the tool may have run in part"
        ) from error
    if result is None:
        raise InputRequired(
            f"the user rejected {request.method}, so the server's question was not answered; the tool may "
            "have run in part"
        )
    return result


def _key(key: str) -> bytes:
    try:
        return encode_json(key)
    except NotJson:
        raise ProtocolError(
            "the server asks under a key that cannot be sent back; the tool has not ended"
        ) from None


def _shown(method: str) -> str:
    return method if method in KNOWN else "something that is not known here"


def after_a_question(error: AfpoolError) -> AfpoolError:
    """Give a failure the verdict that is true after a round that was answered with a question.

    What was not sent, or was refused, was the last round only: the rounds before it ran up to their
    question. So it is `in-doubt`, under its own class where that can be, else as `InputRequired`.
    """
    if error.delivery not in (NOT_SENT, REFUSED):
        return error
    kind = type(error) if IN_DOUBT in error.deliveries else InputRequired
    changed = kind(
        "the server had asked for input, so the tool may have run in part; its question was not answered "
        f"({error.code})",
        delivery=IN_DOUBT,
        retry_after=error.retry_after,
        http_status=error.http_status,
        www_authenticate=error.www_authenticate,
    )
    changed.__cause__ = error
    return changed
