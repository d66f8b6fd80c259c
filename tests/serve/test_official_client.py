"""The official SDK's client through a listening service, as two tenants at once, in both eras."""

from __future__ import annotations

import contextlib

import httpx2
import mcp_types as types
import pytest
import trio
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from afpool.testing import FakeTool, Progress, ask_tool, echo_tool, input_tool
from tests.serve.serve_kit import ALICE, BOB, place, until

# on trio the SDK's client leaves the generators of its streams to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])
FORM = {
    "message": "Really?",
    "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}},
}


@contextlib.asynccontextmanager
async def connected(here, who, mode, **options):
    headers = {"authorization": f"Bearer {here.texts[who]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=20) as http,
        Client(
            streamable_http_client(here.service.addresses[0], http_client=http), mode=mode, **options
        ) as client,
    ):
        yield client


def stepping(gate):
    async def steps(arguments, arrival):
        yield Progress(1, total=2, message="half")
        await gate.wait()
        yield Progress(2, total=2)
        yield f"done for {arguments['who']}"

    return FakeTool(
        "steps", steps, input_schema={"type": "object", "properties": {"who": {"type": "string"}}}
    )


@MODES
async def test_two_tenants_list_call_progress_and_hear_of_changes_at_once(tmp_path, mode):
    gate = trio.Event()
    async with place(tmp_path, servers={"desk": [echo_tool(), stepping(gate)]}, listen=True) as here:
        heard = {ALICE: [], BOB: []}
        done = {}

        async def one(who):
            async def told(message):
                heard[who].append(message)

            async with connected(here, who, mode, message_handler=told) as client:
                listed = await client.list_tools()
                assert [tool.name for tool in listed.tools] == ["echo", "steps"]
                echoed = await client.call_tool("echo", {"who": who.principal})
                assert who.principal in echoed.content[0].text
                steps = []

                async def on_progress(progress, total, message):
                    steps.append((progress, total, message))
                    if len(steps) == 1:
                        done[who] = True
                        await until(lambda: len(done) == 2)
                        gate.set()

                result = await client.call_tool(
                    "steps", {"who": who.principal}, progress_callback=on_progress
                )
                assert result.content[0].text == f"done for {who.principal}"
                assert steps[0] == (1.0, 2.0, "half")
                assert len(steps) == 2

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, ALICE)
                nursery.start_soon(one, BOB)
        await until(lambda: here.service.calls == 0)
        # each tenant had a connection of his own at the server
        sessions = {arrival.connection for arrival in here.server.arrivals("tools/call")}
        assert len(sessions) >= 2


async def test_a_list_change_is_heard_by_the_clients_handler(tmp_path):
    async with place(tmp_path, listen=True) as here:
        heard = trio.Event()

        async def told(message):
            if isinstance(message, types.ToolListChangedNotification):
                heard.set()

        async with connected(here, ALICE, "legacy", message_handler=told) as client:
            await client.list_tools()
            await until(lambda: here.server.streams == 1)
            here.server.set_tools([echo_tool("other")])
            with trio.fail_after(5):
                await heard.wait()
            assert [tool.name for tool in (await client.list_tools()).tools] == ["other"]


async def test_a_stateless_client_listens_for_changes(tmp_path):
    async with place(tmp_path, listen=True) as here, connected(here, ALICE, "auto") as client:
        await client.list_tools()
        await until(lambda: here.server.streams == 1)
        async with client.listen(tools_list_changed=True) as changes:
            here.server.set_tools([echo_tool("other")])
            with trio.fail_after(5):
                event = await anext(aiter(changes))
            assert "Tools" in type(event).__name__
        assert [tool.name for tool in (await client.list_tools()).tools] == ["other"]


@MODES
async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path, mode):
    async def hang(arguments, arrival):
        await trio.sleep_forever()

    async with (
        place(tmp_path, servers={"desk": [FakeTool("hang", hang), echo_tool()]}, listen=True) as here,
        connected(here, ALICE, mode) as client,
    ):
        await client.list_tools()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "hang", {})
                with trio.fail_after(5):
                    await here.server.wait_for("tools/call", 1)
                scope.cancel()
        await until(lambda: len(here.server.cancelled) == 1)
        await until(lambda: here.service.calls == 0)
        assert (await client.call_tool("echo", {"n": 1})).content[0].text == '{"n": 1}'


@pytest.mark.parametrize("upstream", ["handshake", "stateless"])
@MODES
async def test_a_question_reaches_the_user_of_the_client_that_called(tmp_path, mode, upstream):
    tool = ask_tool("ask") if upstream == "handshake" else input_tool("ask")
    arguments = {"params": FORM} if upstream == "handshake" else {}
    async with place(tmp_path, servers={"desk": [tool]}, http={"era": upstream}, listen=True) as here:
        asked = {ALICE: [], BOB: []}

        def answering(who):
            async def answer(context, params):
                asked[who].append(params.message)
                return types.ElicitResult(action="accept", content={"sure": who is ALICE})

            return answer

        async with (
            connected(here, ALICE, mode, elicitation_callback=answering(ALICE)) as alice,
            connected(here, BOB, mode, elicitation_callback=answering(BOB)) as bob,
        ):
            with trio.fail_after(15):
                first = await alice.call_tool("ask", arguments)
                second = await bob.call_tool("ask", arguments)
        assert '"sure": true' in first.content[0].text
        assert '"sure": false' in second.content[0].text
        assert asked == {ALICE: ["Really?"], BOB: ["Really?"]}


async def test_a_client_that_cannot_be_asked_gets_the_servers_own_end(tmp_path):
    async with (
        place(tmp_path, servers={"desk": [ask_tool("ask")]}, http={"era": "handshake"}, listen=True) as here,
        connected(here, ALICE, "legacy") as client,
    ):
        with trio.fail_after(10):
            result = await client.call_tool("ask", {"params": FORM})
        assert "error" in result.content[0].text
