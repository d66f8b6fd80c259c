"""A world around one `KeyMachine`: what the outside believes, and an oracle that watches every turn.

The world plays everybody who sends messages to a key's machine (callers, openings, clients, operators, the
crash of the actor) and carries out the effects as the actor does. It keeps its own books and compares them
with the machine after every turn; it never believes the machine:

* who asked, who holds a place, on which client, and who still owes its `Settle`
* which clients exist, which of them were told to close, which are closed
* which openings run, and which of them were cancelled but have not noticed yet
* which drains are unanswered, and whether the key is to be kept

Message order is free: everything that is under way outside may report at any time.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import attrs

from actors import Answer, Refuse, Reply, Request
from afpool._base.errors import AfpoolError, OpenFailed
from afpool.pool import _machine
from afpool.pool import _messages as m
from afpool.pool._lists import ListState
from afpool.pool._machine import KeyLimits, KeyMachine, LeaseReturnedTwice

WAITING, LEAVING, HOLDING, SETTLING = "waiting", "leaving", "holding", "settling"
PLANNING, CONNECTING = "planning", "connecting"
LOST, SILENT = "lost", "silent"


@attrs.frozen
class Role:
    """One kind of asker: a call bound to a context and a list, or a list ask."""

    name: str
    lease: bool = True
    context: str | None = None
    list: str | None = None  # "own" or "shared"
    fresh: bool = False


A = Role("call of A", context="A", list="own")
B = Role("call of B", context="B", list="shared")
LISTS = Role("list", lease=False)
FRESH = Role("refresh", lease=False, fresh=True)
ROLES = (A, B, LISTS, FRESH)


@attrs.frozen
class Tools:
    """Stands for a catalog: the machine looks at the digest and at what a name shows."""

    digest: str

    def get(self, _name: str) -> Tools:
        return self


OLD_TOOLS, NEW_TOOLS = Tools("old"), Tools("new")


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

    def __init__(self, role: Role, message: m.Admit, reply: Reply[Any], phase: str = WAITING) -> None:
        self.role = role
        self.message = message
        self.ticket = message.ticket
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


class Crash(Exception):  # noqa: N818 - the point is that it is no error of afpool's
    """What a broken turn raises."""


def _broken(_machine: KeyMachine, _message: Any, _reply: Any) -> None:
    raise Crash


class World:
    """The machine and everything around it; every method that sends runs the whole oracle afterwards."""

    def __init__(self, places: int = 2, max_waiting: int = 256) -> None:
        self.next_id = count(1).__next__
        self.limits = KeyLimits(max_operations=places, max_waiting=max_waiting)
        self.machine = KeyMachine(self.limits, self.next_id)
        self.shared = ListState(self.next_id())
        self.shared.received(OLD_TOOLS, 0, 1e9)  # type: ignore[arg-type]
        self.askers: dict[int, Asker] = {}
        self.clients: dict[int, Handle] = {}
        self.openings: dict[int, Opening] = {}
        self.overtaken: dict[int, Opening] = {}
        self.drains: list[Reply[None]] = []
        self.kept: bool | None = False
        self.kick = False
        self.crashes = 0
        self.epoch = 0
        self.closed = False
        self.pings = 0
        self.crash_next: int | None = None  # None: no; -1: in the turn; n: after n effects
        self.effects = 0  # of the last turn that the world was asked for

    # ------------------------------------------------------------------ one turn, as the actor runs it

    def send(self, message: Any) -> Reply[Any] | None:
        """One turn and its effects; a crash if one is due; then the oracle."""
        machine = self.machine
        queue = [ticket for ticket, (admit, _) in (machine.waiting or {}).items() if admit.lease]
        if isinstance(message, m.Admit) and message.lease:
            queue.append(message.ticket)
        gave_up = machine.abandoned
        reply: Reply[Any] | None = Reply() if isinstance(message, Request) else None
        asker = None
        if isinstance(message, m.Admit):
            asker = self.askers[message.ticket]
            assert reply is not None
            asker.reply = reply
        elif isinstance(message, m.Drain):
            assert reply is not None
            self.drains.append(reply)
        crash_at, self.crash_next = self.crash_next, None
        kind = type(message)
        real = _machine._TURNS[kind]
        if crash_at == -1:
            _machine._TURNS[kind] = _broken
        try:
            effects = list(machine.turn(message, reply) or ())
        except LeaseReturnedTwice:
            raise
        except AfpoolError as refusal:
            assert reply is not None, "only a request can be refused"
            reply.fail(refusal)
            effects = []
        except Crash:
            self._crashed(reply)
            effects = []
        finally:
            _machine._TURNS[kind] = real
        self.effects = len(effects)
        granted: list[int] = []
        for index, effect in enumerate(effects):
            if index == crash_at:
                break
            self._perform(effect, granted)
        if crash_at is not None and crash_at >= 0:
            self._crashed(reply)
        if isinstance(message, m.PlanChanged) and message.token is not None:
            assert reply is not None
            assert reply.done, "I7: an opening was not told whether to go on"
            self._plan_told(message, reply)
        self._check_order(queue, granted)
        if crash_at is None:
            final = isinstance(message, m.Abandon) and message.final
            assert machine.abandoned - gave_up in ((0, 1) if final else (0,))
        self._absorb()
        self.check()
        return reply

    def _perform(self, effect: Any, granted: list[int]) -> None:
        kind = type(effect)
        if kind is Answer:
            delivered = effect.reply.set(effect.value)
            for asker in self.askers.values():
                if asker.reply is effect.reply:
                    assert delivered or asker.phase == LEAVING, "a grant was lost"
                    self._check_grant(asker, effect.value)
                    if asker.role.lease:
                        granted.append(asker.ticket)
        elif kind is Refuse:
            effect.reply.fail(effect.error)
        elif kind is m.StartOpening:
            assert not self.openings, "I8: a second opening was started"
            assert not any(c.evicted or c.from_crash for c in self.clients.values()), (
                "I8, M4: one is still closing"
            )
            self.openings[effect.token] = Opening(effect.token)
        elif kind is m.CancelOpening:
            opening = self.openings.pop(effect.token, None)
            assert opening is not None or self.crashes, "an opening that does not run was cancelled"
            if opening is not None:
                self.overtaken[effect.token] = opening
        elif kind is m.CloseClient:
            client = effect.handle
            assert not client.closed, "a closed client was told to close"
            assert not self.holders(client), "M3: a client in use was told to close"
            client.told = True
        elif kind is m.PingClient:
            self.pings += 1
        else:
            assert kind is m.Active, effect
            self.kept = effect.active

    def _crashed(self, reply: Reply[Any] | None) -> None:
        """As the actor does it: every reply that the old machine owes fails, a successor takes its place."""
        failed = [asker.reply for asker in self.askers.values() if asker.phase in (WAITING, LEAVING)]
        for owed in [*failed, *self.drains, *([] if reply is None else [reply])]:
            owed.fail(Crash())
        self.drains.clear()
        for asker in self.askers.values():
            asker.from_crash = True
        for ticket, state in (self.machine.leases or {}).items():
            if ticket in self.askers:  # not if it was just given back
                self.askers[ticket].client = state.handle
        for opening in self.openings.values():
            opening.orphan = True
        for client in self.clients.values():
            client.from_crash = client.used
        self.machine = self.machine.successor()
        self.kick = True
        self.crashes += 1

    def _absorb(self) -> None:
        """Let everybody look at its reply."""
        for asker in list(self.askers.values()):
            if asker.phase in (WAITING, LEAVING):
                state = (self.machine.leases or {}).get(asker.ticket)
                if state is not None:
                    asker.client = state.handle
                if asker.phase == WAITING and not asker.reply.done:
                    continue
                if asker.phase == WAITING and asker.role.lease and self._error(asker.reply) is None:
                    asker.phase = HOLDING
                elif self._knows(asker):
                    asker.phase = (
                        LEAVING  # of a waiter it crashed between place and answer: the place is owed
                    )
                else:
                    self._leave(asker)
        self.drains = [reply for reply in self.drains if not reply.done]

    def _knows(self, asker: Asker) -> bool:
        machine = self.machine
        return any(
            asker.ticket in known for known in (machine.leases, machine.ghosts, machine.waiting) if known
        )

    def _leave(self, asker: Asker) -> None:
        """Its `Settle` comes in any case; the machine knows nothing of it and must not care."""
        del self.askers[asker.ticket]
        assert not self.machine.turn(m.Settle(asker.ticket, held=False), None), (
            "a stranger's Settle had effects"
        )

    @staticmethod
    def _error(reply: Reply[Any]) -> BaseException | None:
        return reply._error

    # ------------------------------------------------------------------ callers

    def admit(self, role: Role, chain: tuple[int, ...] = ()) -> Asker:
        client = self.machine.client
        listed = {"own": None if client is None or client.context != role.context else client.list,
                  "shared": self.shared, None: None}[role.list]  # fmt: skip
        message = m.Admit(
            self.next_id(),
            role.lease,
            role.context,
            self.epoch if role.lease else None,
            listed,
            0 if listed is None else listed.generation,
            "search" if role.lease else None,
            "old" if role.lease else None,
            chain,
            role.fresh,
        )
        asker = self.askers[message.ticket] = Asker(role, message, Reply())
        self.send(message)
        return asker

    def nest(self, holder: Asker) -> Asker:
        """The call that holds a place makes another one of its kind, and waits for it."""
        crash = self.crash_next
        asker = self.admit(holder.role, chain=(holder.ticket,))
        if asker.phase == WAITING and asker.ticket in self.askers and crash is None:
            full = self.machine.in_flight >= self.limits.max_operations
            assert not (full or self.drains or holder.from_crash), "a call waits for itself"
        return asker

    def cancel(self, asker: Asker) -> None:
        """The asker goes away while it waits; its `Settle` comes later, and a grant may come before."""
        assert asker.phase == WAITING
        asker.reply.abandon()
        asker.phase = LEAVING

    def settle(self, asker: Asker, *, answered: bool = True) -> None:
        """The place is given back, or the asker stops waiting."""
        held = asker.phase in (HOLDING, SETTLING)
        crashes = self.crashes
        del self.askers[asker.ticket]
        self.send(m.Settle(asker.ticket, held=held, answered=answered))
        if self.crashes == crashes:
            effects = self.effects
            try:
                self.send(m.Settle(asker.ticket, held=True))
            except LeaseReturnedTwice:
                self.effects = effects
                return
            raise AssertionError("a place was given back twice")

    def time_out(self, asker: Asker) -> None:
        """The caller gave up after sending; a settle task holds the place on."""
        assert asker.phase == HOLDING
        asker.phase = SETTLING
        self.send(m.Abandon(asker.ticket, final=False))

    def give_up(self, asker: Asker) -> None:
        assert asker.phase == SETTLING
        del self.askers[asker.ticket]
        self.send(m.Abandon(asker.ticket, final=True))

    def holders(self, client: Handle) -> list[Asker]:
        return [a for a in self.askers.values() if a.client is client and a.phase != WAITING]

    # ------------------------------------------------------------------ openings and clients

    def plan(self, opening: Opening, context: str, retry_after: float | None = None) -> None:
        self.send(m.PlanChanged(context, opening.token, retry_after))

    def _plan_told(self, message: m.PlanChanged, reply: Reply[bool]) -> None:
        """The opening reads whether to go on, in the step in which it is told."""
        assert message.token is not None
        opening = self.openings.get(message.token) or self.overtaken[message.token]
        if self._error(reply) is None and reply.result():
            assert message.token in self.openings, "an overtaken opening was told to go on"
            opening.phase, opening.context = CONNECTING, message.context
        else:
            self._gone(opening)

    def opened(self, opening: Opening) -> Handle:
        assert opening.context is not None
        client = Handle(self.next_id(), opening.context)
        self.clients[client.id] = client
        wanted = opening.token in self.openings and not opening.orphan
        self._gone(opening)
        crash = self.crash_next
        client.used = wanted
        self.send(m.Opened(opening.token, client.id, client.context, client))
        if crash is None:
            taken = self.machine.client is not None and self.machine.client.handle is client
            assert taken == wanted, "the client of an overtaken opening was taken, or one in time was not"
        return client

    def open_failed(self, opening: Opening) -> None:
        self._gone(opening)
        self.send(m.OpenFailed(opening.token, OpenFailed("no", retry_after=1.0)))

    def forget(self, opening: Opening) -> None:
        """A cancelled opening ends without a word."""
        del self.overtaken[opening.token]

    def _gone(self, opening: Opening) -> None:
        self.openings.pop(opening.token, None)
        self.overtaken.pop(opening.token, None)

    def lose(self, client: Handle) -> None:
        current, crash = self.machine.client, self.crash_next
        self.send(m.ClientLost(client.id, LOST))
        if current is not None and crash is None:
            kept = self.machine.client is current
            assert kept == (current.handle is not client), "the wrong client was taken for lost"

    def close_done(self, client: Handle) -> None:
        assert client.told
        client.closed = True
        del self.clients[client.id]
        self.send(m.ClientLost(client.id, "closed", closed=True))

    def plan_seen(self, context: str) -> None:
        """A list that goes to the wire resolved a plan."""
        self.send(m.PlanChanged(context))

    # ------------------------------------------------------------------ lists

    def listed(self, client: Handle, tools: Tools) -> None:
        self.send(m.Listed(client.id, tools, 0, 1e9))  # type: ignore[arg-type]

    def notice(self, client: Handle) -> None:
        self.send(m.ListChanged(client.id))

    def shared_moves(self, *, ends: bool) -> None:
        """The shared list changes, or its entry is taken out of sharing and another takes its place."""
        state = self.shared
        if ends:
            state.end()
            self.shared = ListState(self.next_id())
            self.shared.received(OLD_TOOLS, 0, 1e9)  # type: ignore[arg-type]
        else:
            state.received(NEW_TOOLS if state.catalog is OLD_TOOLS else OLD_TOOLS, 0, 1e9)  # type: ignore[arg-type]
        self.send(m.ListChanged(list=state))

    # ------------------------------------------------------------------ operators and the end

    def evict(self) -> None:
        idle = [client for client in self.clients.values() if not client.told]
        self.send(m.Evict())
        for client in idle:
            client.evicted = client.told

    def kicked(self) -> None:
        self.kick = False
        self.send(m.Evict())

    def revoke(self) -> None:
        self.epoch += 1
        self.send(m.Revoke("revoked"))

    def close(self) -> None:
        self.closed = True
        self.send(m.Close())

    def crash(self) -> None:
        """Crash between two turns."""
        self._crashed(None)
        self._absorb()
        self.check()

    # ------------------------------------------------------------------ the oracle

    def _check_grant(self, asker: Asker, value: object) -> None:
        assert asker.phase in (WAITING, LEAVING), "an ask was answered twice"
        machine = self.machine
        client = machine.client
        assert not self.closed, "a closed key granted"
        assert client is not None, "M1: granted without a live client"
        assert client.handle is value, "M1: granted on another client"
        assert asker.role.context in (None, client.context), "M1: granted to a waiter of another context"
        assert not any(a.from_crash and a.phase != WAITING for a in self.askers.values()), (
            "M4: a ghost holds on"
        )
        assert not any(c.from_crash for c in self.clients.values()), "M4: an old client is not closed"
        if asker.role.lease:
            assert not machine.paused, "granted while paused"
            assert not self.drains, "granted while draining"
            assert (machine.leases or {}).get(asker.ticket) is client, "a place was granted and not counted"
            asker.client = client.handle

    def _check_order(self, queue: list[int], granted: list[int]) -> None:
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
        assert not leases.keys() & ghosts
        counts: dict[int, int] = {}
        for ticket, state in leases.items():
            assert state is client or state.id in old, "a place on a forgotten client"
            assert state.handle is self.askers[ticket].client
            counts[state.id] = counts.get(state.id, 0) + 1
        for state in [*([] if client is None else [client]), *old.values()]:
            assert state.leases == counts.get(state.id, 0) or ghosts or state.handle.from_crash
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
            assert client is None
        else:
            assert all(o.orphan and self.kick for o in self.openings.values()), (
                "an opening for nobody goes on"
            )
        if self.closed:
            assert machine.closed
            assert not waiting, "a closed key lets somebody wait"
            assert client is None
        if waiting:
            self._check_blocked(waiting, leases)
        if machine.ghosts is not None and not self.kick:
            assert ghosts or old, "M4: waits for nothing"
            assert ghosts or all(state.handle.told for state in old.values()), (
                "M4: an old client is not closed"
            )
        # a binding's epoch, and whether the key has something to live for
        assert machine.epoch == self.epoch, "the epoch moved by itself"
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
            stale = admit.list is not None and admit.list.generation != admit.generation
            assert not stale, "a waiter whose list has changed waits on"
        assert full or machine.paused or self.drains, "I7: waits though a place is free"

    # ------------------------------------------------------------------ the end of everything

    def finish(self) -> None:
        """Let everything that is under way outside end in order; then nothing may be left (I4, I7, I11)."""
        for _ in range(100):
            if self.kick:
                self.kicked()
            elif self.machine.paused:
                self.send(m.Resume())
            elif done := next((a for a in self.askers.values() if a.phase != WAITING), None):
                self.settle(done)
            elif told := next((c for c in self.clients.values() if c.told), None):
                self.close_done(told)
            elif opening := next(iter([*self.openings.values(), *self.overtaken.values()]), None):
                if opening.phase == PLANNING:
                    self.plan(opening, "A")
                else:
                    self.opened(opening)
            elif self.machine.client is not None and not self.askers:
                self.evict()
            else:
                break
        assert not self.askers, f"I7: never answered: {self.askers}"
        assert not self.drains, "I7: a drain was never answered"
        assert self.machine.in_flight == 0, "I4: a place has leaked"
        assert not self.clients, "a client was never closed"
        assert self.kept is False, "I11: a key without anything is kept"
