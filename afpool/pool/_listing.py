"""Listing: on behalf of one identity, through that identity's own client, from memory where it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

import trio

from .._base.errors import (
    NOT_SENT,
    AfpoolError,
    BindingChanged,
    ClientClosed,
    DeadlineExceeded,
    LocalSessionHandleLostError,
    OpenFailed,
    PoolClosed,
    SessionExpiredError,
)
from . import _messages as m
from ._asking import ask_share, check_identity, resolve_plan
from ._bound import Listing, Toolset
from ._flights import client_for, ensure_settled
from ._posting import post
from ._refusals import epoch_over, reconfigured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from .._base.identity import CallerIdentity
    from ._actor import KeyActor
    from ._lists import ListState
    from ._pool import Pool

T = TypeVar("T")


@final
class Asker:
    """Somebody who lists for one identity; every wait comes back through `check`."""

    __slots__ = ("actor", "authorization", "deadline", "epoch", "identity", "keyed_on")

    def __init__(self, actor: KeyActor, identity: CallerIdentity, deadline: float) -> None:
        self.actor = actor
        self.identity = identity
        self.deadline = deadline
        self.epoch = actor.machine.epoch
        self.keyed_on = actor.server.keyed_on
        if actor.machine.removed:
            raise reconfigured()
        check_identity(actor, identity, self.keyed_on)
        self.authorization = ask_share(actor)

    def check(self) -> None:
        """Raise if what the list is asked under has changed since."""
        actor = self.actor
        if actor.pool.closing or actor.machine.closed:
            raise PoolClosed("the pool is closing; the list is not given out", delivery=NOT_SENT)
        if actor.machine.epoch != self.epoch:
            raise epoch_over(actor.machine, self.epoch)
        if callable(self.identity):
            check_identity(actor, self.identity, self.keyed_on)
        if ask_share(actor) != self.authorization:
            raise BindingChanged(
                "the authorization name of this identity changed while its tools were listed"
            )

    async def through(self, waiting: Awaitable[T]) -> T:
        """Wait, bounded by the deadline, and come back through `check`."""
        try:
            with trio.CancelScope(deadline=self.deadline):
                value = await waiting
                self.check()
                return value
        except AfpoolError:
            self.check()  # the refusal is the outcome where the ground is gone as well
            raise
        raise DeadlineExceeded("the deadline passed while the tools were listed", delivery=NOT_SENT)


async def list_servers(
    pool: Pool, names: Sequence[str], identity: CallerIdentity, deadline: float, *, refresh: bool
) -> Toolset:
    """List servers, all at once. Of several, one that fails costs its own tools only; see `Pool.tools`."""
    if len(names) == 1:
        actor = pool.actor_for(names[0], identity)
        return Toolset([await list_tools(actor, identity, deadline, refresh=refresh)], {})
    listings: dict[str, Listing] = {}
    actors, problems = _actors(pool, names, identity)

    async def one(name: str, actor: KeyActor) -> None:
        try:
            listings[name] = await list_tools(actor, identity, deadline, refresh=refresh)
        except AfpoolError as error:
            problems[name] = error

    async with trio.open_nursery() as nursery:
        for name, actor in actors.items():
            nursery.start_soon(one, name, actor)
    if not listings and names:
        raise next(problems[name] for name in names)
    return Toolset([listings[name] for name in names if name in listings], problems)


async def warm_up(pool: Pool, names: Sequence[str], identity: CallerIdentity) -> None:
    """Open the clients of an identity, all at once; see `Pool.warm`."""
    actors, failures = _actors(pool, names, identity)

    async def one(name: str, actor: KeyActor) -> None:
        try:
            await client_for(actor, fresh=True)
        except AfpoolError as error:
            failures[name] = error

    async with trio.open_nursery() as nursery:
        for name, actor in actors.items():
            nursery.start_soon(one, name, actor)
    for error in failures.values():
        raise error


def _actors(
    pool: Pool, names: Sequence[str], identity: CallerIdentity
) -> tuple[dict[str, KeyActor], dict[str, AfpoolError]]:
    """The actors of an identity at these servers, in one step: later there may be another configuration.

    Returns:
        Them, and why others are missing.
    """
    actors: dict[str, KeyActor] = {}
    problems: dict[str, AfpoolError] = {}
    for name in names:
        try:
            actors[name] = pool.actor_for(name, identity)
        except AfpoolError as error:
            problems[name] = error
    return actors, problems


async def list_tools(actor: KeyActor, identity: CallerIdentity, deadline: float, *, refresh: bool) -> Listing:
    """List one server for one identity; from memory where the list in hand is settled."""
    with actor.pool.openings.using(actor):
        return await _list(actor, identity, deadline, refresh=refresh)


async def _list(actor: KeyActor, identity: CallerIdentity, deadline: float, *, refresh: bool) -> Listing:
    pool = actor.pool
    asker = Asker(actor, identity, deadline)
    authorization = asker.authorization
    current = actor.machine.client
    context = None if current is None else current.context
    told = None  # what the app said of the plan when it was asked for this list
    if context is None and authorization is not None:
        context = told = (await asker.through(resolve_plan(actor))).context
        actor.plan_is(told)
    state = _in_hand(actor, authorization, context)
    if state is not None and current is not None:
        state.look_at(current.handle.shown)
    if state is not None and not refresh and state.settled(pool.seams.now()):
        assert context is not None
        return _listing(actor, context, authorization, state)
    if refresh and state is not None:
        state.unsettle("refresh")
    if current is not None:
        # a list that goes to the wire asks for the plan; another context retires the client
        told = (await asker.through(resolve_plan(actor))).context
        actor.plan_is(told)
        post(actor, m.PlanChanged(told))
    for again in (True, True, False):
        client = await asker.through(client_for(actor, fresh=refresh))
        if told is not None and client.context != told:
            # It was being opened while the app was asked: nobody knows which of the answers is the later one.
            told = (await asker.through(resolve_plan(actor))).context
            actor.plan_is(told)
            post(actor, m.PlanChanged(told))
            if client.context != told:
                continue
        state = _in_hand(actor, authorization, client.context, make=True)
        if state is not None:
            try:
                await asker.through(ensure_settled(actor, state, client.context, authorization))
            except (SessionExpiredError, LocalSessionHandleLostError, ClientClosed):
                if not again:
                    raise
                continue
            # the client may have been replaced, the entry dissolved meanwhile
            if state.catalog is not None and state is _in_hand(actor, authorization, client.context):
                return _listing(actor, client.context, authorization, state)
    raise OpenFailed("the client was replaced again and again while its tools were listed; list again")


def _in_hand(
    actor: KeyActor, authorization: str | None, context: str | None, *, make: bool = False
) -> ListState | None:
    """The list that decides for this identity: its entry's under sharing, else its client's own."""
    shares = actor.pool.shares
    name = actor.server.name
    if authorization is not None and context is not None and shares.may_share(name, authorization, context):
        entry = (
            shares.get(name, authorization, context) if make else shares.find(name, authorization, context)
        )
        if entry is not None:
            return entry.list
        return None
    client = actor.machine.client
    if client is None or (context is not None and client.context != context):
        return None
    return client.list


def _listing(actor: KeyActor, context: str, authorization: str | None, state: ListState) -> Listing:
    client = actor.machine.client
    client_id = None if state.shared or client is None else client.id
    return Listing(actor, context, authorization, state, client_id)
