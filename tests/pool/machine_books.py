"""What the outside of a key's machine believes, and the checks that compare it with the machine.

`Books` never believes the machine: who asked, who holds a place on which client and who still owes its
`Settle`; which clients exist, which were told to close; which openings run and which were cancelled and have
not noticed; which drains are unanswered. `machine_world` writes it, `check` is run in every state.

A failed check names the invariant that was broken, where it has a name. Of `docs/invariants.md` these are
the machine's own part, checked here: I1 and I12 (a place is granted on the live client and under its
context only, M1), I2 (nobody is granted anything on a closed key or under an epoch that is over, and
whoever waits under one is refused in that turn), I4, I5 (nobody waits or is granted under a list that was
received and differs), I6 (a snapshot holds numbers and nothing else), I7, I8, I10 (whoever is refused in
here has sent nothing, and is told so). I9 and I11 are about the end of everything, which `machine_ends`
looks at. I3 is no business of the machine.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import attrs

from afpool.pool._lists import ListState

if TYPE_CHECKING:
    from actors import Reply
    from afpool.pool import _messages as m
    from afpool.pool._key_state import KeyLimits
    from afpool.pool._machine import KeyMachine

WAITING, LEAVING, HOLDING, SETTLING = "waiting", "leaving", "holding", "settling"
PLANNING, CONNECTING = "planning", "connecting"


@attrs.frozen
class Role:
    """One kind of asker: a call bound to a context and a list, a call of no list, or a list ask."""

    name: str
    lease: bool = True
    context: str | None = None
    list: str | None = None  # "own" or "shared"
    fresh: bool = False


A = Role("call of A", context="A", list="own")
B = Role("call of B", context="B", list="shared")
BOUND = Role("call of a bound server of A", context="A")
LISTS = Role("list", lease=False)
LISTS_B = Role("list for B", lease=False, context="B")
FRESH = Role("refresh", lease=False, fresh=True)
ROLES = (A, B, LISTS, FRESH, LISTS_B, BOUND)


class Tools:
    """Stands for a catalog: the machine looks at the digest, and at what the one name in it shows."""

    __slots__ = ("digest", "tool")

    def __init__(self, digest: str, tool: Tools | None = None) -> None:
        self.digest = digest
        self.tool = self if tool is None else tool

    def get(self, _name: str) -> Tools:
        return self.tool

    def shows(self, _name: str, digest: str) -> bool:
        return self.tool.digest == digest


OLD_TOOLS, NEW_TOOLS = Tools("old"), Tools("new")
OTHER_TOOLS = Tools("other", tool=OLD_TOOLS)  # another list, which shows the same tool


class Handle:
    """One client, as the outside sees it."""

    __slots__ = ("closed", "context", "evicted", "from_crash", "id", "told", "used")

    def __init__(self, client_id: int, context: str) -> None:
        self.id = client_id
        self.context = context
        self.told = self.closed = False
        self.used = False  # it was the key's once
        self.evicted = self.from_crash = False  # the next opening waits for its end

    def __repr__(self) -> str:
        return f"<client {self.id} of {self.context}{' told' * self.told}{' closed' * self.closed}>"


class Asker:
    """One ask, from `Admit` to the `Settle` that ends it."""

    __slots__ = ("client", "from_crash", "message", "phase", "reply", "role", "ticket")

    def __init__(
        self, role: Role, ticket: int, message: m.Admit | None, reply: Reply[Any], phase: str = WAITING
    ) -> None:
        self.role = role
        self.ticket = ticket
        self.message = message
        self.reply = reply
        self.phase = phase
        self.client: Handle | None = None
        self.from_crash = False

    def __repr__(self) -> str:
        return f"<{self.role.name} {self.ticket} {self.phase}>"


class Opening:
    """One opening under way."""

    __slots__ = ("context", "orphan", "phase", "token")

    def __init__(self, token: int, phase: str = PLANNING, context: str | None = None) -> None:
        self.token = token
        self.phase = phase
        self.context = context
        self.orphan = False  # the actor crashed since


class Books:
    """Everything that the outside knows of one key.

    Attributes:
        machine: The key's machine; another one after a crash.
        askers: Whoever asked and has not said `Settle` yet, by ticket.
        clients: Clients that are not closed, by id.
        openings: Openings that run, by token; `overtaken`: those that were cancelled and do not know yet.
        drains: Unanswered drains.
        kept: What the machine said last about having something to live for.
        kick: An actor crashed, and the `Evict` that follows has not been sent.
        crashes: How often the actor crashed.
    """

    machine: KeyMachine
    limits: KeyLimits

    def __init__(self) -> None:
        self.next_id = count(1).__next__
        self.shared = ListState(self.next_id())
        self.shared.received(OLD_TOOLS, 0, 1e9)
        self.askers: dict[int, Asker] = {}
        self.clients: dict[int, Handle] = {}
        self.openings: dict[int, Opening] = {}
        self.overtaken: dict[int, Opening] = {}
        self.drains: list[Reply[None]] = []
        self.kept: bool | None = False
        self.kick = False
        self.crashes = 0
        self.epoch = self.revoked = 0
        self.closed = self.paused = self.removed = self.halted = False  # by the last word of an operator
        self.pings = 0

    def holders(self, client: Handle) -> list[Asker]:
        return [a for a in self.askers.values() if a.client is client and a.phase != WAITING]

    def outdated(self, admit: m.Admit) -> bool:
        """Whether what an ask stands on is over: its epoch, or the list that it was bound by."""
        if admit.epoch is not None and admit.epoch != self.machine.epoch:
            return True
        listed = admit.list
        if listed is None or admit.tool is None or admit.digest is None:
            return False
        if self.limits.recheck_lists:
            return not listed.shows(admit.tool, admit.digest)
        return listed.generation != admit.generation

    def check_grant(self, asker: Asker, value: object) -> None:
        assert asker.phase in (WAITING, LEAVING), "an ask was answered twice"
        machine = self.machine
        client = machine.client
        assert not self.closed, "I2: a closed key granted"
        assert not self.removed, "I2: a key that no server leads to granted"
        assert asker.message is not None
        assert not self.outdated(asker.message), "I2, I5: granted on ground that is gone"
        assert client is not None, "M1: granted without a live client"
        assert client.handle is value, "M1: granted on another client"
        assert asker.role.context in (None, client.context), "M1: granted to a waiter of another context"
        assert not any(a.from_crash and a.phase != WAITING for a in self.askers.values()), (
            "M4: a ghost holds on"
        )
        assert not any(c.from_crash for c in self.clients.values()), "M4: an old client is not closed"
        if asker.role.lease:
            assert not machine.paused, "granted while paused"
            assert not self.halted, "granted while its server is held"
            assert not self.drains, "granted while draining"
            assert (machine.leases or {}).get(asker.ticket) is client, "a place was granted and not counted"
            asker.client = client.handle

    def check_order(self, queue: list[int], granted: list[int]) -> None:
        assert granted == [ticket for ticket in queue if ticket in granted], "M2: granted out of order"
        if granted:
            ahead = queue[: queue.index(granted[-1])]
            left = self.machine.waiting or {}
            assert not any(ticket in left for ticket in ahead), "M2: an earlier waiter was passed over"

    def check(self) -> None:
        """Compare the books; see the module."""
        machine = self.machine
        leases, ghosts, waiting = machine.leases or {}, machine.ghosts or set(), machine.waiting or {}
        client, old = machine.client, machine.old or {}
        # I4: places, their owners, and what each client counts
        held = {a.ticket for a in self.askers.values() if a.phase in (HOLDING, SETTLING)}
        leaving = {a.ticket for a in self.askers.values() if a.phase == LEAVING}
        assert machine.in_flight == len(leases) + len(ghosts) <= self.limits.max_operations, (
            "I4: too many places"
        )
        assert held <= leases.keys() | ghosts, "I4: the place of a holder is not counted"
        assert leases.keys() | ghosts <= held | leaving, "I4: a place that nobody will give back"
        assert not leases.keys() & ghosts, "I4: a place is held twice"
        counts: dict[int, int] = {}
        for ticket, state in leases.items():
            assert state is client or state.id in old, "a place on a forgotten client"
            assert state.handle is self.askers[ticket].client, "I4: a place is filed on another client"
            counts[state.id] = counts.get(state.id, 0) + 1
        for state in [*([] if client is None else [client]), *old.values()]:
            right = state.leases == counts.get(state.id, 0) or ghosts or state.handle.from_crash
            assert right, "I4: a client miscounts its places"
        assert old.keys() <= self.clients.keys(), "I11: a client that is gone is waited for"
        # M3: whoever is no longer the key's and unused was told to close
        for handle in self.clients.values():
            current = client is not None and client.handle is handle
            assert not (current and handle.told), "the live client was told to close"
            idle = not current and not self.holders(handle)
            assert handle.told or not idle or machine.ghosts is not None, (
                "M3: an unused old client was forgotten"
            )
        # I7: whoever asks is known, and something will happen that serves it
        for asker in self.askers.values():
            assert asker.phase != WAITING or asker.ticket in waiting, "I7: an asker was forgotten"
        assert waiting.keys() <= self.askers.keys(), "a waiter that is gone"
        assert len(waiting) <= self.limits.max_waiting, "too many wait"
        assert len(self.drains) == len(machine.draining or ()), "I7: a drain was forgotten"
        assert not self.drains or leases or machine.ghosts is not None, "I7: a drain waits for nothing"
        if machine.opening is not None:
            assert machine.opening.token in self.openings, "I7: waits for an opening that does not run"
            assert waiting, "an opening that nobody waits for"
            plan = self.openings[machine.opening.token].context
            for admit, _ in waiting.values():
                assert plan is None or admit.context in (None, plan), "a waiter of another plan waits on"
            assert client is None, "I8: an opening is waited for beside a live client"
        else:
            assert all(o.orphan and self.kick for o in self.openings.values()), (
                "an opening for nobody goes on"
            )
        if self.closed:
            assert machine.closed, "I2: a closed key is open again"
            assert not waiting, "a closed key lets somebody wait"
            assert client is None, "a closed key keeps its client"
        assert machine.removed == self.removed, "a removal was lost, or its end"
        if self.removed:
            assert not waiting, "a key that no server leads to lets somebody wait"
            assert client is None, "a key that no server leads to keeps its client"
        for admit, _ in waiting.values():
            assert not self.outdated(admit), "I2, I5: waits on ground that is gone"
        if waiting:
            self._check_blocked(waiting, leases)
        if machine.ghosts is not None and not self.kick:
            assert ghosts or old, "M4: waits for nothing"
            assert ghosts or all(state.handle.told for state in old.values()), (
                "M4: an old client is not closed"
            )
        shown = machine.snapshot().values()
        assert all(value is None or type(value) in (bool, int) for value in shown), "I6: a snapshot tells"
        # a binding's epoch, and whether the key has something to live for
        assert machine.epoch == self.epoch, "the epoch moved by itself"
        assert machine.revoked == self.revoked, "what was revoked is told from what was reconfigured"
        assert machine.paused == self.paused, "a pause was lost, or its end"
        assert machine.limits.halted == self.halted, "that its server is held was lost, or the end of it"
        alive = bool(
            client
            or machine.opening
            or waiting
            or leases
            or old
            or machine.ghosts is not None
            or machine.paused
        )
        assert self.kick or self.kept == alive, "the Active flag is wrong"

    def _check_blocked(self, waiting: dict[int, Any], leases: dict[int, Any]) -> None:
        machine = self.machine
        client = machine.client
        if client is None:
            closing = any(s.wait_for_close and s.handle.told for s in (machine.old or {}).values())
            busy = machine.ghosts is not None or machine.opening is not None or closing
            assert busy, "I7: waits for a client that nobody opens"
            return
        full = len(leases) >= self.limits.max_operations
        for admit, _ in waiting.values():
            assert admit.lease, "I7: a list ask waits though there is a client"
            assert admit.context in (None, client.context), "a waiter of another context waits on"
        held = machine.paused or machine.limits.halted or self.drains
        assert full or held, "I7: waits though a place is free"
