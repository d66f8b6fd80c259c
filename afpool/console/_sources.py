"""What tables and commands read from, and how what was typed finds it.

A key is known by the digest that stands for it, a client and a call by their ids; each may be cut short as long
as it means one thing. Looking for a digest means computing many: it is done in slices, and what was computed
for a living actor is kept as long as the actor lives.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from ..record import Digests
from ._ask import CommandError, shown
from ._parse import nearest, unknown

if TYPE_CHECKING:
    from .._base.identity import Identity
    from .._base.use import Use
    from ..client import Client
    from ..pool import Pool
    from ..pool._actor import KeyActor
    from ..pool._call import Call
    from ..record import LoopLag, Numbers, Record
    from ._slices import Slices

_AMBIGUOUS: Final = 5


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
        self._shown: weakref.WeakKeyDictionary[KeyActor, str] = weakref.WeakKeyDictionary()

    # ------------------------------------------------------------------ digests

    def key_of(self, actor: KeyActor) -> str:
        """The digest that stands for an actor's key."""
        digest = self._shown.get(actor)
        if digest is None:
            digest = self._shown[actor] = actor.shown
        return digest

    def key_of_use(self, use: Use) -> str | None:
        """The digest of the key that a call was for; `None` where it had none."""
        return self.digests.show(use.key) if isinstance(use.key, str) else None

    def tenant(self, who: Identity | None) -> str | None:
        """The digest that stands for a tenant."""
        return None if who is None or who.tenant is None else self.digests.show(who.tenant, "t")

    # ------------------------------------------------------------------ what is under way

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

    # ------------------------------------------------------------------ finding

    async def actor(self, text: str, slices: Slices) -> KeyActor:
        """The actor of a digest, or of the beginning of one.

        Raises:
            CommandError: There is none, or more than one.
        """
        if not text.startswith("k:") or not text[2:]:
            raise CommandError(
                "unknown-id", f"{shown(text)} is no key; a key is shown as k: and hexadecimal digits",
                ["show actors"],
            )  # fmt: skip
        found: list[KeyActor] = []
        async for actor in slices.each(self.pool.actors()):
            if self.key_of(actor).startswith(text):
                found.append(actor)
        if not found:
            raise CommandError("unknown-id", f"there is no key {shown(text)} now", ["show actors"])
        if len(found) > 1:
            names = sorted(map(self.key_of, found))[:_AMBIGUOUS]
            raise CommandError("unknown-id", f"{len(found)} keys begin with {shown(text)}", names)
        return found[0]

    async def actor_or_server(self, text: str, slices: Slices) -> KeyActor | str:
        """A key's actor, or the name of a server.

        Raises:
            CommandError: It is neither.
        """
        if text in self.pool.servers:
            return text
        if text.startswith("k:"):
            return await self.actor(text, slices)
        close = nearest(text, self.pool.servers)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise CommandError("unknown-id", f"there is no server or key {shown(text)}{hint}", close)

    def client(self, text: str) -> Client:
        """The client of an id.

        Raises:
            CommandError: There is none.
        """
        clients = self.pool.openings.clients
        number = text.removeprefix("c-")
        if number.isascii() and number.isdigit() and len(number) < 16:
            client = clients.get(int(number))
            if client is not None:
                return client
        raise unknown("unknown-id", "client", text, map(str, clients), tries="{}")

    async def uses(self, text: str, slices: Slices) -> list[Use]:
        """Every use of a call, newest first; `text` is its id, or the beginning of it.

        Raises:
            CommandError: There is none, or more than one call.
        """
        records = self.pool.records
        found = records.find(text)
        if found:
            return found
        running = [call.use for call in list(self.pool.running.values())]
        begun: dict[str, None] = {}
        async for use in slices.each([*running, *reversed(records.uses)]):
            if text and use.call_id.startswith(text):
                begun[use.call_id] = None
        if len(begun) == 1:
            return records.find(next(iter(begun)))
        if begun:
            names = list(begun)[:_AMBIGUOUS]
            raise CommandError("unknown-id", f"{len(begun)} calls begin with {shown(text)}", names)
        left = records.forgotten
        why = f"; {left} ended calls have left the record" if left else ""
        raise CommandError(
            "unknown-id", f"there is no call {shown(text)}{why}", ["show recent", "show calls"]
        )


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
    if machine.paused:
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
    """Where a plan leads, as it may be shown: an origin or the name of a command, and nothing of a path,
    a query, arguments or headers."""
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
