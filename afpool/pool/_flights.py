"""Flights: a tool list that goes to the wire, single per list.

A flight is run by the runtime in its own context and joined by whoever needs the list. Under sharing any
member's flight serves all; its failure is the lister's own, and whoever joined it flies through its own
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import AfpoolError, OpenFailed
from . import _messages as m
from ._call import ask_share
from ._machine import copy_error

if TYPE_CHECKING:
    from .._base.definition import Catalog
    from ..client import Client
    from ._actor import KeyActor
    from ._lists import ListState
    from ._shares import Entry

FLIGHT_ROUNDS: Final = 3
THREAD_BYTES: Final = 64 * 1024


async def client_for(actor: KeyActor, *, fresh: bool = False, context: str | None = None) -> Client:
    """The key's client, opened if there is none; takes no place."""
    pool = actor.pool
    ticket = pool.seams.next_id()
    reply = pool.post(actor, m.Admit(ticket, lease=False, fresh=fresh, context=context))
    client: Client
    if reply.done:
        client = pool.taken(reply)
        return client
    try:
        client = await pool.waited(reply)
    finally:
        actor.tell(m.Settle(ticket, held=False))
    return client


async def ensure_settled(actor: KeyActor, state: ListState, context: str, authorization: str | None) -> None:
    """Ask for a list until it is settled, or was asked for as often as one flight may.

    Returns with the list possibly still unsettled (the server keeps announcing changes), or dead.
    """
    pool = actor.pool
    flown = False
    while state.alive and not state.settled(pool.seams.now()):
        flight = state.flight
        if flight is None:
            if flown:
                return
            client = await client_for(actor, context=context)
            if state.flight is not None or not state.alive:
                continue
            entry = state.entry
            flight = Flight(actor)
            state.flight = flight
            pool.spawn(_fly, actor, client, state, entry, authorization, flight)
        assert isinstance(flight, Flight)
        await flight.landed.wait()
        if flight.owner is actor:
            if flight.error is not None:
                raise copy_error(flight.error)
            flown = True


@final
class Flight:
    """One asking of one list."""

    __slots__ = ("error", "landed", "owner")

    def __init__(self, owner: KeyActor) -> None:
        self.owner = owner
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
    pool = actor.pool
    limits = pool.limits
    try:
        if entry is None or entry.listener is None:
            if entry is not None:
                entry.listener = client
                client.entry = entry
            await client.listen()
        for _ in range(FLIGHT_ROUNDS):
            await trio.sleep_until(state.next_at)
            notices = state.notices
            first = state.catalog is None
            answer = await client.list_tools(pool.seams.now() + limits.open_timeout)
            catalog = await _catalog(actor, answer.tools)
            now = pool.seams.now()
            if not first:
                state.asked_again(now)
            ttl = limits.list_ttl if answer.ttl is None else max(answer.ttl, limits.min_list_ttl)
            _file(actor, client, state, entry, authorization, catalog, notices, now + ttl)
            if not state.alive or not state.noticed:
                break
    except AfpoolError as error:
        flight.error = error
    except Exception as error:  # noqa: BLE001 -- a fault here is the lister's, never the runtime's
        flight.error = OpenFailed(f"the tool list could not be read ({type(error).__name__})")
        flight.error.__cause__ = error
    finally:
        state.flight = None
        if flight.error is None and state.catalog is None and state.alive:
            flight.error = OpenFailed("the listing was stopped before it was done")
        flight.landed.set()


def _file(
    actor: KeyActor,
    client: Client,
    state: ListState,
    entry: Entry | None,
    authorization: str | None,
    catalog: Catalog,
    notices: int,
    expires_at: float,
) -> None:
    pool = actor.pool
    generation = state.generation
    if entry is None:
        actor.tell(m.Listed(client.id, catalog, notices, expires_at))
    elif (
        # compare and set: name, context and entry are still those it was asked for under
        client.context == entry.context and pool.shares.current(entry) and _same_name(actor, authorization)
    ):
        client.entry = entry
        if pool.shares.file(entry, actor, client, catalog, notices, expires_at):
            pool.list_moved(state)
    else:
        # the asker's alone
        own = actor.machine.client
        if own is not None and own.handle is client and own.list is not None:
            actor.tell(m.Listed(client.id, catalog, own.list.notices, expires_at))
    if state.generation != generation:
        state.event = pool.event("list", actor, list=state.id, generation=state.generation)


def _same_name(actor: KeyActor, authorization: str | None) -> bool:
    try:
        return ask_share(actor) == authorization
    except AfpoolError:
        return False


async def _catalog(actor: KeyActor, tools: list[bytes]) -> Catalog:
    """Intern the listed tools; large ones are canonicalised in a thread so that the loop is not held."""
    pool = actor.pool
    without = actor.server.compare_without
    heavy = [raw for raw in tools if len(raw) > THREAD_BYTES and pool.definitions.find(raw, without) is None]
    built = {}
    for raw in heavy:
        built[raw] = await pool.build_definition(raw, without)
    return pool.catalog(actor, tools, built)
