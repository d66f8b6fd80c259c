"""The host is told whose tools may be others now: of the identity alone, and of all who share its list."""

from __future__ import annotations

import pytest
import trio

from afpool.testing import echo_tool
from tests.pool.kit import ALICE, BOB, until, world

ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])


@ERAS
async def test_only_the_identity_whose_server_announced_it_is_told(era):
    heard = []
    options = {"on_tools": lambda server, projection: heard.append((server, projection.principal))}
    async with world(http={"era": era}, pool=options) as here:
        await here.tool()
        await here.tool(BOB)
        with trio.fail_after(5):
            await here.server.wait_until(lambda: here.server.streams == 2)
        assert heard == []
        here.server.set_tools([echo_tool("other")])
        await until(lambda: len(heard) >= 2)
        assert sorted(heard) == [("files", ALICE.principal), ("files", BOB.principal)]


async def test_all_who_share_a_list_are_told_by_its_one_listener():
    heard = []
    options = {
        "on_tools": lambda server, projection: heard.append(projection.principal),
        "share": lambda server, projection: "everybody",
    }
    async with world(http={"era": "stateless"}, pool=options) as here:
        await (await here.tool()).call({}, identity=ALICE)
        await (await here.tool(BOB)).call({}, identity=BOB)
        with trio.fail_after(5):
            await here.server.wait_until(lambda: here.server.streams >= 1)
        here.server.set_tools([echo_tool("other")])
        await until(lambda: ALICE.principal in heard and BOB.principal in heard)
