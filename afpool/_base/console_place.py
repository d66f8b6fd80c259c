"""Where the consoles of this user's processes listen: one folder, one socket for each console.

The server makes these names, and its client finds processes by them; so both read them here. Nothing is
loaded but what any program has loaded.

Rules:

* The folder belongs to this user and to nobody else (0700, no link): what is found in it was put there by a
  process of his, and what is sent to it goes to one.
* `AFPOOL_CONSOLE_DIRECTORY` names the folder for both sides, and then there is no other one. It is the
  variable of the setting `console.directory`.
* Else `XDG_RUNTIME_DIR` counts where it names a folder that is this user's own. It does not after `sudo -E`,
  or where nobody has made it; then the folder is one in `/tmp`.
* A socket that refuses connections is left over from a process that is gone, whatever its number says: in
  containers that share a folder, numbers of processes mean nothing to each other.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_PATH: Final = 107
"""Bytes that the path of a Unix socket may have."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""What a console may be called."""

VARIABLE: Final = "AFPOOL_CONSOLE_DIRECTORY"
"""Names the folder, for consoles and for who looks for them."""

_USUAL: Final = Path("/run/user")
_SOCKET: Final = re.compile(rf"([1-9][0-9]{{0,9}})-({NAME.pattern})\.sock")
_HANG: Final = ".hang.sock"


class Found(NamedTuple):
    """A socket of a console: the process that made it, what it is called, where it is."""

    pid: int
    name: str
    path: Path


def runtime_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Give the folder that a console listens in where nobody has said another one. It need not be there."""
    return runtime_directories(environ)[0]


def runtime_directories(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Give all folders that a console of this user may listen in: a service has an environment of its own."""
    environ = os.environ if environ is None else environ
    said = environ.get(VARIABLE, "")
    if said and "\0" not in said:
        return (Path(said).expanduser().absolute(),)
    fallback = Path(f"/tmp/afpool-{os.geteuid()}")  # noqa: S108 -- its owner and mode are looked at
    named = _named(environ)
    if named is None:
        return (fallback, _USUAL / str(os.geteuid()) / "afpool")
    return tuple(dict.fromkeys((named, _USUAL / str(os.geteuid()) / "afpool", fallback)))


def _named(environ: Mapping[str, str]) -> Path | None:
    base = environ.get("XDG_RUNTIME_DIR", "")
    if not base.startswith("/"):
        return None
    try:
        seen = os.stat(base)  # noqa: PTH116 -- it may be a link of the system's
    except (OSError, ValueError):
        return None
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
        return None
    return Path(base) / "afpool"


def directory_problem(path: Path) -> str | None:
    """Say why a folder cannot be trusted; `None` where it can, or is not there."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"it cannot be looked at ({type(error).__name__})"
    if stat.S_ISLNK(seen.st_mode):
        return "it is a link"
    if not stat.S_ISDIR(seen.st_mode):
        return "it is no folder"
    if seen.st_uid != os.geteuid():
        return f"it belongs to user {seen.st_uid} and not to user {os.geteuid()}"
    if stat.S_IMODE(seen.st_mode) & 0o077:
        return f"others may use it (mode {stat.S_IMODE(seen.st_mode):04o}; it has to be 0700)"
    return None


def read_name(path: Path) -> Found | None:
    """Read the name of a socket; `None` for what is none of a console."""
    found = _SOCKET.fullmatch(path.name)
    return None if found is None else Found(int(found[1]), found[2], path)


def sockets(directories: Iterable[Path] | None = None) -> list[Found]:
    """List the sockets of consoles, those that are left over too, by number and name.

    Args:
        directories: Where to look; `runtime_directories()` when absent. Folders that cannot be trusted are
            passed over.
    """
    found: list[Found] = []
    for directory in runtime_directories() if directories is None else directories:
        if directory_problem(directory) is not None:
            continue
        try:
            names = os.listdir(directory)  # noqa: PTH208 -- names are all that is wanted
        except OSError:
            continue
        found += filter(None, (read_name(directory / name) for name in names))
    return sorted(found)


def socket_path(directory: Path, pid: int, name: str) -> Path:
    """Give the path of a console's socket."""
    return directory / f"{pid}-{name}.sock"


def hang_path(path: Path) -> Path:
    """Give the path of the socket that is answered while the loop hangs, beside that of a console."""
    return path.with_name(path.name.removesuffix(".sock") + _HANG)
