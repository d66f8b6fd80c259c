"""What tables and commands read from, and how what was typed finds it.

A key is known by the digest that stands for it, a client and a call by their ids; keys and calls may be cut
short as long as they mean one thing. Looking for a digest means computing many: it is done in slices.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from ..record import Digests, event_as_json, unix_offset, use_as_json
from ._ask import CommandError, shown
from ._parse import nearest, unknown
from ._slices import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .._base.identity import Identity
    from .._base.use import Use
    from ..client import Client
    from ..pool import Pool
    from ..pool._actor import KeyActor
    from ..pool._call import Call
    from ..record import LoopLag, Numbers, Record, SinkState
    from ._ask import Ask

_AMBIGUOUS: Final = 5
COMPLETED: Final = 50
LOOKED_AT: Final = 1000


@attrs.define
class AtWork:
    """The calls of one key that are under way, by what they are at.

    Attributes:
        running: Those that hold a place.
        waiting: Those that wait for one, in the key's order.
    """

    running: list[Call] = attrs.field(factory=list)
    waiting: list[Call] = attrs.field(factory=list)


@final
class Sources:
    """One pool, and what there is beside it.

    Args:
        pool: The pool.
        record: Its record, where there is one.
        lag: How late the loop is, where that is measured.
        numbers: Counts of its calls, where they are counted.
        console: The console that asks, for what it says of itself.

    Attributes:
        more_memory: Give rows of `show memory` for what layers above hold.
        open_runs: Gives the runs that somebody holds.
        sink_states: Gives how the sinks of the record are doing.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        record: Record | None = None,
        lag: LoopLag | None = None,
        numbers: Numbers | None = None,
        console: Any = None,
    ) -> None:
        self.pool = pool
        self.record = record
        self.lag = lag
        self.numbers = numbers
        self.console = console
        self.digests = Digests(pool.digest)
        self.more_memory: list[Callable[[], Iterable[tuple[Any, ...]]]] = []
        self.open_runs: Callable[[], Iterable[Any]] = tuple
        self.sink_states: Callable[[], Iterable[SinkState]] = tuple

    def count_with(self, numbers: Numbers) -> None:
        """Take the rates and times from somebody who counts anyway, and count no more by itself."""
        before, self.numbers = self.numbers, numbers
        if before is not None and before is not numbers:
            before.close()

    # ------------------------------------------------------------------ digests

    def key_of(self, actor: KeyActor) -> str:
        """The digest that stands for an actor's key."""
        return actor.shown

    def key_of_use(self, use: Use) -> str | None:
        """The digest of the key that a call was for; `None` where it had none."""
        return self.digests.show(use.key) if isinstance(use.key, str) else None

    def who(self, who: Identity | None) -> str | None:
        """The digest that stands for whom something acts for."""
        return None if who is None else self.digests.person(who)[1]

    def unix(self) -> float:
        """Seconds to add to the pool's clock for Unix time."""
        return unix_offset(self.pool.seams)

    def use_plain(self, use: Use) -> dict[str, Any]:
        """A call's facts as plain data."""
        return use_as_json(use, digest=self.digests, unix=self.unix())

    def event_plain(self, event: Any) -> dict[str, Any]:
        """An event as plain data."""
        return event_as_json(event, unix=self.unix())

    # ------------------------------------------------------------------ what is under way

    def counted(self) -> dict[str, Any]:
        """What is counted of calls; empty where nobody counts."""
        return {} if self.numbers is None else self.numbers.overview()

    def sinks(self) -> list[dict[str, Any]]:
        """What every sink of the record has dropped, and what waits in front of it."""
        return [
            {"name": sink.name, "dropped": sink.dropped, "queued": sink.queued, "trouble": sink.trouble}
            for sink in self.sink_states()
        ]

    def under_way(self) -> list[Use]:
        """The uses of all calls under way, those at a door in front of the pool too."""
        if self.record is not None:
            return self.record.running()
        return [call.use for call in list(self.pool.running.values())]

    def at_work(self) -> dict[KeyActor, AtWork]:
        """The calls under way, by key. One look at each."""
        found: dict[KeyActor, AtWork] = {}
        for call in list(self.pool.running.values()):
            of = found.get(call.actor)
            if of is None:
                of = found[call.actor] = AtWork()
            (of.running if call.held else of.waiting).append(call)
        return found

    def oldest_waiter(self, actor: KeyActor, now: float) -> float | None:
        """How long the call waits that has waited longest for a place of the key."""
        running = self.pool.running
        for ticket in actor.machine.waiting or ():
            call = running.get(ticket)
            if call is not None:
                return max(0.0, now - waits_since(call.use))
        return None

    def backoffs(self) -> dict[str, Any]:
        """The back-offs that hold now, by key; of several contexts the longest."""
        now = self.pool.seams.now()
        found: dict[str, Any] = {}
        for (key, _), backoff in list(self.pool.openings._backoffs.items()):  # noqa: SLF001 -- read only
            if backoff.until > now and (key not in found or found[key].until < backoff.until):
                found[key] = backoff
        return found

    # ------------------------------------------------------------------ completing

    async def keys_like(self, word: str) -> list[str]:
        """Digests that begin so, a few of many."""
        found: list[str] = []
        async for actor in Slices().each(self.pool.actors()):
            key = self.key_of(actor)
            if key.startswith(word):
                found.append(key)
                if len(found) >= COMPLETED:
                    break
        return found

    def calls_like(self, word: str) -> list[str]:
        """Ids of calls that begin so: those under way, then the newest."""
        running = [call.use for call in list(self.pool.running.values())]
        ended = itertools.islice(reversed(self.pool.records.uses), LOOKED_AT)
        return _begun(word, itertools.chain(running, ended))

    def running_like(self, word: str) -> list[str]:
        """Ids of calls under way that begin so."""
        return _begun(word, self.under_way())

    # ------------------------------------------------------------------ finding

    async def actor(self, ask: Ask) -> KeyActor:
        """The actor of the digest that is the first word of what was asked, or the beginning of one.

        Raises:
            CommandError: There is none, or more than one.
        """
        text = ask.words[0]
        if not text.startswith("k:") or not text[2:]:
            raise CommandError(
                "unknown-id", f"{shown(text)} is no key; a key is shown as k: and hexadecimal digits",
                ["show actors"],
            )  # fmt: skip
        found = [
            actor
            async for actor in ask.slices.each(self.pool.actors())
            if self.key_of(actor).startswith(text)
        ]
        if not found:
            raise CommandError("unknown-id", f"there is no key {shown(text)} now", ["show actors"])
        if len(found) > 1:
            names = sorted(map(self.key_of, found))[:_AMBIGUOUS]
            raise CommandError("unknown-id", f"{len(found)} keys begin with {shown(text)}", _each(ask, names))
        return found[0]

    async def actor_or_server(self, ask: Ask) -> KeyActor | str:
        """A key's actor, or the name of a server: the first word of what was asked.

        Raises:
            CommandError: It is neither.
        """
        text = ask.words[0]
        if text in self.pool.servers:
            return text
        if text.startswith("k:"):
            return await self.actor(ask)
        close = nearest(text, self.pool.servers)
        hint = f"; did you mean {close[0]}?" if close else ""
        tries = _each(ask, close) or ["show servers"]
        raise CommandError("unknown-id", f"there is no server or key {shown(text)}{hint}", tries)

    def client(self, ask: Ask) -> Client:
        """The client of the id that is the first word of what was asked.

        Raises:
            CommandError: There is none.
        """
        text = ask.words[0]
        clients = self.pool.openings.clients
        if text.isascii() and text.isdigit() and len(text) < 16:
            client = clients.get(int(text))
            if client is not None:
                return client
        raise unknown("unknown-id", "client", text, map(str, clients), tries="show clients")

    async def uses(self, ask: Ask) -> list[Use]:
        """Every use of a call, newest first; its id, or the beginning of it, is the first word.

        Raises:
            CommandError: There is none, or more than one call.
        """
        text = ask.words[0]
        records = self.pool.records
        found = self._of_call(text)
        if found:
            return found
        begun: dict[str, None] = {}
        async for use in ask.slices.each([*self.under_way(), *reversed(records.uses)]):
            if text and use.call_id.startswith(text):
                begun[use.call_id] = None
        if len(begun) == 1:
            return self._of_call(next(iter(begun)))
        if begun:
            names = list(begun)[:_AMBIGUOUS]
            raise CommandError(
                "unknown-id", f"{len(begun)} calls begin with {shown(text)}", _each(ask, names)
            )
        left = records.forgotten
        why = f"; {left} ended calls have left the record" if left else ""
        raise CommandError(
            "unknown-id", f"there is no call {shown(text)}{why}", ["show recent", "show calls"]
        )

    def _of_call(self, call_id: str) -> list[Use]:
        if self.record is not None:
            return self.record.call(call_id)
        return self.pool.records.find(call_id)


def _begun(word: str, uses: Iterable[Use]) -> list[str]:
    """The first ids among uses that begin so."""
    found: dict[str, None] = {}
    for use in uses:
        if use.call_id.startswith(word):
            found[use.call_id] = None
            if len(found) >= COMPLETED:
                break
    return list(found)


def _each(ask: Ask, names: Iterable[str]) -> list[str]:
    """The same command for each of the names that may have been meant."""
    return [ask.line(words=(name, *ask.words[1:])) for name in names]


def waits_since(use: Use) -> float:
    """When a call's last stage ended, and with it what it waits for now began; on the pool's clock."""
    return float(use.marks[-1]) if use.marks else use.began_at


def mark_of(use: Use, stage: str) -> float | None:
    """When a call passed a stage for the last time."""
    marks = use.marks
    for at in range(len(marks) - 2, -1, -2):
        if marks[at] == stage:
            return float(marks[at + 1])
    return None


def state_of(actor: KeyActor, backoffs: dict[str, Any]) -> str:
    """One word for what a key's actor does."""
    machine = actor.machine
    if actor.phase in ("crashed", "stopped"):
        return "crashed"
    if machine.closed:
        return "closed"
    if machine.removed:
        return "removed"
    if machine.draining is not None:
        return "draining"
    if machine.paused or machine.limits.halted:
        return "paused"
    if machine.ghosts is not None:
        return "recovering"
    if machine.opening is not None:
        return "opening"
    busy = machine.in_flight
    if busy:
        return "full" if len(machine.leases or ()) >= machine.limits.max_operations else "busy"
    if machine.client is not None:
        return "open"
    return "backoff" if actor.key in backoffs else "idle"


def list_state_of(actor: KeyActor) -> Any:
    """The list that a key's tools come from now, its own or a shared one; `None` without a client."""
    client = actor.machine.client
    if client is None:
        return None
    entry = client.handle.entry
    return client.list if entry is None else entry.list


def place_shown(transport: Any) -> str:
    """Where a plan leads, as it may be shown: an origin or the name of a command.

    Nothing of a path, a query, arguments, headers or a proxy.
    """
    origin = getattr(transport, "origin", None)
    if origin is None and hasattr(transport, "url"):
        from ..transports import origin_of

        origin = origin_of(transport.url, schemes=("ws", "wss"))[0]
    if origin is not None:
        where = f"{origin.scheme}://{origin.authority.decode()}"
        return f"{where} (unix socket)" if getattr(transport, "uds", None) else where
    config = getattr(transport, "config", None)
    if config is not None:
        command = config.command[0] if config.command else ""
        return f"stdio {command.rpartition('/')[2]}"[:80]
    return f"memory {transport.name}"[:80]
