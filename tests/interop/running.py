"""A real server that listens: started, awaited by its ready line, killed, started again at its address."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trio

from tests.interop.catalogue import filled, places

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.interop.catalogue import Row

READY_WITHIN = 30.0


class NotStartedError(Exception):
    """A server did not get ready; the message holds what it said."""


@contextlib.contextmanager
def folder_of(row: Row, scratch: Path) -> Iterator[Path]:
    """A folder of the server's own, with a file that it may read, after what its entry wants done first.

    Raises:
        NotStartedError: That failed.
    """
    folder = scratch / "-".join(row.key).replace(" ", "_")
    folder.mkdir()
    (folder / "greeting.txt").write_text("hello\n", encoding="utf-8")
    if row.entry.setup:
        command = filled(row.entry.setup, places(folder, 0))
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)
        if done.returncode:
            raise NotStartedError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    yield folder


class Listening:
    """A server that listens on loopback. `url` is its endpoint, the same after `restart`."""

    def __init__(self, row: Row, folder: Path, nursery: trio.Nursery) -> None:
        self._row = row
        self._folder = folder
        self._nursery = nursery
        self._process: trio.Process | None = None
        self._said: deque[str] = deque(maxlen=20)
        self.url = ""

    async def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            NotStartedError: It did not within 30 s.
        """
        port = urlsplit(self.url).port if self.url else 0
        where = places(self._folder, port or 0)
        ready = trio.Event()
        self._process = await trio.lowlevel.open_process(
            filled(self._row.entry.over[self._row.transport], where),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env={**os.environ, **filled(self._row.entry.env, where)},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._nursery.start_soon(self._read, self._process.stdout, ready)
        with trio.move_on_after(READY_WITHIN):
            await ready.wait()
        if not self.url:
            raise NotStartedError(f"{self._row.entry.name} did not get ready: {list(self._said)}")

    async def _read(self, stdout: trio.abc.ReceiveStream, ready: trio.Event) -> None:
        # To the end, since a server whose pipe is full stops answering.
        rest = b""
        with contextlib.suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            async for chunk in stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line.decode(errors="replace").rstrip(), ready)
        ready.set()

    def _take(self, line: str, ready: trio.Event) -> None:
        self._said.append(line)
        if line.startswith(("ready http", "ready ws")):
            url = urlsplit(line.split()[1])
            path = "/sse" if self._row.transport == "sse" else "/mcp"
            self.url = url._replace(path=path).geturl()
            ready.set()

    async def kill(self) -> None:
        """Kill it with all that it started, and reap it."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                await pipe.aclose()

    async def restart(self) -> None:
        """Kill it and start it again at the same address."""
        await self.kill()
        await self.start()


@contextlib.asynccontextmanager
async def listening(row: Row, folder: Path) -> AsyncIterator[Listening]:
    """Run a server for the time of the block.

    Raises:
        NotStartedError: It did not get ready.
    """
    async with trio.open_nursery() as nursery:
        server = Listening(row, folder, nursery)
        try:
            await server.start()
            yield server
        finally:
            with trio.CancelScope(shield=True):
                await server.kill()
            nursery.cancel_scope.cancel()
