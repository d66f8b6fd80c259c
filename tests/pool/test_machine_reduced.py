"""Nothing is lost by what a reduced state leaves out: whatever a world gets to, the walk has met.

The worlds here are as they are, with everybody's late words one by one: openings that were cancelled, clients
that nobody knows of, askers that have gone and not said so, calls that settle. They are walked through at
random, and each state that they come to, reduced, is one that the exhaustive walk has met.
"""

from __future__ import annotations

import random

import pytest

from tests.pool.explore import walked
from tests.pool.machine_ends import finish
from tests.pool.machine_moves import all_moves, is_late, make, may_crash
from tests.pool.machine_scopes import EVERY, INNER, SMALL
from tests.pool.machine_states import freeze, thaw

ODDS = {
    "admit": 1,
    "plan": 1,
    "opened": 1,
    "close_done": 1,
    "kicked": 1,
    "close": 0.01,
    "revoke": 0.1,
    "reconfigure": 0.05,
}


@pytest.mark.parametrize("scope", [SMALL, INNER, EVERY], ids=lambda scope: scope.name)
def test_whatever_a_world_gets_to_was_met(scope):
    met, came_to = walked(scope).met, set()
    chance = random.Random(1)
    for _ in range(150):
        world = scope.world()
        for _ in range(60):
            ways = [way for way in all_moves(world, scope) if chance.random() < ODDS.get(way[0], 0.3)]
            if not ways:
                continue
            move = chance.choice(ways)
            if move[0] not in {"cancel", "forget", "crash", "kicked"} and may_crash(world, scope):
                places = (-1, -4) if is_late(world, move) else (-1, -4, 0, 1)
                world.crash_next = chance.choice((None, None, None, None, *places))
            make(world, move)
            world.crash_next = None
            state = freeze(world)
            assert state in met, f"{move} leads to what no walk has met"
            came_to.add(state)
            if world.closed:
                break
        finish(world)
    assert len(came_to) > 400


def test_a_state_is_made_into_a_world_and_back():
    for state in walked(SMALL).met:
        assert freeze(thaw(state, SMALL)) == state
