"""What a console that follows everything costs the calls that it follows.

    python benchmarks/console.py [--rounds N] [--seconds S]

Windows without a console and windows with one that follows everything (`tail`, `watch overview every=1`,
`watch actors`) take turns in one process; the follower reads in a process of its own. Calls go to a server of
another process over HTTP, and to a tool of the host's own, which is the most that can be told of in a second.
Exit code 1 when following takes more than a tenth of what the calls of one processor could be: of what each
call takes of this thread. Calls a second are shown as well; they also fall where the follower itself, and
whatever else the machine does, wants the processors.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from compare import responder
from figures import Figure, tell

from afpool import HttpTransport, Identity, Plan, RuntimeConfig, Server
from afpool.console import ConsoleSettings
from afpool.runtime import open_runtime
from afpool.tools import define_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from afpool.console import Console
    from afpool.runtime import Runtime

PART = 0.10
CONCURRENT = 32
WHO = [Identity("acme", "alice", f"c-{number}") for number in range(8)]
FOLLOWED = ("tail", "watch overview every=1", "watch actors")


# ------------------------------------------------------------------ the follower, in its own process


def _frame(text: str) -> bytes:
    data = text.encode()
    head = bytes([0x81, 0x80 | len(data)]) if len(data) < 126 else b"\x81\xfe" + struct.pack("!H", len(data))
    return head + bytes(4) + data  # masked with zeros


def _attach(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET /console HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        f"Sec-WebSocket-Protocol: afpool.console.1\r\n\r\n".encode()
    )
    told = sock.recv(65536)
    assert told.startswith(b"HTTP/1.1 101"), told
    for number, asked in enumerate(FOLLOWED):
        sock.sendall(_frame(json.dumps({"id": number, "do": asked})))
    return sock


def follow(path: str) -> None:
    """Attach and read everything as fast as it comes, from each line of stdin to the next."""
    while sys.stdin.readline():
        with _attach(path) as sock:
            events: list[int] = []
            thread = threading.Thread(target=_drain, args=(sock, events))
            thread.start()
            print("on", flush=True)
            sys.stdin.readline()
            sock.shutdown(socket.SHUT_RDWR)
            thread.join()
        print(sum(events), flush=True)


def _drain(sock: socket.socket, events: list[int]) -> None:
    while more := sock.recv(1 << 20):
        events.append(more.count(b'"kind":"call"'))


class Follower:
    """A console that follows everything when it is told to, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def turn(self) -> str:
        """Begin, or end; gives what it says of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def follower(path: Path) -> Iterator[Follower]:
    """Start one, for the time of the block."""
    command = [sys.executable, __file__, "--follow", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Follower(process)
        assert process.stdin is not None
        process.stdin.close()


# ------------------------------------------------------------------ what is followed


@define_tool
async def own(text: str) -> str:
    """A tool of the host's own, which answers at once."""
    await trio.lowlevel.checkpoint()
    return text


@asynccontextmanager
async def subject(
    folder: Path,
) -> AsyncIterator[tuple[Runtime, dict[str, Callable[[int], Awaitable[object]]]]]:
    """A runtime with a console, and the two kinds of calls."""
    with responder(None) as url:
        plan = Plan(transport=HttpTransport(url=url))
        config = RuntimeConfig(
            servers=[Server(name="desk", plan=plan)], tools=[own],
            console=ConsoleSettings(directory=folder / "run", name="bench"),
        )  # fmt: skip
        async with open_runtime(config) as runtime:

            async def by_http(place: int) -> object:
                return await runtime.dispatch(WHO[place % len(WHO)], "echo", {"text": "as tools take it"})

            async def by_own(place: int) -> object:
                return await runtime.dispatch(WHO[place % len(WHO)], "own", {"text": "as tools take it"})

            for place in range(len(WHO)):
                for call in (by_http, by_own):
                    answer: Any = await call(place)
                    assert not answer.is_error, answer
            yield runtime, {"a server's tool over HTTP": by_http, "a tool of the host's own": by_own}


async def window(call: Callable[[int], Awaitable[object]], seconds: float) -> tuple[float, float]:
    """Keep calls going; gives calls a second, and microseconds of this thread for each."""
    calls = 0
    until = time.perf_counter() + seconds

    async def worker(place: int) -> None:
        nonlocal calls
        while time.perf_counter() < until:
            await call(place)
            calls += 1

    began, cpu = time.perf_counter(), time.thread_time()
    async with trio.open_nursery() as nursery:
        for place in range(CONCURRENT):
            nursery.start_soon(worker, place)
    wall, spent = time.perf_counter() - began, time.thread_time() - cpu
    return calls / wall, spent / calls * 1e6


async def measure(rounds: int, seconds: float) -> list[Figure]:
    """Take turns, and compare the medians."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="afpool-bench-") as folder:
        async with subject(Path(folder)) as (runtime, calls):
            console = runtime.console
            assert console is not None
            assert console.path is not None
            with follower(console.path) as other:
                for what, call in calls.items():
                    figures += await _turns(what, call, console, other, rounds, seconds)
    return figures


async def _turns(
    what: str,
    call: Callable[[int], Awaitable[object]],
    console: Console,
    other: Follower,
    rounds: int,
    seconds: float,
) -> list[Figure]:
    alone: list[tuple[float, float]] = []
    followed: list[tuple[float, float]] = []
    told = calls = 0
    await window(call, seconds)
    for _ in range(rounds):
        alone.append(await window(call, seconds))
        await trio.to_thread.run_sync(other.turn)
        await _until(lambda: _streams(console) == len(FOLLOWED))
        followed.append(await window(call, seconds))
        calls += int(followed[-1][0] * seconds)
        told += int(await trio.to_thread.run_sync(other.turn))
        await _until(lambda: not console.sessions)
    print(f"{what}: told of {min(told / calls, 1.0):.0%} of {calls:,} calls", flush=True)
    return _compared(what, alone, followed)


def _streams(console: Console) -> int:
    return sum(session["streams"] for session in console.sessions)


async def _until(true: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not true():  # noqa: ASYNC110 -- it looks from outside
            await trio.sleep(0.01)


def _compared(
    what: str, alone: list[tuple[float, float]], followed: list[tuple[float, float]]
) -> list[Figure]:
    # neighbours in time: what else the machine does changes slowly
    rate = statistics.median(two[0] / one[0] for one, two in zip(alone, followed, strict=True))
    cpu = statistics.median(two[1] / one[1] for one, two in zip(alone, followed, strict=True))
    return [
        Figure(f"{what}, alone", statistics.median(one[0] for one in alone), "/s"),
        Figure(f"{what}, followed", statistics.median(one[0] for one in followed), "/s"),
        Figure(f"{what}, calls a second against alone", rate, "x"),
        Figure(f"{what}, processor against alone", cpu, "x", 1 / (1 - PART)),
    ]


def main() -> int:
    """Measure, and judge."""
    parser = argparse.ArgumentParser(description="What a console that follows everything costs.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--follow", metavar="PATH", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow is not None:
        follow(options.follow)
        return 0
    return tell(trio.run(measure, options.rounds, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
