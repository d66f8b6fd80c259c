"""Machines that are broken on purpose, in one line each, and how one takes the place of the real one.

The walk must stop at every one of them. A break whose line is no longer in the code fails, so that the list
keeps up with it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from afpool.pool import _machine
from tests.pool import machine_states, machine_world

if TYPE_CHECKING:
    import pytest

FOLDER = Path(_machine.__file__).parent
# in the order in which they import one another
FILES = ("_key_state", "_key_places", "_key_clients", "_machine")


def break_machine(monkeypatch: pytest.MonkeyPatch, file: str, good: str, bad: str) -> None:
    """Let the watched world run a machine in whose `file` the text `good` is `bad`."""
    made: dict[str, ModuleType] = {}
    with monkeypatch.context() as loading:
        for name in FILES:
            source = (FOLDER / f"{name}.py").read_text()
            if name == file:
                assert source.count(good) == 1, "the line that this break changes is not there, or not once"
                source = source.replace(good, bad)
            full = f"{_machine.__package__}.{name}"
            module = made[name] = ModuleType(full)
            module.__package__ = _machine.__package__
            module.__file__ = str(FOLDER / f"{name}.py")
            loading.setitem(sys.modules, full, module)
            loading.setattr(importlib.import_module(_machine.__package__), name, module, raising=False)
            exec(compile(source, module.__file__, "exec"), module.__dict__)
    for user in (machine_world, machine_states):
        for name, value in vars(user).copy().items():
            home = getattr(value, "__module__", None)
            part = home.rpartition(".")[2] if isinstance(home, str) else ""
            if isinstance(value, type) and part in made and home == f"{_machine.__package__}.{part}":
                monkeypatch.setattr(user, name, getattr(made[part], value.__name__))


BREAKS = {
    "a call is admitted without looking at the places": (
        "_key_places",
        "if not key.waiting and not key.held and len(leases) < key.limits.max_operations:",
        "if not key.waiting and not key.held:",
    ),
    "a waiter is granted without looking at the places": (
        "_key_places",
        "elif not full and len(key.leases) < key.limits.max_operations:",
        "elif not full:",
    ),
    "waiters are granted last come, first served": (
        "_key_places",
        "for ticket in list(waiting):\n            msg, reply = waiting[ticket]",
        "for ticket in reversed(list(waiting)):\n            msg, reply = waiting[ticket]",
    ),
    "a place is granted and not counted on its client": (
        "_key_places",
        "key.leases[ticket] = client\n                client.leases += 1",
        "key.leases[ticket] = client",
    ),
    "a place is not taken back": (
        "_key_places",
        "client = leases.pop(ticket, None) if leases else None",
        "client = leases.get(ticket) if leases else None",
    ),
    "an abandoned place is not free": (
        "_key_places",
        "del key.leases[msg.ticket]\n        key.abandoned += 1",
        "key.abandoned += 1",
    ),
    "a place freed on an old client serves nobody": (
        "_key_places",
        "    if key.waiting:\n        grant(key, effects)  #",
        "    if key.waiting and client is key.client:\n        grant(key, effects)  #",
    ),
    "a place given back twice goes unnoticed": (
        "_key_places",
        "if msg.held:\n",
        "if False:\n",
    ),
    "a call of another context gets the live client": (
        "_key_places",
        "if msg.context is not None and msg.context != client.context:\n            raise",
        "if False:\n            raise",
    ),
    "waiters of another context stay when the plan is known": (
        "_key_clients",
        "if admit.context is not None and admit.context != msg.context:",
        "if False:",
    ),
    "a plan that nobody waits for is opened": (
        "_key_clients",
        "go = bool(waiting)",
        "go = True",
    ),
    "a second opening is started": (
        "_key_state",
        "if self.opening is not None:\n                self.opening.fresh =",
        "if self.opening is not None and fresh:\n                self.opening.fresh =",
    ),
    "an evicted client is not waited for": (
        "_key_state",
        "elif not any(client.wait_for_close for client in (self.old or {}).values()):",
        "else:",
    ),
    "the client of an overtaken opening is taken": (
        "_key_clients",
        "if opening is None or opening.token != msg.token:\n        return [m",
        "if opening is None:\n        return [m",
    ),
    "the failure of an overtaken opening counts": (
        "_key_clients",
        "if opening is None or opening.token != msg.token:\n        return []",
        "if opening is None:\n        return []",
    ),
    "a failed opening tells nobody": (
        "_key_clients",
        "effects.append(Refuse(reply, copy_error(msg.error)))",
        "pass",
    ),
    "an opening that nobody waits for goes on": (
        "_key_state",
        "effects.append(m.CancelOpening(self.opening.token))",
        "pass",
    ),
    "a replaced client in use is closed": (
        "_key_state",
        "if client.leases == 0:\n            effects.append(m.CloseClient(client.handle, reason))",
        "effects.append(m.CloseClient(client.handle, reason))",
    ),
    "a replaced client is never closed": (
        "_key_places",
        "if client is not key.client and client.leases == 0:",
        "if False:",
    ),
    "a client that is not the key's any more counts as lost": (
        "_key_clients",
        "if key.client is not None and key.client.id == msg.client_id:\n        key.retire",
        "if key.client is not None:\n        key.retire",
    ),
    "eviction does not look whether the client is used": (
        "_key_clients",
        "if not key.idle:",
        "if key.client is None:",
    ),
    "waiters outlive a revocation": (
        "_key_clients",
        "key.refuse_all(effects, lambda: revoked().because(msg.event))",
        "pass",
    ),
    "a revocation leaves the epoch": (
        "_key_clients",
        "key.epoch += 1\n    key.revoked",
        "key.revoked",
    ),
    "waiters outlive a reconfiguration": (
        "_key_clients",
        "key.refuse_all(effects, lambda: reconfigured().because(msg.event))",
        "pass",
    ),
    "a reconfiguration leaves the epoch": (
        "_key_clients",
        "key.epoch += 1\n    key.removed",
        "key.removed",
    ),
    "a client outlives the configuration that it was opened under": (
        "_key_clients",
        'if not msg.keep:\n        key.retire(effects, reason="reconfigured")',
        "pass",
    ),
    "a client that would be opened the same way again is closed": (
        "_key_clients",
        "if not msg.keep:\n        key.retire",
        "if True:\n        key.retire",
    ),
    "a key that no server leads to admits": (
        "_key_places",
        "if key.removed:\n        raise reconfigured()",
        "pass",
    ),
    "a pause outlives its server": (
        "_key_clients",
        "key.paused = False  # nobody",
        "pass  # nobody",
    ),
    "a key that no server leads to is paused": (
        "_key_places",
        "key.paused = not key.removed",
        "key.paused = True",
    ),
    "what was removed stays so": (
        "_key_clients",
        "key.removed = msg.limits is None",
        "key.removed = key.removed or msg.limits is None",
    ),
    "a revocation is taken for a reconfiguration": (
        "_key_clients",
        "    key.revoked = key.epoch\n",
        "",
    ),
    "a crash in the middle of a reconfiguration loses it": (
        "_machine",
        "fresh.epoch += 1\n        fresh.removed",
        "fresh.removed",
    ),
    "a crash in the middle of a removal loses it": (
        "_machine",
        "fresh.removed = torn.limits is None",
        "pass",
    ),
    "a crash forgets that a server was removed": (
        "_machine",
        "fresh.removed = self.removed",
        "pass",
    ),
    "a crash in the middle of a removal keeps the pause": (
        "_machine",
        "fresh.paused = fresh.paused and not fresh.removed",
        "pass",
    ),
    "a closed key admits": (
        "_key_places",
        "if key.closed:\n        raise PoolClosed",
        "if False:\n        raise PoolClosed",
    ),
    "closing is forgotten": (
        "_key_clients",
        "key.closed = True\n    effects",
        "effects",
    ),
    "a pause holds nobody": (
        "_key_state",
        "return self.paused or self.draining",
        "return self.draining",
    ),
    "a resume serves nobody": (
        "_key_places",
        "key.paused = False\n    return grant(key, [])",
        "key.paused = False",
    ),
    "the key of a held server grants": ("_key_state", "if self.limits.halted:", "if False:"),
    "a server that goes on serves nobody": (
        "_key_places",
        "key.limits = msg.limits\n    return grant(key, [])",
        "key.limits = msg.limits",
    ),
    "a crash in the middle of holding a server loses it": (
        "_machine",
        "fresh.limits = torn.limits\n    elif isinstance(torn, m.Close)",
        "pass\n    elif isinstance(torn, m.Close)",
    ),
    "a drain holds nobody": (
        "_key_state",
        "return self.paused or self.draining is not None or",
        "return self.paused or",
    ),
    "a drain is never answered": (
        "_key_places",
        "if not key.leases and key.draining is not None:",
        "if False:",
    ),
    "a waiter whose list has changed waits on": (
        "_key_clients",
        "if not true:",
        "if False:",
    ),
    "the key is given up while a client closes": (
        "_key_state",
        "or self.old\n",
        "\n",
    ),
    "a crash forgets the places": (
        "_machine",
        "ghosts = set(self.leases or ()) | (self.ghosts or set())",
        "ghosts: set[int] = set()",
    ),
    "a crash forgets the live client": (
        "_machine",
        "old[self.client.id] = self.client",
        "pass",
    ),
    "a crash forgets the opening": (
        "_machine",
        "fresh.last_opening = self.last_opening",
        "pass",
    ),
    "a crash forgets who closed the key": (
        "_machine",
        "fresh.closed = self.closed",
        "pass",
    ),
    "a crash forgets the epoch": (
        "_machine",
        "fresh.epoch = self.epoch",
        "pass",
    ),
    "a crash in the middle of a settle leaves the place taken": (
        "_machine",
        "if isinstance(torn, m.Settle):\n        fresh.ghosts.discard(torn.ticket)",
        "if isinstance(torn, m.Settle):\n        pass",
    ),
    "a crash in the middle of an opening loses the client": (
        "_machine",
        "fresh.old.setdefault(",
        "({}).setdefault(",
    ),
    "a crash in the middle of a revocation loses it": (
        "_machine",
        "fresh.epoch += 1  #",
        "pass  #",
    ),
    "a crash leaves the old client open": (
        "_key_places",
        'effects.append(m.CloseClient(client.handle, "its actor crashed"))',
        "pass",
    ),
    "a call waits for itself": (
        "_key_places",
        "if msg.chain and _waits_for_itself(key, msg):\n        raise",
        "if False:\n        raise",
    ),
    "a client is given up before it is filed among the old ones": (
        "_key_state",
        "self.old[client.id] = client\n        self.client = None",
        "self.client = None\n        self.old[client.id] = client",
    ),
    "a drain lets a call wait for itself": (
        "_key_places",
        "effects.append(Refuse(waiter, _for_itself(key)))",
        "key.waiting[ticket] = (msg, waiter)",
    ),
    "a binding of before a revocation is admitted": (
        "_key_places",
        "if msg.epoch is not None and msg.epoch != key.epoch:",
        "if False:",
    ),
    "a late client stays open": (
        "_key_clients",
        'return [m.CloseClient(msg.handle, "nobody waits for it")]',
        "return []",
    ),
    "an eviction lets the next opening begin at once": ("_key_clients", "wait_for_close=True, ", ""),
    "a crash ends a pause": ("_machine", "fresh.paused = self.paused", "pass"),
    "a crash in the middle of a pause loses it": (
        "_machine",
        "fresh.paused = isinstance(torn, m.Pause) and not fresh.removed",
        "pass",
    ),
    "a crash in the middle of closing loses it": ("_machine", "        fresh.closed = True", "        pass"),
    "a crash in the middle of an abandonment leaves the place taken": (
        "_machine",
        "if torn.final:\n            fresh.ghosts.discard(torn.ticket)",
        "if torn.final:\n            pass",
    ),
    "a crash in the middle of a client's end waits for it for ever": (
        "_machine",
        "fresh.old.pop(torn.client_id, None)",
        "pass",
    ),
    "the successor admits at once": (
        "_machine",
        "        fresh.told_active = None\n",
        "        fresh.told_active = None\n        fresh.ghosts = None\n",
    ),
    "a refresh waits out a back-off": (
        "_key_clients",
        "held_off = None if opening.fresh else msg.retry_after",
        "held_off = msg.retry_after",
    ),
    "a list that shows the same tool makes its waiters stale": (
        "_key_clients",
        "if key.limits.recheck_lists:",
        "if False:",
    ),
    "a full queue takes more": (
        "_key_places",
        "if len(waiting) >= key.limits.max_waiting:",
        "if len(waiting) > key.limits.max_waiting:",
    ),
}
