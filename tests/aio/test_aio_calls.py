"""The runtime as asyncio sees it: lists, calls, progress, contexts, deadlines, exceptions as themselves."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from afpool import Identity, PoolClosed, Progress, define_tool, open_runtime
from afpool.aio import AsyncRuntime
from afpool.aio import open_runtime as open_aio
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.testing import echo_tool, progress_tool, sleep_tool, whoami_tool
from afpool.tools import ANTHROPIC, OPENAI_CHAT, Hook
from tests.aio.aio_kit import ALICE, BOB, Fakes, add, arrived, in_asyncio


def test_lists_and_calls_are_those_of_the_runtime() -> None:
    config = {"tools": [add]}

    async def here() -> Any:
        async with open_runtime(**config) as runtime:
            toolset = await runtime.toolset(ALICE)
            wrong = await toolset.call("add", {"a": 1})
            return ANTHROPIC.tools(toolset), OPENAI_CHAT.tools(toolset), (wrong.code, wrong.text)

    async def across() -> Any:
        async with open_aio(**config) as runtime:
            toolset = await runtime.toolset(ALICE)
            tool = toolset["add"]
            assert list(toolset) == ["add"]
            assert len(toolset) == 1
            assert "add" in toolset
            assert "sub" not in toolset
            assert tool is toolset["add"]
            assert (tool.name, tool.description, tool.source) == ("add", "Add two numbers.", None)
            assert tool.input_schema["required"] == ["a", "b"]
            assert (await tool.call({"a": 1, "b": 2})).structured is None
            assert (await toolset.call("add", {"a": 1, "b": 2}, call_id="c1")).call_id == "c1"
            assert (await runtime.dispatch(ALICE, "add", {"a": 2, "b": 2})).text == "4"
            with pytest.raises(TypeError, match="called with `call`"):
                tool.execute({}, None)  # type: ignore[arg-type]
            with pytest.raises(KeyError):
                toolset["sub"]
            wrong = await toolset.call("add", {"a": 1})
            return ANTHROPIC.tools(toolset), OPENAI_CHAT.tools(toolset), (wrong.code, wrong.text)

    assert in_asyncio(across) == trio.run(here)


def test_servers_are_opened_and_left_on_trios_side() -> None:
    fakes = Fakes({"one": [echo_tool("a")], "two": [echo_tool("b")]})

    async def main() -> None:
        async with open_aio(fakes) as runtime:
            toolset = await runtime.toolset(ALICE)
            assert sorted(toolset) == ["a", "b"]
            assert toolset.problems == {}
            assert toolset["a"].source == "one"
            assert json.loads((await toolset.call("b", {"n": 1})).text) == {"n": 1}
            # whose it is, is asked at the door as always
            found = await runtime.dispatch(Identity(), "a", {})
            assert (found.code, found.delivery) == ("unknown-tool", "not-sent")
        assert fakes.left.is_set()

    in_asyncio(main)


def test_progress_comes_in_the_callers_loop_and_context_before_the_result() -> None:
    fakes = Fakes({"one": [progress_tool()]})
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose")
    told: list[Any] = []

    def note(progress: Progress) -> None:
        told.append((progress.progress, progress.message, whose.get(), threading.get_ident()))
        if progress.progress == 2:
            raise ValueError("costs this one report")

    async def main() -> None:
        async with open_aio(fakes) as runtime:
            whose.set("mine")
            result = await runtime.dispatch(ALICE, "progress", {"steps": 3}, on_progress=note)
            assert result.text == "did 3 steps"
            here = threading.get_ident()
            assert told == [(n, f"step {n}", "mine", here) for n in (1, 2, 3)]

            async def asynchronous(_progress: Progress) -> None: ...

            with pytest.raises(TypeError, match="no coroutine function"):
                await runtime.dispatch(ALICE, "progress", {}, on_progress=asynchronous)

    in_asyncio(main)


def test_the_callers_context_is_what_hooks_tools_signers_and_identities_see() -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="nobody's")
    seen: list[tuple[str, str]] = []

    @define_tool
    async def traced() -> str:
        await trio.lowlevel.checkpoint()
        mine = trace.get()
        trace.set("changed by the tool")
        return mine

    class Signer:
        async def sign(self, request: Any) -> dict[str, str]:
            await trio.lowlevel.checkpoint()
            return {"traceparent": trace.get()}

    def hook(call: Any) -> None:
        seen.append(("hook", trace.get()))

    def who() -> Identity:
        seen.append(("identity", trace.get()))
        return ALICE

    fakes = Fakes(
        {"one": [whoami_tool(headers=["traceparent"])]},
        {"tools": [traced], "hooks": [Hook("see", before=hook)], "signer": Signer()},
    )

    async def main() -> None:
        async with open_aio(fakes) as runtime:

            async def one(name: str) -> None:
                trace.set(name)
                result = await runtime.dispatch(who, "traced")
                assert result.text == name
                assert trace.get() == name, "what a call sets is its own"
                assert f"{name}" in (await runtime.dispatch(who, "whoami")).text

            await asyncio.gather(*(one(f"trace-{n}") for n in range(8)))
            names = {f"trace-{n}" for n in range(8)}
            assert {name for kind, name in seen if kind == "hook"} == names
            assert {name for kind, name in seen if kind == "identity"} == names

    in_asyncio(main)


def test_a_deadline_is_on_the_callers_clock_and_over_everything() -> None:
    clock = MockClock()
    fakes = Fakes({"one": [sleep_tool()]})

    async def main() -> None:
        async with open_aio(fakes, trio_options={"clock": clock}) as runtime:
            toolset = await runtime.toolset(ALICE)
            loop = asyncio.get_running_loop()
            late = [
                asyncio.create_task(toolset.call("sleep", {"seconds": 50}, timeout=30)),
                asyncio.create_task(toolset.call("sleep", {"seconds": 50}, deadline=loop.time() + 30)),
                asyncio.create_task(
                    toolset["sleep"].call({"seconds": 50}, timeout=90, deadline=loop.time() + 30)
                ),
                asyncio.create_task(
                    toolset.call("sleep", {"seconds": 50}, timeout=30, deadline=loop.time() + 90)
                ),
            ]
            in_time = asyncio.create_task(toolset.call("sleep", {"seconds": 50}, timeout=55))
            await arrived(runtime, fakes, 5)
            await runtime.run_in_trio(lambda _: clock.jump(40))
            for task in late:
                result = await task
                assert (result.code, result.delivery) == ("deadline-exceeded", "in-doubt")
            await runtime.run_in_trio(lambda _: clock.jump(12))
            assert (await in_time).text == "slept 50"
            gone = await toolset.call("sleep", {"seconds": 1}, timeout=-1)
            assert (gone.code, gone.delivery) == ("deadline-exceeded", "not-sent")

    in_asyncio(main)


def test_runs_go_on_elsewhere_and_have_their_artifacts() -> None:
    config = {"tools": [add], "artifacts": MemoryArtifacts(), "secret": b"0" * 32}

    async def main() -> None:
        async with open_aio(**config) as runtime:
            run = runtime.run(ALICE, "run-1")
            toolset = await run.toolset()
            assert list(toolset) == ["add"]
            assert (await run.call("add", {"a": 1, "b": 1})).text == "2"
            assert run.artifacts is not None
            assert run.artifacts.configured
            meta = await run.artifacts.put(NewArtifact(kind="note", media_type="text/plain", data="hello"))
            saved = json.dumps(run.checkpoint())
            again = runtime.resume(saved)
            assert (again.run_id, again.identity, again.scope) == ("run-1", ALICE, ALICE)
            assert again.artifacts is not None
            assert (await again.artifacts.head(meta.ref)) == meta
            got = await again.artifacts.get(meta.ref)
            assert got is not None
            assert got.data == "hello"
            assert [one.ref for one in (await again.artifacts.list(kind="note")).items] == [meta.ref]
            await again.artifacts.delete(meta.ref)
            assert await again.artifacts.get(meta.ref) is None
            with pytest.raises(ValueError, match="proof does not hold"):
                runtime.resume(saved.replace("alice", "bobby"))
            with pytest.raises(ValueError, match="a run's id"):
                runtime.run(ALICE, "")
        assert run.checkpoint() == json.loads(saved), "a run can be paused when all is closed"

    in_asyncio(main)


def test_the_calls_of_a_models_answer_cross_over_together() -> None:
    message = {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": f"t{n}", "name": "add", "input": {"a": n, "b": n}} for n in range(3)
        ],
    }

    async def main() -> None:
        async with open_aio(tools=[add]) as runtime:
            toolset = await runtime.toolset(ALICE)
            (said,) = await toolset.answer(message, ANTHROPIC, at_once=3)
            assert [block["content"] for block in said["content"]] == ["0", "2", "4"]
            assert await runtime.run(ALICE).answer(message, ANTHROPIC) == [said]
            with pytest.raises(ValueError, match="at_once"):
                await toolset.answer(message, ANTHROPIC, at_once=0)

    in_asyncio(main)


class Odd(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize("error", [LookupError("x"), StopIteration(1), StopAsyncIteration(), Odd("odd")])
def test_what_is_raised_over_there_is_raised_here_as_itself(error: BaseException) -> None:
    def at_once(_runtime: Any) -> None:
        raise error

    async def main() -> None:
        async with open_aio(tools=[add]) as runtime:
            with pytest.raises(BaseException) as caught:  # noqa: PT011 -- any of them
                await runtime.run_in_trio(at_once)
            # a coroutine that raises StopIteration raises RuntimeError, here as anywhere
            assert caught.value is error or caught.value.__cause__ is error
            assert (await runtime.dispatch(None, "add", {"a": 1, "b": 1})).text == "2", "and nothing ended"

    in_asyncio(main)


def test_whatever_has_no_method_is_done_in_the_runtimes_thread() -> None:
    fakes = Fakes({"one": [echo_tool()]})

    async def statistics(runtime: Any, more: int) -> tuple[int, int]:
        await trio.lowlevel.checkpoint()
        return runtime.pool.statistics().calls, more

    async def main() -> None:
        async with open_aio(fakes) as runtime:
            toolset = await runtime.toolset(ALICE)
            assert await runtime.run_in_trio(lambda here: len(here.config.servers)) == 1
            assert (await toolset.call("echo", {})).code == "ok"
            hit = await runtime.run_in_trio(lambda here: here.pool.invalidate(identity=ALICE))
            assert hit == 1
            assert (await toolset.call("echo", {})).code == "binding-changed"

    in_asyncio(main)


def test_a_wrong_configuration_is_refused_as_itself_and_an_exception_of_the_block_leaves_as_itself() -> None:
    async def wrong() -> None:
        with pytest.raises(ValueError, match="two tools"):
            async with open_aio(tools=[add, add]):
                pytest.fail("not reached")
        with pytest.raises(TypeError):
            async with open_aio(nonsense=1):
                pytest.fail("not reached")
        with pytest.raises(LookupError, match="mine"):
            async with open_aio(tools=[add]):
                raise LookupError("mine")

    in_asyncio(wrong)


def test_a_closed_runtime_refuses_and_closing_is_idempotent() -> None:
    async def main() -> AsyncRuntime:
        async with open_aio(tools=[add]) as runtime:
            toolset = await runtime.toolset()
            await runtime.aclose()
            await runtime.aclose()
            result = await toolset.call("add", {"a": 1, "b": 1}, call_id="c9")
            assert (result.code, result.delivery, result.call_id) == ("pool-closed", "not-sent", "c9")
            with pytest.raises(PoolClosed):
                result.raise_for_error()
            with pytest.raises(PoolClosed, match="nothing was sent"):
                await runtime.toolset()
            with pytest.raises(PoolClosed):
                await runtime.run_in_trio(print)
        return runtime

    runtime = in_asyncio(main)

    async def later() -> None:
        assert (await runtime.dispatch(BOB, "add", {})).code == "pool-closed"
        await runtime.aclose()

    in_asyncio(later)
