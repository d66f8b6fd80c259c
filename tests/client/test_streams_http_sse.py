"""HTTP+SSE (2024-11-05) against a scripted server: opening, answers, verdicts, loss, the fallback to it."""

from __future__ import annotations

import contextlib

import pytest
import trio

import afpool
from afpool import HttpTransport, OpenFailed, Plan, Server
from afpool.testing import (
    Drop,
    FakeServer,
    FakeTool,
    Hang,
    JsonRpcError,
    RawBytes,
    Status,
    echo_tool,
    progress_tool,
    sleep_tool,
)
from tests.pool.kit import ALICE, BOB, LIST_CHANGED, Host, World, quiet, refused, start, until


@contextlib.asynccontextmanager
async def sse_world(streaming="auto", *, tools=None, version=None, limit=16):
    tools = [echo_tool()] if tools is None else tools
    async with FakeServer.http(tools=tools, streaming="sse", path="/sse") as fake:
        host = Host(lambda host, _: HttpTransport(url=fake.url, streaming=streaming))

        async def plan(server, projection):
            made = await host.plan(server, projection)
            return Plan(transport=made.transport, protocol_version=version)

        async with afpool.open_pool([Server(name="files")], plan=plan, max_operations=limit) as pool:
            yield World(fake, host, pool)


def posts(server):
    return [arrival for arrival in server.log if arrival.http_method == "POST" and arrival.target != "/sse"]


@pytest.mark.parametrize("streaming", ["auto", "sse"])
async def test_calls_go_out_by_post_and_are_answered_on_the_stream(streaming):
    async with sse_world(streaming) as it:
        tool = await it.tool()
        answer = await tool.call({"text": "hello"}, identity=ALICE)
        assert "hello" in answer.text
        assert {arrival.target.partition("?")[0] for arrival in posts(it.server)} == {"/messages/"}
        refused_before = [arrival for arrival in it.server.log if arrival.target == "/sse"]
        wanted = ["POST", "POST", "GET"] if streaming == "auto" else ["GET"]
        assert [arrival.http_method for arrival in refused_before] == wanted
        assert not it.server.violations
        quiet(it.pool)


async def test_the_verdict_is_remembered_for_all_keys():
    async with sse_world() as it:
        await (await it.tool(ALICE)).call({"text": "a"}, identity=ALICE)
        seen = len(it.server.log)
        await (await it.tool(BOB)).call({"text": "b"}, identity=BOB)
        assert it.server.log[seen].http_method == "GET"
        assert len(it.server.sessions) == 2


async def test_many_answers_share_the_stream_and_find_their_callers():
    async with sse_world(limit=8) as it:
        tool = await it.tool()
        async with trio.open_nursery() as nursery:
            calls = [
                start(nursery, lambda text=f"t{n}": tool.call({"text": text}, identity=ALICE))
                for n in range(8)
            ]
            for n, call in enumerate(calls):
                assert f"t{n}" in (await call.answer()).text
        assert it.server.streams == 1


async def test_an_answer_may_overtake_its_own_202():
    async with sse_world(limit=1) as it:
        tool = await it.tool()
        it.server.sse.accept_late = True
        for n in range(5):
            with trio.fail_after(5):
                assert f"t{n}" in (await tool.call({"text": f"t{n}"}, identity=ALICE)).text
        quiet(it.pool)


async def test_progress_and_changes_come_on_the_stream():
    told = []
    async with sse_world(tools=[progress_tool("echo", steps=3)]) as it:
        tool = await it.tool()
        await tool.call({}, identity=ALICE, on_progress=told.append)
        assert len(told) == 3
        before = tool.binding.list.notices
        await it.server.notify(LIST_CHANGED)
        await until(lambda: tool.binding.list.notices > before)


@pytest.mark.parametrize(
    ("action", "code", "delivery", "ran"),
    [
        (Status(400, body=b"Could not parse message"), "server-refused", "refused", 0),
        (Status(404, body=b"Could not find session"), "session-expired", "refused", 0),
        (Status(413), "server-refused", "refused", 0),
        (Status(401), "authorization-required", "refused", 0),
        (Status(403), "server-refused", "refused", 0),
        (Status(500), "server-failed", "in-doubt", 0),
        (Status(503, after_execution=True), "server-failed", "in-doubt", 1),
        (Drop(), "connection-lost", "in-doubt", 0),
        (JsonRpcError(-32050, "no luck"), "server-error", "answered", 0),
        (JsonRpcError(-32601), "server-refused", "refused", 0),
    ],
    ids=lambda value: repr(value)[:44] if not isinstance(value, str | int) else str(value),
)
async def test_verdicts(action, code, delivery, ran):
    async with sse_world() as it:
        tool = await it.tool()
        it.server.on("tools/call", action, times=1)
        await refused(tool.call({"text": "x"}, identity=ALICE), code, delivery)
        assert it.server.executions["echo"] == ran
        await tool.call({"text": "y"}, identity=ALICE)
        quiet(it.pool)


@pytest.mark.parametrize("graceful", [True, False])
async def test_the_loss_of_the_stream_is_the_loss_of_the_incarnation(graceful):
    async with sse_world(tools=[FakeTool("echo", delay=3600, cancellable=False)]) as it:
        tool = await it.tool()
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"text": "x"}, identity=ALICE))
            await it.server.wait_until(lambda: it.server.executions["echo"] == 1)
            if graceful:
                it.server.end_streams()
            else:
                it.server.close_connections(reset=True)
            with trio.fail_after(5):
                await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == ("session-handle-lost", "in-doubt")
        it.server.set_tools([echo_tool()], notify=False)
        await until(lambda: not it.pool.statistics().clients)
        again = await it.tool()
        await again.call({"text": "y"}, identity=ALICE)
        assert it.pool.statistics().opened == 2
        quiet(it.pool)


async def test_a_call_that_is_cancelled_is_told_to_the_server_by_a_post_of_its_own():
    async with sse_world(tools=[sleep_tool("echo")]) as it:
        tool = await it.tool()
        with trio.move_on_after(0.2):
            await tool.call({"seconds": 60}, identity=ALICE)
        [notice] = await it.server.wait_for("notifications/cancelled")
        assert notice.params["requestId"] == it.server.arrivals("tools/call")[0].id
        await until(lambda: it.pool.settling == 0)
        quiet(it.pool)


async def test_a_post_without_an_answer_is_bounded_by_the_deadline():
    async with sse_world() as it:
        tool = await it.tool()
        it.server.on("tools/call", Hang())
        await refused(
            tool.call({"text": "x"}, identity=ALICE, deadline=trio.current_time() + 1),
            "deadline-exceeded",
            "in-doubt",
        )


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://elsewhere.invalid/messages?session_id={}",
        "//elsewhere.invalid/m?session_id={}",
        "http://[",
        "\t",
    ],
)
async def test_messages_never_go_to_another_origin(endpoint):
    async with sse_world("sse") as it:
        it.server.sse.endpoint = endpoint
        error = await refused(it.pool.tools(ALICE), "open-failed")
        assert "another origin" in error.message
        assert not posts(it.server)


@pytest.mark.parametrize("endpoint", ["/deeper/messages?session_id={}", "messages?session_id={}"])
async def test_a_relative_endpoint_is_resolved_against_the_stream(endpoint):
    async with sse_world("sse") as it:
        it.server.sse.endpoint = endpoint if endpoint.startswith("/") else "/" + endpoint
        await (await it.tool()).call({"text": "x"}, identity=ALICE)


async def test_where_neither_transport_is_spoken_the_first_refusal_is_the_error():
    async with FakeServer.http() as fake:
        fake.on("*", Status(405))
        server = Server(name="files", plan=Plan(transport=HttpTransport(url=fake.url)))
        async with afpool.open_pool([server]) as pool:
            error = await refused(pool.tools(ALICE), "open-failed")
            assert error.http_status == 405
            assert fake.log[-1].http_method == "GET"


async def test_streamable_alone_asks_for_no_old_stream():
    async with FakeServer.http() as fake:
        fake.on("*", Status(405))
        transport = HttpTransport(url=fake.url, streaming="streamable")
        async with afpool.open_pool([Server(name="files", plan=Plan(transport=transport))]) as pool:
            await refused(pool.tools(ALICE), "open-failed")
            assert not fake.arrivals("GET")


async def test_a_server_that_was_replaced_by_a_newer_one_is_found_out():
    async with sse_world() as it:
        await it.tool(ALICE)
        it.server.sse = None
        await it.tool(BOB)
        assert [call.target.partition("?")[0] for call in it.server.arrivals("initialize")] == [
            "/sse",
            "/messages/",
            "/sse",
        ]


async def test_a_pinned_version_is_what_is_offered():
    async with sse_world("sse", version="2024-11-05") as it:
        await it.tool()
        assert it.server.arrivals("initialize")[0].params["protocolVersion"] == "2024-11-05"


async def test_nothing_is_left_of_a_stream_that_names_no_endpoint(jumping):
    async with sse_world("sse") as it:
        it.server.on("GET", Hang())
        await refused(it.pool.tools(ALICE), "open-failed", within=60)
        await it.server.wait_until(lambda: it.server.connections == 0)


async def test_a_post_that_is_cut_leaves_it_in_doubt():
    async with sse_world() as it:
        tool = await it.tool()
        it.server.on(
            "tools/call", RawBytes(b"HTTP/1.1 202 Accepted\r\ncontent-length: 9\r\n\r\nAcc"), times=1
        )
        error = await refused(tool.call({"text": "x"}, identity=ALICE), "connection-lost", "in-doubt")
        assert "sent" in error.message


def test_a_version_without_sessions_cannot_be_pinned_over_it():
    transport = HttpTransport(url="http://127.0.0.1:1/sse", streaming="sse")
    with pytest.raises(ValueError, match="handshake era only"):
        Plan(transport=transport, protocol_version="2026-07-28")
    with pytest.raises(ValueError, match="streaming"):
        HttpTransport(url="http://127.0.0.1:1/sse", streaming="websocket")


@pytest.mark.parametrize("action", [JsonRpcError(-32601), JsonRpcError(-32602)])
async def test_only_the_handshake_is_offered_over_it(action):
    async with sse_world("sse") as it:
        it.server.on("initialize", action)
        with pytest.raises(OpenFailed):
            await it.tool()
        assert [arrival.method for arrival in posts(it.server)] == ["initialize"]


async def test_a_version_pinned_to_another_era_asks_for_no_old_stream():
    async with sse_world() as it:
        await it.tool(ALICE)  # it is remembered now
        plan = Plan(transport=HttpTransport(url=it.server.url), protocol_version="2026-07-28")

        async def pinned(server, projection):
            return plan

        it.pool.plan = pinned
        before = it.server.count("GET")
        await refused(it.tool(BOB), "server-refused", "refused")
        assert it.server.count("GET") == before


async def test_what_was_remembered_does_not_bind_a_plan_that_pins_another_era():
    async with sse_world() as it:
        await it.tool(ALICE)
        it.server.sse = None
        it.server.engine.eras = "stateless"
        plan = Plan(transport=HttpTransport(url=it.server.url), protocol_version="2026-07-28")

        async def pinned(server, projection):
            return plan

        it.pool.plan = pinned
        await (await it.tool(BOB)).call({"text": "x"}, identity=BOB)
        assert it.server.arrivals("tools/call")[0].headers["mcp-protocol-version"] == "2026-07-28"


async def test_a_notice_is_taken_as_one_by_a_fake_that_answers_it_with_a_status():
    async with sse_world("sse") as it:
        it.server.on("notifications/initialized", Status(202, after_execution=True), times=1)
        assert (await (await it.tool()).call(identity=ALICE)).text
        assert not it.server.violations
