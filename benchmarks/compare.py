"""Compare clients by interleaved windows: every round gives each of them one window per concurrency.

What a machine does besides hits neighbours in time alike, so a ratio within a round says more than a figure
of its own. Each client is a process and so is its responder; client and responder are put on two processors
where there are two.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SDK_PYTHON = HERE.parent / ".cache" / "peers" / "mcp2" / "bin" / "python"
FASTMCP_PYTHON = HERE.parent / ".cache" / "interop" / "fastmcp4" / "bin" / "python"


@attrs.frozen
class Cell:
    """One client at one concurrency, over all rounds; times in microseconds.

    Attributes:
        ratio: Calls per second against the base, median over rounds; `None` for the base itself.
        cpu_ratio: CPU per call of the base against this one's, likewise: 1 is as cheap as the base.
    """

    kind: str
    concurrent: int
    per_second: float
    p50_us: float
    p99_us: float
    cpu_us: float
    ratio: float | None
    cpu_ratio: float | None


class Subject:
    """A client process that runs a window when it is told to."""

    def __init__(self, kind: str, url: str, cpu: int | None, authority: Path | None = None) -> None:
        self.kind = kind
        if kind == "open-sdk":
            command = [str(SDK_PYTHON), str(HERE / "sdk_subject.py"), kind, url, str(authority)]
        elif kind.startswith("open-"):
            command = [sys.executable, str(HERE / "open_subject.py"), kind, url, str(authority)]
        elif kind.startswith("sdk-"):
            target = url if kind == "sdk-http" else sys.executable
            command = [str(SDK_PYTHON), str(HERE / "sdk_subject.py"), kind, target]
        elif kind.startswith("fastmcp-"):
            command = [str(FASTMCP_PYTHON), str(HERE / "fastmcp_subject.py"), url]
        else:
            command = [sys.executable, str(HERE / "subjects.py"), kind, url]
        self._process = started(command, cpu)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def read(self) -> dict[str, float]:
        """The next object that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client {self.kind} ended with code {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found

    def window(self, concurrent: int, seconds: float) -> dict[str, float]:
        """Run one window."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{concurrent} {seconds}\n".encode())
        self._process.stdin.flush()
        return self.read()


def started(command: Sequence[str], cpu: int | None) -> subprocess.Popen[bytes]:
    """Start a process with pipes, on one processor where one is named."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if cpu is not None:
        os.sched_setaffinity(process.pid, {cpu})
    return process


@contextmanager
def responder(cpu: int | None, tls: Path | None = None, kind: str = "http") -> Iterator[str]:
    """A responder in a process of its own, over TLS where it gets a certificate; gives its URL."""
    command = [sys.executable, str(HERE / "responders.py"), kind, *([] if tls is None else [str(tls)])]
    with started(command, cpu) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            scheme = {"http": "http", "websocket": "ws"}[kind] + ("" if tls is None else "s")
            yield f"{scheme}://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.stdin.close()


def usable(kinds: Sequence[str]) -> list[str]:
    """The kinds that can run here: peers are only compared where `make peers northbound` has put them."""
    pythons = {"sdk": SDK_PYTHON, "fastmcp": FASTMCP_PYTHON}
    return [
        kind for kind in kinds
        if (python := pythons.get(kind.partition("-")[0])) is None or python.exists()
    ]  # fmt: skip


Samples = dict[tuple[str, int], list[dict[str, float]]]
"""By client and concurrency: what each window found, in the order of the rounds."""


def compare(
    kinds: Sequence[str], *, concurrent: Sequence[int], rounds: int, seconds: float, pin: bool = True
) -> list[Cell]:
    """Run the rounds. The first kind is the base of the ratios."""
    return cells_of(collect(kinds, concurrent=concurrent, rounds=rounds, seconds=seconds, pin=pin), kinds[0])


def collect(
    kinds: Sequence[str], *, concurrent: Sequence[int], rounds: int, seconds: float, pin: bool = True
) -> Samples:
    """Run the rounds."""
    cpus = sorted(os.sched_getaffinity(0))
    client_cpu, server_cpu = (cpus[0], cpus[1]) if pin and len(cpus) > 1 else (None, None)
    samples: Samples = defaultdict(list)
    with ExitStack() as stack:
        wire = "websocket" if "websocket" in kinds[0] else "http"
        url = stack.enter_context(responder(server_cpu, kind=wire))
        # a child of a stdio client inherits its processor; both then share one, for every client alike
        subjects = [
            stack.enter_context(Subject(kind, url, None if "stdio" in kind else client_cpu)) for kind in kinds
        ]
        for subject in subjects:
            subject.read()
        for number in range(rounds):
            for places in concurrent:
                shift = number % len(subjects)
                for subject in subjects[shift:] + subjects[:shift]:
                    samples[subject.kind, places].append(subject.window(places, seconds))
    return samples


def ratio_of(samples: Samples, kind: str, base: str, places: int, name: str = "per_second") -> float:
    """What one client has of another's, the median of what it has within a round."""
    pairs = zip(samples[kind, places], samples[base, places], strict=True)
    return statistics.median(sample[name] / under[name] for sample, under in pairs)


def cells_of(samples: Samples, base: str) -> list[Cell]:
    """Everything that was seen, beside the base at the same concurrency."""
    return [_cell(samples, base, kind, places) for kind, places in samples]


def _cell(samples: Samples, base: str, kind: str, places: int) -> Cell:
    mine = samples[kind, places]

    def middle(name: str) -> float:
        return statistics.median(sample[name] for sample in mine)

    def against(name: str) -> float | None:
        return None if kind == base else ratio_of(samples, kind, base, places, name)

    cpu = against("cpu_us")
    return Cell(
        kind=kind,
        concurrent=places,
        per_second=middle("per_second"),
        p50_us=middle("p50_us"),
        p99_us=middle("p99_us"),
        cpu_us=middle("cpu_us"),
        ratio=against("per_second"),
        cpu_ratio=None if cpu is None else 1 / cpu,
    )


def show(title: str, cells: Sequence[Cell]) -> None:
    """Print the table of one transport."""
    head = f"{'client':<18}{'at once':>8}{'calls/s':>10}{'p50 us':>9}{'p99 us':>9}{'CPU us':>9}"
    print(f"\n{title}\n{head}{'x base':>9}{'CPU x':>8}")
    for cell in cells:
        ratio = "-" if cell.ratio is None else f"{cell.ratio:.2f}"
        cpu = "-" if cell.cpu_ratio is None else f"{cell.cpu_ratio:.2f}"
        print(
            f"{cell.kind:<18}{cell.concurrent:>8}{cell.per_second:>10.0f}{cell.p50_us:>9.0f}"
            f"{cell.p99_us:>9.0f}{cell.cpu_us:>9.0f}{ratio:>9}{cpu:>8}"
        )


def environment() -> dict[str, Any]:
    """What the figures were taken on, for whoever reads them later."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def write(name: str, content: dict[str, Any]) -> Path:
    """Write a result as JSON where git does not look; gives the path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **content}, indent=1) + "\n")
    return path
