"""A child process as the kernel shows it: how one is started, signalled, waited for and read.

What is done with it, and in which order, is `StdioProcess`'s (`_stdio.py`); this is the part of it that
something else can take the place of (the seam `spawn`). Rules:

* The child leads a session, and with it a process group, of its own: a Ctrl-C at our terminal does not reach
  it, and what it forked can be ended with it.
* The group ends with its leader. Whoever sees the leader gone kills what it left in the group **before**
  reaping it: until then the group's number cannot belong to anybody else.
* Starting a process blocks, so it happens in a thread, under a limiter of its own, and is not abandoned
  half-way: a child that nobody owns would be the result.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import trio

from afpool._base.errors import Overloaded
from afpool.transports._stdio_config import StdioConfig  # noqa: TC001
from afpool.transports._wire import PipeWire, Wire

if TYPE_CHECKING:
    from afpool._base.seams import Seams

POLL_SECONDS: Final = 0.01
"""How often something is looked at that the kernel gives no way to wait for."""

_SPAWNING: Final = 2
_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("afpool-spawning")


class SpawnFailed(Exception):
    """The process could not be started. Nothing runs and no descriptor is open.

    Names the command and the reason; never arguments, directories or environment.
    """


class Child(ABC):
    """A child that was started. Everything but `exited` and `stderr_readable` is synchronous.

    Attributes:
        wire: Its standard input and output.
        pid: Its process id, and its group's.
    """

    __slots__ = ()

    wire: Wire
    pid: int

    @property
    @abstractmethod
    def returncode(self) -> int | None:
        """`None` until it is reaped; else the exit status, or the negative number of the signal."""

    @abstractmethod
    def close_stdin(self) -> None:
        """End its input; its output can still be read. A second call does nothing."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its group, if it has not been reaped."""

    @abstractmethod
    def reap(self) -> bool:
        """Reap it if it has exited, and end its group in the same step; say whether it is gone."""

    @abstractmethod
    async def exited(self) -> None:
        """Wait until it has exited; it stays unreaped. A checkpoint; any task may wait."""

    @abstractmethod
    async def stderr_readable(self) -> None:
        """Wait until `read_stderr` would not say `None`; one task at a time.

        Raises:
            trio.ClosedResourceError: `close` was called meanwhile.
        """

    @abstractmethod
    def read_stderr(self, max_bytes: int) -> bytes | None:
        """Read what stderr holds: `None` when it would block, `b""` at its end and after `close`."""

    @abstractmethod
    def close(self) -> None:
        """Close its pipes. A second call does nothing."""


class KernelChild(Child):
    """A real one."""

    __slots__ = ("_pipes", "_popen", "_stderr", "pid", "wire")

    def __init__(self, popen: subprocess.Popen[bytes], pipes: PipeWire, stderr_fd: int) -> None:
        self._popen = popen
        self._pipes = pipes
        self._stderr = stderr_fd
        self.wire = pipes
        self.pid = popen.pid

    @property
    def returncode(self) -> int | None:
        """See `Child.returncode`."""
        return self._popen.returncode

    def close_stdin(self) -> None:
        """See `Child.close_stdin`."""
        self._pipes.close_write()

    def signal(self, number: signal.Signals) -> None:
        """See `Child.signal`."""
        # Only while the leader is not reaped, so the number is the group's. One that is empty, or that has
        # given itself to another user, is not ours to end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def reap(self) -> bool:
        """See `Child.reap`."""
        if self._popen.returncode is not None:
            return True
        try:
            seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # Somebody in this process reaps every child; the group's number is no longer ours to use.
            seen = None
        else:
            if seen is None:
                return False
            self.signal(signal.SIGKILL)
        return self._popen.poll() is not None

    async def exited(self) -> None:
        """See `Child.exited`; returns at once where it is reaped already."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            await trio.lowlevel.checkpoint()
        except OSError:
            # A sandbox may forbid it.
            await trio.sleep(POLL_SECONDS)
        else:
            # One descriptor per waiter: two tasks cannot wait on the same one.
            try:
                await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)

    async def stderr_readable(self) -> None:
        """See `Child.stderr_readable`."""
        if self._stderr < 0:
            raise trio.ClosedResourceError
        await trio.lowlevel.wait_readable(self._stderr)

    def read_stderr(self, max_bytes: int) -> bytes | None:
        """See `Child.read_stderr`."""
        if self._stderr < 0:
            return b""
        try:
            return os.read(self._stderr, max_bytes)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """See `Child.close`."""
        self._pipes.close()
        if self._stderr >= 0:
            fd, self._stderr = self._stderr, -1
            trio.lowlevel.notify_closing(fd)
            os.close(fd)


async def start_child(config: StdioConfig, seams: Seams) -> Child:
    """Start a child, as the seam says or for real. The caller shields it.

    Raises:
        SpawnFailed: It cannot be started.
    """
    if seams.spawn is not None:
        child: Child = await seams.spawn(config)
        return child
    ours: list[int] = []
    theirs: list[int] = []
    environment = config.environment()
    try:
        try:
            for child_reads in (True, False, False):
                read_end, write_end = os.pipe2(os.O_CLOEXEC)
                (theirs if child_reads else ours).append(read_end)
                (ours if child_reads else theirs).append(write_end)
            popen: subprocess.Popen[bytes] = await seams.in_thread(
                lambda: _start(config, environment, theirs), _spawn_limiter()
            )
        finally:
            for fd in theirs:
                os.close(fd)
        os.set_blocking(ours[2], False)
    except BaseException as error:
        for fd in ours:
            os.close(fd)
        if isinstance(error, Overloaded):
            raise SpawnFailed(
                f"command {config.name!r} could not be started: there can be no further thread"
            ) from None
        if isinstance(error, OSError):
            # Without its cause: that one holds directories, and may hold more.
            raise SpawnFailed(_why_not(config, error)) from None
        raise
    stdin, stdout, stderr = ours
    return KernelChild(popen, PipeWire(stdin, stdout), stderr)


def _start(config: StdioConfig, environment: dict[str, str], fds: list[int]) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = fds
    return subprocess.Popen(  # noqa: S603  (no shell; the command is the operator's own configuration)
        config.command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=config.cwd,
        env=environment,
        start_new_session=True,
    )


def _why_not(config: StdioConfig, error: OSError) -> str:
    if config.cwd is not None and error.filename == config.cwd:
        return f"command {config.name!r}: its working directory cannot be entered"
    if isinstance(error, FileNotFoundError):
        return f"command {config.name!r} was not found"
    if isinstance(error, PermissionError):
        return f"command {config.name!r} is not executable"
    return f"command {config.name!r} could not be started: {error.strerror or type(error).__name__}"


def _spawn_limiter() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_SPAWNING)
        _limiter.set(limiter)
        return limiter
