"""A file of records: rotation, torn lines, full disks, and whatever may stand where the file should."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from afpool.record import JsonlSettings
from afpool.record._jsonl import JsonlFile
from afpool.record._queue import Block
from afpool.record._sinks import jsonl_sink
from tests.record.sink_kit import Source, settled, use

if TYPE_CHECKING:
    from collections.abc import Iterator


def line(number: int, length: int = 20) -> bytes:
    return b'{"n":%0*d}\n' % (max(1, length - 7), number)


def blocks(*lines: bytes, each: int = 1) -> list[Block]:
    """The lines, so many to a block."""
    return [
        Block(b"".join(lines[start : start + each]), len(lines[start : start + each]))
        for start in range(0, len(lines), each)
    ]


def write(file: JsonlFile, lines: list[bytes], each: int = 1) -> tuple[int, str | None]:
    """How many of the lines need not be written again, and what the trouble was."""
    told = file.write(blocks(*lines, each=each))
    left = b"".join(block.data for block in told.rest)
    assert sum(block.records for block in told.rest) == left.count(b"\n")
    assert b"".join(lines).endswith(left)
    return len(lines) - left.count(b"\n"), told.trouble


def numbers(*files: Path) -> list[int]:
    return [json.loads(b'{"n":' + row[5:-1].lstrip(b"0").rjust(1, b"0") + b"}")["n"]
            for file in files for row in file.read_bytes().splitlines()]  # fmt: skip


def opened(path: Path, **options: Any) -> JsonlFile:
    return JsonlFile(path, **{"max_bytes": 4096, "keep": 2, "fsync": "rotate", **options})


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[tuple[Path, int]]:
    """A disk that has room for 64 KiB, and what it says when it is full.

    Where none can be mounted: files of which none may be longer than that.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
    if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
        try:
            yield folder, errno.ENOSPC
        finally:
            subprocess.run(["umount", folder], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    try:
        yield folder, errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_lines_are_appended_for_their_owner_only(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(line(0))
    path.chmod(0o644)
    file = opened(path)
    assert write(file, [line(1), line(2)])[0] == 2
    assert write(file, [line(3)]) == (1, None)
    file.close()
    assert numbers(path) == [0, 1, 2, 3]
    assert path.stat().st_mode & 0o7777 == 0o600
    os.umask(os.umask(0o022))
    fresh = tmp_path / "fresh.jsonl"
    other = opened(fresh)
    write(other, [line(1)])
    other.close()
    assert fresh.stat().st_mode & 0o7777 == 0o600


def test_files_that_grew_too_long_stand_beside_it_numbered(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    file = opened(path, max_bytes=100, keep=2)
    for start in range(0, 30, 3):
        assert write(file, [line(number) for number in range(start, start + 3)])[0] == 3
    file.close()
    assert sorted(found.name for found in tmp_path.iterdir()) == [
        "calls.jsonl",
        "calls.jsonl.1",
        "calls.jsonl.2",
    ]
    found = numbers(tmp_path / "calls.jsonl.2", tmp_path / "calls.jsonl.1", path)
    assert found == list(range(30 - len(found), 30))
    assert all(each.stat().st_size <= 100 for each in tmp_path.iterdir())
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in tmp_path.iterdir())


def test_a_record_longer_than_a_file_has_one_of_its_own(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    file = opened(path, max_bytes=100)
    assert write(file, [line(1), line(2, 300), line(3)])[0] == 3
    file.close()
    assert numbers(tmp_path / "calls.jsonl.2", tmp_path / "calls.jsonl.1", path) == [1, 2, 3]


def test_without_older_files_it_begins_anew(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    file = opened(path, max_bytes=100, keep=0)
    write(file, [line(number) for number in range(13)])
    file.close()
    assert [each.name for each in tmp_path.iterdir()] == ["calls.jsonl"]
    assert numbers(path) == [10, 11, 12]


@given(
    st.lists(st.lists(st.integers(12, 150), max_size=6), max_size=12),
    st.integers(60, 300),
    st.integers(0, 3),
    st.integers(0, 11),
    st.integers(1, 4),
)
def test_of_whatever_is_written_the_newest_stands_whole_in_order(
    batches: list[list[int]], most: int, keep: int, again: int, each: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.jsonl"
        file = opened(path, max_bytes=most, keep=keep, fsync="never")
        written = 0
        for count, batch in enumerate(batches):
            if count == again:  # another process goes on where this one ends
                file.close()
                file = opened(path, max_bytes=most, keep=keep, fsync="never")
            lines = [line(written + number, length) for number, length in enumerate(batch)]
            assert write(file, lines, each)[0] == len(lines)
            written += len(lines)
        file.close()
        files = [path.with_name(f"calls.jsonl.{number}") for number in range(keep, 0, -1)]
        files = [each for each in [*files, path] if each.exists()]
        assert len(list(Path(folder).iterdir())) == len(files) <= keep + 1
        found = numbers(*files)
        assert found == list(range(written - len(found), written))
        for found_at in files:
            rows = found_at.read_bytes().splitlines(keepends=True)
            assert all(row.endswith(b"\n") for row in rows)
            assert found_at.stat().st_size <= most or len(rows) == 1


def test_a_torn_line_costs_itself_only(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(line(1) + b'{"n":00')
    file = opened(path)
    assert write(file, [line(2)])[0] == 1
    assert write(file, [line(3)])[0] == 1
    file.close()
    rows = path.read_bytes().splitlines()
    assert rows[1] == b'{"n":00'
    assert [rows[0], *rows[2:]] == [line(number).rstrip() for number in (1, 2, 3)]


CHILD = """
import sys
from afpool.record._jsonl import JsonlFile
from afpool.record._queue import Block
file = JsonlFile(sys.argv[1], max_bytes=10**9, keep=1, fsync="never")
number = 0
while True:
    lines = b"".join(b'{"n":%d,"x":"%s"}\\n' % (number + more, b"x" * 3000) for more in range(50))
    file.write([Block(lines, 50)])
    number += 50
    if number == 500:
        print("begun", flush=True)
"""


def test_killed_while_it_writes_the_next_start_begins_a_new_line(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        child.send_signal(signal.SIGKILL)
    file = opened(path, max_bytes=10**9)
    write(file, [b'{"n":"after"}\n'])
    file.close()
    rows = path.read_bytes().splitlines()
    assert json.loads(rows[-1]) == {"n": "after"}
    whole, torn = [], 0
    for row in rows[:-1]:
        try:
            whole.append(json.loads(row)["n"])
        except ValueError:
            torn += 1
    assert torn <= 1
    assert whole == list(range(len(whole)))


def test_a_full_disk_keeps_whole_lines_and_says_how_many(tmp_path) -> None:
    with full_disk(tmp_path / "disk") as (folder, full):
        path = folder / "calls.jsonl"
        file = opened(path, max_bytes=10**9, fsync="always")
        lines = [line(number, 1000) for number in range(100)]
        told = write(file, lines, each=64)
        done, trouble = told
        assert trouble == f"{errno.errorcode[full]}: {os.strerror(full)}"
        assert 0 < done < 100
        assert numbers(path) == list(range(done))
        assert write(file, lines[done:])[0] == 0
        os.truncate(path, 0)  # somebody makes room
        assert write(file, lines[done : done + 20]) == (20, None)
        assert numbers(path) == list(range(done, done + 20))
        file.close()


def test_a_file_that_may_not_grow(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    file = opened(path, max_bytes=10**9)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5500, before[1]))
    try:
        told = write(file, [line(number, 1000) for number in range(20)])
        again = write(file, [line(5, 1000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (told[0], again[0]) == (5, 0)
    assert (told[1] or "").startswith("EFBIG")
    assert write(file, [line(5, 1000)])[0] == 1
    file.close()
    assert numbers(path) == list(range(6))


def test_where_a_torn_line_cannot_be_cut_off_the_next_one_is_on_its_own(tmp_path, monkeypatch) -> None:
    path = tmp_path / "calls.jsonl"
    file = opened(path, max_bytes=10**9)
    written: list[int] = []
    real = os.write

    def short(fd: int, data: memoryview) -> int:
        if len(written) == 1:
            raise OSError(errno.ENOSPC, "full")
        written.append(real(fd, bytes(data)[:30]))
        return written[-1]

    def no(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "write", short)
    monkeypatch.setattr(os, "ftruncate", no)
    assert write(file, [line(1), line(2), line(3)])[0] == 1
    monkeypatch.undo()
    assert write(file, [line(2), line(3)])[0] == 2
    file.close()
    rows = path.read_bytes().splitlines(keepends=True)
    assert [rows[0], *rows[2:]] == [line(1), line(2), line(3)]
    assert rows[1] == line(2)[:10] + b"\n"


def trouble_of(file: JsonlFile) -> str:
    done, trouble = write(file, [line(1)])
    assert done == 0
    assert trouble is not None
    return trouble


def test_what_is_no_file_for_records(tmp_path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    folder = tmp_path / "folder"
    folder.mkdir()
    real = tmp_path / "real"
    real.write_bytes(b"precious")
    link = tmp_path / "link"
    link.symlink_to(real)
    assert trouble_of(opened(fifo)) == "what stands at its path is no regular file"
    assert trouble_of(opened(Path("/dev/full"))) == "what stands at its path is no regular file"
    assert trouble_of(opened(folder)).startswith("EISDIR")
    assert trouble_of(opened(link)).startswith("ELOOP")
    assert real.read_bytes() == b"precious"
    assert trouble_of(opened(tmp_path / "nowhere" / "x")).startswith("ENOENT")
    for told in (trouble_of(opened(tmp_path / "nowhere" / "x")), trouble_of(opened(folder))):
        assert str(tmp_path) not in told


def test_a_reader_of_a_fifo_changes_nothing(tmp_path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert trouble_of(opened(fifo)) == "what stands at its path is no regular file"
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_a_file_that_another_process_writes_is_left_alone(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        file = opened(path)
        assert trouble_of(file) == "another process writes this file"
        assert path.stat().st_size == 0
    assert write(file, [line(1)])[0] == 1
    file.close()


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    file = opened(path)
    write(file, [line(1)])
    path.rename(tmp_path / "elsewhere")
    write(file, [line(2)])
    path.unlink()
    write(file, [line(3)])
    file.close()
    assert numbers(tmp_path / "elsewhere") == [1]
    assert numbers(path) == [3]


def test_a_folder_that_vanishes_is_trouble_until_it_is_back(tmp_path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = opened(folder / "calls.jsonl")
    write(file, [line(1)])
    folder.rename(tmp_path / "gone")
    assert trouble_of(file).startswith("ENOENT")
    (tmp_path / "logs").write_bytes(b"now it is a file")
    assert trouble_of(file).startswith("ENOTDIR")
    (tmp_path / "logs").unlink()
    folder.mkdir()
    assert write(file, [line(2)])[0] == 1
    file.close()
    assert numbers(tmp_path / "gone" / "calls.jsonl") == [1]
    assert numbers(folder / "calls.jsonl") == [2]


def test_a_rotation_that_fails_is_trouble_and_bounds_the_file(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    (tmp_path / "calls.jsonl.1").mkdir()
    (tmp_path / "calls.jsonl.1" / "x").mkdir()
    file = opened(path, max_bytes=100, keep=1)
    told = write(file, [line(number) for number in range(8)])
    assert told[0] == 5
    assert told[1] is not None
    assert path.stat().st_size == 100
    (tmp_path / "calls.jsonl.1" / "x").rmdir()
    (tmp_path / "calls.jsonl.1").rmdir()
    assert write(file, [line(number) for number in range(5, 8)])[0] == 3
    file.close()
    assert numbers(tmp_path / "calls.jsonl.1", path) == list(range(8))


@pytest.mark.parametrize(("fsync", "synced"), [("never", 0), ("rotate", 3), ("always", 5)])
def test_the_disk_is_asked_as_often_as_configured(tmp_path, monkeypatch, fsync, synced) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "fsync", asked.append)
    file = opened(tmp_path / "calls.jsonl", max_bytes=100, fsync=fsync)
    write(file, [line(1)])
    write(file, [line(number) for number in range(6)])  # one rotation: the file and its folder
    file.close()
    assert len(asked) == synced


# ---------------------------------------------------------------------------- behind the queue


async def test_calls_and_events_in_a_file(autojump_clock, tmp_path) -> None:
    source = Source()
    sink = jsonl_sink(JsonlSettings(path=tmp_path / "calls.jsonl"), seams=source.seams)
    sink.attach(source)
    async with trio.open_nursery() as nursery:
        sink.begin(nursery)
        for number in range(100):
            source.records.file(use(f"call-{number}", code="t\ud83d" if number == 50 else None))
        source.records.event("evicted", "k:0123456789ab", "search", client=4)
        await sink.aclose()
    rows = [json.loads(row) for row in (tmp_path / "calls.jsonl").read_bytes().splitlines()]
    assert [row["call_id"] for row in rows[:-1]] == [f"call-{number}" for number in range(100)]
    assert rows[50]["code"] == "t\ud83d"
    assert rows[-1]["kind"] == "evicted"
    assert sink.state.written == 101


async def test_a_full_disk_costs_records_and_never_a_call(autojump_clock, tmp_path, caplog) -> None:
    source = Source()
    with full_disk(tmp_path / "disk") as (folder, full):
        path = folder / "calls.jsonl"
        sink = jsonl_sink(JsonlSettings(path=path, queue=50), seams=source.seams)
        sink.attach(source)
        async with trio.open_nursery() as nursery:
            sink.begin(nursery)
            for number in range(400):
                source.records.file(use(f"call-{number}", shown=b'{"secret":"%s"}' % (b"x" * 400)))
                await trio.sleep(0.01)
            assert sink.trouble is not None
            assert sink.dropped > 0
            os.truncate(path, 0)
            await settled(lambda: sink.state.queued == 0)
            source.records.file(use("after"))
            await sink.aclose()
        rows = [json.loads(row) for row in path.read_bytes().splitlines()]
        assert rows[-1]["call_id"] == "after"
        assert sum(row["records"] for row in rows if row["kind"] == "dropped") == sink.dropped
    assert source.records.failures == 0
    assert caplog.text.count(f"cannot write ({errno.errorcode[full]}") == 1
    assert "xxx" not in caplog.text
    assert str(tmp_path) not in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [{"max_bytes": 10}, {"keep": -1}, {"fsync": "sometimes"}, {"queue": 0}],
    ids=lambda one: next(iter(one)),
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        JsonlSettings(path="x", **wrong)


FORKING = r"""
import os, sys
from afpool.record._jsonl import JsonlFile
from afpool.record._queue import Block

def opened():
    return JsonlFile(sys.argv[1], max_bytes=10_000, keep=1, fsync="never")

first = opened()
assert not first.write([Block(b"1\n", 1)]).rest
told, tell = os.pipe()
ends, end = os.pipe()
child = os.fork()
if child == 0:
    os.close(end)
    os.write(tell, b"x")
    os.read(ends, 1)  # it goes on living, as a worker does
    os._exit(0)
os.read(told, 1)
first.close()
second = opened()
trouble = second.write([Block(b"2\n", 1)]).trouble
second.close()
os.close(end)
os.waitpid(child, 0)
assert trouble is None, trouble
"""


def test_the_child_of_a_fork_keeps_nobody_from_the_file(tmp_path) -> None:
    # in a process of its own: beside the threads of other tests a fork is no fair test
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path / "calls.jsonl")],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "calls.jsonl").read_bytes() == b"1\n2\n"
