"""What artifact stores cost: puts into a SQLite file beside bare commits, pages of long lists, small gets.

    python benchmarks/artifacts.py [--seconds S] [--rounds N] [--listed N] [--redis]

All ratios are of one run on one machine: in every round the bare loops, one putter and sixteen putters take
turns on files beside each other, and the median round is judged.

* *bare* is what SQLite itself does on that disk with what a put writes: one row of 4 KB in the same table
  with the same indexes, one commit a row, the same settings of the log, `synchronous=FULL`. One putter keeps
  at least half of that rate, and sixteen make at least 5,000 puts a second, each acknowledged after the
  commit that holds it. A machine on which the bare loop makes less than 2,500 is not judged by that figure,
  but by twice the bare rate. *plain* is the same in a table with nothing but a unique ref: shown, not judged.
* A page of 50 out of a long list costs no more than twice a page out of a short one, wherever it starts.
* The time for a get and a put in memory is shown, and so is Redis where asked for; both are not judged.

Exit code 1 when something is not kept.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from compare import environment, write
from figures import Figure, tell

from afpool import Identity
from afpool.artifacts import MemoryArtifacts, NewArtifact, SqliteArtifacts
from afpool.artifacts._sqlite_file import LOG_PAGES, open_to_write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PAYLOAD = os.urandom(4096)
NEW = NewArtifact(kind="note", media_type="application/octet-stream", data=PAYLOAD)
ONE_OF_BARE = 0.5
SIXTEEN = 5000.0
BARE_ENOUGH = 2500.0
PAGE_RATIO = 2.0
SCOPES = [Identity("acme", f"p{number}", "c1") for number in range(16)]


def bare(file: Path, seconds: float) -> float:
    """Rows a second of the store's own table, one commit each."""
    with closing(open_to_write(file, busy_timeout=5.0)) as connection:
        scope = connection.execute("INSERT INTO scopes (name) VALUES (?)", (os.urandom(8).hex(),)).lastrowid

        def row(done: int) -> tuple[Any, ...]:
            ref = f"art_{os.urandom(11).hex()}"
            return scope, ref, NEW.kind, NEW.media_type, len(PAYLOAD), "binary", done, PAYLOAD

        return commits(
            connection,
            "INSERT INTO artifacts (scope, ref, kind, media_type, bytes, shape, created, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
            seconds,
        )


def plain(file: Path, seconds: float) -> float:
    """Rows a second of a table with nothing but a unique ref, one commit each."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, ref TEXT UNIQUE, data BLOB)"
        )
        insert = "INSERT INTO rows (ref, data) VALUES (?, ?)"
        return commits(connection, insert, lambda _: (os.urandom(11).hex(), PAYLOAD), seconds)


def commits(connection: sqlite3.Connection, insert: str, row: Callable[[int], Any], seconds: float) -> float:
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(insert, row(done))
        connection.execute("COMMIT")
        done += 1
    return done / (time.perf_counter() - began)


async def putters(store: Any, count: int, seconds: float) -> float:
    """Puts a second of so many tasks."""
    done, began = 0, time.perf_counter()

    async def work(scope: Identity) -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await store.put(scope, NEW)
            done += 1

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(work, SCOPES[number])
    return done / (time.perf_counter() - began)


async def sqlite_puts(folder: Path, seconds: float, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"plain": [], "bare": [], "one": [], "sixteen": []}
    async with SqliteArtifacts(folder / "store.db") as store:
        await putters(store, 16, seconds / 4)
        for _ in range(rounds):
            found["plain"].append(plain(folder / "plain.db", seconds))
            found["bare"].append(bare(folder / "bare.db", seconds))
            found["one"].append(await putters(store, 1, seconds))
            found["sixteen"].append(await putters(store, 16, seconds))
    return found


def judged_puts(found: dict[str, list[float]]) -> list[Figure]:
    """Give the puts beside what they are held to."""
    rates = {name: statistics.median(values) for name, values in found.items()}
    pairs = zip(found["one"], found["bare"], strict=True)
    ratio = statistics.median(one / raw for one, raw in pairs)
    wanted = SIXTEEN if rates["bare"] >= BARE_ENOUGH else 2 * rates["bare"]
    return [
        Figure("SQLite, commits of a plain table", rates["plain"], "/s"),
        Figure("SQLite, bare commits of the store's own table", rates["bare"], "/s"),
        Figure("one putter", rates["one"], "/s"),
        Figure("one putter, of bare commits", ratio, "x", ONE_OF_BARE, at_least=True),
        Figure("16 putters", rates["sixteen"], "/s", wanted, at_least=True),
    ]


async def fill(store: Any, scope: Identity, count: int) -> None:
    new = NewArtifact(kind="row", media_type="text/plain", data="")

    async def work(share: int) -> None:
        for _ in range(share):
            await store.put(scope, new)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(work, count // 20)


async def page_times(
    store: Any, starts: dict[str, tuple[Identity, Any, Any]], turns: int
) -> dict[str, float]:
    """Microseconds of a page of 50 from each start, the medians; the starts take turns."""
    taken: dict[str, list[float]] = {where: [] for where in starts}
    for _ in range(turns):
        for where, (scope, cursor, kind) in starts.items():
            began = time.perf_counter()
            page = await store.list(scope, cursor=cursor, kind=kind)
            taken[where].append(time.perf_counter() - began)
            assert len(page.items) == 50
    return {where: statistics.median(times) * 1e6 for where, times in taken.items()}


async def pages(name: str, store: Any, listed: int, turns: int) -> list[Figure]:
    """What pages cost, beside what they are held to."""
    short, long = SCOPES[0], SCOPES[1]
    await fill(store, short, 100)
    await fill(store, long, listed)
    cursors: list[str | None] = [None]
    while True:
        page = await store.list(long, cursor=cursors[-1])
        if page.cursor is None:
            break
        cursors.append(page.cursor)
    middle = cursors[len(cursors) // 2]
    starts = {
        "short": (short, None, None), "first": (long, None, None), "middle": (long, middle, None),
        "last": (long, cursors[-1], None), "of a kind": (long, middle, "row"),
    }  # fmt: skip
    times = await page_times(store, starts, turns)
    base = times.pop("short")
    figures = [Figure(f"{name}, a page of 50 out of 100", base, "us")]
    figures += [
        Figure(f"{name}, the same out of {listed:,}, {where}", taken, "us", PAGE_RATIO * base)
        for where, taken in times.items()
    ]
    return figures


async def small(name: str, store: Any, turns: int) -> list[Figure]:
    """What a small get and put cost."""
    new = NewArtifact(kind="note", media_type="application/json", data={"rows": [1, 2, 3], "of": "interest"})
    scope = SCOPES[2]
    meta = await store.put(scope, new)
    began = time.perf_counter()
    for _ in range(turns):
        await store.get(scope, meta.ref)
    got = time.perf_counter()
    for _ in range(turns):
        await store.put(scope, new)
    put = time.perf_counter()
    return [
        Figure(f"{name}, a small get", (got - began) / turns * 1e6, "us"),
        Figure(f"{name}, a small put", (put - got) / turns * 1e6, "us"),
    ]


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[Any]:
    """A store in a Redis of this run's own, over a Unix socket."""
    from afpool.artifacts import RedisArtifacts

    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 -- before anything runs
    try:
        assert process.stdout is not None
        assert any("ready to accept" in line.lower() for line in process.stdout)
        async with RedisArtifacts(f"unix://{socket}") as store:
            yield store
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()  # type: ignore[union-attr]


async def measure(folder: Path, rounds: int, seconds: float, listed: int, with_redis: bool) -> list[Figure]:
    turns = max(5, int(200 * seconds))
    found = await sqlite_puts(folder, seconds, rounds)
    figures = judged_puts(found)
    async with MemoryArtifacts(max_count_per_scope=listed + 1000) as store:
        figures += await pages("memory", store, listed, turns)
        figures += await small("memory", store, 20 * turns)
    async with SqliteArtifacts(folder / "listed.db") as store:
        figures += await pages("SQLite", store, listed, turns)
        figures += await small("SQLite", store, turns)
    if with_redis:
        async with redis(folder) as store:
            figures += await pages("Redis", store, listed, turns)
            figures += await small("Redis", store, turns)
    write("artifacts", found)
    return figures


def measured(rounds: int, *, seconds: float, listed: int, with_redis: bool) -> list[Figure]:
    """Give all figures."""
    # beside the checkout: a temporary directory may be memory, which has no disk to wait for
    with tempfile.TemporaryDirectory(
        prefix="bench-artifacts-", dir=Path(__file__).resolve().parent
    ) as folder:
        return trio.run(measure, Path(folder), rounds, seconds, listed, with_redis)


def main() -> int:
    parser = argparse.ArgumentParser(description="What artifact stores cost.")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement of puts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--listed", type=int, default=10_000, help="artifacts in the long list")
    parser.add_argument("--redis", action="store_true", help="measure a Redis as well")
    options = parser.parse_args()
    what = environment()
    print(f"Python {what['python']}, {what['processors']} processors, load {what['load']:.1f}")
    return tell(
        measured(options.rounds, seconds=options.seconds, listed=options.listed, with_redis=options.redis)
    )


if __name__ == "__main__":
    sys.exit(main())
