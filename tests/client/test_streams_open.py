"""What an opening leaves behind that did not come to its end, and what a server says of its own list."""

from __future__ import annotations

import pytest
import trio

from afpool.testing import Drop, Hang, Hold, Status
from tests.pool.kit import ALICE, BOB, quiet, refused, start, until, world


@pytest.mark.parametrize("how", ["withdrawn", "refused"])
async def test_a_session_of_an_opening_that_failed_is_ended(how):
    async with world() as it:
        it.server.on("notifications/initialized", Hold(trio.Event()) if how == "withdrawn" else Status(500))
        async with trio.open_nursery() as nursery:
            listing = start(nursery, lambda: it.pool.tools(ALICE))
            await it.server.wait_for("notifications/initialized")
            if how == "withdrawn":
                assert len(it.server.sessions) == 1
                nursery.cancel_scope.cancel()
            else:
                await listing.done.wait()
        await it.server.wait_until(lambda: not it.server.sessions)
        [ended] = it.server.arrivals("DELETE")
        assert ended.headers["mcp-protocol-version"] == "2025-11-25"
        await until(lambda: it.server.connections == 0)
        quiet(it.pool)


async def test_a_server_that_does_not_let_go_is_left(jumping):
    async with world() as it:
        it.server.on("notifications/initialized", Status(500))
        it.server.on("DELETE", Hang())
        await refused(it.pool.tools(ALICE), "open-failed")
        await it.server.wait_for("DELETE")
        await trio.sleep(10)
        await it.server.wait_until(lambda: it.server.connections == 0)


async def test_where_no_session_was_opened_none_is_ended():
    async with world(http={"sessions": False}) as it:
        it.server.on("notifications/initialized", Status(500))
        await refused(it.pool.tools(ALICE), "open-failed")
        await until(lambda: it.server.connections == 0)
        assert not it.server.arrivals("DELETE")


@pytest.mark.parametrize(
    ("ttl_ms", "seconds"),
    [(None, 60), (0, 60), (-5, 60), (90_000, 90), (10**15, 86_400)],
)
async def test_a_list_is_believed_for_as_long_as_its_server_says_within_bounds(jumping, ttl_ms, seconds):
    async with world(http={"era": "stateless"}) as it:
        it.server.advertise.ttl_ms = ttl_ms
        tool = await it.tool()
        left = tool.binding.list.expires_at - trio.current_time()
        assert left == pytest.approx(seconds, abs=5)


@pytest.mark.parametrize("scope", ["private", "public", "nonsense"])
async def test_a_list_goes_to_who_has_the_name_and_to_nobody_else_whatever_its_scope(scope):
    async with world(http={"era": "stateless"}) as it:
        it.server.advertise.cache_scope = scope
        it.host.names = {"alice": "readers", "bob": "readers"}
        first, second = await it.tool(ALICE), await it.tool(BOB)
        assert first.binding.list is second.binding.list
        assert it.server.count("tools/list") == 1
    async with world(http={"era": "stateless"}) as it:
        it.server.advertise.cache_scope = scope
        it.host.names = {"alice": "readers", "bob": "writers"}
        first, second = await it.tool(ALICE), await it.tool(BOB)
        assert first.binding.list is not second.binding.list
        assert it.server.count("tools/list") == 2


async def test_an_opening_that_ends_well_ends_nothing():
    async with world() as it, trio.open_nursery() as nursery:
        tool = await it.tool()
        await start(nursery, lambda: tool.call({"text": "a"}, identity=ALICE)).answer()
        assert not it.server.arrivals("DELETE")


async def test_an_opening_whose_connection_ends_is_told_as_that():
    async with world() as it:
        it.server.on("*", Drop())
        error = await refused(it.tool(), "open-failed", "not-sent")
        assert "the connection ended without an answer" in error.message
