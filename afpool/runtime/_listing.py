"""Listing several servers for one identity: all at once, and nobody waits long for one that does not answer.

Rules:

* A listing of one server for one identity is a *flight*: at most one of its kind at a time, in the pool's
  background, joined by whoever asks meanwhile. It goes on when those who asked have stopped waiting, so that
  a server that takes long to start is there for the next who asks.
* Whoever asks waits until all have answered. Once one has, the silent ones are waited for only as long as
  there is patience: then each costs its own tools, and says so. A flight that has outlasted somebody's
  patience already is not waited for again.
* A server that cannot be listed costs its own tools only.
* Who the caller is, is asked again after the wait.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import NOT_SENT, AfpoolError, DeadlineExceeded, IdentityMismatch, PlanFailed
from ..pool._asking import ask_identity, in_this_context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._base.identity import CallerIdentity, Identity
    from ..pool import Pool, Toolset

logger = logging.getLogger("afpool")

_LONGEST: Final = 60.0


@final
class _Flight:
    """One server being listed for one identity."""

    __slots__ = ("began", "done", "failure", "landed")

    def __init__(self, now: float) -> None:
        self.began = now
        self.done = trio.Event()
        self.landed: Toolset | None = None
        self.failure: AfpoolError | None = None


@final
class Lister:
    """The flights of one runtime.

    Args:
        pool: Whose servers are listed.
        patience: Seconds that one silent server is waited for.
    """

    __slots__ = ("_flights", "_patience", "_pool")

    def __init__(self, pool: Pool, patience: float) -> None:
        self._pool = pool
        self._patience = patience
        self._flights: dict[tuple[str, Identity, bool], _Flight] = {}

    async def ask(
        self,
        servers: Iterable[str],
        caller: CallerIdentity,
        identity: Identity,
        deadline: float,
        *,
        refresh: bool,
    ) -> tuple[dict[str, Toolset], dict[str, AfpoolError]]:
        """List servers for an identity.

        Args:
            servers: Their names.
            caller: The identity as its caller gave it; a callable is asked again.
            identity: What it is now.
            deadline: Absolute.
            refresh: Ask the servers again, whatever is known.

        Returns:
            The lists, and why others are missing, both by server.

        Raises:
            IdentityMismatch: The caller is somebody else now.

        A checkpoint.
        """
        now = self._pool.seams.now
        flights = {name: self._flight(name, caller, identity, refresh=refresh) for name in servers}
        for flight in flights.values():
            with trio.CancelScope(deadline=min(deadline, flight.began + self._patience)):
                await flight.done.wait()
        if not any(flight.landed for flight in flights.values()):
            with trio.CancelScope(deadline=deadline):
                await _first(list(flights.values()))
        await trio.lowlevel.checkpoint()
        if callable(caller) and ask_identity(caller) != identity:
            raise IdentityMismatch("the caller is not who asked any more; the list is not given out")
        lists: dict[str, Toolset] = {}
        problems: dict[str, AfpoolError] = {}
        for name, flight in flights.items():
            if flight.landed is not None:
                lists[name] = flight.landed
            else:
                problems[name] = flight.failure or DeadlineExceeded(
                    f"the server {name!r} has not answered for {now() - flight.began:.0f} s; its tools are "
                    "missing here, and it goes on being asked for them",
                    delivery=NOT_SENT,
                )
        return lists, problems

    def _flight(self, server: str, caller: CallerIdentity, identity: Identity, *, refresh: bool) -> _Flight:
        key = (server, identity, refresh)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(self._pool.seams.now())
            try:
                self._pool.spawn(self._fly, key, in_this_context(caller), flight)
            except AfpoolError as error:
                del self._flights[key]
                flight.failure = error
                flight.done.set()
        return flight

    async def _fly(self, key: tuple[str, Identity, bool], caller: CallerIdentity, flight: _Flight) -> None:
        server, _, refresh = key
        pool = self._pool
        try:
            until = pool.seams.now() + max(_LONGEST, pool.limits.open_timeout)
            flight.landed = await pool.tools(caller, server, deadline=until, refresh=refresh)
        except AfpoolError as error:
            flight.failure = error
        except Exception as error:
            logger.exception("listing %s failed", server)
            flight.failure = PlanFailed(f"the server {server!r} could not be listed ({type(error).__name__})")
        finally:
            self._flights.pop(key, None)
            if flight.landed is None and flight.failure is None:
                flight.failure = PlanFailed(f"the server {server!r} could not be listed; the pool was left")
            flight.done.set()


async def _first(flights: list[_Flight]) -> None:
    """Wait until one has landed, or all have failed."""
    async with trio.open_nursery() as nursery:

        async def watch(flight: _Flight) -> None:
            await flight.done.wait()
            if flight.landed is not None:
                nursery.cancel_scope.cancel()

        for flight in flights:
            nursery.start_soon(watch, flight)
