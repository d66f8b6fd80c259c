"""A pool with a registry over it, and two who ask: one may look, one may operate."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import MemoryTransport
from afpool.console import Asker, CommandError, Registry, Stream, build_registry
from afpool.record import Record
from tests.pool.kit import World, memory_world, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from afpool import Identity, Pool
    from afpool.pool._actor import KeyActor

PATIENCE = 10


@attrs.define(eq=False)
class Desk:
    """A registry over a pool.

    Attributes:
        world: Server, host and pool.
        registry: What is asked.
        operator: May operate.
        reader: May look.
    """

    world: World
    registry: Registry
    operator: Asker = attrs.field(factory=lambda: Asker("operate", "console uid 1000", 1))
    reader: Asker = attrs.field(factory=lambda: Asker("read", "console token read", 2))

    @property
    def pool(self) -> Pool:
        """The pool."""
        return self.world.pool

    async def ask(self, line: str | list[str], by: Asker | None = None, **options: str) -> dict[str, Any]:
        """Ask as the operator, or as who is named; the answer is no stream."""
        with trio.fail_after(PATIENCE):
            result = await self.registry.run(line, by or self.operator, options)
        assert isinstance(result, dict), result
        return result

    async def stream(self, line: str, by: Asker | None = None) -> Stream:
        """Begin to follow."""
        with trio.fail_after(PATIENCE):
            result = await self.registry.run(line, by or self.operator)
        assert isinstance(result, Stream), result
        return result

    async def refused(
        self, line: str | list[str], code: str, by: Asker | None = None, **options: str
    ) -> CommandError:
        """Ask for what is refused by this code."""
        with pytest.raises(CommandError) as caught, trio.fail_after(PATIENCE):
            await self.registry.run(line, by or self.operator, options)
        assert caught.value.code == code, caught.value.message
        for suggested in caught.value.tries:
            await self.works(suggested)
        return caught.value

    async def works(self, line: str) -> None:
        """What is suggested can be typed as it stands: it is done where it only looks, else it is read."""
        command, ask = self.registry.understood(line, self.operator)
        if command.level == "operate":
            return
        with trio.fail_after(PATIENCE):
            try:
                result: Any = await self.registry.run(line, self.operator)
            except CommandError as refusal:
                result = refusal.code
        if isinstance(result, Stream):
            result.close()
        # a key or a call may be gone, or not there yet
        assert not isinstance(result, str) or (result == "unknown-id" and ask.words), line

    async def rows(self, line: str, by: Asker | None = None) -> list[dict[str, Any]]:
        """Rows of a table, by the names of its columns."""
        return rows_of(await self.ask(line, by))

    def actor(self, who: Identity) -> KeyActor:
        """The actor of somebody's key."""
        pool = self.world.pool
        return pool._existing(pool.key_of(who, "files"))


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table, by the names of its columns."""
    assert result["kind"] == "table"
    names = [column["name"] for column in result["columns"]]
    assert len(result["rows"]) == result["shown"]
    assert all(len(row) == len(names) for row in result["rows"])
    return [dict(zip(names, row, strict=True)) for row in result["rows"]]


async def frame(stream: Stream) -> dict[str, Any]:
    """The next frame; it must come."""
    with trio.fail_after(PATIENCE):
        found = await stream.next()
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def desk(*, over: Any = world, **options: Any) -> AsyncIterator[Desk]:
    """Open a world (see `tests.pool.kit`) with a registry over its pool."""
    async with over(**options) as found:
        opened = World(*found) if isinstance(found, tuple) else found
        registry = build_registry(pool=opened.pool, record=Record(opened.pool))
        async with registry.serving():
            yield Desk(opened, registry)


def memory_desk(**options: Any) -> Any:
    """The same over a server in memory, where time is virtual."""
    return desk(over=memory_world, **options)


def unreachable(at: Desk) -> None:
    """Let every further opening fail, as of a server that is not there."""

    async def connect() -> Any:
        await trio.lowlevel.checkpoint()
        raise OSError("nobody there")

    at.world.host.transport = lambda _host, _who: MemoryTransport(name="gone", connect=connect)
