"""Disks that are full, read-only, gone: artifacts, records, tokens, what was typed.

What was acknowledged is there, what was not is not, nothing is torn, and all goes on when the disk does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Server
from afpool.artifacts import (
    ArtifactStoreError,
    NewArtifact,
    SqliteArtifacts,
    UnreadableArtifactStoreError,
)
from afpool.cli.console._history import History
from afpool.record import JsonlSettings, RecordSettings
from afpool.record._jsonl import JsonlFile
from afpool.record._queue import Block
from afpool.serve._tokens import TokenFile
from afpool.serve._tokens_file import TokenFileError
from afpool.testing import FakeServer
from tests.realfaults.local.disk_kit import small_disk
from tests.realfaults.local.local_kit import ALICE, open_fds, until

if TYPE_CHECKING:
    from pathlib import Path

SCOPE = Identity(tenant="acme", principal="alice", conversation_id="c-1")


def note(number: int, size: int) -> NewArtifact:
    return NewArtifact(
        kind="note", media_type="text/plain", data=f"{number:06d}" + "x" * size, digest="sha-256"
    )


async def put(store: SqliteArtifacts, number: int, size: int) -> str | None:
    """Give the ref, or `None` where the put was refused by name."""
    try:
        with trio.fail_after(20):
            return (await store.put(SCOPE, note(number, size))).ref
    except ArtifactStoreError as error:
        return None if error.code == "ERR_ARTIFACT_STORE" else f"refused for {error.code}"


async def holds(store: SqliteArtifacts, kept: dict[str, int]) -> None:
    """Exactly these artifacts are there, each whole."""
    refs: list[str] = []
    cursor = None
    while True:
        page = await store.list(SCOPE, cursor=cursor)
        refs += [meta.ref for meta in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(refs) == sorted(kept)
    for ref, number in kept.items():
        found = await store.get(SCOPE, ref)
        assert found is not None
        assert found.data.startswith(f"{number:06d}")


@pytest.mark.parametrize("limits", [{}, {"max_count_per_scope": 1000}], ids=["unbounded", "bounded"])
async def test_an_artifact_that_finds_no_room_is_refused_whole(limits: dict[str, Any], tmp_path: Path):
    kept: dict[str, int] = {}
    with small_disk(tmp_path / "disk", 2**21) as disk:
        async with SqliteArtifacts(disk.path / "a.db", **limits) as store:
            for number in range(5):
                ref = await put(store, number, 20_000)
                assert ref is not None
                kept[ref] = number
            disk.fill(leave=100_000)
            failed = 0
            async with trio.open_nursery() as nursery:

                async def one(number: int) -> None:
                    nonlocal failed
                    ref = await put(store, number, [10, 5_000, 40_000][number % 3])
                    if ref is None:
                        failed += 1
                    else:
                        kept[ref] = number

                for number in range(10, 50):
                    nursery.start_soon(one, number)
            assert failed > 0
            await holds(store, kept)
            disk.free()
            for number in range(100, 105):
                ref = await put(store, number, 20_000)
                assert ref is not None
                kept[ref] = number
            await holds(store, kept)
        async with SqliteArtifacts(disk.path / "a.db") as store:
            await holds(store, kept)


async def test_a_store_that_is_closed_and_opened_on_a_full_disk(tmp_path: Path):
    with small_disk(tmp_path / "disk", 2**21) as disk:
        async with SqliteArtifacts(disk.path / "a.db") as store:
            ref = await put(store, 1, 50_000)
            assert ref is not None
            disk.fill(leave=0)
            assert await put(store, 2, 50_000) is None
        try:
            async with SqliteArtifacts(disk.path / "a.db") as store:
                await holds(store, {ref: 1})
        except (ArtifactStoreError, UnreadableArtifactStoreError):
            pass  # its shared memory finds no room: refused by name, and the file is as it was
        disk.free()
        async with SqliteArtifacts(disk.path / "a.db") as store:
            await holds(store, {ref: 1})


@pytest.mark.parametrize("gone", ["file", "directory"])
async def test_a_store_whose_file_was_taken_away_acknowledges_nothing(gone: str, tmp_path: Path):
    """What is written to a file without a name is lost with the process: it is refused, not acknowledged."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    moved = home if gone == "directory" else home / "a.db"
    to = away if gone == "directory" else home / "elsewhere.db"
    async with SqliteArtifacts(home / "a.db", readers=1) as store:
        first = await put(store, 1, 10)
        assert first is not None
        moved.rename(to)
        with pytest.raises(ArtifactStoreError, match="moved away or removed") as caught:
            await store.put(SCOPE, note(2, 10))
        assert caught.value.delivery == "not-sent"
        with pytest.raises(ArtifactStoreError):
            await store.delete(SCOPE, first)
        # a reader that has to be opened makes no new file in its place
        with pytest.raises(ArtifactStoreError, match="reading"):
            await store.get(SCOPE, first)
        assert not (home / "a.db").exists()
        to.rename(moved)
        second = await put(store, 3, 10)
        assert second is not None
        await holds(store, {first: 1, second: 3})
        if gone == "directory":
            home.rename(away)
            home.mkdir()
            assert await put(store, 4, 10) is None
    where = away if gone == "directory" else home
    async with SqliteArtifacts(where / "a.db") as store:
        await holds(store, {first: 1, second: 3})


async def test_a_store_on_a_disk_that_becomes_read_only(tmp_path: Path):
    with small_disk(tmp_path / "disk", 2**21) as disk:
        async with SqliteArtifacts(disk.path / "a.db") as store:
            first = await put(store, 1, 10)
            assert first is not None
        with disk.read_only():
            try:
                async with SqliteArtifacts(disk.path / "a.db") as store:
                    written = await put(store, 2, 10)
                    assert written is None or not disk.mounted  # root writes whatever the mode
            except UnreadableArtifactStoreError:
                pass  # so it is refused as well
        async with SqliteArtifacts(disk.path / "a.db") as store:
            assert await store.get(SCOPE, first) is not None
            assert await put(store, 3, 10) is not None


async def test_a_writer_that_has_no_memory_answers_and_goes_on(tmp_path: Path, monkeypatch):
    """SQLite's own lack of memory is no `sqlite3.Error`; the one thread that writes must outlive it."""

    class Starved:
        """A connection that has no memory at one statement."""

        def __init__(self, inner: Any, statement: str) -> None:
            self.inner, self.statement, self.left = inner, statement, 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def execute(self, statement: str, *arguments: Any) -> Any:
            if self.left and statement.startswith(self.statement):
                self.left -= 1
                raise MemoryError
            return self.inner.execute(statement, *arguments)

    for number, statement in enumerate(["BEGIN", "INSERT INTO artifacts", "COMMIT", "ROLLBACK"]):
        async with SqliteArtifacts(tmp_path / f"{number}.db", timeout=5) as store:
            writer = store._writer
            assert writer is not None
            kept: dict[str, int] = {}
            real = writer._connection
            starved = Starved(real, statement)
            writer._connection = starved  # type: ignore[assignment]
            if statement == "ROLLBACK":
                monkeypatch.setattr(Starved, "in_transaction", True, raising=False)
                starved = Starved(Starved(real, "COMMIT"), "ROLLBACK")
                writer._connection = starved  # type: ignore[assignment]
            assert await put(store, 1, 10) is None
            if real.in_transaction:
                real.execute("ROLLBACK")
            writer._connection = real
            ref = await put(store, 2, 10)
            assert ref is not None
            kept[ref] = 2
            await holds(store, kept)


async def test_records_wait_for_a_disk_and_no_call_does(tmp_path: Path):
    """Full, then read-only, then without its directory; each time the records that fit are written later."""
    before = open_fds()
    with small_disk(tmp_path / "disk", 2**19) as disk:
        folder = disk.path / "records"
        folder.mkdir()
        path = folder / "calls.jsonl"
        async with FakeServer.http() as server:
            plan = Plan(transport=HttpTransport(url=server.url))
            record = RecordSettings(jsonl=JsonlSettings(path=path, max_bytes=200_000))
            async with afpool.open_runtime(
                servers=[Server(name="files", plan=plan)], record=record
            ) as runtime:
                toolset = await runtime.toolset(ALICE)
                made = 0

                async def call(times: int) -> None:
                    nonlocal made
                    for _ in range(times):
                        with trio.fail_after(10):
                            result = await toolset.call("echo", {"n": made}, call_id=f"call-{made}")
                        assert not result.is_error
                        made += 1

                (sink,) = runtime.sinks._queued

                async def troubled() -> None:
                    await until(lambda: sink.state.trouble is not None)

                async def well() -> None:
                    await until(lambda: sink.state.queued == 0 and sink.state.trouble is None, 40)

                await call(5)
                await well()
                disk.fill(leave=0)
                await call(60)
                await troubled()
                disk.free()
                await well()
                folder.rename(disk.path / "elsewhere")
                await call(5)
                await troubled()
                (disk.path / "elsewhere").rename(folder)
                await well()
        rows = [json.loads(row) for row in path.read_bytes().splitlines()]
        ids = [row["call_id"] for row in rows if row["kind"] == "call"]
        assert ids == [f"call-{number}" for number in range(made)]
    assert open_fds() == before


def test_a_file_that_cannot_be_put_beside_pushes_no_older_one_out(tmp_path: Path, monkeypatch):
    """A single file that is mounted cannot be renamed: every try to rotate it must leave the others alone."""
    path = tmp_path / "calls.jsonl"
    file = JsonlFile(path, max_bytes=4096, keep=4, fsync="never")
    line = b"x" * 1999 + b"\n"
    for _ in range(6):
        assert not file.write([Block(line, 1)]).rest
    older = {name: (tmp_path / name).read_bytes() for name in ("calls.jsonl.1", "calls.jsonl.2")}
    mounted = (
        subprocess.run(["mount", "--bind", path, path], check=False, capture_output=True).returncode == 0
    )
    if not mounted:
        real = type(path).replace

        def refuse(self: Path, target: Path) -> Path:
            if self.name == path.name:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            return real(self, target)

        monkeypatch.setattr(type(path), "replace", refuse)
    try:
        for _ in range(6):
            told = file.write([Block(line, 1)])
            assert (told.trouble or "").startswith("EBUSY")
    finally:
        if mounted:
            subprocess.run(["umount", path], check=True)
        else:
            monkeypatch.undo()
    found = sorted(one.read_bytes() for one in tmp_path.iterdir())
    assert len(found) == 3
    assert all(data in found for data in older.values())
    assert not file.write([Block(line, 1)]).rest
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "calls.jsonl", "calls.jsonl.1", "calls.jsonl.2", "calls.jsonl.3",
    ]  # fmt: skip
    file.close()


def test_what_was_typed_is_kept_in_whole_lines(tmp_path: Path):
    with small_disk(tmp_path / "disk", 2**18) as disk:
        path = disk.path / "history"
        history = History(path)
        lines = [f"actors --where {number} " + "y" * 200 for number in range(100)]
        assert all(history.add(line) for line in lines[:20])
        disk.fill(leave=100)
        for line in lines[20:60]:
            assert history.add(line)
        disk.free()
        for line in lines[60:]:
            assert history.add(line)
        kept = History(path).load()
        assert set(kept) <= set(lines)
        assert kept[:20] == lines[:20]
        assert kept[-40:] == lines[60:]
        # one that has grown too long is not cut on a full disk, and leaves nothing beside it
        path.write_text("".join(f"line {number}\n" for number in range(2500)), encoding="utf-8")
        disk.fill(leave=4096)
        assert len(History(path).load()) == 1000
        assert sorted(one.name for one in disk.path.iterdir()) in (["ballast", "history"], ["history"])
        disk.free()


def test_a_token_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path):
    with small_disk(tmp_path / "disk", 2**18) as disk:
        file = TokenFile(disk.path / "tokens.json")
        for number in range(20):
            file.new(ALICE, f"token {number}")
        before = (disk.path / "tokens.json").read_bytes()
        if disk.mounted:
            disk.fill(leave=0)
        else:
            disk.fill(leave=-1000)
        with pytest.raises(TokenFileError):
            file.new(ALICE, "one more")
        disk.free()
        assert (disk.path / "tokens.json").read_bytes() == before
        assert not [one.name for one in disk.path.iterdir() if one.name.startswith(".tokens.json.") and
                    not one.name.endswith(".lock")]  # fmt: skip
        file.new(ALICE, "one more")


async def test_a_disk_without_another_file_to_give(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """No inode is left: what opens no file goes on; a file that is full waits for its successor."""
    caplog.set_level(logging.ERROR)
    with small_disk(tmp_path / "disk", 2**20, inodes=8) as disk:
        if not disk.mounted:
            disk.path.joinpath("0").touch()
        file = JsonlFile(disk.path / "calls.jsonl", max_bytes=4096, keep=1, fsync="rotate")
        line = b"x" * 1999 + b"\n"
        assert not file.write([Block(line, 1), Block(line, 1)]).rest
        async with SqliteArtifacts(disk.path / "a.db") as store:
            kept: dict[str, int] = {}
            ref = await put(store, 1, 10)
            assert ref is not None
            kept[ref] = 1
            for number in range(20 if disk.mounted else 0):
                with contextlib.suppress(OSError):  # as many as there is room for
                    (disk.path / f"{number}").touch()
            if disk.mounted:
                told = file.write([Block(line, 1)])
                assert (told.trouble or "").startswith("ENOSPC")
                assert len(told.rest) == 1
            ref = await put(store, 2, 10)
            assert ref is not None
            kept[ref] = 2
            await holds(store, kept)
        (disk.path / "0").unlink()
        assert not file.write([Block(line, 1)]).rest
        rows = [one.read_bytes().count(b"\n") for one in sorted(disk.path.glob("calls.jsonl*"))]
        assert sum(rows) == 3
        file.close()
    assert not caplog.records
