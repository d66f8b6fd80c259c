"""Whatever a peer sends: what reads it gives a value or one of its own errors, however the bytes are cut.

`AFPOOL_FUZZ=50` makes every test here run fifty times as many examples.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from afpool import ProtocolError
from afpool._base.canonical import ContentError
from afpool._base.definition import build_definition
from afpool._base.model import ToolResult
from afpool.protocol import (
    Era,
    EventTooLarge,
    LineSplitter,
    MalformedMessage,
    Message,
    SseParser,
    body_kind,
    classify_http,
    classify_stream,
    decode_error,
    decode_json,
    decode_messages,
    encode_error,
    encode_result,
    header_value,
    invalid_param_annotations,
    is_complete,
    param_header_map,
    param_headers,
    parse_challenge,
    parse_challenges,
    parse_retry_after,
    read_call_result,
    read_discovered,
    read_initialized,
    read_list_page,
    read_supported,
    same_origin_redirect,
)
from afpool.transports import origin_of
from afpool.transports._connection import BadHttp, HttpConnection, Truncated
from afpool.transports._request import HttpRequest
from afpool.transports._wire import WireClosed

MORE = int(os.environ.get("AFPOOL_FUZZ", "1"))


def fuzz(examples: int) -> Any:
    return settings(max_examples=examples * MORE, suppress_health_check=list(HealthCheck))


# ---------------------------------------------------------------------------- what is fed

ODD = [
    b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"NaN", b"-Infinity", b"1e999", b"9" * 5000,
    b'"\\ud800"', b'"\\uDC00\\ud800"', b"[" * 3000, b'{"a":' * 3000, b"null", b"true", b"1.0", b'"', b"\\",
    b"{}", b"[]", b",", b":", b'"id":', b'"result":', b'"error":', b'"method":', b'"params":', b"\n", b"\r",
]  # fmt: skip

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([2**63, -(2**64), 10**400, "\ud800", "7", "\udfff" * 3, "complete", "input_required",
                       "2025-11-25", "2026-07-28", "public", 1e300])
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "jsonrpc", "id", "method", "params", "result", "error", "code", "message", "data", "tools", "name",
        "inputSchema", "nextCursor", "ttlMs", "cacheScope", "resultType", "content", "isError", "supported",
        "supportedVersions", "protocolVersion", "capabilities", "serverInfo", "instructions", "_meta",
        "io.modelcontextprotocol/serverInfo", "requestState", "inputRequests", "progress", "progressToken",
        "total", "type", "text", "properties", "x-mcp-header", "\ud800",
    ]
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | LEAVES,
        "id": LEAVES | VALUES,
        "method": st.sampled_from(["ping", "notifications/progress", "x"]) | LEAVES,
        "params": VALUES,
        "result": VALUES,
        "error": st.fixed_dictionaries({}, optional={"code": LEAVES, "message": LEAVES, "data": VALUES})
        | VALUES,
    },
)


def written(value: Any) -> bytes:
    return json.dumps(value).encode()  # NaN, surrogates and all


@st.composite
def mutated(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were once in order: cut, with something put in or taken out, doubled."""
    data = draw(texts)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 8)))
        data = data[:at] + draw(st.sampled_from(ODD) | st.binary(max_size=4)) + data[to:]
    return data


JSON_TEXTS = st.binary(max_size=60) | mutated(
    ENVELOPES.map(written) | st.lists(ENVELOPES, max_size=3).map(written) | VALUES.map(written)
)

READERS = [
    read_call_result, read_discovered, read_initialized, read_list_page, decode_json,
    lambda raw: read_list_page(raw, Era.HANDSHAKE),
]  # fmt: skip


# ---------------------------------------------------------------------------- messages


@given(JSON_TEXTS)
@example(b'{"id":"\\ud800","method":7}')
@example(b'{"id":"\\ud800","method":"ping"}')
@example(b'{"id":[[]],"method":"ping"}')
@example(b'{"id":1,"result":NaN,"method":null}')
@fuzz(250)
def test_messages_of_any_kind(data: bytes) -> None:
    unreadable: list[None] = []
    try:
        messages = decode_messages(data, lambda: unreadable.append(None))
    except MalformedMessage as error:
        short(error)
        return
    assert messages
    for message in messages:
        look_at(message)


def short(error: Exception) -> None:
    """An error says what was wrong and quotes nothing of it."""
    assert 0 < len(str(error)) < 200


def look_at(message: Message) -> None:
    kinds = [message.is_response, message.is_request, message.is_notification]
    assert sum(kinds) <= 1
    if message.is_request:
        encode_result(message.id)  # whatever may be answered can be answered
        encode_error(message.id, -1, "no")
    rid = message.response_id
    assert rid is None or type(rid) is int
    if message.error:
        body = decode_error(message.error)
        body.message.encode()
        read_supported(body.data)
    if message.is_response:
        for outcome in (
            classify_stream(message),
            classify_http(200, body_kind(b"application/json"), message, had_session=True, era=Era.HANDSHAKE),
        ):
            if outcome.error is not None:
                str(outcome.to_error()).encode()
    for reader in READERS:
        for raw in (message.params, message.result):
            with contextlib.suppress(MalformedMessage):
                reader(raw)
    if message.result:
        is_complete(message.result)
        look_at_result(ToolResult(bytes(message.result), "c"))


def look_at_result(result: ToolResult) -> None:
    try:
        _ = (result.code, result.text, result.content, result.structured)
    except ProtocolError as error:
        short(error)


@given(mutated(VALUES.map(written)))
@example(b'{"content":[{"type":"text","text":"\\ud83d"}]}')
@fuzz(150)
def test_results_and_definitions_of_any_kind(raw: bytes) -> None:
    look_at_result(ToolResult(raw, "c"))
    try:
        definition = build_definition(raw)
    except ContentError:
        return
    schema = definition.input_schema
    if invalid_param_annotations(schema) is None:
        param_headers(param_header_map(schema), {"a": 1})


@given(VALUES, st.sampled_from(["\ud800", "\udc00 tail", "NaN", "Infinity"]))
@fuzz(100)
def test_an_odd_member_changes_nothing_of_the_others(value: Any, odd: str) -> None:
    """The slow way of cutting a message gives the same bytes of every member as the fast one."""
    for beside in (written(odd), b"NaN", b"-Infinity"):
        data = b'{"params":%b,"id":7,"x":[%b],"result":%b}' % (beside, beside, written(value))
        (message,) = decode_messages(data)
        assert bytes(message.result) == written(value)
        assert bytes(message.params) == beside
        assert message.id == 7


def test_one_message_of_a_batch_spoils_only_itself() -> None:
    count: list[None] = []
    data = b'[{"id":1,"result":{}},7,{"id":2},{"id":3,"method":[]},{"id":4,"result":{}}]'
    found = decode_messages(data, lambda: count.append(None))
    assert [message.id for message in found] == [1, 4]
    assert len(count) == 3
    with pytest.raises(MalformedMessage, match="more than 1024"):
        decode_messages(b"[" + b",".join([b'{"id":1,"result":{}}'] * 1025) + b"]")


# ---------------------------------------------------------------------------- chunks


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({each % (len(data) + 1) for each in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


FRAMES = mutated(
    st.lists(
        st.sampled_from(
            [
                b"data: {}",
                b"data:",
                b"data",
                b"id: 1",
                b"id",
                b"event: x",
                b"retry: 5",
                b"retry: x",
                b":c",
                b"",
            ]
        )
        | st.binary(max_size=6),
        max_size=12,
    ).map(
        lambda lines: b"".join(
            line + end for line, end in zip(lines, [b"\n", b"\r", b"\r\n"] * 9, strict=False)
        )
    )
)
CUTS = st.lists(st.integers(0, 300), max_size=12)


def events_of(chunks: list[bytes], limit: int) -> list[Any]:
    parser = SseParser(limit)
    found: list[Any] = []
    for chunk in chunks:
        try:
            found += parser.feed(chunk)
        except EventTooLarge as error:
            return [*found, *error.events, "too large"]
    return [*found, parser.comments, parser.last_event_id, parser.retry]


@given(FRAMES, CUTS, st.sampled_from([6, 40, 10_000]))
@fuzz(300)
def test_streams_cut_anywhere(data: bytes, cuts: list[int], limit: int) -> None:
    whole = events_of([data], limit)
    assert events_of(cut(data, cuts), limit) == whole
    assert events_of([bytes([byte]) for byte in data], limit) == whole
    splitter, pieces = LineSplitter(limit), LineSplitter(limit)
    lines = [*splitter.feed(data), *splitter.at_eof()]
    assert [line for chunk in cut(data, cuts) for line in pieces.feed(chunk)] + pieces.at_eof() == lines


# ---------------------------------------------------------------------------- header fields

FIELD_PARTS = st.sampled_from(
    [
        b"Bearer", b"DPoP", b" ", b",", b"=", b'"', b"\\", b"realm", b"scope=", b'error="x"', b"====", b"\t",
        b"http://h:80/a", b"//", b"/", b"?", b"#", b"@", b"..", b"%", b"[", b"]", b":", b"Mon, 30 Nov 2026",
        b"00:00:00 GMT", b"9999999999", b"-1", b"application/json", b";charset", b"text/event-stream",
        b"\xe9",
    ]
)  # fmt: skip
FIELDS = st.lists(FIELD_PARTS | st.binary(max_size=4), max_size=10).map(b"".join)


@given(FIELDS)
@example(b"Mon, 30 Nov 99999 00:00:00 GMT")
@example(b'Bearer realm="\\')
@fuzz(400)
def test_header_fields_of_any_kind(value: bytes) -> None:
    challenges = parse_challenges(value)
    assert parse_challenge(value) in [*challenges, None]
    wait = parse_retry_after(value, 1.7e9)
    assert wait is None or wait >= 0
    body_kind(value)
    url = same_origin_redirect("http://h/mcp", value)
    if url is not None:
        try:
            origin, target = origin_of(url)
        except ValueError:
            return  # what two readers of URLs do not agree on is not followed
        assert (origin.scheme, origin.host, origin.port) == ("http", "h", 80)
        assert not re.search(rb"[\s\0]", target)
    assert header_value(value.decode("latin-1")).isascii()


# ---------------------------------------------------------------------------- HTTP


class NoWire:
    closed = False


class Collected:
    def __init__(self) -> None:
        self.heads: list[Any] = []
        self.body = b""

    def head(self, status: int, headers: Any, /) -> None:
        self.heads.append((status, headers))

    def data(self, chunk: bytes, /) -> bool:
        self.body += chunk
        return False


def answer_of(chunks: list[bytes]) -> Any:
    connection = HttpConnection(NoWire(), 4.0, 0.0)  # type: ignore[arg-type] -- nothing is read or sent
    connection.encode(HttpRequest(b"POST", b"/", [], b"{}"), b"h")
    sink = Collected()
    try:
        for chunk in [*chunks, b""]:
            if connection.feed(chunk, sink):
                return sink.heads, sink.body
    except (BadHttp, Truncated, WireClosed) as error:
        short(error)
        return type(error)
    raise AssertionError("the end of the stream is an end")


HEAD_LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 100 Continue", b"HTTP/1.1 101 Up",
        b"HTTP/1.1 204 ",
        b"HTTP/2 200", b"HTTP/1.1 500", b"content-length: 2", b"Content-Length: 02", b"content-length: 2, 2",
        b"content-length: -1", b"content-length: " + b"9" * 5000, b"transfer-encoding: chunked",
        b"transfer-encoding: gzip", b"content-type: text/event-stream", b"connection: close",
        b"keep-alive: timeout=x",
        b"content-encoding: gzip", b" folded", b"x: \xff", b"x : 1", b": 1", b"x:", b"", b"mcp-session-id: a",
        b"2", b"{}", b"0", b"ffffffffffffffffffffff", b"2;ext=1",
    ]
)  # fmt: skip
ORDERLY = st.tuples(
    st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 202 Accepted\r\n", b"HTTP/1.1 404 x\r\n"]),
    st.lists(HEAD_LINES.map(lambda line: line + b"\r\n"), max_size=3).map(b"".join),
    st.sampled_from(
        [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"\r\n{}"]
    ),
).map(b"".join)
HEADS = mutated(st.lists(HEAD_LINES.map(lambda line: line + b"\r\n"), max_size=8).map(b"".join) | ORDERLY)


@given(HEADS, CUTS)
@example(b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", [3])
@fuzz(300)
def test_http_answers_of_any_kind_cut_anywhere(data: bytes, cuts: list[int]) -> None:
    whole = answer_of([data] if data else [])
    pieces = [piece for piece in cut(data, cuts) if piece]
    assume(pieces or not data)
    assert answer_of(pieces) == whole
    assert answer_of([bytes([byte]) for byte in data]) == whole
