"""What the two ends of the console's protocol agree on."""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = 1
"""The protocol's number, as hello says it."""

SUBPROTOCOL: Final = "afpool.console.1"
"""What an upgrade has to ask for."""

PATH: Final = "/console"
"""Where the WebSocket is; the page is at `/`."""

GOING_AWAY: Final = 1001
NOT_TEXT: Final = 1003
TRY_LATER: Final = 1013
WRONG_TOKEN: Final = 4401
