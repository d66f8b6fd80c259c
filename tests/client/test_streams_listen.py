"""The notification stream: what it says of itself, and that no server turns it into a storm of requests."""

from __future__ import annotations

import json

import pytest
import trio

from afpool.client._subscription import acknowledges, subscription_of
from afpool.protocol import decode_message
from afpool.testing import Body, Drop, Hang, HoldStream, JsonRpcError, RawBytes, Result, Rule, Status
from tests.pool.bound_kit import NOTES, furnish
from tests.pool.kit import ALICE, LIST_CHANGED, memory_world, until, world

ASKED = {"handshake": "GET", "stateless": "subscriptions/listen"}
LONG = {"idle_timeout": 100_000.0, "max_age": 100_000.0}
EVENTS = {"content-type": "text/event-stream"}


def stream(it):
    return it.pool.statistics().actors[0].stream


def unheard(it):
    return [event.facts["why"] for event in it.pool.records.events if event.kind == "stream-lost"]


def notice(method=LIST_CHANGED, **meta):
    params = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}}
    return {"jsonrpc": "2.0", "method": method, "params": params}


def acknowledged(subset, **meta):
    message = notice("notifications/subscriptions/acknowledged", **meta)
    message["params"]["notifications"] = subset
    return message


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_its_state_is_shown(era):
    async with world(http={"era": era}) as it:
        await it.tool()
        assert stream(it) == "listening"
        it.server.end_streams(graceful=False)
        await until(lambda: stream(it) == "lost")
        assert unheard(it) == ["lost"]


async def test_who_asks_for_other_subscriptions_has_the_stream_made_anew():
    async with world(http={"era": "stateless"}) as it:
        furnish(it.server.offers)
        await it.tool()
        server = await it.pool.bind(ALICE, "files")
        await until(lambda: stream(it) == "listening")
        async with await server.subscribe(NOTES, identity=ALICE):
            await until(lambda: stream(it) == "listening")
            assert unheard(it) == ["anew", "again"]


async def test_where_all_comes_on_one_stream_it_is_listened_to():
    async with memory_world(era="handshake") as (_, _, pool):
        await pool.tools(ALICE)
        assert pool.statistics().actors[0].stream == "listening"


async def test_an_acknowledgement_of_another_subscription_is_none(jumping):
    async with world(http={"era": "stateless"}) as it:
        others = HoldStream([acknowledged({"toolsListChanged": True}, subscriptionId=999)])
        it.server.on("subscriptions/listen", others, times=1)
        await it.tool()
        await it.server.wait_for("subscriptions/listen", 2)  # the first was not acknowledged
        first, second = it.server.arrivals("subscriptions/listen")
        assert second.time - first.time == pytest.approx(11, abs=1)


async def test_an_acknowledgement_of_another_subscription_is_none_on_a_shared_stream_either():
    async with memory_world(era="stateless") as (memory, _, pool):
        memory.engine.rules.add(Rule("subscriptions/listen", HoldStream()))
        await pool.tools(ALICE)
        listener = pool.actors()[0].machine.client.handle.listener
        for subscription, state in ((999, "connecting"), (listener.subscription, "listening")):
            told = acknowledged({"toolsListChanged": True}, subscriptionId=subscription)
            listener.heard(decode_message(json.dumps(told).encode()))
            assert pool.statistics().actors[0].stream == state


async def test_a_server_that_announces_nothing_but_logs_is_listened_to_for_those():
    async with world(pool={"on_log": lambda *_: None}) as it:
        furnish(it.server.offers)
        it.server.advertise.list_changed = False
        await it.tool()
        assert it.server.streams == 1
        assert stream(it) == "unsupported"  # of lists nothing is heard


async def test_a_server_without_announcements_is_not_asked():
    async with world() as it:
        it.server.advertise.list_changed = False
        await it.tool()
        assert stream(it) == "unsupported"
        assert not it.server.arrivals("GET")


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize(
    "action",
    [
        Status(200, headers=EVENTS, body=b": hello\n\n"),
        Status(409),
        Status(429),
        JsonRpcError(-32000, "busy", status=429),
        Status(500),
        Status(503),
        Status(401),
        Drop(),
        Drop(reset=True),
        RawBytes(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"),
        RawBytes(b"nonsense\r\n\r\n"),
        Hang(),
    ],
    ids=lambda action: repr(action)[:48],
)
async def test_no_storm_whatever_the_server_does(jumping, era, action):
    async with world(http={"era": era}, pool=LONG) as it:
        it.server.on(ASKED[era], action)
        tool = await it.tool()
        await trio.sleep(300)
        # 1 + 2 + 4 + 8 + 16 + 30 + 30 ...
        assert 1 <= it.server.count(ASKED[era]) <= 16
        await tool.call({"text": "a"}, identity=ALICE)
        assert it.pool.statistics().opened == 1


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_that_says_it_has_none_is_believed(jumping, status):
    async with world(pool=LONG) as it:
        it.server.on("GET", Status(status))
        await it.tool()
        await trio.sleep(300)
        assert it.server.count("GET") == 1
        assert stream(it) == "unsupported"


async def test_a_stream_of_somebody_else_is_left_alone_for_half_a_minute(jumping):
    async with world() as it:
        it.server.on("GET", Status(409))
        await it.tool()
        await until(lambda: stream(it) == "lost")
        await trio.sleep(28)
        assert it.server.count("GET") == 1
        await trio.sleep(4)
        assert it.server.count("GET") == 2


@pytest.mark.parametrize(
    ("action", "seconds"),
    [
        (Status(429, headers={"retry-after": "60"}), 60),
        (Status(503, headers={"retry-after": "99999"}), 300),
        (Status(200, headers=EVENTS, body=b"retry: 20000\n\n"), 20),
    ],
)
async def test_the_servers_own_wait_is_respected_and_bounded(jumping, action, seconds):
    async with world() as it:
        it.server.on("GET", action)
        await it.tool()
        await it.server.wait_for("GET")
        first = it.server.arrivals("GET")[0].time
        with trio.fail_after(400):
            second = (await it.server.wait_for("GET", 2))[1].time
        assert second - first == pytest.approx(seconds, abs=1)


async def test_it_goes_on_from_the_last_event_that_was_seen(jumping):
    body = b"id: 41\ndata:\n\nid: 42\ndata: " + json.dumps(notice()).encode() + b"\n\n"
    async with world() as it:
        it.server.on("GET", Status(200, headers=EVENTS, body=body), times=1)
        tool = await it.tool()
        await it.server.wait_for("GET", 2)
        assert it.server.arrivals("GET")[1].headers["last-event-id"] == "42"
        assert tool.binding.list.notices >= 1


async def test_an_event_that_the_server_no_longer_knows_is_forgotten(jumping):
    async with world() as it:
        it.server.on("GET", Status(200, headers=EVENTS, body=b"id: 42\ndata:\n\n"), times=1)
        it.server.on("GET", Status(400, body=b"no such event"), times=1)
        await it.tool()
        third = (await it.server.wait_for("GET", 3))[2]
        assert "last-event-id" not in third.headers
        await until(lambda: stream(it) == "listening")


async def test_losing_it_is_not_losing_the_session_but_a_404_for_the_session_is(jumping):
    async with world() as it:
        tool = await it.tool()
        await it.server.wait_until(lambda: it.server.streams == 1)
        it.server.forget_sessions()
        await it.server.wait_for("GET", 2)
        await until(lambda: it.pool.statistics().clients == 0)
        await tool.call({"text": "a"}, identity=ALICE)  # decided by its definition, on a new incarnation
        assert it.pool.statistics().opened == 2


async def test_a_refused_credential_is_renewed(jumping):
    async with world(credential=True) as it:
        it.server.on("GET", Status(401), times=1)
        await it.tool()
        await until(lambda: stream(it) == "listening")
        assert [request.reason for request in it.host.asked][-1] == "refresh"


# ---------------------------------------------------------------- 2026-07-28


async def test_a_subset_without_tools_is_no_subscription(jumping):
    async with world(http={"era": "stateless"}, pool=LONG) as it:
        it.server.on("subscriptions/listen", HoldStream([acknowledged({}, subscriptionId=2)]))
        await it.tool()
        await until(lambda: stream(it) == "unsupported")
        await trio.sleep(300)
        assert it.server.count("subscriptions/listen") == 1
        await it.server.wait_until(lambda: it.server.streams == 0)


async def test_a_subscription_that_is_not_acknowledged_is_asked_for_again(jumping):
    async with world(http={"era": "stateless"}) as it:
        it.server.on("subscriptions/listen", HoldStream(), times=1)
        await it.tool()
        await it.server.wait_for("subscriptions/listen", 2)
        first, second = it.server.arrivals("subscriptions/listen")
        assert second.time - first.time == pytest.approx(11, abs=1)
        assert first.id != second.id
        await until(lambda: stream(it) == "listening")


@pytest.mark.parametrize(("subscription", "heard"), [("own", True), ("other", False), (None, True)])
async def test_a_message_of_another_subscription_is_dropped(subscription, heard):
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        [asked] = await it.server.wait_for("subscriptions/listen")
        await it.server.wait_until(lambda: it.server.streams == 1)
        meta = {"own": {"subscriptionId": asked.id}, "other": {"subscriptionId": 999}, None: {}}[subscription]
        before = tool.binding.list.notices
        [listener] = it.server.engine.streams.open
        listener.deliver(notice(**meta))
        if heard:
            await until(lambda: tool.binding.list.notices > before)
        else:
            listener.deliver(notice(subscriptionId=asked.id))
            await until(lambda: tool.binding.list.notices > before)
            assert tool.binding.list.notices == before + 1


@pytest.mark.parametrize("graceful", [True, False])
async def test_a_subscription_that_ended_is_made_anew(jumping, graceful):
    async with world(http={"era": "stateless"}) as it:
        tool = await it.tool()
        await it.server.wait_until(lambda: it.server.streams == 1)
        it.server.end_streams(graceful=graceful)
        await it.server.wait_for("subscriptions/listen", 2)
        await until(lambda: stream(it) == "listening")
        assert tool.binding.list.doubt == "notification stream lost"
        assert it.pool.statistics().opened == 1


@pytest.mark.parametrize(
    "action",
    [
        JsonRpcError(-32601, status=404),
        JsonRpcError(-32602, status=400),
        Status(404),
        Result({"resultType": "complete"}),
        Body(b"<html>", "text/html"),
    ],
    ids=lambda action: repr(action)[:60],
)
async def test_a_server_without_subscriptions_is_believed(jumping, action):
    async with world(http={"era": "stateless"}) as it:
        it.server.on("subscriptions/listen", action)
        await it.tool()
        await until(lambda: stream(it) == "unsupported")
        await trio.sleep(100)
        assert it.server.count("subscriptions/listen") == 1


async def test_a_refused_version_ends_the_incarnation(jumping):
    async with world(http={"era": "both"}) as it:
        it.server.on("subscriptions/listen", JsonRpcError(-32022, status=400), times=1)
        with trio.fail_after(20):
            assert set(await it.pool.tools(ALICE)) == {"echo"}
        assert it.pool.statistics().opened == 2


@pytest.mark.parametrize(
    ("value", "found"),
    [(7, 7), ("7", 7), ("9" * 5000, "9" * 5000), ("x", "x"), (None, None), ([], [])],
    ids=repr,
)
def test_the_subscription_that_a_message_names(value, found):
    assert subscription_of(decode_message(json.dumps(notice(subscriptionId=value)).encode())) == found


@pytest.mark.parametrize(
    ("subset", "tools"),
    [({"toolsListChanged": True}, True), ({"toolsListChanged": False}, False), ({}, False)],
)
def test_the_acknowledged_subset(subset, tools):
    assert (
        acknowledges(decode_message(json.dumps(acknowledged(subset)).encode()), "toolsListChanged") is tools
    )
    assert acknowledges(decode_message(b'{"method":"x"}'), "toolsListChanged")


async def test_who_subscribes_in_the_moment_in_which_nothing_was_granted_has_one_stream(jumping):
    async with world(http={"era": "stateless"}, pool=LONG) as it:
        furnish(it.server.offers)
        await it.tool()
        await until(lambda: stream(it) == "listening")
        listener = it.pool.actors()[0].machine.client.handle.listener
        nothing = acknowledged({}, subscriptionId=listener.subscription)
        listener._acknowledged(decode_message(json.dumps(nothing).encode()))
        with trio.fail_after(20):
            await listener.watch(NOTES)  # asks before the task that listens has had its turn
        await trio.sleep(20)
        assert (it.server.streams, it.server.count("subscriptions/listen")) == (1, 2)
