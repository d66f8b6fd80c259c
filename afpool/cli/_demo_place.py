"""Where the demo's service listens, and where the digests of its tokens are."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from ._failures import Usage

BIND: Final = "127.0.0.1:8765"
_LOOPBACK: Final = re.compile(r"(?:127(?:\.[0-9]{1,3}){3}|localhost|\[::1\]):[1-9][0-9]{0,4}")


def demo_bind(given: str | None) -> str:
    """Give where the demo listens.

    Raises:
        Usage: It is no address of this machine alone, with a port.
    """
    if given is None:
        return BIND
    if _LOOPBACK.fullmatch(given) is None:
        raise Usage("--bind of the demo takes an address of this machine alone, such as 127.0.0.1:9000")
    return given


def demo_tokens() -> Path:
    """Give the file of the demo's tokens: in the user's state folder, by the XDG rules."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "afpool" / "demo-tokens.json"
