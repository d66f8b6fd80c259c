"""What the scripted faults of a story are to a fake server: rules. Also the bytes of unreadable answers.

A fault that means nothing on a server's transport gives no rule: a status for a child, a close frame over
HTTP. The driver counts it as skipped.
"""

from __future__ import annotations

import email.utils
import functools
from typing import TYPE_CHECKING, Any, Final

import attrs

from afpool.testing import (
    Body,
    BreakOff,
    CloseFrame,
    Delay,
    Drop,
    Flood,
    Hang,
    HoldStream,
    JsonRpcError,
    RawBytes,
    Result,
    Rule,
    Sse,
    Status,
    Truncate,
    input_required,
)
from tests.simulation import steps as s

if TYPE_CHECKING:
    from collections.abc import Callable

    from afpool.testing import Action, Arrival
    from tests.simulation.world import ServerSpec

ID: Final = b"@request-id@"
LARGE: Final = 1 << 20  # the largest answer that a story writes


@attrs.frozen(kw_only=True)
class Spot:
    """Where a rule is to stand.

    Attributes:
        spec: The server.
        whose: Whether an arrival is of the person of that name.
        url: Address of the place.
        elsewhere: Address of another place.
        unix_now: The calendar, for dates.
        max_message: What the pool reads at most.
    """

    spec: ServerSpec
    whose: Callable[[Arrival, str], bool]
    url: str
    elsewhere: str
    unix_now: Callable[[], float]
    max_message: int = 16 << 20


def rule_of(step: s.Scripted, spot: Spot) -> Rule | None:
    """The rule of a fault; None where it means nothing there."""
    action = _action(step, spot)
    if action is None:
        return None
    who = step.who
    when = None if who is None else lambda arrival: spot.whose(arrival, who)
    if isinstance(action, JsonRpcError) and isinstance(action.data, list):
        when = _quoting(action, when)
    return Rule(step.method, action, step.tool, step.times, when)


def _quoting(action: Any, given: Callable[[Arrival], bool] | None) -> Callable[[Arrival], bool]:
    """What a request has to meet to be answered by this error, which then says how it was authenticated."""

    def when(arrival: Arrival) -> bool:
        if given is not None and not given(arrival):
            return False
        names = ("authorization", "x-sim-key", "x-sim-token", "x-api-key", "cookie")
        action.data[:] = [arrival.headers[name] for name in names if name in arrival.headers]
        return True

    return when


def _action(step: s.Scripted, spot: Spot) -> Action | None:
    spec, executed = spot.spec, step.executed
    http = spec.over_http
    match step:
        case s.DropNext():
            return Drop(reset=step.reset, after_execution=executed)
        case s.TruncateAnswer():
            return Truncate(at=step.after)
        case s.HangNext():
            return Hang(after_execution=executed)
        case s.HoldStreamNext() if http:
            return HoldStream(after_execution=executed)
        case s.DelayNext():
            return Delay(step.seconds)
        case s.StatusNext() if http or (spec.kind == "websocket" and step.method == "GET"):
            return _status(step, spot)
        case s.RpcErrorNext():
            wrong: dict[str, Any] = {"id": 987654} if step.wrong_id else {}
            data: Any = _address() if step.code == -32042 else [] if step.quotes else None
            return JsonRpcError(step.code, data=data, status=step.status, after_execution=executed, **wrong)
        case s.GarbageNext():
            garbage = _garbage(step.what, spot)
            return None if garbage is None else attrs.evolve(garbage, after_execution=executed)
        case s.OddStreamNext() if http and spec.kind != "sse":
            before = b""
            if step.comments:
                before = (
                    b": a comment\n\nid: 7\n: another\n\nevent: other\ndata: {}\n\ndata: " + _said() + b"\n\n"
                )
            return Sse(before=before, newline=step.newline, split=step.split, close=step.close)
        case s.BreakOffNext() if http and spec.kind != "sse":
            said = b"data: " + _said() + b"\n\n" if step.replay else b""
            return BreakOff(retry=step.retry, times=step.ends, replay=step.replay, cut=step.cut, before=said)
        case s.CloseFrameNext() if spec.kind == "websocket":
            return CloseFrame(step.code, after_execution=executed)
        case s.FloodNotices() if spec.kind != "sse":
            return Flood(_notice(step.what, spec), step.lines)
        case s.InputNext():
            return Result(_questions(step), after_execution=executed)
    return None


# ------------------------------------------------------------------------------------------ statuses

_CHALLENGES: Final = {
    "bearer": {"www-authenticate": 'Bearer realm="sim", error="invalid_token"'},
    "scopes": {"www-authenticate": 'Bearer error="insufficient_scope", scope="read write"'},
    "nonce": {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": "n-1"},
}


def _status(step: s.StatusNext, spot: Spot) -> Status:
    headers: dict[str, str] = dict(_CHALLENGES.get(step.challenge, {}))
    if step.retry_after is not None:
        moment = spot.unix_now() + step.retry_after
        headers["retry-after"] = (
            email.utils.formatdate(moment, usegmt=True) if step.retry_at else f"{step.retry_after:.0f}"
        )
    path = "/" + spot.url.partition("://")[2].partition("/")[2]
    location = {"same": spot.url, "path": f"{path}?moved", "other-place": spot.elsewhere, "bad": "http://[x"}
    if step.location != "none":
        headers["location"] = location[step.location]
    body: dict[str, Any] = {}
    if step.status in {204, 304}:
        pass
    elif step.body == "json-rpc":
        body["json"] = {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32000, "message": f"scripted {step.status}"},
        }
    elif step.body == "text":
        body["body"] = b"scripted text"
    return Status(step.status, headers=headers, after_execution=step.executed, **body)


# ------------------------------------------------------------------------------------------ questions


def _form() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"sure": {"type": "boolean", "default": True}}}
    params = {"mode": "form", "message": "Really?", "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _address() -> dict[str, Any]:
    visit = {"mode": "url", "message": "Visit", "url": "https://consent.test/x", "elicitationId": "e-1"}
    return {"elicitations": [visit]}


def question(ask: str) -> dict[str, Any]:
    """A request of a server, by what it asks: its method and parameters."""
    if ask in {"form", "elicitation/create"}:
        return _form()
    if ask in {"url", "elicitation-url"}:
        return {"method": "elicitation/create", "params": _address()["elicitations"][0]}
    if ask in {"sample", "sampling/createMessage"}:
        said = [{"role": "user", "content": {"type": "text", "text": "Say something."}}]
        return {"method": "sampling/createMessage", "params": {"messages": said, "maxTokens": 8}}
    if ask in {"roots", "roots/list"}:
        return {"method": "roots/list", "params": {}}
    if ask == "bare":
        return {"method": "roots/list", "params": None}
    if ask == "ping":
        return {"method": "ping", "params": {}}
    return {"method": "sim/unknown", "params": {}}


def _questions(step: s.InputNext) -> dict[str, Any]:
    asked = None if step.ask == "nothing" else {"q": question(step.ask)}
    return dict(input_required(asked, "a scripted state" if step.state else None))


# ------------------------------------------------------------------------------------------ notices


def _notice(what: str, spec: ServerSpec) -> bytes:
    if what == "comments":
        return b": nothing\n\n" if spec.over_http else b""
    params: Any = None
    if what == "progress":
        method, params = "notifications/progress", b'{"progressToken": %b, "progress": 1}' % ID
    elif what == "odd-progress":
        method, params = "notifications/progress", b'{"progressToken": %b, "progress": "most"}' % ID
    elif what == "log":
        method, params = "notifications/message", b'{"level": "info", "data": "' + b"." * 40 + b'"}'
    else:
        method = "notifications/tools/list_changed"
    told = b"" if params is None else b', "params": ' + params
    line = b'{"jsonrpc": "2.0", "method": "%b"%b}' % (method.encode(), told)
    if spec.over_http:
        return b"event: message\ndata: " + line + b"\n\n"
    return line if spec.kind == "websocket" else line + b"\n"


# ------------------------------------------------------------------------------------------ garbage


def _answer(content: bytes = b'[{"type": "text", "text": "scripted"}]') -> bytes:
    return b'{"jsonrpc": "2.0", "id": %b, "result": {"resultType": "complete", "content": %b}}' % (
        ID,
        content,
    )


def _said() -> bytes:
    params = b'{"level": "info", "data": "by the way"}'
    return b'{"jsonrpc": "2.0", "method": "notifications/message", "params": %b}' % params


# Of a subscription that is named by a string, and with nothing of what is granted.
_BARE: Final = (
    b'{"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"_meta": '
    b'{"io.modelcontextprotocol/subscriptionId": "%b"}}}'
) % ID


@functools.cache
def _many_tools() -> bytes:
    """A list that is read in several turns. Every fiftieth tool wants a header that cannot be."""
    plain = b'{"name": "m%d", "inputSchema": {"type": "object"}}'
    bad = b'{"name": "m%d", "inputSchema": {"type": "object", "properties": {"a": {"type": "object", '
    bad += b'"x-mcp-header": "a b"}}}}'
    tools = b", ".join((bad if number % 50 == 49 else plain) % number for number in range(300))
    return b'{"jsonrpc": "2.0", "id": %b, "result": {"resultType": "complete", "tools": [%b]}}' % (ID, tools)


def _bodies(max_message: int) -> dict[str, bytes]:
    twice = _answer()
    return {
        "not-json": b'{"jsonrpc": "2.0", "id": %b, "result": {"content": [}' % ID,
        "no-message": b'{"hello": "world"}',
        "not-utf8": _answer(b'[{"type": "text", "text": "\xff\xfe"}]'),
        "deep": b'{"jsonrpc": "2.0", "id": %b, "result": %b' % (ID, b"[" * 20_000),
        "empty": b"",
        "nan": _answer(b'[{"type": "text", "text": "scripted"}], "structuredContent": {"n": NaN}'),
        "result-no-object": b'{"jsonrpc": "2.0", "id": %b, "result": 7}' % ID,
        "no-content": b'{"jsonrpc": "2.0", "id": %b, "result": {"resultType": "complete"}}' % ID,
        "surrogate": _answer(rb'[{"type": "text", "text": "scripted \ud800"}]'),
        "key-twice": _answer(b'[], "content": [{"type": "text", "text": "scripted"}]'),
        "batch": b"[" + twice + b"]",
        "answer-twice": b"[" + twice + b", " + twice + b"]",
        "nameless": b'{"jsonrpc": "2.0", "result": {"content": [}, "id": %b}' % ID,
        "anothers": b'{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}',
        "stray-answer": b'{"jsonrpc": "2.0", "id": 987654, "result": {}}',
        "many-tools": _many_tools(),
        "bare-acknowledgement": _BARE,
        "too-large": _answer(b'[{"type": "text", "text": "' + b"x" * min(max_message, LARGE) + b'"}]'),
    }


_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def _garbage(what: s.Garbage, spot: Spot) -> Body | RawBytes | None:
    spec = spot.spec
    if what in {"too-large", "large-event", "large-after"} and spot.max_message >= LARGE:
        return None
    bodies = _bodies(spot.max_message)
    if spec.over_http:
        if what in {"large-event", "large-after"}:
            before = b"data: " + _answer() + b"\n\n" if what == "large-after" else b""
            large = b"data: " + b"x" * spot.max_message + b"\n\n"
            return Body(before + large, content_type="text/event-stream")
        if what == "bare-acknowledgement":
            return Body(b"data: " + _BARE + b"\n\n", content_type="text/event-stream")
        return _over_http(what, bodies)
    if what in bodies:
        if spec.kind != "websocket" and what == "answer-twice":
            return RawBytes(_answer() + b"\n" + _answer() + b"\n", close=False)
        return Body(bodies[what])
    if spec.kind == "websocket" and what == "no-http":
        return RawBytes(b"\xff\xff\xff\xff")  # a frame of reserved bits
    return None


def _over_http(what: s.Garbage, bodies: dict[str, bytes]) -> Body | RawBytes:
    match what:
        case "wrong-type":
            return Body(_answer(), content_type="text/html")
        case "no-http":
            return RawBytes(b"SSH-2.0-OpenSSH_9.2\r\n")
        case "huge-head":
            return RawBytes(b"HTTP/1.1 200 OK\r\nx-filler: " + b"x" * 200_000 + b"\r\n\r\n")
        case "ids-and-retry":
            events = (
                b"retry: 700\nid: e-1\ndata:\n\nevent: other\ndata: {}\n\nid: e-2\nevent: message\ndata: "
            )
            return Body(events + _said() + b"\n\n", content_type="text/event-stream")
        case "half-event":
            return Body(b"event: message\ndata: " + _answer(), content_type="text/event-stream")
        case "no-length":
            return RawBytes(_HEAD + b"\r\n" + _answer())
        case "bad-chunk":
            return RawBytes(_HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nnothing\r\n")
    return Body(bodies[what])
