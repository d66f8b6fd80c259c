"""Every malformed thing that a server can send, in every place: one typed error for one request, or nothing.

The columns of `MESSAGES` are the ways an answer can come: as the body of an HTTP answer in the era of the
handshake, as an event of a stream, as a body in the stateless era, as a line. After each the same pool serves
the next call, and at the end another key has noticed nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import Seams
from afpool._base.gate import OpenGate
from afpool.client._stream_channel import StreamChannel
from afpool.client._trip import Rpc
from afpool.testing import Body, RawBytes, Result, Rule, Sse, echo_tool
from afpool.transports import memory_link_pair
from tests.pool.kit import ALICE, BOB, MemoryServer, World, memory_world, quiet, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from afpool import BoundTool, Pool

OK = "ok"  # an answer that is understood all the same
UNREAD = "protocol-error when read"  # a result that is kept as bytes and says so when it is looked at
PROTOCOL = "protocol-error answered"
SERVER = "server-error answered"
NONE = "server-failed in-doubt"  # an event that was dropped, and the end of its stream
LATE = "deadline-exceeded in-doubt"  # a line that was dropped
LARGE = "too-large answered"

WORD = b'"result":{"content":[{"type":"text","text":"in order"}]}'
ANSWER = b'{"jsonrpc":"2.0","id":@request-id@,' + WORD + b"}"
DEEP = b"[" * 100_000 + b"]" * 100_000


def result(text: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":@request-id@,"result":' + text + b"}"


def error(text: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":@request-id@,"error":' + text + b"}"


DROPPED = (PROTOCOL, NONE, PROTOCOL, LATE)
BROKEN = (PROTOCOL, NONE, PROTOCOL, PROTOCOL)
NOBODYS = (OK, OK, OK, LATE)
GOOD = (OK, OK, OK, OK)
LAZY = (UNREAD, UNREAD, UNREAD, UNREAD)
NO_OBJECT = (UNREAD, UNREAD, PROTOCOL, UNREAD)
ERROR = (SERVER, SERVER, SERVER, SERVER)
LATER = (OK, OK, PROTOCOL, OK)  # members that mean something in the stateless era only

MESSAGES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "a page": (b"<!doctype html><title>Welcome</title>", DROPPED),
    "nothing": (b"", (NONE, NONE, NONE, LATE)),
    "a word": (b"OK", DROPPED),
    "a string": (b'"OK"', DROPPED),
    "half an answer": (ANSWER[:-6], BROKEN),
    "two answers in one text": (ANSWER + b" " + ANSWER, BROKEN),
    "an empty object": (b"{}", DROPPED),
    "an array of numbers": (b"[1,2]", DROPPED),
    "an empty batch": (b"[]", DROPPED),
    "an id and nothing else": (b'{"jsonrpc":"2.0","id":@request-id@}', DROPPED),
    "no id": (b'{"jsonrpc":"2.0",' + WORD + b"}", NOBODYS),
    "id null": (b'{"jsonrpc":"2.0","id":null,' + WORD + b"}", NOBODYS),
    "an id that nobody used": (b'{"jsonrpc":"2.0","id":987654,' + WORD + b"}", NOBODYS),
    "the id as text": (b'{"jsonrpc":"2.0","id":"@request-id@",' + WORD + b"}", GOOD),
    "the id as a float": (b'{"jsonrpc":"2.0","id":@request-id@.0,' + WORD + b"}", GOOD),
    "the id as an array": (b'{"jsonrpc":"2.0","id":[@request-id@],' + WORD + b"}", NOBODYS),
    "no version": (b'{"id":@request-id@,' + WORD + b"}", GOOD),
    "another version": (b'{"jsonrpc":"1.0","id":@request-id@,' + WORD + b"}", GOOD),
    "a method beside the result": (b'{"id":@request-id@,"method":"x",' + WORD + b"}", DROPPED),
    "a method of another type": (b'{"id":@request-id@,"method":7,' + WORD + b"}", DROPPED),
    "error null beside a result": (b'{"id":@request-id@,"error":null,' + WORD + b"}", GOOD),
    "an error beside a result": (b'{"id":@request-id@,"error":{"code":-32000},' + WORD + b"}", ERROR),
    "an error that is text": (error(b'"broken"'), ERROR),
    "an error without a code": (error(b'{"message":"broken"}'), ERROR),
    "an error of odd types": (error(b'{"code":"x","message":[],"data":NaN}'), ERROR),
    "an error with a lone surrogate": (error(b'{"code":-32000,"message":"\\ud83d"}'), ERROR),
    "a result null": (result(b"null"), NO_OBJECT),
    "a result that is an array": (result(b"[]"), NO_OBJECT),
    "a result that is text": (result(b'"done"'), NO_OBJECT),
    "a result without content": (result(b"{}"), GOOD),
    "content that is no array": (result(b'{"content":7}'), GOOD),
    "content of odd blocks": (result(b'{"content":[7,null,{"type":7},{"text":[]}]}'), GOOD),
    "isError that is no boolean": (result(b'{"content":[],"isError":"yes"}'), GOOD),
    "NaN": (result(b'{"content":[],"structuredContent":{"n":NaN}}'), LAZY),
    "a number beyond a double": (result(b'{"content":[],"structuredContent":{"n":1e999}}'), LAZY),
    "an integer of 5000 digits": (result(b'{"content":[],"n":' + b"9" * 5000 + b"}"), LAZY),
    "a lone surrogate": (result(b'{"content":[{"type":"text","text":"\\ud83d"}]}'), GOOD),
    "not UTF-8": (result(b'{"content":[{"type":"text","text":"\xff"}]}'), BROKEN),
    "a surrogate in UTF-8": (result(b'{"content":[{"type":"text","text":"\xed\xa0\xbd"}]}'), BROKEN),
    "a key twice": (result(b'{"content":[],"content":[{"type":"text","text":"x"}]}'), GOOD),
    "nested 100,000 deep": (result(b'{"content":' + DEEP + b"}"), BROKEN),
    "a byte order mark": (b"\xef\xbb\xbf" + ANSWER, GOOD),
    "blanks around": (b" \t " + ANSWER + b" \t ", GOOD),
    "a NUL behind": (ANSWER + b"\0", BROKEN),
    "a batch with the answer": (b"[" + ANSWER + b"]", GOOD),
    "a batch with an answer and rubbish": (b'[7,{"id":[]},' + ANSWER + b",{}]", GOOD),
    "the answer twice in a batch": (b"[" + ANSWER + b"," + ANSWER + b"]", GOOD),
    "two thousand answers in a batch": (b"[" + b",".join([ANSWER] * 2000) + b"]", DROPPED),
    "a resultType that is not known": (result(b'{"content":[],"resultType":"later"}'), LATER),
    "a request for nothing": (result(b'{"resultType":"input_required","inputRequests":{}}'), GOOD),
    "a request for input that was not offered": (
        result(b'{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}'),
        (OK, OK, "input-required answered", OK),
    ),
    "a request for input of odd kinds": (
        result(b'{"resultType":"input_required","inputRequests":{"\\ud800":7,"b":[]},"requestState":7}'),
        LATER,
    ),
    "input requests that are none": (result(b'{"resultType":"input_required","inputRequests":7}'), LATER),
}


def as_event(data: bytes) -> Body:
    lines = data.replace(b"\r", b"\n").split(b"\n")
    return Body(b"".join(b"data: " + line + b"\n" for line in lines) + b"\n", "text/event-stream")


async def end_of(tool: BoundTool) -> str:
    """What becomes of a call, in the words of the tables."""
    try:
        answer = await tool.call({"n": 1}, identity=ALICE)
    except afpool.AfpoolError as failure:
        str(failure).encode()
        return f"{failure.code} {failure.delivery}"
    try:
        _ = (answer.text, answer.is_error)
    except afpool.ProtocolError as failure:
        return f"{failure.code} when read" if failure.delivery == "answered" else "unread"
    return OK


async def check(pool: Pool, on: Callable[[str, Any], None], rows: dict[str, tuple[Any, str]]) -> None:
    """Let the server answer one call by each row; the call behind it is in order every time."""
    tool = (await pool.tools(ALICE))["echo"]
    bobs = (await pool.tools(BOB))["echo"]
    wrong: dict[str, str] = {}
    for name, (action, expected) in rows.items():
        on("tools/call", action)
        with trio.fail_after(20):
            found = await end_of(tool)
            if found != expected:
                wrong[name] = f"{found}, not {expected}"
            answer = await tool.call({"n": 2}, identity=ALICE)
        assert answer.text == '{"n": 2}', name
    assert not wrong
    assert (await bobs.call({"n": 3}, identity=BOB)).text == '{"n": 3}'
    assert pool.records.failures == 0
    with trio.fail_after(20):
        while pool.settling:  # noqa: ASYNC110 -- lines that were dropped leave late callers
            await trio.sleep(0.05)
    quiet(pool)


def once(w: World) -> Callable[[str, Any], None]:
    def on(method: str, action: Any) -> None:
        w.server.on(method, action, times=1)

    return on


def once_in(server: MemoryServer) -> Callable[[str, Any], None]:
    def on(method: str, action: Any) -> None:
        server.engine.rules.add(Rule(method, action, times=1))

    return on


@pytest.mark.parametrize(
    ("column", "era", "action"),
    [(0, "handshake", Body), (1, "handshake", as_event), (2, "stateless", Body)],
    ids=["body", "event", "stateless"],
)
async def test_answers_over_http(column: int, era: str, action: Callable[[bytes], Any]):
    rows = {name: (action(data), ends[column]) for name, (data, ends) in MESSAGES.items()}
    async with world(http={"era": era, "strict": False}) as w:
        await check(w.pool, once(w), rows)


async def test_answers_as_lines(autojump_clock):
    rows = {name: (Body(data), ends[3]) for name, (data, ends) in MESSAGES.items()}
    async with memory_world(pool={"deadline": 5, "settle_timeout": 6, "ping_timeout": 1}) as (
        server,
        _,
        pool,
    ):
        await check(pool, once_in(server), rows)


# ---------------------------------------------------------------------------- how it is sent

# A server that closes behind an answer says so: otherwise the next request may meet the closing halfway.
CLOSES = b"connection: close\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + CLOSES
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
EVENT = b"data: " + ANSWER + b"\n\n"
BODY = b"content-length: %d\r\n\r\n"
LOST = "connection-lost in-doubt"
PROGRESS = b'data: {"method":"notifications/progress","params":{"progressToken":%b,"progress":%b}}\n\n'
# The body's length must be known where a head says it: the id is then one that nobody used.
PLAIN = b'{"jsonrpc":"2.0","id":987654,' + WORD + b"}"
SIZED = b"content-length: %d\r\n\r\n" % len(PLAIN) + PLAIN

FRAMES: dict[str, tuple[Any, str]] = {
    "an event without the blank line": (RawBytes(STREAM + EVENT[:-1]), NONE),
    "an event without a newline": (RawBytes(STREAM + EVENT[:-2]), NONE),
    "an event cut in the middle": (RawBytes(STREAM + EVENT[:-20]), NONE),
    "CR only": (Sse(newline="\r"), OK),
    "CR LF": (Sse(newline="\r\n", split=3), OK),
    "a byte order mark": (Sse(before=b"\xef\xbb\xbf"), OK),
    "a byte at a time": (Sse(split=1), OK),
    "a flood of comments": (Sse(before=b":\n" * 200_000), OK),
    "a flood of empty lines": (Sse(before=b"\n" * 200_000), OK),
    "a flood of priming events": (Sse(before=b"id: 7\n\n" * 20_000), OK),
    "fields that are none": (
        Sse(before=b"data\ndatum: x\nid: a\0b\nretry: soon\nevent: other\n\n\xff\xfe\n\n"),
        OK,
    ),
    "events of another name": (Sse(before=b"event: other\ndata: {}\n\n"), OK),
    "progress of odd numbers": (
        Sse(
            before=b"".join(PROGRESS % (b"1", each) for each in (b"9" * 400, b"true", b"NaN", b'"1"', b"[]"))
        ),
        OK,
    ),
    "progress of odd tokens": (
        Sse(before=b"".join(PROGRESS % (each, b"1") for each in (b"true", b"{}", b"null", b"1e400"))),
        OK,
    ),
    "requests under odd ids": (
        Sse(
            before=b"".join(
                b'data: {"id":%b,"method":"ping"}\n\n' % each
                for each in (
                    b"null",
                    b"[]",
                    b"{}",
                    b"true",
                    b'"\\ud800"',
                    b"9" * 5000,
                    b'"' + b"x" * 5000 + b'"',
                )
            )
        ),
        OK,
    ),
    "notices of odd params": (
        Sse(
            before=b"".join(
                b'data: {"method":"%b","params":%b}\n\n' % (method, params)
                for method in (b"notifications/cancelled", b"notifications/message", b"notifications/x")
                for params in (b"7", b"null", b"[]", b'{"requestId":[]}', b'{"requestId":"\\ud800"}', DEEP)
            )
        ),
        OK,
    ),
    "an answer behind the answer": (Sse(after=b'data: {"id":1,"error":{"code":1,"message":"no"}}\n\n'), OK),
    "an event that is too large": (Sse(before=b"data: " + b"x" * 300_000 + b"\n\n"), LARGE),
    "an event of many lines that is too large": (Sse(before=b"data: x\n" * 50_000 + b"\n"), LARGE),
    "a body that is too large": (Body(b" " * 300_000), LARGE),
    "a body announced as a terabyte": (RawBytes(HEAD + BODY % (1 << 40) + b"{"), LOST),
    "a body longer than announced": (RawBytes(HEAD + b"content-length: 2\r\n\r\n" + PLAIN), PROTOCOL),
    "a body shorter than announced": (RawBytes(HEAD + BODY % 500 + PLAIN), LOST),
    "a length of 5000 digits": (RawBytes(HEAD + b"content-length: " + b"9" * 5000 + b"\r\n\r\n{}"), NONE),
    "two lengths": (RawBytes(HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}"), NONE),
    "a length below zero": (RawBytes(HEAD + b"content-length: -1\r\n\r\n{}"), NONE),
    "chunks that are none": (RawBytes(HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n"), NONE),
    "a chunk of 2**80 bytes": (
        RawBytes(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n"),
        LOST,
    ),
    "chunks without their end": (RawBytes(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"), LOST),
    "a body of unknown length": (RawBytes(HEAD + b"\r\n" + PLAIN), OK),
    "gzip that nobody asked for": (
        RawBytes(
            HEAD + b"content-encoding: gzip\r\n" + BODY % len(gzip.compress(PLAIN)) + gzip.compress(PLAIN)
        ),
        NONE,
    ),
    "no type": (RawBytes(b"HTTP/1.1 200 OK\r\n" + CLOSES + SIZED), OK),
    "another type": (RawBytes(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n" + CLOSES + SIZED), OK),
    "a stream that is a body": (Body(ANSWER, "text/event-stream"), NONE),
    "a body that is a stream": (Body(EVENT), PROTOCOL),
    "202 to a request": (
        RawBytes(b"HTTP/1.1 202 Accepted\r\n" + CLOSES + b"content-length: 0\r\n\r\n"),
        NONE,
    ),
    "204 to a request": (RawBytes(b"HTTP/1.1 204 No Content\r\n" + CLOSES + b"\r\n"), NONE),
    "a switch of protocols": (RawBytes(b"HTTP/1.1 101 Up\r\nupgrade: h2c\r\n\r\n"), NONE),
    "interim answers without end": (RawBytes(b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000), NONE),
    "an interim answer first": (RawBytes(b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + HEAD + SIZED), OK),
    "a head of 300 KB": (RawBytes(HEAD + b"x: " + b"y" * 300_000 + b"\r\n" + SIZED), NONE),
    "a head without its end": (RawBytes(HEAD), LOST),
    "a head that is none": (RawBytes(b"220 mail ESMTP ready\r\n\r\n"), NONE),
    "HTTP/2": (RawBytes(b"HTTP/2.0 200 OK\r\n" + SIZED), NONE),
    "NULs": (RawBytes(b"\0" * 5000), NONE),
    "no byte": (RawBytes(b""), LOST),
}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_ways_of_sending_over_http(era: str):
    # the cap is above the longest event that is in order, and small enough to be passed at once
    async with world(http={"era": era, "strict": False}, pool={"max_message": 250_000}) as w:
        await check(w.pool, once(w), FRAMES)


LINES: dict[str, tuple[Any, str]] = {
    "CR LF": (RawBytes(ANSWER + b"\r\n"), OK),
    "empty lines": (RawBytes(b"\n\r\n" * 50_000 + ANSWER + b"\n"), OK),
    "junk around": (RawBytes(b"Starting...\n\0\xff\n{not json\n" + ANSWER + b"\nbye\n"), OK),
    "the answer twice": (RawBytes(ANSWER + b"\n" + ANSWER + b"\n"), OK),
    "an answer and then an error": (RawBytes(ANSWER + b"\n" + error(b'{"code":1}') + b"\n"), OK),
    "an answer to nobody first": (
        RawBytes(b'{"id":0,"result":{}}\n{"id":-7,"error":{}}\n' + ANSWER + b"\n"),
        OK,
    ),
    "a line that is too long": (RawBytes(result(b'"' + b"x" * 400_000 + b'"') + b"\n"), LARGE),
    "a line that is too long and nobody's": (RawBytes(b"x" * 400_000 + b"\n" + ANSWER + b"\n"), OK),
    "progress of odd kinds": (
        RawBytes(
            b"".join(
                b'{"method":"notifications/progress","params":{"progressToken":%b,"progress":%b}}\n'
                % (token, step)
                for token in (b"@request-id@", b"true", b"[]", b"1e400", b'"x"')
                for step in (b"9" * 400, b"true", b"NaN", b"{}", b"1")
            )
            + ANSWER
            + b"\n"
        ),
        OK,
    ),
    "requests under odd ids": (
        RawBytes(
            b"".join(
                b'{"id":%b,"method":"%b","params":%b}\n' % (each, method, params)
                for each in (
                    b"null",
                    b"[]",
                    b"true",
                    b'"\\ud800"',
                    b"9" * 5000,
                    b'"' + b"x" * 5000 + b'"',
                    b"1.5",
                )
                for method in (b"ping", b"sampling/createMessage", b"\\ud800")
                for params in (b"7", DEEP)
            )
            + ANSWER
            + b"\n"
        ),
        OK,
    ),
    "notices of odd params": (
        RawBytes(
            b"".join(
                b'{"method":"%b","params":%b}\n' % (method, params)
                for method in (b"notifications/cancelled", b"notifications/message", b"notifications/\\ud800")
                for params in (b"7", b"null", b'{"requestId":[]}', b'{"requestId":"\\ud800"}', DEEP)
            )
            + ANSWER
            + b"\n"
        ),
        OK,
    ),
}


async def test_ways_of_sending_lines(autojump_clock):
    limits = {"deadline": 5, "settle_timeout": 6, "max_message": 300_000}
    async with memory_world(pool=limits) as (server, _, pool):
        await check(pool, once_in(server), LINES)


# ---------------------------------------------------------------------------- opening and listing


@pytest.mark.parametrize("action", [Body, as_event], ids=["body", "event"])
async def test_openings_over_http(action: Callable[[bytes], Any]):
    """Whatever is said instead of an opening's answer: it is not open, nothing was sent, and it says so."""
    async with world(http={"strict": False}) as w:
        for name, (data, _) in MESSAGES.items():
            w.server.on("server/discover", action(data))
            w.server.on("initialize", action(data))
            with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(10):
                await w.pool.refresh(ALICE)
            assert (caught.value.code, caught.value.delivery) == ("open-failed", "not-sent"), name
            str(caught.value).encode()
            w.server.engine.rules.rules.clear()
        await w.pool.refresh(ALICE)
        await (await w.tool()).call(identity=ALICE)
        quiet(w.pool)


async def test_openings_over_lines(autojump_clock):
    async with memory_world() as (server, _, pool):
        for name, (data, _) in MESSAGES.items():
            for method in ("server/discover", "initialize"):
                server.engine.rules.add(Rule(method, Body(data)))
            with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(200):
                await pool.refresh(ALICE)
            assert (caught.value.code, caught.value.delivery) == ("open-failed", "not-sent"), name
            server.engine.rules.rules.clear()
        await pool.refresh(ALICE)
        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
        quiet(pool)


def listed(*tools: str, **members: Any) -> bytes:
    rest = "".join(f',"{name}":{json.dumps(value)}' for name, value in members.items())
    return result(b'{"tools":[' + ",".join(tools).encode() + b"]" + rest.encode() + b"}")


GOOD_TOOL = '{"name":"echo","inputSchema":{"type":"object"}}'

LISTS: dict[str, tuple[bytes, str | list[str]]] = {
    "no tools": (result(b"{}"), "protocol-error"),
    "tools null": (result(b'{"tools":null}'), "protocol-error"),
    "a tool that is text": (listed('"echo"', GOOD_TOOL), ["echo"]),
    "a tool without a name": (listed("{}", '{"name":7}', '{"name":""}', GOOD_TOOL), ["echo"]),
    "a tool without an inputSchema": (listed('{"name":"bare"}', GOOD_TOOL), ["bare", "echo"]),
    "an inputSchema that is none": (listed('{"name":"odd","inputSchema":7}'), ["odd"]),
    "a tool twice": (listed(GOOD_TOOL, GOOD_TOOL), ["echo"]),
    "a key twice": (listed('{"name":"a","name":"b"}', GOOD_TOOL), ["echo"]),
    "a name with a lone surrogate": (listed('{"name":"\\ud800"}', GOOD_TOOL), ["echo"]),
    "a tool with NaN": (listed('{"name":"nan","x":NaN}', GOOD_TOOL), ["echo"]),
    "a tool nested deep": (listed('{"name":"deep","x":' + "[" * 500 + "]" * 500 + "}", GOOD_TOOL), ["echo"]),
    "a tool nested 100,000 deep": (
        listed('{"name":"deep","x":' + DEEP.decode() + "}", GOOD_TOOL),
        "protocol-error",
    ),
    "a cursor that comes again": (listed(GOOD_TOOL, nextCursor="x"), "protocol-error"),
    "an empty cursor that comes again": (listed(GOOD_TOOL, nextCursor=""), "protocol-error"),
    "a cursor of another type": (listed(GOOD_TOOL, nextCursor=7), "protocol-error"),
    "a cursor of two megabytes": (listed(GOOD_TOOL, nextCursor="x" * 2_000_000), "too-large"),
    "ttlMs of odd kinds": (listed(GOOD_TOOL, ttlMs="soon", cacheScope=7), ["echo"]),
    "ttlMs beyond a double": (result(b'{"tools":[' + GOOD_TOOL.encode() + b'],"ttlMs":1e999}'), ["echo"]),
    "ttlMs below zero": (listed(GOOD_TOOL, ttlMs=-5), ["echo"]),
    "a list of half a million tools": (
        result(b'{"tools":[' + b",".join([b"1"] * 450_000) + b"]}"),
        "too-large",
    ),
}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_lists(era: str):
    async with world(http={"era": era, "strict": False}, pool={"max_message": 1_000_000}) as w:
        await w.pool.tools(ALICE)
        for name, (data, expected) in LISTS.items():
            actor = w.pool._existing(w.pool.key_of(ALICE, "files"))
            actor.machine.client.list.next_at = 0.0  # the space between two askings is not what is tested
            rule = w.server.on("tools/list", Body(data))
            try:
                with trio.fail_after(20):
                    found: Any = list(await w.pool.refresh(ALICE))
            except afpool.AfpoolError as failure:
                found = failure.code
                str(failure).encode()
            assert found == expected, name
            w.server.engine.rules.rules.remove(rule)
        quiet(w.pool)


async def test_a_list_of_pages_without_end():
    pages = iter(range(10_000))
    async with world(http={"strict": False}) as w:
        for number in pages:
            if number > 120:
                break
            w.server.on("tools/list", Result({"tools": [], "nextCursor": f"page {number}"}), times=1)
        with pytest.raises(afpool.ProtocolError, match="more than 100 pages"), trio.fail_after(20):
            await w.pool.tools(ALICE)
        assert len(w.server.arrivals("tools/list")) == 100
        quiet(w.pool)


async def test_ten_thousand_tools_hold_the_loop_for_nobody():
    """While they are read, another key's calls go on: nothing of it is one long step."""
    many = [echo_tool(f"tool-{number}") for number in range(10_000)]
    async with world() as w:
        bobs = await w.tool(BOB)
        w.server.set_tools_for(
            lambda arrival: many if arrival.headers.get("x-variant") == "many" else [echo_tool()]
        )
        w.host.variant = "many"
        turns = 0
        done = trio.Event()

        async def others() -> None:
            nonlocal turns
            while not done.is_set():
                await trio.lowlevel.checkpoint()
                turns += 1

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(others)
                tools = await w.pool.tools(ALICE)
                done.set()
        assert len(list(tools)) == 10_000
        assert turns > 500
        w.host.variant = "one"
        await bobs.call(identity=BOB)
        with contextlib.suppress(afpool.AfpoolError):
            await tools["tool-9999"].call(identity=ALICE)
        quiet(w.pool)


async def test_an_answer_to_a_request_that_has_not_left_is_nobodys():
    """Ids can be guessed. What was answered before it was sent would be sent with nobody behind it."""
    ours, theirs = memory_link_pair(capacity=64)
    channel = StreamChannel(ours, 10_000, Seams(), own_wire=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(channel.link.run)
        assert theirs._write(b"x") == 1
        ours.script([0, 0, 0])  # the kernel takes nothing for a while
        trip = channel.trip(Rpc("tools/call", b"{}"), [])
        ends: list[Any] = []

        async def wait() -> None:
            ends.append(await trip.run(OpenGate(), float("inf")))

        nursery.start_soon(wait)
        channel.link._on_line(b'{"id":1,"result":{"early":1}}')
        await trio.lowlevel.checkpoint()
        channel.link._on_line(b'{"id":1,"result":{"early":2}}')
        assert not ends
        with trio.fail_after(5):
            while not trip.begun:
                await trio.lowlevel.checkpoint()
        channel.link._on_line(b'{"id":1,"result":{"early":0}}')
        with trio.fail_after(5):
            while not ends:
                await trio.lowlevel.checkpoint()
        assert bytes(ends[0].message.result) == b'{"early":0}'
        assert channel.dropped == 2
        channel.kill()
    theirs.close()
