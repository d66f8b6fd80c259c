"""Each way a call can end: which error, what is known about delivery, and who else is hurt by it (I3, I10).

A call that runs beside it on the same client is held by the server meanwhile and must end with its own answer;
what ran is counted by the server.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import AfpoolError, Server, StdioTransport
from afpool.testing import (
    Body,
    Drop,
    FakeServer,
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
from tests.pool.kit import ALICE, quiet, start, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from afpool.testing import Action, ChildLog

ERAS = ("handshake", "stateless")
CHALLENGE = 'Bearer resource_metadata="https://auth.invalid/r", scope="files:write"'
PAGE = b"<!doctype html><title>Sign in</title>"
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
    "result under another id": Case(Result({"content": [], "resultType": "complete"}, id=999), None, "answered"),
    "result without an id": Case(Result({"content": [], "resultType": "complete"}, id=None), None, "answered"),
    "error": Case(JsonRpcError(-32050, "no luck", data={"n": 1}), "server-error", "answered", facts={"error_code": -32050, "data": {"n": 1}}),
    "error under a 500": Case(JsonRpcError(-32603, status=500), "server-error", "answered", facts={"http_status": 500, "error_code": -32603}),
    "parse error": Case(JsonRpcError(-32700, status=400), "server-refused", "refused"),
    "invalid request": Case(JsonRpcError(-32600, status=400), "server-refused", "refused"),
    "unknown method": Case(JsonRpcError(-32601), "server-refused", "refused"),
    "401": Case(status(401, www_authenticate=CHALLENGE), "authorization-required", "refused", facts={"http_status": 401, "www_authenticate": CHALLENGE}),
    "403": Case(status(403), "server-failed", "in-doubt", facts={"http_status": 403}),
    "403 with a challenge": Case(status(403, www_authenticate=CHALLENGE), "authorization-required", "refused", facts={"http_status": 403, "www_authenticate": CHALLENGE}),
    "405": Case(status(405), "server-refused", "refused", facts={"http_status": 405}),
    "406": Case(status(406), "server-refused", "refused", facts={"http_status": 406}),
    "413": Case(status(413), "server-refused", "refused", facts={"http_status": 413}),
    "415": Case(status(415), "server-refused", "refused", facts={"http_status": 415}),
    "421": Case(status(421), "server-refused", "refused", facts={"http_status": 421}),
    "429": Case(status(429), "server-refused", "refused", sent=3, facts={"http_status": 429}),
    "429 for long": Case(status(429, retry_after="11"), "server-refused", "refused", facts={"retry_after": 11.0}),
    "429 for a while": Case(status(429, retry_after="4"), "server-refused", "refused", sent=3, facts={"retry_after": 4.0}),
    "500": Case(status(500), "server-failed", "in-doubt", facts={"http_status": 500}),
    "500 after it ran": Case(Status(500, after_execution=True), "server-failed", "in-doubt", ran=1),
    "502": Case(status(502), "server-failed", "in-doubt", facts={"http_status": 502}),
    "503": Case(status(503, retry_after="7"), "server-failed", "in-doubt", facts={"http_status": 503, "retry_after": 7.0}),
    "504": Case(status(504), "server-failed", "in-doubt", facts={"http_status": 504}),
    "302": Case(status(302, location="https://elsewhere.invalid/"), "server-failed", "in-doubt", facts={"http_status": 302}),
    "307 to another origin": Case(status(307, location="https://elsewhere.invalid/"), "server-failed", "in-doubt"),
    "202": Case(status(202), "server-failed", "in-doubt", facts={"http_status": 202}),
    "empty 200": Case(Body(b""), "server-failed", "in-doubt", facts={"http_status": 200}),
    "a page": Case(Body(PAGE, "text/html"), "server-failed", "in-doubt", facts={"http_status": 200}),
    "half a JSON text": Case(Body(HALF), "protocol-error", "answered"),
    "JSON that is no message": Case(Body(b"[1, 2]"), "protocol-error", "answered"),
    "a body that breaks off": Case(Truncate(), "connection-lost", "in-doubt", ran=1),
    "a head that breaks off": Case(RawBytes(b"HTTP/1.1 200 OK\r\ncontent-ty"), "connection-lost", "in-doubt"),
    "a stream that breaks off": Case(Truncate(), "connection-lost", "in-doubt", ran=1, answer="sse"),
    "a stream that breaks off before anything": Case(Truncate(at=0), "connection-lost", "in-doubt", ran=1, answer="sse"),
    "a stream that ends without an answer": Case(Body(b": nothing\n\n", "text/event-stream"), "server-failed", "in-doubt"),
    "a stream with a strange event first": Case(Sse(before=b"event: message\ndata: {broken\n\n"), None, "answered", ran=1, answer="sse"),
    "no HTTP": Case(RawBytes(b"SSH-2.0-nobody\r\n\r\n"), "server-failed", "in-doubt"),
    "cut before it ran": Case(Drop(), "connection-lost", "in-doubt"),
    "cut after it ran": Case(Drop(after_execution=True), "connection-lost", "in-doubt", ran=1),
    "reset before it ran": Case(Drop(reset=True), "connection-lost", "in-doubt"),
    "reset after it ran": Case(Drop(reset=True, after_execution=True), "connection-lost", "in-doubt", ran=1),
}  # fmt: skip


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
            listed["sibling"].call({"n": 1}, identity=ALICE, deadline=trio.current_time() + 0.05)
        )
        assert error is not None
        assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt")
        released.set()
        for number in range(2, 6):
            assert (await listed["echo"].call({"n": number}, identity=ALICE)).text == f'{{"n": {number}}}'
        await until(lambda: not w.pool.settling)
        quiet(w.pool)


# ---------------------------------------------------------------------------- over stdio


class Child:
    """A pool over a child process, and what the child wrote down."""

    def __init__(self, pool: afpool.Pool, log: Path) -> None:
        self.pool = pool
        self.log = log

    async def tools(self) -> afpool.Toolset:
        with trio.fail_after(20):
            return await self.pool.tools(ALICE)

    def seen(self) -> ChildLog:
        return FakeServer.read_child_log(self.log)

    def ran(self, tool: str) -> int:
        return sum(run.tool == tool for run in self.seen().executed)

    def sent(self, tool: str) -> int:
        return sum(arrival.tool == tool for arrival in self.seen().arrivals)


@contextlib.asynccontextmanager
async def child(
    tmp_path: Path, script: dict[str, Any], era: Any = "handshake", **limits: Any
) -> AsyncIterator[Child]:
    log = tmp_path / "log"
    command = FakeServer.stdio_command(script, era=era, log=log)
    plan = afpool.Plan(
        transport=StdioTransport.of(*command),
        protocol_version="2026-07-28" if era == "stateless" else "2025-11-25",
    )
    async with afpool.open_pool([Server(name="files", plan=plan)], **limits) as pool:
        yield Child(pool, log)


NAMES = [
    "echo", "sleep", "fail", "big", "error", "unknown", "garbage", "half", "wrong", "null", "other",
]  # fmt: skip
TOOLS = [*NAMES[:4], *({"name": name} for name in NAMES[4:])]
RESULT = {"content": [{"type": "text", "text": "another's"}], "resultType": "complete"}


def rule(tool: str, **action: Any) -> dict[str, Any]:
    return {"method": "tools/call", "tool": tool, "action": action}


@pytest.mark.parametrize("era", ERAS)
async def test_over_stdio(era: str, tmp_path: Path):
    script = {
        "tools": TOOLS,
        "garbage": ["npm notice something", "[1, 2", '{"id": 1}'],
        "rules": [
            rule("error", do="JsonRpcError", code=-32050, message="no luck"),
            rule("unknown", do="JsonRpcError", code=-32601),
            rule("garbage", do="RawBytes", data='not json\n{"broken\n[]\n{"jsonrpc": "2.0"}\n', close=False),
            rule("half", do="Body", data='{"jsonrpc": "2.0", "id": 1, "resu'),
            rule("wrong", do="Result", result=RESULT, id=4711),
            rule("null", do="JsonRpcError", code=-32603, id=None),
            rule("other", do="Result", result=RESULT, id="1"),
        ],
    }
    async with child(tmp_path, script, era, cancel_grace=0.05) as c, trio.open_nursery() as nursery:
        listed = await c.tools()
        sibling = start(nursery, lambda: listed["sleep"].call({"seconds": 0.6}, identity=ALICE))
        assert (await listed["fail"].call(identity=ALICE)).is_error
        _, error = await ends(listed["error"].call(identity=ALICE))
        assert isinstance(error, afpool.ServerError)
        assert (error.delivery, error.error_code, error.http_status) == ("answered", -32050, None)
        _, error = await ends(listed["unknown"].call(identity=ALICE))
        assert error is not None
        assert (error.code, error.delivery) == ("server-refused", "refused")
        # what cannot be read, or is the answer to nobody, is no answer: the call waits on, and is late
        for name in ("garbage", "half", "wrong", "null", "other"):
            deadline = trio.current_time() + 0.15
            _, error = await ends(listed[name].call(identity=ALICE, deadline=deadline))
            assert error is not None, name
            assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt"), name
            assert trio.current_time() < deadline + 0.1
            assert (
                await listed["echo"].call({"after": name}, identity=ALICE)
            ).text == f'{{"after": "{name}"}}'
        assert (await sibling.answer()).text == "slept 0.6"
        assert c.pool.statistics().opened == 1
        assert all(c.sent(name) == 1 for name in NAMES if name not in ("echo", "big"))
        await until(lambda: not c.pool.settling)
        quiet(c.pool)


async def sent_on(c: Child) -> Any:
    """The trip of the one call that runs."""
    await until(lambda: any(call.begun for call in c.pool.running.values()))
    (call,) = c.pool.running.values()
    return call.trip


async def test_a_line_over_the_cap(tmp_path: Path):
    script = {
        "tools": ["echo", "sleep", "big", {"name": "nested"}],
        # what is too long and is no answer costs no call; its id is the server's own, and so is one further in
        "rules": [
            rule(
                "echo", do="RawBytes", data='{"jsonrpc": "2.0", "id": 4, "method": "' + "x" * 30_000 + '"}\n'
            ),
            rule(
                "nested",
                do="RawBytes",
                data='{"result": {"id": 4, "x": "' + "x" * 30_000 + '"}, "id": 999}\n',
            ),
        ],
    }
    async with (
        child(tmp_path, script, max_message=20_000, cancel_grace=0.05) as c,
        trio.open_nursery() as nursery,
    ):
        listed = await c.tools()
        sibling = start(nursery, lambda: listed["sleep"].call({"seconds": 0.5}, identity=ALICE))
        assert (await sent_on(c)).request_id == 4
        for name in ("echo", "nested"):
            _, error = await ends(listed[name].call(identity=ALICE, deadline=trio.current_time() + 0.1))
            assert error is not None
            assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt")
        _, error = await ends(listed["big"].call({"size": 30_000}, identity=ALICE))
        assert error is not None
        assert (error.code, error.delivery) == ("too-large", "answered")
        assert (await sibling.answer()).text == "slept 0.5"
        for _ in range(3):
            _, error = await ends(listed["echo"].call(identity=ALICE, deadline=trio.current_time() + 0.1))
            assert error is not None
            assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt")
        assert len((await listed["big"].call({"size": 1000}, identity=ALICE)).text) == 1000
        assert c.pool.statistics().opened == 1


@pytest.mark.parametrize(
    ("action", "ran"),
    [
        ({"do": "Drop"}, 0),
        ({"do": "Drop", "after_execution": True}, 1),
        ({"do": "Truncate"}, 1),
    ],
    ids=["before it ran", "after it ran", "in the middle of the answer"],
)
async def test_a_child_that_exits(action: dict[str, Any], ran: int, tmp_path: Path):
    script = {"tools": ["echo", "sleep", "counter"], "rules": [rule("counter", **action)]}
    async with child(tmp_path, script) as c, trio.open_nursery() as nursery:
        listed = await c.tools()
        sibling = nursery_call(nursery, listed["sleep"].call({"seconds": 60}, identity=ALICE))
        await until(lambda: c.ran("sleep") == 1)
        for _, error in (await ends(listed["counter"].call(identity=ALICE)), await sibling()):
            assert error is not None
            assert (error.code, error.delivery) == ("session-handle-lost", "in-doubt")
        assert (c.sent("counter"), c.ran("counter")) == (1, ran)
        # the next call opens another child, whose list shows the same tool
        assert (await listed["echo"].call({"n": 2}, identity=ALICE)).text == '{"n": 2}'
        assert c.pool.statistics().opened == 2
        assert (c.ran("sleep"), c.sent("counter")) == (1, 1)
        quiet(c.pool)


async def test_an_answer_in_the_last_words_of_a_child(tmp_path: Path):
    """The child answers and exits at once: the answer is the caller's."""
    async with child(tmp_path, {"tools": ["echo"], "exit_after": 3}) as c:
        listed = await c.tools()
        assert (await listed["echo"].call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
        await until(lambda: not c.pool.openings.clients)
        assert (await listed["echo"].call({"n": 2}, identity=ALICE)).text == '{"n": 2}'
        assert c.ran("echo") == 2
        assert c.pool.statistics().opened == 2


async def test_late_answers_on_a_stream_are_dropped(tmp_path: Path):
    script = {"tools": ["echo", {"name": "sleep", "builtin": "sleep", "cancellable": False}]}
    async with child(tmp_path, script, cancel_grace=0.05) as c:
        listed = await c.tools()
        _, error = await ends(
            listed["sleep"].call({"seconds": 0.4}, identity=ALICE, deadline=trio.current_time() + 0.1)
        )
        assert error is not None
        assert error.delivery == "in-doubt"
        (client,) = c.pool.openings.clients.values()
        for number in range(12):
            assert (await listed["echo"].call({"n": number}, identity=ALICE)).text == f'{{"n": {number}}}'
            await trio.sleep(0.05)
        assert client.channel.dropped == 1
        assert len(c.seen().cancelled) == 1
        quiet(c.pool)
