"""The stores under test, with a clock that the test moves."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs

from afpool import Identity, Seams
from afpool.artifacts import MemoryArtifacts, RedisArtifacts, SqliteArtifacts
from afpool.artifacts.testing import StoreHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from afpool.artifacts import Retention

ADA = Identity("acme", "ada", "c1")
BOB = Identity("acme", "bob", "c1")


@attrs.define
class Clock:
    """Seconds since 1970, as the test says."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    @property
    def seams(self) -> Seams:
        return Seams(unix_now=self)


def memory_harness() -> StoreHarness:
    clock = Clock()

    @asynccontextmanager
    async def open_store(limits: Retention | None = None) -> AsyncIterator[MemoryArtifacts]:
        given = {} if limits is None else attrs.asdict(limits, filter=lambda _, value: value is not None)
        async with MemoryArtifacts(**given, seams=clock.seams) as store:
            yield store

    def corrupt(store: Any, scope: Identity, ref: str) -> None:
        (held,) = (held for held in store._scopes.values() if held.identity == scope)
        row = held.rows[ref]
        row.data = row.data[:-1] + bytes([row.data[-1] ^ 1])

    return StoreHarness(
        name="memory",
        open_store=open_store,
        open_bounded=open_store,
        advance_time=clock.advance,
        corrupt=corrupt,
    )


def sqlite_harness(folder: Path) -> StoreHarness:
    clock = Clock()
    opened: list[Path] = []

    @asynccontextmanager
    async def open_store(limits: Retention | None = None) -> AsyncIterator[SqliteArtifacts]:
        opened.append(folder / f"store{len(opened)}.db")
        given = {} if limits is None else attrs.asdict(limits)
        async with SqliteArtifacts(opened[-1], **given, seams=clock.seams) as store:
            yield store

    def corrupt(store: Any, scope: Identity, ref: str) -> None:
        import sqlite3

        with sqlite3.connect(store.path) as connection:
            ((row, data),) = connection.execute("SELECT id, data FROM artifacts WHERE ref = ?", (ref,))
            changed = data[:-1] + bytes([data[-1] ^ 1])
            connection.execute("UPDATE artifacts SET data = ? WHERE id = ?", (changed, row))
        connection.close()

    return StoreHarness(
        name="sqlite",
        open_store=open_store,
        open_bounded=open_store,
        advance_time=clock.advance,
        corrupt=corrupt,
    )


class RedisServer:
    """A Redis of the test's own, on a free port, without a trace on disk."""

    def __init__(self, *options: str) -> None:
        self.options = options
        for attempt in range(3):
            self.port = free_port()
            try:
                self.process = self._start()
            except AssertionError:  # somebody else was faster with that port
                if attempt == 2:
                    raise
            else:
                break

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _start(self) -> subprocess.Popen[str]:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        process = subprocess.Popen(
            [*command, "--appendonly", "no", "--dir", "/", "--daemonize", "no", *self.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ready to accept connections" in line:
                return process
        process.wait(10)
        process.stdout.close()
        raise AssertionError("redis-server did not get ready: " + "".join(said[-5:]))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def restart(self) -> None:
        self.stop()
        self.process = self._start()

    def suspend(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def redis_harness(url: str) -> StoreHarness:
    clock = Clock(time.time())

    @asynccontextmanager
    async def open_store(limits: Retention | None = None) -> AsyncIterator[RedisArtifacts]:
        given = {} if limits is None else attrs.asdict(limits)
        async with RedisArtifacts(url, prefix=new_prefix(), **given, clock=clock) as store:
            yield store

    async def corrupt(store: Any, scope: Identity, ref: str) -> None:
        key = store._keys(scope).payload(ref)
        last = await store._link.command(b"STRLEN", key) - 1
        (byte,) = await store._link.command(b"GETRANGE", key, last, last)
        await store._link.command(b"SETRANGE", key, last, bytes([byte ^ 1]))

    return StoreHarness(
        name="redis",
        open_store=open_store,
        open_bounded=open_store,
        advance_time=clock.advance,
        corrupt=corrupt,
    )


def new_prefix() -> str:
    return f"test:{uuid.uuid4().hex}"
