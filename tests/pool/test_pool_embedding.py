"""The pool inside somebody else's trio program: their nursery, their clock, their loop, their context."""

from __future__ import annotations

import contextvars
import queue
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

import afpool
from afpool import CredentialRequirement, HttpTransport, Identity, Issued, Plan, Server, bearer
from afpool.testing import FakeServer, FakeTool, Hold, echo_tool, progress_tool
from tests.pool.kit import ALICE, quiet, start, until, world

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLE = Path(__file__).parents[2] / "examples" / "embed_trio.py"


def plan(server: FakeServer) -> Plan:
    return Plan(transport=HttpTransport(url=server.url))


def test_the_example(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    assert "alice got" in said
    assert "bob: step 2" in said
    assert "refused: identity-mismatch (not-sent)" in said
    assert "closed 2 clients" in said


# ---------------------------------------------------------------------------- nurseries


async def test_started_in_a_nursery_and_cancelled_with_it():
    async with FakeServer.http() as server:
        async with trio.open_nursery() as nursery:
            pool = await nursery.start(afpool.run_pool, [Server(name="files", plan=plan(server))])
            tool = (await pool.tools(ALICE))["echo"]
            await tool.call(identity=ALICE)
            nursery.cancel_scope.cancel()
        assert pool.closed.is_set()
        assert server.sessions == []
        with pytest.raises(afpool.PoolClosed):
            await tool.call(identity=ALICE)


async def test_started_in_a_nursery_and_closed_by_anybody():
    async with FakeServer.http() as server, trio.open_nursery() as nursery:
        pool = await nursery.start(
            afpool.run_pool, [Server(name="files", plan=plan(server))], {"max_operations": 3}
        )
        assert pool.limits.max_operations == 3
        await pool.warm(ALICE)
        report = await pool.aclose()
        assert report.closed == 1
        # the task ends by itself, so the nursery does too


async def test_a_wrong_option_starts_nothing():
    async with trio.open_nursery() as nursery:
        with pytest.raises(TypeError):
            await nursery.start(afpool.run_pool, [Server(name="files")], {"no_such": 1})
        with pytest.raises(ValueError, match="no plan"):
            await nursery.start(afpool.run_pool, [Server(name="files")])


async def test_a_background_task_that_fails_takes_nobody_with_it(caplog):
    async with world() as w:
        tool = await w.tool()

        async def broken() -> None:
            await trio.lowlevel.checkpoint()
            raise ZeroDivisionError

        w.pool.spawn(broken)
        await until(lambda: w.pool.records.failures == 1)
        assert "broken" in caplog.text
        await tool.call(identity=ALICE)
        quiet(w.pool)


# ---------------------------------------------------------------------------- clocks and loops


def test_under_a_clock_that_stands_still():
    """Without autojump nothing waits for time to pass: a call needs no timer of its own."""

    async def main() -> float:
        async with world() as w:
            await (await w.tool()).call(identity=ALICE)
            quiet(w.pool)
        return trio.current_time()

    clock = trio.testing.MockClock()
    began = clock.current_time()
    assert trio.run(main, clock=clock) == began


def test_in_guest_mode():
    """trio runs inside another loop, which here is a bare queue."""
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    outcome: list[Any] = []

    async def main() -> str:
        async with world() as w:
            result = await (await w.tool()).call({"n": 1}, identity=ALICE)
            quiet(w.pool)
            return result.text

    def done(result: Any) -> None:
        outcome.append(result)
        calls.put(None)

    trio.lowlevel.start_guest_run(
        main, run_sync_soon_threadsafe=calls.put, done_callback=done, host_uses_signal_set_wakeup_fd=False
    )
    while (job := calls.get(timeout=30)) is not None:
        job()
    assert outcome[0].unwrap() == '{"n": 1}'


def test_two_runs_in_one_process_one_after_the_other():
    async def main() -> None:
        async with world() as w:
            await (await w.tool()).call(identity=ALICE)

    trio.run(main)
    trio.run(main)


# ---------------------------------------------------------------------------- context


who_runs: contextvars.ContextVar[str] = contextvars.ContextVar("who_runs", default="nobody")


class Nosy:
    """Everything that the pool asks of an app; files in whose context it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[tuple[str, str | None, str]] = []

    def note(self, what: str, principal: str | None = None) -> None:
        self.seen.append((what, principal, who_runs.get()))

    def plan(self, server: str, projection: Identity) -> Plan:
        self.note("plan", projection.principal)
        return Plan(transport=HttpTransport(url=self.url), credential=CredentialRequirement("files"))

    def share(self, server: str, projection: Identity) -> None:
        self.note("share", projection.principal)

    async def get(self, request: Any) -> Issued:
        self.note("credential", request.identity.principal)
        await trio.lowlevel.checkpoint()
        return Issued(bearer("token"))

    async def sign(self, request: Any) -> Mapping[str, str]:
        self.note("signer")
        await trio.lowlevel.checkpoint()
        return {}


async def test_each_operation_sees_its_own_context_on_one_place():
    """Three tenants' runs go through one place, one after the other: nobody sees another's context."""
    async with FakeServer.http(tools=[progress_tool(), echo_tool()]) as server:
        app = Nosy(server.url)
        who_runs.set("host")
        async with afpool.open_pool(
            [Server(name="files", keyed_on=())],
            plan=app.plan, share=app.share, credentials=app, signer=app, max_operations=1,
        ) as pool:  # fmt: skip
            tools = await pool.tools(Identity())
            seen_in_opening = {
                what: who for what, _, who in app.seen if what in ("plan", "signer", "credential")
            }
            assert set(seen_in_opening.values()) == {"host"}
            app.seen.clear()
            released = trio.Event()
            server.on("tools/call", Hold(released), times=1)

            async def run(name: str) -> None:
                who_runs.set(name)
                me = Identity(tenant=name, principal=name)

                def identity() -> Identity:
                    app.note("identity", name)
                    return me

                def progress(_: afpool.Progress) -> None:
                    app.note("progress", name)

                await tools["progress"].call({"steps": 3}, identity=identity, on_progress=progress)

            async with trio.open_nursery() as nursery:
                for name in ("acme", "globex", "initech"):
                    nursery.start_soon(run, name)
                await until(lambda: pool.waiting == 2)
                released.set()
            named = [
                (principal, who) for what, principal, who in app.seen if what in ("identity", "progress")
            ]
            assert len(named) >= 18
            assert all(principal == who for principal, who in named), named
            for what in ("share", "credential", "signer"):
                asked = [who for kind, _, who in app.seen if kind == what]
                assert set(asked) == {"acme", "globex", "initech"}, (what, asked)
            quiet(pool)


async def test_openings_and_lists_run_in_the_context_of_the_pool():
    """What serves several must not be decided by the context of whoever happened to ask first."""
    async with FakeServer.http() as server:
        app = Nosy(server.url)
        who_runs.set("host")
        async with afpool.open_pool(
            [Server(name="files")], plan=app.plan, share=app.share, credentials=app
        ) as pool:
            who_runs.set("alice")
            await pool.tools(ALICE)
            tool = (await pool.tools(ALICE))["echo"]
            assert {who for what, _, who in app.seen if what in ("plan", "credential")} == {"host"}
            pool.evict(pool.key_of(ALICE, "files"))
            await until(lambda: not pool.openings.clients)
            app.seen.clear()
            await tool.call(identity=ALICE)
            assert {who for what, _, who in app.seen if what == "plan"} == {"host"}
            # the call's own credential is asked for in its context, the opening's and the list's are not
            credentials = [who for what, _, who in app.seen if what == "credential"]
            assert credentials.count("alice") == 1
            assert set(credentials) == {"alice", "host"}
            # a list that goes to the wire asks for the plan; it decides for all who use the key
            app.seen.clear()
            await pool.refresh(ALICE)
            assert {who for what, _, who in app.seen if what in ("plan", "credential")} == {"host"}


async def test_a_gate_that_is_asked_in_the_writers_task_sees_the_calls_context(tmp_path):
    """On a shared stream the writer hands over everybody's bytes, each under its own call's context."""
    who_runs.set("host")
    seen: list[tuple[str | None, str]] = []

    def share(server: str, projection: Identity) -> None:
        seen.append((projection.principal, who_runs.get()))

    command = FakeServer.stdio_command({"tools": ["echo"]})
    server = Server(
        name="files",
        plan=Plan(transport=afpool.StdioTransport.of(*command), protocol_version="2025-11-25"),
    )
    async with afpool.open_pool([server], share=share) as pool, trio.open_nursery() as nursery:
        people = [Identity(tenant="acme", principal=f"user-{n}") for n in range(3)]
        tools = {who.principal: (await pool.tools(who))["echo"] for who in people}
        seen.clear()

        async def run(who: Identity) -> str:
            assert who.principal is not None
            who_runs.set(who.principal)
            return (await tools[who.principal].call({"who": who.principal}, identity=who)).text

        outcomes = [start(nursery, lambda who=who: run(who)) for who in people]
        for who, outcome in zip(people, outcomes, strict=True):
            assert await outcome.answer() == f'{{"who": "{who.principal}"}}'
        assert len(seen) >= 9
        assert all(principal == runs for principal, runs in seen), seen


async def test_the_chain_is_what_is_passed_and_nothing_ambient():
    """A call made in another one's context is like any other: nothing decides by a context variable."""
    async with (
        world(tools=[FakeTool("outer"), echo_tool()], pool={"max_operations": 1}) as w,
        trio.open_nursery() as nursery,
    ):
        tools = await w.pool.tools(ALICE)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="outer")
        outer = start(nursery, lambda: tools["outer"].call(identity=ALICE))
        await w.server.wait_for("tools/call")
        inner = start(nursery, lambda: tools["echo"].call(identity=ALICE))
        await until(lambda: w.pool.waiting == 1)
        released.set()
        await outer.answer()
        await inner.answer()
