"""One connection is cut: what it costs its own call, and what nobody else may notice."""

from __future__ import annotations

import contextlib
import gc
import random
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

import afpool
from afpool import AfpoolError, HttpTransport, Plan, Server, TlsConfig, WebSocketTransport
from afpool.testing import FakeServer, FakeTool, echo_tool
from tests.pool.kit import ALICE, BOB, quiet, refused, start, until
from tests.realfaults.proxy import Fault, Passage, Proxy
from tests.realfaults.running import descriptors, tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE = 20.0
WORK = 0.35


@contextlib.asynccontextmanager
async def place(way: str, era: Any = "handshake") -> AsyncIterator[tuple[FakeServer, Proxy, afpool.Pool]]:
    """A server, the proxy in front of it, and a pool that goes by the proxy."""
    tools = [FakeTool("work", delay=WORK), echo_tool()]
    secure = way in {"tls", "wss"}
    options: dict[str, Any] = {"ssl_context": tls()[0]} if secure else {}
    if way in {"ws", "wss"}:
        fake = FakeServer.ws(era=era, tools=tools, **options)
    else:
        fake = FakeServer.http(era=era, tools=tools, answer="sse" if way == "sse" else "json", **options)
    async with fake as server, Proxy(server.port) as proxy:
        url = server.url.replace(f":{server.port}", f":{proxy.port}")
        config = tls()[1] if secure else TlsConfig()
        kind: Any = WebSocketTransport if way in {"ws", "wss"} else HttpTransport
        plan = Plan(transport=kind(url=url, tls=config))
        async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
            yield server, proxy, pool


def carrier(server: FakeServer, proxy: Proxy, n: int) -> Passage:
    """The connection on which a call came, by the server's own log."""
    number = next(each.connection for each in server.arrivals("tools/call") if each.arguments["n"] == n)
    return next(each for each in proxy.passages if each.number == number)


CUTS = {
    "fin": Fault("fin", after=0.0),
    "rst": Fault("rst", after=0.0),
    "down": Fault("half-close", "down", after=0.0),
    "up": Fault("half-close", "up", after=0.0),
}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("way", ["json", "sse", "tls"])
async def test_over_http_the_siblings_of_a_cut_call_are_answered(way: str, cut: str, era: str):
    with trio.fail_after(PATIENCE):
        async with place(way, era) as (server, proxy, pool), trio.open_nursery() as nursery:
            tool = (await pool.tools(ALICE))["work"]
            actor = pool._existing(pool.key_of(ALICE, "files"))
            before = actor.machine.client.id
            calls = [start(nursery, lambda n=n: tool.call({"n": n}, identity=ALICE)) for n in range(4)]
            await server.wait_for("tools/call", 4)
            strike(carrier(server, proxy, 2), CUTS[cut])
            for n, call in enumerate(calls):
                with trio.fail_after(5):
                    await call.done.wait()
                if n == 2:
                    assert call.error is not None
                    assert (call.error.code, call.error.delivery) == ("connection-lost", "in-doubt")
                else:
                    assert call.error is None
                    assert call.value.text == f'{{"n": {n}}}'
            assert actor.machine.client.id == before
            assert (await tool.call({"n": 9}, identity=ALICE)).text == '{"n": 9}'
            assert server.executions["work"] == 5
            quiet(pool)


def strike(passage: Passage, fault: Fault) -> None:
    """Let a fault fall on a connection now."""
    assert passage.strike is not None
    passage.strike(fault)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("way", ["ws", "wss"])
async def test_over_a_websocket_a_cut_is_its_own_keys(way: str, cut: str):
    with trio.fail_after(PATIENCE):
        async with place(way) as (server, proxy, pool), trio.open_nursery() as nursery:
            tools = {who: (await pool.tools(who))["work"] for who in (ALICE, BOB)}
            calls = [
                start(nursery, lambda n=n, who=who: tools[who].call({"n": n}, identity=who))
                for n, who in enumerate((ALICE, ALICE, BOB, BOB))
            ]
            await server.wait_for("tools/call", 4)
            strike(carrier(server, proxy, 0), CUTS[cut])
            for n, call in enumerate(calls):
                with trio.fail_after(5):
                    await call.done.wait()
                if n < 2:
                    assert call.error is not None
                    assert (call.error.code, call.error.delivery) == ("session-handle-lost", "in-doubt")
                else:
                    assert call.error is None
                    assert call.value.text == f'{{"n": {n}}}'
            assert (await tools[ALICE].call({"n": 9}, identity=ALICE)).text == '{"n": 9}'
            assert server.executions["work"] == 5
            quiet(pool)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("way", ["json", "tls"])
async def test_a_server_that_closes_as_we_send(way: str, reset: bool):
    """The oldest race of kept connections, many times: whatever is said of it is true."""
    chance = random.Random(7)
    said: dict[int, str] = {}
    with trio.fail_after(PATIENCE):
        async with place(way) as (server, _, pool):
            tool = (await pool.tools(ALICE))["echo"]

            async def call(n: int) -> None:
                for _ in range(chance.randint(0, 12)):
                    await trio.lowlevel.checkpoint()
                try:
                    await tool.call({"n": n}, identity=ALICE)
                except AfpoolError as error:
                    said[n] = f"{error.code} {error.delivery}"
                else:
                    said[n] = "answered"

            async def close() -> None:
                for _ in range(chance.randint(0, 12)):
                    await trio.lowlevel.checkpoint()
                if reset:
                    for connection in [each for each in server._open if each.idle]:
                        connection.close(reset=True)
                else:
                    server.close_idle_connections()

            for n in range(150):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call, n)
                    nursery.start_soon(close)
            runs = [run.arguments["n"] for run in server.executed]
            assert len(runs) == len(set(runs))
            for n, delivery in said.items():
                assert delivery in {"answered", "connection-lost in-doubt", "connection-lost not-sent"}
                assert delivery != "answered" or n in runs
                assert delivery != "connection-lost not-sent" or n not in runs
            assert list(said.values()).count("answered") > 50
            await tool.call({"n": 1000}, identity=ALICE)
            quiet(pool)


async def test_nobody_listens_and_then_somebody_does():
    with trio.fail_after(PATIENCE):
        async with place("json") as (server, proxy, pool):
            tool = (await pool.tools(ALICE))["echo"]
            for _ in range(3):
                proxy.go_away()
                server.close_connections()
                await until(lambda: server.connections == 0)
                await trio.testing.wait_all_tasks_blocked(0.05)  # the end is carried through the proxy
                await refused(tool.call({"n": 1}, identity=ALICE), "connection-lost", "not-sent")
                await proxy.come_back()
                assert (await tool.call({"n": 2}, identity=ALICE)).text == '{"n": 2}'
            assert server.executions["echo"] == 3
            quiet(pool)


async def test_a_full_accept_queue_costs_a_deadline_and_no_descriptor():
    """Who connects is taken by the kernel, or left waiting by it, while the server accepts nobody."""
    with trio.fail_after(PATIENCE):
        async with FakeServer.http(tools=[echo_tool()]) as server, Proxy(server.port, backlog=1) as proxy:
            url = server.url.replace(f":{server.port}", f":{proxy.port}")
            limits = {"open_timeout": 0.4, "backoff": 0.01, "backoff_max": 0.01}
            plan = Plan(transport=HttpTransport(url=url))
            gc.collect()
            async with afpool.open_pool([Server(name="files", plan=plan)], **limits) as pool:
                proxy.hold()
                await trio.lowlevel.checkpoint()
                before = descriptors()
                people = [ALICE, BOB, *(afpool.Identity(principal=f"p{n}") for n in range(6))]
                async with trio.open_nursery() as nursery:
                    for who in people:
                        nursery.start_soon(refused, pool.tools(who), "open-failed")
                assert descriptors() <= before + 2  # one may have been taken as it was held, and carried on
                proxy.take()
                await trio.sleep(0.05)
                for who in people:
                    tool = (await pool.tools(who))["echo"]
                    await tool.call({"n": 1}, identity=who)
                quiet(pool)
