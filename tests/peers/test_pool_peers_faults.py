"""Real servers that die under the pool: verdicts are true, nothing runs twice, the bound tool works again."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import (
    AfpoolError,
    ConnectionLost,
    HttpTransport,
    LocalSessionHandleLostError,
    SessionExpiredError,
)
from tests.peers.conftest import HttpPeer, command_of
from tests.peers.pool_peer_kit import (
    ALICE,
    HTTP,
    STDIO,
    Target,
    echo,
    kinds,
    only_client,
    pool_of,
    server_of,
    sleep,
    stdio_of,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from afpool import Pool


class Restartable:
    """An HTTP peer that can die and come back on the same port."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.peer = HttpPeer(name, command_of(name, "http"))
        self.url = self.peer.url

    def kill(self) -> None:
        """Kill it; connections to it break."""
        self.peer.close()

    def start(self) -> None:
        """Start it again: another process, which knows no session."""
        port = self.url.split(":")[2].split("/")[0]
        command = command_of(self.name, "http")
        if self.name == "everything":
            command = attrs.evolve(command, env={**command.env, "PORT": port})
        else:
            command = attrs.evolve(command, argv=(*command.argv[:-1], port))
        self.peer = HttpPeer(self.name, command)
        assert self.peer.url == self.url


@pytest.fixture
def restartable(target: Target) -> Iterator[Restartable]:
    server = Restartable(target.peer)
    with contextlib.closing(server.peer):
        try:
            yield server
        finally:
            server.kill()


async def called(pool: Pool, tools: Any, target: Target, text: str) -> AfpoolError | None:
    """Call once; return the failure."""
    try:
        if target.python:
            result = await tools["append"].call({"text": text}, identity=ALICE)
            assert result.text == "1"  # kept once by this process
        else:
            work = echo(target, text)
            assert await work.by(tools) == work.answer
    except AfpoolError as error:
        return error
    return None


@pytest.mark.parametrize("target", HTTP, ids=str)
async def test_a_restarted_server(target: Target, restartable: Restartable) -> None:
    async with pool_of(server_of(target, HttpTransport(url=restartable.url))) as pool:
        tools = await pool.tools(ALICE)
        first = only_client(pool).id
        assert await called(pool, tools, target, "before") is None
        restartable.kill()
        restartable.start()
        failures: list[AfpoolError] = []
        for number in range(3):
            failure = await called(pool, tools, target, f"after {number}")
            if failure is None:
                break
            failures.append(failure)
        else:
            pytest.fail(f"the tool never worked again: {failures}")
        # what had a session may learn of its end by a refusal; nothing of it ran
        assert len(failures) <= 1
        for failure in failures:
            assert isinstance(failure, SessionExpiredError | ConnectionLost)
            assert failure.delivery in {"refused", "not-sent"}
        if target.stateless:
            assert not failures
            assert only_client(pool).id == first
        else:
            assert only_client(pool).id != first
        if target.python:
            kept = await tools["kept"].call(identity=ALICE)
            assert kept.structured == {"result": [f"after {len(failures)}"]}


@pytest.mark.parametrize("target", HTTP, ids=str)
async def test_a_session_that_the_server_forgot(
    target: Target, restartable: Restartable, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target.stateless:
        return  # there is no session to forget: `test_a_restarted_server` shows that nothing is noticed
    async with pool_of(server_of(target, HttpTransport(url=restartable.url))) as pool:
        tools = await pool.tools(ALICE)
        # without a stream to notice it first, the call itself meets the end of the session
        only_client(pool).listener.stop()
        restartable.kill()
        restartable.start()
        failure = await called(pool, tools, target, "refused")
        assert isinstance(failure, SessionExpiredError), failure
        assert failure.delivery == "refused"
        assert failure.http_status == (400 if target.peer == "everything" else 404)
        assert await called(pool, tools, target, "then") is None
        assert "client-lost" in kinds(pool)


@pytest.mark.parametrize("target", HTTP, ids=str)
async def test_a_server_killed_while_it_works(target: Target, restartable: Restartable) -> None:
    async with pool_of(server_of(target, HttpTransport(url=restartable.url))) as pool:
        tools = await pool.tools(ALICE)
        failures: list[AfpoolError] = []

        async def caller() -> None:
            with pytest.raises(AfpoolError) as caught:
                await sleep(target, 20).by(tools)
            failures.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(caller)
            await until(lambda: sum(call.begun for call in pool.running.values()) == 3)
            restartable.kill()
        assert [type(failure) for failure in failures] == [ConnectionLost] * 3
        assert {failure.delivery for failure in failures} == {"in-doubt"}
        assert len({id(failure) for failure in failures}) == 3
        # while it is gone a call is refused, and nothing was sent
        failure = await called(pool, tools, target, "gone")
        assert failure is not None
        assert failure.delivery == "not-sent"
        assert failure.code in {"connection-lost", "open-failed", "open-backoff"}
        restartable.start()
        with trio.fail_after(20):
            while await called(pool, tools, target, "back"):  # noqa: ASYNC110 -- a process sets no event
                await trio.sleep(0.1)
        assert (pool.settling, pool.statistics().in_flight) == (0, 0)


@pytest.mark.parametrize("target", STDIO, ids=str)
async def test_a_child_killed_while_it_works(target: Target) -> None:
    async with pool_of(server_of(target, stdio_of(target))) as pool:
        tools = await pool.tools(ALICE)
        process = only_client(pool).process
        assert process is not None
        failures: list[AfpoolError] = []

        async def caller() -> None:
            with pytest.raises(AfpoolError) as caught:
                await sleep(target, 20).by(tools)
            failures.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(caller)
            await until(lambda: sum(call.begun for call in pool.running.values()) == 3)
            os.kill(process.pid, signal.SIGKILL)
        assert [type(failure) for failure in failures] == [LocalSessionHandleLostError] * 3
        assert {failure.delivery for failure in failures} == {"in-doubt"}
        # the same bound tool opens another incarnation and goes on by its definition
        assert await called(pool, tools, target, "again") is None
        second = only_client(pool).process
        assert second is not None
        assert second.pid != process.pid


@pytest.mark.parametrize("target", STDIO, ids=str)
async def test_a_child_killed_while_nobody_looks(target: Target) -> None:
    async with pool_of(server_of(target, stdio_of(target))) as pool:
        tools = await pool.tools(ALICE)
        process = only_client(pool).process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: "client-lost" in kinds(pool))
        assert await called(pool, tools, target, "again") is None
        assert pool.statistics().opened == 2


async def test_a_dead_server_costs_the_others_nothing() -> None:
    import afpool

    with contextlib.closing(HttpPeer("mcp2", command_of("mcp2", "http"))) as dying:
        steady, mortal = Target("everything", "stdio"), Target("mcp2", "http")
        servers = [
            attrs.evolve(server_of(steady, stdio_of(steady)), name="steady"),
            attrs.evolve(server_of(mortal, HttpTransport(url=dying.url)), name="mortal"),
        ]
        with trio.fail_after(60):
            async with afpool.open_pool(servers, close_timeout=2.0) as pool:
                tools = await pool.tools(ALICE)
                async with trio.open_nursery() as nursery:
                    failed: list[AfpoolError] = []

                    async def victim() -> None:
                        with pytest.raises(ConnectionLost) as caught:
                            await tools["sleep"].call({"seconds": 20}, identity=ALICE)
                        failed.append(caught.value)

                    nursery.start_soon(victim)
                    await until(lambda: any(call.begun for call in pool.running.values()))
                    dying.kill()
                    for number in range(20):
                        work = attrs.evolve(echo(steady, f"{number}"), tool="steady__echo")
                        assert await work.by(tools) == work.answer
                assert [failure.delivery for failure in failed] == ["in-doubt"]
                assert list((await pool.refresh(ALICE)).problems) == ["mortal"]
