"""The stateless era (2026-07-28) over HTTP, and servers of both eras."""

from __future__ import annotations

import base64
import json
import socket

import pytest
import trio

from afpool.testing import (
    Delay,
    FakeServer,
    FakeTool,
    Flood,
    Hang,
    Result,
    echo_tool,
    input_required,
    sleep_tool,
)

BOTH = "application/json, text/event-stream"
LIST_CHANGED = "notifications/tools/list_changed"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.mark.parametrize("answer", ["json", "sse"])
@pytest.mark.parametrize("era", ["stateless", "both"])
async def test_discover_list_and_call(connect, autojump_clock, era, answer):
    with trio.fail_after(5):
        async with FakeServer.http(era=era, answer=answer) as server:
            server.advertise.ttl_ms = 60_000
            client = await connect(server)
            found = (await client.modern_rpc("server/discover")).message["result"]
            assert found["supportedVersions"][0] == "2026-07-28"
            assert ("2025-11-25" in found["supportedVersions"]) == (era == "both")
            assert found["resultType"] == "complete"
            listed = (await client.modern_rpc("tools/list")).message["result"]
            assert (listed["ttlMs"], listed["cacheScope"]) == (60_000, "private")
            called = (await client.modern_call("echo", {"a": 1})).message["result"]
            assert called["resultType"] == "complete"
            assert "ttlMs" not in called
            assert server.execution_count("echo", {"a": 1}) == 1
            assert server.sessions == []
            server.advertise.result_type = server.advertise.ttl_ms = None
            listed = (await client.modern_rpc("tools/list")).message["result"]
            assert set(listed) == {"tools"}


async def test_the_envelope_and_the_headers_are_checked(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            client = await connect(server)

            async def refused(status: int, code: int, body: bytes, headers: dict[str, str]) -> dict:
                seen = await client.ask("POST", body, **headers)
                assert (seen.status, seen.json["error"]["code"]) == (status, code)
                return seen.json["error"]

            body, headers = client.modern("tools/call", {"name": "echo"})
            bare = client.message("tools/call", {"name": "echo"})
            await refused(400, -32602, bare, headers)
            meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
            half = client.message("tools/call", {"name": "echo", "_meta": meta})
            await refused(400, -32602, half, headers)
            for name, wrong in (
                ("mcp_protocol_version", "2025-11-25"),
                ("mcp_method", "tools/list"),
                ("mcp_name", "other"),
                ("mcp_name", "=?base64?ZWNobw?="),
            ):
                await refused(400, -32020, body, headers | {name: wrong})
                rest = {key: value for key, value in headers.items() if key != name}
                await refused(400, -32020, body, rest)
            later = body.replace(b"2026-07-28", b"2099-01-01")
            error = await refused(400, -32022, later, headers | {"mcp_protocol_version": "2099-01-01"})
            assert error["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}
            body, headers = client.modern("ping")
            await refused(404, -32601, body, headers)
            assert server.executed == []


async def test_routed_names_and_parameters_in_headers(connect, autojump_clock):
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        },
    }
    with trio.fail_after(5):
        async with FakeServer.http(
            era="stateless", tools=[FakeTool("wetter-ä", input_schema=schema)]
        ) as server:
            client = await connect(server)
            name = f"=?base64?{base64.b64encode('wetter-ä'.encode()).decode()}?="
            arguments = {"region": "eu", "deep": {"n": 7}}
            good = {"mcp_name": name, "mcp_param_region": "eu", "mcp_param_n": "7"}
            assert (await client.modern_call("wetter-ä", arguments, **good)).status == 200
            wrong = await client.modern_call("wetter-ä", arguments, **(good | {"mcp_param_n": "8"}))
            assert (wrong.status, wrong.json["error"]["code"]) == (400, -32020)
            none = await client.modern_call("wetter-ä", {"region": None}, mcp_name=name)
            assert none.status == 200
            assert server.executions["wetter-ä"] == 2


async def test_a_state_that_a_scripted_result_gave_may_come_back_and_no_other(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            client = await connect(server)
            server.on("tools/call", Result(input_required({}, {"step": 1})), times=1)
            await client.modern_call("echo", {})
            for state, violations in (({"step": 1}, 0), ({"step": 2}, 1)):
                await client.modern_rpc(
                    "tools/call", {"name": "echo", "requestState": state}, mcp_name="echo"
                )
                assert len(server.violations) == violations


async def test_initialize_is_refused(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            client = await connect(server)
            body = client.message("initialize", {"protocolVersion": "2025-11-25"})
            seen = await client.ask("POST", body)
            assert (seen.status, seen.json["error"]["data"]["requested"]) == (400, "2025-11-25")
            server.engine.initialize_refusal = -32601
            seen = await client.ask("POST", body)
            assert (seen.status, seen.json["error"]["code"]) == (404, -32601)
            assert (await client.ask("GET", accept="text/event-stream")).status == 405
            assert (await client.ask("DELETE")).status == 405


async def test_a_server_of_both_eras_keeps_them_apart(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="both") as server:
            client = await connect(server)
            await client.initialize()
            assert "resultType" not in (await client.call("echo")).json["result"]
            assert (await client.modern_call("echo")).json["result"]["resultType"] == "complete"
            assert [run.session_id for run in server.executed] == [client.session, None]
            unknown, headers = client.modern("tools/list")
            unknown = unknown.replace(b"2026-07-28", b"2099-01-01")
            seen = await client.ask("POST", unknown, **(headers | {"mcp_protocol_version": "2099-01-01"}))
            assert seen.json["error"]["code"] == -32022


async def test_listen_acknowledges_notifies_and_ends(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            client = await connect(server)
            wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x:y"]}}
            body, headers = client.modern("subscriptions/listen", wanted, rpc_id="sub")
            await client.send("POST", body, **headers)
            acknowledged = await client.next_message()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
            server.set_tools([echo_tool("other")])
            changed = await client.next_message()
            assert changed["method"] == LIST_CHANGED
            assert changed["params"]["_meta"][SUBSCRIPTION] == "sub"
            assert await server.notify("notifications/prompts/list_changed") == 0
            assert server.end_streams() == 1
            assert (await client.next_message())["id"] == "sub"
            await client.receive_end()
            await server.wait_until(lambda: server.streams == 0)
            server.engine.listen_enabled = False
            seen = await (await connect(server)).modern_rpc("subscriptions/listen", wanted)
            assert seen.status == 404


async def test_a_listen_is_answered_behind_a_flood(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            server.on("subscriptions/listen", Flood(b"data: {}\n\n", times=1))
            client = await connect(server)
            body, headers = client.modern("subscriptions/listen", {"notifications": {}})
            await client.send("POST", body, **headers)
            assert await client.next_message() == {}
            acknowledged = await client.next_message()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"


async def test_closing_a_listen_is_no_cancelled_call(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            client = await connect(server)
            body, headers = client.modern("subscriptions/listen", {"notifications": {}})
            await client.send("POST", body, **headers)
            await client.next_message()
            await client.stream.aclose()
            await server.wait_until(lambda: server.streams == 0)
            assert server.cancelled == []


@pytest.mark.parametrize("where", ["tool", "rule", "hang"])
async def test_closing_the_response_is_the_cancel(connect, autojump_clock, where):
    finished = []

    async def handler(arguments, arrival):
        await trio.sleep(1000)
        finished.append(1)
        return "done"

    with trio.fail_after(100):
        async with FakeServer.http(era="stateless", tools=[FakeTool("slow", handler)]) as server:
            if where != "tool":
                server.on("tools/call", Delay(1000) if where == "rule" else Hang())
            client = await connect(server)
            body, headers = client.modern("tools/call", {"name": "slow"}, rpc_id="c1")
            await client.send("POST", body, **headers)
            await server.wait_for("tools/call")
            await trio.testing.wait_all_tasks_blocked()
            assert server.executions["slow"] == (where == "tool")
            await client.stream.aclose()
            await server.wait_until(lambda: server.cancelled == ["c1"])
            await trio.testing.wait_all_tasks_blocked()
            assert finished == []


def send_and_leave(server: FakeServer, body: bytes, headers: dict[str, str]) -> None:
    """Send a request and close, in one step: the server finds the request and the end together."""
    lines = ["POST /mcp HTTP/1.1", "host: x", f"accept: {BOTH}", "content-type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(body)}", "", ""]
    with socket.create_connection(("127.0.0.1", server.port)) as quick:
        quick.sendall("\r\n".join(lines).encode() + body)


async def test_calls_withdrawn_at_once_either_run_or_are_cancelled(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            client = await connect(server)
            for number in range(30):
                send_and_leave(server, *client.modern("tools/call", {"name": "echo"}, rpc_id=number))
            await server.wait_until(lambda: len(server.cancelled) + len(server.executed) == 30)
            await server.wait_until(lambda: server.connections == 1)
            ran = {run.arrival.id for run in server.executed}
            assert ran.isdisjoint(server.cancelled)
            assert ran | set(server.cancelled) == set(range(30))


async def test_slow_calls_withdrawn_at_once_are_all_cancelled(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless", tools=[sleep_tool()]) as server:
            client = await connect(server)
            params = {"name": "sleep", "arguments": {"seconds": 3600}}
            for number in range(30):
                send_and_leave(server, *client.modern("tools/call", params, rpc_id=number))
            await server.wait_until(lambda: len(server.cancelled) == 30)
            await server.wait_until(lambda: len(server._alive) == 1)


async def test_an_uncancellable_tool_runs_on_after_the_close(connect, autojump_clock):
    with trio.fail_after(100):
        tool = sleep_tool("stubborn", cancellable=False)
        async with FakeServer.http(era="stateless", tools=[tool]) as server:
            client = await connect(server)
            body, headers = client.modern("tools/call", {"name": "stubborn", "arguments": {"seconds": 30}})
            await client.send("POST", body, **headers)
            await server.wait_until(lambda: server.executions["stubborn"] == 1)
            await client.stream.aclose()
            await server.wait_until(lambda: len(server.cancelled) == 1)
            begun = trio.current_time()
            await server.wait_until(lambda: not server._alive)
            assert trio.current_time() - begun == 30


async def test_a_stray_cancel_notice_is_accepted(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http(era="stateless") as server:
            client = await connect(server)
            notice = json.dumps(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
            ).encode()
            assert (await client.ask("POST", notice)).status == 202
            assert server.cancelled == [9]
