"""What goes over the links between the pool and its servers, read by a bystander.

A `Tap` sits on one link. It is given the bytes that the network took from the client, in the step in which
it took them, and those that the client took, and files requests (at their first byte), answers, and what was
heard.

Answers belong to requests thus: over HTTP to the request whose response they are in; on the stream of
HTTP+SSE and in a stream that goes on with a broken answer, to the request of that session with their id; on
a shared stream to the request with their id.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.ground import Answer, Ground, Heard, Linked, Request, Unlinked
from tests.simulation.ground_door import base_call
from tests.simulation.oracle_http import (
    NO_BODY,
    Body,
    Events,
    Frames,
    Head,
    Lines,
    Messages,
    is_response,
    read_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CALL_ID: Final = "sim.example/call"
"""Under which `_meta` key calls say their id."""

WHO: Final = "x-sim-who"
PLAN: Final = "x-sim-plan"
"""The headers (and names in an environment) by which a plan says whose it is, and which."""

_CONTROL: Final = 8


class Wires:
    """All links of a run.

    Args:
        ground: Where facts go.
        whose: Whose task is running, where it is a call's.
    """

    def __init__(self, ground: Ground, whose: Callable[[], str | None] = lambda: None) -> None:
        self.ground = ground
        self.whose = whose
        self.taps: dict[int, Tap] = {}
        self.sessions: dict[tuple[str, str], list[Request]] = {}

    def open(
        self, link: int, server: str, place: str, kind: str, marks: Mapping[str, str] | None = None
    ) -> Tap:
        """A client has opened a link."""
        marks = marks or {}
        linked = Linked(
            link=link, server=server, place=place, kind=kind, key=marks.get(WHO), plan=marks.get(PLAN)
        )
        self.ground.file(linked)
        tap = self.taps[link] = Tap(self, linked)
        return tap

    def remember(self, request: Request) -> None:
        """Keep a request for answers that come on another stream of its session."""
        if request.session is not None and request.id is not None:
            self.sessions.setdefault((request.place, request.session), []).append(request)

    def find(self, place: str, session: str | None, rpc_id: Any) -> Request | None:
        """The newest request of a session with that id."""
        if session is None:
            return None
        for request in reversed(self.sessions.get((place, session), [])):
            if request.id == rpc_id:
                return request
        return None


class Tap:
    """One link; see the module.

    Attributes:
        linked: What is known of it.
        over: It has ended for its client.
    """

    def __init__(self, wires: Wires, linked: Linked) -> None:
        self.linked = linked
        self.over = False
        self._wires = wires
        self._ground = wires.ground
        self._request: Request | None = None  # that is being sent
        self._sent_body: list[bytes] = []
        self._got_body: list[bytes] = []
        self._answering: deque[Request] = deque()  # over HTTP: those whose response has not ended
        self._pending: dict[Any, Request] = {}  # on a shared stream: by id
        self._head: Head | None = None  # of the response that comes
        self._events: Events | None = None
        self._stream_of: str | None = None  # of a GET that answers come on: its session
        self._out: Lines | Frames | Messages
        self._in: Lines | Frames | Messages
        if linked.kind == "lines":
            self._out, self._in = Lines(), Lines()
        else:
            self._out = Messages(self._request_head, self._sent_body.append, self._request_end)
            self._in = Messages(self._response_head, self._response_body, self._response_end)

    # ------------------------------------------------------------------ what the client sends

    def sent(self, data: bytes) -> None:
        """The network has taken bytes from the client."""
        if not data:
            return
        out = self._out
        if isinstance(out, Messages):
            self._sent_http(out, data)
        elif isinstance(out, Lines):
            # a message begins with its first byte, so that the end of one and the begin of the next are told
            # apart
            for piece in data.splitlines(keepends=True):
                if not out.inside:
                    self._begin("LINE")
                for one in out.feed(piece):
                    self._message_sent(one)
        else:
            while data:
                if not out.inside:
                    self._begin("FRAME")
                step, data = _frame_piece(out, data)
                for code, payload, _ in out.feed(step):
                    if code >= _CONTROL:
                        self._not_a_message()
                    elif payload is not None:
                        self._message_sent(payload)

    def _sent_http(self, out: Messages, data: bytes) -> None:
        if not out.inside and out.upgraded is None:
            self._begin("")
        out.feed(data)
        if out.upgraded is not None:
            self._upgraded_out(out)

    def _upgraded_out(self, out: Messages) -> None:
        rest, out.upgraded = out.upgraded or b"", b""
        self._out = Frames()
        if rest:
            self.sent(rest)

    def _begin(self, verb: str) -> None:
        linked = self.linked
        self._request = self._ground.file(
            Request(
                link=linked.link,
                server=linked.server,
                place=linked.place,
                verb=verb,
                key=linked.key,
                plan=linked.plan,
                hinted=self._wires.whose(),
            )
        )
        self._sent_body.clear()

    def _request_head(self, head: Head) -> Body | None:
        if self._request is None:  # behind another one in the same write
            self._begin("")
        request = self._request
        assert request is not None
        request.verb = head.first[0]
        request.headers = head.headers
        request.key = head.headers.get(WHO, request.key)
        request.plan = head.headers.get(PLAN, request.plan)
        request.session = head.headers.get("mcp-session-id")
        target = head.first[1]
        if "session_id=" in target:
            request.session = target.partition("session_id=")[2].partition("&")[0]
        if request.verb == "CONNECT" or head.headers.get("upgrade", "").lower() == "websocket":
            self._answering.append(request)
            request.whole, request.whole_at = self._moment()
            if request.verb == "CONNECT":
                return Body({}, request=True)
            self.linked.key, self.linked.plan = request.key, request.plan
            return None
        return Body(head.headers, request=True)

    def _request_end(self) -> None:
        request = self._request
        assert request is not None
        if request.verb == "CONNECT":
            self._request = None
            return
        self._answering.append(request)
        self._message_sent(b"".join(self._sent_body))

    def _message_sent(self, data: bytes) -> None:
        request = self._request
        assert request is not None
        request.whole, request.whole_at = self._moment()
        for message in read_json(data):
            self._is(request, message)
        self._wires.remember(request)
        self._request = None

    def _is(self, request: Request, message: Mapping[str, Any]) -> None:
        method = message.get("method")
        params = message.get("params")
        request.method = method if isinstance(method, str) else None
        request.id = message.get("id")
        request.params = params if isinstance(params, dict) else {}
        meta = request.params.get("_meta")
        call = meta.get(CALL_ID) if isinstance(meta, dict) else None
        request.call = base_call(call) if isinstance(call, str) else None
        request.again = request.call != call and request.call is not None
        shared = not isinstance(self._out, Messages)
        if shared and request.method is not None and request.id is not None:
            self._pending[request.id] = request

    def _not_a_message(self) -> None:
        request = self._request
        assert request is not None
        request.verb = "CONTROL"
        request.whole, request.whole_at = self._moment()
        self._request = None

    def _moment(self) -> tuple[int, float]:
        return len(self._ground.facts) - 1, self._ground.now()

    # ------------------------------------------------------------------ what the client takes

    def took(self, data: bytes) -> None:
        """The client has taken bytes."""
        if not data:
            return
        got = self._in
        if isinstance(got, Messages):
            got.feed(data)
            if got.upgraded is not None:
                rest, got.upgraded = got.upgraded, b""
                self._in = Frames()
                self.took(rest)
        elif isinstance(got, Lines):
            for one in got.feed(data):
                self._shared(one)
            if got.rest.endswith(b"}"):
                for message in read_json(got.rest):
                    request = self._pending.get(_number(message.get("id")))
                    if request is not None and is_response(message):
                        self._answer(request, message=message, open=True)
        else:
            for _, payload, _ in got.feed(data):
                if payload is not None:
                    self._shared(payload)

    def _shared(self, data: bytes) -> None:
        messages = read_json(data)
        if not messages and data.strip():
            self._unreadable(data)
        for message in messages:
            if not is_response(message):
                self._heard(message)
                continue
            request = self._pending.pop(_number(message.get("id")), None)
            if request is not None:
                self._answer(request, message=message)

    def _unreadable(self, data: bytes) -> None:
        """What cannot be read may be the answer to any of those that wait."""
        for request in self._pending.values():
            self._answer(request, hint=data[:256], kind="unreadable")

    def _heard(self, message: Mapping[str, Any]) -> None:
        method, params = message.get("method"), message.get("params")
        if isinstance(method, str):
            request = self._answering[0] if self._answering else None
            self._ground.file(
                Heard(
                    link=self.linked.link,
                    place=self.linked.place,
                    key=self.linked.key if request is None else request.key,
                    method=method,
                    request=request,
                    params=params if isinstance(params, dict) else {},
                    id=message.get("id"),
                )
            )

    def _answer(self, request: Request, **what: Any) -> None:
        request.answers.append(self._ground.file(Answer(request=request, **what)))

    # ------------------------------------------------------------------ responses

    def _response_head(self, head: Head) -> Body | None:
        status = head.status
        if 100 <= status < 200 and status != 101:
            return Body({}, request=False, nothing=True)
        self._head = head
        self._got_body = []
        request = self._answering[0] if self._answering else None
        self._events = self._stream_of = None
        if request is not None and request.verb == "CONNECT" and status == 200:
            self._answer(request, status=status, kind="empty")
            self._answering.popleft()
            self._head = None
            return Body({}, request=False, nothing=True)
        if status == 101 and request is not None:
            self._answer(request, status=status, headers=head.headers, kind="empty")
            self._answering.popleft()
            return None
        if head.headers.get("content-type", "").startswith("text/event-stream"):
            self._events = Events()
            if request is not None and request.verb == "GET":
                self._stream_of = request.session or ""
        nothing = status in NO_BODY or (request is not None and request.verb == "HEAD")
        return Body(head.headers, request=False, nothing=nothing)

    def _response_body(self, data: bytes) -> None:
        if self._events is None:
            self._got_body.append(data)
            return
        for kind, event in self._events.feed(data):
            if kind == "endpoint":
                self._stream_of = event.decode("latin-1").partition("session_id=")[2].partition("&")[0]
            for message in read_json(event) if kind in {"", "message"} else ():
                if is_response(message):
                    self._event_answer(message)
                else:
                    self._heard(message)

    def _event_answer(self, message: Mapping[str, Any]) -> None:
        request = self._answering[0] if self._answering else None
        if self._stream_of is not None:
            request = self._wires.find(self.linked.place, self._stream_of, _number(message.get("id")))
        if request is not None and self._head is not None:
            self._answer(request, status=200, headers=self._head.headers, message=message, kind="sse")

    def _response_end(self, *, whole: bool = True) -> None:
        head, self._head = self._head, None
        if head is None or not self._answering:
            return
        request = self._answering.popleft()
        if self._events is not None:
            if not any(answer.message is not None for answer in request.answers):
                self._answer(request, status=head.status, headers=head.headers, kind="sse", whole=whole)
            return
        body = b"".join(self._got_body)
        kind = "empty" if not body else "json" if _is_json(head) else "text"
        messages = read_json(body) if whole else []
        answers = [each for each in messages if is_response(each)]
        for message in messages:
            if not is_response(message):
                self._heard(message)
        self._answer(
            request,
            status=head.status,
            headers=head.headers,
            message=answers[0] if answers else None,
            hint=body[:2048],
            kind=kind,
            whole=whole,
        )

    # ------------------------------------------------------------------ the end

    def ended(self, by: str) -> None:
        """The link has ended for its client: by itself, by the server, by the network."""
        if self.over:
            return
        self.over = True
        got = self._in
        if isinstance(got, Messages) and self._head is not None:
            self._response_end(whole=got.body_to_the_end and by != "client")
        request = self._request
        if request is not None and request.whole < 0:
            self._torn(request)
        self._ground.file(Unlinked(link=self.linked.link, by=by))

    def _torn(self, request: Request) -> None:
        """A message of which only a part left: whose it was is read from that part, as far as it goes."""
        out = self._out
        part = (b"POST" if request.verb == "POST" else b"") + b"".join(self._sent_body) + out.rest
        found = part.partition(CALL_ID.encode())[2][2:].split(b'"')
        if len(found) > 2:
            request.call = base_call(found[1].decode("utf-8", "replace"))
        elif request.hinted is not None and part[:4] == b"POST"[: len(part)]:
            request.call = request.hinted  # and no tunnel of its, and no asking for the rest of an answer


def _frame_piece(out: Frames, data: bytes) -> tuple[bytes, bytes]:
    """As much of `data` as belongs to one frame, and the rest."""
    probe = Frames()
    held = out._rest
    probe._rest = held + data
    head = probe._head()
    if head is None:
        return data, b""
    size, _, start = head
    end = max(0, start + size - len(held))
    return data[:end], data[end:]


def _number(rpc_id: Any) -> Any:
    """An id as it was sent: servers send numbers back as text."""
    if isinstance(rpc_id, str) and rpc_id.isascii() and rpc_id.isdigit():
        return int(rpc_id)
    if isinstance(rpc_id, float) and rpc_id.is_integer():
        return int(rpc_id)
    return rpc_id


def _is_json(head: Head) -> bool:
    return head.headers.get("content-type", "").partition(";")[0].strip().lower() in {
        "application/json",
        "text/json",
    } or head.headers.get("content-type", "").partition(";")[0].strip().endswith("+json")
