"""HTTP+SSE with all that rides on it: questions, subscriptions, credentials, one place, and every end."""

from __future__ import annotations

import contextlib

import pytest
import trio

import afpool
from afpool import CredentialRequirement, HttpTransport, Server
from afpool.testing import FakeServer, FakeTool, Status, ask_tool, echo_tool
from tests.pool.bound_kit import NOTES, furnish
from tests.pool.kit import ALICE, Hold, Host, World, quiet, refused, start, until
from tests.pool.test_server_requests import FORM, Desk, said


@contextlib.asynccontextmanager
async def sse(*, tools=None, requests=None, credential=False, **pool):
    tools = [echo_tool()] if tools is None else tools
    async with FakeServer.http(tools=tools, streaming="sse", path="/sse") as fake:
        furnish(fake.offers)
        host = Host(lambda _, __: HttpTransport(url=fake.url, streaming="sse"))
        host.requests = requests
        if credential:
            host.credential = CredentialRequirement("files")
        async with afpool.open_pool(
            [Server(name="files")], plan=host.plan, credentials=host, **pool
        ) as opened:
            yield World(fake, host, opened)


async def test_a_question_on_the_stream_is_answered_by_a_post_while_its_call_has_the_only_place():
    desk = Desk()
    async with sse(tools=[ask_tool()], requests=desk.offers(), max_operations=1) as w:
        tool = await w.tool(name="ask")
        for n in range(3):
            with trio.fail_after(5):
                result = await tool.call({"params": FORM}, identity=ALICE, call_id=f"c{n}")
            assert said(result)["result"]["action"] == "accept"
        assert desk.calls == ["c0", "c1", "c2"]
        assert {arrival.target.partition("?")[0] for arrival in w.server.arrivals("response")} == {
            "/messages/"
        }
        quiet(w.pool)


async def test_of_two_calls_on_one_stream_none_is_asked():
    desk = Desk()
    waiting = trio.Event()

    async def slow(arguments, arrival):
        await waiting.wait()
        return "done"

    async with sse(tools=[FakeTool("slow", slow), ask_tool()], requests=desk.offers()) as w:
        slow_tool, ask = await w.tool(name="slow"), await w.tool(name="ask")
        async with trio.open_nursery() as nursery:
            other = start(nursery, lambda: slow_tool.call(identity=ALICE))
            await w.server.wait_for("tools/call")
            await ask.call({"params": FORM}, identity=ALICE)
            assert desk.calls == [None]
            waiting.set()
            await other.answer()


async def test_every_request_of_it_carries_the_credential_and_a_401_is_followed_once_each():
    desk = Desk()
    async with sse(tools=[ask_tool()], requests=desk.offers(), credential=True) as w:
        w.server.on("GET", Status(401), times=1)
        w.server.on("response", Status(401), times=1)
        w.server.on("tools/call", Status(401), times=1)
        tool = await w.tool(name="ask")
        with trio.fail_after(5):
            result = await tool.call({"params": FORM}, identity=ALICE)
        assert said(result)["result"]["action"] == "accept"
        assert {arrival.headers.get("authorization") for arrival in w.server.log} == {"Bearer token"}
        assert [request.reason for request in w.host.asked].count("refresh") == 3
        assert [w.server.count(name) for name in ("GET", "response", "tools/call")] == [2, 2, 2]


async def test_updates_come_on_the_stream_and_a_new_stream_tells_of_a_gap():
    async with sse() as w:
        server = await w.pool.bind(ALICE, "files")
        async with await server.subscribe(NOTES, identity=ALICE) as changes:
            await until(lambda: w.server.engine.streams.broadcast(
                "notifications/resources/updated", {"uri": NOTES}) == 1)  # fmt: skip
            with trio.fail_after(5):
                assert (await anext(changes)).uri == NOTES
                w.server.close_connections(reset=True)
                assert (await anext(changes)).gap
        assert w.server.count("resources/subscribe") == 2
        assert w.server.count("GET") == 2


@pytest.mark.parametrize("how", ["evict", "drain", "kill", "close", "loss"])
async def test_whatever_ends_it_no_task_and_no_connection_is_left(how):
    desk = Desk()
    desk.hold = Hold()
    async with sse(tools=[ask_tool(cancellable=False)], requests=desk.offers(), close_timeout=1.0) as w:
        tool = await w.tool(name="ask")
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE))
            await desk.hold.reached.wait()
            key = w.pool.key_of(ALICE, "files")
            client = w.pool.actors()[0].machine.client.id
            with trio.fail_after(20):
                if how == "evict":
                    w.pool.evict(key)  # in use: nothing happens
                    assert not call.done.is_set()
                    desk.hold.let_go.set()
                    await call.answer()
                    await w.evict()
                elif how == "drain":
                    nursery.start_soon(w.pool.drain, key)
                    await until(lambda: w.pool.actors()[0].machine.draining)
                    desk.hold.let_go.set()
                    await call.answer()
                elif how == "kill":
                    w.pool.kill(client)
                    await call.done.wait()
                    assert (call.error.code, call.error.delivery) == ("client-closed", "in-doubt")
                elif how == "close":
                    await w.pool.aclose()
                    await call.done.wait()
                    assert (call.error.code, call.error.delivery) == ("pool-closed", "in-doubt")
                else:
                    w.server.close_connections(reset=True)
                    await call.done.wait()
                    assert (call.error.code, call.error.delivery) == ("session-handle-lost", "in-doubt")
                await w.server.wait_until(lambda: w.server.connections == 0)
        await until(lambda: desk.cancelled == (how in ("kill", "close", "loss")))
        await until(lambda: w.pool.settling == 0)
        quiet(w.pool)


async def test_there_is_no_delete():
    async with sse() as w:
        await w.tool()
        await w.evict()
        await w.server.wait_until(lambda: w.server.connections == 0)
        assert w.server.count("DELETE") == 0


async def test_a_post_that_is_refused_for_its_session_ends_the_incarnation_and_nothing_ran():
    async with sse() as w:
        tool = await w.tool()
        w.server.on("tools/call", Status(404, body=b"Could not find session"), times=1)
        await refused(tool.call({}, identity=ALICE), "session-expired", "refused")
        await tool.call({}, identity=ALICE)
        assert w.server.executions["echo"] == 1
