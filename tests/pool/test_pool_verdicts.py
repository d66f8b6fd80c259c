"""Each way a call can end: which error, what is known about delivery, and who else is hurt by it (I3, I10).

A call that runs beside it on the same client is held by the server meanwhile and must end with its own
answer; what ran is counted by the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import AfpoolError
from afpool.client._answer_sink import AnswerSink
from afpool.testing import (
    REQUEST_ID,
    Body,
    Drop,
    FakeTool,
    Hang,
    Hold,
    JsonRpcError,
    RawBytes,
    Result,
    Sse,
    Status,
    Truncate,
    big_tool,
    counter_tool,
    echo_tool,
    fail_tool,
    sleep_tool,
)
from afpool.transports import HttpExchange
from tests.pool.kit import ALICE, quiet, refused, start, until, world

if TYPE_CHECKING:
    from afpool.testing import Action

ERAS = ("handshake", "stateless")
CHALLENGE = 'Bearer resource_metadata="https://auth.invalid/r", scope="files:write"'
PAGE = b"<!doctype html><title>Sign in</title>"
ANSWER = b'{"jsonrpc":"2.0","id":%s,"result":{"content":[],"resultType":"complete"}}' % REQUEST_ID
HALF = b'{"jsonrpc": "2.0", "id": 1, "resu'


@attrs.frozen
class Case:
    """One ending.

    Attributes:
        code: `None` for an answer.
        ran: How often the tool runs.
        sent: How often the request is sent.
        facts: What else the error says.
    """

    action: Action
    code: str | None
    delivery: str
    ran: int = 0
    sent: int = 1
    answer: str = "json"
    facts: dict[str, Any] = attrs.field(factory=dict)


def status(code: int, **headers: str) -> Status:
    return Status(code, headers={name.replace("_", "-"): value for name, value in headers.items()})


CASES = {
    "result": Case(Result({"content": [], "resultType": "complete"}), None, "answered"),
    "result under another id": Case(
        Result({"content": [], "resultType": "complete"}, id=999), None, "answered"
    ),
    "result without an id": Case(
        Result({"content": [], "resultType": "complete"}, id=None), None, "answered"
    ),
    "error": Case(
        JsonRpcError(-32050, "no luck", data={"n": 1}),
        "server-error",
        "answered",
        facts={"error_code": -32050, "data": {"n": 1}},
    ),
    "result under a 500": Case(Body(ANSWER, status=500), None, "answered"),
    "result under a 401": Case(Body(ANSWER, status=401), "authorization-required", "refused"),
    "error under a 500": Case(
        JsonRpcError(-32603, status=500),
        "server-error",
        "answered",
        facts={"http_status": 500, "error_code": -32603},
    ),
    "parse error": Case(JsonRpcError(-32700, status=400), "server-refused", "refused"),
    "invalid request": Case(JsonRpcError(-32600, status=400), "server-refused", "refused"),
    "unknown method": Case(JsonRpcError(-32601), "server-refused", "refused"),
    "401": Case(
        status(401, www_authenticate=CHALLENGE),
        "authorization-required",
        "refused",
        facts={"http_status": 401, "www_authenticate": CHALLENGE},
    ),
    "403": Case(status(403), "server-failed", "in-doubt", facts={"http_status": 403}),
    "403 with a challenge": Case(
        status(403, www_authenticate=CHALLENGE),
        "authorization-required",
        "refused",
        facts={"http_status": 403, "www_authenticate": CHALLENGE},
    ),
    "405": Case(status(405), "server-refused", "refused", facts={"http_status": 405}),
    "406": Case(status(406), "server-refused", "refused", facts={"http_status": 406}),
    "413": Case(status(413), "server-refused", "refused", facts={"http_status": 413}),
    "415": Case(status(415), "server-refused", "refused", facts={"http_status": 415}),
    "421": Case(status(421), "server-refused", "refused", facts={"http_status": 421}),
    "429": Case(status(429), "server-refused", "refused", sent=3, facts={"http_status": 429}),
    "429 for long": Case(
        status(429, retry_after="11"), "server-refused", "refused", facts={"retry_after": 11.0}
    ),
    "429 for a while": Case(
        status(429, retry_after="4"), "server-refused", "refused", sent=3, facts={"retry_after": 4.0}
    ),
    "500": Case(status(500), "server-failed", "in-doubt", facts={"http_status": 500}),
    "500 after it ran": Case(Status(500, after_execution=True), "server-failed", "in-doubt", ran=1),
    "502": Case(status(502), "server-failed", "in-doubt", facts={"http_status": 502}),
    "503": Case(
        status(503, retry_after="7"),
        "server-failed",
        "in-doubt",
        facts={"http_status": 503, "retry_after": 7.0},
    ),
    "504": Case(status(504), "server-failed", "in-doubt", facts={"http_status": 504}),
    "302": Case(
        status(302, location="https://elsewhere.invalid/"),
        "server-failed",
        "in-doubt",
        facts={"http_status": 302},
    ),
    "307 to another origin": Case(
        status(307, location="https://elsewhere.invalid/"), "server-failed", "in-doubt"
    ),
    "202": Case(status(202), "server-failed", "in-doubt", facts={"http_status": 202}),
    "empty 200": Case(Body(b""), "server-failed", "in-doubt", facts={"http_status": 200}),
    "a page": Case(Body(PAGE, "text/html"), "server-failed", "in-doubt", facts={"http_status": 200}),
    "half a JSON text": Case(Body(HALF), "protocol-error", "answered"),
    "JSON that is no message": Case(Body(b"[1, 2]"), "protocol-error", "answered"),
    "a body that breaks off": Case(Truncate(), "connection-lost", "in-doubt", ran=1),
    "a head that breaks off": Case(RawBytes(b"HTTP/1.1 200 OK\r\ncontent-ty"), "connection-lost", "in-doubt"),
    "a stream that breaks off": Case(Truncate(), "connection-lost", "in-doubt", ran=1, answer="sse"),
    "a stream that breaks off before anything": Case(
        Truncate(at=0), "connection-lost", "in-doubt", ran=1, answer="sse"
    ),
    "a stream that ends without an answer": Case(
        Body(b": nothing\n\n", "text/event-stream"), "server-failed", "in-doubt"
    ),
    "a stream with a strange event first": Case(
        Sse(before=b"event: message\ndata: {broken\n\n"), None, "answered", ran=1, answer="sse"
    ),
    "no HTTP": Case(RawBytes(b"SSH-2.0-nobody\r\n\r\n"), "server-failed", "in-doubt"),
    "cut before it ran": Case(Drop(), "connection-lost", "in-doubt"),
    "cut after it ran": Case(Drop(after_execution=True), "connection-lost", "in-doubt", ran=1),
    "reset before it ran": Case(Drop(reset=True), "connection-lost", "in-doubt"),
    "reset after it ran": Case(Drop(reset=True, after_execution=True), "connection-lost", "in-doubt", ran=1),
}


def tools() -> list[FakeTool]:
    return [counter_tool("victim"), echo_tool("sibling"), echo_tool(), fail_tool(), big_tool(), sleep_tool()]


async def ends(call: Any) -> tuple[Any, AfpoolError | None]:
    try:
        with trio.fail_after(120):
            return await call, None
    except AfpoolError as error:
        return None, error


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", CASES)
async def test_over_http(name: str, era: str, autojump_clock):
    case = CASES[name]
    async with (
        world(tools=tools(), http={"era": era, "answer": case.answer}) as w,
        trio.open_nursery() as nursery,
    ):
        listed = await w.pool.tools(ALICE)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="sibling")
        sibling = start(nursery, lambda: listed["sibling"].call({"n": 1}, identity=ALICE))
        await w.server.wait_for("tools/call")
        sessions = w.server.sessions
        w.server.on("tools/call", case.action, tool="victim", times=case.sent)
        value, error = await ends(listed["victim"].call(identity=ALICE, call_id="c"))
        use = w.pool.records.uses[-1]
        if case.code is None:
            assert error is None
            assert not value.is_error
        else:
            assert error is not None
            assert (error.code, error.delivery, error.call_id) == (case.code, case.delivery, "c"), repr(error)
            assert {key: getattr(error, key) for key in case.facts} == case.facts
            assert use.code == case.code
        assert (use.delivery, use.attempts) == (case.delivery, case.sent)
        # counted by the server
        assert w.sent("victim") == case.sent
        assert w.server.executions["victim"] == case.ran
        # nobody else is hurt
        released.set()
        assert (await sibling.answer()).text == '{"n": 1}'
        client = w.pool.records.uses[-1].client_id
        await listed["echo"].call(identity=ALICE)
        assert w.pool.records.uses[-1].client_id == client == use.client_id
        assert w.server.sessions == sessions
        assert w.server.executions["sibling"] == w.server.executions["echo"] == 1
        assert w.server.violations == []
        quiet(w.pool)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("answer", ["json", "json-chunked", "sse"])
async def test_an_answer_over_the_cap(answer: str, era: str):
    async with world(tools=tools(), http={"era": era, "answer": answer}, pool={"max_message": 20_000}) as w:
        listed = await w.pool.tools(ALICE)
        assert len((await listed["big"].call({"size": 15_000}, identity=ALICE)).text) == 15_000
        _, error = await ends(listed["big"].call({"size": 30_000}, identity=ALICE))
        assert error is not None
        assert (error.code, error.delivery) == ("too-large", "answered")
        assert w.server.executions["big"] == w.sent("big") == 2
        await listed["echo"].call(identity=ALICE)
        quiet(w.pool)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_says_the_tool_failed(era: str):
    async with world(tools=tools(), http={"era": era}) as w:
        result = await (await w.tool(name="fail")).call({"message": "no such file"}, identity=ALICE)
        assert (result.is_error, result.code, result.delivery) == (True, "tool-error", "answered")
        with pytest.raises(afpool.ToolError, match="no such file"):
            result.raise_for_error()


@pytest.mark.parametrize("spelling", ["404", "404-text", "400-json", "400-text"])
async def test_a_session_that_the_server_forgot(spelling: Any):
    async with world(tools=tools()) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="sibling")
        w.server.on("tools/call", Result({"content": [{"type": "text", "text": "mine"}]}), tool="sibling")
        sibling = start(nursery, lambda: listed["sibling"].call(identity=ALICE))
        await w.server.wait_for("tools/call")
        w.server.forget_sessions(spelling)
        _, error = await ends(listed["victim"].call(identity=ALICE))
        assert error is not None
        assert (error.code, error.delivery) == ("session-expired", "refused")
        assert error.http_status == int(spelling[:3])
        assert w.sent("victim") == 1
        assert w.server.executions["victim"] == 0
        # the next call opens a new incarnation, whose list shows the same tool; the other call is left alone
        assert (await listed["victim"].call(identity=ALICE)).text == "1"
        assert w.server.executions["victim"] == 1
        assert w.pool.statistics().clients == 2
        released.set()
        assert (await sibling.answer()).text == "mine"
        await until(lambda: w.pool.statistics().clients == 1)
        quiet(w.pool)


@pytest.mark.parametrize("era", ERAS)
async def test_all_connections_cut_with_calls_in_flight(era: str):
    async with world(tools=tools(), http={"era": era}) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        w.server.on("tools/call", Hang(after_execution=True), tool="sibling")
        lost = [nursery_call(nursery, listed["sibling"].call(identity=ALICE)) for _ in range(3)]
        await w.server.wait_for("tools/call", 3)
        w.server.close_connections()
        for outcome in lost:
            _, error = await outcome()
            assert error is not None
            assert (error.code, error.delivery) == ("connection-lost", "in-doubt")
        # the session lives, and so does its client
        await listed["echo"].call(identity=ALICE)
        assert w.pool.statistics().opened == 1
        quiet(w.pool)


def nursery_call(nursery: trio.Nursery, call: Any) -> Any:
    """Run a call in a task of its own; what is returned waits for its end."""
    outcome: list[Any] = []
    done = trio.Event()

    async def run() -> None:
        outcome.extend(await ends(call))
        done.set()

    async def wait() -> Any:
        with trio.fail_after(10):
            await done.wait()
        return tuple(outcome)

    nursery.start_soon(run)
    return wait


@pytest.mark.parametrize("era", ERAS)
async def test_a_late_answer_is_nobody_elses(era: str):
    """Answers that come after their call was given up must not reach the calls that follow."""
    async with world(tools=tools(), http={"era": era}, pool={"max_operations": 1, "settle_timeout": 5}) as w:
        listed = await w.pool.tools(ALICE)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="sibling")
        _, error = await ends(
            listed["sibling"].call({"n": 1}, identity=ALICE, deadline=trio.current_time() + 0.5)
        )
        assert error is not None
        assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt")
        released.set()
        for number in range(2, 6):
            assert (await listed["echo"].call({"n": number}, identity=ALICE)).text == f'{{"n": {number}}}'
        await until(lambda: not w.pool.settling)
        quiet(w.pool)


@pytest.mark.parametrize("sent", [True, False])
async def test_without_memory_the_verdict_is_what_had_left_by_then(sent, monkeypatch):
    def none_left(*_: Any) -> Any:
        raise MemoryError

    async with world() as w:
        tool = await w.tool()
        if sent:
            monkeypatch.setattr(AnswerSink, "data", none_left)
        else:
            monkeypatch.setattr(HttpExchange, "run", none_left)
        code, delivery = ("connection-lost", "in-doubt") if sent else ("overloaded", "not-sent")
        error = await refused(tool.call({}, identity=ALICE), code, delivery)
        assert (w.sent(), error.__context__) == (int(sent), None)
        monkeypatch.undo()
