"""Exhaustive walks through small worlds, and proof that they see what they are there to see."""

from __future__ import annotations

import ast
import inspect
import sys

import pytest

from afpool.pool import _key_clients, _key_places, _key_state
from tests.pool.explore import Explorer, Violation, explore, main, walked
from tests.pool.machine_breaks import BREAKS, break_machine
from tests.pool.machine_moves import MESSAGES, make, may_crash, moves
from tests.pool.machine_scopes import EVERY, HELD, INNER, SMALL
from tests.pool.machine_states import freeze, thaw

SCOPES = (SMALL, INNER, EVERY, HELD)


def test_every_order_of_messages():
    walks = [walked(scope).walk for scope in SCOPES]
    assert all(walk.complete for walk in walks), "not everything was gone through"
    small, inner, every, held = walks
    assert held.states > 400
    assert small.states > 5_500
    assert inner.states > 2_900
    assert every.states > 2_100
    assert small.torn > 15_000
    assert small.cut > 8_000
    assert small.between > 600
    assert sum(walk.endings for walk in walks) > 30_000
    names = {name for walk in walks for name in walk.moves}
    assert names == {*MESSAGES, "crash"}
    assert min(small.messages.values()) > 4_000


def test_a_walk_that_is_cut_short_says_so_and_still_ends_everything():
    walk = explore(SMALL, depth=4)
    assert not walk.complete
    assert walk.depth == 4
    assert walk.states < 2_000


def test_the_command_says_what_it_went_through(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["explore.py", "--only", EVERY.name])
    assert main() == 0
    said = capsys.readouterr().out
    assert "complete" in said
    assert "endings, all of which lead to rest" in said
    assert all(name in said for name in MESSAGES.values() if name != "Limit")  # no server is held there


def test_the_command_tells_the_way_to_what_is_broken(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["explore.py", "--only", EVERY.name])
    break_machine(monkeypatch, *BREAKS["a pause holds nobody"])
    assert main() == 1
    first, *way = capsys.readouterr().out.splitlines()
    assert "granted while paused" in first
    assert any(line.strip() == "pause" for line in way)


@pytest.mark.parametrize("name", BREAKS)
def test_the_walk_catches(name, monkeypatch):
    break_machine(monkeypatch, *BREAKS[name])
    with pytest.raises(Violation):
        _walk_until_something_is_wrong()


def _walk_until_something_is_wrong():
    for depth in (5, 9):
        for scope in SCOPES:
            explore(scope, depth)


def test_every_line_of_the_turns_is_run():
    """Else there is something that no move leads to, and nothing would be known of it."""
    seen: set[tuple[str, int]] = set()
    for scope in SCOPES:
        Explorer(scope, seen).run(depth=6)
    assert [line for line in _lines_of_turns() if line not in seen] == _kept_for_safety()


def _lines_of_turns() -> list[tuple[str, int]]:
    """Where the statements of the turns and of their steps stand, by file and number."""
    found = []
    for module in (_key_places, _key_clients, _key_state):
        file = inspect.getsourcefile(module)
        assert file is not None
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            reads = ("__init__", "in_flight", "idle", "held", "would_grant", "snapshot")
            if isinstance(function, ast.FunctionDef) and function.name not in reads:
                inside = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
                found += [
                    (file, node.lineno)
                    for node in inside
                    if node is not function and not isinstance(getattr(node, "value", None), ast.Constant)
                ]
    return sorted(found)


def _kept_for_safety() -> list[tuple[str, int]]:
    """A waiter of another context than the client's: refused when the plan was known, and once more here."""
    lines, first = inspect.getsourcelines(_key_places.grant)
    at = next(number for number, line in enumerate(lines, first) if "del waiting[ticket]" in line)
    file = inspect.getsourcefile(_key_places)
    assert file is not None
    return [(file, at), (file, at + 1)]


def test_the_machine_reads_no_reply():
    """Whether a waiter still listens is left out of a state, since no turn can know it."""
    for module in (_key_places, _key_clients, _key_state):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id not in {"reply", "waiter"}, f"{module.__name__}:{node.lineno}"


def test_a_place_given_back_by_somebody_who_never_learned_of_it_is_a_place_given_back():
    """Whoever was cancelled before its grant says `held=False`; a state does not tell it from a holder."""
    tried = 0
    for state in sorted(walked(INNER).met):
        after = []
        for held in (True, False):
            world = thaw(state, INNER)
            holder = next((a for a in world.askers.values() if a.client is not None), None)
            if holder is None:
                break
            if not held:
                holder.phase = "leaving"
            world.settle(holder, twice=False)
            after.append(freeze(world))
        if after:
            tried += 1
            assert after[0] == after[1]
    assert tried > 1_000


def test_a_crash_at_any_line_leaves_what_a_crash_at_one_of_the_tried_lines_leaves():
    """The walk tries a line for each different thing that is left; here all of them, in the first states."""
    met = Explorer(SMALL)
    met.run(depth=3)
    tried = 0
    for state in sorted(met.met):
        here = thaw(state, SMALL)
        if not may_crash(here, SMALL):
            continue
        for move in moves(here, SMALL):
            if move[0] in {"crash", "late_opened"}:
                continue
            world = thaw(state, SMALL)
            world.watching = True
            make(world, move)
            known = set()
            for at in (*world.tears, *range(world.effects)):
                torn = thaw(state, SMALL)
                torn.crash_next = at
                make(torn, move)
                known.add(freeze(torn))
            plain = thaw(state, SMALL)
            make(plain, move)
            if may_crash(plain, SMALL):
                plain.crash()
                known.add(freeze(plain))
            for line in range(1, 60):
                torn = thaw(state, SMALL)
                torn.crash_next = -line
                make(torn, move)
                if not torn.kick:
                    break  # the turn has no more lines
                tried += 1
                assert freeze(torn) in known
    assert tried > 1_000
