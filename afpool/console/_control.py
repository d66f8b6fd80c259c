"""What an operator does: `pause`, `resume`, `drain`, `kill`, `evict`, `refresh`, `invalidate`, `cancel`.

Rules:

* It needs the operate level, and each is filed as an event with who asked (`by`).
* Every answer says how it was before and how it is after, and until when: nobody has to trust that it worked.
* What is named must exist; a word that is no key, server, client or call changes nothing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import trio

from .._base.errors import AfpoolError
from ._ask import CommandError, quoted, shown
from ._leases import GRACE, Leases
from ._parse import unknown
from ._sources import state_of
from ._spec import Command
from ._tables_servers import OfServer, by_server, list_word, server_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..pool._actor import KeyActor
    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources

FOR: Final = 60.0
LONGEST: Final = 3600.0
DRAIN: Final = 30.0
DRAINED_AT_ONCE: Final = 64


def register(registry: Registry, sources: Sources) -> Leases:
    """Add the commands; returns what keeps the leases of pauses."""
    control = Control(sources, registry)

    async def target(word: str, _: Sequence[str]) -> list[str]:
        return [*sources.pool.servers, *(await sources.keys_like(word) if word.startswith("k") else ())]

    async def key(word: str, _: Sequence[str]) -> list[str]:
        return await sources.keys_like(word)

    def client(_: str, __: Sequence[str]) -> list[str]:
        return list(map(str, list(sources.pool.openings.clients)))[:100]

    def call(word: str, _: Sequence[str]) -> list[str]:
        return sources.running_like(word)

    def add(usage: str, what: str, run: Any, complete: Any, *options: str) -> None:
        async def done(ask: Ask) -> dict[str, Any]:
            try:
                result: dict[str, Any] = await run(ask)
            except LookupError:
                raise CommandError(
                    "unknown-id", f"{shown(ask.words[0])} went while it was looked at; nothing was changed",
                    ["show actors", "show servers"],
                ) from None  # fmt: skip
            return result

        registry.command(
            Command(
                words=(usage.partition(" ")[0],),
                usage=usage,
                help=what,
                run=done,
                takes=(1, 2 if "[hold]" in usage else 1),
                options=options,
                complete=complete,
                level="operate",
            )
        )

    add(
        "pause KEY|SERVER [hold] [for=60s]",
        "hold admission; what runs goes on. Ends by itself, `hold`: not before `resume`",
        control.pause,
        target,
        "for",
    )
    add("resume KEY|SERVER", "admit again", control.resume, target)
    add(
        "drain KEY|SERVER [for=30s]",
        "hold admission until what runs has settled, then close the client; waits for it",
        control.drain,
        target,
        "for",
    )
    add("kill CLIENT", "close a connection at once; calls on it end with their verdict", control.kill, client)
    add("evict KEY", "close the client of a key if nobody uses it", control.evict, key)
    add("refresh KEY", "ask for a key's tools again, and try a failed opening at once", control.refresh, key)
    add(
        "invalidate KEY",
        "end every binding of a key and drop its credentials: its tools have to be listed again",
        control.invalidate,
        key,
    )
    add("cancel CALL", "withdraw a call that is under way", control.cancel, call)
    return control.leases


class Control:
    """Does it.

    Args:
        sources: Of which pool.
        registry: Runs what outlives a command.
    """

    def __init__(self, sources: Sources, registry: Registry) -> None:
        self._sources = sources
        self._registry = registry
        self.leases = Leases(sources.pool, registry)

    # ------------------------------------------------------------------ admission

    async def pause(self, ask: Ask) -> dict[str, Any]:
        """Hold admission."""
        hold = len(ask.words) == 2
        if hold and ask.words[1] != "hold":
            told = ask.line(words=(ask.words[0], "hold"))
            raise unknown("bad-option", "way to pause", ask.words[1], ["hold"], tries=told)
        if hold and "for" in ask.options:
            raise CommandError("bad-option", "a pause is held, or it is for a time; not both")
        seconds = ask.seconds("for", FOR, most=LONGEST, least=1.0)
        pool = self._sources.pool
        found = await self._sources.actor_or_server(ask)
        if not isinstance(found, str) and found.machine.removed:
            raise CommandError(
                "failed", "the key's server is not configured any more; nobody is admitted anyway"
            )
        what = (found,) if isinstance(found, str) else found.key
        before = await self._look(found, ask)
        held, lease = self.leases.held_by(what), self.leases.find(what)
        if held is None:
            if isinstance(found, str):
                pool.pause_server(found, by=ask.asker.who)
            else:
                pool.pause(found.key, by=ask.asker.who)
        elif lease is None and not hold:
            by = held.facts.get("by")
            raise CommandError(
                "failed", f"{self._name(found)} is paused already, by {by or 'the host'}, and held until "
                "it is resumed; nothing was changed", [f"resume {quoted(self._name(found))}"],
            )  # fmt: skip
        elif hold or lease is not None:
            told = "held" if hold else f"for {seconds:g} s more"
            actor, server = (None, found) if isinstance(found, str) else (found, found.server.name)
            pool.event("paused", actor, server=server, why=told, by=ask.asker.who)
        until = None
        if hold:
            self.leases.drop(what)
            ends = f"not before `resume {quoted(self._name(found))}`"
        else:
            lease = self.leases.begin(what, ask.asker, seconds)
            until = ask.unix_of(lease.until)
            ends = f"in {seconds:g} s, or {GRACE:g} s after this console has gone"
        return self._done("paused", found, before, await self._look(found, ask), until=until, ends=ends)

    async def resume(self, ask: Ask) -> dict[str, Any]:
        """Admit again."""
        pool = self._sources.pool
        found = await self._sources.actor_or_server(ask)
        what = (found,) if isinstance(found, str) else found.key
        before = await self._look(found, ask)
        self.leases.drop(what)
        if isinstance(found, str):
            pool.resume_server(found, by=ask.asker.who)
        else:
            pool.resume(found.key, by=ask.asker.who)
        note = None
        if not isinstance(found, str) and found.server.name in pool.held_servers:
            note = f"its server is paused still: `resume {quoted(found.server.name)}`"
        return self._done("resumed", found, before, await self._look(found, ask), note=note)

    async def drain(self, ask: Ask) -> dict[str, Any]:
        """Wait until what runs has settled."""
        seconds = ask.seconds("for", DRAIN, most=LONGEST)
        found = await self._sources.actor_or_server(ask)
        before = await self._look(found, ask)
        actors = await self._of(found, ask) if isinstance(found, str) else [found]
        left = len(actors)
        over = trio.Event()

        async def one(lane: list[KeyActor]) -> None:
            nonlocal left
            # A drain goes on when its asker does not wait: it is the console's task, and not the command's.
            while lane:
                actor = lane.pop()
                with contextlib.suppress(AfpoolError, LookupError):  # it is gone, and so is what ran
                    await self._sources.pool.drain(actor.key, by=ask.asker.who)
                left -= 1
            if not left:
                over.set()

        lane = actors[::-1]
        if not lane:
            over.set()
        for _ in range(min(len(actors), DRAINED_AT_ONCE)):
            self._registry.spawn(one, lane)
        with trio.move_on_after(seconds):
            await over.wait()
        what = "drained" if over.is_set() else "draining"
        note = None if over.is_set() else f"{left} of {len(actors)} keys have not settled; it goes on"
        return self._done(what, found, before, await self._look(found, ask), note=note)

    async def _of(self, name: str, ask: Ask) -> list[KeyActor]:
        """The keys of a server that hold anything."""
        return [
            actor
            async for actor in ask.slices.each(self._sources.pool.actors())
            if actor.server.name == name
            and not (
                actor.machine.client is None and not actor.machine.in_flight and not actor.machine.waiting
            )
        ]

    # ------------------------------------------------------------------ clients

    async def kill(self, ask: Ask) -> dict[str, Any]:
        """Close a connection at once."""
        client = self._sources.client(ask)
        running = [call for call in list(self._sources.pool.running.values()) if call.client is client]
        sent = sum(1 for call in running if call.begun)
        before = {"state": "closing" if client.retired else "open", "in_flight": len(running), "sent": sent}
        await trio.lowlevel.checkpoint()
        if not self._sources.pool.kill(client.id, by=ask.asker.who):
            raise CommandError(
                "failed", f"client {client.id} has gone by itself meanwhile; nothing was changed"
            )
        note = f"{sent} calls whose request had left are in doubt" if sent else None
        return self._done("killed", f"client {client.id}", before, {"state": "gone"}, note=note)

    async def evict(self, ask: Ask) -> dict[str, Any]:
        """Close an idle client."""
        actor = await self._sources.actor(ask)
        before = await self._look(actor, ask)
        if actor.machine.client is None:
            raise CommandError("failed", "the key has no client; nothing was changed")
        if not self._sources.pool.evict(actor.key, by=ask.asker.who):
            raise CommandError(
                "failed", "its client is used, by a call, a list or a subscription; nothing was changed",
                [f"drain {actor.shown}", f"kill {actor.machine.client.id}"],
            )  # fmt: skip
        return self._done("evicted", actor, before, await self._look(actor, ask))

    # ------------------------------------------------------------------ lists, bindings, calls

    async def refresh(self, ask: Ask) -> dict[str, Any]:
        """Ask for a list again."""
        pool = self._sources.pool
        actor = await self._sources.actor(ask)
        before = self._list(actor, ask)
        pool.event("refreshed", actor, by=ask.asker.who)
        try:
            await pool.refresh(actor.projection, actor.server.name)
        except AfpoolError as error:
            raise CommandError(
                "failed", f"the list could not be had ({error.code}); what was known stays",
                [f"show actor {actor.shown}", "show events kind=open-failed"],
            ) from None  # fmt: skip
        return self._done("refreshed", actor, before, self._list(actor, ask))

    async def invalidate(self, ask: Ask) -> dict[str, Any]:
        """End the bindings of a key."""
        actor = await self._sources.actor(ask)
        before = {**await self._look(actor, ask), "epoch": actor.machine.epoch}
        self._sources.pool.invalidate(key=actor.key, reason="by an operator", by=ask.asker.who)
        after = {**await self._look(actor, ask), "epoch": actor.machine.epoch}
        return self._done("invalidated", actor, before, after)

    async def cancel(self, ask: Ask) -> dict[str, Any]:
        """Withdraw a call."""
        use = (await self._sources.uses(ask))[0]
        if use.ended_at is not None:
            raise CommandError(
                "failed",
                f"the call has ended ({use.outcome}); nothing was changed",
                [f"why {quoted(use.call_id)}"],
            )
        before = {"state": "under way", "waits_for": use.waits_for}
        if not self._sources.pool.cancel(use.call_id, "withdrawn by an operator", by=ask.asker.who):
            raise CommandError(
                "failed",
                "the call is not at a server (yet), or of a tool of the host's own: it cannot be withdrawn "
                "from here",
            )
        return self._done("cancelled", f"call {use.call_id}", before, {"state": "withdrawn"})

    # ------------------------------------------------------------------ how it is

    @staticmethod
    def _name(found: KeyActor | str) -> str:
        return found if isinstance(found, str) else found.shown

    async def _look(self, found: KeyActor | str, ask: Ask) -> dict[str, Any]:
        if isinstance(found, str):
            found_of = await by_server(self._sources, self._sources.pool.seams.now(), ask.slices)
            of = found_of.get(found, OfServer())  # it may have been removed meanwhile
            return {
                "state": server_state(self._sources, found, of), "in_flight": of.in_flight,
                "waiting": of.waiting, "clients": of.clients,
            }  # fmt: skip
        machine = found.machine
        return {
            "state": state_of(found, self._sources.backoffs()),
            "in_flight": machine.in_flight,
            "waiting": len(machine.waiting or ()),
            "client": None if machine.client is None else machine.client.id,
        }

    def _list(self, actor: KeyActor, ask: Ask) -> dict[str, Any]:
        client = actor.machine.client
        state = None if client is None else client.list
        if client is not None and client.handle.entry is not None:
            state = client.handle.entry.list
        if state is None:
            return {"state": "no client"}
        tools = None if state.catalog is None else len(state.catalog)
        return {"state": list_word(state, ask.now), "generation": state.generation, "tools": tools}

    def _done(
        self,
        what: str,
        found: KeyActor | str,
        before: dict[str, Any],
        after: dict[str, Any],
        *,
        until: float | None = None,
        ends: str | None = None,
        note: str | None = None,
    ) -> dict[str, Any]:
        done = {
            "kind": "done", "what": f"{what} {self._name(found)}", "before": before, "after": after,
            "until": until,
        }  # fmt: skip
        if ends is not None:
            done["ends"] = ends
        if note is not None:
            done["note"] = note
        return done
