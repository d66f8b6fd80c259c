"""The reader of plain answers: what it takes, h11 reads the same; what is odd it leaves alone."""

from __future__ import annotations

from typing import Any

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afpool.transports import _connection
from afpool.transports._connection import BadHttp, HttpConnection, Truncated
from afpool.transports._plain import read_head
from afpool.transports._request import HttpRequest
from afpool.transports._wire import WireClosed

USUAL = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = USUAL.replace(b"content-length: 2", b"Transfer-Encoding: chunked")[:-2]
EVENTS = CHUNKED + b"3\r\na: \r\n5\r\nb\r\n\r\n\r\n0\r\n\r\n"


class Heard:
    """A wire from which so many pieces come."""

    closed = False

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def receive_nowait(self) -> bytes | None:
        return self.pieces.pop(0) if self.pieces else None

    def alive(self) -> bool:
        return not self.pieces


class Told:
    """A sink that has its answer after `enough` bytes of a body."""

    def __init__(self, enough: int | None) -> None:
        self.enough = enough
        self.heads: list[Any] = []
        self.body = b""

    def head(self, status: int, headers: Any, /) -> None:
        self.heads.append((status, headers))

    def data(self, chunk: bytes, /) -> bool:
        assert chunk
        self.body += chunk
        return self.enough is not None and len(self.body) >= self.enough


def read(pieces: list[bytes], enough: int | None) -> tuple[Any, ...]:
    """What a connection makes of an answer that comes in these pieces, and whether it can be used again."""
    pieces = [piece for piece in pieces if piece]
    wire: Any = Heard(pieces)
    connection = HttpConnection(wire, 60.0, 0.0)
    connection.encode(HttpRequest(b"POST", b"/", [], b""), b"h")
    sink = Told(enough)
    how: Any = "open"
    try:
        while pieces:
            if connection.feed(pieces.pop(0), sink):
                how = "complete"
                break
        else:
            connection.feed(b"", sink)
    except (BadHttp, Truncated, WireClosed) as error:
        how = type(error)
    if how != "complete":
        return how, sink.heads, sink.body
    again = connection.rest(0.0) and connection.look(0.5)
    return how, sink.heads, sink.body if enough is None else sink.body[:enough], again


def same_by_h11(pieces: list[bytes], enough: int | None) -> tuple[Any, ...]:
    """Hold that h11 alone reads the same; gives what both made of it."""
    ours = read(list(pieces), enough)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_connection, "read_head", lambda _: None)
        assert read(list(pieces), enough) == ours
    return ours


def counted_parsers(patch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    whole = h11.Connection

    def counting(*args: Any, **options: Any) -> h11.Connection:
        made.append(1)
        return whole(*args, **options)

    patch.setattr(_connection.h11, "Connection", counting)
    return made


NOTHING = USUAL[:-2].replace(b": 2", b": 0")


@pytest.mark.parametrize(("data", "content"), [(USUAL, b"{}"), (EVENTS, b"a: b\r\n\r\n"), (NOTHING, b"")])
@pytest.mark.parametrize("behind_head", [None, 0, 4, 6, 7, 8])
def test_the_usual_answer_is_read_without_h11(monkeypatch, data, content, behind_head):
    made = counted_parsers(monkeypatch)
    at = len(data) if behind_head is None else data.index(b"\r\n\r\n") + 4 + behind_head
    how, heads, body, again = read([data[:at], data[at:]], None)
    assert (how, body, again) == ("complete", content, True)
    ((status, headers),) = heads
    assert status == 200
    assert headers[0] == (b"content-type", b"application/json")
    assert made == []


def test_a_head_in_two_pieces_is_left_to_h11(monkeypatch):
    made = counted_parsers(monkeypatch)
    assert read([USUAL[:40], USUAL[40:]], None)[0] == "complete"
    assert made == [1]


@pytest.mark.parametrize(
    "data",
    [
        USUAL.replace(b"HTTP/1.1", b"HTTP/1.0"),
        USUAL.replace(b"200 OK", b"100 Continue"),
        USUAL.replace(b"200 OK", b"204 No Content"),
        USUAL.replace(b"content-length: 2", b"content-length: 2\r\ncontent-length: 2"),
        USUAL.replace(b"content-length: 2", b"content-length: +2"),
        USUAL.replace(b"content-length: 2", b"x: y"),
        USUAL.replace(b"content-length: 2", b"content-length: 2\r\nconnection: close"),
        USUAL.replace(b"content-length: 2", b"content-length: 2\r\nupgrade: h2c"),
        USUAL.replace(b"content-length: 2", b"content-length: 2\r\ntransfer-encoding: chunked"),
        USUAL.replace(b"content-length: 2", b"transfer-encoding: gzip, chunked"),
        CHUNKED.replace(b"chunked", b"chunked\r\ntransfer-encoding: chunked"),
        CHUNKED.replace(b"chunked", b"chunked\r\ntrailer: x"),
        USUAL.replace(b"Content-Type:", b"Content-Type :"),
        USUAL.replace(b"application/json", b"application/json\r\n folded"),
        USUAL.replace(b"application/json", b"a\x00b"),
        USUAL.replace(b"\r\n", b"\n"),
        USUAL[:40],
        b"",
    ],
)
def test_a_head_that_is_odd_is_left_to_h11(data):
    assert read_head(data) is None


@pytest.mark.parametrize("name", [b"keep-alive", b"Keep-Alive"])
def test_a_connection_that_is_kept_is_nothing_odd(name):
    assert read_head(USUAL.replace(b"content-length", b"Connection: %b\r\ncontent-length" % name)) is not None


NAMES = st.sampled_from(
    [
        b"content-length",
        b"Content-Length",
        b"content-type",
        b"X-Any",
        b"connection",
        b"transfer-encoding",
        b"b d",
        b"",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [b"0", b"2", b"02", b" 2 ", b"2, 2", b"close", b"chunked", b"a\tb", b"\xff", b"a\rb", b"a\x7fb"]
    ),
    st.binary(max_size=6),
)
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"])


PIECES = st.sampled_from(
    [
        b"3\r\nabc\r\n", b"3\r\nabc\r\n", b"A\r\n0123456789\r\n", b"003\r\nabc\r\n", b"0\r\n\r\n",
        b"0\r\n\r\n", b"3;x=y\r\nabc\r\n", b"3 \r\nabc\r\n", b"0\r\nt: 1\r\n\r\n", b"000000000003\r\nabc\r\n",
        b"3\nabc\n", b"3\r\nabcd\r\n", b"g\r\n", b"\r\n", b"HTTP/1.1 200 OK\r\n",
    ]
)  # fmt: skip


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@given(
    st.sampled_from(
        [b"HTTP/1.1 200 OK", b"HTTP/1.1 404 ", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 304 x"]
    ),
    st.lists(st.tuples(NAMES, st.sampled_from([b":", b": ", b" :", b""]), VALUES, ENDS), max_size=5),
    st.sampled_from([b"\r\n", b"\n"]),
    st.binary(max_size=4),
    st.lists(st.integers(0, 200), max_size=3),
)
def test_what_it_takes_h11_reads_the_same(status, fields, end, body, places):
    data = status + b"\r\n" + b"".join(b"".join(field) for field in fields) + end + body
    same_by_h11(cut(data, places), None)


@given(
    st.lists(PIECES, max_size=6),
    st.lists(st.integers(0, 250), max_size=6),
    st.none() | st.integers(1, 12),
)
@example([b"3\r\nabc\r\n", b"0\r\n\r\n"], [len(CHUNKED) + 8, len(CHUNKED) + 9], 3)
def test_chunks_are_read_as_h11_reads_them(pieces, places, enough):
    same_by_h11(cut(CHUNKED + b"".join(pieces), places), enough)


@given(
    st.binary(max_size=20),
    st.integers(-2, 3),
    st.lists(st.integers(0, 120), max_size=6),
    st.none() | st.integers(1, 12),
)
def test_a_length_is_kept_to_as_h11_keeps_to_it(body, more, places, enough):
    data = b"HTTP/1.1 500 Oh\r\ncontent-length: %d\r\n\r\n%b" % (max(len(body) + more, 0), body)
    same_by_h11(cut(data, places), enough)


@pytest.mark.parametrize("cut", [len(USUAL), len(USUAL) - 2, len(USUAL) - 1])
def test_more_than_the_length_says_costs_the_connection(cut):
    data = USUAL + b"HTTP/1.1 200 OK\r\n"
    pieces = [data[:cut], data[cut:]] if cut < len(USUAL) else [data]
    how, _, body, again = same_by_h11(pieces, None)
    assert (how, body, again) == ("complete", b"{}", False)


@pytest.mark.parametrize(
    "tail", [b"0\r\n\r\n", b"\r\n0\r\n\r\n", b"0\r\nt: 1\r\n\r\n", b"0\r\n\r\nx", b"?\r\n", b""]
)
@pytest.mark.parametrize("end", [b"3\r\nabc", b"3\r\nabc\r\n"])
def test_a_tail_that_comes_later_is_read_as_h11_reads_it(end, tail):
    same_by_h11([CHUNKED + end, tail], 3)


def test_many_pieces_in_one_read_are_taken_fewer_at_a_time(monkeypatch):
    for patched in (False, True):
        if patched:
            monkeypatch.setattr(_connection, "read_head", lambda _: None)
        connection = HttpConnection(Heard([]), 60.0, 0.0)  # type: ignore[arg-type]
        connection.encode(HttpRequest(b"POST", b"/", [], b""), b"h")
        assert not connection.feed(CHUNKED + b"1\r\na\r\n" * 33, Told(None))
        assert connection.read_size == _connection.READ_EVENTS
