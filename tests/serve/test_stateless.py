"""The stateless era over HTTP: a request says all, a stream tells of changes, questions are answers."""

from __future__ import annotations

import pytest
import trio

from afpool.serve._listed import PAGE
from afpool.testing import FakeTool, JsonRpcError, ask_tool, echo_tool, input_tool, progress_tool
from tests.serve.serve_kit import ALICE, BOB, META, STATELESS, envelope, place, until

FORM = {"elicitation": {"form": {}}}


async def test_a_client_discovers_lists_and_calls_without_a_session(tmp_path):
    async with place(tmp_path) as here:
        client = here.client()
        found = (await client.modern_rpc("server/discover")).json["result"]
        assert found["supportedVersions"] == [STATELESS]
        assert found["capabilities"]["tools"] == {"listChanged": True}
        listed = (await client.modern_rpc("tools/list")).json["result"]
        assert [tool["name"] for tool in listed["tools"]] == ["echo"]
        assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
        answer = await client.modern_rpc("tools/call", {"name": "echo", "arguments": {"n": 1}})
        assert "mcp-session-id" not in answer.headers
        result = answer.json["result"]
        assert result["content"][0]["text"] == '{"n": 1}'
        assert result["resultType"] == "complete"
        assert result["_meta"][f"{META}serverInfo"]["name"] == "afpool"
        assert here.service.sessions == 0


async def test_a_head_that_says_something_else_than_its_body_is_refused(tmp_path):
    async with place(tmp_path) as here:
        client = here.client()
        params = {"name": "echo", "arguments": {}}
        for headers, code in [
            ({"mcp-method": "tools/list"}, -32020),
            ({"mcp-name": "other"}, -32020),
            ({"mcp-name": None}, -32020),
            ({"mcp-protocol-version": "2030-01-01"}, -32020),
        ]:
            answer = await client.modern_rpc("tools/call", params, headers=headers)
            assert (answer.status, answer.json["error"]["code"]) == (400, code)
        params["_meta"] = envelope() | {f"{META}protocolVersion": "2030-01-01"}
        headers = {"mcp-protocol-version": "2030-01-01", "mcp-method": "tools/call", "mcp-name": "echo"}
        answer = await client.ask(message=client.request("tools/call", params), headers=headers)
        assert answer.status == 400
        assert answer.json["error"]["data"]["supported"] == [STATELESS]
        assert (await client.modern_rpc("tools/fly")).status == 404
        assert (await client.ask("GET", headers={"mcp-protocol-version": STATELESS})).status == 405
        assert here.server.executions == {}


async def test_arguments_that_are_mirrored_in_headers_are_compared(tmp_path):
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    async with place(tmp_path, servers={"desk": [FakeTool("route", input_schema=schema)]}) as here:
        client = here.client()
        params = {"name": "route", "arguments": {"region": "eu"}}
        for headers, status in [
            ({"mcp-param-region": "eu"}, 200),
            ({"mcp-param-region": "us"}, 400),
            ({}, 400),
        ]:
            assert (await client.modern_rpc("tools/call", params, headers=headers)).status == status
        assert here.server.executions == {"route": 1}


async def test_progress_turns_the_answer_into_a_stream(tmp_path):
    async with place(tmp_path, servers={"desk": [progress_tool()]}) as here:
        client = here.client()
        answer = await client.modern_rpc(
            "tools/call", {"name": "progress", "arguments": {}}, meta={"progressToken": 7}
        )
        told = [each["params"] for each in answer.events if each.get("method") == "notifications/progress"]
        assert told
        assert {step["progressToken"] for step in told} == {7}
        assert answer.json["result"]["resultType"] == "complete"


async def test_a_client_that_closes_its_stream_has_withdrawn_its_call(tmp_path):
    async def hang(arguments, arrival):
        await trio.sleep_forever()

    async with place(tmp_path, servers={"desk": [FakeTool("hang", hang)]}) as here:
        client = here.client()
        for count, capabilities in enumerate(({}, FORM), 1):
            gone = trio.Event()
            params = {"name": "hang", "arguments": {}}
            answer = client.modern("tools/call", params, capabilities=capabilities, gone=gone)
            with trio.fail_after(5):
                await here.server.wait_for("tools/call", count)
            gone.set()
            with trio.fail_after(5):
                await answer.ended.wait()
            await until(lambda count=count: len(here.server.cancelled) == count)
            await until(lambda: here.service.calls == 0)


async def test_a_change_is_told_on_the_streams_of_its_identity_only(tmp_path):
    async with place(tmp_path) as here:
        alice, bob = here.client(ALICE), here.client(BOB)
        await alice.modern_rpc("tools/list")
        wanted = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
        heard = alice.modern("subscriptions/listen", wanted)
        other = bob.modern("subscriptions/listen", wanted)
        ack = await heard.event("notifications/subscriptions/acknowledged")
        assert ack["params"]["notifications"] == {"toolsListChanged": True}
        subscription = ack["params"]["_meta"][f"{META}subscriptionId"]
        await other.event("notifications/subscriptions/acknowledged")
        await until(lambda: here.server.streams == 1)
        here.server.set_tools([echo_tool("other")])
        told = await heard.event("notifications/tools/list_changed")
        assert told["params"]["_meta"][f"{META}subscriptionId"] == subscription
        assert [each["method"] for each in other.events] == ["notifications/subscriptions/acknowledged"]
        await here.service.drain(trio.current_time())
        with trio.fail_after(5):
            await heard.ended.wait()
        assert heard.json["result"]["resultType"] == "complete"


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_question_is_the_answer_and_the_next_request_goes_on_with_it(tmp_path, era):
    tool = input_tool("delete") if era == "stateless" else ask_tool("delete")
    async with place(tmp_path, servers={"desk": [tool]}, http={"era": era}) as here:
        client = here.client()
        params = {"name": "delete", "arguments": {} if era == "stateless" else {"params": FORM_PARAMS}}
        answer = await client.modern_rpc("tools/call", params, capabilities=FORM)
        asked = answer.json["result"]
        assert asked["resultType"] == "input_required"
        # a server's own word for its question is kept
        key = "confirm" if era == "stateless" else "question"
        assert asked["inputRequests"][key]["method"] == "elicitation/create"
        assert here.service.calls == 1
        more = params | {
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"sure": True}}},
        }
        # whoever else says the word, or says it of another tool, says nothing
        thief = await here.client(BOB).modern_rpc("tools/call", more, capabilities=FORM)
        assert thief.json["error"]["code"] == -32602
        other = await client.modern_rpc("tools/call", more | {"name": "echo"}, capabilities=FORM)
        assert other.json["error"]["code"] == -32602
        # without an answer to the question it is asked again
        for said in (None, {}, {"x": {"action": "accept"}}, {key: 3}):
            twice = await client.modern_rpc("tools/call", more | {"inputResponses": said}, capabilities=FORM)
            assert twice.json["result"] == asked
        result = (await client.modern_rpc("tools/call", more, capabilities=FORM)).json["result"]
        assert '"sure": true' in result["content"][0]["text"]
        # and it is good once
        again = await client.modern_rpc("tools/call", more, capabilities=FORM)
        assert again.json["error"]["code"] == -32602
        assert here.service.calls == 0


async def test_a_question_that_is_answered_beforehand_is_not_asked(tmp_path):
    tools = [input_tool("delete")]
    async with place(tmp_path, servers={"desk": tools}, http={"era": "stateless"}) as here:
        client = here.client()
        answered = {"action": "accept", "content": {"sure": True}}
        params = {"name": "delete", "arguments": {}}
        for said, asks in (
            ({"confirm": answered, "more": answered}, False),
            ({"question": answered}, True),
            ({"confirm": 3}, True),
            ({"confirm": {"action": "accept", "content": {"sure": "yes"}}}, True),
            (None, True),
        ):
            answer = await client.modern_rpc(
                "tools/call", params | {"inputResponses": said}, capabilities=FORM
            )
            result = answer.json["result"]
            assert (result["resultType"] == "input_required") is asks, said
        assert here.server.violations == []


async def test_a_capability_that_a_server_wants_is_asked_of_the_client(tmp_path):
    async with place(tmp_path, http={"era": "stateless"}) as here:
        wanted = {"requiredCapabilities": {"sampling": {}, "elicitation": {"form": {}}}}
        here.server.on("tools/call", JsonRpcError(-32021, "no", wanted, status=400), tool="echo")
        client = here.client()
        params = {"name": "echo", "arguments": {}}
        answer = await client.modern_rpc("tools/call", params, capabilities=FORM)
        assert answer.status == 400
        assert answer.json["error"]["code"] == -32021
        assert answer.json["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
        # one that has all of it is told what became of the call, and is not sent in circles
        both = {**FORM, "sampling": {}}
        told = (await client.modern_rpc("tools/call", params, capabilities=both)).json["result"]
        assert told["isError"]
        assert told["_meta"]["afpool/code"] == "server-error"


FORM_PARAMS = {
    "message": "Really?",
    "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}},
}


async def test_a_client_that_cannot_be_asked_is_not_asked(tmp_path):
    async with place(tmp_path, servers={"desk": [input_tool("delete")]}, http={"era": "stateless"}) as here:
        client = here.client()
        result = (await client.modern_rpc("tools/call", {"name": "delete", "arguments": {}})).json["result"]
        assert result["resultType"] == "complete"
        assert result["_meta"]["afpool/code"] == "input-required"


async def test_a_long_list_comes_in_pages_that_belong_together(tmp_path):
    tools = [echo_tool(f"tool_{number:04}") for number in range(PAGE + 3)]
    async with place(tmp_path, servers={"desk": tools}) as here:
        client = here.client()
        first = (await client.modern_rpc("tools/list")).json["result"]
        second = (await client.modern_rpc("tools/list", {"cursor": first["nextCursor"]})).json["result"]
        names = [tool["name"] for tool in (*first["tools"], *second["tools"])]
        assert names == [tool.name for tool in tools]
        assert "nextCursor" not in second
        for cursor in ("x", first["nextCursor"].replace(str(PAGE), "1"), "", 3):
            answer = await client.modern_rpc("tools/list", {"cursor": cursor})
            assert answer.json["error"]["code"] == -32602
        here.server.set_tools(tools[1:])
        await until(lambda: here.server.streams == 1)
        await until(
            lambda: any(event.kind == "list-changed" for event in here.service.runtime.pool.records.events)
        )
        late = await client.modern_rpc("tools/list", {"cursor": first["nextCursor"]})
        assert late.json["error"]["code"] == -32602


async def test_one_bad_tool_and_one_dead_server_hide_nothing_else(tmp_path):
    tools = [
        echo_tool("good", annotations={"readOnlyHint": True}, outputSchema={"type": "object"}, title="Good"),
        FakeTool("no_type", input_schema={"properties": {"n": {"type": "integer"}}}),
        FakeTool("odd_icons", icons="none"),
        FakeTool("array", input_schema={"type": "array"}),
    ]
    async with place(tmp_path, servers={"desk": tools, "dead": []}) as here:
        here.servers["dead"].refuse_connections()
        result = (await here.client().modern_rpc("tools/list")).json["result"]
        found = {tool["name"]: tool for tool in result["tools"]}
        assert set(found) == {"good", "no_type", "odd_icons"}
        assert found["good"]["annotations"] == {"readOnlyHint": True}
        assert found["good"]["outputSchema"] == {"type": "object"}
        assert found["good"]["title"] == "Good"
        assert found["no_type"]["inputSchema"]["type"] == "object"
        assert "icons" not in found["odd_icons"]
        assert result["_meta"]["afpool/problems"] == {"dead": "open-failed"}
