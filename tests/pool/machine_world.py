"""A world around one `KeyMachine`: everybody who sends messages to it, and what its effects do.

The world plays callers, openings, clients, operators and the crash of the actor, carries out the effects as
the actor does, and keeps the books (`machine_books`), which are compared with the machine after every turn.

Message order is free: everything that is under way outside may report at any time.
"""

from __future__ import annotations

from typing import Any

import attrs

from actors import Answer, Refuse, Reply, Request
from afpool._base.errors import AfpoolError, OpenFailed
from afpool.pool import _messages as m
from afpool.pool._key_state import KeyLimits, LeaseReturnedTwice
from afpool.pool._lists import ListState
from afpool.pool._machine import KeyMachine
from tests.pool.machine_books import (
    CONNECTING,
    HOLDING,
    LEAVING,
    OLD_TOOLS,
    SETTLING,
    WAITING,
    Asker,
    Books,
    Handle,
    Opening,
    Role,
    Tools,
)
from tests.pool.machine_reasons import check_reason, plan_of
from tests.pool.machine_tears import Crash, tear, watch


class World(Books):
    """The machine and everything around it; every method that sends runs the whole oracle afterwards.

    Args:
        places: `max_operations` of the key.
        max_waiting: Likewise.
        recheck_lists: Likewise.

    Set `crash_next` before a move to have the actor crash in its turn or in its effects: after so many of
    them, or (minus n) at the n-th line of the turn. Set `watching` to have `tears` say at which lines a
    crash makes a difference, and `seen` to gather the lines that are run. Clear `checking` where whoever
    moves the world calls `check` itself.
    """

    def __init__(self, places: int = 2, max_waiting: int = 256, *, recheck_lists: bool = False) -> None:
        super().__init__()
        self.limits = KeyLimits(places, max_waiting, recheck_lists)
        self.machine = KeyMachine(self.limits, self.next_id)
        self.crash_next: int | None = None
        self.watching = False
        self.checking = True
        self.tears: list[int] = []
        self.seen: set[tuple[str, int]] | None = None
        self.effects = 0  # of the last turn that the world was asked for

    # ------------------------------------------------------------------ one turn, as the actor runs it

    def send(self, message: Any) -> Reply[Any] | None:
        """One turn and its effects; a crash if one is due; then the oracle."""
        machine = self.machine
        queue = [ticket for ticket, (admit, _) in (machine.waiting or {}).items() if admit.lease]
        gave_up = machine.abandoned
        plan = plan_of(self, message)
        reply: Reply[Any] | None = Reply() if isinstance(message, Request) else None
        kind = type(message)
        if kind is m.Admit:
            assert reply is not None
            self.askers[message.ticket].reply = reply
            if message.lease:
                queue.append(message.ticket)
        elif kind is m.Drain:
            assert reply is not None
            self.drains.append(reply)
        elif kind is m.Pause or kind is m.Resume:
            self.paused = kind is m.Pause and not self.removed
        crash_at, self.crash_next = self.crash_next, None
        try:
            effects = list(self._turn(message, reply, crash_at) or ())
            if crash_at is not None and crash_at < 0:
                crash_at = None  # the turn has no such line
        except LeaseReturnedTwice:
            raise
        except AfpoolError as refusal:
            assert reply is not None, "only a request can be refused"
            assert kind is m.Admit, "only an ask is refused in its turn"
            check_reason(self, message, refusal, message, plan)
            reply.fail(refusal.with_traceback(None))  # no circle: its frames hold this world
            effects = []
        except Crash:
            self._crashed(reply)
            effects = []
        self.effects = len(effects)
        granted: list[int] = []
        for index, effect in enumerate(effects):
            if index == crash_at:
                break
            self._perform(effect, granted, message, plan)
        if crash_at is not None and crash_at >= 0:
            self._crashed(reply)
        if kind is m.PlanChanged and message.token is not None:
            assert reply is not None
            assert reply.done, "I7: an opening was not told whether to go on"
            self._plan_told(message, reply)
        self.check_order(queue, granted)
        if crash_at is None:
            final = kind is m.Abandon and message.final
            assert machine.abandoned - gave_up in ((0, 1) if final else (0,)), "abandonments are miscounted"
        self._absorb()
        if self.checking:
            self.check()
        return reply

    def _turn(self, message: Any, reply: Reply[Any] | None, crash_at: int | None) -> Any:
        machine = self.machine
        if crash_at is not None and crash_at < 0:
            return tear(machine, message, reply, -crash_at)
        if self.watching:
            return watch(machine, message, reply, self.tears, self.seen)
        return machine.turn(message, reply)

    def _perform(self, effect: Any, granted: list[int], message: Any, plan: str | None) -> None:
        kind = type(effect)
        if kind is Answer:
            delivered = effect.reply.set(effect.value)
            for asker in self.askers.values():
                if asker.reply is effect.reply:
                    assert delivered or asker.phase == LEAVING, "a grant was lost"
                    self.check_grant(asker, effect.value)
                    if asker.role.lease:
                        granted.append(asker.ticket)
        elif kind is Refuse:
            for asker in self.askers.values():
                if asker.reply is effect.reply:
                    assert asker.message is not None
                    check_reason(self, asker.message, effect.error, message, plan)
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
            assert not effect.handle.closed, "a client that is gone is asked for a sign of life"
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
        assert self.machine.epoch >= self.epoch, "I2: a crash has lost a revocation"
        assert self.machine.revoked >= self.revoked, "a crash takes a revocation for less"
        self.epoch, self.revoked = self.machine.epoch, self.machine.revoked
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
        if not self.checking:
            return  # whoever checks says every late word in every state
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
        if listed is None or listed.catalog is None:
            listed, generation, digest = None, 0, "old"  # as if bound by a list that is gone
        else:
            generation, digest = listed.generation, listed.catalog.get("search").digest
        message = m.Admit(
            self.next_id(), role.lease, role.context, self.epoch if role.lease else None, listed, generation,
            "search" if role.lease else None, digest if role.lease else None, chain, role.fresh,
        )  # fmt: skip
        asker = self.askers[message.ticket] = Asker(role, message.ticket, message, Reply())
        self.send(message)
        return asker

    def nest(self, holder: Asker, role: Role | None = None) -> Asker:
        """The call that holds a place makes another one, and waits for it."""
        crash = self.crash_next
        asker = self.admit(role or holder.role, chain=(holder.ticket,))
        if asker.phase == WAITING and asker.ticket in self.askers and crash is None:
            full = self.machine.in_flight >= self.limits.max_operations
            held_up = full or self.drains or holder.from_crash
            assert not held_up, "a call waits for itself"
        return asker

    def cancel(self, asker: Asker) -> None:
        """The asker goes away while it waits; its `Settle` comes later, and a grant may come before."""
        assert asker.phase == WAITING
        asker.reply.abandon()
        asker.phase = LEAVING

    def settle(self, asker: Asker, *, answered: bool = True, twice: bool = True) -> None:
        """The place is given back, or the asker stops waiting; `twice` sees that a second time is told."""
        held = asker.phase in (HOLDING, SETTLING)
        crashes = self.crashes
        del self.askers[asker.ticket]
        self.send(m.Settle(asker.ticket, held=held, answered=answered))
        if twice and self.crashes == crashes:
            try:
                self.machine.turn(m.Settle(asker.ticket, held=True), None)
            except LeaseReturnedTwice:
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

    def late_opened(self, context: str) -> None:
        """An opening that was given up long ago has a client all the same."""
        token = self.next_id()
        self.overtaken[token] = Opening(token, CONNECTING, context)
        self.opened(self.overtaken[token])

    def _gone(self, opening: Opening) -> None:
        self.openings.pop(opening.token, None)
        self.overtaken.pop(opening.token, None)

    def lose(self, client: Handle) -> None:
        current, crash = self.machine.client, self.crash_next
        self.send(m.ClientLost(client.id, "lost"))
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
        self.send(m.Listed(client.id, tools, 0, 1e9))

    def notice(self, client: Handle) -> None:
        self.send(m.ListChanged(client.id))

    def shared_moves(self, tools: Tools | None) -> None:
        """The shared list changes, or (`None`) its entry is dissolved and another takes its place."""
        state = self.shared
        if tools is None:
            state.end()
            self.shared = ListState(self.next_id())
            self.shared.received(OLD_TOOLS, 0, 1e9)
        else:
            state.received(tools if state.catalog is not tools else OLD_TOOLS, 0, 1e9)
        self.send(m.ListChanged(list=state))

    # ------------------------------------------------------------------ operators and the actor

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
        self.revoked = self.epoch
        self.send(m.Revoke("revoked"))

    def reconfigure(self, how: str) -> None:
        """Other bindings (`bindings`), another client too (`clients`), or no server any more (`removed`)."""
        client, crash = self.machine.client, self.crash_next
        self.epoch += 1
        self.halted = self.halted and not (self.removed and how != "removed")  # one that comes back is not
        self.removed = how == "removed"
        self.paused = self.paused and not self.removed
        limits = None if self.removed else self.now_limited()
        self.send(m.Reconfigure(limits, keep=how == "bindings"))
        if crash is None:
            kept = client if how == "bindings" else None
            assert self.machine.client is kept, "the wrong client is left after a reconfiguration"

    def now_limited(self) -> KeyLimits:
        """The limits of the server's keys, held or not."""
        return attrs.evolve(self.limits, halted=self.halted)

    def halt(self) -> None:
        self.halted = True
        self.send(m.Limit(self.now_limited()))

    def go(self) -> None:
        self.halted = False
        self.send(m.Limit(self.now_limited()))

    def close(self) -> None:
        self.closed = True
        self.send(m.Close())

    def crash(self) -> None:
        """Crash between two turns."""
        self._crashed(None)
        self._absorb()
        if self.checking:
            self.check()
