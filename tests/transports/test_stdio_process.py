"""Real children: spoken to, flooded by, ended in every way, and never leaked."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.transports._stdio import SpawnFailed, StdioConfig, StdioProcess
from afpool.transports._stream import StreamLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups and pidfds are Linux's")

SHORT = 0.2

ECHO = "for line in sys.stdin: print(line, end='', flush=True)"
DEAF = "print('{}', flush=True)\nwhile True: time.sleep(60)"
DEAF_TO_TERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + DEAF


def python(code: str, **config: Any) -> StdioConfig:
    return StdioConfig(
        command=(sys.executable, "-S", "-E", "-c", "import os, signal, sys, time\n" + code), **config
    )


def open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110  (the kernel tells nobody)
            await trio.sleep(0.005)


async def first_line(process: StdioProcess) -> bytes:
    line = b""
    with trio.fail_after(20):
        while not line.endswith(b"\n"):
            chunk = await process.wire.receive()
            assert chunk, process.stderr_tail()
            line += chunk
    return line


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    gc.collect()
    before = open_fds()
    yield
    gc.collect()
    assert open_fds() == before


async def soon(process: StdioProcess, **graces: float) -> Any:
    return await process.aclose(trio.current_time() + 10, **graces)


async def test_a_child_speaks_through_a_link_and_exits_at_the_end_of_its_stdin() -> None:
    process = await StdioProcess.spawn(python(ECHO), Seams())
    lines: list[bytes] = []
    lost: list[str] = []
    link = StreamLink(process.wire, on_line=lines.append, on_lost=lost.append, seams=Seams())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run_stderr)
        await nursery.start(link.run)
        for number in range(100):
            link.submit(b'{"id":%d}' % number, OpenGate(), None, lambda _: None)
        big = b'{"text":"' + b"x" * (1 << 20) + b'"}'
        link.submit(big, OpenGate(), None, lambda _: None)
        await until(lambda: len(lines) == 101)
        assert lines == [b'{"id":%d}' % number for number in range(100)] + [big]
        assert process.returncode is None
        assert process.wire.alive()
        link.close()
        report = await soon(process)
    assert report.ending == "exited"
    assert report.returncode == process.returncode == 0
    assert lost == ["closed by this side"]


async def test_a_flood_on_stderr_stops_nobody() -> None:
    code = (
        "sys.stderr.write('x' * 10_000_000 + 'the end')\nsys.stderr.flush()\nprint('{}', flush=True)\n" + ECHO
    )
    process = await StdioProcess.spawn(python(code), Seams())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run_stderr)
        assert await first_line(process) == b"{}\n"
        await until(lambda: process.stderr_tail().endswith("the end"))
        assert len(process.stderr_tail()) == 16 * 1024
        with pytest.raises(trio.BusyResourceError):
            await process.run_stderr()
        report = await soon(process)
    assert report.ending == "exited"


async def test_output_at_the_end_is_drained_or_the_child_would_block() -> None:
    code = "sys.stdin.read()\nfor f in (sys.stdout, sys.stderr): f.write('x' * 1_000_000); f.flush()"
    process = await StdioProcess.spawn(python(code), Seams())
    report = await soon(process, eof_grace=8.0)
    assert (report.ending, report.returncode) == ("exited", 0)
    assert process.stderr_tail() == "x" * 16 * 1024


async def test_stderr_is_drained_at_the_end_though_its_task_is_cancelled_meanwhile() -> None:
    code = "sys.stdin.read()\ntime.sleep(0.1)\nsys.stderr.write('x' * 1_000_000)"
    process = await StdioProcess.spawn(python(code), Seams())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run_stderr)
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as closing:
            closing.start_soon(lambda: soon(process, eof_grace=8.0))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert process.returncode == 0


async def test_whoever_drains_stderr_too_late_is_done() -> None:
    process = await StdioProcess.spawn(python(DEAF), Seams())
    await first_line(process)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: soon(process, eof_grace=SHORT))
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            await process.run_stderr()
    assert process.returncode == -signal.SIGTERM


async def test_a_child_that_ignores_the_end_of_stdin_is_terminated() -> None:
    process = await StdioProcess.spawn(python(DEAF), Seams())
    await first_line(process)
    report = await soon(process, eof_grace=SHORT)
    assert (report.ending, report.returncode) == ("terminated", -signal.SIGTERM)


async def test_a_child_that_ignores_sigterm_is_killed() -> None:
    process = await StdioProcess.spawn(python(DEAF_TO_TERM), Seams())
    await first_line(process)
    started = trio.current_time()
    report = await soon(process, eof_grace=SHORT, term_grace=SHORT)
    assert (report.ending, report.returncode) == ("killed", -signal.SIGKILL)
    assert trio.current_time() - started >= 2 * SHORT


async def test_graces_shrink_to_fit_the_deadline() -> None:
    process = await StdioProcess.spawn(python(DEAF_TO_TERM), Seams())
    await first_line(process)
    started = trio.current_time()
    report = await process.aclose(started + 0.5)
    assert report.ending == "killed"
    assert trio.current_time() - started < 2.0, "by default it would take 4 s"


async def test_a_cancelled_caller_leaves_no_child() -> None:
    process = await StdioProcess.spawn(python(DEAF), Seams())
    await first_line(process)
    with trio.CancelScope() as scope:
        scope.cancel()
        report = await soon(process, eof_grace=SHORT)
        assert report.ending == "terminated"
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert not runs(process.pid)


async def test_closing_twice_gives_one_report() -> None:
    process = await StdioProcess.spawn(python(ECHO), Seams())
    reports: list[Any] = []

    async def close() -> None:
        reports.append(await soon(process))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        nursery.start_soon(close)
    assert reports[0] is reports[1]
    assert await soon(process) is reports[0]


async def test_a_crash_is_seen_by_everybody_who_waits() -> None:
    process = await StdioProcess.spawn(python("sys.exit(7)"), Seams())
    codes: list[int] = []

    async def wait() -> None:
        codes.append(await process.wait())

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
    assert codes == [7, 7]
    report = await soon(process)
    assert (report.ending, report.returncode) == ("exited", 7)


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
async def test_without_pidfds_the_exit_is_polled_for(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def refused(pid: int) -> int:
        raise OSError(error, "not here")

    monkeypatch.setattr(os, "pidfd_open", refused)
    process = await StdioProcess.spawn(python("sys.stdin.read()"), Seams())
    report = await soon(process, eof_grace=8.0)
    assert (report.ending, report.returncode) == ("exited", 0)


FORKS = """
child = os.fork()
if not child:
    {escape}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
{then}
"""


@pytest.mark.parametrize("then", ["sys.stdin.read()", "signal.pause()"])
async def test_a_grandchild_in_the_group_ends_with_it(then: str) -> None:
    process = await StdioProcess.spawn(python(FORKS.format(escape="pass", then=then)), Seams())
    grandchild = int(await first_line(process))
    assert runs(grandchild)
    started = trio.current_time()
    report = await soon(process, eof_grace=8.0 if "stdin" in then else SHORT)
    assert report.ending == ("exited" if "stdin" in then else "terminated")
    assert trio.current_time() - started < 8.0
    await until(lambda: not runs(grandchild))


async def test_a_grandchild_that_left_the_group_and_holds_the_pipes_does_not_hang_the_end() -> None:
    code = FORKS.format(escape="os.setsid()", then="sys.stdin.read()")
    process = await StdioProcess.spawn(python(code), Seams())
    grandchild = int(await first_line(process))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.run_stderr)
            with trio.fail_after(9):
                report = await soon(process, eof_grace=8.0)
        assert report.ending == "exited"
        assert runs(grandchild), "it gave itself a session; it is not ours to end"
    finally:
        os.kill(grandchild, signal.SIGKILL)


async def test_a_crash_takes_the_group_with_it() -> None:
    process = await StdioProcess.spawn(python(FORKS.format(escape="pass", then="os._exit(3)")), Seams())
    grandchild = int(await first_line(process))
    with trio.fail_after(20):
        assert await process.wait() == 3
    await until(lambda: not runs(grandchild))
    await soon(process)


async def test_the_last_resort_is_synchronous() -> None:
    process = await StdioProcess.spawn(python(DEAF_TO_TERM), Seams())
    await first_line(process)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run_stderr)
        await trio.testing.wait_all_tasks_blocked()
        process.kill_now()
        assert process.wire.closed
    process.kill_now()
    with trio.fail_after(20):
        assert await process.wait() == -signal.SIGKILL
    report = await soon(process)
    assert (report.ending, report.returncode) == ("killed", -signal.SIGKILL)


async def test_a_cancelled_spawn_leaves_no_child() -> None:
    pids: list[int] = []
    release = trio.Event()

    async def in_thread(fn: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
        popen = fn()
        pids.append(popen.pid)
        await release.wait()
        return popen

    async def spawn() -> None:
        await StdioProcess.spawn(python(DEAF), Seams(in_thread=in_thread))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spawn)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        release.set()
    assert len(pids) == 1
    assert not exists(pids[0]), "killed and reaped"


async def test_fifty_children_leak_nothing() -> None:
    before = open_fds()
    for round_ in range(10):
        processes: list[StdioProcess] = []

        async def spawn(processes: list[StdioProcess] = processes) -> None:
            processes.append(await StdioProcess.spawn(StdioConfig(command=("cat",)), Seams()))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(spawn)
        async with trio.open_nursery() as nursery:
            for process in processes:
                nursery.start_soon(soon, process)
        assert [process.returncode for process in processes] == [0] * 5, round_
    assert open_fds() == before


# Spawning that fails, and what a child gets.


async def test_spawning_says_why_not_and_no_more(tmp_path: Path) -> None:
    plain = tmp_path / "plain-file"
    plain.write_text("no program", encoding="utf-8")
    junk = tmp_path / "junk"
    junk.write_bytes(b"\x7fELFnonsense")
    junk.chmod(0o700)
    secret = {"TOKEN": "s3cret"}
    cases = {
        StdioConfig(
            ["no-such-thing", "--key", "s3cret"], env=secret
        ): "command 'no-such-thing' was not found",
        StdioConfig([str(plain), "s3cret"], env=secret): "command 'plain-file' is not executable",
        StdioConfig([str(junk)]): f"command 'junk' could not be started: {os.strerror(errno.ENOEXEC)}",
        StdioConfig(["cat"], cwd=str(tmp_path / "s3cret")): (
            "command 'cat': its working directory cannot be entered"
        ),
        StdioConfig(["cat", "s3cret" * 10_000_000]): (
            f"command 'cat' could not be started: {os.strerror(errno.E2BIG)}"
        ),
    }
    before = open_fds()
    for config, message in cases.items():
        with pytest.raises(SpawnFailed) as failure:
            await StdioProcess.spawn(config, Seams())
        assert str(failure.value) == message
        assert failure.value.__cause__ is None
        assert failure.value.__suppress_context__
        assert open_fds() == before


async def test_running_out_of_descriptors_leaks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = os.pipe2, []

    def scarce(flags: int) -> tuple[int, int]:
        if len(made) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made.append(real(flags))
        return made[-1]

    monkeypatch.setattr(os, "pipe2", scarce)
    with pytest.raises(SpawnFailed, match=os.strerror(errno.EMFILE)):
        await StdioProcess.spawn(StdioConfig(["cat"]), Seams())
    assert len(made) == 2


async def told(config: StdioConfig) -> Any:
    process = await StdioProcess.spawn(config, Seams())
    try:
        return json.loads(await first_line(process))
    finally:
        await soon(process, eof_grace=8.0)


async def test_a_child_inherits_the_allowed_and_the_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTHER_TENANTS_TOKEN", "t")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("TERM", "() { :; }")
    code = "import json; print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]))"
    env, cwd, leads = await told(python(code, env={"TOKEN": "mine"}, cwd=str(tmp_path)))
    assert env["TOKEN"] == "mine"
    assert env["TZ"] == "UTC"
    assert env["PATH"] == os.environ["PATH"]
    assert "OTHER_TENANTS_TOKEN" not in env
    assert "TERM" not in env
    assert Path(cwd) == tmp_path
    assert leads
    env, _, _ = await told(python(code, inherit_env=True, env={"TZ": "Asia/Tokyo"}))
    assert env["OTHER_TENANTS_TOKEN"] == "t"
    assert env["TZ"] == "Asia/Tokyo"
