"""Folders and sockets of consoles: found, told from those left over, refused where others could be behind."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from afpool._base import console_place as place
from afpool.console import CannotOpenConsole
from afpool.console import _sockets as sockets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    sockets.make_directory(made)
    return made


# ------------------------------------------------------------------ where


def test_the_folder_is_in_the_runtime_folder_where_that_is_ours(tmp_path: Path) -> None:
    assert place.runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "afpool"


@pytest.mark.parametrize("value", [None, "", "relative/path", "/nowhere/at/all", "/etc/passwd", "/a\0b"])
def test_else_it_is_one_of_this_user_in_tmp(value: str | None) -> None:
    environ = {} if value is None else {"XDG_RUNTIME_DIR": value}
    assert place.runtime_directory(environ) == Path(f"/tmp/afpool-{os.geteuid()}")


def test_a_runtime_folder_of_somebody_else_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.geteuid() + 7
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert place.runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == Path(f"/tmp/afpool-{uid}")


def test_whoever_looks_looks_at_all_folders(tmp_path: Path) -> None:
    uid = os.geteuid()
    found = place.runtime_directories({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert found == (tmp_path / "afpool", Path(f"/run/user/{uid}/afpool"), Path(f"/tmp/afpool-{uid}"))
    assert place.runtime_directories({}) == (Path(f"/tmp/afpool-{uid}"), Path(f"/run/user/{uid}/afpool"))


def test_a_folder_that_was_named_is_the_only_one(tmp_path: Path) -> None:
    named = {"AFPOOL_CONSOLE_DIRECTORY": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert place.runtime_directories(named) == (tmp_path,)
    assert place.runtime_directory(named) == tmp_path
    assert place.runtime_directory({"AFPOOL_CONSOLE_DIRECTORY": "here"}) == Path.cwd() / "here"
    assert place.runtime_directory({"AFPOOL_CONSOLE_DIRECTORY": ""}) == Path(f"/tmp/afpool-{os.geteuid()}")


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        sockets.make_directory(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_folder_that_others_may_use_is_refused(folder: Path) -> None:
    for mode in (0o755, 0o710, 0o701, 0o777):
        folder.chmod(mode)
        with pytest.raises(CannotOpenConsole, match="others may use it"):
            sockets.make_directory(folder)
        assert place.sockets([folder]) == []


def test_a_folder_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid() + 7
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(CannotOpenConsole, match="belongs to user"):
        sockets.make_directory(folder)


def test_a_link_and_a_file_are_refused(tmp_path: Path, folder: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(CannotOpenConsole, match="link"):
        sockets.make_directory(link)
    file = tmp_path / "file"
    file.touch(0o600)
    with pytest.raises(CannotOpenConsole):
        sockets.make_directory(file)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotOpenConsole):
        sockets.make_directory(tmp_path / name)


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("12-serve.sock", (12, "serve")),
        ("12-a-b_C.sock", (12, "a-b_C")),
        ("12-serve.hang.sock", None),
        ("012-serve.sock", None),
        ("-serve.sock", None),
        ("12-.sock", None),
        ("12-serve", None),
        (".12-1", None),
        ("x12-serve.sock", None),
        ("12-serve.sock\n", None),
    ],
)
def test_names_of_sockets_are_read_exactly(name: str, found: tuple[int, str] | None) -> None:
    read = place.read_name(Path("/run") / name)
    assert (None if read is None else (read.pid, read.name)) == found


def test_a_socket_is_listed_by_what_it_is_called(folder: Path) -> None:
    one = sockets.listen(folder, "serve")
    two = sockets.listen(folder, "demo")
    try:
        found = place.sockets([folder, folder / "missing"])
        assert [(each.pid, each.name) for each in found] == [(os.getpid(), "demo"), (os.getpid(), "serve")]
        assert [each.path for each in found] == [two.path, one.path]
        assert place.hang_path(one.path).name == f"{os.getpid()}-serve.hang.sock"
    finally:
        one.close()
        two.close()
    assert place.sockets([folder]) == []


# ------------------------------------------------------------------ sockets


def test_a_socket_is_this_users_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        listening = sockets.listen(folder, "serve")
    finally:
        os.umask(before)
    try:
        seen = listening.path.stat()
        assert stat.S_ISSOCK(seen.st_mode)
        assert stat.S_IMODE(seen.st_mode) == 0o600
        assert not os.get_inheritable(listening.sock.fileno())
    finally:
        listening.close()
    assert not listening.path.exists()
    assert list(folder.iterdir()) == []


def test_two_consoles_of_one_name_in_one_process(folder: Path) -> None:
    one, two, three = (sockets.listen(folder, "serve") for _ in range(3))
    try:
        pid = os.getpid()
        names = [each.path.name for each in (one, two, three)]
        assert names == [f"{pid}-serve.sock", f"{pid}-serve-2.sock", f"{pid}-serve-3.sock"]
    finally:
        for each in (one, two, three):
            each.close()


def test_the_longest_name_has_room_for_a_number(folder: Path) -> None:
    one, two = sockets.listen(folder, "a" * 40), sockets.listen(folder, "a" * 40)
    try:
        assert place.read_name(two.path) is not None
    finally:
        one.close()
        two.close()


def left_over(path: Path) -> Path:
    """A socket of a process that is gone."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
    return path


def test_what_is_left_over_is_removed_and_what_answers_is_not(folder: Path) -> None:
    gone = left_over(folder / "99999-serve.sock")
    gone_too = left_over(folder / "99999-serve.hang.sock")
    other = folder / "notes.txt"
    other.touch()
    foreign = left_over(folder / "something.sock")
    # it answers, though no process has that number here: another container's
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(folder / "99998-serve.sock"))
        alive.listen()
        assert sockets.remove_left_over(folder) == 2
    assert not gone.exists()
    assert not gone_too.exists()
    assert other.exists()
    assert foreign.exists()
    assert (folder / "99998-serve.sock").exists()


def test_a_socket_whose_queue_is_full_is_not_left_over(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(folder / "99997-serve.sock"))
        busy.listen(0)
        waiting = []
        try:
            while True:
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                waiting.append(one)
                if one.connect_ex(str(folder / "99997-serve.sock")) != 0:
                    break
            assert sockets.remove_left_over(folder) == 0
        finally:
            for one in waiting:
                one.close()


def test_what_is_left_over_of_our_own_number_is_replaced(folder: Path) -> None:
    path = left_over(place.socket_path(folder, os.getpid(), "serve"))
    listening = sockets.listen(folder, "serve")
    try:
        assert listening.path == path
        assert not sockets.is_left_over(path)
    finally:
        listening.close()


def test_something_else_of_that_name_is_not_touched(folder: Path) -> None:
    file = place.socket_path(folder, os.getpid(), "serve")
    file.write_text("mine")
    listening = sockets.listen(folder, "serve")
    try:
        assert listening.path.name == f"{os.getpid()}-serve-2.sock"
    finally:
        listening.close()
    assert file.read_text() == "mine"


def test_a_file_that_somebody_else_has_put_there_meanwhile_stays(folder: Path) -> None:
    listening = sockets.listen(folder, "serve")
    listening.path.unlink()
    listening.path.write_text("theirs")
    listening.close()
    assert listening.path.read_text() == "theirs"


def test_a_path_that_is_too_long_is_refused_by_name(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80) / ("e" * 30)
    sockets.make_directory(deep)
    with pytest.raises(CannotOpenConsole, match="too long"):
        sockets.listen(deep, "serve")
    assert list(deep.iterdir()) == []


def test_the_longest_path_that_fits_is_taken(tmp_path: Path) -> None:
    pid = os.getpid()
    rest = place.MAX_PATH - len(str(tmp_path)) - len(f"//{pid}-a.hang.sock")
    if rest < 1:
        pytest.skip("the folder of this run is too long itself")
    fits = tmp_path / ("f" * rest)
    sockets.make_directory(fits)
    listening = sockets.listen(fits, "a")
    hang = sockets.listen_at(place.hang_path(listening.path))
    assert len(os.fsencode(hang.path)) == place.MAX_PATH
    hang.close()
    listening.close()
    with pytest.raises(CannotOpenConsole, match="too long"):
        sockets.listen(fits, "ab")


def test_two_that_begin_in_the_same_instant_get_names_of_their_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as two processes of one number do, in containers that share a folder
    looked, go = threading.Event(), threading.Event()
    is_there = sockets._is_there

    def slowly(path: Path) -> bool:
        found = is_there(path)
        if not looked.is_set():
            looked.set()
            go.wait(60)
        return found

    monkeypatch.setattr(sockets, "_is_there", slowly)
    monkeypatch.setattr(sockets, "_PATIENCE", 60.0)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(sockets.listen, folder, "serve")
        assert looked.wait(60)
        tried = threading.Event()
        flock = sockets.fcntl.flock

        def seen(number: int, how: int) -> None:
            try:
                flock(number, how)
            finally:
                tried.set()

        monkeypatch.setattr(sockets.fcntl, "flock", seen)
        second = threads.submit(sockets.listen, folder, "serve")
        assert tried.wait(60)
        go.set()
        found = [first.result(60), second.result(60)]
    assert len({each.path for each in found}) == 2
    for each in found:
        assert not sockets.is_left_over(each.path)
        each.close()


FORKING = """
import os, sys
from pathlib import Path
import trio
from afpool.console import _sockets as sockets

listening = sockets.listen(Path(sys.argv[1]), "serve")
[port] = trio.run(trio.open_tcp_listeners, 0)[:1]
sockets.closed_by_fork(port)
numbers = listening.sock.fileno(), port.socket.fileno()
child = os.fork()
if child == 0:
    left = 0
    for each in numbers:
        try:
            os.fstat(each)
            left += 1
        except OSError:
            pass
    listening.close()
    listening.remove()
    os._exit(left if listening.path.exists() else 100)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert not sockets.is_left_over(listening.path)
listening.close()
assert not listening.path.exists()
"""


def test_the_child_of_a_fork_holds_no_socket_and_removes_no_file(folder: Path) -> None:
    # in a process of its own: beside the threads of other tests a fork is no fair test
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(folder)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
