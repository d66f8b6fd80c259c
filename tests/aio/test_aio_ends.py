"""Ends, from both sides: cancelled tasks, runtimes that close, loops that are gone, forgotten ones, forks."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool import PoolClosed, RuntimeConfig
from afpool.aio import open_runtime as open_aio
from afpool.aio import open_runtime_sync
from afpool.aio._exits import close_all
from afpool.aio._jobs import Job
from afpool.aio._places import ThreadPlace
from afpool.aio._steps import nothing
from afpool.testing import Hang, echo_tool
from tests.aio.aio_kit import ALICE, WITHIN, Fakes, Stuck, add, arrived, in_asyncio, seen

ROOT = Path(__file__).resolve().parents[2]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("afpool")}


def test_a_cancelled_task_cancels_its_call_and_the_engine_settles_it() -> None:
    uses: list[Any] = []
    fakes = Fakes({"one": [echo_tool()]}, {"on_use": uses.append})

    async def main() -> None:
        async with open_aio(fakes) as runtime:
            toolset = await runtime.toolset(ALICE)
            one = fakes.servers["one"]
            one.on("tools/call", Hang(), times=1)
            call = asyncio.create_task(toolset.call("echo", {"n": 1}))
            await arrived(runtime, fakes, 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            # it has ended over there before it is raised here
            assert [(use.outcome, use.delivery) for use in uses] == [("cancelled", "in-doubt")]
            assert (await toolset.call("echo", {"n": 2})).code == "ok"

    in_asyncio(main)


def test_timeouts_of_asyncio_are_cancellations() -> None:
    stuck = Stuck()

    async def main() -> None:
        async with open_aio(tools=[stuck.tool()]) as runtime:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await runtime.dispatch(None, "stuck")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(runtime.dispatch(None, "stuck"), 0.01)
            assert stuck.cancelled.is_set() or stuck.runs == 0

    in_asyncio(main)


def test_whoever_is_cancelled_twice_waits_no_more() -> None:
    began, go = threading.Event(), trio.Event()

    async def stubborn(_args: Any, _ctx: Any) -> str:
        with trio.CancelScope(shield=True):
            began.set()
            await go.wait()
        return "done"

    from afpool import define_tool

    async def main() -> None:
        async with open_aio(tools=[define_tool(execute=stubborn, name="stubborn")]) as runtime:
            call = asyncio.create_task(runtime.dispatch(None, "stubborn"))
            await seen(began)
            call.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not call.done(), "the first waits until it has ended"
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await runtime.run_in_trio(lambda _: go.set())

    in_asyncio(main)


def test_a_call_that_is_cancelled_before_it_crossed_never_begins() -> None:
    stuck = Stuck()
    held = threading.Event()

    async def main() -> None:
        async with open_aio(tools=[stuck.tool()]) as runtime:
            blocked = asyncio.create_task(runtime.run_in_trio(lambda _: held.wait(WITHIN)))
            call = asyncio.create_task(runtime.dispatch(None, "stuck"))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.sleep(0)
            held.set()
            with pytest.raises(asyncio.CancelledError):
                await call
            await blocked
            assert stuck.runs == 0

    in_asyncio(main)


def test_closing_tells_whoever_still_waits() -> None:
    stuck = Stuck()
    fakes = Fakes({"one": [echo_tool()]}, {"tools": [stuck.tool()], "pool": {"close_timeout": 0.05}})

    async def main() -> None:
        async with open_aio(fakes) as runtime:
            toolset = await runtime.toolset(ALICE)
            fakes.servers["one"].on("tools/call", Hang(), times=1)
            local = asyncio.create_task(toolset.call("stuck"))
            remote = asyncio.create_task(toolset.call("echo", {}))
            await seen(stuck.began)
            await arrived(runtime, fakes, 1)
            await runtime.aclose()
            for task in (local, remote):
                result = await task
                assert result.is_error
                assert (result.code, result.delivery) == ("pool-closed", "in-doubt")
            assert stuck.cancelled.is_set()
        assert threads() == set()

    in_asyncio(main)


def test_calls_that_end_in_time_end_well_while_it_closes() -> None:
    stuck = Stuck()

    async def main() -> None:
        async with open_aio(tools=[stuck.tool()]) as runtime:
            call = asyncio.create_task(runtime.dispatch(None, "stuck"))
            await seen(stuck.began)
            closing = asyncio.create_task(runtime.aclose())
            await asyncio.sleep(0)
            late = await runtime.dispatch(None, "stuck")
            assert (late.code, late.delivery) == ("pool-closed", "not-sent")
            with pytest.raises(PoolClosed, match="nothing was sent"):
                await runtime.run_in_trio(print)
            # as a tool's own server would: from the runtime's thread, where nothing else is taken any more
            runtime._handle.bridge.tell(stuck.go.set)
            assert (await call).text == "let go"
            await closing

    in_asyncio(main)


def test_a_cancelled_close_closes_first() -> None:
    stuck = Stuck()

    async def main() -> None:
        async with open_aio(tools=[stuck.tool()]) as runtime:
            call = asyncio.create_task(runtime.dispatch(None, "stuck"))
            await seen(stuck.began)
            closing = asyncio.create_task(runtime.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.sleep(0)
            assert not closing.done()
            runtime._handle.bridge.tell(stuck.go.set)
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert (await call).text == "let go"
            assert runtime._handle.bridge.gone

    in_asyncio(main)


def test_whoever_opens_and_is_cancelled_leaves_nothing() -> None:
    import contextlib

    entered = threading.Event()

    @contextlib.asynccontextmanager
    async def hanging() -> Any:
        entered.set()
        await trio.sleep_forever()
        yield RuntimeConfig()

    async def main() -> None:
        async def opening() -> None:
            async with open_aio(hanging):
                pytest.fail("not reached")

        task = asyncio.create_task(opening())
        await seen(entered)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for thread in threading.enumerate():
            if thread.name == "afpool-runtime":
                thread.join(WITHIN)
        assert threads() == set()

    in_asyncio(main)


def test_whatever_is_opened_beside_it_and_fails_to_close_is_told_once() -> None:
    import contextlib

    @contextlib.asynccontextmanager
    async def failing() -> Any:
        yield RuntimeConfig(tools=[add])
        raise OSError("the store would not close")

    runtime = open_runtime_sync(failing)
    with pytest.raises(OSError, match="would not close"):
        runtime.close()
    runtime.close()


def test_trio_itself_failing_is_told_to_everybody() -> None:
    stuck = Stuck()

    def broken() -> None:
        raise RuntimeError("no word raises, but this one")

    async def broken_under_it() -> None:
        async with open_aio(tools=[stuck.tool()]) as runtime:
            call = asyncio.create_task(runtime.dispatch(None, "stuck"))
            await seen(stuck.began)
            # one that trio, broken as it is, does not even unwind
            place = ThreadPlace()
            job = Job(nothing, place)
            runtime._handle.bridge._running[job] = None
            runtime._handle.bridge.tell(broken)
            result = await call
            await asyncio.to_thread(place.take)
            assert job.outcome is not None
            with pytest.raises(PoolClosed, match="may take effect"):
                job.outcome.unwrap()
            assert (result.code, result.delivery) == ("pool-closed", "in-doubt")
            with pytest.raises(PoolClosed):
                await runtime.toolset()

    async def main() -> None:
        with pytest.raises(trio.TrioInternalError):
            await broken_under_it()

    in_asyncio(main)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forgotten_runtime_is_closed_when_it_is_collected() -> None:
    runtime = open_runtime_sync(tools=[add])
    bridge = runtime._handle.bridge
    toolset = runtime.toolset()
    del runtime
    gc.collect()
    assert toolset.call("add", {"a": 1, "b": 1}).text == "2", "a toolset holds it"
    del toolset
    gc.collect()
    bridge.join(WITHIN)
    assert bridge.gone


def test_a_forgotten_runtime_says_so() -> None:
    runtime = open_runtime_sync(tools=[add])
    bridge = runtime._handle.bridge
    finalizer = runtime._handle._forgotten
    with pytest.warns(ResourceWarning, match="never closed"):
        finalizer()
    bridge.join(WITHIN)
    assert bridge.gone
    runtime.close()


def test_what_was_listed_is_let_go_of_in_the_runtimes_thread() -> None:
    import weakref

    where: list[int] = []
    gone = threading.Event()

    def note() -> None:
        where.append(threading.get_ident())
        gone.set()

    with open_runtime_sync(tools=[add]) as runtime:
        toolset = runtime.toolset(ALICE)
        weakref.finalize(toolset._inner, note)
        home = runtime.run_in_trio(lambda _: threading.get_ident())
        del toolset
        gc.collect()
        assert gone.wait(WITHIN)
        assert where == [home]


def test_the_end_of_the_interpreter_closes_what_is_open(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
        import asyncio, sys, threading, trio
        from afpool import Identity, Plan, Server, StdioTransport, define_tool
        from afpool.aio import open_runtime, open_runtime_sync

        PLAN = Plan(transport=StdioTransport.of(sys.executable, "-m", "afpool.testing", "stdio"))
        began = threading.Event()

        @define_tool
        async def forever() -> str:
            began.set()
            try:
                await trio.sleep_forever()
            finally:
                print("cancelled", flush=True)

        who = Identity(principal="p")
        options = dict(servers=[Server(name="s", plan=PLAN)], tools=[forever], pool={"close_timeout": 0.2})
        forgotten = open_runtime_sync(**options)
        print(forgotten.dispatch(who, "echo", {}).code, flush=True)
        threading.Thread(target=lambda: print(forgotten.dispatch(who, "forever").code), daemon=True).start()
        began.wait(30)

        async def main():
            opened = open_runtime(**options)
            runtime = await opened.__aenter__()
            print((await runtime.dispatch(who, "echo", {})).code, flush=True)
            return opened

        loop = asyncio.new_event_loop()  # closed with a runtime open in it
        kept = loop.run_until_complete(main())
        loop.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=WITHIN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["ok", "ok", "cancelled"]
    assert "Traceback" not in done.stderr


def test_closing_everything_that_is_open() -> None:
    runtimes = [open_runtime_sync(tools=[add]) for _ in range(3)]
    close_all()
    assert all(runtime._handle.bridge.gone for runtime in runtimes)
    for runtime in runtimes:
        runtime.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_child_of_a_fork_is_refused_and_does_not_hang() -> None:
    with open_runtime_sync(tools=[add]) as runtime:
        assert runtime.dispatch(None, "add", {"a": 1, "b": 1}).text == "2"
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, runtime.dispatch(None, "add", {}).code.encode())
                runtime.close()
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"pool-closed"
        assert os.waitpid(child, 0)[1] == 0
        assert runtime.dispatch(None, "add", {"a": 2, "b": 1}).text == "3", "the parent goes on"


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(["call", "cancel", "twice", "turn", "close", "let go"]), min_size=1, max_size=14)
)
def test_nobody_waits_for_ever_whatever_happens_when(steps: list[str]) -> None:
    async def main() -> None:
        stuck = Stuck()
        options = {"tools": [stuck.tool(), add]}
        async with asyncio.timeout(WITHIN), open_aio(**options) as runtime:
            calls: list[asyncio.Task[Any]] = []
            closing: list[asyncio.Task[Any]] = []
            for number, step in enumerate(steps):
                if step == "call":
                    name, args = ("stuck", {}) if number % 2 else ("add", {"a": 1, "b": 1})
                    calls.append(asyncio.create_task(runtime.dispatch(None, name, args)))
                elif step in ("cancel", "twice") and calls:
                    calls[number % len(calls)].cancel()
                    if step == "twice":
                        await asyncio.sleep(0)
                        calls[number % len(calls)].cancel()
                elif step == "turn":
                    await asyncio.sleep(0)
                elif step == "close":
                    closing.append(asyncio.create_task(runtime.aclose()))
                elif step == "let go":
                    runtime._handle.bridge.tell(stuck.go.set)
            await asyncio.sleep(0)
            runtime._handle.bridge.tell(stuck.go.set)
            for task in calls:
                try:
                    result = await task
                except asyncio.CancelledError:
                    assert task.cancelled()
                else:
                    assert result.code in ("ok", "pool-closed")
            await asyncio.gather(*closing)

    asyncio.run(main())
