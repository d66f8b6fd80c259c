"""What systemd is told of a service (`Type=notify`): a datagram for each thing, to the socket it names.

Nothing is told where nobody asks. A supervisor that cannot be told is no reason to end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET: Final = "NOTIFY_SOCKET"


@final
class Supervisor:
    """Whoever started the service, as far as it wants to be told.

    Args:
        env: Variables; those of this process where absent.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._address = (os.environ if env is None else env).get(SOCKET, "")

    def tell(self, state: str) -> None:
        """Tell of a state: `ready`, `reloading` or `stopping`. Synchronous, never waits, never raises."""
        if not self._address.startswith(("/", "@")):
            return
        text = f"{state.upper()}=1\n"
        if state == "reloading":
            text += f"MONOTONIC_USEC={time.monotonic_ns() // 1000}\n"
        if state == "ready":
            text += f"MAINPID={os.getpid()}\n"
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out,
        ):
            out.setblocking(False)
            out.sendto(text.encode(), address)
