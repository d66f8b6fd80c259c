"""An answer whose event stream ends early is asked for again, and never run again (2025-03-26 and later)."""

from __future__ import annotations

import json

import pytest
import trio

from afpool import Identity, Issued, Server, header_map
from afpool.client._answer_sink import AnswerSink
from afpool.client._resume import event_id_header
from afpool.testing import BreakOff, Drop, Hang, Hold, Sse, Status, progress_tool, sleep_tool
from tests.pool.kit import ALICE, quiet, refused, start, until, world


def askings(server):
    return [arrival for arrival in server.arrivals("GET") if "last-event-id" in arrival.headers]


def resumes(arrival):
    return "last-event-id" in arrival.headers


@pytest.mark.parametrize("cut", [False, True], ids=["ended", "cut"])
async def test_the_rest_is_asked_for_after_the_servers_own_wait(jumping, cut):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff("e-1", retry=500, cut=cut))
        began = trio.current_time()
        with trio.fail_after(10):
            answer = await tool.call({"text": "hello"}, identity=ALICE)
        assert "hello" in answer.text
        assert 0.45 <= trio.current_time() - began <= 0.7
        [asked] = askings(it.server)
        assert asked.headers["last-event-id"] == "e-1"
        assert asked.headers["accept"] == "text/event-stream"
        assert asked.session_id == it.server.sessions[0]
        assert "content-type" not in asked.headers
        assert it.sent() == it.server.executions["echo"] == 1
        quiet(it.pool)


async def test_a_second_is_waited_where_the_server_names_no_time(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff())
        began = trio.current_time()
        await tool.call({"text": "hello"}, identity=ALICE)
        assert 1.0 <= trio.current_time() - began < 1.3


async def test_a_server_may_end_the_stream_again_and_again(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff("e", retry=100, times=8))
        await tool.call({"text": "hello"}, identity=ALICE)
        assert [asked.headers["last-event-id"] for asked in askings(it.server)] == [
            "e",
            *(f"e.{n}" for n in range(1, 9)),
        ]
        assert it.server.executions["echo"] == 1


async def test_what_was_seen_is_not_delivered_twice(jumping):
    told = []
    progress = (
        b'id: p1\ndata: {"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":1,"progress":7}}\n\n'
    )
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff("e", retry=100, times=2, replay=True, before=progress))
        await tool.call({"text": "hello"}, identity=ALICE, on_progress=told.append)
        assert [each.progress for each in told] == [7.0]
        assert len(askings(it.server)) == 3


async def test_a_stream_without_an_event_id_is_lost(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff("", retry=100))
        await refused(tool.call({"text": "x"}, identity=ALICE), "server-failed", "in-doubt")
        assert not askings(it.server)


@pytest.mark.parametrize(
    ("action", "code", "count"),
    [
        (Status(405), "connection-lost", 1),
        (Status(204), "connection-lost", 1),
        (Status(404, body=b"Session not found"), "session-handle-lost", 1),
        (Status(400, body=b"Bad Request: No valid session ID provided"), "session-handle-lost", 1),
        (Status(400, body=b"unknown event"), "connection-lost", 1),
        (Status(500), "connection-lost", 3),
        (Drop(), "connection-lost", 3),
        (Status(408), "connection-lost", 3),
        (Status(409), "connection-lost", 3),
        (Status(429, headers={"retry-after": "2"}), "connection-lost", 3),
        (Status(307, headers={"location": "https://elsewhere.invalid/mcp"}), "connection-lost", 1),
        (Sse(before=b": nothing\n\n"), "connection-lost", 3),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_where_it_cannot_be_had_the_verdict_is_in_doubt(jumping, action, code, count):
    if isinstance(action, Sse):
        action = Status(200, headers={"content-type": "text/event-stream"}, body=action.before)
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100))
        it.server.on("GET", action, when=resumes)
        error = await refused(tool.call({"text": "x"}, identity=ALICE), code, "in-doubt", within=60)
        assert "may have run" in error.message
        assert len(askings(it.server)) == count
        assert it.server.executions["echo"] == 1
        quiet(it.pool)


async def test_a_session_that_is_lost_meanwhile_ends_the_incarnation(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100), times=1)
        it.server.on("GET", Status(404), when=resumes)
        await refused(tool.call({"text": "x"}, identity=ALICE), "session-handle-lost", "in-doubt")
        await tool.call({"text": "y"}, identity=ALICE)
        assert it.server.count("initialize") == 2


async def test_a_redirect_within_the_origin_is_followed(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100))
        it.server.on("GET", Status(307, headers={"location": "/mcp?to=here"}), when=resumes, times=1)
        await tool.call({"text": "x"}, identity=ALICE)
        assert [asked.target for asked in askings(it.server)] == ["/mcp", "/mcp?to=here"]


async def test_a_refused_credential_is_renewed_once(jumping):
    async with world(credential=True) as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100))
        it.server.on("GET", Status(401), when=resumes, times=1)
        await tool.call({"text": "x"}, identity=ALICE)
        assert [asked.headers["authorization"] for asked in askings(it.server)] == ["Bearer token"] * 2
        assert [request.reason for request in it.host.asked][-1] == "refresh"


async def test_the_deadline_holds_while_it_is_waited(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=20_000))
        began = trio.current_time()
        await refused(
            tool.call({"text": "x"}, identity=ALICE, deadline=began + 2), "deadline-exceeded", "in-doubt"
        )
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
        await it.server.wait_for("notifications/cancelled")
        assert not askings(it.server)
        await until(lambda: it.pool.settling == 0)
        quiet(it.pool)


@pytest.mark.parametrize(("retry", "seconds"), [(60_000, 60), (999_999_999, 300)])
async def test_the_servers_own_wait_is_respected_up_to_five_minutes(jumping, retry, seconds):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=retry))
        began = trio.current_time()
        await tool.call({"text": "x"}, identity=ALICE, deadline=began + 400)
        assert trio.current_time() - began == pytest.approx(seconds, abs=1)


async def test_a_retry_after_is_respected_and_the_doubling_ends_at_half_a_minute(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=20_000))
        it.server.on("GET", Status(503, headers={"retry-after": "90"}), when=resumes, times=1)
        it.server.on("GET", Status(503), when=resumes, times=1)
        await tool.call({"text": "x"}, identity=ALICE, deadline=trio.current_time() + 400)
        first, second, third = (asked.time for asked in askings(it.server))
        assert (second - first, third - second) == pytest.approx((90, 30), abs=1)


@pytest.mark.parametrize("end", ["cancel", "kill"])
async def test_who_is_ended_in_the_instant_in_which_the_credential_comes_asks_for_nothing(jumping, end):
    async with world(credential=True, pool={"settle_timeout": 1.0}) as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100))
        it.server.on("GET", Hang(), when=resumes)
        given = it.host.get

        async def get(request):
            issued = await given(request)
            if it.sent():
                if end == "cancel":
                    it.pool.cancel("c1")
                else:
                    it.pool.kill(it.pool.actors()[0].machine.client.id)
            return issued  # without another checkpoint

        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"text": "x"}, identity=ALICE, call_id="c1"))
            await it.server.wait_for("tools/call")
            it.host.get = get
            with trio.fail_after(5):
                await call.done.wait()
        wanted = "cancelled" if end == "cancel" else "client-closed"
        assert (call.error.code, call.error.delivery) == (wanted, "in-doubt")
        assert not askings(it.server)


async def test_a_credential_that_cannot_be_sent_leaves_the_request_in_doubt(jumping):
    """It had left, whatever becomes of asking for its answer."""
    async with world(credential=True) as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100))

        async def get(request):
            size = 30_000 if it.sent() else 10
            return Issued(header_map({f"x-part-{n}": "s3cret" * (size // 6) for n in range(3)}))

        it.host.get = get
        error = await refused(tool.call({"text": "x"}, identity=ALICE), "connection-lost", "in-doubt")
        assert "s3cret" not in str(error)
        assert it.server.executions["echo"] == 1
        assert not askings(it.server)
        quiet(it.pool)


def test_event_ids_that_a_header_carries_are_kept_and_only_so_many():
    sink = AnswerSink(1 << 20, lambda message: None, None)
    sink.head(200, [(b"content-type", b"text/event-stream")])
    for number in range(100):
        sink.data(b"id: %d%s\ndata: {}\n\n" % (number, b"x" * 5000))
    longest = b"x" * 2048  # what can be gone on from; see below
    sink.data(b"id: short\ndata: {}\n\nid: %s\ndata: {}\n\nid: %sx\ndata: {}\n\n" % (longest, longest))
    assert sink._ids == {"short", longest.decode()}
    for number in range(12_000):
        sink.data(b"id: %d\ndata: {}\n\n" % number)
    assert len(sink._ids) == 10_000


@pytest.mark.parametrize("when", ["waiting", "asked"])
async def test_cancelled_it_is_told_to_the_server_and_asked_for_no_more(jumping, when):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=5_000))
        it.server.on("GET", Hang(), when=resumes)
        with trio.move_on_after(2 if when == "waiting" else 8) as scope:
            await tool.call({"text": "x"}, identity=ALICE, deadline=trio.current_time() + 100)
        assert scope.cancelled_caught
        [notice] = await it.server.wait_for("notifications/cancelled")
        assert notice.params["requestId"] == it.server.arrivals("tools/call")[0].id
        await trio.sleep(60)
        assert len(askings(it.server)) == (0 if when == "waiting" else 1)
        quiet(it.pool)


async def test_no_connection_is_held_while_it_is_waited(jumping):
    async with world(tools=[sleep_tool("echo")]) as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=4_000), times=1)
        async with trio.open_nursery() as nursery:
            first = start(nursery, lambda: tool.call({"text": "a"}, identity=ALICE))
            await it.server.wait_for("tools/call")
            await trio.sleep(1)
            actor = it.pool.actors()[0]
            link = actor.machine.client.handle.channel.link
            assert link.statistics().active <= 1  # the notification stream
            assert actor.machine.in_flight == 1
            await first.answer()


async def test_a_revoked_key_asks_for_nothing_more(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=5_000))
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"text": "x"}, identity=ALICE))
            await it.server.wait_for("tools/call")
            await trio.sleep(1)
            it.pool.invalidate(identity=Identity(tenant="acme", principal="alice"))
            with trio.fail_after(20):
                await call.done.wait()
        assert call.error is not None
        assert call.error.delivery == "in-doubt"
        assert not askings(it.server)


@pytest.mark.parametrize("way", ["changed", "removed"])
async def test_the_rest_of_an_answer_is_asked_for_also_where_its_server_is_reconfigured(jumping, way):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=5_000), times=1)
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"text": "x"}, identity=ALICE))
            await it.server.wait_for("tools/call")
            await trio.sleep(1)
            with_new_clients = Server(name="files", compare_without=("/_meta",))
            it.pool.reconfigure([with_new_clients] if way == "changed" else [])
            with trio.fail_after(20):
                assert "x" in (await call.answer()).text
            await until(lambda: not it.pool.openings.clients)
        assert len(askings(it.server)) == it.sent() == 1
        quiet(it.pool)


async def test_a_key_that_is_revoked_after_its_server_was_reconfigured_asks_for_nothing_more(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=5_000))
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"text": "x"}, identity=ALICE))
            await it.server.wait_for("tools/call")
            await trio.sleep(1)
            it.pool.reconfigure([])
            assert it.pool.invalidate(identity=ALICE) == 1
            with trio.fail_after(20):
                await call.done.wait()
        assert call.error is not None
        assert call.error.delivery == "in-doubt"
        assert not askings(it.server)


async def test_a_caller_who_was_withdrawn_asks_for_nothing_more(jumping):
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=5_000))
        async with trio.open_nursery() as nursery:
            call = start(nursery, lambda: tool.call({"text": "x"}, identity=it.host.who))
            await it.server.wait_for("tools/call")
            await trio.sleep(1)
            it.host.caller = None
            with trio.fail_after(20):
                await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == ("connection-lost", "in-doubt")
        assert not askings(it.server)


async def test_an_answer_under_another_id_is_not_taken(jumping):
    other = {"jsonrpc": "2.0", "id": 999, "result": {"content": [{"type": "text", "text": "not yours"}]}}
    body = b"id: 7\ndata: " + json.dumps(other).encode() + b"\n\n"
    stream = Status(200, headers={"content-type": "text/event-stream"}, body=body)
    async with world() as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100))
        it.server.on("GET", stream, when=resumes)
        await refused(tool.call({"text": "x"}, identity=ALICE), "connection-lost", "in-doubt")


async def test_a_list_is_taken_up_again_too(jumping):
    async with world() as it:
        it.server.on("tools/list", BreakOff(retry=100), times=1)
        assert set(await it.pool.tools(ALICE)) == {"echo"}
        assert len(askings(it.server)) == 1


async def test_nothing_is_taken_up_again_in_2026(jumping):
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        it.server.on("tools/call", BreakOff(retry=100))
        await refused(tool.call({"text": "x"}, identity=ALICE), "server-failed", "in-doubt")
        assert not it.server.arrivals("GET")


async def test_progress_goes_on_after_it(jumping):
    told = []
    async with world(tools=[progress_tool("echo", steps=3)]) as it:
        tool = await it.tool()
        hold = trio.Event()
        it.server.on("GET", Hold(hold), when=resumes)
        it.server.on("tools/call", BreakOff(retry=100))
        hold.set()
        await tool.call({}, identity=ALICE, on_progress=told.append)
        assert told
        assert it.server.executions["echo"] == 1


@pytest.mark.parametrize(
    ("event_id", "header"),
    [
        (None, None),
        ("", None),
        ("a b", b"a b"),
        ("ü", "ü".encode()),
        (" a", None),
        ("a\x01", None),
        ("a\x7f", None),
        ("x" * 2048, b"x" * 2048),
        ("x" * 2049, None),
    ],
)
def test_an_event_id_that_no_header_carries_is_none(event_id, header):
    assert event_id_header(event_id) == header
