"""The client that the conformance suite runs: afpool, used as an app uses it.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/driver.py URL

The suite starts one process per scenario and appends the address of its server. The environment names the
scenario and the protocol version that the server speaks, and holds a JSON context where a scenario has one.
Everything goes through `open_pool`, `Pool.tools` and bound tools; the version is found out, not told.

Ends with status 0 and a last line on stdout where everything went as the scenario wants it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.conformance.playing import Case, Play

SECONDS: Final = 60.0
# What a scenario's name begins with, and the module that plays it.
MODULES: Final = {
    "auth/": "play_auth",
    "elicitation-": "play_asked",
    "request-metadata": "play_asked",
    "sep-2322-": "play_asked",
}


def player_of(scenario: str) -> Play | None:
    """Import what plays a scenario, and no more than that; `None` where nobody does."""
    from tests.conformance.playing import PLAYS

    homes = [module for prefix, module in MODULES.items() if scenario.startswith(prefix)]
    importlib.import_module(f"tests.conformance.{homes[0] if homes else 'play_calls'}")
    return PLAYS.get(scenario)


async def within_time(player: Play, case: Case) -> None:
    """Play one scenario within its time."""
    import trio

    with trio.fail_after(SECONDS):
        await player(case)


def main() -> int:
    """Play the scenario that the environment names."""
    from tests.conformance import slots

    slots.take()  # before what costs time to import
    import trio

    from tests.conformance.playing import Case
    from tests.conformance.reading import DONE

    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    player = player_of(scenario)
    if player is None:
        print(f"driver: nobody plays {scenario}", file=sys.stderr)
        return 1
    case = Case(
        url=sys.argv[-1],
        version=os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        context=json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    )
    trio.run(within_time, player, case)
    print(DONE)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
