"""What the checks hold the pool to: the numbers of a world, the codes of the design, the verdict of an
answer.

Written from the design and not from afpool: `verdict` is a second reading of the same law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from tests.simulation.ground import Answer, Fact, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.simulation.world import ToolSpec
    from tests.simulation.world_door import DoorSpec

Verdict: TypeAlias = Literal["not-sent", "refused", "in-doubt", "answered"]

SLACK: Final = 0.05
"""Seconds within which a caller who is late, cancelled or withdrawn is back."""

N: Final = "not-sent"
R: Final = "refused"
D: Final = "in-doubt"
A: Final = "answered"

CODES: Final[Mapping[str, frozenset[str]]] = {
    "identity-mismatch": frozenset({N}),
    "identity-missing": frozenset({N}),
    "stale-tools": frozenset({N}),
    "binding-changed": frozenset({N}),
    "share-failed": frozenset({N}),
    "not-approved": frozenset({N}),
    "invalid-arguments": frozenset({N}),
    "not-offered": frozenset({N}),
    "overloaded": frozenset({N}),
    "plan-failed": frozenset({N}),
    "open-failed": frozenset({N}),
    "open-backoff": frozenset({N}),
    "credential-failed": frozenset({N}),
    "authorization-required": frozenset({N, R}),
    "deadline-exceeded": frozenset({N, D}),
    "cancelled": frozenset({N, D}),
    "pool-closed": frozenset({N, D}),
    "client-closed": frozenset({N, D}),
    "session-expired": frozenset({R}),
    "session-handle-lost": frozenset({N, D}),
    "connection-lost": frozenset({N, D}),
    "server-refused": frozenset({R}),
    "server-failed": frozenset({D}),
    "server-error": frozenset({A}),
    "elicitation-required": frozenset({A}),
    "input-required": frozenset({A, D}),
    "protocol-error": frozenset({A}),
    "too-large": frozenset({A}),
    "invalid-output": frozenset({A}),
    "tool-error": frozenset({A}),
    "actor-crashed": frozenset({N, D}),
    "not-owner": frozenset({N}),
}
"""The verdicts that each code may come with. `not-owner` belongs to a fleet and is never seen here."""

DOOR_CODES: Final[Mapping[str, frozenset[str]]] = {
    "denied": frozenset({N, A}),
    "unknown-tool": frozenset({N}),
    "tool-failed": frozenset({N, A}),
    "wants-refused": frozenset({N}),
    "ERR_HOST_FILLED_ARGUMENT": frozenset({N}),
    "ERR_HOST_FILLED_VALUE_MISSING": frozenset({N}),
    "ERR_NO_ARTIFACT_STORE": frozenset({N}),
    "ERR_ARTIFACT_STORE": frozenset({N, D}),
    "ERR_ARTIFACT_STORE_CLOSED": frozenset({N}),
}
"""The same of what the door around a call may end it with, before it runs or after it has run."""

AFTER_A_QUESTION: Final = D
"""What refuses a call after a server has asked for input is in doubt, whatever its code."""

REFUSING_STATUS: Final = frozenset({401, 405, 406, 413, 415, 421, 429})
REFUSING_CODES: Final = frozenset({-32700, -32600, -32601, -32020, -32022})


@attrs.frozen(kw_only=True)
class ServerLaw:
    """What the checks need to know of one server.

    Attributes:
        shared_stream: All requests of a client share one stream (also HTTP+SSE, as far as answers go).
        posted: HTTP+SSE: a POST only hands a message over.
        era: What its places speak: `handshake`, `stateless`, `both`.
        refuses: `on_list_change` is `refuse`.
        without: JSON pointers left out when definitions are compared.
        weak: Its clients send through somebody else's HTTP, whose gate is weaker: what a gate refuses may
            leave all the same, and a request that never left may be in doubt.
        unseen: Its clients open without a word to the server: their version is settled, and knows no session.
        named_by_plan: To the pool each plan leads to a place of its own: a server in memory has no address.
    """

    shared_stream: bool = False
    posted: bool = False
    era: str = "handshake"
    refuses: bool = True
    without: tuple[str, ...] = ()
    weak: bool = False
    unseen: bool = False
    named_by_plan: bool = False


@attrs.frozen(kw_only=True)
class Law:
    """The numbers of a world.

    Attributes:
        longest: Seconds that a call may take.
        records: How many ended calls the record keeps.
        shown: What stands for each key where nobody is to be named, to the key.
        people: What may stand nowhere in what is told.
    """

    servers: Mapping[str, ServerLaw] = attrs.field(factory=dict)
    max_operations: int = 16
    settle_timeout: float = 30.0
    cancel_grace: float = 5.0
    ping_timeout: float = 5.0
    close_timeout: float = 5.0
    max_connecting: int = 8
    keepalive_expiry: float = 4.0
    door: DoorSpec | None = None
    tools: Mapping[str, Mapping[str, ToolSpec]] = attrs.field(factory=dict)
    idle_timeout: float = 300.0
    max_age: float = 3600.0
    longest: float = 60.0
    records: int = 4096
    shown: Mapping[str, str] = attrs.field(factory=dict)
    people: tuple[str, ...] = ()

    def weak(self, server: str) -> bool:
        """Whether the gate of a server's clients is the weaker one."""
        known = self.servers.get(server)
        return known is not None and known.weak


@attrs.frozen
class Violation:
    """A rule that was broken, at which fact, and in words."""

    rule: str
    seq: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule} {self.text}"


def is_question(answer: Answer) -> bool:
    """Whether an answer asks for input instead of answering (2026-07-28)."""
    message = answer.message
    result = message.get("result") if message is not None else None
    return isinstance(result, dict) and result.get("resultType") == "input_required"


def error_code(answer: Answer) -> int | None:
    """The code of a JSON-RPC error."""
    message = answer.message
    error = message.get("error") if message is not None else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else None


def verdict(request: Request, answer: Answer, *, posted: bool = False) -> frozenset[str]:
    """What an answer proves, as the design has it; more than one word where it leaves a choice.

    Args:
        request: What was asked.
        answer: What came.
        posted: It is the answer to a POST of HTTP+SSE, which says nothing but whether the message was taken.
    """
    status, message = answer.status, answer.message
    if status is None:
        return _of_message(answer)
    if not answer.whole and message is None:
        return frozenset({D})
    if status in {307, 308}:
        return frozenset({R, D})
    if posted and answer.kind != "sse":
        if 400 <= status < 500:
            return frozenset({R})
        return frozenset({D}) if message is None else _of_message(answer) | {D}
    if request.session is not None and status in {400, 404} and not _has_result(message):
        # whether a text says that the session is lost is left to the text; the other reading is in doubt
        return frozenset({R, A}) if message is not None else frozenset({R, D})
    if status == 400 and (message is None or message.get("error") is not None):
        return frozenset({R, A, D})  # the door of another era, or in doubt
    if status in REFUSING_STATUS or (status == 403 and "www-authenticate" in answer.headers):
        return frozenset({R})
    if message is not None:
        return _of_message(answer)
    if 200 <= status < 300 and answer.kind == "json":
        return frozenset({A})
    return frozenset({D})


def _of_message(answer: Answer) -> frozenset[str]:
    if answer.message is None:
        return frozenset({A, D})  # unreadable: whose answer it is may be open
    if error_code(answer) in REFUSING_CODES and not _has_result(answer.message):
        return frozenset({R})
    return frozenset({A})


def _has_result(message: Mapping[str, Any] | None) -> bool:
    return message is not None and message.get("result") is not None


def requests_of(facts: Iterable[Fact]) -> dict[str, list[Request]]:
    """The requests of each call, in the order of their first bytes."""
    found: dict[str, list[Request]] = {}
    for fact in facts:
        if isinstance(fact, Request) and fact.call is not None:
            found.setdefault(fact.call, []).append(fact)
    return found
