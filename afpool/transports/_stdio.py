"""A server as a child process: how it is spawned, what it may inherit, and how it is ended.

Rules, beside those of the child itself (`_child.py`):

* Nothing waits for the end of a pipe: a grandchild that left the group may hold one open for ever. What is
  waited for is the leader's exit, and each wait has a bound.
* stderr is a log and never evidence of an error. It is drained all the time, into a ring.
* The child inherits an allow-list of variables and what its configuration adds. A secret belongs into `env`
  and nowhere else: a command line can be read by every process of the machine.
* A start is not abandoned half-way: a child that nobody owns would be the result.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Final, Literal, TypeAlias

import attrs
import trio

from afpool._base.seams import Seams  # noqa: TC001
from afpool.transports._child import POLL_SECONDS, Child, SpawnFailed, start_child
from afpool.transports._stdio_config import StdioConfig
from afpool.transports._wire import WireClosed, Woken

__all__ = ["CloseReport", "Ending", "SpawnFailed", "StdioConfig", "StdioProcess"]

STDERR_KEPT: Final = 16 * 1024
"""Bytes of stderr that are kept."""

_CHUNK: Final = 64 * 1024
_LONGEST_POLL: Final = 0.5
_REAP_SECONDS: Final = 0.25
"""What is kept back for the time between SIGKILL and the exit, which only the kernel needs."""

Ending: TypeAlias = Literal["exited", "terminated", "killed"]


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
        "_child",
        "_closed",
        "_closing",
        "_killed",
        "_report",
        "_ring",
        "_seams",
        "_stderr_read",
        "pid",
        "wire",
    )

    def __init__(self, child: Child, seams: Seams) -> None:
        self._child = child
        self._seams = seams
        self._stderr_read = False
        self._ring = bytearray()
        self._closing = False
        self._killed = False
        self._closed = trio.Event()
        self._report: CloseReport | None = None
        self.wire = child.wire
        self.pid = child.pid

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
            process = cls(await start_child(config, seams), seams)
            scope.shield = False
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
            except BaseException:
                await process.aclose(seams.now(), eof_grace=0, term_grace=0)
                raise
            return process
        raise AssertionError("nobody cancels this scope itself")

    @property
    def returncode(self) -> int | None:
        """`None` while it runs; else the exit status, or the negative number of the signal that ended it."""
        self._child.reap()
        return self._child.returncode

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
            while True:
                with contextlib.suppress(trio.ClosedResourceError):
                    await self._child.stderr_readable()
                if not self._keep_stderr():
                    return
        finally:
            self._stderr_read = False

    async def wait(self) -> int:
        """Wait until the child has exited, reap it and kill what it left in its group. Any task may wait."""
        await trio.lowlevel.checkpoint_if_cancelled()
        pause = 0.0  # without a descriptor there is no way to wait: then it is not asked all the time
        while not self._child.reap():
            await trio.sleep(pause)
            await self._child.exited()
            pause = min(2 * pause + POLL_SECONDS, _LONGEST_POLL)
        await trio.lowlevel.cancel_shielded_checkpoint()
        code = self._child.returncode
        assert code is not None
        return code

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
                    self._child.close()
                    self._closed.set()
        assert self._report is not None
        return self._report

    def kill_now(self) -> None:
        """SIGKILL the group and close the pipes, without waiting; `wait` or `aclose` reaps the rest."""
        child = self._child
        if not child.reap():
            self._killed = True
            child.signal(signal.SIGKILL)
            child.reap()
        child.close()

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
            self._child.close_stdin()
            if not await self._gone_within(eof_grace):
                ending = "terminated"
                self._child.signal(signal.SIGTERM)
                if not await self._gone_within(term_grace):
                    ending = "killed"
                    self._child.signal(signal.SIGKILL)
                    await self._gone_within(_REAP_SECONDS)
            nursery.cancel_scope.cancel()
        self._keep_stderr()
        return CloseReport(ending, self._child.returncode)

    async def _gone_within(self, seconds: float) -> bool:
        with trio.CancelScope(deadline=self._seams.now() + seconds):
            while not self._child.reap():
                await self._child.exited()
        return self._child.reap()

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
                await trio.sleep(POLL_SECONDS)
            except WireClosed:
                return

    async def _log_stderr(self) -> None:
        # Whoever has drained it until now may be cancelled at any time while we close.
        while True:
            with contextlib.suppress(trio.BusyResourceError):
                return await self._drain_stderr()
            await trio.sleep(POLL_SECONDS)

    def _keep_stderr(self) -> bool:
        """Take what stderr holds now, at most one chunk; say whether more may come."""
        chunk = self._child.read_stderr(_CHUNK)
        if chunk is None:
            return True
        self._ring += chunk[-STDERR_KEPT:]
        if len(self._ring) > 2 * STDERR_KEPT:
            del self._ring[:-STDERR_KEPT]
        return bool(chunk)
