"""A server that is killed and comes back, with many keys alive: how they come back, what is said meanwhile.

The server is a process of its own on a port that stays. It writes down each arrival before it decides
anything, so that what it saw outlives it. It is killed (SIGKILL) with calls at work; every key goes on
calling until it is served again. What is measured is the server's side: openings per second, openings at
once, connections.

    python -m tests.realfaults.restart --keys 1000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

import afpool
from afpool import AfpoolError, HttpTransport, Identity, Plan, Server
from afpool.testing import Delay, FakeServer, FakeTool, echo_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool import BoundTool, Pool

AWAY: Final = 0.5
"""Seconds for which nobody listens."""

AT_WORK: Final = 10
"""Calls that are running when the server is killed."""

OPENING_TAKES: Final = 0.02
"""Seconds that the server thinks about each `initialize`."""

ROOT: Final = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------------------- the server's process


async def serve(port: int, log: str) -> None:
    """Serve until killed; each arrival and each run is a line of the log before anything is made of it."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    server = FakeServer.http(port=port, tools=[echo_tool("pay"), FakeTool("slow", delay=60)])
    server.on("initialize", Delay(OPENING_TAKES))

    def write(entry: Mapping[str, Any]) -> None:
        kind, facts = next(iter(entry.items()))
        if kind == "arrival":
            arrival = server.log[-1]
            line = {
                "kind": arrival.name,
                "n": arrival.arguments.get("n"),
                "who": arrival.headers.get("x-who"),
                "session": arrival.session_id,
                "connection": arrival.connection,
            }
        else:
            line = {"kind": kind, "n": facts["arguments"].get("n") if kind == "execution" else None}
        line |= {
            "pid": os.getpid(),
            "time": time.monotonic(),
            "open": server.connections,
            "peak": server.connections_peak,
        }
        os.write(out, json.dumps(line).encode() + b"\n")

    server.ledger.sink = write
    async with server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        await trio.sleep_forever()


class Process:
    """The server's process; started again on the port that it had."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.port = 0
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it and wait until it listens."""
        command = [
            sys.executable, "-m", "tests.realfaults.restart",
            "--serve", str(self.port), "--log", str(self._log),
        ]  # fmt: skip
        # To start a process takes no longer than a step of the loop.
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)  # noqa: ASYNC220
        self.pid = self._process.pid
        assert self._process.stdout is not None
        async with trio.lowlevel.FdStream(os.dup(self._process.stdout.fileno())) as out:
            line = b""
            while not line.endswith(b"\n"):
                data = await out.receive_some(64)
                assert data, "the server did not start"
                line += data
        self.port = int(line)

    def kill(self) -> None:
        """Kill it, if it lives."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


# ---------------------------------------------------------------------------- the callers


@attrs.define
class Said:
    """What a caller was told of one numbered call."""

    n: int
    who: str
    word: str
    text: str = ""


@attrs.define
class Report:
    """What came of it.

    Attributes:
        keys: How many there were.
        said: Of every call.
        log: The server's lines, of both its lives.
        first: The process id of its first life.
        back: When it listened again, on the monotonic clock.
        well: When each key was served again.
        waiting: The most openings that the pool had under way.
        wrong: What must not be.
    """

    keys: int
    said: list[Said]
    log: list[dict[str, Any]]
    first: int
    back: float
    well: list[float]
    wrong: list[str] = attrs.field(factory=list)

    def second_life(self) -> list[dict[str, Any]]:
        """What the server saw after it had come back."""
        return [line for line in self.log if line["pid"] != self.first]

    def openings(self) -> tuple[int, int, float]:
        """How many, how many at once, and seconds from the first to the last; after the restart."""
        under_way: set[int] = set()
        most, times = 0, []
        for line in self.second_life():
            if line["kind"] == "initialize":
                times.append(line["time"])
                under_way.add(line["connection"])
                most = max(most, len(under_way))
            elif line["kind"] == "notifications/initialized":
                times.append(line["time"])
                under_way.discard(line["connection"])
        count = sum(line["kind"] == "initialize" for line in self.second_life())
        return count, most, (max(times) - min(times)) if times else 0.0


async def restart(keys: int, *, max_connecting: int = 8) -> Report:
    """Open so many keys, kill the server under them, start it again, and wait until each is served."""
    _many_descriptors(keys * 4 + 500)
    said: list[Said] = []
    well: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        process = Process(log)
        try:
            await process.start()
            first = process.pid
            url = f"http://127.0.0.1:{process.port}/mcp"

            def plan(_: str, who: Identity) -> Plan:
                return Plan(transport=HttpTransport(url=url, headers={"x-who": str(who.principal)}))

            async with afpool.open_pool(
                [Server(name="bank")],
                plan=plan,
                max_clients=2 * keys + 10,
                max_connecting=max_connecting,
                deadline=60.0 + keys,  # an opening that is given up would be counted for ever
                backoff_max=2.0,
                close_timeout=10.0,
            ) as pool:
                numbers = iter(range(1, 10_000_000))
                people = [Identity(tenant=f"t{n % 16}", principal=f"p{n}") for n in range(keys)]
                tools: dict[Identity, BoundTool] = {}

                async def open_one(who: Identity) -> None:
                    listed = await pool.tools(who)
                    tools[who] = listed["pay"]
                    await _call(listed["pay"], who, next(numbers), said)
                    if who in people[:AT_WORK]:
                        slow[who] = listed["slow"]

                slow: dict[Identity, BoundTool] = {}
                async with trio.open_nursery() as nursery:
                    for who in people:
                        nursery.start_soon(open_one, who)
                back = 0.0
                async with trio.open_nursery() as nursery:
                    for who, tool in slow.items():
                        nursery.start_soon(_call, tool, who, next(numbers), said)
                    while sum(line["kind"] == "execution" for line in _lines(log)) < keys + AT_WORK:  # noqa: ASYNC110
                        await trio.sleep(0.05)
                    process.kill()
                    for who in people:
                        nursery.start_soon(_until_well, pool, who, numbers, said, well)
                    await trio.sleep(AWAY)
                    await process.start()
                    back = time.monotonic()
        finally:
            process.kill()
        lines = _lines(log)
    report = Report(keys, said, lines, first, back, well)
    report.wrong = _judged(report, max_connecting)
    return report


def _lines(log: Path) -> list[dict[str, Any]]:
    """What is written down; a last line that the kill has cut off is left out."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


async def _call(tool: BoundTool, who: Identity, n: int, said: list[Said]) -> Said:
    try:
        result = await tool.call({"n": n}, identity=who)
        told = Said(n, str(who.principal), "ok", result.text)
    except AfpoolError as error:
        told = Said(n, str(who.principal), f"{error.code} {error.delivery}", str(error))
    said.append(told)
    return told


async def _until_well(pool: Pool, who: Identity, numbers: Any, said: list[Said], well: list[float]) -> None:
    while True:
        wait = 0.2
        try:
            tool = (await pool.tools(who))["pay"]
        except AfpoolError as error:
            wait = error.retry_after or wait
        else:
            told = await _call(tool, who, next(numbers), said)
            if told.word == "ok":
                well.append(time.monotonic())
                return
        await trio.sleep(wait)


def _judged(report: Report, max_connecting: int) -> list[str]:
    wrong = []
    ran = Counter(line["n"] for line in report.log if line["kind"] == "execution")
    came = {line["n"] for line in report.log if line["kind"] == "tools/call"}
    wrong += [f"call {n} ran {times} times" for n, times in ran.items() if times > 1]
    for told in report.said:
        if told.word.endswith("not-sent") and told.n in came:
            wrong.append(f"not sent, and it came: {told}")
        if told.word.endswith("refused") and ran[told.n]:
            wrong.append(f"refused, and it ran: {told}")
        if told.word == "ok" and (ran[told.n] != 1 or json.loads(told.text) != {"n": told.n}):
            wrong.append(f"answered, and it is not its answer: {told}")
        if told.word == "ok" or told.word.endswith(("not-sent", "refused", "in-doubt")):
            continue
        wrong.append(f"an end of no kind that there is: {told}")
    doubtful = [told for told in report.said if told.word.endswith("in-doubt")]
    wrong += [f"in doubt, and it never came: {told}" for told in doubtful if told.n not in came]
    owners: dict[str, set[str]] = {}
    for line in report.log:
        if line.get("session"):
            owners.setdefault(line["session"], set()).add(line["who"])
    wrong += [f"a session of {names}" for names in owners.values() if len(names) > 1]
    count, most, _ = report.openings()
    if most > max_connecting:
        wrong.append(f"{most} openings at once, and {max_connecting} are allowed")
    if count != report.keys:
        wrong.append(f"{count} openings for {report.keys} keys")
    if len(report.well) != report.keys:
        wrong.append(f"{len(report.well)} keys of {report.keys} are well")
    return wrong


def _many_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def main() -> int:
    """Print what a restart costs."""
    parser = argparse.ArgumentParser(prog="python -m tests.realfaults.restart", description=__doc__)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--max-connecting", type=int, default=8)
    parser.add_argument("--serve", type=int, metavar="PORT", help="be the server")
    parser.add_argument("--log", help="where the server writes what it sees")
    options = parser.parse_args()
    if options.serve is not None:
        _many_descriptors(20_000)
        trio.run(serve, options.serve, options.log)
        return 0

    async def run() -> Report:
        return await restart(options.keys, max_connecting=options.max_connecting)

    report = trio.run(run)
    count, most, seconds = report.openings()
    ends = Counter(told.word for told in report.said)
    peaks = [max(line["peak"] for line in lives) for lives in _lives(report)]
    all_well = max(report.well, default=0.0) - report.back
    print(f"{report.keys} keys; killed with {AT_WORK} calls at work; nobody listened for {AWAY} s")
    print(f"openings: {count}, at most {most} at once, {count / max(seconds, 0.001):.0f} a second")
    print(f"connections at most: {peaks[0]} before, {peaks[-1]} after")
    print(f"all keys well {all_well:.2f} s after it was back")
    print("calls:", ", ".join(f"{times} {word}" for word, times in ends.most_common()))
    print("wrong:", "\n    ".join(report.wrong) or "nothing")
    return 1 if report.wrong else 0


def _lives(report: Report) -> list[list[dict[str, Any]]]:
    return [[line for line in report.log if line["pid"] == report.first], report.second_life()]


if __name__ == "__main__":
    sys.exit(main())
