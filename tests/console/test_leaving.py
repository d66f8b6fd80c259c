"""A console that is cut off in the middle of everything, and one that closes: nothing of them stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

from afpool.console import ConsoleSettings, open_console
from afpool.record import Record
from tests.console.desk_kit import memory_desk
from tests.console.server_kit import PATIENCE, attached, unix
from tests.pool.kit import ALICE

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FOLLOWED = ("tail", "tail refusals last=20", "watch overview", "watch actors", "trace KEY on", "trace KEY on")


async def test_who_is_cut_off_leaves_nothing_and_what_closes_leaves_nothing_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining, drained = trio.Event(), trio.Event()

    async def drain(*_: object, **__: object) -> None:
        draining.set()
        try:
            await trio.sleep_forever()
        finally:
            drained.set()

    async with memory_desk() as at:
        pool = at.pool
        await at.world.tool(ALICE)
        actor = at.actor(ALICE)
        monkeypatch.setattr(type(pool), "drain", drain)
        settings = ConsoleSettings(directory=tmp_path / "run", watchdog=False)
        async with open_console(pool, record=Record(pool), settings=settings) as console:
            assert console is not None
            taps = len(pool.records._on_use), len(pool.records._on_event)
            tasks = trio.lowlevel.current_statistics().tasks_living
            stream = await unix(console)
            async with attached(stream) as client:
                for line in (*FOLLOWED, "pause files", f"pause {actor.shown}"):
                    answer = await client.ask(line.replace("KEY", actor.shown))
                    assert "ok" in answer, (line, answer)
                await client.send({"id": 900, "do": f"drain {actor.shown}"})
                with trio.fail_after(PATIENCE):
                    await draining.wait()
                assert len(pool.records._on_use) > taps[0]
                assert actor._observer is not None
                assert len(actor._observer.hooks) == 2
                leases = [console.registry.leases.find(what) for what in (("files",), actor.key)]
                await trio.aclose_forcefully(stream)
                with trio.fail_after(PATIENCE):
                    for lease in leases:
                        await lease.gone.wait()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert console.sessions == []
            assert (len(pool.records._on_use), len(pool.records._on_event)) == taps
            assert not actor._observer.hooks
            # the two leases, which end soon, and the drain, which goes on; of the session there is no task
            assert trio.lowlevel.current_statistics().tasks_living == tasks + 3
            assert not drained.is_set()
            assert set(pool.held_servers) == {"files"}
        # and with the console these end as well
        assert drained.is_set()
        assert not pool.held_servers
        assert actor.held_since is None
        resumed = [event.facts["by"] for event in pool.records.events if event.kind == "resumed"]
        assert len(resumed) == 2
        assert all(by.endswith("(its console was closed)") for by in resumed)
