"""Opening and leaving a console, beside whatever it looks at."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from afpool.console import CannotOpenConsole, ConsoleSettings, _watchdog, open_console
from afpool.record import LoopLag
from tests.console.server_kit import READ, StubPool, World, attached, opened, tcp, unix

if TYPE_CHECKING:
    import threading
    from pathlib import Path


def stub() -> Any:
    return StubPool()


async def test_an_exception_of_the_block_leaves_as_itself(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with opened(tmp_path) as console, attached(await unix(console)):
            raise KeyError("mine")
    assert list((tmp_path / "run").iterdir()) == []


async def test_a_cancelled_block_leaves_nothing(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with opened(tmp_path, watchdog=True) as console, attached(await unix(console)):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert list((tmp_path / "run").iterdir()) == []


async def test_leaving_says_goodbye_to_who_is_attached(tmp_path: Path) -> None:
    codes: list[int] = []
    world = World()
    async with trio.open_nursery() as nursery, opened(tmp_path, world) as console:

        async def stay(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            async with attached(await unix(console)) as client:
                await client.ask("lease")
                task_status.started()
                codes.append(await client.closed())

        for _ in range(3):
            await nursery.start(stay)
    assert codes == [1001] * 3
    assert len(world.gone) == 3


async def test_leaving_does_not_wait_for_who_does_not_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(tmp_path) as console:
        streams = []
        for _ in range(3):
            stream = await unix(console)
            async with attached(stream) as client:
                await client.send({"id": 1, "do": ["big"], "with": {"size": "5000000"}})
            streams.append(stream)
        began = trio.current_time()
    assert trio.current_time() - began <= 3


async def test_a_console_that_cannot_listen_is_refused_or_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = taken[0].socket.getsockname()[1]
    fields: dict[str, Any] = {
        "directory": tmp_path / "run", "bind": f"127.0.0.1:{port}", "read_token": READ, "watchdog": True,
    }  # fmt: skip
    with pytest.raises(CannotOpenConsole, match="in use"):
        async with open_console(stub(), settings=ConsoleSettings(**fields), registry=World().registry):
            pytest.fail("it opened")
    assert list((tmp_path / "run").iterdir()) == []
    with caplog.at_level(logging.WARNING, logger="afpool.console"):
        async with open_console(stub(), settings=ConsoleSettings(**fields, required=False)) as console:
            assert console is None
            assert list((tmp_path / "run").iterdir()) == []  # nobody would answer there
    assert "no console can listen" in caplog.text
    for one in taken:
        await one.aclose()


async def test_a_folder_that_others_may_use_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    with pytest.raises(CannotOpenConsole, match="others may use it"):
        async with opened(tmp_path):
            pytest.fail("it opened")


async def test_what_others_have_left_is_removed_when_one_opens(tmp_path: Path) -> None:
    import socket

    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(folder / "99999-serve.sock"))
    async with opened(tmp_path) as console:
        assert console.path is not None
        assert [each.name for each in folder.iterdir()] == [console.path.name]


async def test_two_consoles_of_one_process_do_not_meet(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as two:
        assert one.path != two.path
        async with attached(await unix(one)), attached(await unix(two)) as client:
            assert "ok" in await client.ask("echo")
            assert len(one.sessions) == len(two.sessions) == 1
            assert one.sessions[0]["id"] != two.sessions[0]["id"]


async def test_where_it_listens_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path, bind="127.0.0.1:0", read_token=READ) as console:
        assert console.addresses[0] == f"unix:{console.path}"
        assert console.addresses[1].startswith("http://127.0.0.1:")
        assert not console.found  # not in a folder that clients look into
        await trio.aclose_forcefully(await tcp(console))
    async with opened(tmp_path, unix=False, bind="127.0.0.1:0", read_token=READ) as console:
        assert console.path is None
        assert len(console.addresses) == 1
    async with opened(tmp_path, unix=False, bind="[::1]:0", read_token=READ) as console:
        assert console.addresses[0].startswith("http://[::1]:")


async def test_a_part_that_crashes_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    runs = 0

    async def service() -> None:
        nonlocal runs
        runs += 1
        await trio.lowlevel.checkpoint()
        if runs == 1:
            raise RuntimeError("CANARY")
        await trio.sleep_forever()

    world.registry.service(service)
    with caplog.at_level(logging.ERROR, logger="afpool.console"):
        async with opened(tmp_path, world) as console:
            await trio.sleep(3)
            async with attached(await unix(console)) as client:
                assert "ok" in await client.ask("echo")
    assert runs == 2
    assert "CANARY" not in caplog.text
    assert "crashed and is started again: ExceptionGroup" in caplog.text


async def test_a_watchdog_that_cannot_be_started_is_a_console_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(_watchdog.threading.Thread, "start", start)
        with pytest.raises(CannotOpenConsole, match="no thread"):
            async with opened(tmp_path, watchdog=True):
                pytest.fail("it is open")
        settings = ConsoleSettings(directory=tmp_path / "run", required=False)
        async with open_console(stub(), settings=settings) as console:
            assert console is None
    assert "no thread" in caplog.text
    assert list((tmp_path / "run").iterdir()) == []


# ------------------------------------------------------------------ how late the loop is


async def test_the_loop_is_measured_while_a_console_is_open(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(tmp_path) as console:
        await trio.sleep(2)
        assert 30 <= console.lag.numbers().samples <= 42


def test_lateness_is_counted_over_a_minute() -> None:
    lag = LoopLag(interval=1.0)
    assert lag.numbers() == (0.0, 0.0, 0.0, 0.0, 0)
    for number in range(100):
        lag.beat(number / 1000)
    lag.beat(-0.5)  # a clock that jumps is no lateness
    found = lag.numbers()
    assert found.samples == 60
    assert found.now == 0.0
    assert found.max == 0.099
    assert found.p99 == 0.099
    assert found.p50 == 0.069
    assert 0 <= lag.ticked_ago() < 60
