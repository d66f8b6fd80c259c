"""The exhaustive walk, as deep as the suite affords, and proof that it sees what it is there to see.

The walk must stop at every one of the broken machines of `machine_breaks`.
"""

from __future__ import annotations

import pytest

from tests.pool import explore
from tests.pool.machine_breaks import BREAKS, break_machine

EVERY_MOVE = {
    "admit", "nest", "cancel", "settle", "time_out", "give_up", "plan", "opened", "open_failed", "forget",
    "close_done", "lose", "listed", "notice", "plan_seen", "shared_moves", "evict", "revoke", "pause",
    "resume", "drain", "close", "crash", "kicked",
}  # fmt: skip


def test_every_order_to_a_depth():
    walk = explore.explore(4)
    assert walk.depth == 4
    assert walk.states > 9_000
    assert walk.edges > 80_000
    assert walk.crashed > 25_000
    assert walk.finished > 2_000
    assert walk.per_move.keys() == EVERY_MOVE


def test_states_come_back_as_they_were():
    """Thawing and freezing is the identity on what a walk sees, else the walk would test something else."""
    level = explore.roots()
    for _ in range(2):
        level = sorted(
            {
                explore.freeze(explore.take(state, move, crash))
                for state in level
                for move in explore.moves(explore.thaw(state))
                for crash in (None, *explore.crashes(explore.thaw(state), move, 0))
                if crash is None or not explore.thaw(state).crashes
            }
        )
        for state in level:
            world = explore.thaw(state)
            world.check()
            assert explore.freeze(world) == state
    assert len(level) > 200


@pytest.mark.parametrize("name", BREAKS)
def test_the_walk_catches(name, monkeypatch):
    break_machine(monkeypatch, *BREAKS[name])
    with pytest.raises(AssertionError):
        explore.explore(4)
