"""What every player of a scenario uses: the case, the register of players, a pool with the suite's server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from afpool import HttpTransport, Identity, Plan, Server, open_pool

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from afpool import Pool, Toolset

ALICE: Final = Identity(tenant="acme", principal="alice")


@attrs.frozen
class Case:
    """What the suite tells about a scenario.

    Attributes:
        url: The server's MCP endpoint.
        version: The protocol version that the server speaks. For the record: afpool finds it out.
        context: What the scenario gives the client to know; mostly empty.
    """

    url: str
    version: str
    context: dict[str, Any]


Play: TypeAlias = Callable[[Case], Awaitable[None]]
PLAYS: Final[dict[str, Play]] = {}


def plays(*scenarios: str) -> Callable[[Play], Play]:
    """Register a function as the player of scenarios."""

    def register(play: Play) -> Play:
        for scenario in scenarios:
            assert scenario not in PLAYS
            PLAYS[scenario] = play
        return play

    return register


def pool_for(
    case: Case, plan: dict[str, Any] | None = None, **options: Any
) -> AbstractAsyncContextManager[Pool]:
    """Open a pool with the suite's server in it.

    Args:
        case: Where the server is.
        plan: More of the plan than the way there.
        options: Of `open_pool`.
    """
    made = Plan(transport=HttpTransport(url=case.url), **(plan or {}))
    return open_pool([Server(name="suite", plan=made)], **options)


async def listed(pool: Pool) -> Toolset:
    """List the tools.

    Raises:
        AfpoolError: What the listing ended with.
    """
    tools = await pool.tools(ALICE)
    for problem in tools.problems.values():
        raise problem
    return tools
