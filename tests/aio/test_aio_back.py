"""Code written for asyncio, called by the runtime: in whose loop, in which context, how it ends."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from afpool import (
    CredentialRequest,
    Identity,
    Issued,
    Plan,
    Progress,
    RuntimeConfig,
    Server,
    ToolContext,
    bearer,
    define_tool,
    open_runtime,
)
from afpool.aio import from_asyncio, open_runtime_sync, told_in_asyncio
from afpool.aio import open_runtime as open_aio
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.testing import echo_tool
from afpool.tools import Deny, Hook
from tests.aio.aio_kit import ALICE, WITHIN, Fakes, add, in_asyncio, seen

trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="nobody's")


def here() -> tuple[str, int]:
    return type(asyncio.get_running_loop()).__module__, threading.get_ident()


def test_a_tool_of_asyncio_runs_in_its_callers_loop_and_context() -> None:
    @define_tool
    @from_asyncio
    async def where(city: str, days: int = 1) -> list[Any]:
        """Say where it runs.

        Args:
            city: Where.
        """
        await asyncio.sleep(0)
        return [city, days, trace.get(), threading.get_ident()]

    async def main() -> None:
        async with open_aio(tools=[where]) as runtime:
            trace.set("mine")
            tool = (await runtime.toolset())["where"]
            assert tool.description == "Say where it runs."
            assert tool.input_schema["properties"]["city"] == {"type": "string", "description": "Where."}
            result = await tool.call({"city": "Ulm"})
            assert result.structured is None
            assert result.text == f'["Ulm",1,"mine",{threading.get_ident()}]'
            # two loops at once: each its own
            other = await asyncio.to_thread(
                in_asyncio, lambda: runtime.dispatch(None, "where", {"city": "Bern"})
            )
            assert other.text.startswith('["Bern",1,"mine"')
            assert str(threading.get_ident()) not in other.text

    in_asyncio(main)


def test_its_context_can_be_awaited_where_it_runs() -> None:
    told: list[Any] = []

    @define_tool
    @from_asyncio
    async def busy(n: int, ctx: ToolContext) -> str:
        assert ctx.progress is not None
        assert ctx.on_progress is not None
        ctx.progress(Progress(1.0, 2.0, "half"))
        ctx.on_progress(Progress(2.0))
        meta = await ctx.artifacts.put(NewArtifact(kind="note", media_type="text/plain", data="kept"))
        found = await ctx.artifacts.get(meta.ref)
        assert ctx.artifacts.configured
        assert ctx.tools.has("add")
        assert not ctx.tools.has("sub")
        inner = await ctx.tools.call("add", {"a": n, "b": 1})
        assert ctx.credentials is not None
        issued = await ctx.credentials.get(CredentialRequest("crm", (), "user", ALICE))
        assert isinstance(issued, Issued)
        left = ctx.deadline - asyncio.get_running_loop().time()  # type: ignore[operator]
        return f"{found.data} {inner.text} {inner.call_id} {50 < left <= 60} {issued.credential.secrets()}"

    class Vault:
        def __init__(self) -> None:
            self.asked: list[str] = []

        @from_asyncio
        async def get(self, request: CredentialRequest) -> Issued:
            await asyncio.sleep(0)
            self.asked.append(trace.get())
            return Issued(bearer("s3cr3t-t0ken-value"), expires_at=None)

    vault = Vault()

    async def main() -> None:
        options: Any = {"tools": [busy, add], "artifacts": MemoryArtifacts(), "credentials": vault}
        async with open_aio(**options) as runtime:
            trace.set("mine")
            result = await runtime.dispatch(ALICE, "busy", {"n": 4}, call_id="c1", on_progress=told.append)
            assert result.text.startswith("kept 5 c1:inner:1 True"), result.text
            assert "s3cr3t" not in result.text, "what a tool fetches by itself is scrubbed as always"
            assert [one.progress for one in told] == [1.0, 2.0]
            assert vault.asked == ["mine"]

    in_asyncio(main)


def test_threads_and_background_work_use_the_openers_loop_or_one_of_the_runtimes_own() -> None:
    places: list[int] = []

    @define_tool
    @from_asyncio
    async def where() -> str:
        await asyncio.sleep(0)
        places.append(threading.get_ident())
        return threading.current_thread().name

    async def main() -> None:
        async with open_aio(tools=[where]) as runtime:
            await asyncio.to_thread(runtime.blocking.dispatch, None, "where")
            assert places == [threading.get_ident()]

    in_asyncio(main)
    with open_runtime_sync(tools=[where]) as runtime:
        assert runtime.dispatch(None, "where").text == "afpool-asyncio"
        assert runtime.dispatch(None, "where").text == "afpool-asyncio"
        assert places[1] == places[2], "one loop for all"
    assert "afpool-asyncio" not in {thread.name for thread in threading.enumerate()}


def test_plans_and_hooks_of_asyncio() -> None:
    asked: list[Any] = []

    @from_asyncio
    async def plan(server: str, identity: Identity) -> Plan:
        await asyncio.sleep(0)
        asked.append((server, threading.get_ident()))
        return plans[server]

    @from_asyncio
    async def hook(call: Any) -> Deny | None:
        await asyncio.sleep(0)
        return Deny("not today") if trace.get() == "denied" else None

    plans: dict[str, Plan] = {}
    fakes = Fakes({"one": [echo_tool()]})

    import contextlib

    @contextlib.asynccontextmanager
    async def source() -> Any:
        async with fakes() as config:
            plans["one"] = config.servers[0].plan
            yield RuntimeConfig(
                servers=[Server(name="one")], plan=plan, seams=config.seams, hooks=[Hook("day", before=hook)]
            )

    async def main() -> None:
        async with open_aio(source) as runtime:
            assert (await runtime.dispatch(ALICE, "echo", {})).code == "ok"
            assert set(asked) == {("one", threading.get_ident())}, "a plan is asked in the opener's loop"
            trace.set("denied")
            assert (await runtime.dispatch(ALICE, "echo", {})).code == "denied"

    in_asyncio(main)


def test_a_cancelled_or_late_call_cancels_it_and_waits_for_its_end() -> None:
    began, ended = threading.Event(), []
    clock = MockClock()

    @define_tool
    @from_asyncio
    async def slow() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)
        return "never"

    async def main() -> None:
        async with open_aio(tools=[slow], trio_options={"clock": clock}) as runtime:
            call = asyncio.create_task(runtime.dispatch(None, "slow"))
            await seen(began)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert ended == [True]
            began.clear()
            late = asyncio.create_task(runtime.dispatch(None, "slow", timeout=30))
            await seen(began)
            await runtime.run_in_trio(lambda _: clock.jump(31))
            result = await late
            assert (result.code, result.delivery) == ("deadline-exceeded", "in-doubt")
            assert ended == [True, True]

    in_asyncio(main)


def test_a_tool_is_brought_to_its_end_while_the_runtime_closes() -> None:
    began, go = threading.Event(), threading.Event()

    @define_tool
    @from_asyncio
    async def storing(ctx: ToolContext) -> str:
        began.set()
        await asyncio.to_thread(go.wait, WITHIN)
        meta = await ctx.artifacts.put(NewArtifact(kind="note", media_type="text/plain", data="kept"))
        return f"{meta.kind} {(await ctx.tools.call('add', {'a': 1, 'b': 1})).code}"

    async def main() -> None:
        async with open_aio(tools=[storing, add], artifacts=MemoryArtifacts()) as runtime:
            call = asyncio.create_task(runtime.dispatch(ALICE, "storing"))
            await seen(began)
            closing = asyncio.create_task(runtime.aclose())
            await asyncio.sleep(0)
            assert (await runtime.dispatch(ALICE, "add", {"a": 1, "b": 1})).code == "pool-closed"
            go.set()
            assert (await call).text == "note pool-closed", "what it stores is stored, no other call is made"
            await closing

    in_asyncio(main)


def test_one_that_takes_no_cancellation_is_waited_for_so_long_and_no_longer() -> None:
    began, go = threading.Event(), threading.Event()
    clock = MockClock()

    @define_tool
    @from_asyncio
    async def stubborn() -> str:
        began.set()
        while not go.is_set():
            try:
                await asyncio.to_thread(go.wait, WITHIN)
            except asyncio.CancelledError:
                continue
        return "done"

    async def main() -> None:
        async with open_aio(tools=[stubborn], trio_options={"clock": clock}) as runtime:
            late = asyncio.create_task(runtime.dispatch(None, "stubborn", timeout=30))
            await seen(began)
            await runtime.run_in_trio(lambda _: clock.jump(31))
            await runtime.run_in_trio(lambda _: trio.testing.wait_all_tasks_blocked())
            assert not late.done()
            await runtime.run_in_trio(lambda _: clock.jump(6))
            assert (await late).code == "deadline-exceeded"
            go.set()

    in_asyncio(main)


def test_how_it_ends_by_itself() -> None:
    @define_tool
    @from_asyncio
    async def failing() -> str:
        await asyncio.sleep(0)
        raise LookupError("no such thing")

    @define_tool
    @from_asyncio
    async def leaving() -> str:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    wrong = define_tool(
        execute=from_asyncio(failing_signature),  # type: ignore[arg-type]
        name="wrong",
    )

    async def main() -> None:
        async with open_aio(tools=[failing, leaving, wrong]) as runtime:
            result = await runtime.dispatch(None, "failing")
            assert (result.code, result.delivery) == ("tool-failed", "answered")
            assert "LookupError): no such thing" in result.text
            result = await runtime.dispatch(None, "leaving")
            assert "was cancelled in its asyncio loop" in result.text
            assert "TypeError" in (await runtime.dispatch(None, "wrong")).text

    in_asyncio(main)


async def failing_signature(_only: Any) -> str:
    return "never"


def test_a_loop_that_is_closed_is_a_failure_and_no_hang() -> None:
    from afpool.aio._places import LoopPlace

    loop = asyncio.new_event_loop()
    place = LoopPlace(loop)
    loop.close()
    assert place.post(print) is False
    assert place.post(print) is False, "and is asked again"


def test_where_nobody_crossed_it_is_the_function_itself() -> None:
    @from_asyncio
    async def where() -> str:
        return here()[0]

    async def main() -> None:
        assert (await where()).startswith("asyncio")

    in_asyncio(main)

    async def in_trio() -> str:
        async with open_runtime(tools=[define_tool(where)]) as runtime:
            return (await runtime.dispatch(None, "where")).text

    assert "was not opened by afpool.aio" in trio.run(in_trio)
    with pytest.raises(TypeError, match="takes a coroutine function"):
        from_asyncio(lambda: None)  # type: ignore[arg-type, return-value]


def test_callbacks_are_told_where_the_caller_is() -> None:
    events: list[Any] = []

    @told_in_asyncio
    def note(event: Any) -> None:
        events.append((event.kind, trace.get(), threading.get_ident()))
        if event.kind == "tool_start":
            raise ValueError("costs nobody anything")

    async def main() -> None:
        async with open_aio(tools=[add], on_event=note) as runtime:
            trace.set("mine")
            await runtime.dispatch(None, "add", {"a": 1, "b": 1})
            me = threading.get_ident()
            assert events == [("tool_start", "mine", me), ("tool_end", "mine", me)]

    in_asyncio(main)
    events.clear()
    with open_runtime_sync(tools=[add], on_event=note) as runtime:
        runtime.dispatch(None, "add", {"a": 1, "b": 1})
        assert [(kind, who) for kind, _, who in events] == [
            ("tool_start", threading.get_ident()),
            ("tool_end", threading.get_ident()),
        ]


def test_several_words_cost_one_wake_up() -> None:
    from afpool.aio._places import LoopPlace

    async def main() -> None:
        loop = asyncio.get_running_loop()
        place = LoopPlace(loop)
        woken: list[int] = []
        told: list[int] = []

        class Counting:
            def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Any:
                woken.append(1)
                return loop.call_soon_threadsafe(*args, **kwargs)

        place.loop = Counting()  # type: ignore[assignment]

        def post() -> None:
            for n in range(64):
                place.post(told.append, n)

        # the loop stands still meanwhile
        thread = threading.Thread(target=post)
        thread.start()
        thread.join(WITHIN)
        assert told == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == list(range(64))
        assert len(woken) == 1
        place.post(told.append, 64)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told[-1] == 64
        assert len(woken) == 2

    in_asyncio(main)


def test_many_calls_wake_trio_once() -> None:
    async def main() -> None:
        async with open_aio(tools=[add]) as runtime:
            bridge = runtime._handle.bridge
            held, holding = threading.Event(), threading.Event()
            woken: list[int] = []

            def hold(_runtime: Any) -> None:
                holding.set()
                held.wait(WITHIN)

            blocked = asyncio.create_task(runtime.run_in_trio(hold))
            await seen(holding)
            token = bridge._token
            assert token is not None

            class Counting:
                def run_sync_soon(self, *args: Any) -> None:
                    woken.append(1)
                    token.run_sync_soon(*args)

            bridge._token = Counting()  # type: ignore[assignment]
            calls = [asyncio.create_task(runtime.dispatch(None, "add", {"a": n, "b": n})) for n in range(64)]
            await asyncio.sleep(0)
            held.set()
            assert [(await call).text for call in calls] == [str(2 * n) for n in range(64)]
            await blocked
            assert len(woken) == 1
            bridge._token = token

    in_asyncio(main)
