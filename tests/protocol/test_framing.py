"""Server-sent events and lines: any split gives the same, in linear work."""

import itertools
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from afpool.protocol import EventTooLarge, LineSplitter, LineTooLong, SseEvent, SseParser
from afpool.protocol._pieces import Pieces

FIELDS = [b"data:", b"data: ", b"data", b"id: ", b"event: ", b"retry: ", b":", b"message"]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n"]
ODD = [b"x", b"12", b" ", b"\0", b"\xff", b"\xef", b"\xef\xbb\xbf"]
SSE_LINES = st.tuples(
    st.sampled_from([*FIELDS, *ODD, b""]), st.sampled_from([*ODD, b""]), st.sampled_from(ENDS)
)
# Whole lines, so that most texts hold events, behind whatever a stream may begin with.
SSE_TEXTS = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef", b"\n"]),
    st.lists(SSE_LINES.map(b"".join), min_size=1, max_size=30).map(b"".join),
).map(b"".join)


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    bounds = [0, *places, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


def sse(chunks, limit=1000):
    parser = SseParser(limit)
    found = []
    for chunk in chunks:
        try:
            found += parser.feed(chunk)
        except EventTooLarge as error:
            return [*found, *error.events, "too large"]
    return [*found, parser.last_event_id, parser.retry, parser.comments]


@given(SSE_TEXTS, st.lists(st.integers(0, 500)), st.sampled_from([8, 1000]))
@example(b"data:\r\n", [], 1000)
@example(b"\xef\xbb\xbfdata:\n\n", [], 1000)
@example(b"id: a\0b\n\n", [], 1000)
@settings(max_examples=300)
def test_any_split_gives_the_same_events(data, cuts, limit):
    whole = sse([data], limit)
    assert sse(split_at(data, cuts), limit) == whole
    assert sse([data[i : i + 1] for i in range(len(data))], limit) == whole


def reference(data: bytes):
    """The event stream interpretation of the HTML standard, written for clarity over the whole text."""
    text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, block = [], []
    for line in text.split(b"\n")[:-1]:
        if line:
            block.append(line)
            continue
        lines, name, ident, retry, seen = [], b"", None, None, False
        for field, _, value in (entry.partition(b":") for entry in block):
            bare = value.removeprefix(b" ")
            if field == b"data":
                lines.append(bare)
            elif field == b"event":
                name = bare
            elif field == b"id" and b"\0" not in bare:
                ident = bare.decode("utf-8", "replace")
            elif field == b"retry" and bare.isdigit() and len(bare) < 10:
                retry = int(bare)
            else:
                continue
            seen = True
        if seen:
            events.append(
                SseEvent(name.decode("utf-8", "replace") or "message", b"\n".join(lines), ident, retry)
            )
        block = []
    return events


@given(SSE_TEXTS)
@example(b"\xef\xbb\xbfdata: a\r\ndata:b\r\n\r\n")
@example(b"id: a\0b\ndata: a\n\n")
@settings(max_examples=300)
def test_events_are_those_of_the_standard(data):
    assert SseParser(10_000).feed(data) == reference(data)


def test_an_answer_a_priming_event_and_a_comment():
    parser = SseParser(1000)
    assert parser.feed(b": ping\n\nid: 7\nretry: 500\ndata:\n\n") == [SseEvent("message", b"", "7", 500)]
    assert parser.feed(b"id: 8\n\n") == [SseEvent("message", b"", "8", None)]
    assert parser.feed(b'event: message\ndata: {"a":\ndata: 1}\n\n') == [
        SseEvent("message", b'{"a":\n1}', None, None)
    ]
    assert (parser.last_event_id, parser.retry, parser.comments) == ("8", 500, 1)
    assert parser.feed(b"id\n\ndata: x") == [SseEvent("message", b"", "", None)]
    assert parser.last_event_id == ""


@pytest.mark.parametrize(
    "data", [b"data: " + b"x" * 20, b"data: 123\n" * 3, b":" + b"c" * 30 + b"\n", b"x" * 21]
)
def test_over_the_cap_is_an_error_that_keeps_what_was_complete(data):
    parser = SseParser(20)
    with pytest.raises(EventTooLarge) as caught:
        parser.feed(b"data: ok\n\n" + data)
    assert caught.value.limit == 20
    assert caught.value.events == [SseEvent("message", b"ok", None, None)]
    assert "xxx" not in str(caught.value)


def test_the_cap_is_for_one_event_and_not_for_the_stream():
    parser = SseParser(20)
    assert len(parser.feed(b"data: 0123456789abcd\n\n" * 50 + b": 0123456789\n" * 50)) == 50


LINE_PARTS = st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"{}", b"0123456789"])


def lines(chunks, limit=12):
    splitter = LineSplitter(limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return found + splitter.at_eof()


@given(st.lists(LINE_PARTS, max_size=40).map(b"".join), st.lists(st.integers(0, 500)))
def test_any_split_gives_the_same_lines(data, cuts):
    expected = []
    for line in data.split(b"\n"):
        if len(line) > 12:
            expected.append(LineTooLong(12, line[:12]))
        elif line.removesuffix(b"\r"):
            expected.append(line.removesuffix(b"\r"))
    assert lines([data]) == expected
    assert lines(split_at(data, cuts)) == expected
    assert lines([data[i : i + 1] for i in range(len(data))]) == expected


def test_a_line_that_is_too_long_is_reported_at_once_and_the_stream_survives():
    splitter = LineSplitter(10)
    assert splitter.feed(b"x" * 11) == [LineTooLong(10, b"x" * 10)]
    assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"y\nok\n") == [b"ok"]
    assert splitter.feed(b"x" * 11) == [LineTooLong(10, b"x" * 10)]
    assert splitter.at_eof() == []
    assert splitter.feed(b"ok\nrest") == [b"ok"]
    assert splitter.at_eof() == [b"rest"]
    assert splitter.at_eof() == []


def test_the_head_of_a_line_that_is_too_long_is_its_beginning_and_not_shown():
    data = bytes(range(32, 127)) * 10
    for size in (1, 100, 300, 2000):
        (found,) = lines([data[i : i + size] for i in range(0, len(data), size)], limit=500)
        assert found == LineTooLong(500, data[:256])
    assert "ABC" not in repr(found)


class Counted(bytes):
    """Bytes that count how many of them are copied or looked at."""

    work = 0

    def _count(self, result):
        Counted.work += len(self)
        return result

    def split(self, *a):
        return [Counted(part) for part in self._count(bytes.split(self, *a))]

    def replace(self, *a):
        return Counted(self._count(bytes.replace(self, *a)))

    def partition(self, *a):
        return tuple(Counted(part) for part in self._count(bytes.partition(self, *a)))

    def find(self, *a):
        return self._count(bytes.find(self, *a))

    def index(self, *a):
        return self._count(bytes.index(self, *a))

    def splitlines(self, *a):
        return [Counted(part) for part in self._count(bytes.splitlines(self, *a))]

    def __contains__(self, other):
        return self._count(bytes.__contains__(self, other))

    def __getitem__(self, key):
        part = bytes.__getitem__(self, key)
        if isinstance(key, slice):
            Counted.work += len(part)
            return Counted(part)
        return part

    def __add__(self, other):
        Counted.work += len(self) + len(other)
        return Counted(bytes.__add__(self, other))

    def __radd__(self, other):
        Counted.work += len(self) + len(other)
        return Counted(bytes(other) + bytes(self))


@pytest.mark.parametrize("make", [lambda: SseParser(1 << 30), lambda: LineSplitter(1 << 30)])
@pytest.mark.parametrize("unit", [b"\n", b"\r\n", b"data: x\n", b"data: x\r\n\r\n", b"data", b":"])
def test_many_lines_in_one_chunk_are_linear_work(make, unit):
    def work(copies):
        Counted.work = 0
        make().feed(Counted(unit * copies))
        return Counted.work

    assert work(4000) <= 2 * work(2000) + 1000


@pytest.mark.parametrize("make", [lambda: SseParser(1 << 30), lambda: LineSplitter(1 << 30)])
def test_a_long_line_in_many_chunks_is_not_copied_again_for_each(make):
    parser = make()
    parser.feed(b"data: ")
    parser.feed(b"x" * 1_000_000)
    copied = 0
    tracemalloc.start()
    try:
        for _ in range(200):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            parser.feed(b"xy")
            copied += tracemalloc.get_traced_memory()[1] - before > 500_000
    finally:
        tracemalloc.stop()
    # A buffer that grows by a share of its size may move a few times in so many chunks, not each time.
    assert copied <= 3


@pytest.mark.parametrize("cut", [1, 1000, 64 * 1024, 300_000])
def test_an_unfinished_line_lies_in_blocks_that_stop_growing(cut):
    """One buffer is copied as a whole when it grows and something lies behind it, such as another line."""
    pieces = Pieces()
    data = bytes(itertools.islice(itertools.cycle(range(256)), 700_000 if cut > 1 else 70_000))
    for start in range(0, len(data), cut):
        pieces.add(data[start : start + cut])
        assert pieces.size == min(len(data), start + cut)
    assert max(map(len, pieces._blocks)) < 64 * 1024 + cut
    assert pieces.head(256) == data[:256]
    assert pieces.take() == data
    assert (pieces.size, pieces.take(), pieces.head(8)) == (0, b"", b"")
