"""Scenes of what servers and connections do to a call that was on its way."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import trio

from afpool import ElicitAnswer, Plan, Server, ServerRequests, StdioTransport, open_pool
from afpool.record import Record
from afpool.testing import (
    Body,
    Drop,
    FakeServer,
    JsonRpcError,
    Status,
    Truncate,
    big_tool,
    echo_tool,
    fail_tool,
    input_tool,
)
from tests.explain.play import Play, ended
from tests.pool.kit import ALICE, BOB, start, until, world
from tests.pool.kit import Hold as Held

ADDRESS = {
    "elicitations": [
        {"mode": "url", "url": "https://idp.example/a", "message": "Connect", "elicitationId": "e1"}
    ]
}
SENT = "was sent, and nothing proves what became of it"
NEVER_RAN = "proves that nothing ran"


async def play(play: Play) -> None:
    play.title("The wire, and what servers answer")
    await connections(play)
    await sessions(play)
    await processes(play)
    await answers(play)
    await attempts(play)
    await questions(play)


async def connections(play: Play) -> None:
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        for number, (did, action, ran) in enumerate(
            (
                ("the connection is cut before the tool runs", Drop(), 0),
                ("the connection is cut after the tool has run", Drop(after_execution=True), 1),
                ("the connection breaks in the middle of the answer", Truncate(), 1),
            )
        ):
            before = w.server.executions["echo"]
            w.server.on("tools/call", action, times=1)
            await ended(tool.call(identity=ALICE, call_id=f"cut {number}"))
            await play.why(
                did, record, f"cut {number}", ("failed", "connection-lost", "in-doubt"),
                "the connection broke, and the session lives on", "while the server worked", told=(SENT,),
            )  # fmt: skip
            play.check("as often as said", holds=w.server.executions["echo"] == before + ran)
        w.server.close_idle_connections()
        w.server.refuse_connections()
        await ended(tool.call(identity=ALICE, call_id="unreachable"))
        await play.why(
            "the server cannot be reached any more, and its session lives on", record, "unreachable",
            ("refused", "connection-lost", "not-sent"), "connect failed",
            told=("no byte of its request left",),
        )  # fmt: skip


async def sessions(play: Play) -> None:
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        w.server.forget_sessions("404")
        await ended(tool.call(identity=ALICE, call_id="forgotten"))
        await play.why(
            "the server has forgotten the session", record, "forgotten",
            ("refused", "session-expired", "refused"), "`files` does not know the session any more",
            "http 404", event="client-lost", told=(NEVER_RAN, "now: the call may be made again"),
        )  # fmt: skip
        await ended(tool.call(identity=ALICE, call_id="again"))
        await play.why(
            "the same call again, on another incarnation", record, "again", ("ok", "", "answered"),
            told=(r"client \d+ was opened, begun for call `again`",),
        )  # fmt: skip


def children() -> set[int]:
    """The processes that this one has started."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        found |= {int(word) for word in path.read_text().split()}
    return found


async def processes(play: Play) -> None:
    rule = {"method": "tools/call", "tool": "counter", "action": {"do": "Drop"}}
    script = {"tools": ["echo", "counter", "sleep"], "rules": [rule]}
    plan = Plan(transport=StdioTransport.of(*FakeServer.stdio_command(script)), protocol_version="2025-11-25")
    limits: dict[str, Any] = {"max_in_flight": 1}
    async with open_pool([Server(name="files", plan=plan)], **limits) as pool, trio.open_nursery() as nursery:
        record = Record(pool)
        tools = await pool.tools(ALICE)
        await ended(tools["counter"].call(identity=ALICE, call_id="exited"))
        await play.why(
            "the child process exits while it works", record, "exited",
            ("failed", "session-handle-lost", "in-doubt"), r"client \d+ ended", "while the server worked",
            event="client-lost", told=(SENT,),
        )  # fmt: skip
        others = await pool.tools(BOB)
        known = children()
        tools = await pool.refresh(ALICE)
        (child,) = children() - known
        holder = start(
            nursery, lambda: others["sleep"].call({"seconds": 0.5}, identity=BOB, call_id="holder")
        )
        await until(lambda: pool.admission.used == 1)
        waiter = start(nursery, lambda: tools["echo"].call(identity=ALICE, call_id="waiter"))
        await until(lambda: pool.admission.waiting == 1)
        os.kill(child, signal.SIGKILL)
        await waiter.done.wait()
        await play.why(
            "the child process is killed while the call waits for a place of the runtime", record, "waiter",
            ("refused", "session-handle-lost", "not-sent"), r"client \d+ ended", "held by call `holder`",
            event="client-lost",
        )  # fmt: skip
        await holder.done.wait()


async def answers(play: Play) -> None:
    async with world(tools=[echo_tool(), big_tool(), fail_tool()], pool={"max_message": 20_000}) as w:
        record, tools = Record(w.pool), await w.pool.tools(ALICE)
        cases: list[tuple[str, Any, tuple[str, str, str], str]] = [
            (
                "the server answers 503", Status(503),
                ("failed", "server-failed", "in-doubt"), "http 503",
            ),
            (
                "the server does not know the method", JsonRpcError(-32601),
                ("refused", "server-refused", "refused"), "-32601",
            ),
            (
                "the server answers with an error of its own", JsonRpcError(-32050, "no luck"),
                ("failed", "server-error", "answered"), "-32050",
            ),
            (
                "the server wants its user to visit an address", JsonRpcError(-32042, data=ADDRESS),
                ("failed", "elicitation-required", "answered"), "wants its user to visit an address first",
            ),
            (
                "the answer cannot be read", Body(b'{"jsonrpc": "2.0", "id": 1, "resu'),
                ("failed", "protocol-error", "answered"), "an answer came that could not be read",
            ),
        ]  # fmt: skip
        for number, (did, action, ending, cause) in enumerate(cases):
            w.server.on("tools/call", action, tool="echo", times=1)
            await ended(tools["echo"].call(identity=ALICE, call_id=f"answer {number}"))
            explanation = await play.why(did, record, f"answer {number}", ending, cause)
            play.check("what the server said is not told", holds="no luck" not in explanation.words())
        await ended(tools["big"].call({"size": 30_000}, identity=ALICE, call_id="large"))
        await play.why(
            "the answer is larger than what is taken", record, "large", ("failed", "too-large", "answered"),
            "larger than what is taken", told=("now: ask for less",),
        )  # fmt: skip
        await ended(tools["fail"].call({"message": "no such file"}, identity=ALICE, call_id="said no"))
        await play.why(
            "the tool answers that it failed", record, "said no", ("ok", "", "answered"),
            "the tool said that it failed", instead_of=("tool-error", "answered"),
        )  # fmt: skip


async def attempts(play: Play) -> None:
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        w.server.on("tools/call", Status(429, headers={"retry-after": "0"}))
        await ended(tool.call(identity=ALICE, call_id="throttled"))
        await play.why(
            "the server is busy, three times", record, "throttled",
            ("refused", "server-refused", "refused"), "http 429.*http 429.*http 429",
            told=("the last of 3 attempts, and what was answered proves that nothing ran", "attempt 3 began"),
        )  # fmt: skip
        w.server.engine.rules.rules.clear()
        w.server.on("tools/call", Status(429), times=1)
        await ended(tool.call(identity=ALICE, call_id="busy once"))
        await play.why(
            "the server is busy once", record, "busy once", ("ok", "", "answered"),
            "while it waited before another attempt", told=("noted: the answer was `http 429`",),
        )  # fmt: skip


async def questions(play: Play) -> None:
    hold = Held()

    async def elicit(request: Any) -> ElicitAnswer:
        hold.reached.set()
        await hold.let_go.wait()
        return request.accept()  # type: ignore[no-any-return]

    stateless = {"era": "stateless"}
    async with world(tools=[input_tool()], http=stateless) as w:
        record, tool = Record(w.pool), await w.tool(name="input")
        await ended(tool.call(identity=ALICE, call_id="unanswered"))
        await play.why(
            "the server asks its user something, and the host offers no answers", record, "unanswered",
            ("failed", "input-required", "answered"), "asked something, and the call did not get past",
        )  # fmt: skip
    offers = ServerRequests(elicit=elicit)
    async with (
        world(tools=[input_tool()], http=stateless, requests=offers) as w,
        trio.open_nursery() as nursery,
    ):
        record, tool = Record(w.pool), await w.tool(name="input")
        call = start(nursery, lambda: tool.call(identity=w.host.who, call_id="asked"))
        await hold.reached.wait()
        await trio.sleep(0.02)
        now = record.explain("asked").headline
        play.check("a question is waited for", holds="waiting for answers to the server's questions" in now)
        w.pool.invalidate(identity=ALICE, reason="left the company")
        hold.let_go.set()
        await call.done.wait()
        await play.why(
            "the key is revoked while the user answers the server's question", record, "asked",
            ("failed", "input-required", "in-doubt"), "the key was revoked .*left the company",
            "its question ended with `binding-changed`", event="revoked",
        )  # fmt: skip
