"""How one asking of a list ends for whoever waits for it: what it says, and what it is blamed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import OpenFailed
from afpool._base.errors import ClientClosed, ServerRefused
from afpool.pool import _flights
from afpool.pool._flights import Flight
from afpool.pool._lists import ListState
from tests.pool.kit import ALICE, world

if TYPE_CHECKING:
    from afpool import AfpoolError, Pool


async def flown(pool: Pool, state: ListState, *, aged: bool = True) -> Flight:
    """The end of a flight; its client has aged meanwhile, if it has."""
    actor = pool._existing(pool.key_of(ALICE, "files"))
    client: Any = actor.machine.client.handle  # type: ignore[union-attr]
    client.ended = pool.event("aged", actor, client=client.id) if aged else None
    state.flight = flight = Flight(actor, client)
    with trio.fail_after(5):
        await _flights._fly(actor, client, state, None, None, flight)
    assert state.flight is None
    assert flight.landed.is_set()
    return flight


def asking(monkeypatch: pytest.MonkeyPatch, error: AfpoolError | None) -> None:
    async def ask(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        if error is not None:
            raise error

    monkeypatch.setattr(_flights, "_ask", ask)


async def test_only_a_client_that_went_is_blamed_and_the_first_cause_stays(monkeypatch: pytest.MonkeyPatch):
    async with world() as w:
        await w.tool()
        first = w.pool.event("killed", None)
        refusal = ServerRefused("no list for you", delivery="refused")
        gone = ClientClosed("it went", delivery="not-sent")
        known = ClientClosed("it was killed", delivery="not-sent").because(first)
        for error, blamed in ((refusal, None), (gone, "aged"), (known, "killed")):
            asking(monkeypatch, error)
            flight = await flown(w.pool, ListState(1))
            assert flight.error is error
            assert (error.happened and error.happened.kind) == blamed
        actor = w.pool._existing(w.pool.key_of(ALICE, "files"))
        actor.machine.client.handle.ended = None  # type: ignore[union-attr]


@pytest.mark.parametrize("alive", [True, False])
async def test_a_flight_that_brought_nothing_is_a_failure_unless_its_list_is_over(
    alive: bool, monkeypatch: pytest.MonkeyPatch
):
    """Whoever waits for a list that is over is refused for what ended it, which he knows by himself."""
    async with world() as w:
        await w.tool()
        asking(monkeypatch, None)
        state = ListState(1)
        state.alive = alive
        flight = await flown(w.pool, state, aged=False)
        assert type(flight.error) is (OpenFailed if alive else type(None))
