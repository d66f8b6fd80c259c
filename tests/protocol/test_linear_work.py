"""Work that grows with what came and with nothing else, counted in steps of the interpreter, not in seconds.

Steps are lines that run (`sys.settrace`): the same bytes make the same number on every machine. What is done
inside one C call is not seen by it; `test_framing` counts copied bytes.
"""

from __future__ import annotations

import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from afpool._base.definition_table import DefinitionTable
from afpool.protocol import LineSplitter, PageGuard, SseParser, decode_messages, read_list_page
from afpool.transports._connection import HttpConnection
from afpool.transports._request import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable


def steps(work: Callable[[], object]) -> int:
    """How many lines of Python the work runs."""
    count = 0

    def trace(frame: Any, kind: str, argument: Any) -> Any:
        nonlocal count
        count += kind == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def byte_by_byte(data: bytes, make: Callable[[], Any]) -> Callable[[], None]:
    def work() -> None:
        parser = make()
        for at in range(len(data)):
            parser.feed(data[at : at + 1])

    return work


class Sink:
    def head(self, status: int, headers: Any, /) -> None:
        pass

    def data(self, chunk: bytes, /) -> bool:
        return False


class Http:
    """An answer in order, cut into pieces."""

    def __init__(self) -> None:
        self.connection = HttpConnection(None, 4.0, 0.0)  # type: ignore[arg-type] -- nothing is read or sent
        self.connection.encode(HttpRequest(b"POST", b"/", [], b"{}"), b"h")
        self.connection.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", Sink())

    def feed(self, data: bytes) -> None:
        self.connection.feed(data, Sink())


def tool(number: int) -> bytes:
    return b'{"name":"tool-%d","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}' % number


def interned(count: int) -> Callable[[], None]:
    def work() -> None:
        table = DefinitionTable()
        found = [table.intern(tool(number)) for number in range(count)]
        table.catalog(found)

    return work


def read_page(count: int) -> Callable[[], None]:
    data = b'{"id":1,"result":{"tools":[' + b",".join(tool(number) for number in range(count)) + b"]}}"

    def work() -> None:
        (message,) = decode_messages(data)
        read_list_page(message.result)

    return work


def walked(count: int) -> Callable[[], None]:
    def work() -> None:
        guard = PageGuard(count + 1)
        for number in range(count):
            guard.follow(read_list_page(b'{"tools":[],"nextCursor":"%d"}' % number))

    return work


WORKS: dict[str, Callable[[int], Callable[[], object]]] = {
    "a line, byte by byte": lambda n: byte_by_byte(b"x" * n, lambda: LineSplitter(1 << 30)),
    "an event, byte by byte": lambda n: byte_by_byte(b"data: " + b"x" * n, lambda: SseParser(1 << 30)),
    "events, byte by byte": lambda n: byte_by_byte(
        b"data: x\r\n\r\n" * (n // 10), lambda: SseParser(1 << 30)
    ),
    "comments": lambda n: lambda: SseParser(1 << 30).feed(b":\n" * n),
    "fields of one event": lambda n: lambda: SseParser(1 << 30).feed(b"data:x\n" * n),
    "a chunked body, byte by byte": lambda n: byte_by_byte(b"1\r\nx\r\n" * (n // 10), Http),
    "empty lines": lambda n: lambda: LineSplitter(1 << 30).feed(b"\n" * n),
    "batches": lambda n: (
        lambda: [decode_messages(b"[" + b'{"id":1,"result":1},' * 99 + b"7]") for _ in range(n // 99)]
    ),
    "tools of a page": read_page,
    "definitions": lambda n: interned(n // 10),
    "pages": lambda n: walked(n // 10),
}


@pytest.mark.parametrize("name", WORKS)
def test_twice_as_much_is_at_most_twice_the_work(name: str) -> None:
    make = WORKS[name]
    steps(make(200))  # what is built once and kept
    small, large = steps(make(1500)), steps(make(3000))
    assert large <= 2.1 * small + 200


@pytest.mark.parametrize("name", ["empty lines", "tools of a page"])
def test_what_carries_nothing_costs_no_step_of_its_own(name: str) -> None:
    steps(WORKS[name](200))
    assert steps(WORKS[name](20_000)) < 200


def test_one_odd_escape_makes_nothing_read_the_whole_of_a_large_answer() -> None:
    """Objects are built of what is asked for alone: masked copies are all that it may take."""
    rest = b",".join([b'{"a":[1,2,3],"b":"x"}'] * 20_000)
    data = b'{"id":1,"result":{"content":["\\ud800",' + rest + b"]}}"
    tracemalloc.start()
    try:
        (message,) = decode_messages(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bytes(message.result) == data[17:-1]
    assert peak < 6 * len(data)
