"""Requests in several rounds (protocol revision 2026-07-28): the server answers with questions first.

* Only `tools/call`, `prompts/get` and `resources/read` may be answered so.
* The next round is the original request with a new id: the same parameters, byte for byte, and beside them
  `inputResponses` (where the server asked something) and `requestState` (where it gave one), as it came.
* A round in which nothing is asked is a request to come again: after 50 ms, doubling up to 250.
* At most ten questions are followed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ._json import MalformedMessage, decode_json

MULTI_ROUND: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
MAX_ROUNDS: Final = 10
ROUND_WAIT: Final = 0.05
ROUND_WAIT_MAX: Final = 0.25


class InputRequest(NamedTuple):
    """One question of an `input_required` result: under which key it is answered, and what it asks."""

    key: str
    method: str
    params: dict[str, Any]


def read_input_requests(raw: bytes | None) -> list[InputRequest]:
    """Read the questions of an `input_required` result.

    Args:
        raw: `inputRequests` as it came; `None` where there is none.

    Raises:
        MalformedMessage: Not an object of requests.
    """
    if raw is None:
        return []
    value = decode_json(raw)
    if not isinstance(value, dict):
        raise MalformedMessage("`inputRequests` that is no object")
    requests = []
    for key, request in value.items():
        method = request.get("method") if isinstance(request, dict) else None
        params = request.get("params") if isinstance(request, dict) else None
        if not isinstance(method, str) or not isinstance(params, dict | None):
            raise MalformedMessage("an input request without a method, or with parameters that are no object")
        requests.append(InputRequest(key, method, params or {}))
    return requests


def round_params(params: bytes, responses: bytes | None, state: bytes | None) -> bytes:
    """Build the parameters of the next round.

    Args:
        params: Those of the first round, a raw JSON object with at least one member.
        responses: `inputResponses`, a raw JSON object; `None` sends none.
        state: `requestState` as it came; `None` sends none.
    """
    parts = [b"{"]
    if responses is not None:
        parts += (b'"inputResponses":', responses, b",")
    if state is not None:
        parts += (b'"requestState":', state, b",")
    parts.append(params[1:])
    return b"".join(parts)


def round_wait(unasked: int) -> float:
    """Seconds before a round is repeated in which nothing was asked.

    Args:
        unasked: How many such rounds there were before.
    """
    return min(ROUND_WAIT * float(2**unasked), ROUND_WAIT_MAX)
