"""One stream for everything: a listen that nobody acknowledges, and a fault of our own that ends it."""

from __future__ import annotations

import json
import logging

import pytest
import trio
import trio.testing

from afpool.protocol import decode_message
from afpool.testing import Hang, HoldStream, Rule, sleep_tool
from tests.pool.bound_kit import NOTES, bound_world, furnish
from tests.pool.kit import ALICE, LIST_CHANGED, memory_world, quiet, refused, start, until

LISTEN = "subscriptions/listen"
CANCELLED = "notifications/cancelled"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


def named(memory, name):
    return [arrival for arrival in memory.ledger.arrivals if arrival.name == name]


def stream(pool):
    return pool.statistics().actors[0].stream


async def test_a_listen_that_is_never_acknowledged_is_lost_in_time_and_taken_back(autojump_clock):
    async with memory_world(era="stateless") as (memory, _, pool):
        memory.engine.rules.add(Rule(LISTEN, Hang(), times=1))
        began = trio.current_time()
        tool = (await pool.tools(ALICE))["echo"]
        assert stream(pool) == "connecting"
        with trio.fail_after(30):
            while not named(memory, CANCELLED):  # noqa: ASYNC110 -- nothing announces it
                await trio.sleep(0.1)
        assert trio.current_time() - began == pytest.approx(10, abs=1)
        assert stream(pool) == "lost"
        [notice] = named(memory, CANCELLED)
        assert notice.params["requestId"] == named(memory, LISTEN)[0].id
        await tool.call({"text": "a"}, identity=ALICE)  # it takes nobody with it
        await until(lambda: stream(pool) == "listening")
        assert len(named(memory, LISTEN)) == 2


async def test_a_silent_server_is_asked_for_a_stream_ever_more_rarely(autojump_clock):
    quick = {"idle_timeout": 100_000.0, "max_age": 100_000.0}
    async with memory_world(era="stateless", pool=quick) as (memory, _, pool):
        memory.engine.rules.add(Rule(LISTEN, Hang()))
        await pool.tools(ALICE)
        await trio.sleep(400)
        asked, taken_back = named(memory, LISTEN), named(memory, CANCELLED)
        assert 5 <= len(asked) <= 14
        assert [notice.params["requestId"] for notice in taken_back] == [
            listen.id for listen in asked[: len(taken_back)]
        ]
        assert len(asked) - len(taken_back) <= 1  # never two of them at once


async def test_what_the_server_itself_has_ended_is_not_taken_back(autojump_clock):
    async with memory_world(era="stateless") as (memory, _, pool):
        await pool.tools(ALICE)
        [listen] = named(memory, LISTEN)
        deliver = memory.engine.streams.open[0].deliver
        deliver({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": listen.id}})
        await until(lambda: len(named(memory, LISTEN)) == 2)
        assert named(memory, CANCELLED) == []


async def test_another_set_of_subscriptions_takes_the_old_listen_back(autojump_clock):
    async with memory_world(era="stateless") as (memory, _, pool):
        furnish(memory.engine.offers)
        server = await pool.bind(ALICE, "files")
        for uri in (NOTES, "note://two"):
            await server.subscribe(uri, identity=ALICE)
        first, second = named(memory, LISTEN)
        [notice] = named(memory, CANCELLED)
        assert notice.params["requestId"] == first.id != second.id


async def test_a_fault_of_our_own_that_ends_a_stream_is_filed_and_logged(caplog):
    async with memory_world() as (memory, _, pool):
        tool = (await pool.tools(ALICE))["echo"]
        client = pool.actors()[0].machine.client.handle

        def broken(message):
            raise KeyError(message.method)

        client.channel.on_message = broken
        with caplog.at_level(logging.ERROR):
            memory.engine.streams.open[0].deliver({"jsonrpc": "2.0", "method": "notifications/any"})
            await until(lambda: pool.records.failures == 1)
        assert "KeyError" in caplog.text
        await tool.call({"text": "a"}, identity=ALICE)
        assert pool.statistics().opened == 2


async def test_a_peer_that_goes_is_no_fault_of_our_own(caplog):
    async with memory_world() as (memory, _, pool):
        await pool.tools(ALICE)
        memory.wires[0].close()
        await until(lambda: pool.statistics().clients == 0)
        assert pool.records.failures == 0
        assert "ERROR" not in caplog.text


async def test_who_waits_for_a_subscription_is_told_when_its_client_goes(autojump_clock):
    async with memory_world(era="stateless") as (memory, _, pool), trio.open_nursery() as nursery:
        furnish(memory.engine.offers)
        server = await pool.bind(ALICE, "files")
        memory.engine.rules.add(Rule(LISTEN, Hang()))
        began = trio.current_time()
        waiting = start(nursery, lambda: server.subscribe(NOTES, identity=ALICE))
        await until(lambda: len(named(memory, LISTEN)) == 1)
        memory.wires[0].close()
        with trio.fail_after(5):
            await waiting.done.wait()
        assert trio.current_time() - began < 1
        assert (waiting.error.code, waiting.error.delivery) == ("session-handle-lost", "not-sent")
        quiet(pool)


async def test_a_subscription_that_nobody_acknowledges_ends_with_its_deadline(autojump_clock):
    async with memory_world(era="stateless") as (memory, _, pool):
        furnish(memory.engine.offers)
        server = await pool.bind(ALICE, "files")
        memory.engine.rules.add(Rule(LISTEN, Hang()))
        await refused(
            server.subscribe(NOTES, identity=ALICE, deadline=trio.current_time() + 3), "deadline-exceeded"
        )
        quiet(pool)


async def test_a_replaced_client_that_announces_without_end_pushes_nothing_out_of_the_record():
    async with memory_world(tools=[sleep_tool()]) as (memory, host, pool), trio.open_nursery() as nursery:
        tool = (await pool.tools(ALICE))["sleep"]
        nursery.start_soon(lambda: tool.call({"seconds": 60}, identity=ALICE))
        await until(lambda: len(named(memory, "tools/call")) == 1)
        host.variant = "two"  # another plan: the next list opens another client, the call keeps its own
        await pool.refresh(ALICE)
        assert len(memory.wires) == 2
        before = len(list(pool.records.events))
        old = memory.engine.streams.open[0]
        for _ in range(200):
            old.deliver({"jsonrpc": "2.0", "method": LIST_CHANGED})
        await trio.testing.wait_all_tasks_blocked()
        assert len(list(pool.records.events)) == before
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["memory", "http"])
async def test_a_listen_that_was_granted_nothing_is_asked_for_again_when_more_is_wanted(way, tmp_path):
    """It heard of no tools; whether it may hear of a resource is another question."""
    async with bound_world(way, "stateless", tmp_path) as here:
        empty = {"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": {"notifications": {}}}
        here.rules.add(Rule(LISTEN, HoldStream([empty]), times=1))
        await here.pool.tools(ALICE)
        if way == "memory":
            await until(lambda: here.count(LISTEN) == 1)
            here.pool.actors()[0].machine.client.handle.listener.heard(
                decode_message(json.dumps(empty).encode())
            )
        await until(lambda: stream(here.pool) == "unsupported")
        server = await here.pool.bind(ALICE, "files")
        with trio.fail_after(5):
            changes = await server.subscribe(NOTES, identity=ALICE)
        await until(lambda: here.engine.streams.broadcast(UPDATED, {"uri": NOTES}) == 1)
        with trio.fail_after(5):
            assert (await anext(changes)).uri == NOTES
        assert here.count(LISTEN) == 2
        changes.close()
