"""What a server asks in the handshake era: who is asked for which call, and what leaves as an answer."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio
import trio.testing

import afpool
from afpool import (
    ElicitAnswer,
    ElicitationRequired,
    Plan,
    Root,
    SampleAnswer,
    Server,
    ServerRequests,
    StdioTransport,
)
from afpool.testing import (
    Advertise,
    Delay,
    FakeServer,
    FakeTool,
    HoldStream,
    JsonRpcError,
    Rule,
    Status,
    ask_tool,
    echo_tool,
)
from tests.pool.kit import ALICE, BOB, Hold, memory_world, quiet, refused, start, until, world

FORM = {
    "message": "Really?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "sure": {"type": "boolean", "default": True},
            "name": {"type": "string", "default": "alice"},
        },
        "required": ["sure"],
    },
}
URL = "https://acme.example/connect?state=s3cret"


class Desk:
    """A host that is asked, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.cancelled = 0
        self.hold: Hold | None = None
        self.raises: Exception | None = None

    async def elicit(self, request: afpool.ElicitRequest) -> ElicitAnswer:
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        if self.hold is not None:
            try:
                await self.hold.wait()
            except trio.Cancelled:
                self.cancelled += 1
                raise
        if self.raises is not None:
            raise self.raises
        return request.accept()

    def offers(self, **options: Any) -> ServerRequests:
        return ServerRequests(elicit=self.elicit, **options)

    @property
    def calls(self) -> list[str | None]:
        return [None if asked.operation is None else asked.operation.call_id for asked in self.asked]


def said(result: afpool.ToolResult) -> Any:
    return json.loads(result.text)


def code(result: afpool.ToolResult) -> int:
    return int(said(result)["error"]["code"])


# ---------------------------------------------------------------------------- what is declared


async def test_what_is_offered_is_declared_and_belongs_to_the_context():
    async def nothing(request: Any) -> Any:
        return []

    desk = Desk()
    secret = b"x" * 32
    url = "http://127.0.0.1:1/mcp"
    plans = {
        name: Plan(transport=afpool.HttpTransport(url=url), requests=offers)
        for name, offers in {
            "none": None,
            "roots": ServerRequests(roots=["file:///srv"]),
            "other roots": ServerRequests(roots=nothing),
            "form": desk.offers(),
            "both": desk.offers(elicitation_modes=("form", "url")),
        }.items()
    }
    contexts = {name: plan.context(secret) for name, plan in plans.items()}
    assert contexts["none"] == Plan(transport=afpool.HttpTransport(url=url)).context(secret)
    assert contexts["roots"] == contexts["other roots"]  # which callable it is, is no part of it
    assert len(set(contexts.values())) == 4
    async with world(requests=desk.offers(roots=[])) as w:
        await w.tool()
        (opened,) = w.server.arrivals("initialize")
        assert opened.params["capabilities"] == {"roots": {}, "elicitation": {"form": {}}}


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("samples", [True, False])
def test_tools_of_samples_are_declared_where_there_are_samples(samples, tools):
    async def sample(request: Any) -> Any:
        return None

    offers = ServerRequests(sample=sample if samples else None, roots=[], sampling_tools=tools)
    declared = offers.capabilities
    assert (declared.sampling, declared.sampling_tools) == (samples, samples and tools)


async def test_a_first_request_that_is_refused_for_its_version_is_sent_again_with_what_is_declared():
    desk = Desk()
    refusal = JsonRpcError(-32022, data={"supported": ["2026-07-28"], "requested": "?"}, status=400)

    async def sample(request: Any) -> None:
        return None

    offers = ServerRequests(roots=[], sample=sample, elicit=desk.elicit)
    async with world(http={"era": "stateless"}, requests=offers) as w:
        w.server.on("server/discover", refusal, times=1)
        tool = await w.tool()
        await tool.call({}, identity=ALICE)
        assert w.server.count("server/discover") == 2
        assert w.server.count("initialize") == 0
        for arrival in w.server.log:
            declared = arrival.params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert declared == {"roots": {}, "sampling": {}, "elicitation": {"form": {}}}
        assert w.server.violations == []


@pytest.mark.parametrize(("places", "code"), [(1, "overloaded"), (2, "ok")])
async def test_a_handler_that_calls_a_tool_does_not_wait_for_the_place_that_its_call_holds(places, code):
    codes: list[str] = []
    tools: dict[str, afpool.BoundTool] = {}

    async def elicit(request: afpool.ElicitRequest) -> ElicitAnswer:
        operation = request.operation
        assert operation is not None
        try:
            await tools["echo"].call({}, identity=operation.identity, chain=operation.chain)
            codes.append("ok")
        except afpool.Overloaded as error:
            codes.append(error.code)
        return request.accept()

    offers = ServerRequests(elicit=elicit)
    async with world(tools=[ask_tool(), echo_tool()], requests=offers, pool={"max_operations": places}) as w:
        tools.update(await w.pool.tools(ALICE))
        with trio.fail_after(5):
            await tools["ask"].call({"params": FORM}, identity=ALICE)
        assert codes == [code]


@pytest.mark.parametrize(
    "wrong",
    [
        {"roots": ["https://acme.example"]},
        {"elicitation_modes": ("voice",)},
        {"elicitation_modes": ()},
        {"max_handlers": 0},
        {"timeout": 0},
    ],
)
def test_an_offer_that_means_nothing(wrong):
    with pytest.raises(ValueError, match=r"root|modes|positive"):
        ServerRequests(**wrong)


# ---------------------------------------------------------------------------- answers


@pytest.mark.parametrize("answer", ["json", "sse"])
async def test_a_form_is_answered_with_the_defaults_of_its_schema(answer):
    desk = Desk()
    async with world(tools=[ask_tool()], http={"answer": answer}, requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        result = await tool.call({"params": FORM}, identity=ALICE, call_id="c1")
        assert said(result) == {"result": {"action": "accept", "content": {"sure": True, "name": "alice"}}}
        (request,) = desk.asked
        assert (request.method, request.server, request.projection) == ("elicitation/create", "files", ALICE)
        assert (request.mode, request.message, request.url) == ("form", "Really?", None)
        assert request.operation.call_id == "c1"
        assert request.operation.name == "ask"
        assert request.operation.identity is ALICE
        assert w.server.violations == []
        quiet(w.pool)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_says_no_or_goes_away_is_answered_for_without_content(action):
    async def elicit(request: afpool.ElicitRequest) -> ElicitAnswer:
        await trio.lowlevel.checkpoint()
        return request.decline() if action == "decline" else request.cancel()

    async with world(tools=[ask_tool()], requests=ServerRequests(elicit=elicit)) as w:
        tool = await w.tool(name="ask")
        result = await tool.call({"params": FORM}, identity=ALICE)
        assert said(result) == {"result": {"action": action}}


async def test_there_is_room_for_as_many_answers_as_are_sent_one_after_the_other():
    async with world(tools=[ask_tool()], requests=Desk().offers()) as w:
        tool = await w.tool(name="ask")
        for _ in range(70):  # 64 may wait at once
            assert said(await tool.call({"method": "ping"}, identity=ALICE)) == {"result": {}}


async def test_a_child_process_asks_too():
    desk = Desk()
    command = FakeServer.stdio_command({"tools": ["ask", "echo"]})
    plan = Plan(transport=StdioTransport.of(*command), requests=desk.offers(roots=["file:///srv"]))
    async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
        tool = (await pool.tools(ALICE))["ask"]
        with trio.fail_after(10):
            result = await tool.call({"params": FORM}, identity=ALICE, call_id="c1")
            assert said(result)["result"]["action"] == "accept"
            assert desk.calls == ["c1"]
            result = await tool.call({"method": "roots/list"}, identity=ALICE)
            assert said(result) == {"result": {"roots": [{"uri": "file:///srv"}]}}
            assert said(await tool.call({"method": "ping"}, identity=ALICE)) == {"result": {}}


async def test_roots_and_samples():
    async def roots(request: afpool.ServerRequest) -> list[Root]:
        return [Root("file:///srv", name=request.operation.call_id)]

    async def sample(request: afpool.SampleRequest) -> Any:
        assert (request.max_tokens, request.system_prompt) == (5, "be short")
        if request.messages == ["raw"]:
            return {"role": "assistant", "content": {"type": "text", "text": "raw"}, "model": "m", "x": 1}
        if request.messages == ["no"]:
            return None
        return SampleAnswer(content={"type": "text", "text": "hi"}, model="m", stop_reason="endTurn")

    asked = {"method": "sampling/createMessage"}
    limits = {"maxTokens": 5, "systemPrompt": "be short"}
    async with world(tools=[ask_tool()], requests=ServerRequests(roots=roots, sample=sample)) as w:
        tool = await w.tool(name="ask")
        result = await tool.call({"method": "roots/list"}, identity=ALICE, call_id="c7")
        assert said(result) == {"result": {"roots": [{"uri": "file:///srv", "name": "c7"}]}}
        result = await tool.call({**asked, "params": {"messages": [], **limits}}, identity=ALICE)
        assert said(result)["result"] == {
            "role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m",
            "stopReason": "endTurn",
        }  # fmt: skip
        result = await tool.call({**asked, "params": {"messages": ["raw"], **limits}}, identity=ALICE)
        assert said(result)["result"]["x"] == 1
        assert (
            code(await tool.call({**asked, "params": {"messages": ["no"], **limits}}, identity=ALICE)) == -1
        )


async def test_an_address_is_shown_in_full_and_never_fetched():
    desk = Desk()
    async with (
        FakeServer.http() as page,
        world(tools=[ask_tool()], requests=desk.offers(elicitation_modes=("form", "url"))) as w,
    ):
        tool = await w.tool(name="ask")
        url = page.url + "?state=s3cret"
        params = {"mode": "url", "message": "Connect", "url": url, "elicitationId": "e1"}
        assert said(await tool.call({"params": params}, identity=ALICE)) == {"result": {"action": "accept"}}
        (request,) = desk.asked
        assert (request.mode, request.url, request.elicitation_id) == ("url", url, "e1")
        assert request.schema == {}
        assert "s3cret" not in repr(request)
        assert page.log == []
        assert page.connections_total == 0


async def test_an_address_that_is_wanted_first_is_an_error_with_data():
    data = {"elicitations": [{"mode": "url", "url": URL, "message": "Connect", "elicitationId": "e1"}]}
    async with world() as w:
        w.server.on("tools/call", JsonRpcError(-32042, data=data))
        tool = await w.tool()
        error = await refused(tool.call({}, identity=ALICE), "elicitation-required", "answered")
        assert isinstance(error, ElicitationRequired)
        assert [address.url for address in error.elicitations] == [URL]
        assert "s3cret" not in f"{error} {error!r}"


def complete(elicitation_id):
    params = {"elicitationId": elicitation_id}
    return {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params}


async def test_the_end_of_an_address_is_told_once_and_of_none_that_was_not_shown(caplog):
    told = []
    desk = Desk()
    offers = desk.offers(elicitation_modes=("form", "url"), on_elicitation_complete=told.append)
    async with memory_world(tools=[ask_tool(), echo_tool()], requests=offers) as (memory, _, pool):
        tools = await pool.tools(ALICE)
        asked = {"mode": "url", "message": "Connect", "url": URL, "elicitationId": "e1"}
        await tools["ask"].call({"params": asked}, identity=ALICE)
        data = {"elicitations": [{"mode": "url", "url": URL, "message": "Connect", "elicitationId": "e2"}]}
        memory.engine.rules.add(Rule("tools/call", JsonRpcError(-32042, data=data)))
        await refused(tools["echo"].call({}, identity=ALICE), "elicitation-required", "answered")
        send = memory.engine.streams.open[0].deliver
        for elicitation_id in ("e2", "other", "e2", None, 7, ["e1"], "e1"):
            send(complete(elicitation_id))
        await until(lambda: len(told) == 2)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(told) == ["e1", "e2"]
        assert "s3cret" not in caplog.text


async def test_what_is_told_of_an_address_may_raise_and_there_are_only_so_many(caplog):
    def told(elicitation_id):
        raise RuntimeError("s3cret")

    offers = Desk().offers(elicitation_modes=("url",), on_elicitation_complete=told)
    async with memory_world(requests=offers) as (memory, _, pool):
        await pool.tools(ALICE)
        answering = pool.actors()[0].machine.client.handle.answering
        for number in range(1000):
            answering.shown(f"e{number}")
        assert len(answering._addresses) == 256
        send = memory.engine.streams.open[0].deliver
        send(complete("e1"))  # forgotten
        send(complete("e999"))
        await until(lambda: "RuntimeError" in caplog.text)
        assert caplog.text.count("RuntimeError") == 1
        assert "s3cret" not in caplog.text
        assert pool.records.failures == 0


async def test_without_anybody_to_tell_nothing_is_kept_of_addresses():
    desk = Desk()
    async with memory_world(requests=desk.offers(elicitation_modes=("url",))) as (memory, _, pool):
        tool = (await pool.tools(ALICE))["echo"]
        answering = pool.actors()[0].machine.client.handle.answering
        answering.shown("e1")
        assert answering._addresses == {}
        memory.engine.streams.open[0].deliver(complete("e1"))
        await tool.call({}, identity=ALICE)


@pytest.mark.parametrize("way", ["http", "memory"])
@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("roots/list", None, -32601),
        ("sampling/createMessage", {"messages": []}, -1),
        ("elicitation/create", FORM, -32602),
        ("elicitation/create", {"mode": "url", "message": "?", "url": URL}, -32602),
        ("something/else", None, -32601),
    ],
)
async def test_what_was_not_declared_is_refused_and_never_dropped(way, method, params, expected):
    asking = {"method": method, "params": params}
    with trio.fail_after(10):
        if way == "http":
            async with world(tools=[ask_tool()]) as w:
                assert code(await (await w.tool(name="ask")).call(asking, identity=ALICE)) == expected
        else:
            async with memory_world(tools=[ask_tool()]) as (_, _, pool):
                tool = (await pool.tools(ALICE))["ask"]
                assert code(await tool.call(asking, identity=ALICE)) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"action": "accept", "content": {"sure": "yes"}},
        {"action": "accept"},
        {"action": "maybe"},
        {"action": "accept", "content": {"sure": True, "more": "s3cret"}},
        "yes",
        None,
    ],
)
async def test_an_answer_that_does_not_fit_the_form_does_not_leave(given, caplog):
    async def elicit(request: Any) -> Any:
        return given

    async with world(tools=[ask_tool()], requests=ServerRequests(elicit=elicit)) as w:
        result = await (await w.tool(name="ask")).call({"params": FORM}, identity=ALICE)
        assert code(result) == -32603
        assert "s3cret" not in caplog.text


async def test_a_handler_that_raises_costs_an_error_without_its_text(caplog):
    desk = Desk()
    desk.raises = RuntimeError("s3cret")
    async with world(tools=[ask_tool()], requests=desk.offers()) as w:
        with caplog.at_level(logging.DEBUG):
            result = await (await w.tool(name="ask")).call({"params": FORM}, identity=ALICE)
        assert code(result) == -32603
        assert "s3cret" not in result.text + caplog.text
        assert "RuntimeError" in caplog.text
        (use,) = w.pool.records.uses
        assert [fact[:2] for fact in use.facts] == [("server-request", "RuntimeError")]
        assert w.pool.records.failures == 0


# ---------------------------------------------------------------------------- which call


async def test_each_call_is_asked_on_its_own_stream():
    desk = Desk()
    async with world(tools=[ask_tool()], requests=desk.offers()) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="ask")
        desk.hold = Hold()
        for number in range(5):
            params = {**FORM, "message": f"call {number}"}
            start(
                nursery, lambda n=number, p=params: tool.call({"params": p}, identity=ALICE, call_id=f"c{n}")
            )
        await until(lambda: len(desk.asked) == 5)
        assert {asked.message: asked.operation.call_id for asked in desk.asked} == {
            f"call {number}": f"c{number}" for number in range(5)
        }
        desk.hold.let_go.set()


async def on_the_get_stream(w: Any, desk: Desk) -> str | None:
    before = len(desk.asked)
    with trio.fail_after(5):
        await w.server.wait_until(lambda: w.server.streams > 0)
        await w.server.request_client("elicitation/create", FORM)
    assert len(desk.asked) == before + 1
    return desk.calls[-1]


async def test_on_the_get_stream_a_request_belongs_to_the_only_call_or_to_none():
    desk = Desk()
    waiting = trio.Event()

    async def slow(arguments: Any, arrival: Any) -> str:
        await waiting.wait()
        return "done"

    async with (
        world(tools=[FakeTool("slow", slow), echo_tool()], requests=desk.offers()) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool(name="slow")
        assert await on_the_get_stream(w, desk) is None
        first = start(nursery, lambda: tool.call(identity=ALICE, call_id="first"))
        await w.server.wait_for("tools/call", 1)
        assert await on_the_get_stream(w, desk) == "first"
        second = start(nursery, lambda: tool.call(identity=ALICE, call_id="second"))
        await w.server.wait_for("tools/call", 2)
        assert await on_the_get_stream(w, desk) is None
        waiting.set()
        await first.answer()
        await second.answer()
        assert await on_the_get_stream(w, desk) is None


@pytest.mark.parametrize("get_stream", [True, False])
async def test_a_server_that_announces_no_changes_is_heard_where_something_is_offered(get_stream):
    desk = Desk()
    advertise = Advertise(list_changed=False)
    async with world(http={"advertise": advertise}, requests=desk.offers()) as w:
        w.server.get_stream = get_stream
        tool = await w.tool()
        if get_stream:
            assert await on_the_get_stream(w, desk) is None
        else:
            await w.server.wait_for("GET", 1)
        client = w.pool._existing(w.pool.key_of(ALICE, "files")).machine.client.handle
        assert client.stream_state == "unsupported"  # of changes nothing is heard either way
        await tool.call({}, identity=ALICE)
        quiet(w.pool)
    async with world(http={"advertise": advertise}) as w:
        await w.tool()
        assert w.server.count("GET") == 0


async def test_each_member_of_a_shared_list_is_asked_on_a_stream_of_its_own():
    desk = Desk()
    streams: list[int] = []
    look = FakeTool("echo", lambda arguments, arrival: streams.append(w.server.streams) or "")
    async with world(tools=[look], requests=desk.offers()) as w:
        w.host.names.update(alice="team", bob="team")
        w.server.on("GET", Delay(0.1))
        for who in (ALICE, BOB):
            await (await w.tool(who)).call({}, identity=who)
        assert streams == [1, 2]  # it was open before the first call of each
        with trio.fail_after(5):
            for session in w.server.sessions:
                await w.server.request_client("elicitation/create", FORM, session_id=session)
        assert {asked.projection.principal for asked in desk.asked} == {"alice", "bob"}
        # the member that does not listen for the list may lose its stream without a doubt about the list
        before = (await w.tool()).binding.list
        assert (before.shared, before.doubt) == (True, None)


async def test_after_a_call_was_given_up_no_other_call_is_asked_on_a_shared_stream():
    desk = Desk()

    async def slow(arguments: Any, arrival: Any) -> str:
        await trio.sleep_forever()
        return ""

    options = {"settle_timeout": 0.05}
    tools = [FakeTool("slow", slow, cancellable=False), ask_tool()]
    async with (
        world(tools=tools, requests=desk.offers(), pool=options) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool(name="slow")
        with trio.move_on_after(0.05):
            await tool.call(identity=ALICE, call_id="gone")
        start(nursery, lambda: tool.call(identity=ALICE, call_id="next"))
        await w.server.wait_for("tools/call", 2)
        assert await on_the_get_stream(w, desk) is None  # while the first one's place settles
        await until(lambda: w.pool.abandoned == 1)
        assert await on_the_get_stream(w, desk) is None  # and for ever after
        # a call's own stream is its own all the same
        await (await w.tool(name="ask")).call({"params": FORM}, identity=ALICE, call_id="own")
        assert desk.calls[-1] == "own"
        nursery.cancel_scope.cancel()


async def test_after_an_answer_that_proves_nothing_no_other_call_is_asked_on_a_shared_stream():
    desk = Desk()

    async def slow(arguments: Any, arrival: Any) -> str:
        await trio.sleep_forever()
        return ""

    tools = [FakeTool("slow", slow)]
    async with world(tools=tools, requests=desk.offers()) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="slow")
        w.server.on("tools/call", Status(500), times=1)
        await refused(tool.call(identity=ALICE, call_id="first"), "server-failed", "in-doubt")
        start(nursery, lambda: tool.call(identity=ALICE, call_id="next"))
        await w.server.wait_for("tools/call", 2)
        assert await on_the_get_stream(w, desk) is None  # the first may run on
        nursery.cancel_scope.cancel()


async def test_in_memory_two_calls_share_a_stream():
    desk = Desk()
    desk.hold = Hold()
    async with (
        memory_world(tools=[ask_tool()], requests=desk.offers()) as (_, _, pool),
        trio.open_nursery() as nursery,
    ):
        tool = (await pool.tools(ALICE))["ask"]
        first = start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE, call_id="first"))
        await until(lambda: len(desk.asked) == 1)
        second = start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE, call_id="second"))
        await until(lambda: len(desk.asked) == 2)
        assert desk.calls == ["first", None]
        desk.hold.let_go.set()
        for outcome in (first, second):
            assert said(await outcome.answer())["result"]["action"] == "accept"


async def test_a_request_on_the_stream_of_a_list_belongs_to_no_call_and_is_answered_meanwhile():
    desk = Desk()
    asking = {"jsonrpc": "2.0", "id": "while-listing", "method": "elicitation/create", "params": FORM}
    waiting = trio.Event()

    async def slow(arguments: Any, arrival: Any) -> str:
        await waiting.wait()
        return ""

    async with world(tools=[FakeTool("slow", slow)], requests=desk.offers()) as w:
        tool = await w.tool(name="slow")
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call(identity=ALICE, call_id="c1"))
            await w.server.wait_for("tools/call", 1)
            w.server.on("tools/list", HoldStream([asking]), times=1)
            nursery.start_soon(w.pool.refresh, ALICE)
            with trio.fail_after(5):  # the control lane is taken by the list: answers do not wait for it
                await w.server.wait_for("response", 1)
            assert desk.calls == [None]
            assert w.server.client_answers[0]["id"] == "while-listing"
            waiting.set()
            await call.answer()
            nursery.cancel_scope.cancel()


# ---------------------------------------------------------------------------- ends and bounds


async def test_at_most_so_many_handlers_run_and_pings_are_answered_all_the_while():
    desk = Desk()
    desk.hold = Hold()
    async with (
        memory_world(tools=[ask_tool()], requests=desk.offers(max_handlers=2)) as (_, _, pool),
        trio.open_nursery() as nursery,
    ):
        tool = (await pool.tools(ALICE))["ask"]
        held = [start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE)) for _ in range(2)]
        await until(lambda: len(desk.asked) == 2)
        with trio.fail_after(5):
            assert code(await tool.call({"params": FORM}, identity=ALICE)) == -32603
            assert said(await tool.call({"method": "ping"}, identity=ALICE)) == {"result": {}}
        desk.hold.let_go.set()
        for outcome in held:
            await outcome.answer()
        assert len(desk.asked) == 2


async def test_a_handler_ends_with_its_call():
    desk = Desk()
    desk.hold = Hold()
    async with world(tools=[ask_tool(cancellable=False)], requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: tool.call({"params": FORM}, identity=ALICE))
            await desk.hold.reached.wait()
            nursery.cancel_scope.cancel()
        await until(lambda: desk.cancelled == 1)
        with trio.fail_after(5):
            await w.server.wait_until(lambda: len(w.server.client_answers) == 1)
        assert w.server.client_answers[0]["error"]["code"] == -32603


async def test_a_handler_ends_by_the_deadline_of_its_call():
    desk = Desk()
    desk.hold = Hold()
    async with world(tools=[ask_tool(cancellable=False)], requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        deadline = trio.current_time() + 1
        await refused(
            tool.call({"params": FORM}, identity=ALICE, deadline=deadline), "deadline-exceeded", "in-doubt"
        )
        await until(lambda: desk.cancelled == 1)


async def test_a_request_that_belongs_to_nobody_has_a_deadline_of_its_own():
    desk = Desk()
    desk.hold = Hold()
    async with world(requests=desk.offers(timeout=0.05)) as w:
        await w.tool()
        with trio.fail_after(5):
            await w.server.wait_until(lambda: w.server.streams > 0)
            answer = await w.server.request_client("elicitation/create", FORM)
        assert answer["error"]["code"] == -32603
        assert desk.cancelled == 1


async def test_a_pool_that_is_left_leaves_no_handler_behind():
    desk = Desk()
    desk.hold = Hold()
    async with world(requests=desk.offers()) as w:
        await w.tool()
        await w.server.wait_until(lambda: w.server.streams > 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(w.server.request_client, "elicitation/create", FORM)
            await desk.hold.reached.wait()
            with trio.fail_after(5):
                await w.pool.aclose()
            assert desk.cancelled == 1
            nursery.cancel_scope.cancel()


async def test_a_server_may_take_its_request_back():
    desk = Desk()
    desk.hold = Hold()
    async with memory_world(requests=desk.offers()) as (memory, _, pool):
        tool = (await pool.tools(ALICE))["echo"]
        send = memory.engine.streams.open[0].deliver
        send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM})
        send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM})  # a repetition
        await desk.hold.reached.wait()
        send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})
        await until(lambda: desk.cancelled == 1)
        await tool.call({}, identity=ALICE)
        assert memory.ledger.client_answers == []
        assert len(desk.asked) == 1


@pytest.mark.parametrize("way", ["http", "memory"])
async def test_an_answer_whose_ground_is_gone_does_not_leave(way):
    desk = Desk()
    desk.hold = Hold()
    tools = [ask_tool()]
    if way == "http":
        opened: Any = world(tools=tools, requests=desk.offers())
    else:
        opened = memory_world(tools=tools, requests=desk.offers())
    async with opened as it, trio.open_nursery() as nursery:
        pool = it.pool if way == "http" else it[2]
        ledger = it.server if way == "http" else it[0].ledger
        tool = (await pool.tools(ALICE))["ask"]
        call = start(nursery, lambda: tool.call({"params": FORM}, identity=ALICE))
        await desk.hold.reached.wait()
        pool.invalidate(identity=ALICE, reason="revoked")
        desk.hold.let_go.set()
        assert code(await call.answer()) == -32603  # the call went on: its request had left
        assert "sure" not in json.dumps(ledger.client_answers)


async def test_answers_the_stream_and_the_end_carry_credential_and_signature():
    desk = Desk()
    async with world(tools=[ask_tool()], credential=True, signer=True, requests=desk.offers()) as w:
        tool = await w.tool(name="ask")
        await w.server.wait_until(lambda: w.server.streams > 0)
        await tool.call({"params": FORM}, identity=ALICE)
        await w.evict()
        await w.server.wait_for("DELETE", 1)
        assert {arrival.name for arrival in w.server.log} >= {"response", "GET", "DELETE", "tools/call"}
        for arrival in w.server.log:
            assert arrival.headers.get("authorization") == "Bearer token", arrival.name
            assert arrival.headers.get("x-signature") == "signed", arrival.name


async def test_without_sessions_a_request_of_a_server_is_not_answered():
    desk = Desk()
    asking = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM}
    async with world(http={"era": "stateless"}, requests=desk.offers()) as w:
        tool = await w.tool()
        w.server.on("tools/call", HoldStream([asking, {**asking, "id": "p", "method": "ping"}]))
        deadline = trio.current_time() + 1
        await refused(tool.call(identity=ALICE, deadline=deadline), "deadline-exceeded", "in-doubt")
        assert desk.asked == []
        assert w.server.client_answers == []


async def test_a_client_of_one_identity_asks_that_identity():
    desk = Desk()
    async with world(tools=[ask_tool()], requests=desk.offers()) as w:
        for who in (ALICE, BOB):
            tool = await w.tool(who, name="ask")
            await tool.call({"params": FORM}, identity=who)
        assert [asked.projection for asked in desk.asked] == [ALICE, BOB]
        assert [asked.operation.identity for asked in desk.asked] == [ALICE, BOB]
