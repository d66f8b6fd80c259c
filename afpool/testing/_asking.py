"""Tools that ask their client something: by a request of their own, or by an answer that needs input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ._tools import Ask, FakeTool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from ._envelope import Message
    from ._ledger import Arrival
    from ._tools import Yielded


def input_required(requests: Mapping[str, Any] | None = None, state: Any = None, **members: Any) -> Message:
    """A stateless result that asks for input first.

    Args:
        requests: `inputRequests`: keys to requests (`{"method": ..., "params": ...}`); None leaves it out.
        state: `requestState`, to be echoed; None leaves it out.
        **members: Further members of the result.
    """
    result: Message = {"resultType": "input_required", **members}
    if requests is not None:
        result["inputRequests"] = dict(requests)
    if state is not None:
        result["requestState"] = state
    return result


def ask_tool(name: str = "ask", method: str = "elicitation/create", **members: Any) -> FakeTool:
    """Asks the client and answers its whole JSON-RPC response as JSON text. Handshake era.

    Arguments of a call: `method` (that of the tool by default) and `params`.
    """

    async def handler(arguments: Mapping[str, Any], arrival: Arrival) -> AsyncGenerator[Yielded, Any]:
        del arrival
        reply = yield Ask(str(arguments.get("method", method)), arguments.get("params"))
        yield json.dumps({key: reply[key] for key in ("result", "error") if key in reply})

    return FakeTool(name, handler, "Asks its client.", **members)


def input_tool(
    name: str = "input",
    *rounds: Mapping[str, Any],
    state: bool = True,
    **members: Any,
) -> FakeTool:
    """Asks for input in one or more rounds, then answers all that it was told as JSON text. Stateless era.

    Args:
        name: As listed.
        *rounds: `inputRequests` of each round; an empty one asks nothing but to come again. By default one
            round with one form.
        state: Whether each round carries a `requestState`. Without one a tool of several rounds cannot tell
            them apart and asks the first for ever.
        **members: Further members of the listed object.
    """
    form = {"method": "elicitation/create", "params": {
        "mode": "form", "message": "Really?",
        "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean", "default": True}}},
    }}  # fmt: skip
    asked = rounds or ({"confirm": form},)

    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str | Message:
        del arguments
        said = arrival.params.get("inputResponses")
        told: list[Any] = []
        known = arrival.params.get("requestState")
        if isinstance(known, str):
            told = json.loads(known)["told"]
        if said is not None or known is not None:
            told = [*told, said]
        if len(told) >= len(asked) or (told and not state):
            return json.dumps(told)
        # a state that only an exact echo brings back: blanks, an escape, a letter beyond ASCII
        carried = json.dumps({"told": told, "é": " \u2028 "}, ensure_ascii=False) if state else None
        return input_required(asked[len(told)] or None, carried)

    return FakeTool(name, handler, "Asks for input first.", **members)
