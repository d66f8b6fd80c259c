"""Single flight: work that several wait for and nobody who waits can end.

Rules:

* Of one key at most one work runs. It runs in the nursery of whoever opened the provider, in the context in
  which that was opened, so neither the cancellation nor the context of a waiter reaches it.
* No lock is held while it runs. A waiter that is cancelled goes; the others and the work do not notice.
* Work ends with a value or with `Trouble`. Each waiter gets the value, or a new `Trouble` of its own.
* Leaving gives work a grace, since a refresh that is cut off may have used up its refresh token, and then
  cancels it. Waiters are answered either way.
"""

from __future__ import annotations

import contextvars
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, final

import trio

from ._trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")
logger = logging.getLogger("afpool.credentials")


class Flight(Generic[T]):
    """One work under way."""

    __slots__ = ("failure", "over", "value")

    def __init__(self) -> None:
        self.over = trio.Event()
        self.value: T | None = None
        self.failure: Trouble | None = None

    async def wait(self) -> T:
        """Wait for the end and give the value.

        Raises:
            Trouble: The work failed; this one is the waiter's own.
        """
        await self.over.wait()
        if self.failure is not None:
            raise self.failure.again()
        return cast("T", self.value)


@final
class Flights:
    """The works of one provider."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._manager: Any = None
        self._context: contextvars.Context | None = None
        self._running: dict[Hashable, Flight[Any]] = {}

    @property
    def open(self) -> bool:
        """Whether work may begin."""
        return self._nursery is not None

    async def start(self) -> None:
        """Open; must be followed by `stop` in the same task, properly nested."""
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._context = contextvars.copy_context()

    async def stop(self, grace: float) -> None:
        """Refuse new work, let running work end within `grace` seconds, then cancel it. Shielded."""
        nursery, self._nursery = self._nursery, None
        assert nursery is not None
        # The nursery's own scope, since another one here would be left before it.
        nursery.cancel_scope.shield = True
        nursery.cancel_scope.deadline = trio.current_time() + (grace if self._running else 0.0)
        await self._manager.__aexit__(None, None, None)

    def running(self, key: Hashable) -> Flight[Any] | None:
        """The work of a key, if there is one."""
        return self._running.get(key)

    def begin(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> Flight[T]:
        """Start work, or find the one that runs. Synchronous.

        Raises:
            Trouble: The provider is not open.
        """
        known = self._running.get(key)
        if known is not None:
            return known
        nursery, context = self._nursery, self._context
        if nursery is None or context is None:
            raise Trouble("the credential provider is not open")
        flight: Flight[T] = Flight()
        self._running[key] = flight
        context.run(nursery.start_soon, self._run, key, flight, work)
        return flight

    async def join(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Start work or join the one that runs, and wait for it; raises as `Flight.wait` and `begin`."""
        return await self.begin(key, work).wait()

    async def _run(self, key: Hashable, flight: Flight[Any], work: Callable[[], Awaitable[Any]]) -> None:
        flight.failure = Trouble("the credential provider was closed", passing=True)
        try:
            flight.value = await work()
            flight.failure = None
        except Trouble as trouble:
            flight.failure = trouble.again()
        except Exception as error:  # noqa: BLE001 -- one account's fault must not end those of all others
            # Only its kind: the text may hold what was being read.
            logger.error("work for a credential raised %s", type(error).__name__)  # noqa: TRY400 -- as above
            flight.failure = Trouble(f"an internal error ({type(error).__name__})", passing=True)
        finally:
            del self._running[key]
            flight.over.set()
