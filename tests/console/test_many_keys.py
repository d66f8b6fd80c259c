"""What is asked of ten thousand keys gives every other task its turn. Time is counted, not read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool._base.use import Use
from afpool.console import Stream, _grid, _overview
from afpool.console._ask import make_ask
from afpool.console._slices import Slices, encode
from tests.console.desk_kit import Desk, frame, memory_desk
from tests.console.test_registry import Clock
from tests.pool.kit import person

if TYPE_CHECKING:
    from trio.testing import MockClock

KEYS = 10_000
STEPS_OF_A_SLICE = 64
"""With a clock that moves by a fifth of the budget at each look, and a look after 16 steps: so many at most,
and those of the step in which the slice ends."""


def slow_slices() -> Slices:
    return Slices(budget=0.001, clock=Clock(0.0003))


def many(at: Desk) -> list[Any]:
    return [at.pool.actor_for("files", person(number)) for number in range(KEYS)]


async def test_a_table_of_all_keys_is_made_and_written_in_slices() -> None:
    async with memory_desk() as at:
        keep = many(at)
        table = at.registry.tables["actors"]
        ask = make_ask(
            ("show",), ("actors",), {"limit": "20000", "sort": "-waiting"}, at.operator, at.pool.seams
        )
        ask = attrs.evolve(ask, slices=slow_slices())
        result = await at.registry.select(table, ask)
        assert result["shown"] == len(keep) == KEYS
        # made, sorted (several times, merging), cut: each goes through all of them
        assert ask.slices.turns >= 3 * KEYS / STEPS_OF_A_SLICE
        slices = slow_slices()
        assert len(await encode({"id": 1, "ok": result}, slices)) > 500_000
        assert slices.turns >= 8


async def test_one_actor_among_all_is_found_in_slices() -> None:
    async with memory_desk() as at:
        keep = many(at)
        wanted = keep[-1].shown
        ask = make_ask(("show", "actor"), (wanted,), {}, at.operator, at.pool.seams)
        ask = attrs.evolve(ask, slices=slow_slices())
        assert await at.registry.sources.actor(ask) is keep[-1]
        assert ask.slices.turns >= KEYS / STEPS_OF_A_SLICE / 2


async def test_what_goes_through_all_keys_for_a_screen_does_so_in_slices(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    made: list[Slices] = []

    def counted() -> Slices:
        made.append(Slices(budget=0.0))
        return made[-1]

    monkeypatch.setattr(_grid, "Slices", counted)
    monkeypatch.setattr(_overview, "Slices", counted)
    async with memory_desk() as at:
        keep = many(at)
        overview = await at.ask("show overview")
        assert overview["actors"] == KEYS
        assert made[-1].turns >= KEYS / 16 / 2
        stream = await at.stream("watch actors")
        seen = 0
        while seen < KEYS:
            seen += len((await frame(stream))["actors"]["set"])
        assert made[-1].turns >= KEYS / 256 / 2
        at.pool.pause(keep[0].key)
        await trio.sleep(5)
        assert len((await frame(stream))["actors"]["set"]) == 1


async def test_a_check_of_all_keys_is_made_in_slices() -> None:
    async with memory_desk() as at:
        keep = many(at)
        for actor in keep[:2000]:
            at.pool.pause(actor.key)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            command, ask = at.registry.understood("check", at.operator)
            ask = attrs.evolve(ask, slices=slow_slices())
            await command.run(ask)  # type: ignore[misc]
            nursery.cancel_scope.cancel()
        assert ask.slices.turns >= KEYS / STEPS_OF_A_SLICE
        # who comes first within one step of trio is chance: the turn after the last end may not have come yet
        assert turns >= ask.slices.turns - 1


MANY = 4000
NOBODY = SimpleNamespace(projection=None)


def a_call(number: int) -> Any:
    """A call under way that shows up nowhere: it holds nothing, and waits for no place."""
    use = Use(f"call-{number}", "files", "echo", 0.0)
    return SimpleNamespace(
        use=use, held=False, begun=False, reply=None, client=None, tenant=None, deadline=1e9, actor=NOBODY
    )


@pytest.mark.parametrize(
    "line",
    ["show errors", "show calls state=door", "show leases", "show waiting", "show clients", "show lists",
     "tail refusals last=5", "check waiters", "check leases", "check tenants", "check pauses"],
)  # fmt: skip
async def test_what_is_gone_through_and_not_shown_is_gone_through_in_slices(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory_desk(pool={"records": MANY}) as at:
        for number in range(MANY):
            use = Use(f"ended-{number}", "files", "echo", 0.0)
            use.outcome, use.ended_at = "ok", 1.0
            at.pool.records.file(use)
        keep = many(at)[:MANY]
        command, ask = at.registry.understood(line, at.operator)
        ask = attrs.evolve(ask, slices=slow_slices())
        with monkeypatch.context() as patched:
            if line in ("show clients", "show lists"):
                patched.setattr(at.pool, "kept", dict.fromkeys(keep))
            else:
                at.pool.pause_server("files")
                patched.setattr(at.pool, "running", {-n: a_call(n) for n in range(1, MANY + 1)})
            result: Any = await command.run(ask)  # type: ignore[misc]
        if isinstance(result, Stream):
            result.close()
        assert ask.slices.turns >= MANY // STEPS_OF_A_SLICE - 1


async def test_a_word_of_a_running_call_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_desk() as at:
        looks = 0
        under_way = at.registry.sources.under_way

        def counted() -> list[Use]:
            nonlocal looks
            looks += 1
            return under_way()

        with monkeypatch.context() as patched:
            patched.setattr(at.pool, "running", {-n: a_call(n) for n in range(1, MANY + 1)})
            patched.setattr(at.registry.sources, "under_way", counted)
            found = await at.registry.complete("cancel call-1", at.operator)
        assert len(found) == 50
        assert looks == 1
