"""What is well again is used again: nothing that broke while a network was bad puts a call off for long."""

from __future__ import annotations

import pytest
import trio

import afpool
from afpool import HttpTransport, Plan, Server
from afpool.testing import Delay, Drop, FakeServer, in_memory
from tests.pool.kit import ALICE, person, refused, until


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_list_that_was_cut_off_again_and_again_comes_within_a_second_of_its_network(
    era, autojump_clock
):
    """Askings are spaced against servers that change all the time; a broken connection is no change."""
    server = FakeServer.http(memory=True, era=era, host="crm.test")
    async with server:
        plan = Plan(transport=HttpTransport(url=server.url))
        async with afpool.open_pool([Server(name="crm", plan=plan)], seams=in_memory(server)) as pool:
            cut = server.on("tools/list", Drop())
            for _ in range(6):
                await refused(pool.tools(ALICE), "connection-lost", "in-doubt")
            server.engine.rules.rules.remove(cut)
            began = trio.current_time()
            tools = await pool.tools(ALICE)
            assert trio.current_time() - began <= 1.1
            await tools["echo"].call(identity=ALICE)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_who_waits_for_a_turn_at_a_busy_endpoint_has_not_failed(era, autojump_clock):
    """All keys of a server open at once, and together they take longer than one opening may."""
    server = FakeServer.http(memory=True, era=era, host="crm.test")
    server.on("initialize" if era == "handshake" else "server/discover", Delay(0.6))
    async with server:
        plan = Plan(transport=HttpTransport(url=server.url))
        limits = {"max_connecting": 2, "open_timeout": 1.0}
        async with (
            afpool.open_pool([Server(name="crm", plan=plan)], seams=in_memory(server), **limits) as pool,
            trio.open_nursery() as nursery,
        ):

            async def call(number: int) -> None:
                tools = await pool.tools(person(number))
                await tools["echo"].call(identity=person(number))

            for number in range(20):
                nursery.start_soon(call, number)
        assert [event.kind for event in pool.records.events].count("opened") == 20
        assert not [event for event in pool.records.events if event.kind == "open-failed"]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_notification_stream_that_is_lost_again_and_again_puts_calls_off_by_a_second(
    era, autojump_clock
):
    server = FakeServer.http(memory=True, era=era, host="crm.test")
    async with server:
        plan = Plan(transport=HttpTransport(url=server.url))
        async with afpool.open_pool([Server(name="crm", plan=plan)], seams=in_memory(server)) as pool:
            tool = (await pool.tools(ALICE))["echo"]
            for _ in range(6):
                while pool.statistics().actors[0].stream != "listening":  # noqa: ASYNC110
                    await trio.sleep(0.1)
                server.close_connections()
                await until(lambda: tool.binding.list.doubt is not None)
                began = trio.current_time()
                await tool.call(identity=ALICE)
                assert trio.current_time() - began <= 1.1
