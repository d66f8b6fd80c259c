"""What a fake server saw and did, as a test asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

    from ._engine import Engine
    from ._ledger import Arrival, Execution, Ledger


class Seen:
    """The half of a fake server that a test reads its claims from.

    Attributes:
        engine: The MCP half.
        ledger: Where everything is filed.
        executed: See `FakeServer`.
        executions: See `FakeServer`.
    """

    engine: Engine
    ledger: Ledger
    executed: list[Execution]
    executions: Counter[str]

    @property
    def repeats(self) -> list[str]:
        """The call ids that were asked for again and recognised, in order."""
        return self.engine.repeats.recognised

    @property
    def sessions(self) -> list[str]:
        """The ids of the living handshake sessions, oldest first."""
        return list(self.engine.sessions)

    @property
    def streams(self) -> int:
        """How many notification streams (GET, `subscriptions/listen`) are open now."""
        return len(self.engine.streams.open)

    def arrivals(self, method: str | None = None, tool: str | None = None) -> list[Arrival]:
        """The arrivals of one name (JSON-RPC method, `GET`, `DELETE`, `response`) and tool; None is all."""
        return self.ledger.find(method, tool)

    def count(self, method: str) -> int:
        """How many arrivals of that name there were."""
        return self.ledger.count(method)

    def execution_count(self, tool: str, arguments: Mapping[str, Any] | None = None) -> int:
        """How often a tool ran, with exactly these arguments if they are given."""
        if arguments is None:
            return self.executions[tool]
        wanted = dict(arguments)
        return sum(run.tool == tool and dict(run.arguments) == wanted for run in self.executed)

    def clear_log(self) -> None:
        """Empty the log and all counts."""
        self.ledger.clear()

    async def wait_for(self, method: str, count: int = 1, *, tool: str | None = None) -> list[Arrival]:
        """Wait until `count` arrivals of that name are in the log, and return them all. A checkpoint."""
        await self.ledger.wait_until(lambda: len(self.arrivals(method, tool)) >= count)
        return self.arrivals(method, tool)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, about this server, holds. A checkpoint.

        It is asked again after each arrival, execution, cancellation, answer to a request of ours, and
        change of connections, streams or sessions.
        """
        await self.ledger.wait_until(condition)
