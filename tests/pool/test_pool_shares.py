"""What all share: who makes room for clients, and whose turn it is in the thread that reads large lists."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Seams, Server
from afpool._base.definition_table import DefinitionTable
from afpool.client import ListAnswer
from afpool.pool._catalogs import SLICE, Catalogs
from afpool.testing import FakeServer, in_memory


def person(tenant: str, number: int) -> Identity:
    return Identity(tenant=tenant, principal=f"{tenant}-{number}")


def clients(pool: Any) -> list[str]:
    """Whose clients are open."""
    return sorted(
        actor.projection.principal or "" for actor in pool.actors() if actor.machine.client is not None
    )


async def opened(pool: Any, *people: Identity) -> None:
    """Open clients, one after the other, each a moment later."""
    for who in people:
        with trio.fail_after(5):
            await pool.tools(who)
        await trio.sleep(0.01)


@pytest.fixture
async def pool(autojump_clock):
    async with FakeServer.http(memory=True, host="files.test") as server:
        servers = [Server(name="files", plan=Plan(transport=HttpTransport(url=server.url)))]
        async with afpool.open_pool(servers, seams=in_memory(server), max_clients=8) as made:
            yield made


async def test_of_the_others_who_has_most_makes_room(pool):
    await opened(pool, person("globex", 0), *[person("acme", n) for n in range(4)])
    await opened(pool, *[person("initech", n) for n in range(3)])
    await opened(pool, person("hooli", 0))
    assert clients(pool) == [
        "acme-1", "acme-2", "acme-3", "globex-0", "hooli-0", "initech-0", "initech-1", "initech-2",
    ]  # fmt: skip


async def test_a_tenant_that_has_its_share_of_clients_makes_room_itself(pool):
    await opened(pool, person("globex", 0), *[person("acme", n) for n in range(6)])
    assert clients(pool) == ["acme-2", "acme-3", "acme-4", "acme-5", "globex-0"]
    assert pool.openings.rooms.used == 5


async def test_nor_does_it_where_another_one_has_as_many(pool):
    await opened(pool, *[person("globex", n) for n in range(4)], *[person("acme", n) for n in range(5)])
    assert clients(pool) == [
        *(f"acme-{n}" for n in range(1, 5)), *(f"globex-{n}" for n in range(4)),
    ]  # fmt: skip


async def test_a_large_list_does_not_keep_the_thread_from_another_tenant(autojump_clock):
    """Parts of about 64 KB take turns; two lists in one go would be read one whole after the other."""
    turns: list[int] = []

    async def in_thread(function: Any, limiter: trio.CapacityLimiter) -> Any:
        async with limiter:
            await trio.sleep(1.0)
            built = function()
        turns.append(len(built))
        return built

    def answer(name: str, count: int) -> ListAnswer:
        text = "y" * 1000
        raw = [
            f'{{"name":"{name}-{n}","description":"{text}","inputSchema":{{}}}}'.encode()
            for n in range(count)
        ]
        return ListAnswer(raw, None)

    catalogs = Catalogs(attrs.evolve(Seams(), in_thread=in_thread))
    assert isinstance(catalogs.table, DefinitionTable)
    ended: dict[str, float] = {}

    async def read(tenant: str, count: int) -> None:
        catalog = await catalogs.catalog(answer(tenant, count), (), tenant, tenant)
        assert [each.name for each in catalog.definitions] == [f"{tenant}-{n}" for n in range(count)]
        ended[tenant] = trio.current_time()

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, "acme", 10 * SLICE // 1000)
        await trio.sleep(0.5)
        nursery.start_soon(read, "globex", SLICE // 1000 + 1)
    assert ended["globex"] - began <= 5.0
    assert ended["acme"] - began > 10.0
    assert max(turns) <= SLICE // 1000 + 1
