"""Listing several servers for one identity: all at once, and nobody waits long for one that does not answer.

Rules:

* A listing of one server for one identity is a *flight*: at most one of its kind at a time, in the pool's
  background, joined by whoever asks meanwhile. It goes on when those who asked have stopped waiting, so that
  a server that takes long to start is there for the next who asks.
* Whoever asks waits until all have answered. Once one has, the silent ones are waited for only as long as
  there is patience: then each costs its own tools, and says so. A flight that has outlasted somebody's
  patience already is not waited for again. When it lands, whoever listens for changes of tools is told:
  somebody was shown a list without them.
* Each flight asks on behalf of who began it. Where he is not who he was any more, that is no failure of the
  server's: whoever else waited, and still is who he was, begins another one.
* A server that cannot be listed costs its own tools only.
* Who the caller is, is asked again after the wait.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import (
    NOT_SENT,
    AfpoolError,
    BindingChanged,
    DeadlineExceeded,
    IdentityMismatch,
    IdentityMissing,
    PlanFailed,
)
from ..pool._asking import ask_identity, in_this_context

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from .._base.identity import CallerIdentity, Identity
    from ..pool import Pool, Toolset

logger = logging.getLogger("afpool")

_LONGEST: Final = 60.0


@final
class _Flight:
    """One server being listed for one identity."""

    __slots__ = ("began", "caller", "done", "failure", "landed", "left")

    def __init__(self, now: float, caller: CallerIdentity) -> None:
        self.began = now
        self.caller = caller
        self.done = trio.Event()
        self.landed: Toolset | None = None
        self.failure: AfpoolError | None = None
        self.left = False  # somebody went without it

    def is_over_for_its_caller_only(self, caller: CallerIdentity) -> bool:
        """Whether it failed since whoever began it, who is not `caller`, became another."""
        if self.caller is caller or not callable(self.caller):
            return False
        return isinstance(self.failure, IdentityMismatch | IdentityMissing)


@final
class Lister:
    """The flights of one runtime.

    Args:
        pool: Whose servers are listed.
        patience: Seconds that one silent server is waited for.

    Attributes:
        patience: As given; may be set.
    """

    __slots__ = ("_flights", "_pool", "patience")

    def __init__(self, pool: Pool, patience: float) -> None:
        self._pool = pool
        self.patience = patience
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
        while True:
            await self._waited(flights, deadline)
            if callable(caller) and ask_identity(caller) != identity:
                raise IdentityMismatch("the caller is not who asked any more; the list is not given out")
            others = [name for name, flight in flights.items() if flight.is_over_for_its_caller_only(caller)]
            if not others or now() >= deadline:
                break
            flights |= {name: self._flight(name, caller, identity, refresh=refresh) for name in others}
        lists: dict[str, Toolset] = {}
        problems: dict[str, AfpoolError] = {}
        for name, flight in flights.items():
            if flight.landed is not None:
                lists[name] = flight.landed
            else:
                flight.left = True
                problems[name] = flight.failure or DeadlineExceeded(
                    f"the server {name!r} has not answered for {now() - flight.began:.0f} s; its tools are "
                    "missing here, and it goes on being asked for them",
                    delivery=NOT_SENT,
                )
        return lists, problems

    async def _waited(self, flights: Mapping[str, _Flight], deadline: float) -> None:
        """Wait until all have landed or failed, or there is no patience left."""
        for flight in flights.values():
            with trio.CancelScope(deadline=min(deadline, flight.began + self.patience)):
                await flight.done.wait()
        if not any(flight.landed for flight in flights.values()):
            with trio.CancelScope(deadline=deadline):
                await _first(list(flights.values()))
        await trio.lowlevel.checkpoint()

    def forget(self, kept: Container[str]) -> None:
        """Let nobody join a flight of another server than these: it is configured otherwise by now."""
        self._flights = {key: flight for key, flight in self._flights.items() if key[0] in kept}

    def _flight(self, server: str, caller: CallerIdentity, identity: Identity, *, refresh: bool) -> _Flight:
        key = (server, identity, refresh)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(self._pool.seams.now(), caller)
            try:
                self._pool.spawn(self._fly, key, in_this_context(caller), flight)
            except AfpoolError as error:
                del self._flights[key]
                flight.failure = error
                flight.done.set()
        return flight

    async def _fly(self, key: tuple[str, Identity, bool], caller: CallerIdentity, flight: _Flight) -> None:
        server, identity, refresh = key
        pool = self._pool
        try:
            until = pool.seams.now() + max(_LONGEST, pool.limits.open_timeout)
            flight.landed = await pool.tools(caller, server, deadline=until, refresh=refresh)
            if flight.left:
                pool.herald.tools_changed(pool.actor_for(server, identity), None)
        except AfpoolError as error:
            flight.failure = error
        except Exception as error:
            if server not in pool.servers:
                flight.failure = BindingChanged(
                    f"the server {server!r} was removed from the configuration before it was listed"
                )
                return
            logger.exception("listing %s failed", server)
            flight.failure = PlanFailed(f"the server {server!r} could not be listed ({type(error).__name__})")
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
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
