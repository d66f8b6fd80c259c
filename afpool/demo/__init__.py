"""`afpool demo`: tenants and conversations on real MCP servers in processes of their own, on this machine.

Every refusal happens for its real reason, and what is said about a server is read from that server's log.
"""

from __future__ import annotations

import trio

from ._scenes import play
from ._stage import Stage


def run() -> int:
    """Play the demo; return 0 when everything happened as announced."""
    return trio.run(_main)


async def _main() -> int:
    async with Stage.open() as stage:
        await play(stage)
        return stage.verdict()
