"""The watchdog of a process: a thread that answers on a socket of its own, also while the loop hangs."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Final

_PATIENCE: Final = 2.0
_MOST: Final = 16 * 1024 * 1024


def ask_watchdog(path: str, word: str) -> list[dict[str, Any]]:
    """Ask it something.

    Args:
        path: Its socket.
        word: `ping` or `stacks`.

    Returns:
        The objects that it answers; none where it does not answer within two seconds, or not in JSON.
    """
    if not path:
        return []
    said = b""
    until = time.monotonic() + _PATIENCE
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        try:
            one.settimeout(_PATIENCE)
            one.connect(path)
            one.sendall(word.encode() + b"\n")
            one.shutdown(socket.SHUT_WR)
            while len(said) < _MOST:
                one.settimeout(max(until - time.monotonic(), 0.001))
                piece = one.recv(65536)
                if not piece:
                    break
                said += piece
        except OSError:
            pass
    return [found for line in said.splitlines() if (found := _object(line)) is not None]


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
