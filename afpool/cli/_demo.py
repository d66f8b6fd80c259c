"""`afpool demo`: the play, then how to serve the same to any MCP client.

What is printed works as it stands. So a token is drawn for it, good for a day; the file that keeps its digest
is the one that `afpool serve --demo` proves by.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from ._called import afpool_command
from ._demo_place import BIND, demo_bind, demo_tokens
from ._failures import DONE, Failure

if TYPE_CHECKING:
    import argparse

    from ._output import Output

_DAY: Final = 86_400.0


def run(options: argparse.Namespace, out: Output) -> int:
    """Play the demo, and print how to go on."""
    bind = demo_bind(options.bind)
    if out.json:
        out.document(_next(bind))
        return DONE
    from ..demo import CONSOLE
    from ..demo import run as play

    code = play(f"{afpool_command()} console {CONSOLE}")
    if code == DONE:
        found = _next(bind)
        out.data("\nServe it to any MCP client. In one terminal:\n")
        out.data(f"    {found['serve']}")
        out.data("\nand in the client's configuration (alice of acme, for a day):\n")
        out.data(f"    {json.dumps(found['client'])}")
        out.data("\nand look inside while it serves, from another terminal; where the first command ends in")
        out.data("--traffic, there is something to see before a client calls:\n")
        for line in found["inside"]:
            out.data(f"    {line}")
    return code


def _next(bind: str) -> dict[str, Any]:
    """Draw a token, and give the command and the client's configuration that go with it."""
    from .._base.identity import Identity
    from ..serve import TokenFile

    path = demo_tokens()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Failure(
            f"no folder for the demo's tokens can be made: {error.strerror}; set XDG_STATE_HOME"
        ) from None
    made = TokenFile(path).new(Identity("acme", "alice"), "afpool demo", time.time() + _DAY)
    said = "" if bind == BIND else f" --bind {bind}"
    return {
        "serve": f"{afpool_command()} serve --demo{said}",
        "inside": [
            f"{afpool_command()} console demo",
            f"{afpool_command()} show actors --process demo",
        ],
        "client": {
            "mcpServers": {
                "afpool": {
                    "type": "http",
                    "url": f"http://{bind}/mcp",
                    "headers": {"Authorization": f"Bearer {made.token.reveal()}"},
                }
            }
        },
    }
