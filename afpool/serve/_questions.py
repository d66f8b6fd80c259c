"""What a server asks during a call, passed on to the one client that made the call; or refused.

Rules:

* A question belongs to a call, or it is refused: what a server asks on its own account concerns no client.
* It goes to the client whose request the call is, and only if that client has said that it can be asked so.
* In the handshake era it goes out on the stream of that request. In 2026-07-28 the request is answered with
  the question (`input_required`), the call waits, and the client's next request goes on with it. What it goes
  on with is a word that nobody can guess, good once, for that identity and that tool.
* A server that names its question (`inputRequests`) finds it answered under that name, and so does a client
  that answers under it right away, in the request that begins the call: it is not asked again.
* What the user answered is checked against what was asked for. The call's deadline runs all the while.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import trio
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, is_version_at_least

from ..client import ElicitAnswer
from ._rpc import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from .._base.model import Progress
    from ..client import ElicitRequest
    from ._asked import Asked

ELICIT: Final = "elicitation/create"
QUESTION: Final = "question"

_STATE_BYTES: Final = 24
_SINCE: Final = {"form": "2025-06-18", "url": "2025-11-25"}
_INNER: Final = ":inner:"
_read_object = msgspec.json.Decoder(dict[str, Any]).decode
_write = msgspec.json.encode


class NobodyToAsk(LookupError):
    """A server's question is for no client that can be asked; its server gets an error."""


@final
class Waiting:
    """A call in 2026-07-28 whose client can be asked: it lives longer than the request that began it.

    Attributes:
        asked: The request that it is answered by now.
        scope: Of the call.
    """

    __slots__ = (
        "_answer", "_asking", "_failure", "_given", "_heard", "_key", "_question", "_result", "_said",
        "asked", "scope", "state",
    )  # fmt: skip

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.scope = trio.CancelScope()
        self.state: str | None = None
        self._asking = trio.Lock()
        self._said = trio.Event()
        self._heard = trio.Event()
        self._question: bytes | None = None
        self._answer: dict[str, Any] = {}
        self._key = QUESTION
        self._given = _answers(asked)
        self._result: bytes | None = None
        self._failure: RpcError | None = None

    def tell_progress(self, step: Progress) -> None:
        """Tell the client of progress, on the request that is under way now. Synchronous."""
        if self.asked.wants_progress:
            self.asked.tell_progress(step)

    def end(self, result: bytes | None, failure: RpcError | None) -> None:
        """Say how the call ended."""
        self._result = result
        self._failure = failure
        self._said.set()

    def given(self, key: str | None) -> dict[str, Any] | None:
        """What the request that began the call says to a question, if anything; once. Synchronous."""
        answer = None if key is None else self._given.pop(key, None)
        return answer if isinstance(answer, dict) else None

    async def ask(
        self, key: str | None, params: dict[str, Any], states: dict[str, Waiting]
    ) -> dict[str, Any]:
        """Answer the client with a question, and wait for its next request; one question after the other."""
        async with self._asking:
            self._key = QUESTION if key is None else key
            state = secrets.token_urlsafe(_STATE_BYTES)
            told = {
                "resultType": "input_required",
                "inputRequests": {self._key: {"method": ELICIT, "params": params}},
                "requestState": state,
            }
            self._question = _write(told)
            self._heard = trio.Event()
            self.state = state
            states[state] = self
            try:
                self._said.set()
                await self._heard.wait()
            finally:
                states.pop(state, None)
                self.state = None
            return self._answer

    def go_on(self, asked: Asked) -> None:
        """Take the client's next request: the one that is answered from now on.

        Without an answer to the question it is answered with the question again.
        """
        self.asked = asked
        answer = _answers(asked).get(self._key)
        if not isinstance(answer, dict):
            return
        self._answer = answer
        self._said = trio.Event()
        self._heard.set()

    async def outcome(self) -> bytes:
        """Wait for the result, or for the next question; either as a result.

        Raises:
            RpcError: The call is answered with an error.
        """
        await self._said.wait()
        if self._failure is not None:
            raise self._failure
        if self._result is not None:
            return self._result
        assert self._question is not None
        return self._question


@final
class Questions:
    """Finds out whom a server's question is for.

    It is the `elicit` of a plan's `ServerRequests`.
    """

    __slots__ = ("_calls", "_states")

    def __init__(self) -> None:
        self._calls: dict[str, Asked | Waiting] = {}
        self._states: dict[str, Waiting] = {}

    def begin(self, call_id: str, call: Asked | Waiting) -> None:
        """A call is under way."""
        self._calls[call_id] = call

    def end(self, call_id: str) -> None:
        """A call is over."""
        del self._calls[call_id]

    def sweep(self) -> None:
        """End the calls that wait for a client whose proof is void."""
        for waiting in list(self._states.values()):
            if not waiting.asked.proven.still_holds():
                waiting.scope.cancel()

    def resume(self, state: object, asked: Asked, name: str) -> Waiting:
        """Go on with a call that waits for its client.

        Args:
            state: The word that came with the question.
            asked: The client's next request.
            name: The tool that it names.

        Raises:
            RpcError: There is no such call.
        """
        waiting = self._states.get(state) if isinstance(state, str) else None
        if waiting is not None:
            before = waiting.asked
            if before.proven.identity != asked.proven.identity or before.message.params.get("name") != name:
                waiting = None
        if waiting is None:
            raise RpcError(
                INVALID_PARAMS,
                "no call waits for this answer any more; nothing was run; begin anew without a state",
            )
        waiting.go_on(asked)
        return waiting

    async def __call__(self, request: ElicitRequest) -> ElicitAnswer:
        """Ask the user of the call that a question belongs to.

        Raises:
            NobodyToAsk: It belongs to none, or to one whose client cannot be asked.
            ValueError: The answer is none to what was asked.
        """
        operation = request.operation
        call = None if operation is None else self._calls.get(operation.call_id.partition(_INNER)[0])
        if call is None:
            raise NobodyToAsk("the question belongs to no client's call")
        asked = call.asked if isinstance(call, Waiting) else call
        if not asked.proven.still_holds() or not can_be_asked(asked, request.mode):
            raise NobodyToAsk("the client that made the call cannot be asked")
        params = dict(request.params)
        params.pop("_meta", None)
        if isinstance(call, Waiting):
            given = call.given(request.key)
            if given is not None:
                with contextlib.suppress(ValueError):
                    return _read_answer(request, given)
            answer: Any = await call.ask(request.key, params, self._states)
        else:
            assert asked.session is not None
            raw = await asked.session.ask(asked.outlet, ELICIT, params)
            if raw is None:
                raise NobodyToAsk("the client answered the question with an error")
            answer = _read_object(raw)
        return _read_answer(request, answer)


def _answers(asked: Asked) -> dict[str, Any]:
    responses = asked.message.params.get("inputResponses")
    return dict(responses) if isinstance(responses, dict) else {}


def _read_answer(request: ElicitRequest, answer: dict[str, Any]) -> ElicitAnswer:
    action = answer.get("action")
    if action == "accept":
        content = answer.get("content")
        return request.accept(content if isinstance(content, dict) else None, defaults=False)
    if action not in ("decline", "cancel"):
        raise ValueError("the client's answer is no answer to an elicitation")
    return ElicitAnswer(action)


def can_be_asked(asked: Asked, mode: str) -> bool:
    """Whether a request's client can be asked during the request, in this mode."""
    if not is_version_at_least(asked.version, _SINCE[mode]):
        return False
    declared = asked.capabilities.get("elicitation")
    if not isinstance(declared, dict):
        return False
    # no mode named is the form, which was there first
    if not (mode in declared or (mode == "form" and "url" not in declared)):
        return False
    return asked.version in MODERN_PROTOCOL_VERSIONS or (asked.session is not None and asked.outlet.can_tell)
