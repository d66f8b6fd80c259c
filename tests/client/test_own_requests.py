"""What a client sends by itself: answers, cancel notices, the end of a session. Credentials, lanes, ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from afpool.client._control import Control
from afpool.testing import Hang, Status, ask_tool, sleep_tool
from tests.pool.kit import ALICE, quiet, start, world
from tests.pool.test_server_requests import FORM, Desk, said


def carried(server, name):
    return [arrival.headers.get("authorization") for arrival in server.arrivals(name)]


async def test_an_answer_that_meets_a_401_is_sent_once_more_with_another_credential():
    desk = Desk()
    async with world(tools=[ask_tool()], credential=True, requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        w.server.on("response", Status(401), times=1)
        with trio.fail_after(5):
            result = await tool.call({"params": FORM}, identity=ALICE)
        assert said(result)["result"]["action"] == "accept"
        assert [request.reason for request in w.host.asked][-1] == "refresh"
        assert len(desk.asked) == 1
        assert len(carried(w.server, "response")) == 2
        quiet(w.pool)


async def test_an_answer_that_is_refused_again_is_not_sent_a_third_time():
    desk = Desk()
    async with world(tools=[ask_tool()], credential=True, requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        w.server.on("response", Status(401))
        with trio.move_on_after(0.3):
            await tool.call({"params": FORM}, identity=ALICE)
        assert w.server.count("response") == 2
        reasons = [request.reason for request in w.host.asked]
        assert reasons.count("refresh") == 1


async def test_without_a_credential_a_401_ends_the_answer():
    desk = Desk()
    async with world(tools=[ask_tool()], requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        w.server.on("response", Status(401))
        with trio.move_on_after(0.3):
            await tool.call({"params": FORM}, identity=ALICE)
        assert w.server.count("response") == 1


async def test_the_end_of_a_session_that_meets_a_401_is_said_once_more():
    async with world(credential=True) as w:
        await w.tool()
        w.server.on("DELETE", Status(401), times=1)
        await w.evict()
        assert len(carried(w.server, "DELETE")) == 2
        assert [request.reason for request in w.host.asked][-1] == "refresh"


@pytest.mark.parametrize("http", [{"era": "stateless"}, {"sessions": False}])
async def test_where_there_is_no_session_its_end_is_not_said(http):
    async with world(http=http) as w:
        await w.tool()
        await w.evict()
        assert w.server.count("DELETE") == 0


def test_a_request_of_its_own_that_never_left_is_not_in_doubt():
    control = Control(SimpleNamespace(lost=None), deadline=1.0)
    assert control.woken().delivery == "not-sent"
    control.began()
    assert control.woken().delivery == "in-doubt"


async def test_a_gate_that_closes_while_the_other_credential_comes_keeps_the_answer_back():
    desk = Desk()
    async with (
        world(tools=[ask_tool()], credential=True, requests=desk.offers()) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool(name="ask")
        given = w.host.get

        async def get(request):
            if request.reason == "refresh":
                w.pool.invalidate(identity=ALICE, reason="revoked")
            return await given(request)

        w.host.get = get
        w.server.on("response", Status(401), times=1)
        start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE))
        with trio.fail_after(5):
            answers = await w.server.wait_for("response", 2)
        assert len(answers) == 2
        assert "error" in w.server.client_answers[-1]
        nursery.cancel_scope.cancel()


async def test_a_list_that_hangs_is_not_in_the_way_of_a_cancel_notice():
    async with world(tools=[sleep_tool("echo")]) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        call_scope = trio.CancelScope()

        async def call():
            with call_scope:
                await tool.call({"seconds": 60}, identity=ALICE)

        nursery.start_soon(call)
        await w.server.wait_for("tools/call")
        w.server.on("tools/list", Hang(), times=1)
        nursery.start_soon(w.pool.refresh, ALICE)
        await w.server.wait_for("tools/list", 2)
        call_scope.cancel()
        with trio.fail_after(2):
            await w.server.wait_for("notifications/cancelled")
        nursery.cancel_scope.cancel()


async def test_a_list_that_hangs_is_not_taken_for_a_silent_server():
    async with (
        world(tools=[sleep_tool("echo", cancellable=False)], pool={"ping_timeout": 1.0}) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool()
        deadline = trio.current_time() + 0.5
        calls = [
            start(nursery, lambda: tool.call({"seconds": 60}, identity=ALICE, deadline=deadline))
            for _ in range(3)
        ]
        await w.server.wait_for("tools/call", 3)
        w.server.on("tools/list", Hang(), times=1)
        nursery.start_soon(w.pool.refresh, ALICE)
        await w.server.wait_for("tools/list", 2)
        for call in calls:
            await call.done.wait()
        with trio.fail_after(2):
            await w.server.wait_for("ping")
        await trio.sleep(1.2)
        assert w.pool.statistics().opened == 1
        kinds = [event.kind for event in w.pool.records.events]
        assert "suspect" in kinds
        assert "closed" not in kinds
        assert w.pool.actors()[0].machine.client is not None
        nursery.cancel_scope.cancel()


async def test_a_kept_connection_that_nobody_uses_is_closed_in_its_time(jumping):
    async with world(http={"sessions": False}) as w:
        tool = await w.tool()
        await tool.call(identity=ALICE)
        assert w.server.connections > 0
        await trio.sleep(2)
        assert w.server.connections > 0  # it may be used for 4 seconds
        await trio.sleep(10)
        assert w.server.connections == 0
        assert w.pool.actors()[0].machine.client is not None
        await tool.call(identity=ALICE)
