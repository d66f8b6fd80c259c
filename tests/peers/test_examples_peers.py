"""The agent's loop of the examples serves two tenants over servers that nobody here wrote."""

from __future__ import annotations

import os
import sys

import attrs
import pytest
import trio

from tests.peers.conftest import SERVERS, HttpPeer, PeerCommand, command_of
from tests.peers.pool_peer_kit import proxied
from tests.runtime.test_examples import EXAMPLES, said_by, serves_two_tenants

pytestmark = pytest.mark.peer
PYTHON = (sys.executable, "-W", "error")
ENV = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}


def crm_of(peer: str, transport: str) -> PeerCommand:
    """The command of the CRM on one line of the SDK."""
    command = command_of(peer, transport)
    crm = str(SERVERS / "crm_server.py")
    return attrs.evolve(
        command, argv=tuple(crm if part.endswith("_server.py") else part for part in command.argv)
    )


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
def test_over_http(peer: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = HttpPeer(peer, crm_of(peer, "http"))
    try:
        serves_two_tenants(said_by("tenants.py", capsys, server.url))
    finally:
        server.close()


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
def test_over_stdio(peer: str, capsys: pytest.CaptureFixture[str]) -> None:
    serves_two_tenants(said_by("tenants.py", capsys, *crm_of(peer, "stdio").argv))


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
async def test_no_connection_carries_both_tenants(peer: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Read from the bytes: whoever has one tenant's token on it has nothing of the other's."""
    server = HttpPeer(peer, crm_of(peer, "http"))
    try:
        async with proxied(server.url) as proxy:
            with trio.fail_after(60):
                done = await trio.run_process(
                    [*PYTHON, str(EXAMPLES / "tenants.py"), proxy.url], capture_stdout=True, env=ENV
                )
            serves_two_tenants([line.strip() for line in done.stdout.decode().splitlines()])
            carried = [
                {name for name in (b"acme", b"globex") if name + b"-t0ken" in bytes(tunnel.up)}
                for tunnel in proxy.tunnels
            ]
    finally:
        server.close()
    assert {frozenset(names) for names in carried} >= {frozenset({b"acme"}), frozenset({b"globex"})}
    assert all(len(names) <= 1 for names in carried)
