"""Which process is meant: a name, an id, an address, or the only one that there is."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .._failures import Failure, Usage
from ._places import Process, hang_socket, running

START: Final = "start one, such as `afpool serve --demo`; one that is embedded opens it with `console=True`"
_URL: Final = re.compile(
    r"(https?|wss?)://(\[[0-9a-fA-F:.]+\]|[^/:@\[\]?#\s]+)(?::([0-9]{1,5}))?(/[^?#\s]*)?"
)
_PAIR: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
_LOOPBACK: Final = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|::1")


class Target(NamedTuple):
    """Where a console is.

    Attributes:
        label: For messages.
        path: Of a Unix socket; else empty.
        host: Of a TCP address.
        port: Of it.
        tls: Whether it is spoken to over TLS.
        resource: The path of the WebSocket.
    """

    label: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: bool = False
    resource: str = "/console"

    @property
    def authority(self) -> str:
        """What the `Host` header says."""
        if self.path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def clear(self) -> bool:
        """Whether a token would leave this machine where others can read it."""
        return bool(self.host) and not self.tls and _LOOPBACK.fullmatch(self.host) is None

    @property
    def hang(self) -> str:
        """The socket of its watchdog; empty where it is out of reach."""
        return hang_socket(self.path) if self.path else ""


class Several(Usage):
    """More than one is meant.

    Attributes:
        processes: Those.
    """

    def __init__(self, processes: list[Process], what: str) -> None:
        super().__init__(what, "afpool console PID, or `--process PID` with another command")
        self.processes = processes


def choose(which: str | None) -> Target:
    """Find the console that is meant.

    Args:
        which: A name, an id, `unix:/path`, a path, `host:port` or an address with a scheme; `None` for the
            only one that runs.

    Raises:
        Usage: It is none of these, or several processes are meant (`Several`).
        Failure: Nothing runs, or nothing of that name.
    """
    if which is not None:
        address = _address(which)
        if address is not None:
            return address
    processes = running()
    if not processes:
        raise Failure(f"no process with a console is running here: {START}")
    if which is None:
        fitting = processes
    elif which.isdigit():
        fitting = [process for process in processes if process.pid == int(which)]
    else:
        fitting = [process for process in processes if process.name == which]
        fitting = fitting or [process for process in processes if process.name.startswith(which)]
    if not fitting:
        there = ", ".join(f"{process.name} ({process.pid})" for process in processes[:8])
        raise Failure(f"no process of that name or id has a console here; there are {there}")
    if len(fitting) > 1:
        raise Several(fitting, f"{len(fitting)} processes have a console here: say which is meant")
    return of_process(fitting[0])


def of_process(process: Process) -> Target:
    """Give where the console of a process is."""
    return Target(f"{process.name} ({process.pid})", process.path)


def _address(which: str) -> Target | None:
    url = _URL.fullmatch(which)
    if url is not None:
        scheme, host, port, resource = url.groups()
        tls = scheme in {"https", "wss"}
        number = _port(port) if port else (443 if tls else 80)
        resource = "/console" if resource in {None, "", "/"} else resource
        host = host.strip("[]")
        return Target(f"{host}:{number}", host=host, port=number, tls=tls, resource=resource)
    if "://" in which:
        raise Usage(
            "an address of a console begins with http://, https://, ws:// or wss://, or is unix:/path"
        )
    path = which.removeprefix("unix:")
    if path != which or "/" in which:
        if not path.startswith(("/", ".", "~")) and path == which:
            raise Usage("a path of a socket begins with / or ./; an address is host:port")
        return Target(path.rpartition("/")[2].removesuffix(".sock"), path)
    pair = _PAIR.fullmatch(which)
    if pair is not None:
        host = pair[1].strip("[]")
        return Target(which, host=host, port=_port(pair[2]))
    return None


def _port(text: str) -> int:
    if not 0 < int(text) < 65536:
        raise Usage("a port is a number from 1 to 65535")
    return int(text)
