"""Every action over HTTP, and how rules are chosen."""

from __future__ import annotations

import json

import attrs
import pytest
import trio

from afpool.testing import (
    Action,
    Body,
    BreakOff,
    Delay,
    Drop,
    FakeServer,
    Hang,
    Hold,
    HoldStream,
    JsonRpcError,
    RawBytes,
    Result,
    Rule,
    Sse,
    Status,
    Truncate,
)
from afpool.testing._actions import action_from_json


@pytest.fixture
async def server():
    async with FakeServer.http() as server:
        yield server


@pytest.fixture
async def client(server, connect):
    client = await connect(server)
    await client.initialize()
    return client


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("reset", [False, True])
async def test_drop(server, client, autojump_clock, connect, executed, reset):
    server.on("tools/call", Drop(after_execution=executed, reset=reset), times=1)
    with trio.fail_after(5):
        with pytest.raises(ConnectionError) as caught:
            await client.call("echo")
        assert caught.value.status is None
        assert server.executions["echo"] == executed
        again = await connect(server)
        again.session = client.session
        assert (await again.call("echo")).status == 200


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_that_has_no_body(server, client, autojump_clock, status):
    server.on("tools/call", JsonRpcError(-32600, status=status), times=1)
    with trio.fail_after(5):
        seen = await client.call("echo")
        assert (seen.status, seen.body) == (status, b"")
        assert (await client.call("echo")).status == 200


async def test_the_rest_of_an_answer_is_its_sessions_and_its_own(server, client, autojump_clock, connect):
    # two of one session broke off, and one of another; the rule gives each the same id to begin with
    server.answer = "sse"
    server.on("tools/call", BreakOff("e"))
    with trio.fail_after(5):
        assert "id: e\n" in (await client.call("echo", {"n": 1})).body.decode()
        assert "id: e-2\n" in (await client.call("echo", {"n": 2})).body.decode()
        other = await connect(server)
        await other.initialize()
        assert "id: e\n" in (await other.call("echo", {"n": 3})).body.decode()

        async def rest(of, event_id):
            headers = {"accept": "text/event-stream", "last_event_id": event_id, **of.session_headers()}
            return (await of.ask("GET", **headers)).message["result"]["content"][0]["text"]

        assert await rest(other, "e") == '{"n": 3}'
        assert await rest(client, "e-2") == '{"n": 2}'
        assert await rest(client, "e") == '{"n": 1}'


@pytest.mark.parametrize("answer", ["json", "sse"])
@pytest.mark.parametrize("at", [None, 0, 10])
async def test_truncate(server, client, autojump_clock, answer, at):
    server.answer = answer
    server.on("tools/call", Truncate(at))
    with trio.fail_after(5):
        with pytest.raises(ConnectionError) as caught:
            await client.call("echo", {"a": 1})
    assert caught.value.status == 200
    assert server.executions["echo"] == 1
    if at is not None:
        assert len(caught.value.body) == at
    else:
        assert caught.value.body


@pytest.mark.parametrize("executed", [False, True])
async def test_hang_until_the_client_leaves(server, client, autojump_clock, executed):
    server.on("tools/call", Hang(after_execution=executed))
    with trio.move_on_after(3600) as scope:
        await client.call("echo")
    assert scope.cancelled_caught
    assert server.executions["echo"] == executed
    with trio.fail_after(5):
        await client.stream.aclose()
        await server.wait_until(lambda: not server._alive)


async def test_delay_then_the_next_rule_then_as_usual(server, client, autojump_clock):
    server.on("tools/call", Delay(7))
    status = server.on("tools/call", Status(503, {"retry-after": "3"}), times=1)
    with trio.fail_after(60):
        begun = trio.current_time()
        seen = await client.call("echo")
        assert (seen.status, seen.headers["retry-after"], seen.body) == (503, "3", b"")
        assert trio.current_time() - begun == 7
        assert status.used == 1
        assert (await client.call("echo")).status == 200
        assert trio.current_time() - begun == 14


async def test_hold_until_the_test_lets_go(server, client, autojump_clock, nursery):
    gate = trio.Event()
    server.on("tools/call", Hold(gate))
    with trio.fail_after(5):
        nursery.start_soon(client.call, "echo")
        await server.wait_for("tools/call")
        await trio.testing.wait_all_tasks_blocked()
        assert server.executed == []
        gate.set()
        await server.wait_until(lambda: server.executions["echo"] == 1)


async def test_status_forms(server, client, autojump_clock):
    server.on("tools/call", Status(401, {"www-authenticate": "Bearer"}, b"who?"), times=1)
    server.on("tools/call", Status(500, json={"oops": 1}, after_execution=True), times=1)
    server.on("tools/call", Status(307, {"location": "/mcp/"}), times=1)
    with trio.fail_after(5):
        seen = await client.call("echo")
        assert (seen.status, seen.body, seen.headers["www-authenticate"]) == (401, b"who?", "Bearer")
        assert server.executed == []
        seen = await client.call("echo")
        assert (seen.status, seen.json) == (500, {"oops": 1})
        assert server.executions["echo"] == 1
        assert (await client.call("echo")).headers["location"] == "/mcp/"


async def test_raw_bytes(server, client, autojump_clock, connect):
    server.on("tools/call", RawBytes(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"), times=1)
    server.on("tools/call", RawBytes(b"\x00garbage", close=False))
    with trio.fail_after(5):
        assert (await client.call("echo")).body == b"hi"
        other = await connect(server)
        other.session = client.session
        await other.send("POST", other.message("tools/call", {"name": "echo"}), **other.session_headers())
        assert await other.stream.receive_some(100) == b"\x00garbage"
        assert server.connections == 1


async def test_scripted_results_errors_and_bodies(server, client, autojump_clock):
    with trio.fail_after(5):
        server.on("tools/call", JsonRpcError(-32603, "no", {"why": 1}, status=400), times=1)
        seen = await client.call("echo")
        assert (seen.status, seen.json["error"]) == (
            400,
            {"code": -32603, "message": "no", "data": {"why": 1}},
        )
        server.on("tools/call", Result({"content": []}), times=1)
        seen = await client.call("echo", rpc_id="mine")
        assert seen.json == {"jsonrpc": "2.0", "id": "mine", "result": {"content": []}}
        server.on("tools/call", Result({}, id="other"), times=1)
        assert (await client.call("echo")).json["id"] == "other"
        server.on("tools/call", JsonRpcError(1, id=None), times=1)
        assert (await client.call("echo")).json["id"] is None
        server.on("tools/call", Body(b"<html>", "text/html", 502), times=1)
        seen = await client.call("echo")
        assert (seen.status, seen.headers["content-type"], seen.body) == (502, "text/html", b"<html>")
        assert server.executed == []


async def test_hold_stream(server, client, autojump_clock):
    server.on("tools/call", HoldStream(first=[{"jsonrpc": "2.0", "method": "notifications/message"}]))
    with trio.fail_after(5):
        await client.send("POST", client.message("tools/call", {"name": "echo"}), **client.session_headers())
        assert (await client.next_message())["method"] == "notifications/message"
        await client.stream.aclose()
        await server.wait_until(lambda: not server._alive)


@pytest.mark.parametrize("close", [False, True])
async def test_unusual_streams(server, client, autojump_clock, close):
    action = Sse(
        b": hello\r\n\r\nid: 1\r\ndata:\r\n\r\n", b": bye", newline="\r\n", split=3, event_id="2", close=close
    )
    server.on("tools/call", action)
    with trio.fail_after(5):
        if close:
            with pytest.raises(ConnectionError) as caught:
                await client.call("echo")
            body = caught.value.body
        else:
            body = (await client.call("echo")).body
    assert body.startswith(b": hello\r\n\r\nid: 1\r\ndata:\r\n\r\nevent: message\r\nid: 2\r\ndata: {")
    assert body.endswith(b"\r\n\r\n: bye")
    assert server.executions["echo"] == 1


async def test_rules_for_other_arrivals(server, client, autojump_clock):
    with trio.fail_after(5):
        for rule, send in (
            ("GET", lambda: client.ask("GET", accept="text/event-stream", **client.session_headers())),
            ("DELETE", lambda: client.ask("DELETE", **client.session_headers())),
            ("notifications/cancelled", lambda: client.rpc("notifications/cancelled", {"requestId": 1})),
            ("response", lambda: client.ask("POST", b'{"jsonrpc":"2.0","id":1,"result":{}}')),
            ("*", lambda: client.rpc("ping")),
        ):
            server.clear_rules()
            server.on(rule, Status(418))
            assert (await send()).status == 418, rule
        assert server.cancelled == []
        assert len(server.sessions) == 1


async def test_the_first_matching_rule_decides(server, client, autojump_clock):
    with trio.fail_after(5):
        server.on("tools/call", Status(501), tool="other")
        server.on("tools/call", Status(502), when=lambda arrival: arrival.arguments.get("n") == 2)
        last = server.add(Rule("tools/call", Status(503), times=2))
        assert (await client.call("other")).status == 501
        assert (await client.call("echo", {"n": 2})).status == 502
        assert [(await client.call("echo")).status for _ in range(3)] == [503, 503, 200]
        last.times = None
        assert (await client.call("echo")).status == 503
        server.remove(last)
        server.remove(last)
        assert (await client.call("echo")).status == 200


def _actions() -> list[type[Action]]:
    return [Delay, Drop, Truncate, Hang, Status, RawBytes, JsonRpcError, Result, Body, HoldStream, Sse]


@pytest.mark.parametrize("kind", _actions(), ids=lambda kind: kind.__name__)
def test_every_action_but_hold_has_a_json_form(kind):
    needed = {"Delay": {"seconds": 1}, "Status": {"code": 500}, "RawBytes": {"data": "x"}}
    needed |= {"JsonRpcError": {"code": 1}, "Result": {"result": {}}, "Body": {"data": "x"}}
    arguments = needed.get(kind.__name__, {})
    action = action_from_json(json.loads(json.dumps({"do": kind.__name__, **arguments})))
    assert type(action) is kind
    if "data" in arguments:
        assert attrs.asdict(action)["data"] == b"x"


@pytest.mark.parametrize("spec", [{}, {"do": "Hold"}, {"do": "Nope"}, {"do": "Drop", "x": 1}, {"do": 1}])
def test_a_wrong_action_is_refused(spec):
    with pytest.raises(ValueError, match="action"):
        action_from_json(spec)
