"""The reader of plain answers: what it takes, h11 reads the same; what is odd it leaves alone."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.transports._plain import Plain, read_plain

USUAL = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def by_h11(data: bytes) -> tuple[Plain | None, bool]:
    """What h11 makes of it as the answer to a POST, and whether the connection can be used again."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("host", "h"), ("content-length", "0")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(data)
    head, body = None, b""
    try:
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return None, False
    except h11.RemoteProtocolError:
        return None, False
    assert head is not None
    reusable = parser.trailing_data == (b"", False) and parser.their_state is h11.DONE
    return Plain(head.status_code, list(head.headers), body), reusable


def test_the_usual_answer_is_read_at_one_glance():
    plain = read_plain(USUAL)
    assert plain == (200, [(b"content-type", b"application/json"), (b"content-length", b"2")], b"{}")


@pytest.mark.parametrize(
    "data",
    [
        USUAL[:-1],
        USUAL + b"x",
        USUAL.replace(b"HTTP/1.1", b"HTTP/1.0"),
        USUAL.replace(b"200 OK", b"100 Continue"),
        USUAL.replace(b"200 OK", b"204 No Content"),
        USUAL.replace(b"content-length: 2", b"content-length: 2\r\ncontent-length: 2"),
        USUAL.replace(b"content-length: 2", b"content-length: +2"),
        USUAL.replace(b"content-length: 2", b"x: y"),
        USUAL.replace(b"content-length: 2", b"content-length: 2\r\nconnection: close"),
        USUAL.replace(b"content-length: 2", b"content-length: 2\r\ntransfer-encoding: chunked"),
        USUAL.replace(b"Content-Type:", b"Content-Type :"),
        USUAL.replace(b"application/json", b"application/json\r\n folded"),
        USUAL.replace(b"application/json", b"a\x00b"),
        USUAL.replace(b"\r\n", b"\n"),
        b"",
    ],
)
def test_what_is_odd_is_left_to_h11(data):
    assert read_plain(data) is None


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


@given(
    st.sampled_from(
        [b"HTTP/1.1 200 OK", b"HTTP/1.1 404 ", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 304 x"]
    ),
    st.lists(st.tuples(NAMES, st.sampled_from([b":", b": ", b" :", b""]), VALUES, ENDS), max_size=5),
    st.sampled_from([b"\r\n", b"\n"]),
    st.binary(max_size=4),
)
def test_what_it_takes_h11_reads_the_same(status, fields, end, body):
    data = status + b"\r\n" + b"".join(b"".join(field) for field in fields) + end + body
    plain = read_plain(data)
    if plain is not None:
        assert by_h11(data) == (plain, True)


@given(
    st.binary(max_size=8),
    st.lists(st.tuples(st.sampled_from([b"a", b"B-c"]), st.sampled_from([b"1", b" x y "]))),
)
def test_a_plain_answer_is_taken(body, fields):
    lines = b"".join(b"%b:%b\r\n" % field for field in fields)
    data = b"HTTP/1.1 500 Oh\r\n%bcontent-length: %d\r\n\r\n%b" % (lines, len(body), body)
    assert by_h11(data) == (read_plain(data), True)
