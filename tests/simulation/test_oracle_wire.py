"""The oracle's reading of links: whatever the pieces, requests, answers and notices are told apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.ground import Answer, Ground, Heard, Linked, Request, Unlinked, of
from tests.simulation.oracle_http import Events, Frames, unmasked
from tests.simulation.oracle_wire import CALL_ID, PLAN, WHO, Tap, Wires


class Bench:
    """One link, fed by hand."""

    def __init__(self, kind: str = "http", **marks: str) -> None:
        self.ground = Ground(lambda: float(len(self.ground.facts)))
        self.wires = Wires(self.ground)
        self.tap: Tap = self.wires.open(1, "files", "files-0", kind, marks or None)

    def requests(self) -> list[Request]:
        return list(of(self.ground.facts, Request))

    def answers(self) -> list[Answer]:
        return list(of(self.ground.facts, Answer))

    def heard(self) -> list[Heard]:
        return list(of(self.ground.facts, Heard))


def fed(take: Any, data: bytes, sizes: list[int]) -> None:
    """Give bytes in pieces of these sizes, over and over."""
    at = 0
    while data[at:]:
        for size in sizes or [len(data)]:
            take(data[at : at + size])
            at += size


def message(method: str, rpc_id: int | None = None, call: str | None = None, **params: Any) -> bytes:
    if call is not None:
        params["_meta"] = {CALL_ID: call}
    return json.dumps({"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params}).encode()


def post(body: bytes, **headers: str) -> bytes:
    lines = [b"POST /mcp HTTP/1.1", b"host: files-0.sim", b"content-length: %d" % len(body)]
    lines += [f"{name}: {value}".encode() for name, value in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def response(
    body: bytes, status: int = 200, kind: str = "application/json", *, chunked: bool = False
) -> bytes:
    head = b"HTTP/1.1 %d Word\r\ncontent-type: %b\r\n" % (status, kind.encode())
    if not chunked:
        return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(body[at : at + 9]), body[at : at + 9]) for at in range(0, len(body), 9)
    )
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


RESULT = b'{"jsonrpc": "2.0", "id": 7, "result": {"n": 1}}'
PIECES = st.lists(st.integers(1, 60), max_size=5)


@given(sizes=PIECES, back=PIECES, chunked=st.booleans())
def test_requests_and_answers_over_http(sizes, back, chunked):
    bench = Bench()
    marks = {WHO: "files|a", PLAN: "files-0/0", "mcp-session-id": "s1"}
    sent = post(message("tools/call", 7, "c1", name="echo"), **marks) + post(message("ping", 8), **marks)
    fed(bench.tap.sent, sent, sizes)
    first, second = bench.requests()
    assert (first.method, first.id, first.call, first.key, first.plan, first.session) == (
        "tools/call", 7, "c1", "files|a", "files-0/0", "s1",
    )  # fmt: skip
    assert (second.method, second.call) == ("ping", None)
    fed(bench.tap.took, response(RESULT, chunked=chunked) + response(b"", 503, "text/plain"), back)
    answered, failed = bench.answers()
    assert (answered.request, answered.message["result"]) == (first, {"n": 1})
    assert (failed.request, failed.status, failed.message, failed.kind) == (second, 503, None, "empty")


def test_a_request_belongs_to_the_instant_of_its_first_byte():
    bench = Bench()
    data = post(message("tools/call", 7, "c1"))
    bench.tap.sent(data[:1])
    bench.ground.file(Unlinked(link=9, by="client"))
    bench.tap.sent(data[1:])
    (request,) = bench.requests()
    assert request.seq < bench.ground.facts[-1].seq
    assert request.whole == bench.ground.facts[-1].seq


@given(sizes=PIECES, newline=st.sampled_from(["\n", "\r\n", "\r"]))
def test_an_event_stream(sizes, newline):
    bench = Bench()
    bench.tap.sent(post(message("tools/call", 7, "c1")))
    events = [
        b": comment",
        b"event: message",
        b"data: " + message("notifications/x"),
        b"",
        b"id: 3",
        b"data: " + RESULT,
        b"",
    ]
    body = b"".join(line + newline.encode() for line in events)
    fed(bench.tap.took, response(body, kind="text/event-stream", chunked=True), sizes)
    assert [each.method for each in bench.heard()] == ["notifications/x"]
    (answer,) = bench.answers()
    assert (answer.kind, answer.message["result"]) == ("sse", {"n": 1})


@pytest.mark.parametrize(("by", "whole"), [("server", True), ("network", True), ("client", False)])
def test_a_body_without_a_length_ends_with_its_connection(by, whole):
    bench = Bench()
    bench.tap.sent(post(message("tools/call", 7, "c1")))
    bench.tap.took(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + RESULT)
    assert bench.answers() == []
    bench.tap.ended(by)
    (answer,) = bench.answers()
    assert (answer.message is not None) is answer.whole is whole


def test_an_answer_that_breaks_off():
    bench = Bench()
    bench.tap.sent(post(message("tools/call", 7, "c1")))
    bench.tap.took(response(RESULT)[:-3])
    bench.tap.ended("server")
    (answer,) = bench.answers()
    assert (answer.status, answer.message, answer.whole) == (200, None, False)


def test_an_answer_on_another_stream_of_the_session():
    bench = Bench()
    bench.tap.sent(post(message("tools/call", 7, "c1"), **{"mcp-session-id": "s1"}))
    other = bench.wires.open(2, "files", "files-0", "http")
    other.sent(b"GET /mcp HTTP/1.1\r\nmcp-session-id: s1\r\nlast-event-id: 3\r\n\r\n")
    other.took(response(b"data: " + RESULT + b"\n\n", kind="text/event-stream"))
    answer = bench.answers()[0]
    assert answer.request is bench.requests()[0]
    assert answer.message["result"] == {"n": 1}


def test_http_and_sse():
    bench = Bench()
    bench.tap.sent(b"GET /mcp HTTP/1.1\r\naccept: text/event-stream\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    endpoint = b"event: endpoint\ndata: /post?session_id=s1\n\n"
    bench.tap.took(head + b"%x\r\n%b\r\n" % (len(endpoint), endpoint))
    other = bench.wires.open(2, "files", "files-0", "http")
    other.sent(post(message("tools/call", 7, "c1")).replace(b"/mcp", b"/post?session_id=s1"))
    other.took(response(b"", 202, "text/plain"))
    event = b"event: message\ndata: " + RESULT + b"\n\n"
    bench.tap.took(b"%x\r\n%b\r\n" % (len(event), event))
    taken, answer = bench.answers()
    assert (taken.status, taken.message) == (202, None)
    assert answer.request is taken.request
    assert (answer.kind, answer.message["result"]) == ("sse", {"n": 1})


@given(sizes=PIECES, back=PIECES)
def test_lines(sizes, back):
    bench = Bench("lines", **{WHO: "files|a"})
    lines = [message("initialize", 1), message("notifications/initialized"), message("tools/call", 7, "c1")]
    fed(bench.tap.sent, b"".join(line + b"\n" for line in lines), sizes)
    assert [request.method for request in bench.requests()] == [
        "initialize", "notifications/initialized", "tools/call",
    ]  # fmt: skip
    assert {request.key for request in bench.requests()} == {"files|a"}
    fed(
        bench.tap.took,
        b"noise\n" + message("notifications/x") + b"\n" + RESULT.replace(b"7", b'"7"', 1) + b"\n",
        back,
    )
    answered = [answer for answer in bench.answers() if answer.message is not None and not answer.open]
    assert [answer.request.id for answer in answered] == [7]
    assert len(bench.heard()) == 1


def test_a_last_line_without_an_end_is_an_answer_only_if_nothing_follows():
    bench = Bench("lines")
    bench.tap.sent(message("tools/call", 7, "c1") + b"\n")
    bench.tap.took(RESULT)
    (answer,) = bench.answers()
    assert answer.open
    bench.tap.took(b"\n")
    assert [each.open for each in bench.answers()] == [True, False]


def frame(payload: bytes, code: int = 1, mask: bytes = b"", *, last: bool = True) -> bytes:
    first = bytes([code | (0x80 if last else 0)])
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    return first + bytes([length[0] | (0x80 if mask else 0)]) + length[1:] + mask + unmasked(payload, mask)


@given(sizes=PIECES, back=PIECES, mask=st.binary(min_size=4, max_size=4), pad=st.integers(0, 300))
def test_a_websocket(sizes, back, mask, pad):
    bench = Bench()
    upgrade = b"GET /mcp HTTP/1.1\r\nupgrade: websocket\r\n" + f"{WHO}: files|a\r\n\r\n".encode()
    call = message("tools/call", 7, "c1", pad="x" * pad)
    fed(
        bench.tap.sent,
        upgrade + frame(call, mask=mask) + frame(b"", 9, mask) + frame(message("ping", 8), mask=mask),
        sizes,
    )
    assert [request.verb for request in bench.requests()] == ["GET", "FRAME", "CONTROL", "FRAME"]
    request = bench.requests()[1]
    assert (request.method, request.call, request.key) == ("tools/call", "c1", "files|a")
    parts = frame(RESULT[:10], last=False) + frame(b"", 9) + frame(RESULT[10:], 0)
    fed(bench.tap.took, b"HTTP/1.1 101 Switching\r\n\r\n" + parts, back)
    assert bench.answers()[-1].request is request


@pytest.mark.parametrize("kind", ["http", "lines", "ws"])
def test_whose_a_torn_message_is(kind):
    bench = Bench("lines" if kind == "lines" else "http")
    body = message("tools/call", 7, "c1", name="echo", arguments={"x": "y" * 50})
    data = {"http": post(body), "lines": body, "ws": frame(body, mask=b"abcd")}[kind]
    if kind == "ws":
        bench.tap.sent(b"GET /mcp HTTP/1.1\r\nupgrade: websocket\r\n\r\n")
    bench.tap.sent(data[: len(data) - 1])
    bench.tap.ended("client")
    request = bench.requests()[-1]
    assert (request.call, request.whole) == ("c1", -1)


def test_a_torn_head_belongs_to_whose_task_wrote_it():
    bench = Bench()
    bench.wires.whose = lambda: "c9"
    bench.tap.sent(post(message("tools/call", 7, "c9"))[:20])
    bench.tap.ended("network")
    assert bench.requests()[0].call == "c9"


@given(st.lists(st.binary(max_size=200), max_size=4), PIECES)
def test_frames_are_put_together(payloads, sizes):
    frames, found = Frames(), []
    data = b"".join(frame(payload, 2, b"mask") for payload in payloads)
    fed(lambda piece: found.extend(frames.feed(piece)), data, sizes)
    assert [payload for _, payload, _ in found] == payloads


@given(st.binary(max_size=300), PIECES)
def test_no_bytes_are_too_odd(data, sizes):
    for kind in ("http", "lines"):
        bench = Bench(kind)
        bench.tap.sent(
            post(message("tools/call", 7, "c1")) if kind == "http" else message("tools/call", 7, "c1") + b"\n"
        )
        fed(bench.tap.took, data, sizes)
        bench.tap.ended("server")
    list(Events().feed(data))


def test_a_link_says_whose_it_is():
    bench = Bench("lines", **{WHO: "files|a", PLAN: "p"})
    (linked,) = of(bench.ground.facts, Linked)
    assert (linked.key, linked.plan) == ("files|a", "p")
