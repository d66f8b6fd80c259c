"""The handshake era over HTTP, as a raw client sees it."""

from __future__ import annotations

import json

import pytest
import trio

from afpool.testing import (
    Advertise,
    Ask,
    FakeServer,
    FakeTool,
    big_tool,
    echo_tool,
    fail_tool,
    progress_tool,
    sleep_tool,
    whoami_tool,
)

LIST_CHANGED = "notifications/tools/list_changed"


@pytest.mark.parametrize("answer", ["json", "sse", "json-chunked"])
async def test_initialize_list_and_call(connect, autojump_clock, answer):
    with trio.fail_after(5):
        async with FakeServer.http(answer=answer) as server:
            client = await connect(server)
            seen = await client.initialize()
            assert seen.message["result"]["protocolVersion"] == "2025-11-25"
            assert [client.session] == server.sessions
            listed = await client.rpc("tools/list")
            assert [tool["name"] for tool in listed.message["result"]["tools"]] == ["echo"]
            called = await client.call("echo", {"a": "ä"})
            assert json.loads(called.message["result"]["content"][0]["text"]) == {"a": "ä"}
            assert server.execution_count("echo", {"a": "ä"}) == 1
            assert server.execution_count("echo", {"a": "b"}) == 0
            assert [arrival.name for arrival in server.log] == [
                "initialize",
                "notifications/initialized",
                "tools/list",
                "tools/call",
            ]
            assert server.executed[0].session_id == client.session
            assert server.connections_total == server.connections == 1
            assert server.violations == []
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", server.port)


async def test_an_older_version_is_echoed_and_an_unknown_one_answered_with_the_newest(
    connect, autojump_clock
):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            for offered, answered in (("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")):
                seen = await client.ask("POST", client.message("initialize", {"protocolVersion": offered}))
                assert seen.json["result"]["protocolVersion"] == answered


async def test_a_stateless_probe_is_refused_as_real_servers_do(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as python, FakeServer.http(dialect="typescript") as typescript:
            seen = await (await connect(python)).modern_rpc("server/discover")
            assert (seen.status, seen.json["error"]["code"], seen.json["id"]) == (400, -32600, "server-error")
            assert "mcp-session-id" in seen.headers
            assert python.sessions == []
            seen = await (await connect(typescript)).modern_rpc("server/discover")
            assert (seen.status, seen.json["error"]["code"], seen.json["id"]) == (400, -32000, None)


@pytest.mark.parametrize(
    ("spelling", "status", "code"),
    [("404", 404, -32600), ("404-text", 404, None), ("400-json", 400, -32000), ("400-text", 400, None)],
)
async def test_a_lost_session_in_every_spelling(connect, autojump_clock, spelling, status, code):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            await client.initialize()
            server.forget_sessions(spelling)
            seen = await client.call("echo")
            assert seen.status == status
            if code is None:
                assert seen.headers["content-type"].startswith("text/plain")
            else:
                assert seen.json["error"]["code"] == code
                assert ("id" in seen.json) == (spelling == "404")
            assert server.executions["echo"] == 0
            await client.initialize()
            assert (await client.call("echo")).status == 200


async def test_the_get_stream_carries_notifications_and_there_is_one(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(tools=[echo_tool()]) as server:
            client, stream, second = [await connect(server) for _ in range(3)]
            await client.initialize()
            stream.session = second.session = client.session
            await stream.open_stream()
            await server.wait_until(lambda: server.streams == 1)
            refused = await second.ask("GET", accept="text/event-stream", **second.session_headers())
            assert refused.status == 409
            server.set_tools([echo_tool("other")])
            assert await stream.next_message() == {"jsonrpc": "2.0", "method": LIST_CHANGED}
            assert await server.notify("notifications/message", {"data": 1}) == 1
            assert (await stream.next_message())["params"] == {"data": 1}
            listed = await client.rpc("tools/list")
            assert [tool["name"] for tool in listed.json["result"]["tools"]] == ["other"]
            assert (await client.ask("DELETE", **client.session_headers())).status == 200
            await stream.receive_end()
            assert server.sessions == []
            assert server.streams == 0


async def test_list_changed_right_after_initialized_waits_for_the_stream(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            server.advertise.list_changed_after_initialized = True
            client, stream = await connect(server), await connect(server)
            await client.initialize()
            stream.session = client.session
            await stream.open_stream()
            assert (await stream.next_message())["method"] == LIST_CHANGED


async def test_a_request_to_the_client_and_its_answer(connect, autojump_clock, nursery):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client, stream = await connect(server), await connect(server)
            with pytest.raises(RuntimeError, match="GET stream"):
                await server.request_client("ping")
            await client.initialize()
            stream.session = client.session
            await stream.open_stream()
            await server.wait_until(lambda: server.streams == 1)

            async def answer() -> None:
                asked = await stream.next_message()
                assert asked["method"] == "ping"
                reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {}}
                seen = await client.ask("POST", json.dumps(reply).encode(), **client.session_headers())
                assert seen.status == 202

            nursery.start_soon(answer)
            reply = await server.request_client("ping")
            assert reply["result"] == {}
            assert server.client_answers == [reply]
            assert server.count("response") == 1


async def test_a_tool_asks_its_caller_on_the_stream_of_the_call(connect, autojump_clock):
    async def handler(arguments, arrival):
        reply = yield Ask("elicitation/create", {"message": "sure?"})
        yield f"error {reply['error']['code']}"

    with trio.fail_after(5):
        async with FakeServer.http(tools=[FakeTool("careful", handler)]) as server:
            caller, client = await connect(server), await connect(server)
            await client.initialize()
            caller.session = client.session
            body = caller.message("tools/call", {"name": "careful"})
            await caller.send("POST", body, **caller.session_headers())
            asked = await caller.next_message()
            reply = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32602, "message": "no"}}
            await client.ask("POST", json.dumps(reply).encode(), **client.session_headers())
            assert (await caller.next_message())["result"]["content"][0]["text"] == "error -32602"


async def test_progress_makes_a_json_answer_a_stream(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(tools=[progress_tool()]) as server:
            client = await connect(server)
            await client.initialize()
            params = {"name": "progress", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}}
            seen = await client.rpc("tools/call", params)
            *progress, answer = seen.events
            assert [(each["params"]["progress"], each["params"]["progressToken"]) for each in progress] == [
                (1, "t"),
                (2, "t"),
            ]
            assert answer["result"]["content"][0]["text"] == "did 2 steps"
            quiet = await client.call("progress", {"steps": 2})
            assert quiet.headers["content-type"] == "application/json"


async def test_a_cancelled_call_stops_and_an_uncancellable_one_does_not(connect, autojump_clock):
    with trio.fail_after(500):
        tools = [sleep_tool(), sleep_tool("stubborn", cancellable=False)]
        async with FakeServer.http(tools=tools) as server:
            client, other = await connect(server), await connect(server)
            await client.initialize()
            other.session = client.session
            for name, expected in (("sleep", "error"), ("stubborn", "result")):
                await other.send(
                    "POST",
                    other.message("tools/call", {"name": name, "arguments": {"seconds": 60}}, rpc_id=name),
                    **other.session_headers(),
                )
                await server.wait_until(lambda name=name: server.executions[name] == 1)
                begun = trio.current_time()
                accepted = await client.rpc("notifications/cancelled", {"requestId": name})
                assert accepted.status == 202
                seen = await other.receive()
                assert expected in seen.json
                assert (trio.current_time() - begun == 60) == (expected == "result")
            assert server.cancelled == ["sleep", "stubborn"]


async def test_a_disconnect_is_no_cancel(connect, autojump_clock):
    done = trio.Event()

    async def handler(arguments, arrival):
        await trio.sleep(10)
        done.set()
        return "done"

    with trio.fail_after(60):
        async with FakeServer.http(tools=[FakeTool("slow", handler)]) as server:
            client = await connect(server)
            await client.initialize()
            await client.send(
                "POST", client.message("tools/call", {"name": "slow"}), **client.session_headers()
            )
            await server.wait_until(lambda: server.executions["slow"] == 1)
            await client.stream.aclose()
            await server.wait_until(lambda: server.connections == 0)
            await done.wait()
            assert server.cancelled == []


async def test_pages_and_what_can_be_wrong_with_cursors(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(tools=[echo_tool(f"t{number}") for number in range(5)]) as server:
            client = await connect(server)
            await client.initialize()
            server.advertise.page_size = 2

            async def walk(limit: int = 10) -> tuple[list[str], list[str]]:
                names, cursors, params = [], [], None
                for _ in range(limit):
                    result = (await client.rpc("tools/list", params)).json["result"]
                    names += [tool["name"] for tool in result["tools"]]
                    if "nextCursor" not in result:
                        return names, cursors
                    cursors.append(result["nextCursor"])
                    params = {"cursor": result["nextCursor"]}
                return names, cursors

            every = [f"t{number}" for number in range(5)]
            names, cursors = await walk()
            assert names == every
            assert len(cursors) == 2
            server.advertise.cursors = "empty-string"
            names, cursors = await walk()
            assert names == every
            assert cursors[0] == ""
            server.advertise.cursors = "loop"
            assert len((await walk(limit=4))[1]) == 4
            server.advertise.cursors = "strict"
            bogus = await client.rpc("tools/list", {"cursor": "bogus"})
            assert bogus.json["error"]["code"] == -32602
            server.advertise.cursors = "lenient"
            bogus = await client.rpc("tools/list", {"cursor": "bogus"})
            assert bogus.json["result"]["tools"][0]["name"] == "t0"


async def test_what_a_strict_server_refuses(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            body = client.message("initialize", {})
            assert (await client.ask("POST", body, accept="application/json")).status == 406
            assert (await client.ask("POST", body, content_type="text/plain")).status == 415
            assert (await client.ask("POST", b"{nonsense")).json["error"]["code"] == -32700
            assert (await client.ask("POST", b"[]")).json["error"]["code"] == -32600
            assert (await client.ask("PUT", b"")).status == 405
            assert [arrival.kind for arrival in server.log[2:4]] == ["invalid", "invalid"]
            await client.initialize()
            seen = await client.ask(
                "POST",
                client.message("tools/list"),
                mcp_session_id=client.session,
                mcp_protocol_version="2099-01-01",
            )
            assert seen.status == 400
            seen = await client.ask("POST", client.message("tools/list"), mcp_session_id=client.session)
            assert seen.status == 200
            assert server.violations == ["tools/list without mcp-protocol-version"]
            server.path = "/elsewhere"
            client.server.path = "/elsewhere"
            assert (await client.rpc("tools/list")).status == 200


async def test_requests_before_initialized_are_refused_in_the_python_dialect(connect, autojump_clock):
    with trio.fail_after(5):
        for dialect, member in (("python", "error"), ("typescript", "result")):
            async with FakeServer.http(dialect=dialect) as server:
                client = await connect(server)
                seen = await client.ask("POST", client.message("initialize", {}))
                client.session = seen.headers["mcp-session-id"]
                assert member in (await client.rpc("tools/list")).json
                assert (await client.rpc("ping")).json["result"] == {}
                assert server.violations == ["tools/list before notifications/initialized"]


async def test_unknown_tools_and_methods_by_dialect(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as python, FakeServer.http(dialect="typescript") as typescript:
            client = await connect(python)
            await client.initialize()
            assert (await client.call("nope")).json["error"]["code"] == -32602
            assert (await client.rpc("nope/nope")).json["error"]["code"] == -32601
            client = await connect(typescript)
            await client.initialize()
            assert (await client.call("nope")).json["result"]["isError"] is True
            assert python.executed == typescript.executed == []


async def test_without_sessions(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(sessions=False) as server:
            client = await connect(server)
            await client.initialize()
            assert client.session is None
            assert (await client.call("echo")).status == 200
            assert (await client.ask("GET", accept="text/event-stream")).status == 405
            assert (await client.ask("DELETE")).status == 405


async def test_whoami_and_a_list_of_ones_own(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(tools=[whoami_tool()]) as server:
            client = await connect(server)
            await client.initialize()
            seen = await client.call("whoami", authorization="Bearer alice")
            said = json.loads(seen.json["result"]["content"][0]["text"])
            assert said["session"] == client.session
            assert said["headers"]["authorization"] == "Bearer alice"
            server.set_tools_for(
                lambda arrival: (
                    [echo_tool("for-bob")] if arrival.headers.get("authorization") == "bob" else []
                )
            )
            for authorization, names in (("bob", ["for-bob"]), ("alice", [])):
                seen = await client.rpc("tools/list", authorization=authorization)
                assert [tool["name"] for tool in seen.json["result"]["tools"]] == names


async def test_a_handler_that_raises_is_an_error_result(connect, autojump_clock):
    def handler(arguments, arrival):
        raise LookupError("nothing there")

    with trio.fail_after(5):
        async with FakeServer.http(tools=[FakeTool("bad", handler, title="Bad")]) as server:
            client = await connect(server)
            await client.initialize()
            assert (await client.rpc("tools/list")).json["result"]["tools"][0]["title"] == "Bad"
            result = (await client.call("bad")).json["result"]
            assert result["isError"] is True
            assert "nothing there" in result["content"][0]["text"]


async def test_a_cancelled_call_can_be_left_without_an_error(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(tools=[sleep_tool()]) as server:
            server.engine.answer_cancelled = False
            client, other = await connect(server), await connect(server)
            await client.initialize()
            other.session = client.session
            body = other.message("tools/call", {"name": "sleep", "arguments": {"seconds": 60}}, rpc_id="s")
            await other.send("POST", body, **other.session_headers())
            await server.wait_until(lambda: server.executions["sleep"] == 1)
            await client.rpc("notifications/cancelled", {"requestId": "s"})
            seen = await other.receive()
            assert (seen.status, seen.body) == (204, b"")


async def test_one_id_used_twice_at_a_time_is_a_violation(connect, autojump_clock):
    with trio.fail_after(60):
        async with FakeServer.http(tools=[sleep_tool()]) as server:
            client, other = await connect(server), await connect(server)
            await client.initialize()
            other.session = client.session
            async with trio.open_nursery() as nursery:
                for each in (client, other):
                    nursery.start_soon(each.call, "sleep", {"seconds": 1}, "same")
            assert server.violations == ["request id 'same' is used twice at a time"]
            await client.call("sleep", {"seconds": 1}, "same")
            assert len(server.violations) == 1


async def test_ready_tools_and_handlers_of_every_kind(connect, autojump_clock):
    async def later(arguments, arrival):
        await trio.sleep(1)
        return {"content": [], "structuredContent": {"n": arrival.number}}

    tools = [fail_tool(), big_tool(), FakeTool("later", later, delay=2)]
    with trio.fail_after(60):
        async with FakeServer.http(tools=tools, advertise=Advertise(instructions="be kind")) as server:
            client = await connect(server)
            opened = await client.initialize()
            assert opened.json["result"]["instructions"] == "be kind"
            assert (await client.call("fail")).json["result"]["isError"] is True
            assert len((await client.call("big", {"size": 200_000})).body) > 200_000
            begun = trio.current_time()
            result = (await client.call("later")).json["result"]
            assert result["structuredContent"] == {"n": 4}
            assert trio.current_time() - begun == 3
            assert (await client.rpc("logging/setLevel", {"level": "info"})).json["result"] == {}


async def test_our_side_can_end_a_stream_and_have_none(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client, stream = await connect(server), await connect(server)
            await client.initialize()
            stream.session = client.session
            await stream.open_stream()
            await server.wait_until(lambda: server.streams == 1)
            assert server.end_streams() == 1
            await stream.receive_end()
            assert server.sessions == [client.session]
            server.get_stream = False
            seen = await client.ask("GET", accept="text/event-stream", **client.session_headers())
            assert seen.status == 405
            server.get_stream = True
            seen = await client.ask("GET", **client.session_headers())
            assert seen.status == 406
