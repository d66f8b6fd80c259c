"""A server that changes its era while clients live: found out at once, and no error for what did not run."""

from __future__ import annotations

import pytest
import trio

from afpool import HttpTransport, Plan, Server, StdioTransport, open_pool
from afpool.testing import Body, FakeServer, FakeTool, Hold, JsonRpcError, Result, Status, input_tool
from tests.pool.bound_kit import KEY, NOTES, furnish
from tests.pool.kit import ALICE, BOB, quiet, refused, start, world
from tests.pool.test_server_requests import Desk

OTHER = {"stateless": "handshake", "handshake": "stateless"}


def turn(server, era):
    """The server is replaced by one of another era; what it knew of sessions is gone."""
    server.engine.eras = era
    server.engine.sessions.clear()


def versions(server):
    return [arrival.headers.get("mcp-protocol-version") for arrival in server.arrivals("tools/call")]


@pytest.mark.parametrize("dialect", ["python", "typescript"])
async def test_a_downgrade_costs_no_call(dialect):
    async with world(http={"era": "stateless", "dialect": dialect}) as it:
        tool = await it.tool()
        await tool.call({"text": "a"}, identity=ALICE)
        turn(it.server, "handshake")
        answer = await tool.call({"text": "b"}, identity=ALICE)
        assert "b" in answer.text
        assert versions(it.server) == ["2026-07-28", "2026-07-28", "2025-11-25"]
        assert it.server.executions["echo"] == 2
        assert it.pool.statistics().opened == 2
        quiet(it.pool)


async def test_an_upgrade_costs_no_call():
    async with world() as it:
        tool = await it.tool()
        await tool.call({"text": "a"}, identity=ALICE)
        turn(it.server, "stateless")
        await tool.call({"text": "b"}, identity=ALICE)
        assert versions(it.server) == ["2025-11-25", "2025-11-25", "2026-07-28"]
        assert it.server.executions["echo"] == 2
        quiet(it.pool)


async def test_a_version_that_is_no_longer_spoken_costs_no_call():
    async with world(http={"era": "both"}) as it:
        tool = await it.tool()
        it.server.on(
            "tools/call", JsonRpcError(-32022, status=400, data={"supported": ["2025-11-25"]}), times=1
        )
        await tool.call({"text": "a"}, identity=ALICE)
        assert it.pool.statistics().opened == 2
        quiet(it.pool)


async def test_a_server_that_refuses_every_version_is_asked_twice_and_no_more():
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        it.server.on("tools/call", JsonRpcError(-32022, status=400))
        await refused(tool.call({"text": "a"}, identity=ALICE), "server-refused", "refused")
        assert it.sent() == 2
        assert it.pool.statistics().opened == 2
        quiet(it.pool)


async def test_all_that_wait_on_the_outdated_client_move_over():
    async with world(http={"era": "stateless"}, pool={"max_operations": 2}) as it:
        tool = await it.tool()
        go = trio.Event()
        it.server.on("tools/call", Hold(go), times=1)
        it.server.on("tools/call", JsonRpcError(-32022, status=400), times=1)
        async with trio.open_nursery() as nursery:
            calls = [
                start(nursery, lambda text=f"t{n}": tool.call({"text": text}, identity=ALICE))
                for n in range(6)
            ]
            await it.server.wait_for("tools/call")
            turn(it.server, "handshake")
            go.set()
            for n, call in enumerate(calls):
                assert f"t{n}" in (await call.answer()).text
        assert it.server.executions["echo"] == 6
        assert it.server.count("initialize") == 1
        quiet(it.pool)


async def test_what_is_in_doubt_stays_in_doubt():
    async with world(http={"era": "stateless"}, pool={"max_operations": 2}) as it:
        tool = await it.tool()
        it.server.on("tools/call", Status(500), times=1)
        await refused(tool.call({"text": "a"}, identity=ALICE), "server-failed", "in-doubt")
        assert it.sent() == 1


async def test_a_tool_that_the_new_server_defines_otherwise_is_stale():
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        turn(it.server, "handshake")
        it.server.set_tools([FakeTool("echo", description="another")], notify=False)
        await refused(tool.call({"text": "a"}, identity=ALICE), "stale-tools")
        assert it.server.executions["echo"] == 0
        quiet(it.pool)


async def test_who_was_withdrawn_meanwhile_is_refused():
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        turn(it.server, "handshake")
        go = trio.Event()
        it.server.on("initialize", Hold(go))
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"text": "a"}, identity=it.host.who))
            await it.server.wait_for("initialize")
            it.host.caller = BOB
            go.set()
            await call.refusal("identity-mismatch")
        assert it.server.executions["echo"] == 0


async def test_the_deadline_holds_over_both_ways():
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        turn(it.server, "handshake")
        it.server.on("initialize", Hold(trio.Event()))
        await refused(
            tool.call({"text": "a"}, identity=ALICE, deadline=trio.current_time() + 0.3), "deadline-exceeded"
        )
        quiet(it.pool)


@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize("name", [None, "readers"])
async def test_a_list_is_asked_for_in_the_servers_present_version(era, name):
    async with world(http={"era": era}) as it:
        it.host.names["alice"] = name
        tool = await it.tool()
        turn(it.server, OTHER[era])
        assert set(await it.pool.tools(ALICE, refresh=True)) == {"echo"}
        await tool.call({"text": "a"}, identity=ALICE)
        assert it.pool.statistics().opened == 2
        quiet(it.pool)


async def test_a_shared_list_in_doubt_is_asked_for_before_a_call_in_the_present_version():
    async with world(http={"era": "stateless"}) as it:
        it.host.names["alice"] = "readers"
        tool = await it.tool()
        turn(it.server, "handshake")
        tool.binding.list.unsettle("test")
        await tool.call({"text": "a"}, identity=ALICE)
        quiet(it.pool)


async def test_a_pinned_version_is_not_negotiated_anew():
    async with FakeServer.http(era="stateless") as fake:
        plan = Plan(transport=HttpTransport(url=fake.url), protocol_version="2026-07-28")
        async with open_pool([Server(name="files", plan=plan)]) as pool:
            tool = (await pool.tools(ALICE))["echo"]
            fake.on("tools/call", JsonRpcError(-32022, status=400))
            await refused(tool.call({"text": "a"}, identity=ALICE), "server-refused", "refused")
            assert fake.count("tools/call") == 1
            assert pool.statistics().opened == 1


async def test_without_a_session_the_incarnation_is_the_client_and_a_restart_is_not_noticed():
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        await tool.call({"text": "a"}, identity=ALICE)
        generation, incarnation = tool.binding.generation, it.pool.statistics().actors[0].client
        await it.server.restart()
        await tool.call({"text": "b"}, identity=ALICE)
        [actor] = it.pool.statistics().actors
        assert (actor.client, actor.generation) == (incarnation, generation)
        assert it.server.count("server/discover") == 1
        await it.evict()
        await tool.call({"text": "c"}, identity=ALICE)
        assert it.pool.statistics().actors[0].client != incarnation
        assert it.server.count("server/discover") == 2


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_each_handshake_version_over_streamable_http(version):
    async with FakeServer.http() as fake:
        plan = Plan(transport=HttpTransport(url=fake.url), protocol_version=version)
        async with open_pool([Server(name="files", plan=plan)]) as pool:
            tool = (await pool.tools(ALICE))["echo"]
            await tool.call({"text": "a"}, identity=ALICE)
            [opened] = fake.arrivals("initialize")
            assert opened.params["protocolVersion"] == version
            assert "mcp-protocol-version" not in opened.headers
            [call] = fake.arrivals("tools/call")
            assert call.headers["mcp-protocol-version"] == version
            assert not fake.violations


def batch(kind):
    first = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
    second = b'{"jsonrpc":"2.0","id":@request-id@,"result":{"content":[{"type":"text","text":"batched"}]}}'
    body = b"[%b,%b]" % (first, second)
    return (body, "application/json") if kind == "json" else (b"data: %b\n\n" % body, "text/event-stream")


@pytest.mark.parametrize("kind", ["json", "sse"])
async def test_a_batch_is_accepted_as_an_answer(kind):
    body, content_type = batch(kind)
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", Body(body, content_type))
        assert (await tool.call({"text": "a"}, identity=ALICE)).text == "batched"
        assert not any(arrival.body.lstrip().startswith(b"[") for arrival in it.server.log)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
async def test_a_batch_on_a_line_is_read_and_an_old_version_spoken(version, tmp_path):
    body, _ = batch("json")
    log = tmp_path / "log"
    script = {"rules": [{"method": "tools/call", "action": {"do": "Body", "data": body.decode()}}]}
    command = FakeServer.stdio_command(script, log=log)
    plan = Plan(transport=StdioTransport.of(*command), protocol_version=version)
    async with open_pool([Server(name="files", plan=plan)]) as pool:
        tool = (await pool.tools(ALICE))["echo"]
        with trio.fail_after(10):
            assert (await tool.call({"text": "a"}, identity=ALICE)).text == "batched"
    arrivals = FakeServer.read_log(log)
    assert [a.params["protocolVersion"] for a in arrivals if a.method == "initialize"] == [version]
    assert not any(arrival.body.lstrip().startswith(b"[") for arrival in arrivals)


# ---------------------------------------------------------------- what is no tool call, and rounds


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_bound_server_moves_over_too_and_reads_once(era):
    async with world(http={"era": era}) as it:
        furnish(it.server.offers)
        server = await it.pool.bind(ALICE, "files")
        await server.read_resource(NOTES, identity=ALICE)
        turn(it.server, OTHER[era])
        result = await server.read_resource(NOTES, identity=ALICE)
        assert b"first" in result.raw
        assert it.pool.statistics().opened == 2
        quiet(it.pool)


async def test_a_walk_over_pages_begins_anew_in_the_present_version():
    async with world(http={"era": "stateless"}) as it:
        furnish(it.server.offers)
        server = await it.pool.bind(ALICE, "files")
        page = {"resources": [{"uri": NOTES, "name": "one"}], "nextCursor": "2", "ttlMs": 0}
        it.server.on("resources/list", Result(page), times=1)
        it.server.on("resources/list", JsonRpcError(-32022, status=400, data={"supported": []}), times=1)
        items = await server.resources(identity=ALICE)
        assert len(items) == 2
        assert [a.params.get("cursor") for a in it.server.arrivals("resources/list")] == [None, "2", None]
        assert it.pool.statistics().opened == 2
        quiet(it.pool)


async def test_after_a_question_nothing_moves_over():
    """Part of the tool may have run: another go would run it twice."""
    desk = Desk()
    async with world(tools=[input_tool()], http={"era": "stateless"}, requests=desk.offers()) as it:
        tool = await it.tool(name="input")
        given = desk.elicit

        async def elicit(request):
            turn(it.server, "handshake")
            return await given(request)

        object.__setattr__(it.pool.actors()[0].machine.client.handle.answering.offers, "elicit", elicit)
        error = await refused(tool.call(identity=ALICE), "input-required", "in-doubt")
        assert error.__cause__ is not None
        assert it.server.count("tools/call") == 2
        assert it.pool.statistics().opened == 1
        quiet(it.pool)


async def test_a_doubt_is_not_forgotten_over_a_change_of_era(autojump_clock):
    """First a pass in doubt, then a repeat that moves over: at most one run more than the host allowed."""
    allowed = []

    def on_in_doubt(use):
        allowed.append(use.code)
        turn(it.server, "stateless")
        return "repeat"

    options = {"repeat": "recognised", "call_id_key": KEY}
    async with world(server=options, pool={"on_in_doubt": on_in_doubt}) as it:
        tool = await it.tool()
        it.server.on("tools/call", Status(503, after_execution=True), times=1)
        await tool.call({"text": "x"}, identity=ALICE, call_id="c1")
        assert allowed == ["server-failed"]
        calls = it.server.arrivals("tools/call")
        assert [call.params["_meta"][KEY] for call in calls] == ["c1"] * 3
        assert versions(it.server) == ["2025-11-25", "2025-11-25", "2026-07-28"]
        assert it.server.executions["echo"] == 2  # a server that kept no book: the host said it does
        quiet(it.pool)
