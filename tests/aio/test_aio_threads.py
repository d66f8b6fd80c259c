"""The runtime as threads see it, many at once, beside several loops; ^C."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import signal
import threading
import time
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from afpool import Identity, PoolClosed, Progress, define_tool
from afpool.aio import open_runtime as open_aio
from afpool.aio import open_runtime_sync
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.testing import echo_tool, progress_tool, sleep_tool
from afpool.tools import OPENAI_CHAT
from tests.aio.aio_kit import ALICE, WITHIN, Fakes, Stuck, add, in_asyncio, seen


def test_a_thread_lists_calls_and_pauses() -> None:
    fakes = Fakes({"one": [progress_tool()]}, {"tools": [add], "artifacts": MemoryArtifacts()})
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose")
    told: list[Any] = []

    def note(progress: Progress) -> None:
        told.append((progress.progress, whose.get(), threading.get_ident()))

    with open_runtime_sync(fakes) as runtime:
        whose.set("mine")
        toolset = runtime.toolset(ALICE)
        assert sorted(toolset) == ["add", "progress"]
        assert toolset["add"].call({"a": 1, "b": 2}).text == "3"
        assert toolset.call("progress", {"steps": 2}, on_progress=note).text == "did 2 steps"
        assert told == [(1, "mine", threading.get_ident()), (2, "mine", threading.get_ident())]
        assert runtime.dispatch(ALICE, "add", {"a": 1}).code == "invalid-arguments"
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}}
        message = {"role": "assistant", "tool_calls": [call]}
        answered = [{"role": "tool", "tool_call_id": "c1", "content": "2"}]
        assert toolset.answer(message, OPENAI_CHAT) == answered
        run = runtime.run(ALICE)
        assert run.answer(message, OPENAI_CHAT) == answered
        assert sorted(run.toolset()) == ["add", "progress"]
        assert run.call("add", {"a": 4, "b": 2}).text == "6"
        assert run.artifacts is not None
        meta = run.artifacts.put(NewArtifact(kind="note", media_type="text/plain", data="x"))
        again = runtime.resume(run.checkpoint())
        assert again.artifacts is not None
        assert again.artifacts.configured
        assert again.artifacts.head(meta.ref) == meta
        assert again.artifacts.get(meta.ref).data == "x"  # type: ignore[union-attr]
        assert [one.ref for one in again.artifacts.list().items] == [meta.ref]
        again.artifacts.delete(meta.ref)
        assert again.artifacts.head(meta.ref) is None
        assert runtime.run_in_trio(lambda here: len(here.config.tools)) == 1
        with pytest.raises(LookupError, match="over there"):
            runtime.run_in_trio(failing)
    assert fakes.left.is_set()
    assert runtime.dispatch(ALICE, "add", {}).code == "pool-closed"
    with pytest.raises(PoolClosed):
        runtime.toolset(ALICE)
    runtime.close()


async def failing(_runtime: Any) -> None:
    await trio.lowlevel.checkpoint()
    raise LookupError("over there")


def test_deadlines_of_threads() -> None:
    clock = MockClock()
    fakes = Fakes({"one": [sleep_tool()]})
    with (
        open_runtime_sync(fakes, trio_options={"clock": clock}) as runtime,
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        toolset = runtime.toolset(ALICE)
        late = [
            pool.submit(toolset.call, "sleep", {"seconds": 50}, timeout=30),
            pool.submit(toolset.call, "sleep", {"seconds": 50}, deadline=time.monotonic() + 30),
        ]
        one = fakes.servers["one"]
        runtime.run_in_trio(lambda _: one.wait_until(lambda: one.count("tools/call") == 2))
        runtime.run_in_trio(lambda _: clock.jump(40))
        for future in late:
            assert future.result(WITHIN).code == "deadline-exceeded"


def test_many_threads_and_several_loops_at_once_on_one_runtime() -> None:
    fakes = Fakes({"one": [echo_tool()]}, {"tools": [add]})
    who: contextvars.ContextVar[Identity | None] = contextvars.ContextVar("who", default=None)

    with open_runtime_sync(fakes) as runtime:

        def thread(number: int) -> None:
            who.set(Identity(tenant=f"t{number}", principal=f"p{number}"))
            toolset = runtime.toolset(who.get)
            for n in range(20):
                assert toolset.call("add", {"a": number, "b": n}).text == str(number + n)
                assert f'"n": {number}' in toolset.call("echo", {"n": number}).text

        def loop(number: int) -> None:
            async def main() -> None:
                both = runtime.asyncio
                assert await asyncio.to_thread(both.blocking.dispatch, None, "add", {"a": 1, "b": 1})

                async def task(n: int) -> None:
                    who.set(Identity(tenant=f"t{n}", principal=f"p{number}"))
                    toolset = await both.toolset(who.get)
                    for m in range(5):
                        assert (await toolset.call("add", {"a": n, "b": m})).text == str(n + m)
                        assert f'"n": {n}' in (await toolset.call("echo", {"n": n})).text

                await asyncio.gather(*(task(n) for n in range(8)))

            in_asyncio(main)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(thread, n) for n in range(4)] + [pool.submit(loop, n) for n in range(4)]
            for job in jobs:
                job.result(WITHIN)


def test_closing_tells_threads_that_wait() -> None:
    stuck = Stuck()
    runtime = open_runtime_sync(tools=[stuck.tool()], pool={"close_timeout": 0.05})
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(runtime.dispatch, None, "stuck")
        assert stuck.began.wait(WITHIN)
        runtime.close()
        result = waiting.result(WITHIN)
    assert (result.code, result.delivery) == ("pool-closed", "in-doubt")
    assert stuck.cancelled.is_set()


def interrupt() -> None:
    """As ^C does: the signal goes to the main thread, which raises when it gets to run."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="^C is the main thread's"
)
def test_an_interrupt_cancels_the_call_and_is_raised_when_it_has_ended() -> None:
    ended = threading.Event()

    @define_tool
    async def interrupted() -> str:
        interrupt()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return "never"

    with open_runtime_sync(tools=[interrupted, add]) as runtime:
        with pytest.raises(KeyboardInterrupt):
            runtime.dispatch(None, "interrupted")
        assert ended.is_set()
        assert runtime.dispatch(None, "add", {"a": 1, "b": 1}).text == "2"


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="^C is the main thread's"
)
def test_a_second_interrupt_waits_no_more() -> None:
    go = trio.Event()

    async def stubborn(_args: Any, _ctx: Any) -> str:
        with trio.CancelScope(shield=True):
            interrupt()
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def again() -> None:
                    # it is withdrawn by now, and the thread waits for its end
                    await withdrawn()
                    interrupt()

                await go.wait()
        return "done"

    with open_runtime_sync(tools=[define_tool(execute=stubborn, name="stubborn")]) as runtime:
        bridge = runtime._handle.bridge

        async def withdrawn() -> None:
            (job,) = bridge._running
            while not job.withdrawn:
                await trio.lowlevel.checkpoint()

        with pytest.raises(KeyboardInterrupt):
            runtime.dispatch(None, "stubborn")
        bridge.tell(go.set)


def test_what_a_progress_callback_raises_beyond_exceptions_ends_the_call() -> None:
    class Stop(BaseException):
        pass

    def stop(_progress: Progress) -> None:
        raise Stop

    fakes = Fakes({"one": [progress_tool()]})
    with open_runtime_sync(fakes) as runtime, pytest.raises(Stop):
        runtime.dispatch(ALICE, "progress", {"steps": 3}, on_progress=stop)


def test_a_thread_that_serves_a_loop_is_refused() -> None:
    with open_runtime_sync(tools=[add]) as runtime:
        said = "runs a loop of asyncio"

        async def main() -> None:
            with pytest.raises(RuntimeError, match=said):
                runtime.dispatch(None, "add", {"a": 1, "b": 1})
            with pytest.raises(RuntimeError, match=said):
                runtime.close()
            with pytest.raises(RuntimeError, match=said):
                open_runtime_sync()

        in_asyncio(main)

        async def other() -> None:
            with pytest.raises(RuntimeError, match="runs a loop of trio"):
                runtime.toolset()

        trio.run(other)
        # from inside the runtime's own thread it would wait for itself
        with pytest.raises(RuntimeError, match="runs a loop of trio"):
            runtime.run_in_trio(lambda _: runtime.dispatch(None, "add"))
        with pytest.raises(RuntimeError, match="no running event loop"):
            trio.run(runtime.asyncio.toolset)


def test_a_runtime_of_asyncio_is_used_from_threads() -> None:
    stuck = Stuck()

    async def main() -> None:
        async with open_aio(tools=[add, stuck.tool()]) as runtime:
            blocking = runtime.blocking
            assert (await asyncio.to_thread(blocking.dispatch, None, "add", {"a": 1, "b": 1})).text == "2"
            waiting = asyncio.create_task(asyncio.to_thread(blocking.dispatch, None, "stuck"))
            await seen(stuck.began)
            await runtime.run_in_trio(lambda _: stuck.go.set())
            assert (await waiting).text == "let go"

    in_asyncio(main)
