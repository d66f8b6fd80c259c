"""What a server may ask of its client, and which operation its request belongs to. Decisions without I/O.

Whose request it is (a request of a server names no request of ours, so this is the whole law):

1. One that comes on an operation's own response stream (over HTTP, the answer to its POST), or in its own
   `input_required` result, belongs to that operation.
2. One that comes on the response stream of a request of the client's own (a list, a ping) belongs to none.
3. One that comes on a stream that several requests share (stdio, WebSocket, the GET stream) belongs to an
   operation only if that operation's request is the only one of this client that is unanswered, its caller
   still waits, and no request of this client was ever given up without an answer. A server may still be at
   work on what was given up, and its question would reach the wrong approval.
4. Every other one belongs to none: to the key, and to nobody's call.

What was not declared is refused, never dropped (protocol revisions 2024-11-05 to 2025-11-25, client):
`roots/list` -32601, `sampling/createMessage` -1, `elicitation/create` in a mode that was not declared -32602,
an unknown method -32601. The stateless era has no requests of servers and forbids answers to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, final

import attrs

from ._elicitation import flat_schema_fault, is_web_address
from ._eras import HANDSHAKE_VERSIONS, LATEST_STATELESS, STATELESS_VERSIONS
from ._json import encode_json
from ._jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Mapping

USER_REJECTED: Final = -1

ROOTS_LIST: Final = "roots/list"
SAMPLING_CREATE: Final = "sampling/createMessage"
ELICITATION_CREATE: Final = "elicitation/create"

_VERSIONS: Final = (*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS)
# Since which version a mode of elicitation exists.
_MODES: Final = {"form": "2025-06-18", "url": "2025-11-25"}

OwnerT = TypeVar("OwnerT")


class Refusal(NamedTuple):
    """A request that is answered with an error: its code and our own words."""

    code: int
    reason: str


@attrs.frozen
class Capabilities:
    """What a client declares that it can be asked.

    Attributes:
        roots: `roots/list`.
        sampling: `sampling/createMessage`.
        sampling_tools: Tools in it.
        elicitation: The modes of `elicitation/create`: of `form` and `url`.
    """

    roots: bool = False
    sampling: bool = False
    sampling_tools: bool = False
    elicitation: tuple[str, ...] = ()

    def modes(self, version: str) -> tuple[str, ...]:
        """The declared modes of elicitation that exist in a protocol version."""
        at = _VERSIONS.index(version)
        return tuple(mode for mode in self.elicitation if _VERSIONS.index(_MODES[mode]) <= at)

    def document(self, version: str = LATEST_STATELESS) -> dict[str, Any]:
        """The capabilities object as a version spells it."""
        declared: dict[str, Any] = {}
        if self.roots:
            declared["roots"] = {}
        if self.sampling:
            declared["sampling"] = {"tools": {}} if self.sampling_tools else {}
        modes = self.modes(version)
        if modes:
            # 2025-06-18 knew one mode and no names for it
            declared["elicitation"] = {} if version == "2025-06-18" else {mode: {} for mode in modes}
        return declared

    def encode(self, version: str = LATEST_STATELESS) -> bytes:
        """The same as raw JSON."""
        return encode_json(self.document(version))

    def refuses(self, method: str | None, params: Mapping[str, Any], version: str) -> Refusal | None:
        """Say why a request is not for a handler; `None` where it is.

        Args:
            method: Of the server's request.
            params: Its parameters, decoded.
            version: The negotiated protocol version.
        """
        if method == ROOTS_LIST and self.roots:
            return None
        if method == SAMPLING_CREATE:
            return self._refuses_sampling(params)
        if method == ELICITATION_CREATE:
            return self._refuses_elicitation(params, version)
        return Refusal(METHOD_NOT_FOUND, "not declared by this client")

    def _refuses_sampling(self, params: Mapping[str, Any]) -> Refusal | None:
        if not self.sampling:
            return Refusal(USER_REJECTED, "sampling was not declared")
        if not isinstance(params.get("messages"), list):
            return Refusal(INVALID_PARAMS, "no list of messages")
        if not self.sampling_tools and (params.get("tools") or params.get("toolChoice")):
            return Refusal(INVALID_PARAMS, "tools in sampling were not declared")
        return None

    def _refuses_elicitation(self, params: Mapping[str, Any], version: str) -> Refusal | None:
        mode = params.get("mode", "form")
        if mode not in self.modes(version):
            return Refusal(INVALID_PARAMS, "elicitation was not declared in this mode")
        if not isinstance(params.get("message"), str):
            return Refusal(INVALID_PARAMS, "no message for the user")
        if mode == "url":
            if not is_web_address(params.get("url")):
                return Refusal(INVALID_PARAMS, "only http and https addresses are shown")
            return None
        fault = flat_schema_fault(params.get("requestedSchema"))
        return None if fault is None else Refusal(INVALID_PARAMS, fault)


NOTHING_DECLARED: Final = Capabilities()


@final
class Attribution(Generic[OwnerT]):
    """Rule 3, for one client: keeps which of its requests are unanswered, and says whose a question is.

    A token names one request on its way. Its owner is the operation that it was sent for, or `None` for a
    request of the client's own.
    """

    __slots__ = ("_blind", "_open")

    def __init__(self) -> None:
        self._open: dict[int, OwnerT | None] = {}
        self._blind = False

    def sent(self, token: int, owner: OwnerT | None) -> None:
        """A request is about to leave."""
        self._open[token] = owner

    def answered(self, token: int) -> None:
        """Its answer has come, or no byte of it ever left: nobody asks for it any more."""
        self._open.pop(token, None)

    def given_up(self, token: int) -> None:
        """Its caller has gone, its answer may still come."""
        if token in self._open:
            self._open[token] = None

    def lost(self, token: int) -> None:
        """Its answer will not come, and what the server still does for it is not known."""
        if token in self._open:
            del self._open[token]
            self._blind = True

    def doubt(self) -> None:
        """A request ended without proof that the server has ended it too."""
        self._blind = True

    def whose(self) -> OwnerT | None:
        """The operation that a request on a shared stream belongs to now, or `None`."""
        if self._blind or len(self._open) != 1:
            return None
        (owner,) = self._open.values()
        return owner
