"""Flights: a tool list that goes to the wire, single per list.

A flight is run by the runtime in its own context and joined by whoever needs the list. Under sharing any
member's flight serves all; its failure is the lister's own, and whoever joined it flies through its own
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import IN_DOUBT, AfpoolError, ConnectionLost, DeadlineExceeded, OpenFailed
from . import _messages as m
from ._asking import ask_share
from ._causes import GONE, tell_curious
from ._lists import Shown
from ._posting import post, taken, waited
from ._refusals import copy_error

if TYPE_CHECKING:
    from .._base.definition import Catalog
    from .._base.definition_table import Watched
    from ..client import Client
    from ..client._settings import ListAnswer
    from ._actor import KeyActor
    from ._lists import ListState
    from ._shares import Entry

FLIGHT_ROUNDS: Final = 3
TTL_MAX: Final = 86_400.0  # whatever a server says, its list is asked for again after a day


async def client_for(actor: KeyActor, *, fresh: bool = False, context: str | None = None) -> Client:
    """The key's client, opened if there is none; takes no place."""
    pool = actor.pool
    ticket = pool.seams.next_id()
    reply = post(actor, m.Admit(ticket, lease=False, fresh=fresh, context=context))
    client: Client
    if reply.done:
        client = taken(reply)
        return client
    try:
        client = await waited(reply)
    finally:
        actor.tell(m.Settle(ticket, held=False))
    return client


async def ensure_settled(
    actor: KeyActor, state: ListState, context: str, authorization: str | None, client: Client | None = None
) -> None:
    """Ask for a list until it is settled, or was asked for as often as one flight may.

    Args:
        actor: On whose behalf.
        state: The list.
        context: The plan context that a client is opened under, if there is none.
        authorization: The name that the list is asked for under.
        client: The client to ask through. Who holds a place must name its client: it must not wait for
            another one, which may only be opened when that place was given back.

    Returns with the list possibly still unsettled (the server keeps announcing changes), or dead, or when
    the named client is not the key's any more.
    """
    pool = actor.pool
    flown = moved = False
    with pool.openings.using(actor):
        while state.alive and not state.settled(pool.seams.now()):
            flight = state.flight
            if flight is None:
                if flown:
                    return
                through = await client_for(actor, context=context) if client is None else client
                if state.flight is not None or not state.alive:
                    continue
                if client is not None and _own_list(actor, client) is None:
                    return
                flight = state.flight = Flight(actor, through)
                pool.spawn(_fly, actor, through, state, state.entry, authorization, flight)
            assert isinstance(flight, Flight)
            await flight.landed.wait()
            if flight.error is None:
                flown = True
            elif flight.owner is actor:
                if client is None and flight.client.outdated and not moved:
                    moved = True  # a list may be asked for in the server's present version
                    continue
                raise copy_error(flight.error)


@final
class Flight:
    """One asking of one list."""

    __slots__ = ("client", "error", "landed", "owner")

    def __init__(self, owner: KeyActor, client: Client) -> None:
        self.owner = owner
        self.client = client
        self.landed = trio.Event()
        self.error: AfpoolError | None = None


async def _fly(
    actor: KeyActor,
    client: Client,
    state: ListState,
    entry: Entry | None,
    authorization: str | None,
    flight: Flight,
) -> None:
    outgrown: list[Watched] = []
    try:
        with actor.pool.openings.using(actor):
            await _ask(actor, client, state, entry, authorization, outgrown)
    except DeadlineExceeded as error:
        # the list's own time is up, and not that of whoever waits for it
        flight.error = OpenFailed("the tool list was not received in time; nothing of a call was sent")
        flight.error.__cause__ = error
    except AfpoolError as error:
        if error.happened is None and isinstance(error, GONE):
            error.because(client.ended)  # whoever waits for the list has another client, or none
        if isinstance(error, (ConnectionLost, *GONE)):
            state.unanswered()  # others that share it ask through clients that are well
        flight.error = error
    except Exception as error:  # noqa: BLE001 -- a fault here is the lister's, never the runtime's
        flight.error = OpenFailed(f"the tool list could not be read ({type(error).__name__})")
        flight.error.__cause__ = error
    finally:
        state.flight = None
        if flight.error is None and state.catalog is None and state.alive:
            flight.error = OpenFailed("the listing was stopped before it was done")
        flight.landed.set()
        await actor.pool.catalogs.let_go(outgrown)


async def _ask(
    actor: KeyActor,
    client: Client,
    state: ListState,
    entry: Entry | None,
    authorization: str | None,
    outgrown: list[Watched],
) -> None:
    """Ask until the list is true; what was held before goes into `outgrown`, to be let go of in steps."""
    pool = actor.pool
    limits = pool.limits
    if entry is None or entry.listener is None:
        if entry is not None:
            entry.listener = client
            client.entry = entry
        await client.listen()
    for _ in range(FLIGHT_ROUNDS):
        await trio.sleep_until(state.next_at)
        state.asked(pool.seams.now())
        notices = state.notices
        own = _own_list(actor, client)
        own_notices = 0 if own is None else own.notices
        began = pool.seams.now()
        answer = await _fetched(client, pool.seams.now() + limits.open_timeout)
        catalog = await pool.catalogs.catalog(
            answer, actor.server.compare_without, actor.projection.tenant, actor.key
        )
        ttl = limits.list_ttl if answer.ttl is None else max(min(answer.ttl, TTL_MAX), limits.min_list_ttl)
        expires_at = pool.seams.now() + ttl
        outgrown += [
            pool.catalogs.table.slowly(held.catalog)
            for held in (state, own)
            if held is not None and held.catalog is not None
        ]
        client.shown = Shown(catalog, state)
        if entry is None:
            _file_own(actor, client, state, catalog, notices, expires_at, began)
        elif (
            not _file_shared(actor, client, entry, authorization, catalog, notices, expires_at, began)
            and own is not None
        ):
            _file_own(actor, client, own, catalog, own_notices, expires_at, began)
        tell_curious(state, pool.records, pool.seams.now())
        if not state.alive or not state.noticed:
            break


async def _fetched(client: Client, deadline: float) -> ListAnswer:
    """Fetch a list, once more where the connection broke under it: a list runs nothing at the server."""
    try:
        return await client.list_tools(deadline)
    except ConnectionLost as error:
        if error.delivery != IN_DOUBT or client.lost is not None:
            raise
    return await client.list_tools(deadline)


def _own_list(actor: KeyActor, client: Client) -> ListState | None:
    current = actor.machine.client
    return current.list if current is not None and current.handle is client else None


def _file_own(
    actor: KeyActor,
    client: Client,
    state: ListState,
    catalog: Catalog,
    notices: int,
    expires_at: float,
    began: float,
) -> None:
    generation = state.generation
    actor.tell(m.Listed(client.id, catalog, notices, expires_at))
    if state.generation != generation:
        _moved(actor, client, state, began)


def _file_shared(
    actor: KeyActor,
    client: Client,
    entry: Entry,
    authorization: str | None,
    catalog: Catalog,
    notices: int,
    expires_at: float,
    began: float,
) -> bool:
    """File a list in its entry; return whether it is the entry's now, and not the asker's alone."""
    pool = actor.pool
    # compare and set: name, context and entry are still those it was asked for under
    if (
        client.context != entry.context
        or not pool.shares.current(entry)
        or not _same_name(actor, authorization)
    ):
        return False
    client.entry = entry
    if pool.shares.file(entry, actor, client, catalog, notices, expires_at):
        _moved(actor, client, entry.list, began)
        # who waits for a place under the old list, at any key, is refused now
        waiting = {call.actor for call in pool.running.values() if call.list is entry.list and not call.held}
        for member in waiting:
            member.tell(m.ListChanged(list=entry.list))
    return entry.list.alive


def _moved(actor: KeyActor, client: Client, state: ListState, began: float) -> None:
    """File the event, and refuse who waits in the runtime's queue under the old list, now.

    Those who wait for a place of their key are refused by the turn of their actor.
    """
    pool = actor.pool
    state.event = pool.event(
        "list",
        actor,
        client=client.id,
        list=state.id,
        generation=state.generation,
        took=pool.seams.now() - began,
    )
    for call in list(pool.running.values()):
        if call.list is state and call.held and call.reply is not None:
            try:
                call.check_list(state, gate=False)
            except AfpoolError as refusal:
                call.interrupt(refusal)


def _same_name(actor: KeyActor, authorization: str | None) -> bool:
    try:
        return ask_share(actor) == authorization
    except AfpoolError:
        return False
