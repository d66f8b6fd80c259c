"""Openings, closings and pings: what happens to clients outside the turns of their keys.

Everything here runs in the runtime's nursery and in the context that the pool was opened in, whoever asked
for it. Per endpoint at most `max_connecting` openings run; over all keys at most `max_clients` clients
exist, and an opening that finds no room has an idle one evicted or waits, holding no place meanwhile. Both
are shared fairly between tenants: one that is to have no more makes room itself, and of the others the one
that has most goes first. A call made from inside another one never waits for room that comes free only after
it (`_circles`).
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio

from .._base.errors import (
    NOT_SENT,
    ActorCrashed,
    AfpoolError,
    AuthorizationRequired,
    DeadlineExceeded,
    OpenFailed,
)
from .._base.fair import FairPlaces
from .._base.identity import Identity, encode_key
from ..client import Client, Endpoint, Plan, Stages, open_client
from . import _messages as m
from ._admission import share_of
from ._asking import Resolved, ask_plan
from ._circles import refuse_without_room
from ._herald import restore_level
from ._hooks import GONE, ActorHooks
from ._posting import post, taken
from ._subscriptions import client_gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .._base.fair import Seat
    from .._base.identity import PoolKey
    from ._actor import KeyActor
    from ._events import Event
    from ._pool import Pool

BACKOFFS_KEPT: Final = 10_000
ENDPOINTS_KEPT: Final = 4_096
PINGS: Final = 3
"""How often a suspect is asked for a sign of life where the loop was held meanwhile."""
DEAF: Final = 0.1
"""Seconds after a ping's end by which the loop must have come back to it, for its silence to count."""


@attrs.define
class Backoff:
    """A failed opening of one key under one context."""

    failures: int
    until: float
    event: Event


@attrs.define
class CloseCounts:
    """How clients ended: closed in order, killed, or given up on."""

    closed: int = 0
    killed: int = 0
    abandoned: int = 0


@attrs.frozen(eq=False)
class UnderWay:
    """An opening that has not ended.

    Attributes:
        actor: The key's.
        call_id: Of the call that it was begun for; `None` where a list or the host asked.
        stages: Which stage it is in since when: `plan`, `room`, `connect`, `credential` or `initialize`.
    """

    actor: KeyActor
    call_id: str | None
    stages: Stages

    @property
    def facts(self) -> dict[str, Any]:
        """What the event of its end says: for whom it was begun, after what, how long each stage took."""
        return {"call": self.call_id, "after": self.actor.ended, **self.stages.so_far()}


@final
class Openings:
    """The clients of a pool, from plan to close."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._scopes: dict[int, trio.CancelScope] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._backoffs: dict[tuple[PoolKey, str], Backoff] = {}
        self._closing: set[int] = set()
        self._using: Counter[PoolKey] = Counter()  # lists on their way
        # Whose openings wait for room. By seat: one that was cancelled may not have ended when its key's next
        # one waits here.
        self._roomless: dict[Seat, KeyActor] = {}
        self.under_way: dict[int, UnderWay] = {}  # by token
        self.clients: dict[int, Client] = {}
        limits = pool.limits
        self.rooms = FairPlaces(  # of clients that exist or are about to
            limits.max_clients, per_tenant=share_of(limits.max_clients, limits.max_share)
        )
        self.opened = 0
        self.evicted = 0
        self.counts = CloseCounts()

    def endpoint(self, plan: Plan, server: str) -> Endpoint:
        """What all keys of one endpoint share; `server` is who asks."""
        name = plan.endpoint
        endpoint = self._endpoints.pop(name, None)
        if endpoint is None:
            limits = self._pool.limits
            share = share_of(limits.max_connecting, limits.max_share)
            lane = FairPlaces(limits.max_connecting, per_tenant=share)
            endpoint = Endpoint(name, lane, self._pool.seams)
            if len(self._endpoints) >= ENDPOINTS_KEPT:
                # plans may name an endpoint per user: the one not used for longest is forgotten, its
                # clients keep it as long as they need it
                del self._endpoints[next(iter(self._endpoints))]
        self._endpoints[name] = endpoint
        endpoint.servers[server] = None
        return endpoint

    def forget(self, servers: Iterable[str]) -> None:
        """These servers are configured otherwise: whatever failed, or was found out, is tried anew.

        What an endpoint shares with a server that stays as it is, stays.
        """
        marks = {encode_key(server, Identity(), ()).partition("|")[0] for server in servers}
        self._backoffs = {
            pair: kept for pair, kept in self._backoffs.items() if pair[0].partition("|")[0] not in marks
        }
        for name, endpoint in list(self._endpoints.items()):
            for server in servers:
                endpoint.servers.pop(server, None)
            if not endpoint.servers:
                del self._endpoints[name]

    # ------------------------------------------------------------------ opening

    def start(self, actor: KeyActor, token: int) -> None:
        """Open a client for a key; answers with `Opened` or `OpenFailed`."""
        pool = self._pool
        if pool.closing or not pool.can_spawn:
            closing = OpenFailed("the pool is closing; nothing was sent").because(pool.closed_by)
            actor.tell(m.OpenFailed(token, closing))
            return
        scope = self._scopes[token] = trio.CancelScope()
        self.under_way[token] = UnderWay(actor, _begun_for(actor), Stages(pool.seams.now, "plan"))
        pool.spawn(self._open, actor, token, scope)

    def cancel(self, token: int) -> None:
        """Nobody waits for this opening any more."""
        scope = self._scopes.pop(token, None)
        if scope is not None:
            scope.cancel()

    def cancel_all(self, actor: KeyActor) -> None:
        """Nobody waits for any opening of this key."""
        for token, opening in list(self.under_way.items()):
            if opening.actor is actor:
                self.cancel(token)

    def opens(self, actor: KeyActor) -> bool:
        """Whether an opening of this key has not ended yet."""
        return any(opening.actor is actor for opening in self.under_way.values())

    async def _open(self, actor: KeyActor, token: int, scope: trio.CancelScope) -> None:
        pool = self._pool
        under_way = self.under_way[token]
        context = ""
        backoff: Backoff | None = None
        epoch = actor.machine.epoch
        error: AfpoolError
        scope.deadline = pool.seams.now() + pool.limits.open_timeout
        try:
            with scope:
                resolved = await ask_plan(actor)
                context = resolved.context
                actor.plan_is(context)
                backoff = self._backoffs.get((actor.key, context))
                wait = None if backoff is None else backoff.until - pool.seams.now()
                held_off = wait if wait and wait > 0 else None
                after = None if backoff is None else backoff.event
                if not taken(post(actor, m.PlanChanged(context, token, held_off, actor.replanned, after))):
                    return
                client = await self._connect(actor, resolved, under_way.stages, scope)
                self._backoffs.pop((actor.key, context), None)
                client.opening = pool.event("opened", actor, client=client.id, **under_way.facts).number
                if actor.log_level is not None:
                    restore_level(actor, client, actor.log_level)
                actor.tell(m.Opened(token, client.id, context, client))
                if self.wants_room_of(actor):
                    self.evict_for_room(actor)  # only if nobody uses it
                return
            if token not in self._scopes:
                return  # cancelled by `cancel`: nobody waits
            error = OpenFailed(
                f"the client was not open within {pool.limits.open_timeout:g} s; nothing was sent"
            )
        except AfpoolError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 -- turned into a message to the owner
            error = OpenFailed(f"opening failed ({type(failure).__name__}); nothing was sent")
            error.__cause__ = failure
        finally:
            self._scopes.pop(token, None)
            del self.under_way[token]
        error = as_open_failure(error)
        event = pool.event("open-failed", actor, why=error.code, **under_way.facts)
        # Who has to consent first is the provider's word: no server is spared by waiting, and the call after
        # the consent must not be refused.
        consent = isinstance(error, AuthorizationRequired) and error.http_status is None
        # One that ended with its epoch says nothing of what is configured now, and a crash of the key nothing
        # of the server.
        crashed = isinstance(error, ActorCrashed)
        if context and not consent and not crashed and actor.machine.epoch == epoch:
            error.retry_after = self._remember(actor.key, context, error, event)
        actor.tell(m.OpenFailed(token, error.because(event)))

    async def _connect(
        self, actor: KeyActor, resolved: Resolved, stages: Stages, scope: trio.CancelScope
    ) -> Client:
        pool = self._pool
        stages.begin("room")
        await self._make_room(actor)
        try:
            endpoint = self.endpoint(resolved.plan, actor.server.name)
            # The turn at an endpoint comes, since each opening there has an end; until then nobody has been
            # asked, and nothing has failed.
            left = scope.deadline - pool.seams.now()
            scope.deadline = math.inf
            async with endpoint.connecting.place(actor.server.name, actor.projection.tenant, actor.key):
                scope.deadline = pool.seams.now() + left
                stages.begin("connect")
                client = await open_client(
                    client_id=pool.seams.next_id(),
                    server=actor.server.name,
                    plan=resolved.plan,
                    context=resolved.context,
                    projection=actor.projection,
                    endpoint=endpoint,
                    settings=pool.client_settings,
                    hooks=ActorHooks(actor),
                    spawn=pool.spawn,
                    stages=stages,
                )
        except BaseException:
            self._room_left(actor)
            raise
        age = pool.limits.max_age
        client.ends_at = pool.seams.now() + age - pool.seams.random.random() * age / 10
        self.clients[client.id] = client
        self.opened += 1
        actor.last_used = pool.seams.now()
        pool.janitor.wake()
        return client

    def _remember(self, key: PoolKey, context: str, error: AfpoolError, event: Event) -> float:
        """Back off from this key and context: 0.5 s doubling to 30, half of it jitter."""
        pool = self._pool
        limits = pool.limits
        known = self._backoffs.get((key, context))
        failures = 1 if known is None else known.failures + 1
        ceiling = min(limits.backoff * 2 ** (failures - 1), limits.backoff_max)
        delay: float = ceiling / 2 + pool.seams.random.random() * ceiling / 2
        if error.retry_after is not None:
            delay = max(delay, min(error.retry_after, limits.backoff_max))
        now = pool.seams.now()
        if len(self._backoffs) >= BACKOFFS_KEPT:
            self._backoffs = {pair: kept for pair, kept in self._backoffs.items() if kept.until > now}
        self._backoffs[key, context] = Backoff(failures, now + delay, event)
        return delay

    # ------------------------------------------------------------------ room

    def wants_room_of(self, actor: KeyActor) -> bool:
        """Whether an opening waits that could begin if this key's client went."""
        rooms = self.rooms
        return bool(rooms.waiting) and rooms.wanted_of(actor.projection.tenant)

    async def _make_room(self, actor: KeyActor) -> None:
        rooms, tenant = self.rooms, actor.projection.tenant
        if rooms.try_enter(actor.server.name, tenant, actor.key):
            return
        seat = rooms.wait(actor.server.name, tenant, actor.key)
        self._roomless[seat] = actor
        try:
            self._evict_for(actor)
            self.refuse_circles(actor)
            await seat.reply.wait()
        except BaseException:
            rooms.give_up(seat)
            raise
        finally:
            del self._roomless[seat]

    def refuse_circles(self, actor: KeyActor) -> None:
        """Refuse calls of a key that wait for room which is free only after them; see `_circles`."""
        if actor in self._roomless.values():  # every call that waits asks this: the set is made for few
            refuse_without_room(self._pool, actor, set(self._roomless.values()))

    def _room_left(self, actor: KeyActor) -> None:
        self.rooms.leave(actor.server.name, actor.projection.tenant, actor.key)

    def _evict_for(self, asker: KeyActor) -> None:
        """Close the idle client that goes first, so that this key may have one."""
        rooms, tenant = self.rooms, asker.projection.tenant
        own = rooms.has_share(tenant)
        idle = [
            actor
            for actor in self._pool.kept
            if self.may_evict(actor)
            and not actor.machine.paused
            and (not own or actor.projection.tenant == tenant)
        ]

        def order(actor: KeyActor) -> tuple[int, bool, float]:
            # one that listens for a shared list last of all: the list would be in doubt until it is asked for
            return -rooms.held(actor.projection.tenant), _listens(actor), actor.last_used

        if idle:
            self.evict(min(idle, key=order), why="room", room_for=asker)

    def evict_for_room(self, actor: KeyActor) -> bool:
        """Close the client of a key, if nobody uses it, for one that waits for room."""
        rooms, tenant = self.rooms, actor.projection.tenant
        served = (
            waiter
            for waiter in self._roomless.values()
            if waiter.projection.tenant == tenant or not rooms.has_share(waiter.projection.tenant)
        )
        return self.evict(actor, why="room", room_for=next(served, None))

    def may_evict(self, actor: KeyActor) -> bool:
        """Whether the key has a client that nobody uses: no call, no list on its way, no subscription."""
        machine = actor.machine
        used = actor.key in self._using or actor.watchers is not None
        return machine.client is not None and machine.idle and not used

    @contextlib.contextmanager
    def using(self, actor: KeyActor) -> Iterator[None]:
        """Keep the key's client from being evicted: a list on its way takes no place, but it is a use."""
        key = actor.key
        self._using[key] += 1
        try:
            yield
        finally:
            self._using[key] -= 1
            if not self._using[key]:
                del self._using[key]
                if self.wants_room_of(actor):
                    self.evict_for_room(actor)
                elif self._pool.seams.now() >= actor.last_used + self._pool.limits.idle_timeout:
                    self._pool.janitor.wake()

    def evict(
        self, actor: KeyActor, why: str, *, room_for: KeyActor | None = None, by: str | None = None
    ) -> bool:
        """Close the client of a key if nobody uses it.

        Args:
            actor: The key's.
            why: `idle`, `room` or `asked`.
            room_for: Whose opening waits for its room.
            by: Who asked.

        Returns:
            Whether it is being closed.
        """
        client = actor.machine.client
        if client is None or not self.may_evict(actor):
            return False
        self.evicted += 1
        whom = None if room_for is None else room_for.shown
        client.handle.ended = event = self._pool.event(
            "evicted", actor, client=client.id, why=why, room_for=whom, by=by
        )
        actor.ended = event.number
        actor.tell(m.Evict())
        return True

    # ------------------------------------------------------------------ closing

    def start_closing(self, actor: KeyActor, client: Client, reason: str) -> None:
        """Close a client in the background; safe to repeat."""
        client.retire(reason)
        if client.id in self._closing:
            return
        self._closing.add(client.id)
        if self._pool.can_spawn:
            self._pool.spawn(self._close, actor, client, reason)
        else:
            client.kill()
            self._closed(actor, client, reason)

    async def _close(self, actor: KeyActor, client: Client, reason: str) -> None:
        pool = self._pool
        try:
            with trio.CancelScope(shield=True):
                how = await client.aclose(pool.seams.now() + pool.limits.close_timeout)
                if how == "killed":
                    self.counts.killed += 1
                else:
                    self.counts.closed += 1
        except Exception:  # noqa: BLE001 -- a client that cannot be closed in order is killed
            client.kill()
            self.counts.killed += 1
        finally:
            shown = client.shown
            leaving = [] if shown is None else [pool.catalogs.table.slowly(shown.catalog)]
            del shown
            self._closed(actor, client, reason)
            await pool.catalogs.let_go(leaving)  # thousands of tools in one step would hold the loop

    def _closed(self, actor: KeyActor, client: Client, reason: str) -> None:
        if client.entry is not None:
            self._pool.shares.left(client.entry, client)
            client.entry = None
        client.hooks = GONE  # nothing of the key is held by what is left of its client,
        client.shown = None  # nor the list that it received, which may be long
        self._closing.discard(client.id)
        if self.clients.pop(client.id, None) is not None:
            self._room_left(actor)
        event = self._pool.event("closed", actor, client=client.id, why=reason)
        if client.ended is None:
            client.ended = event
            actor.ended = event.number
        actor.tell(m.ClientLost(client.id, reason, closed=True))
        client_gone(actor, client)

    def start_ping(self, actor: KeyActor, client: Client) -> None:
        """Ask a suspect client for a sign of life; a silent one is replaced, its siblings left to finish."""
        if self._pool.can_spawn:
            self._pool.spawn(self._ping, actor, client)

    async def _ping(self, actor: KeyActor, client: Client) -> None:
        pool = self._pool
        pool.event("suspect", actor, client=client.id)
        for left in reversed(range(PINGS)):
            until = pool.seams.now() + pool.limits.ping_timeout
            try:
                await client.ping(until)
            except AfpoolError as error:
                if left and client.lost is None and pool.seams.now() - until > DEAF:
                    continue  # the loop was held when its time was up: nobody listened to the silence
                client.ended = event = pool.event("silent", actor, client=client.id, why=error.code)
                actor.ended = event.number
                client.retire("silent")
                actor.tell(m.ClientLost(client.id, f"silent ({error.code})"))
            return


def _begun_for(actor: KeyActor) -> str | None:
    """The id of the call that waits for the opening which begins in this step, if it is a call."""
    ticket = next(iter(actor.machine.waiting or ()), None)
    call = None if ticket is None else actor.pool.running.get(ticket)
    return None if call is None else call.use.call_id


def _listens(actor: KeyActor) -> bool:
    current = actor.machine.client
    if current is None:
        return False
    client = current.handle
    return client.entry is not None and client.entry.listener is client and client.may_hear


def as_open_failure(error: AfpoolError) -> AfpoolError:
    """Nothing of any call was sent, whatever befell the opening's own requests."""
    if error.delivery == "not-sent" and not isinstance(error, DeadlineExceeded):
        return error
    kind = (
        type(error)
        if NOT_SENT in error.deliveries and not isinstance(error, DeadlineExceeded)
        else OpenFailed
    )
    failure = kind(
        f"{error.message} (while opening; nothing of a call was sent)",
        delivery=NOT_SENT,
        retry_after=error.retry_after,
        http_status=error.http_status,
        www_authenticate=error.www_authenticate,
    )
    failure.__cause__ = error
    failure.noted = error.noted
    return failure
