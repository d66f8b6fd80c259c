"""A WebSocket, and a user's httpx transport, with what rides on them: questions, updates, resumption."""

from __future__ import annotations

import contextlib

import httpx
import pytest
import trio

import afpool
from afpool import CredentialRequirement, HttpTransport, Server, WebSocketTransport
from afpool.testing import BreakOff, FakeServer, Hang, Status, ask_tool, echo_tool
from tests.pool.bound_kit import NOTES, furnish
from tests.pool.kit import ALICE, Hold, Host, World, quiet, refused, start, until
from tests.pool.test_server_requests import FORM, Desk, said

TOOLS = [echo_tool(), ask_tool(cancellable=False)]
WAYS = pytest.mark.parametrize("way", ["ws", "httpx"])
UPDATED = "notifications/resources/updated"


@contextlib.asynccontextmanager
async def over(way, *, era="handshake", requests=None, credential=False, **pool):
    make = FakeServer.ws if way == "ws" else FakeServer.http
    async with make(tools=TOOLS, era=era) as fake:
        furnish(fake.offers)

        def transport(host, projection):
            if way == "ws":
                return WebSocketTransport(url=fake.url)
            return HttpTransport(url=fake.url, httpx_transport=httpx.AsyncHTTPTransport)

        host = Host(transport)
        host.requests = requests
        if credential:
            host.credential = CredentialRequirement("files")
        async with afpool.open_pool(
            [Server(name="files")], plan=host.plan, credentials=host, **pool
        ) as opened:
            yield World(fake, host, opened)


@WAYS
async def test_a_question_is_answered_while_its_call_has_the_only_place(way):
    desk = Desk()
    async with over(way, requests=desk.offers(), max_operations=1) as w:
        tool = await w.tool(name="ask")
        for n in range(3):
            with trio.fail_after(5):
                result = await tool.call({"params": FORM}, identity=ALICE, call_id=f"c{n}")
            assert said(result)["result"]["action"] == "accept"
        assert desk.calls == ["c0", "c1", "c2"]
        quiet(w.pool)


@WAYS
async def test_an_answer_whose_ground_is_gone_does_not_leave(way):
    desk = Desk()
    desk.hold = Hold()
    async with over(way, requests=desk.offers()) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="ask")
        call = start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE))
        await desk.hold.reached.wait()
        w.pool.invalidate(identity=ALICE, reason="revoked")
        desk.hold.let_go.set()
        assert said(await call.answer())["error"]["code"] == -32603


@WAYS
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_updates_arrive_and_a_replaced_client_is_subscribed_again(way, era):
    async with over(way, era=era) as w:
        server = await w.pool.bind(ALICE, "files")
        async with await server.subscribe(NOTES, identity=ALICE) as changes:
            await until(lambda: w.server.engine.streams.broadcast(UPDATED, {"uri": NOTES}) == 1)
            with trio.fail_after(5):
                assert (await anext(changes)).uri == NOTES
                w.pool.kill(w.pool.actors()[0].machine.client.id)
                assert (await anext(changes)).gap
        await until(lambda: w.server.engine.streams.broadcast(UPDATED, {"uri": NOTES}) == 0)


@WAYS
@pytest.mark.parametrize("how", ["drain", "kill", "close"])
async def test_whatever_ends_it_nothing_is_left(way, how):
    desk = Desk()
    desk.hold = Hold()
    async with over(way, requests=desk.offers(), close_timeout=1.0, settle_timeout=1.0) as w:
        server = await w.pool.bind(ALICE, "files")
        await server.subscribe(NOTES, identity=ALICE)
        tool = await w.tool(name="ask")
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE))
            await desk.hold.reached.wait()
            with trio.fail_after(20):
                if how == "drain":
                    nursery.start_soon(w.pool.drain, w.pool.key_of(ALICE, "files"))
                    desk.hold.let_go.set()
                    await call.answer()
                elif how == "kill":
                    w.pool.kill(w.pool.actors()[0].machine.client.id)
                    await call.done.wait()
                    assert (call.error.code, call.error.delivery) == ("client-closed", "in-doubt")
                await w.pool.aclose()
                await call.done.wait()
                await w.server.wait_until(lambda: w.server.connections == 0)
        assert w.pool.statistics().clients == 0
        assert w.pool.records.failures == 0


async def test_over_httpx_a_broken_answer_is_taken_up_again_with_a_fresh_credential(jumping):
    async with over("httpx", credential=True, max_operations=1) as w:
        tool = await w.tool()
        w.server.on("tools/call", BreakOff(retry=100), times=1)
        w.server.on("GET", Status(401), when=lambda a: "last-event-id" in a.headers, times=1)
        assert "hello" in (await tool.call({"text": "hello"}, identity=ALICE)).text
        resumed = [a for a in w.server.arrivals("GET") if "last-event-id" in a.headers]
        assert len(resumed) == 2
        assert w.server.executions["echo"] == 1
        assert [request.reason for request in w.host.asked][-1] == "refresh"
        quiet(w.pool)


@pytest.mark.parametrize("when", [2, 8], ids=["waiting", "asked"])
async def test_over_httpx_a_cancelled_resumption_settles(jumping, when):
    async with over("httpx", settle_timeout=1.0) as w:
        tool = await w.tool()
        w.server.on("tools/call", BreakOff(retry=5_000))
        w.server.on("GET", Hang(), when=lambda a: "last-event-id" in a.headers)
        with trio.move_on_after(when) as scope:
            await tool.call({"text": "x"}, identity=ALICE, deadline=trio.current_time() + 100)
        assert scope.cancelled_caught
        await w.server.wait_for("notifications/cancelled")
        await trio.sleep(2)
        assert w.pool.settling == 0
        quiet(w.pool)


async def test_a_question_on_a_resumed_stream_belongs_to_its_call(jumping):
    desk = Desk()
    async with over("httpx", requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        w.server.on("tools/call", BreakOff(retry=100), times=1)
        result = await tool.call({"params": FORM}, identity=ALICE, call_id="c1")
        assert said(result)["result"]["action"] == "accept"
        assert desk.calls == ["c1"]


async def test_the_deadline_ends_a_resumption_over_httpx(jumping):
    async with over("httpx") as w:
        tool = await w.tool()
        w.server.on("tools/call", BreakOff(retry=20_000))
        await refused(
            tool.call({}, identity=ALICE, deadline=trio.current_time() + 2), "deadline-exceeded", "in-doubt"
        )
