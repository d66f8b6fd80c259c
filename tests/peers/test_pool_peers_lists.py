"""Lists that change, announced by real servers: nobody runs a tool of a list that is known to be old."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from afpool import HttpTransport, Pool, Server, StaleTools
from tests.peers.pool_peer_kit import (
    ALICE,
    BOB,
    HTTP,
    STDIO,
    TARGETS,
    Target,
    echo,
    kinds,
    own_transport,
    pool_of,
    proxied,
    server_of,
    transport_of,
    until,
)

if TYPE_CHECKING:
    from tests.peers.conftest import StartHttpPeer

CHANGING = tuple(target for target in TARGETS if target.python)


def own(start_http_peer: StartHttpPeer, target: Target, **more: object) -> Server:
    """A server whose list the test may change."""
    return server_of(target, own_transport(start_http_peer, target), **more)


async def change(pool: Pool, *, present: bool) -> None:
    """Let alice change the list, and wait until the announcement has come."""
    tools = await pool.tools(ALICE)
    heard = kinds(pool).count("list-changed")
    result = await tools["set_extra"].call({"present": present}, identity=ALICE)
    assert result.text == ("present" if present else "absent")
    await until(lambda: kinds(pool).count("list-changed") > heard)


@pytest.mark.parametrize("target", CHANGING, ids=str)
async def test_an_announced_change_ends_the_bindings_of_the_old_list(
    start_http_peer: StartHttpPeer, target: Target
) -> None:
    async with pool_of(own(start_http_peer, target)) as pool:
        old = await pool.tools(ALICE)
        assert "extra" not in old
        await change(pool, present=True)
        with pytest.raises(StaleTools) as caught:
            await echo(target, "by the old list").by(old)
        assert caught.value.delivery == "not-sent"
        (use,) = [use for use in pool.records.uses if use.code == "stale-tools"]
        assert use.attempts == 0
        assert use.cause is not None
        fresh = await pool.tools(ALICE)
        assert (await fresh["extra"].call(identity=ALICE)).text == "extra"
        assert fresh["echo"].binding.generation == old["echo"].binding.generation + 1
        assert await echo(target, "by the new list").by(fresh) == "by the new list"
        await change(pool, present=False)
        with pytest.raises(StaleTools):
            await fresh["extra"].call(identity=ALICE)
        assert pool.statistics().opened == 1


@pytest.mark.parametrize("target", CHANGING, ids=str)
async def test_with_recheck_only_the_definition_of_the_call_counts(
    start_http_peer: StartHttpPeer, target: Target
) -> None:
    async with pool_of(own(start_http_peer, target, on_list_change="recheck")) as pool:
        old = await pool.tools(ALICE)
        await change(pool, present=True)
        extra = (await pool.tools(ALICE))["extra"]
        assert await echo(target, "unchanged").by(old) == "unchanged"
        await change(pool, present=False)
        with pytest.raises(StaleTools):
            await extra.call(identity=ALICE)
        assert await echo(target, "still").by(old) == "still"


async def test_one_change_reaches_everybody_who_listens(start_http_peer: StartHttpPeer) -> None:
    async with pool_of(own(start_http_peer, Target("mcp2", "http"))) as pool:
        bobs = await pool.tools(BOB)
        await change(pool, present=True)
        await until(lambda: kinds(pool).count("list-changed") == 2)
        with pytest.raises(StaleTools):
            await bobs["echo"].call({"text": "old"}, identity=BOB)
        assert "extra" in await pool.tools(BOB)


async def test_under_sharing_one_listens_and_one_lists_for_all(start_http_peer: StartHttpPeer) -> None:
    url = start_http_peer("mcp2").url
    async with (
        proxied(url) as proxy,
        pool_of(
            server_of(Target("mcp2", "http"), HttpTransport(url=proxy.url)), share=lambda *_: "all"
        ) as pool,
    ):
        everybody = {who: await pool.tools(who) for who in (ALICE, BOB)}
        for who, tools in everybody.items():
            assert (await tools["echo"].call({"text": "hi"}, identity=who)).text == "hi"
        assert (proxy.count("tools/list"), proxy.count("subscriptions/listen")) == (1, 1)
        await change(pool, present=True)
        for who, tools in everybody.items():
            with pytest.raises(StaleTools):
                await tools["echo"].call({"text": "old"}, identity=who)
            assert "extra" in await pool.tools(who)
        assert (proxy.count("tools/list"), proxy.count("tools/call")) == (2, 3)


@pytest.mark.parametrize("target", [Target("everything", "http"), Target("everything", "stdio")], ids=str)
async def test_a_change_announced_right_after_opening_does_not_refuse_the_first_call(
    request: pytest.FixtureRequest, target: Target
) -> None:
    async with pool_of(server_of(target, transport_of(request, target))) as pool:
        work = echo(target, "first")
        for who in (ALICE, BOB):
            assert await work.by(await pool.tools(who), who) == work.answer
        # a second incarnation announces it as well; the tool of the first one goes on by its definition
        tools = await pool.tools(ALICE)
        pool.evict(pool.key_of(ALICE, "peer"))
        await until(lambda: "closed" in kinds(pool))
        assert await work.by(tools) == work.answer
        assert pool.statistics().opened == 3


@pytest.mark.parametrize("target", [*HTTP, STDIO[0]], ids=str)
async def test_waiters_come_through_the_same_single_list(
    request: pytest.FixtureRequest, target: Target
) -> None:
    async with pool_of(server_of(target, transport_of(request, target))) as pool:
        got = []

        async def one() -> None:
            got.append(await pool.tools(ALICE))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        lists = {tools[echo(target, "").tool].binding.list.id for tools in got}
        assert (len(got), len(lists), pool.statistics().opened) == (20, 1, 1)
