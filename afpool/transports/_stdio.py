"""A server as a child process: how it is spawned, what it may inherit, and how it is ended.

Rules:

* The child leads a session, and with it a process group, of its own: a Ctrl-C at our terminal does not reach
  it, and what it forked can be ended with it.
* The group ends with its leader. Whoever sees the leader gone kills what it left in the group **before**
  reaping it: until then the group's number cannot belong to anybody else.
* Nothing waits for the end of a pipe: a grandchild that left the group may hold one open for ever. What is
  waited for is the leader's exit, and each wait has a bound.
* stderr is a log and never evidence of an error. It is drained all the time, into a ring.
* The child inherits an allow-list of variables and what its configuration adds. A secret belongs into `env`
  and nowhere else: a command line can be read by every process of the machine.
* Starting a process blocks, so it happens in a thread, under a limiter of its own, and is not abandoned
  half-way: a child that nobody owns would be the result.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Final, Literal, TypeAlias

import attrs
import trio

from afpool._base.seams import Seams  # noqa: TC001
from afpool.transports._stdio_config import StdioConfig
from afpool.transports._wire import PipeWire, WireClosed, Woken

__all__ = ["CloseReport", "Ending", "SpawnFailed", "StdioConfig", "StdioProcess"]

STDERR_KEPT: Final = 16 * 1024
"""Bytes of stderr that are kept."""

_CHUNK: Final = 64 * 1024
_REAP_SECONDS: Final = 0.25
"""What is kept back for the time between SIGKILL and the exit, which only the kernel needs."""

_POLL_SECONDS: Final = 0.01

_SPAWNING: Final = 2
_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("afpool-spawning")

Ending: TypeAlias = Literal["exited", "terminated", "killed"]


class SpawnFailed(Exception):
    """The process could not be started. Nothing runs and no descriptor is open.

    Names the command and the reason; never arguments, directories or environment.
    """


@attrs.frozen
class CloseReport:
    """How a child ended.

    Attributes:
        ending: `exited` by itself, `terminated` by SIGTERM, `killed` by SIGKILL.
        returncode: The exit status, or the negative number of the signal; `None` where the kernel had not let
            it go in time.
    """

    ending: Ending
    returncode: int | None


class StdioProcess:
    """A running child, its two pipes and the end of its stderr. Made by `spawn`.

    Attributes:
        wire: Its standard input and output; closed by `aclose` and `kill_now`.
        pid: Its process id, and its group's.
    """

    __slots__ = (
        "_closed",
        "_closing",
        "_killed",
        "_popen",
        "_report",
        "_ring",
        "_seams",
        "_stderr",
        "_stderr_read",
        "pid",
        "wire",
    )

    def __init__(self, popen: subprocess.Popen[bytes], wire: PipeWire, stderr_fd: int, seams: Seams) -> None:
        self._popen = popen
        self._seams = seams
        self._stderr = stderr_fd
        self._stderr_read = False
        self._ring = bytearray()
        self._closing = False
        self._killed = False
        self._closed = trio.Event()
        self._report: CloseReport | None = None
        self.wire = wire
        self.pid = popen.pid

    @classmethod
    @trio.lowlevel.enable_ki_protection
    async def spawn(cls, config: StdioConfig, seams: Seams) -> StdioProcess:
        """Start the child.

        A checkpoint. The start itself is shielded, since it takes milliseconds and must not be left behind;
        cancelled meanwhile, the child is killed and reaped first.

        Raises:
            SpawnFailed: No such command, not executable, no such directory, or no resources for it.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True) as scope:
            process = await cls._spawn(config, seams)
            scope.shield = False
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
            except BaseException:
                await process.aclose(seams.now(), eof_grace=0, term_grace=0)
                raise
            return process
        raise AssertionError("nobody cancels this scope itself")

    @classmethod
    async def _spawn(cls, config: StdioConfig, seams: Seams) -> StdioProcess:
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
            if isinstance(error, OSError):
                # Without its cause: that one holds directories, and may hold more.
                raise SpawnFailed(_why_not(config, error)) from None
            raise
        stdin, stdout, stderr = ours
        return cls(popen, PipeWire(stdin, stdout), stderr, seams)

    @property
    def returncode(self) -> int | None:
        """`None` while it runs; else the exit status, or the negative number of the signal that ended it."""
        self._reap()
        return self._popen.returncode

    def stderr_tail(self) -> str:
        """The last 16 KiB of stderr, as the child wrote it; it may hold what the child was told."""
        return self._ring[-STDERR_KEPT:].decode("utf-8", errors="replace")

    async def run_stderr(self) -> None:
        """Drain stderr into the ring until its end, or until the process is closed. One task runs it.

        `aclose` drains it where nobody does; begun after that, this returns at once.
        """
        if self._closing:
            await trio.lowlevel.checkpoint()
        else:
            await self._drain_stderr()

    async def _drain_stderr(self) -> None:
        if self._stderr_read:
            raise trio.BusyResourceError("stderr is drained already")
        self._stderr_read = True
        try:
            while self._stderr >= 0:
                with contextlib.suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_readable(self._stderr)
                if not self._keep_stderr():
                    return
        finally:
            self._stderr_read = False

    async def wait(self) -> int:
        """Wait until the child has exited, reap it and kill what it left in its group. Any task may wait."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._reap():
            await self._exited()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return self._popen.returncode

    @trio.lowlevel.enable_ki_protection
    async def aclose(
        self, deadline: float, *, eof_grace: float = 2.0, term_grace: float = 2.0
    ) -> CloseReport:
        """End the child: close its stdin, then SIGTERM, then SIGKILL to its group; reap it; close the pipes.

        Close the link over `wire` first: what the child still writes is read here and dropped, so that it
        cannot block in a write. Shielded: it completes although its caller is cancelled. A second call waits
        for the first and gets the same report.

        Args:
            deadline: On trio's clock. Both graces shrink to fit in front of it.
            eof_grace: Seconds between the end of stdin and SIGTERM.
            term_grace: Seconds between SIGTERM and SIGKILL.
        """
        with trio.CancelScope(shield=True):
            if self._closing:
                await self._closed.wait()
            else:
                self._closing = True
                try:
                    self._report = await self._end(deadline, eof_grace, term_grace)
                finally:
                    self._close_pipes()
                    self._closed.set()
        assert self._report is not None
        return self._report

    def kill_now(self) -> None:
        """SIGKILL the group and close the pipes, without waiting; `wait` or `aclose` reaps the rest."""
        if not self._reap():
            self._killed = True
            self._signal(signal.SIGKILL)
            self._reap()
        self._close_pipes()

    async def _end(self, deadline: float, eof_grace: float, term_grace: float) -> CloseReport:
        budget = deadline - self._seams.now() - _REAP_SECONDS
        wanted = eof_grace + term_grace
        if wanted > 0 and budget < wanted:
            share = max(0.0, budget) / wanted
            eof_grace, term_grace = eof_grace * share, term_grace * share
        ending: Ending = "killed" if self._killed else "exited"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._discard_stdout)
            nursery.start_soon(self._log_stderr)
            self.wire.close_write()
            if not await self._gone_within(eof_grace):
                ending = "terminated"
                self._signal(signal.SIGTERM)
                if not await self._gone_within(term_grace):
                    ending = "killed"
                    self._signal(signal.SIGKILL)
                    await self._gone_within(_REAP_SECONDS)
            nursery.cancel_scope.cancel()
        self._keep_stderr()
        return CloseReport(ending, self._popen.returncode)

    async def _gone_within(self, seconds: float) -> bool:
        with trio.CancelScope(deadline=self._seams.now() + seconds):
            while not self._reap():
                await self._exited()
        return self._reap()

    async def _discard_stdout(self) -> None:
        # The link's reader has been told to stop; let it leave the wire first.
        await trio.lowlevel.checkpoint()
        while True:
            try:
                if not await self.wire.receive(_CHUNK):
                    return
            except Woken:
                continue
            except trio.BusyResourceError:
                await trio.sleep(_POLL_SECONDS)
            except WireClosed:
                return

    async def _log_stderr(self) -> None:
        # Whoever has drained it until now may be cancelled at any time while we close.
        while True:
            with contextlib.suppress(trio.BusyResourceError):
                return await self._drain_stderr()
            await trio.sleep(_POLL_SECONDS)

    def _keep_stderr(self) -> bool:
        """Take what stderr holds now, at most one chunk; say whether more may come."""
        if self._stderr < 0:
            return False
        try:
            chunk = os.read(self._stderr, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._ring += chunk[-STDERR_KEPT:]
        if len(self._ring) > 2 * STDERR_KEPT:
            del self._ring[:-STDERR_KEPT]
        return bool(chunk)

    async def _exited(self) -> None:
        """Wait until the leader has exited; it stays unreaped. Returns at once where it is reaped already."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            await trio.lowlevel.checkpoint()
        except OSError:
            # A sandbox may forbid it.
            await trio.sleep(_POLL_SECONDS)
        else:
            # One descriptor per waiter: two tasks cannot wait on the same one.
            try:
                await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)

    def _reap(self) -> bool:
        """Reap the leader if it has exited, and kill its group in the same step; say whether it is gone."""
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
            self._signal(signal.SIGKILL)
        return self._popen.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        # Only while the leader is not reaped, so the number is the group's. One that is empty, or that has
        # given itself to another user, is not ours to end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _close_pipes(self) -> None:
        self.wire.close()
        if self._stderr >= 0:
            fd, self._stderr = self._stderr, -1
            trio.lowlevel.notify_closing(fd)
            os.close(fd)


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
