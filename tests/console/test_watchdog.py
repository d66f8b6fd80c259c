"""The thread that answers while the loop hangs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool._base.console_place import hang_path
from afpool.console import _watchdog
from tests.console.server_kit import PATIENCE, opened

if TYPE_CHECKING:
    from pathlib import Path


def asked(path: Path, line: bytes) -> list[dict[str, Any]]:
    """Ask as the client does, without trio."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(os.fspath(path))
        sock.sendall(line)
        raw = b""
        while more := sock.recv(65536):
            raw += more
    return [json.loads(one) for one in raw.splitlines()]


async def test_it_answers_while_the_loop_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watchdog, "HANGING", 3600.0)  # however busy the machine is
    async with opened(tmp_path, watchdog=True) as console:
        assert console.path is not None
        [answer] = await trio.to_thread.run_sync(asked, hang_path(console.path), b"ping\n")
        assert answer["pid"] == os.getpid()
        assert answer["name"] == "afpool"
        assert answer["hanging"] is False
        assert answer["ticked_ago"] >= 0


async def test_it_answers_while_the_loop_hangs_and_shows_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watchdog, "HANGING", 0.05)
    async with opened(tmp_path, watchdog=True) as console:
        assert console.path is not None
        path = hang_path(console.path)
        release = threading.Event()
        found: list[dict[str, Any]] = []
        pinged: list[dict[str, Any]] = []

        def outside() -> None:
            try:
                while not pinged or not pinged[-1]["hanging"]:
                    pinged.extend(asked(path, b"ping\n"))
                found.extend(asked(path, b"stacks\n"))
            finally:
                release.set()

        thread = threading.Thread(target=outside)
        thread.start()
        secret_in_a_local = "CANARY-of-a-frame"
        assert hang_here(release, secret_in_a_local)  # blocks the loop until it was asked
        thread.join(PATIENCE)
        head, first, *others = found
        assert head["hanging"] is True
        assert head["ticked_ago"] >= 0.05
        assert first["loop"] is True
        assert any(frame[2].endswith("hang_here") for frame in first["frames"])
        assert all(
            isinstance(frame[1], int | None) and frame[0].endswith((".py", ">")) for frame in first["frames"]
        )
        assert any(one["thread"].startswith("afpool-watchdog") for one in others)
        assert not any(one["loop"] for one in others)
        assert secret_in_a_local not in json.dumps(found)


def hang_here(release: threading.Event, local: str) -> bool:
    assert local
    return release.wait(PATIENCE)


@pytest.mark.parametrize("line", [b"\n", b"huh\n", b"\xff\xfe\n", b"x" * 5000, b"ping; stacks\n"])
async def test_anything_else_is_answered_with_what_can_be_asked(tmp_path: Path, line: bytes) -> None:
    async with opened(tmp_path, watchdog=True) as console:
        assert console.path is not None
        path = hang_path(console.path)
        try:
            answers = await trio.to_thread.run_sync(asked, path, line)
        except (BrokenPipeError, ConnectionResetError):
            answers = []  # it had enough of the line
        assert all("error" in answer for answer in answers)
        assert (await trio.to_thread.run_sync(asked, path, b"ping\n"))[0]["pid"] == os.getpid()


async def test_a_peer_that_dawdles_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watchdog, "_PATIENCE", 0.05)
    async with opened(tmp_path, watchdog=True) as console:
        assert console.path is not None
        with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as gone:
            silent.connect(os.fspath(hang_path(console.path)))
            gone.connect(os.fspath(hang_path(console.path)))
            gone.close()
            found: list[dict[str, Any]] = []
            with trio.fail_after(PATIENCE):
                while not found:  # on a busy machine who asks here may dawdle, too
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        found = await trio.to_thread.run_sync(asked, hang_path(console.path), b"ping\n")
        assert found[0]["pid"] == os.getpid()


@pytest.mark.parametrize("word", [b"", b"stacks\n"])
async def test_a_peer_that_dawdles_does_not_hold_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: bytes
) -> None:
    met = threading.Event()
    uid_of = _watchdog.peer_uid
    monkeypatch.setattr(_watchdog, "peer_uid", lambda peer: (met.set(), uid_of(peer))[1])
    monkeypatch.setattr(_watchdog.Watchdog, "_stacks", lambda _: [{"frames": "x" * 8_000_000}])
    monkeypatch.setattr(_watchdog, "_PATIENCE", 600.0)
    with socket.socket(socket.AF_UNIX) as silent:
        async with opened(tmp_path, watchdog=True) as console:
            assert console.path is not None
            silent.connect(os.fspath(hang_path(console.path)))
            silent.sendall(word)
            assert await trio.to_thread.run_sync(met.wait, PATIENCE)
            [thread] = [one for one in threading.enumerate() if one.name == "afpool-watchdog-afpool"]
            monkeypatch.setattr(_watchdog, "_PATIENCE", 0.0)  # leaving waits for it no longer than this
        await trio.to_thread.run_sync(thread.join, PATIENCE)
        assert not thread.is_alive()


async def test_another_user_gets_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.geteuid() + 4242
    monkeypatch.setattr(_watchdog, "peer_uid", lambda _: other)
    async with opened(tmp_path, watchdog=True) as console:
        assert console.path is not None
        try:
            found = await trio.to_thread.run_sync(asked, hang_path(console.path), b"stacks\n")
        except (BrokenPipeError, ConnectionResetError):
            found = []
        assert found == []


async def test_it_ends_with_the_console_and_leaves_nothing(tmp_path: Path) -> None:
    before = threading.active_count()
    for _ in range(3):
        async with opened(tmp_path, watchdog=True) as console:
            assert console.path is not None
            hang = hang_path(console.path)
            assert hang.exists()
            assert any(thread.name == "afpool-watchdog-afpool" for thread in threading.enumerate())
        assert not hang.exists()
        assert list(hang.parent.iterdir()) == []
    assert threading.active_count() == before


async def test_it_is_a_daemon_and_can_be_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path, watchdog=True):
        [thread] = [one for one in threading.enumerate() if one.name == "afpool-watchdog-afpool"]
        assert thread.daemon
    async with opened(tmp_path, watchdog=False) as console:
        assert console.path is not None
        assert not hang_path(console.path).exists()
