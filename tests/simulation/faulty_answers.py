"""Faults that wait at a server for the next arrivals that match, and decide the answer. See `steps.py`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from tests.simulation.faults import AtServer


@attrs.frozen(kw_only=True)
class Scripted(AtServer):
    """Root of what decides the answer to the next arrivals that match.

    Args:
        method: A JSON-RPC method, `GET`, `DELETE`, `response` or `*`.
        tool: Only calls of that tool.
        who: Only arrivals of that person.
        times: How many arrivals.
        executed: Do first what the request asks for.
    """

    method: str = "tools/call"
    tool: str | None = None
    who: str | None = None
    times: int = 1
    executed: bool = False


@attrs.frozen(kw_only=True)
class DropNext(Scripted):
    """The connection ends without an answer; on stdio the child exits."""

    reset: bool = False


@attrs.frozen(kw_only=True)
class TruncateAnswer(Scripted):
    """The answer is cut after `after` bytes, by half when absent."""

    after: int | None = None


@attrs.frozen(kw_only=True)
class HangNext(Scripted):
    """No answer, on a connection that stays open."""


@attrs.frozen(kw_only=True)
class HoldStreamNext(Scripted):
    """An event stream opens as the answer and says nothing more."""


@attrs.frozen(kw_only=True)
class DelayNext(Scripted):
    """The answer comes so many seconds later."""

    seconds: float = 0.5


@attrs.frozen(kw_only=True)
class StatusNext(Scripted):
    """An HTTP status.

    Args:
        status: 401, 403, 404, 405, 406, 413, 415, 421, 429, 500, 502, 503, 504, 307, 308, and others.
        challenge: Of 401 and 403: none; `bearer`; `scopes` (more of them); `nonce` (DPoP).
        retry_after: Seconds of `Retry-After`, with 429 and 503.
        retry_at: As a date.
        location: Where a redirect leads: the same place, another path of it, another place, somewhere that
            cannot be, or nowhere.
        body: With the status: nothing, a text, or a JSON-RPC error.
    """

    status: int = 500
    challenge: Literal["none", "bearer", "scopes", "nonce"] = "none"
    retry_after: float | None = None
    retry_at: bool = False
    location: Literal["none", "same", "path", "other-place", "bad"] = "none"
    body: Literal["none", "text", "json-rpc"] = "none"


@attrs.frozen(kw_only=True)
class RpcErrorNext(Scripted):
    """A JSON-RPC error, with a status around it.

    Args:
        code: -32700, -32600, -32601, -32602, -32603, -32000, -32020 (header mismatch), -32022 (version),
            -32042 (elicitation of an address), 1, and others.
        status: Of HTTP.
        wrong_id: Answered under another id.
        quotes: Its data holds what the request was authenticated by.
    """

    code: int = -32603
    status: int = 200
    wrong_id: bool = False
    quotes: bool = False


Garbage: TypeAlias = Literal[
    "not-json", "no-message", "not-utf8", "deep", "empty", "nan", "result-no-object", "no-content",
    "surrogate", "key-twice", "batch", "answer-twice", "stray-answer", "wrong-type", "no-http", "huge-head",
    "too-large", "half-event", "no-length", "bad-chunk", "nameless", "ids-and-retry", "anothers",
    "large-event", "large-after", "many-tools", "bare-acknowledgement",
]  # fmt: skip


@attrs.frozen(kw_only=True)
class GarbageNext(Scripted):
    """What comes as the answer cannot be read, or is read with trouble. See `limits.md`."""

    what: Garbage = "not-json"


@attrs.frozen(kw_only=True)
class OddStreamNext(Scripted):
    """The usual answer as an event stream in an unusual spelling."""

    newline: Literal["\n", "\r\n", "\r"] = "\n"
    split: int | None = None
    comments: bool = False
    close: bool = False


@attrs.frozen(kw_only=True)
class BreakOffNext(Scripted):
    """The event stream of the answer ends early; the rest goes to who asks for it with `Last-Event-ID`."""

    retry: int | None = None
    ends: int = 0
    replay: bool = False
    cut: bool = False


@attrs.frozen(kw_only=True)
class CloseFrameNext(Scripted):
    """A WebSocket is closed with a code."""

    code: int = 1000


@attrs.frozen(kw_only=True)
class FloodNotices(Scripted):
    """So many notifications before the answer.

    Args:
        what: Progress of the call, progress that cannot be read, log messages, announced changes of the list,
            comments.
        lines: How many.
    """

    what: Literal["progress", "odd-progress", "log", "list-changed", "comments"] = "log"
    lines: int = 200


@attrs.frozen(kw_only=True)
class InputNext(Scripted):
    """A stateless server answers with questions.

    Args:
        ask: What is asked: a form, an address, a sample, roots, something unknown, or only to come again.
        state: Whether there is a state to be echoed.
    """

    ask: Literal["form", "url", "sample", "roots", "unknown", "nothing"] = "form"
    state: bool = True
