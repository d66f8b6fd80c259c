"""As `test_pool_verdicts`, over the pipes of a child: there all calls share one stream (I3, I10).

What ran is read from the child's own log.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import Server, StdioTransport
from afpool.testing import FakeServer
from tests.pool.kit import ALICE, quiet, start, until
from tests.pool.test_pool_verdicts import ERAS, ends, nursery_call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from afpool.testing import ChildLog


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
        sibling = start(nursery, lambda: listed["sleep"].call({"seconds": 2.4}, identity=ALICE))
        assert (await listed["fail"].call(identity=ALICE)).is_error
        _, error = await ends(listed["error"].call(identity=ALICE))
        assert isinstance(error, afpool.ServerError)
        assert (error.delivery, error.error_code, error.http_status) == ("answered", -32050, None)
        _, error = await ends(listed["unknown"].call(identity=ALICE))
        assert error is not None
        assert (error.code, error.delivery) == ("server-refused", "refused")
        # what cannot be read, or is the answer to nobody, is no answer: the call waits on, and is late
        for name in ("garbage", "half", "wrong", "null", "other"):
            deadline = trio.current_time() + 0.4
            _, error = await ends(listed[name].call(identity=ALICE, deadline=deadline))
            assert error is not None, name
            assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt"), name
            assert trio.current_time() < deadline + 0.1
            assert (
                await listed["echo"].call({"after": name}, identity=ALICE)
            ).text == f'{{"after": "{name}"}}'
        assert (await sibling.answer()).text == "slept 2.4"
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
        # what is too long and no answer costs no call; its id is the server's own, and so is one further in
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
        sibling = start(nursery, lambda: listed["sleep"].call({"seconds": 1.2}, identity=ALICE))
        assert (await sent_on(c)).request_id == 4
        for name in ("echo", "nested"):
            _, error = await ends(listed[name].call(identity=ALICE, deadline=trio.current_time() + 0.4))
            assert error is not None
            assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt")
        _, error = await ends(listed["big"].call({"size": 30_000}, identity=ALICE))
        assert error is not None
        assert (error.code, error.delivery) == ("too-large", "answered")
        assert (await sibling.answer()).text == "slept 1.2"
        for _ in range(3):
            _, error = await ends(listed["echo"].call(identity=ALICE, deadline=trio.current_time() + 0.4))
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
            listed["sleep"].call({"seconds": 0.8}, identity=ALICE, deadline=trio.current_time() + 0.5)
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
