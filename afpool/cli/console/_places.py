"""Processes with a console on this machine: those whose sockets somebody answers.

A socket is alive when a connection to it is accepted. Whatever is refused is left over from a process that is
gone, and the next one that starts takes it away; its number says nothing, since numbers are given anew and
may be those of another container.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Final, NamedTuple

from ..._base.console_place import hang_path, read_name, sockets

_PATIENCE: Final = 0.3


class Process(NamedTuple):
    """A process that has a console.

    Attributes:
        pid: As the name of its socket says.
        name: What it calls itself.
        path: Its socket.
        began: When it began, in seconds since 1970.
    """

    pid: int
    name: str
    path: str
    began: float


def running() -> list[Process]:
    """Find what runs, oldest first. One whose loop hangs is among them."""
    found = [
        Process(one.pid, one.name, str(one.path), _began(one.pid, one.path))
        for one in sockets()
        if _alive(str(one.path))
    ]
    return sorted(found, key=lambda process: (process.began, process.pid))


def hang_socket(path: str) -> str:
    """Give the socket that answers for a loop that does not; empty where a path is none of a console."""
    place = Path(path)
    return "" if read_name(place) is None else str(hang_path(place))


def _alive(path: str) -> bool:
    """Whether somebody listens, also with a queue that is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(_PATIENCE)
        try:
            one.connect(path)
        except (TimeoutError, BlockingIOError):
            return True
        except OSError:
            return False
    return True


def _began(pid: int, path: Path) -> float:
    """When a process began; where the system does not tell, when its socket was made."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        try:
            return path.stat().st_mtime
        except OSError:
            return time.time()
