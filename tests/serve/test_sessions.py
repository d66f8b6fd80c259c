"""Sessions of the handshake era over HTTP: whose they are, what is answered in them, how they end."""

from __future__ import annotations

import trio

from afpool.config import ServeLimits
from afpool.testing import FakeTool, Progress, echo_tool, fail_tool, progress_tool
from tests.serve.serve_kit import ALICE, BOB, Caller, place, until


async def test_a_client_lists_calls_and_says_goodbye(tmp_path):
    async with place(tmp_path) as here:
        client = here.client()
        said = await client.open()
        assert said["serverInfo"]["name"] == "afpool"
        assert said["protocolVersion"] == "2025-11-25"
        assert said["capabilities"]["tools"] == {"listChanged": True}
        assert [tool["name"] for tool in await client.tools()] == ["echo"]
        result = await client.call("echo", {"n": 1})
        assert result["content"] == [{"type": "text", "text": '{"n": 1}'}]
        assert (await client.ask("DELETE")).status == 204
        assert (await client.ask(message=client.request("tools/list"))).status == 404
        assert here.service.sessions == 0


async def test_every_handshake_version_is_negotiated_and_an_unknown_one_answered_with_the_latest(tmp_path):
    async with place(tmp_path) as here:
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            assert (await here.client().open(version))["protocolVersion"] == version
        assert (await here.client().open("1999-01-01"))["protocolVersion"] == "2025-11-25"


async def test_anothers_session_and_none_at_all_are_the_same_answer(tmp_path):
    async with place(tmp_path) as here:
        alice = await here.opened(ALICE)
        thief = here.client(BOB)
        thief.session = alice.session
        call = thief.request("tools/call", {"name": "echo", "arguments": {}})
        taken = [
            await thief.ask(message=call),
            await thief.ask("GET"),
            await thief.ask("DELETE"),
        ]
        thief.session = "x" * len(alice.session)
        unknown = [
            await thief.ask(message=call),
            await thief.ask("GET"),
            await thief.ask("DELETE"),
        ]
        for answer, other in zip(taken, unknown, strict=True):
            assert (answer.status, answer.body, answer.headers) == (other.status, other.body, other.headers)
            assert answer.status == 404
        assert here.server.executions == {}
        assert await alice.call("echo") is not None


async def test_each_sees_the_tools_of_his_own_servers(tmp_path):
    async with place(tmp_path) as here:
        here.server.set_tools_for(
            lambda arrival: [echo_tool(f"for_{arrival.connection}")] if arrival.connection else [echo_tool()]
        )
        alice, bob = await here.opened(ALICE), await here.opened(BOB)
        names = {tool["name"] for tool in await alice.tools()}
        others = {tool["name"] for tool in await bob.tools()}
        assert names.isdisjoint(others)


async def test_a_message_that_is_none_is_refused_without_its_words(tmp_path):
    async with place(tmp_path) as here:
        client = await here.opened()
        for body, code in [
            (b"{secret", -32700),
            (b"[]", -32600),
            (b'{"jsonrpc":"1.0","id":1,"method":"secret"}', -32600),
            (b'{"jsonrpc":"2.0","id":true,"method":"secret"}', -32600),
            (b'{"jsonrpc":"2.0","id":null,"method":"secret"}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"x","params":["secret"]}', -32602),
            (b"[" * 100_000, -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"[" * 100_000, -32700),
        ]:
            answer = await client.ask(body=body)
            assert answer.status == 400
            assert answer.json["error"]["code"] == code
            assert b"secret" not in answer.body


async def test_what_is_no_method_and_what_is_no_call_are_errors_of_the_protocol(tmp_path):
    async with place(tmp_path) as here:
        client = await here.opened()
        assert (await client.rpc("tools/fly"))["error"]["code"] == -32601
        assert (await client.rpc("tools/call", {}))["error"]["code"] == -32602
        assert (await client.rpc("tools/call", {"name": "echo", "arguments": []}))["error"]["code"] == -32602
        assert (await client.rpc("ping"))["result"] == {}
        # none of it opened anything, and the session goes on
        assert await client.call("echo") is not None


async def test_a_refusal_is_a_result_with_its_word_and_verdict(tmp_path):
    async with place(tmp_path, servers={"desk": [echo_tool(), fail_tool()]}) as here:
        client = await here.opened()
        unknown = await client.call("nothing")
        assert unknown["isError"] is True
        assert "echo" in unknown["content"][0]["text"]
        assert unknown["_meta"] == {"afpool/code": "unknown-tool", "afpool/delivery": "not-sent"}
        failed = await client.call("fail")
        assert failed["isError"] is True
        assert "_meta" not in failed


async def test_progress_comes_under_the_callers_own_token_and_only_if_it_was_asked_for(tmp_path):
    async with place(tmp_path, servers={"desk": [progress_tool()]}) as here:
        client = await here.opened()
        params = {"name": "progress", "arguments": {"steps": 3}, "_meta": {"progressToken": "mine"}}
        answer = await client.ask(message=client.request("tools/call", params))
        steps = [each["params"] for each in answer.events if each.get("method") == "notifications/progress"]
        assert len(steps) >= 2
        assert {step["progressToken"] for step in steps} == {"mine"}
        assert answer.events[-1]["result"]["content"]
        quiet = await client.ask(message=client.request("tools/call", {"name": "progress", "arguments": {}}))
        assert quiet.headers["content-type"] == "application/json"


def waiting_tool(gate):
    async def wait(arguments, arrival):
        yield Progress(1)
        await gate.wait()
        yield "done"

    return FakeTool("wait", wait)


async def test_a_withdrawn_call_ends_and_gives_back_what_it_held(tmp_path):
    gate = trio.Event()
    async with place(tmp_path, servers={"desk": [waiting_tool(gate)]}) as here:
        client = await here.opened()
        request = client.request("tools/call", {"name": "wait", "arguments": {}})
        answer = client.begin(message=request)
        with trio.fail_after(5):
            await here.server.wait_for("tools/call", 1)
        other = client.begin(message=client.request("tools/call", {"name": "wait", "arguments": {}}))
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request["id"]}}
        assert (await client.ask(message=told)).status == 202
        with trio.fail_after(5):
            await answer.ended.wait()
        assert answer.json["error"]["code"] == -32800
        await until(lambda: len(here.server.cancelled) == 1)
        assert here.service.calls == 1
        gate.set()
        with trio.fail_after(5):
            await other.ended.wait()
        assert other.json["result"]["content"][0]["text"] == "done"
        assert here.service.calls == 0


async def test_a_client_that_has_gone_takes_its_call_with_it(tmp_path):
    gate, gone = trio.Event(), trio.Event()
    async with place(tmp_path, servers={"desk": [waiting_tool(gate)]}) as here:
        client = await here.opened()
        request = client.request("tools/call", {"name": "wait", "arguments": {}})
        answer = client.begin(message=request, gone=gone)
        with trio.fail_after(5):
            await here.server.wait_for("tools/call", 1)
        gone.set()
        with trio.fail_after(5):
            await answer.ended.wait()
        await until(lambda: len(here.server.cancelled) == 1)
        assert here.service.calls == 0
        pool = here.service.runtime.pool
        await until(lambda: pool.statistics().in_flight == 0)


async def test_ids_are_given_back_as_they_came_and_one_under_way_is_not_taken_twice(tmp_path):
    gate = trio.Event()
    async with place(tmp_path, servers={"desk": [waiting_tool(gate)]}) as here:
        client = await here.opened()
        body = b'{"jsonrpc":"2.0","id":"a\\u00e9/1","method":"tools/call","params":{"name":"wait"}}'
        first = client.begin(body=body)
        with trio.fail_after(5):
            await here.server.wait_for("tools/call", 1)
        twice = await client.ask(body=body)
        assert twice.json["error"]["code"] == -32600
        gate.set()
        with trio.fail_after(5):
            await first.ended.wait()
        assert b'"id":"a\\u00e9/1"' in first.body
        assert here.server.executions["wait"] == 1


async def test_a_changed_list_is_told_to_the_sessions_that_it_concerns(tmp_path):
    async with place(tmp_path) as here:
        alice, bob = await here.opened(ALICE), await here.opened(BOB)
        await alice.tools()
        heard, silent = alice.begin("GET"), bob.begin("GET")  # bob has not used a server yet
        late = await here.opened(ALICE)
        await until(lambda: here.server.streams == 1)
        here.server.set_tools([echo_tool("other")])
        await heard.event("notifications/tools/list_changed")
        assert [tool["name"] for tool in await alice.tools()] == ["other"]
        # who had no stream is told when he opens one
        await (late.begin("GET")).event("notifications/tools/list_changed")
        assert silent.events == []


async def test_a_tool_that_is_another_one_by_now_is_refused_until_it_is_listed_again(tmp_path):
    async with place(tmp_path, servers={"desk": [echo_tool(), echo_tool("steady")]}) as here:
        client = await here.opened()
        await client.tools()
        await until(lambda: here.server.streams == 1)
        heard = client.begin("GET")
        here.server.set_tools([FakeTool("echo", description="Deletes, too."), echo_tool("steady")])
        await heard.event("notifications/tools/list_changed")
        for _ in range(2):
            refused = await client.call("echo")
            assert refused["_meta"]["afpool/code"] == "stale-tools"
        # only the list around this one has changed: one refusal, then it is found afresh
        assert (await client.call("steady"))["_meta"]["afpool/code"] == "stale-tools"
        assert "_meta" not in await client.call("steady")
        assert here.server.executions == {"steady": 1}
        await client.tools()
        assert "_meta" not in await client.call("echo")


async def test_a_newer_stream_takes_the_place_of_the_one_before(tmp_path):
    async with place(tmp_path) as here:
        client = await here.opened()
        first = client.begin("GET")
        await first.started.wait()
        second = client.begin("GET")
        with trio.fail_after(5):
            await first.ended.wait()
        assert second.status in (None, 200)
        assert not second.ended.is_set()
        await client.ask("DELETE")
        with trio.fail_after(5):
            await second.ended.wait()


async def test_too_many_sessions_push_out_idle_ones_of_the_same_principal_only(tmp_path):
    limits = ServeLimits(sessions_per_principal=2)
    async with place(tmp_path, serve={"limits": limits}) as here:
        bob = await here.opened(BOB)
        first = await here.opened(ALICE)
        second = await here.opened(ALICE)
        stream = second.begin("GET")
        await stream.started.wait()
        third = await here.opened(ALICE)
        assert (await first.ask(message=first.request("ping"))).status == 404
        held = third.begin("GET")
        await held.started.wait()
        client = here.client(ALICE)
        refused = await client.ask(message=client.request("initialize", {}))
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert (await bob.rpc("ping"))["result"] == {}


async def test_an_initialize_that_is_refused_leaves_no_session(tmp_path):
    async with place(tmp_path) as here:
        client = here.client()
        assert "error" in await client.rpc("initialize", {"nonsense": True})
        assert here.service.sessions == 0
        assert (await client.ask(message=client.request("tools/list"))).status == 400


async def test_what_an_answer_may_be_is_the_clients_choice(tmp_path):
    async with place(tmp_path) as here:
        client = await here.opened()
        request = client.request("tools/call", {"name": "echo", "arguments": {}})
        for accept, kind in [
            ("application/json", "application/json"),
            ("text/event-stream", "text/event-stream"),
            ("*/*", "application/json"),
            (None, "application/json"),
        ]:
            answer = await client.ask(message=request, headers={"accept": accept})
            assert answer.headers["content-type"] == kind
            assert "result" in answer.json
        assert (await client.ask(message=request, headers={"accept": "text/html"})).status == 406
        assert (await client.ask("GET", headers={"accept": "application/json"})).status == 406


async def test_where_tokens_come_from_is_told_to_everybody(tmp_path):
    async with place(tmp_path, identity={"resource": "https://tools.example.com/mcp"}) as here:
        client = Caller(here.service.app, None, here.nursery)
        refused = await client.ask(message=client.request("initialize", {}))
        where = "/.well-known/oauth-protected-resource/mcp"
        assert f'resource_metadata="https://tools.example.com{where}"' in refused.headers["www-authenticate"]
        answer = await client.ask("GET", where)
        assert answer.status == 200
        assert answer.json["resource"] == "https://tools.example.com/mcp"
        assert (await client.ask("GET", where, headers={"host": "elsewhere.example"})).status == 421


async def test_who_proves_nothing_gets_nothing(tmp_path):
    async with place(tmp_path) as here:
        client = Caller(here.service.app, None, here.nursery)
        answer = await client.ask(message=client.request("initialize", {}))
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        client.token = "afp_nonsense"
        answer = await client.ask(message=client.request("initialize", {}))
        assert answer.status == 401
        assert b"nonsense" not in answer.body
        assert (await client.ask("GET", "/healthz")).status == 200
        assert (await client.ask("GET", "/elsewhere")).status == 404
