"""The exhaustive walk, as deep as the suite affords, and proof that it sees what it is there to see.

Each break below is one line of the machine changed. The walk must stop at every one of them; a break whose
line is no longer in the machine fails too, so that the list keeps up with the code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from afpool.pool import _machine
from tests.pool import explore, machine_states, machine_world

SOURCE = Path(_machine.__file__).read_text()

EVERY_MOVE = {
    "admit", "nest", "cancel", "settle", "time_out", "give_up", "plan", "opened", "open_failed", "forget",
    "close_done", "lose", "listed", "notice", "plan_seen", "shared_moves", "evict", "revoke", "pause",
    "resume", "drain", "close", "crash", "kicked",
}  # fmt: skip

BREAKS = {
    "a call is admitted without looking at the places": (
        "if not self.waiting and not self._held and len(leases) < self.limits.max_operations:",
        "if not self.waiting and not self._held:",
    ),
    "a waiter is granted without looking at the places": (
        "elif not full and len(self.leases) < self.limits.max_operations:",
        "elif not full:",
    ),
    "waiters are granted last come, first served": (
        "for ticket in list(waiting):\n                msg, reply = waiting[ticket]",
        "for ticket in reversed(list(waiting)):\n                msg, reply = waiting[ticket]",
    ),
    "a place is granted and not counted on its client": (
        "self.leases[ticket] = client\n                    client.leases += 1",
        "self.leases[ticket] = client",
    ),
    "a place is not taken back": (
        "client = leases.pop(ticket, None) if leases else None",
        "client = leases.get(ticket) if leases else None",
    ),
    "an abandoned place is not free": (
        "del self.leases[msg.ticket]\n            self.abandoned += 1",
        "self.abandoned += 1",
    ),
    "a place freed on an old client serves nobody": (
        "        if self.waiting:\n            self._grant(effects)  #",
        "        if self.waiting and client is self.client:\n            self._grant(effects)  #",
    ),
    "a place given back twice goes unnoticed": ("if msg.held:\n", "if False:\n"),
    "a call of another context gets the live client": (
        "if msg.context is not None and msg.context != client.context:\n                raise",
        "if False:\n                raise",
    ),
    "waiters of another context stay when the plan is known": (
        "if admit.context is not None and admit.context != msg.context:",
        "if False:",
    ),
    "a plan that nobody waits for is opened": ("go = bool(waiting)", "go = True"),
    "a second opening is started": (
        "if self.opening is not None:\n                self.opening.fresh =",
        "if self.opening is not None and fresh:\n                self.opening.fresh =",
    ),
    "an evicted client is not waited for": (
        "elif not any(client.wait_for_close for client in (self.old or {}).values()):",
        "else:",
    ),
    "the client of an overtaken opening is taken": (
        "if opening is None or opening.token != msg.token or self.closed:",
        "if opening is None:",
    ),
    "the failure of an overtaken opening counts": (
        "if opening is None or opening.token != msg.token:\n            return []",
        "if opening is None:\n            return []",
    ),
    "a failed opening tells nobody": (
        "effects.append(Refuse(reply, copy_error(msg.error)))",
        "pass",
    ),
    "an opening that nobody waits for goes on": (
        "effects.append(m.CancelOpening(self.opening.token))",
        "pass",
    ),
    "a replaced client in use is closed": (
        "if client.leases == 0:\n            effects.append(m.CloseClient(client.handle, reason))",
        "effects.append(m.CloseClient(client.handle, reason))",
    ),
    "a replaced client is never closed": (
        "if client is not self.client and client.leases == 0:",
        "if False:",
    ),
    "a client that is not the key's any more counts as lost": (
        "if self.client is not None and self.client.id == msg.client_id:\n            self._retire",
        "if self.client is not None:\n            self._retire",
    ),
    "eviction does not look whether the client is used": (
        "if self.client is None or not self.idle:",
        "if self.client is None:",
    ),
    "waiters outlive a revocation": ("self._refuse_all(effects, revoked)", "pass"),
    "a revocation leaves the epoch": ("self.epoch += 1\n        effects", "effects"),
    "a closed key admits": (
        "if self.closed:\n            raise PoolClosed",
        "if False:\n            raise PoolClosed",
    ),
    "closing is forgotten": ("self.closed = True\n        effects", "effects"),
    "a pause holds nobody": ("return self.paused or self.draining", "return self.draining"),
    "a resume serves nobody": ("self.paused = False\n        return self._grant([])", "self.paused = False"),
    "a drain holds nobody": ("return self.paused or self.draining is not None or", "return self.paused or"),
    "a drain is never answered": ("if not self.leases and self.draining is not None:", "if False:"),
    "a waiter whose list has changed waits on": ("if not true:", "if False:"),
    "the key is given up while a client closes": ("or self.old\n", "\n"),
    "a crash forgets the places": (
        "ghosts = set(self.leases or ()) | (self.ghosts or set())",
        "ghosts: set[int] = set()",
    ),
    "a crash forgets the live client": ("old[self.client.id] = self.client", "pass"),
    "a crash forgets the opening": ("fresh.last_opening = self.last_opening", "pass"),
    "a crash forgets who closed the key": ("fresh.closed = self.closed", "pass"),
    "a crash forgets the epoch": ("fresh.epoch = self.epoch", "pass"),
    "a crash in the middle of a settle leaves the place taken": (
        "if isinstance(torn, m.Settle):\n            self.ghosts.discard(torn.ticket)",
        "if isinstance(torn, m.Settle):\n            pass",
    ),
    "a crash in the middle of an opening loses the client": ("self.old.setdefault(", "({}).setdefault("),
    "a crash in the middle of a revocation loses it": ("self.epoch += 1  #", "pass  #"),
    "a crash leaves the old client open": (
        'effects.append(m.CloseClient(client.handle, "its actor crashed"))',
        "pass",
    ),
    "a call waits for itself": ("if msg.chain and self._waits_for_itself(msg):", "if False:"),
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
    good, bad = BREAKS[name]
    assert SOURCE.count(good) == 1, "the line that this break changes is not there, or not once"
    broken = ModuleType("afpool.pool._broken_machine")
    broken.__package__ = "afpool.pool"
    monkeypatch.setitem(sys.modules, broken.__name__, broken)
    exec(compile(SOURCE.replace(good, bad), "broken machine", "exec"), broken.__dict__)
    monkeypatch.setattr(machine_world, "_machine", broken)
    monkeypatch.setattr(machine_world, "KeyMachine", broken.KeyMachine)
    monkeypatch.setattr(machine_world, "KeyLimits", broken.KeyLimits)
    monkeypatch.setattr(machine_world, "LeaseReturnedTwice", broken.LeaseReturnedTwice)
    monkeypatch.setattr(machine_states, "_machine", broken)
    with pytest.raises(AssertionError):
        explore.explore(4)
