"""The sockets of a console in the file system: made, told from those that are left over, removed.

Rules:

* A socket is made under a name that nobody reads and moved into place when it listens: whoever finds a
  console's name finds somebody who answers, or one that was left over.
* Left over is what refuses a connection. It is removed by the next console that opens in that folder, if it
  is this user's; what answers, or cannot be asked, stays.
* Who looks for a name that is free, and takes it, holds the folder (`flock`) meanwhile: in containers that
  share one, two processes of one number may begin in the same instant.
* The child of a fork holds a copy of every socket, at which nobody would ever answer: it closes them, and
  removes no file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
import weakref
from typing import TYPE_CHECKING, Final, final

from .._base.console_place import MAX_PATH, directory_problem, hang_path, read_name, socket_path
from ._settings import CannotOpenConsole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trio

BACKLOG: Final = 1024
_MODE: Final = 0o600
_PATIENCE: Final = 2.0
_open: weakref.WeakSet[Listening] = weakref.WeakSet()
_ports: weakref.WeakSet[trio.SocketListener] = weakref.WeakSet()


@final
class Listening:
    """A Unix socket that listens, and its file.

    Attributes:
        sock: The socket, which does not block.
        path: Where it is.
        closed: Whether it was closed.
        forked: Whether this is the child of a fork, where it is gone.
    """

    def __init__(self, sock: socket.socket, path: Path) -> None:
        self.sock = sock
        self.path = path
        self.closed = False
        self.forked = False
        self._made = os.stat(path).st_ino  # noqa: PTH116 -- beside the calls that it is compared with
        _open.add(self)

    def close(self) -> None:
        """Close it and remove its file, unless somebody else's is there by now. Synchronous, idempotent."""
        if self.closed or self.forked:
            return
        self.closed = True
        self.remove()
        self.sock.close()

    def remove(self) -> None:
        """Remove its file, unless somebody else's is there by now."""
        with contextlib.suppress(OSError):
            if not self.forked and self.path.lstat().st_ino == self._made:
                self.path.unlink()

    def forget(self) -> None:
        """Close the child's copy, and leave the file to the parent."""
        self.forked = True
        with contextlib.suppress(OSError):
            number = self.sock.detach()
            if number >= 0:
                os.close(number)


def closed_by_fork(listener: trio.SocketListener) -> trio.SocketListener:
    """Have the child of a fork close its copy of a socket that has no file."""
    _ports.add(listener)
    return listener


def _after_fork() -> None:
    for listening in list(_open):
        if not listening.closed:
            listening.forget()
    for listener in list(_ports):
        with contextlib.suppress(OSError):
            number = listener.socket.detach()
            if number >= 0:
                os.close(number)


os.register_at_fork(after_in_child=_after_fork)


def make_directory(path: Path) -> None:
    """See that the folder is there and this user's alone.

    Raises:
        CannotOpenConsole: It is not, or cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _cannot(path, _reason(error)) from None
    problem = directory_problem(path)
    if problem is not None:
        raise _cannot(path, problem)


def listen(directory: Path, name: str) -> Listening:
    """Listen at `PID-NAME.sock` in a folder; at `PID-NAME-2.sock` where that is taken, and so on.

    Raises:
        CannotOpenConsole: The path is too long, or the socket cannot be made.
    """
    with _held(directory):
        for number in range(1, 100):
            called = name if number == 1 else f"{name[:36]}-{number}"
            path = socket_path(directory, os.getpid(), called)
            if len(os.fsencode(hang_path(path))) > MAX_PATH:
                words = f"its path is too long for a Unix socket, which has {MAX_PATH} bytes"
                raise _cannot(directory, words)
            if not _is_there(path):
                return listen_at(path)
    raise _cannot(directory, f"a hundred consoles of this process are called {name}")


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Hold a folder for a block, which is short; what others hold for long is used all the same."""
    try:
        number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot(directory, _reason(error)) from None
    try:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    break  # a file system without locks
                time.sleep(0.005)
            else:
                break
        yield
    finally:
        os.close(number)


def listen_at(path: Path) -> Listening:
    """Listen at a path, in place of what is there.

    Raises:
        CannotOpenConsole: The socket cannot be made.
    """
    made = path.with_name(f".{os.getpid()}-{os.urandom(4).hex()}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.unlink(missing_ok=True)
        sock.bind(os.fsencode(made))
        made.chmod(_MODE)  # nobody but this user can reach it before: the folder is his
        sock.listen(BACKLOG)
        sock.setblocking(False)
        made.rename(path)
        return Listening(sock, path)
    except OSError as error:
        sock.close()
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)
        raise _cannot(path, _reason(error)) from None


def _is_there(path: Path) -> bool:
    """Whether somebody answers at a path, or something else is there. What is left over is not."""
    try:
        seen = path.lstat()
    except OSError:
        return False
    return not stat.S_ISSOCK(seen.st_mode) or not is_left_over(path)


def is_left_over(path: Path) -> bool:
    """Whether a socket refuses connections. Does not block."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        return probe.connect_ex(os.fsencode(path)) == errno.ECONNREFUSED


def remove_left_over(directory: Path) -> int:
    """Remove what consoles that are gone have left in a folder; gives how many files."""
    removed = 0
    with contextlib.suppress(OSError, CannotOpenConsole), _held(directory):
        for path in directory.iterdir():
            name = path.with_name(path.name.replace(".hang.sock", ".sock"))
            if read_name(name) is None:
                continue
            with contextlib.suppress(OSError):
                seen = path.lstat()
                if stat.S_ISSOCK(seen.st_mode) and seen.st_uid == os.geteuid() and is_left_over(path):
                    path.unlink()
                    removed += 1
    return removed


def _cannot(path: Path, why: str) -> CannotOpenConsole:
    return CannotOpenConsole(f"no console can listen in {path}: {why}; nothing listens")


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else type(error).__name__
