"""Through the door: what `afpool serve` answers, beside the official SDK's server and FastMCP's proxy.

    python benchmarks/serve.py [--rounds N] [--seconds S] [--identities N] [--sessions N] [--no-pin]

One client for all: the official SDK's, in a process of its own, as so many identities, each with a token and
a client of its own. What it calls:

* `afpool`: `afpool serve`, started as one starts it, with a token file; a responder (`responders.py`) is
  behind it.
* `sdk`: the SDK's server, which answers by itself, on the same ASGI server: hypercorn, with trio. Nothing is
  behind it, and it asks nobody who he is. `sdk-json` is the same without event streams, for comparison only.
* `fastmcp`: FastMCP's proxy before the same responder, as `create_proxy(URL)` gives it: a session upstream
  for each request. `fastmcp-kept`: the best that can be made of it, a client for each identity that stays
  connected. Both on uvicorn, as FastMCP runs.

Where processes run: what is measured has the second processor for itself, and the client shares the first
with the responder. So no front pays for the work of the others, and one that has something behind it is
slowed by what the responder takes of the client's processor, which counts against it. With more processors
the responder has the third. All processes are there all the time, and blocked unless it is their turn; in
each round everybody has one window in every cell, beginning with another one each time.

What is judged is the best window of each, over many short rounds: what else a machine does only ever makes
windows slower. `median` is that of the ratios within a round. `CPU us` is what the front's process took for a
call, least of the rounds. With many calls at once the client's own processor is what bounds everybody: CPU
says more than calls a second then.

FastMCP as it comes is judged where all identities call. With one call at a time the client's own work, which
is the same before each front, is more than half of what a call before `afpool` takes: that ratio is shown.

Idle sessions are measured in another process of the service: `serve_idle.py`.

Exit code 1 when a figure is worse than its limit.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from compare import HERE, Subject, environment, responder, started, write
from serve_idle import growth
from windows import WARM_UP

from afpool import Identity
from afpool.serve import TokenFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FASTMCP_PYTHON = HERE.parent / ".cache" / "interop" / "fastmcp4" / "bin" / "python"
ERAS = {"legacy": "handshake", "2026-07-28": "2026-07-28"}
AT_ONCE = (1, 8, 64)
SLOW_AT_ONCE = (1, 8)
LEAST = {"sdk": 0.7, "fastmcp": 10.0, "fastmcp-kept": 1.0}
MOST_IDLE = 60 * 2**20


class Client(Subject):
    """The client's process, before one front and in one era."""

    def __init__(self, front: Front, era: str, tokens: Sequence[str], cpu: int | None) -> None:
        self.kind, self.era, self.front = front.kind, era, front
        command = [sys.executable, str(HERE / "serve_subject.py"), era, front.url, *tokens]
        self._process = started(command, cpu)

    def measured(self, places: int, seconds: float) -> dict[str, float]:
        """Run one window; adds what the front took for a call."""
        before = self.front.cpu()
        found = self.window(places, seconds)
        # the calls of the warm-up are not counted, but took as long each
        share = seconds / (seconds + WARM_UP)
        found["front_us"] = (self.front.cpu() - before) * 1e6 * share / found["calls"]
        return found


@attrs.frozen
class Front:
    """A process that is called."""

    kind: str
    url: str
    pid: int

    def cpu(self) -> float:
        """Seconds that its main thread, which does everything, has run."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9


@attrs.frozen
class Row:
    """One front in one cell, over all rounds; ratios are `afpool`'s calls a second against its."""

    era: str
    at_once: int
    kind: str
    per_second: float
    p50_us: float
    front_us: float
    ratio: float | None
    median: float | None

    @property
    def least(self) -> float | None:
        """What the ratio has to be at least; `None` where it is only shown."""
        return None if self.kind == "fastmcp" and self.at_once == 1 else LEAST.get(self.kind)

    @property
    def kept(self) -> bool:
        """Whether it is."""
        return self.least is None or (self.ratio is not None and self.ratio >= self.least)


@contextmanager
def afpool(folder: Path, upstream: str, cpu: int | None) -> Iterator[Front]:
    """`afpool serve` with a configuration file; it has to end in order, too."""
    file = folder / "afpool.toml"
    file.write_text(
        f'[servers.desk]\nurl = "{upstream}"\n'
        f'[serve]\nbind = "127.0.0.1:0"\n[serve.identity.tokens]\nfile = "{folder}/tokens"\n'
    )
    command = [sys.executable, "-m", "afpool", "serve", "--config", str(file), "--log-level", "error"]
    with started(command, cpu) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1].decode()
            yield Front("afpool", url, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    if code:
        raise RuntimeError(f"the service ended with code {code}")


@contextmanager
def other(kind: str, command: Sequence[str], cpu: int | None) -> Iterator[Front]:
    """A front that prints its URL and serves until stdin ends."""
    with started(command, cpu) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Front(kind, process.stdout.readline().decode().strip(), process.pid)
        finally:
            process.stdin.close()


def identities(folder: Path, number: int) -> list[str]:
    """Tokens of so many identities, spread over four tenants."""
    tokens = TokenFile(folder / "tokens")
    return [
        tokens.new(Identity(tenant=f"t{n % 4}", principal=f"p{n}"), f"p{n}").token.reveal()
        for n in range(number)
    ]


def measure(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Run the rounds."""
    cpus = sorted(os.sched_getaffinity(0))
    pin = not options.no_pin and len(cpus) > 1
    client_cpu, front_cpu, behind_cpu = (cpus[0], cpus[1], cpus[2 % len(cpus)]) if pin else (None, None, None)
    tokens = identities(folder, options.identities)
    samples: dict[tuple[str, int, str], list[dict[str, float]]] = defaultdict(list)
    with ExitStack() as stack:
        upstream = stack.enter_context(responder(behind_cpu))
        python, script = str(FASTMCP_PYTHON), str(HERE / "serve_fastmcp.py")
        sdk = [sys.executable, str(HERE / "serve_sdk.py")]
        ours = stack.enter_context(afpool(folder, upstream, front_cpu))
        shared = [
            ours,
            stack.enter_context(other("sdk", [*sdk, "events"], front_cpu)),
            stack.enter_context(other("sdk-json", [*sdk, "json"], front_cpu)),
            stack.enter_context(other("fastmcp", [python, script, "default", upstream], front_cpu)),
        ]
        clients: list[Client] = []
        for era in ERAS:
            kept = other("fastmcp-kept", [python, script, "kept", upstream, era], front_cpu)
            fronts = [*shared, stack.enter_context(kept)]
            clients += [stack.enter_context(Client(front, era, tokens, client_cpu)) for front in fronts]
        for client in clients:
            client.read()
        for number in range(options.rounds):
            shift = number % len(clients)
            for places in AT_ONCE:
                for client in clients[shift:] + clients[:shift]:
                    if client.kind != "fastmcp" or places in SLOW_AT_ONCE:
                        found = client.measured(places, options.seconds)
                        samples[client.era, places, client.kind].append(found)
    return [_row(samples, *cell) for cell in sorted(samples)]


def _row(
    samples: dict[tuple[str, int, str], list[dict[str, float]]], era: str, places: int, kind: str
) -> Row:
    mine, ours = samples[era, places, kind], samples[era, places, "afpool"]
    best = max(found["per_second"] for found in mine)
    ratio = median = None
    if kind != "afpool":
        ratio = max(found["per_second"] for found in ours) / best
        pairs = zip(ours, mine, strict=True)
        median = statistics.median(us["per_second"] / it["per_second"] for us, it in pairs)
    p50, front = (min(found[name] for found in mine) for name in ("p50_us", "front_us"))
    return Row(ERAS[era], places, kind, best, p50, front, ratio, median)


def idle(options: argparse.Namespace, folder: Path) -> int:
    """Bytes that idle sessions take, in a service of its own."""
    tokens = identities(folder, max(options.identities, -(-options.sessions // 50)))
    with responder(None) as upstream, afpool(folder, upstream, None) as front:
        return growth(front.url, front.pid, tokens, options.sessions)


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    print(
        f"\n{'era':<12}{'at once':>8}  {'front':<14}{'calls/s':>9}{'p50 ms':>8}{'CPU us':>8}"
        f"{'afpool x':>10}{'median':>8}"
    )
    for row in rows:
        ratios = "" if row.ratio is None else f"{row.ratio:>10.2f}{row.median:>8.2f}"
        verdict = "" if row.least is None else f"  {'ok' if row.kept else 'NOT'} (at least {row.least:g})"
        print(
            f"{row.era:<12}{row.at_once:>8}  {row.kind:<14}{row.per_second:>9.0f}{row.p50_us / 1e3:>8.2f}"
            f"{row.front_us:>8.0f}{ratios}{verdict}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the service with the SDK's server and FastMCP's.")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each window")
    parser.add_argument("--identities", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=1000, help="that are idle")
    parser.add_argument("--no-pin", action="store_true", help="leave processes where the system puts them")
    options = parser.parse_args()
    if not FASTMCP_PYTHON.exists():
        print("FastMCP is not installed here: `make bench-serve` does it")
        return 1
    what: dict[str, Any] = environment()
    print(f"Python {what['python']}, {what['processors']} processors, load {what['load']:.1f}; ", end="")
    rounds = f"{options.rounds} rounds of {options.seconds:g} s windows"
    print(f"{rounds}, {options.identities} identities", flush=True)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        rows = measure(options, Path(first))
        taken = idle(options, Path(second))
    show(rows)
    small = taken <= MOST_IDLE
    print(
        f"\n{options.sessions} idle sessions with their streams: {taken / 2**20:.1f} MiB  "
        f"{'ok' if small else 'NOT'} (at most {MOST_IDLE / 2**20:g})"
    )
    result = {"rows": [attrs.asdict(row) for row in rows], "idle_bytes": taken, "sessions": options.sessions}
    print(f"load at the end {environment()['load']:.1f}; written to {write('serve', result)}")
    return 0 if small and all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
