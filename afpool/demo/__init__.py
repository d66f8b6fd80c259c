"""`afpool demo`: tenants and conversations on real MCP servers in processes of their own, on this machine.

Every refusal happens for its real reason, and what is said about a server is read from that server's log.
"""

from __future__ import annotations

import trio

from ._scenes import play
from ._stage import Stage

CONSOLE = "demo-play"
"""What the demo's console is called, for who wants to look inside while it plays."""


def run(attach: str | None = None) -> int:
    """Play the demo; return 0 when everything happened as announced.

    Args:
        attach: The command that shows what goes on inside while it plays, to be announced.
    """
    return trio.run(_main, attach)


async def _main(attach: str | None) -> int:
    async with Stage.open(CONSOLE) as stage:
        if attach is not None and stage.console:
            stage.offer("look inside while it plays, from another terminal:", attach)
        await play(stage)
        return stage.verdict()
