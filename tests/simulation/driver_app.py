"""How the app of a simulated world takes what it is told.

It hears, it has asked for nothing, it raises, or it traces every call. What a callback raises costs no call
and changes nothing: all else is judged as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.driver_secrets import AppFault

if TYPE_CHECKING:
    from tests.simulation.driver import Run


class Ears:
    """The app's callbacks.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._how = run.story.world.app
        self._told = 0

    def options(self) -> dict[str, Any]:
        """What `open_pool` is given of them."""
        if self._how == "deaf":
            return {"on_log": None, "on_change": None}
        return {"on_log": self._heard, "on_change": self._heard, "on_tools": self._heard}

    def opened(self, pool: Any) -> None:
        """The pool is open: listen to its record as well."""
        if self._how == "raises":
            pool.records.tap(on_use=self._heard, on_event=self._heard)
        elif self._how == "hears":
            pool.records.tap(on_event=lambda event: self._run.shown.append(repr(event)))
        elif self._how == "traces":
            pool.records.tracers += (self,)

    def _heard(self, *told: Any) -> None:
        self._run.shown.append(repr(told))
        if self._how == "raises":
            raise AppFault("nobody listens")

    def begin(self, use: Any) -> None:
        """A call begins: it is to be told which span it is."""
        self._told += 1
        use.trace = f"00-{self._told:032x}-{self._told:016x}-01"
        if self._told % 3 == 0:
            use.trace_state = "sim=1"
        if self._told % 7 == 0:
            raise AppFault("telemetry is away")

    def end(self, use: Any) -> None:
        """A call has ended."""
        if use.trace is None:
            self._run.failures.append(f"E5 call {use.call_id} ends, and never began for who traces it")
