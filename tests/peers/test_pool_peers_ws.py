"""What is peculiar to WebSocket, against the official SDK: its own transport of line 1, a bridge of 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from afpool import AfpoolError, LocalSessionHandleLostError, OpenFailed, WebSocketTransport
from afpool._base.gate import OpenGate
from tests.peers.pool_peer_kit import (
    ALICE,
    BOB,
    MODERN,
    WS,
    Target,
    echo,
    kinds,
    only_client,
    own_transport,
    pool_of,
    server_of,
    sleep,
    transport_of,
    until,
)

if TYPE_CHECKING:
    from tests.peers.conftest import StartHttpPeer


@pytest.mark.parametrize("target", WS, ids=str)
async def test_each_identity_has_its_own_connection_and_it_is_left_in_order(
    request: pytest.FixtureRequest, target: Target
) -> None:
    async with pool_of(server_of(target, transport_of(request, target))) as pool:
        for who in (ALICE, BOB):
            work = echo(target, f"for {who.principal}")
            assert await work.by(await pool.tools(who), who) == work.answer
        clients = list(pool.openings.clients.values())
        assert len(clients) == 2
        links = [client.channel.link for client in clients]
        assert {link.subprotocol for link in links} == {"mcp"}
        negotiated = clients[0].negotiated
        assert negotiated is not None
        assert (negotiated.version == MODERN) == target.stateless
    for link in links:
        assert link.fault is None
        assert link._connection is not None
        assert link._connection.closed is not None
        assert link._connection.closed.code == 1000


@pytest.mark.parametrize("target", WS, ids=str)
async def test_malformed_text_hurts_nobody(request: pytest.FixtureRequest, target: Target) -> None:
    """Text that is no JSON-RPC reaches the server, which goes on; so does the connection."""
    async with pool_of(server_of(target, transport_of(request, target))) as pool:
        tools = await pool.tools(ALICE)
        client = only_client(pool)
        for text in (b"not json", b'{"jsonrpc": "2.0"', b"[]", b'"text"', b'{"id": 1}'):
            client.channel.link.submit(text, OpenGate(), None, lambda _: None)
        for number in range(3):
            work = echo(target, f"after {number}")
            assert await work.by(tools) == work.answer
        assert only_client(pool) is client


@pytest.mark.parametrize("target", WS, ids=str)
async def test_a_server_killed_while_it_works(start_http_peer: StartHttpPeer, target: Target) -> None:
    peer = start_http_peer(target.peer, "ws")
    async with pool_of(server_of(target, WebSocketTransport(url=peer.url))) as pool:
        tools = await pool.tools(ALICE)
        failures: list[AfpoolError] = []

        async def caller() -> None:
            with pytest.raises(AfpoolError) as caught:
                await sleep(target, 20).by(tools)
            failures.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(caller)
            await until(lambda: sum(call.begun for call in pool.running.values()) == 3)
            peer.kill()
        assert [type(failure) for failure in failures] == [LocalSessionHandleLostError] * 3
        assert {failure.delivery for failure in failures} == {"in-doubt"}
        assert "client-lost" in kinds(pool)
        with pytest.raises(AfpoolError) as caught:
            await echo(target, "gone").by(tools)
        assert caught.value.delivery == "not-sent"
        assert isinstance(caught.value, OpenFailed)
        assert (pool.settling, pool.statistics().in_flight) == (0, 0)


async def test_a_binary_message_kills_the_sdks_connection_and_the_next_call_has_another(
    start_http_peer: StartHttpPeer,
) -> None:
    """Why nothing but text is ever sent: what this peer does to a binary message."""
    target = Target("mcp1", "ws")
    async with pool_of(server_of(target, own_transport(start_http_peer, target))) as pool:
        tools = await pool.tools(ALICE)
        first = only_client(pool)
        await first.channel.link._connection.send_message(b"{}")
        await until(lambda: first.lost is not None)
        work = echo(target, "afterwards")
        assert await work.by(tools) == work.answer
        assert pool.statistics().opened == 2


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
async def test_an_address_that_serves_no_websocket(start_http_peer: StartHttpPeer, peer: str) -> None:
    url = start_http_peer(peer, "ws").url.replace("/mcp", "/other")
    async with pool_of(server_of(Target("mcp1", "ws"), WebSocketTransport(url=url))) as pool:
        with pytest.raises(OpenFailed) as caught:
            await pool.tools(ALICE)
        assert caught.value.http_status == 403, "so says this ASGI server of what nobody accepts"
