"""A process that is killed while it puts: no artifact is torn, and none that was acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from afpool import Identity
from afpool.artifacts import SqliteArtifacts

ROOT = Path(__file__).resolve().parents[2]

# Eight tasks put at once, of sizes from nothing to several hundred pages; what each put gave is written to
# the pipe, one write a line, after the put has returned.
CHILD = """
import os, sys, trio
from afpool import Identity
from afpool.artifacts import NewArtifact, SqliteArtifacts

async def putter(store, number):
    scope = Identity("acme", f"p{number % 2}", "c")
    turn = 0
    while True:
        size = [0, 10, 3000, 5000, 70_000, 900_000][(turn + number) % 6]
        data = bytes([turn % 256]) * size
        meta = await store.put(scope, NewArtifact(kind="k", media_type="a/b", data=data, digest="sha-256"))
        os.write(1, f"{number % 2} {meta.ref} {size} {turn % 256}\\n".encode())
        turn += 1

async def main():
    async with SqliteArtifacts(sys.argv[1], max_bytes_per_scope=int(sys.argv[2])) as store:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(putter, store, number)

trio.run(main)
"""


def kill_a_putter(file: Path, budget: int, after: int) -> list[tuple[int, str, int, int]]:
    """Let a child put, kill it when it has acknowledged `after` puts, and give all that it acknowledged."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(file), str(budget)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None
    lines: list[bytes] = []
    try:
        for line in child.stdout:
            lines.append(line)
            if len(lines) == after:
                child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait(30)
        child.stdout.close()
    assert child.returncode == -signal.SIGKILL
    assert len(lines) >= after
    acknowledged = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return [(int(scope), ref, int(size), int(byte)) for scope, ref, size, byte in acknowledged]


@pytest.mark.parametrize("seed", range(5))
async def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "store.db"
    dice = random.Random(seed)
    acknowledged: list[tuple[int, str, int, int]] = []
    for _ in range(2):  # the second one finds the log of the first
        kill = dice.randint(1, 60)
        acknowledged += await trio.to_thread.run_sync(kill_a_putter, file, 1 << 40, kill)
    with trio.fail_after(60):
        async with SqliteArtifacts(file) as store:
            for scope, ref, size, byte in acknowledged:
                found = await store.get(Identity("acme", f"p{scope}", "c"), ref)
                assert found is not None, "an acknowledged put is lost"
                assert found.data == bytes([byte]) * size
            await check_whole(store)


@pytest.mark.parametrize("seed", range(2))
async def test_the_limits_hold_over_a_kill(tmp_path: Path, seed: int) -> None:
    file, budget = tmp_path / "store.db", 2_000_000
    await trio.to_thread.run_sync(kill_a_putter, file, budget, random.Random(seed).randint(20, 60))
    with trio.fail_after(60):
        async with SqliteArtifacts(file) as store:
            for held in await check_whole(store):
                assert 0 < held <= budget


async def check_whole(store: SqliteArtifacts) -> list[int]:
    """Read everything that is listed, and compare the totals with the rows."""
    sizes: list[int] = []
    for scope in (0, 1):
        identity, cursor, held = Identity("acme", f"p{scope}", "c"), None, 0
        while True:
            page = await store.list(identity, cursor=cursor, limit=100)
            for meta in page.items:
                found = await store.get(identity, meta.ref)  # which checks the digest
                assert found is not None
                assert len(found.data) == meta.bytes
                held += meta.bytes
            cursor = page.cursor
            if cursor is None:
                break
        sizes.append(held)
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        noted = dict(connection.execute("SELECT name, bytes FROM scopes").fetchall())
        assert {f"acme/p{scope}/c": held for scope, held in enumerate(sizes) if held} == {
            name: size for name, size in noted.items() if size
        }
        orphans = "SELECT count(*) FROM uses WHERE id NOT IN (SELECT id FROM artifacts)"
        assert connection.execute(orphans).fetchone() == (0,)
    return sizes
