"""Requests in several rounds (2026-07-28): questions in a result, then the request again, by every gate."""

from __future__ import annotations

import itertools
import json
import logging
from typing import Any

import pytest
import trio
import trio.testing

import afpool
from afpool import InputRequired, Plan, SampleAnswer, Server, ServerRequests, StdioTransport
from afpool.testing import (
    Body,
    FakeServer,
    FakeTool,
    JsonRpcError,
    Result,
    Status,
    echo_tool,
    input_required,
    input_tool,
)
from tests.pool.bound_kit import NOTES, furnish
from tests.pool.kit import ALICE, Hold, quiet, refused, start, until, world
from tests.pool.test_server_requests import FORM, Desk, said

STATELESS = {"era": "stateless"}
ROOTS = {"method": "roots/list"}
FORM_REQUEST = {"method": "elicitation/create", "params": FORM}
ACCEPTED = {"action": "accept", "content": {"sure": True, "name": "alice"}}


@pytest.fixture
def clock() -> trio.testing.MockClock:
    # above zero: bytes that are on their way through the kernel are waited for
    return trio.testing.MockClock(autojump_threshold=0.05)


def rounds(server: Any) -> list[Any]:
    return server.arrivals("tools/call")


async def test_questions_are_answered_and_the_request_is_sent_again_under_a_new_id():
    desk = Desk()

    async def sample(request: Any) -> SampleAnswer:
        return SampleAnswer(content={"type": "text", "text": "hi"}, model="m")

    offers = desk.offers(roots=["file:///srv"], sample=sample)
    both = {"where": ROOTS, "sure": FORM_REQUEST}
    sampling = {"say": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}}
    tool = input_tool("input", both, sampling)
    async with world(tools=[tool], http=STATELESS, requests=offers) as w:
        bound = await w.tool(name="input")
        result = await bound.call({"n": 1}, identity=ALICE, call_id="c1")
        where, say = said(result)
        assert where == {"where": {"roots": [{"uri": "file:///srv"}]}, "sure": ACCEPTED}
        assert say["say"]["content"] == {"type": "text", "text": "hi"}
        (asked,) = desk.asked
        assert (asked.operation.call_id, asked.operation.identity) == ("c1", ALICE)
        sent = rounds(w.server)
        assert len({arrival.id for arrival in sent}) == 3
        for arrival in sent:
            assert arrival.arguments == {"n": 1}
            assert arrival.headers["mcp-name"] == "input"
        assert "inputResponses" not in sent[0].params
        assert "requestState" not in sent[0].params
        assert w.server.violations == []  # each requestState was an exact echo
        (use,) = w.pool.records.uses
        assert (use.outcome, use.attempts, use.delivery) == ("ok", 3, "answered")
        assert use.marks.count("sent") == 3
        quiet(w.pool)


async def test_a_child_process_asks_in_its_answer():
    desk = Desk()
    command = FakeServer.stdio_command({"tools": ["input"]}, era="stateless")
    plan = Plan(transport=StdioTransport.of(*command), requests=desk.offers())
    with trio.fail_after(10):
        async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
            result = await (await pool.tools(ALICE))["input"].call(identity=ALICE, call_id="c1")
            assert said(result) == [{"confirm": {"action": "accept", "content": {"sure": True}}}]
            assert desk.calls == ["c1"]


@pytest.mark.parametrize("spelling", ['"a\\u00e9\\ud83d"', '" {\\"x\\": 1} "', '"\\/"', "[1.0, 1e2]"])
async def test_the_state_is_echoed_byte_for_byte(spelling):
    desk = Desk()
    question = json.dumps({"confirm": FORM_REQUEST})
    raw = f'{{"resultType":"input_required","requestState":{spelling},"inputRequests":{question}}}'
    async with world(tools=[echo_tool()], http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool()
        answer = f'{{"jsonrpc":"2.0","id":7,"result":{raw}}}'.encode()
        w.server.on("tools/call", Body(answer), times=1)
        await tool.call({}, identity=ALICE)
        assert f'"requestState":{spelling}'.encode() in rounds(w.server)[1].body


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "prompts/list"])
async def test_what_is_asked_of_a_bound_server_has_rounds_where_the_protocol_says_so(method):
    desk = Desk()
    async with world(http=STATELESS, requests=desk.offers()) as w:
        furnish(w.server.offers)
        server = await w.pool.bind(ALICE, "files")
        w.server.on(method, Result(input_required({"confirm": FORM_REQUEST}, "state")), times=1)
        if method == "prompts/list":  # one of those that are answered or not, but never with a question
            await refused(server.prompts(identity=ALICE), "input-required", "answered")
            assert desk.asked == []
            return
        if method == "prompts/get":
            answered = await server.get_prompt("greet", {"name": "Ann"}, identity=ALICE, call_id="c1")
            assert answered.messages[0]["content"]["text"] == "Hello Ann"
        else:
            assert (await server.read_resource(NOTES, identity=ALICE, call_id="c1")).text == "first"
        first, second = w.server.arrivals(method)
        assert first.id != second.id
        assert (second.params["inputResponses"], second.params["requestState"]) == (
            {"confirm": ACCEPTED},
            "state",
        )
        assert {k: v for k, v in second.params.items() if k in first.params} == first.params
        assert desk.calls == ["c1"]
        quiet(w.pool)


async def test_no_state_is_sent_where_none_was_given():
    desk = Desk()
    async with world(tools=[input_tool(state=False)], http=STATELESS, requests=desk.offers()) as w:
        await (await w.tool(name="input")).call(identity=ALICE)
        first, second = rounds(w.server)
        assert "requestState" not in second.params
        assert second.params["inputResponses"] == {"confirm": {"action": "accept", "content": {"sure": True}}}
        assert b"requestState" not in first.body + second.body


async def test_a_round_in_which_nothing_is_asked_is_repeated_after_a_while(clock):
    """Nothing has to be offered for it."""
    async with world(tools=[input_tool("input", {}, {}, {}, {})], http=STATELESS) as w:
        await (await w.tool(name="input")).call(identity=ALICE)
        sent = rounds(w.server)
        waits = [after.time - before.time for before, after in itertools.pairwise(sent)]
        assert [round(wait, 2) for wait in waits] == [0.05, 0.1, 0.2, 0.25]
        assert all("inputResponses" not in arrival.params for arrival in sent)
        assert w.server.violations == []


async def test_ten_rounds_and_no_more():
    asked = 0

    async def roots(request: Any) -> list[Any]:
        nonlocal asked
        asked += 1
        return []

    endless = FakeTool("endless", lambda arguments, arrival: input_required({"r": ROOTS}, "s"))
    async with world(tools=[endless], http=STATELESS, requests=ServerRequests(roots=roots)) as w:
        tool = await w.tool(name="endless")
        await refused(tool.call(identity=ALICE), "input-required", "answered")
        assert len(rounds(w.server)) == 11
        assert asked == 10
        quiet(w.pool)


@pytest.mark.parametrize(
    "requests",
    [
        {"a": FORM_REQUEST, "b": {"method": "sampling/createMessage", "params": {"messages": []}}},
        {"a": FORM_REQUEST, "b": ROOTS},
        {"a": FORM_REQUEST, "b": {"method": "tasks/s3cret"}},
        {"a": FORM_REQUEST, "b": {"method": "elicitation/create", "params": {**FORM, "mode": "url"}}},
    ],
)
async def test_a_question_that_nothing_was_declared_for_ends_the_call_and_asks_nobody(requests):
    desk = Desk()
    async with world(http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool()
        w.server.on("tools/call", Result(input_required(requests, "s")))
        error = await refused(tool.call(identity=ALICE), "input-required", "answered")
        assert "s3cret" not in str(error)
        assert desk.asked == []
        assert len(rounds(w.server)) == 1


async def test_without_any_offer_a_question_ends_the_call():
    async with world(http=STATELESS) as w:
        tool = await w.tool()
        w.server.on("tools/call", Result(input_required({"a": FORM_REQUEST})))
        await refused(tool.call(identity=ALICE), "input-required", "answered")
        quiet(w.pool)


@pytest.mark.parametrize("requests", [[], {"a": 1}, {"a": {"params": {}}}])
async def test_questions_that_cannot_be_read(requests):
    desk = Desk()
    async with world(http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool()
        w.server.on("tools/call", Result({"resultType": "input_required", "inputRequests": requests}))
        await refused(tool.call(identity=ALICE), "protocol-error", "answered")
        assert desk.asked == []
        assert len(rounds(w.server)) == 1
        quiet(w.pool)


async def test_a_list_may_not_ask():
    async with world(http=STATELESS) as w:
        w.server.on("tools/list", Result(input_required({"a": FORM_REQUEST})))
        with pytest.raises(InputRequired):
            await w.tool()
        assert w.server.count("tools/list") == 1


async def test_a_handler_that_raises_ends_the_call_without_its_text(caplog):
    desk = Desk()
    desk.raises = RuntimeError("s3cret")
    async with world(tools=[input_tool()], http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool(name="input")
        with caplog.at_level(logging.DEBUG):
            error = await refused(tool.call(identity=ALICE), "input-required", "answered")
        assert "s3cret" not in str(error) + caplog.text
        assert "RuntimeError" in str(error)
        assert "the handler of elicitation/create for server 'files' raised RuntimeError" in caplog.text
        assert len(rounds(w.server)) == 1
        (use,) = w.pool.records.uses
        assert [fact[:2] for fact in use.facts] == [("answer", "input-required"), ("input", "RuntimeError")]


async def test_a_rejected_sample_ends_the_call():
    async def sample(request: Any) -> None:
        return None

    async with world(http=STATELESS, requests=ServerRequests(sample=sample)) as w:
        tool = await w.tool()
        request = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        w.server.on("tools/call", Result(input_required({"a": request})))
        await refused(tool.call(identity=ALICE), "input-required", "answered")


# ---------------------------------------------------------------------------- verdicts


def revoke(w: Any) -> None:
    w.pool.invalidate(identity=ALICE, reason="revoked")


def withdraw(w: Any) -> None:
    w.host.caller = None


def cancel(w: Any) -> None:
    w.pool.cancel("c1")


def rename(w: Any) -> None:
    w.host.names["alice"] = "another"


def close(w: Any) -> None:
    w.pool.background._refuse()


@pytest.mark.parametrize(
    ("change", "code", "cause"),
    [
        (revoke, "input-required", "binding-changed"),
        (withdraw, "input-required", "identity-mismatch"),
        (rename, "input-required", "binding-changed"),
        (cancel, "cancelled", None),
        (close, "pool-closed", None),
    ],
)
async def test_a_gate_that_closed_between_two_rounds_lets_nothing_leave_in_doubt(change, code, cause):
    desk = Desk()
    desk.hold = Hold()
    async with (
        world(tools=[input_tool()], http=STATELESS, requests=desk.offers()) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool(name="input")
        call = start(nursery, lambda: tool.call(identity=w.host.who, call_id="c1"))
        await desk.hold.reached.wait()
        change(w)
        desk.hold.let_go.set()
        with trio.fail_after(5):
            await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == (code, "in-doubt")
        assert "nothing was sent" not in str(call.error)
        if cause is not None:
            assert call.error.__cause__.code == cause
        assert len(rounds(w.server)) == 1
        await until(lambda: len(w.pool.records.uses) == 1)
        (use,) = w.pool.records.uses
        assert (use.code, use.delivery) == (code, "in-doubt")
        if cause is not None:
            assert ("input", cause) in [fact[:2] for fact in use.facts]


async def test_an_identity_that_is_withdrawn_between_two_questions_is_asked_one():
    desk = Desk()
    desk.hold = Hold()
    two = {"a": FORM_REQUEST, "b": FORM_REQUEST}
    async with (
        world(tools=[input_tool("input", two)], http=STATELESS, requests=desk.offers()) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool(name="input")
        call = start(nursery, lambda: tool.call(identity=w.host.who))
        await desk.hold.reached.wait()
        withdraw(w)
        desk.hold.let_go.set()
        with trio.fail_after(5):
            await call.done.wait()
        assert call.error is not None
        assert call.error.__cause__.code == "identity-mismatch"
        assert len(desk.asked) == 1


@pytest.mark.parametrize(
    ("answer", "code", "delivery"),
    [
        (Status(405), "input-required", "in-doubt"),
        (JsonRpcError(-32601), "input-required", "in-doubt"),
        (Status(403, headers={"www-authenticate": "Bearer"}), "input-required", "in-doubt"),
        (Status(503), "server-failed", "in-doubt"),
        (JsonRpcError(-32603), "server-error", "answered"),
    ],
)
async def test_a_later_round_that_is_refused_does_not_say_that_nothing_ran(answer, code, delivery):
    desk = Desk()
    async with world(tools=[input_tool()], http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool(name="input")
        w.server.on("tools/call", answer, when=lambda arrival: "inputResponses" in arrival.params)
        error = await refused(tool.call(identity=ALICE), code, delivery)
        assert len(rounds(w.server)) == 2
        assert w.server.executions["input"] == 1
        if code == "input-required":
            assert error.http_status == getattr(answer, "code", None) or answer.code < 0


async def test_a_caller_that_is_cancelled_between_two_rounds_may_have_run():
    desk = Desk()
    desk.hold = Hold()
    async with world(tools=[input_tool()], http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool(name="input")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: tool.call(identity=ALICE))
            await desk.hold.reached.wait()
            nursery.cancel_scope.cancel()
        (use,) = w.pool.records.uses
        assert (use.outcome, use.delivery) == ("cancelled", "in-doubt")
        assert desk.cancelled == 1
        quiet(w.pool)


async def test_a_deadline_that_passes_over_a_question():
    desk = Desk()
    desk.hold = Hold()
    async with world(tools=[input_tool()], http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool(name="input")
        deadline = trio.current_time() + 1
        await refused(tool.call(identity=ALICE, deadline=deadline), "deadline-exceeded", "in-doubt")
        assert desk.cancelled == 1
        quiet(w.pool)


async def test_the_place_is_held_through_the_rounds():
    desk = Desk()
    desk.hold = Hold()
    async with (
        world(
            tools=[input_tool(), echo_tool()],
            http=STATELESS,
            requests=desk.offers(),
            pool={"max_operations": 1},
        ) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool(name="input")
        echo = await w.tool()
        first = start(nursery, lambda: tool.call(identity=ALICE))
        await desk.hold.reached.wait()
        second = start(nursery, lambda: echo.call(identity=ALICE))
        await until(lambda: w.pool.waiting == 1)
        assert w.sent() == 0
        desk.hold.let_go.set()
        await first.answer()
        await second.answer()


async def test_a_credential_that_was_refused_while_the_user_thought_is_asked_for_again():
    desk = Desk()
    refusal = Status(401, headers={"www-authenticate": "Bearer"})
    async with world(tools=[input_tool()], http=STATELESS, credential=True, requests=desk.offers()) as w:
        tool = await w.tool(name="input")
        w.server.on("tools/call", refusal, times=1)
        w.server.on("tools/call", refusal, times=1, when=lambda arrival: "inputResponses" in arrival.params)
        result = await tool.call(identity=ALICE)
        assert said(result)[0]["confirm"]["action"] == "accept"
        assert len(rounds(w.server)) == 4
        assert [request.reason for request in w.host.asked].count("refresh") == 2


async def test_progress_goes_on_in_every_round_under_the_id_of_that_round():
    desk = Desk()
    async with world(tools=[input_tool()], http=STATELESS, requests=desk.offers()) as w:
        tool = await w.tool(name="input")
        await tool.call(identity=ALICE, on_progress=lambda progress: None)
        for arrival in rounds(w.server):
            assert arrival.params["_meta"]["progressToken"] == arrival.id
