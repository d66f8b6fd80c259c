"""Openings that take their time, and names with addresses of which one answers nothing."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Plan, Seams, Server
from afpool.testing import Delay, FakeServer, in_memory
from tests.pool.kit import ALICE, quiet, refused
from tests.realfaults.network.odd_kit import PATIENCE


@pytest.mark.parametrize(("seconds", "opens"), [(29.0, True), (31.0, False)])
async def test_an_opening_has_its_thirty_seconds(seconds: float, opens: bool, autojump_clock: Any):
    server = FakeServer.http(memory=True, host="crm.test")
    server.on("initialize", Delay(seconds), times=1)
    async with server:
        plan = Plan(transport=HttpTransport(url=server.url), protocol_version="2025-11-25")
        async with afpool.open_pool([Server(name="crm", plan=plan)], seams=in_memory(server)) as pool:
            if opens:
                await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
            else:
                await refused(pool.tools(ALICE), "open-failed", within=40)
            quiet(pool)


@contextlib.contextmanager
def deaf(family: socket.AddressFamily) -> Any:
    """An address that answers no SYN: its queue is full, and nobody takes from it."""
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(family))
        listening.bind((host, 0))
        listening.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex(listening.getsockname())
        yield listening.getsockname()


@pytest.mark.parametrize("family", [socket.AF_INET6, socket.AF_INET], ids=["ipv6", "ipv4"])
async def test_a_family_that_hangs_costs_a_quarter_of_a_second_and_no_descriptor(
    family: socket.AddressFamily,
):
    """A name with an address of each family, the first of which answers no SYN."""
    host = "127.0.0.1" if family == socket.AF_INET6 else "::1"
    other = socket.AF_INET if family == socket.AF_INET6 else socket.AF_INET6
    tried: list[tuple[int, float]] = []
    with trio.fail_after(PATIENCE), deaf(family) as silent:
        async with FakeServer.http(host=host) as server:
            found = [(int(family), silent), (int(other), (host, server.port))]
            real = Seams().connect

            async def connect(chosen: int, address: Any) -> Any:
                tried.append((chosen, trio.current_time()))
                return await real(chosen, address)

            seams = Seams(resolve=lambda _host, _port: found, connect=connect)
            plan = Plan(transport=HttpTransport(url=f"http://two.test:{server.port}/mcp"))
            async with afpool.open_pool([Server(name="two", plan=plan)], seams=seams) as pool:
                tool = (await pool.tools(ALICE))["echo"]
                assert (await tool.call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
            assert [chosen for chosen, _ in tried[:2]] == [family, other]
            assert tried[1][1] - tried[0][1] >= 0.24
            await server.wait_until(lambda: server.connections == 0)


async def test_a_name_with_no_address_that_answers_is_a_failed_opening():
    with trio.fail_after(PATIENCE), deaf(socket.AF_INET6) as first, deaf(socket.AF_INET) as second:
        found = [(int(socket.AF_INET6), first), (int(socket.AF_INET), second)]
        plan = Plan(transport=HttpTransport(url="http://two.test/mcp"))
        async with afpool.open_pool(
            [Server(name="two", plan=plan)], seams=Seams(resolve=lambda _host, _port: found), open_timeout=0.7
        ) as pool:
            await refused(pool.tools(ALICE), "open-failed")
            quiet(pool)
