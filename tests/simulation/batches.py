"""Many seeds in processes of their own (`worker.py`), a batch each; what they found is added up."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.simulation.judging import Judgement
from tests.simulation.worker import MEASURED, MEASURING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

BATCH: Final = 400
"""Worlds of one process: to import everything costs as much as some ten of them."""
WORKER: Final = Path(__file__).with_name("worker.py")


@attrs.define
class Tally:
    """What was found so far.

    Attributes:
        start: The first seed.
        done: Seeds that were run.
        counts: Of all of them.
        failures: Seed to violations.
        differing: Seeds of which two runs were not the same.
        seconds: Of real time.
        busy: Seconds of cores, of all processes together.
    """

    start: int = 0
    done: set[int] = attrs.field(factory=set)
    counts: Counter[str] = attrs.field(factory=Counter)
    failures: dict[int, list[str]] = attrs.field(factory=dict)
    differing: list[int] = attrs.field(factory=list)
    seconds: float = 0.0
    busy: float = 0.0

    @property
    def worlds(self) -> int:
        """How many worlds were run."""
        return len(self.done)

    @property
    def per_minute(self) -> float:
        """Worlds a minute, of all processes."""
        return self.worlds * 60 / self.seconds if self.seconds else 0.0

    @property
    def per_core_minute(self) -> float:
        """Worlds a minute that one whole core runs."""
        return self.worlds * 60 / self.busy if self.busy else 0.0

    def add(self, judged: Judgement) -> None:
        """Add one world."""
        self.done.add(judged.seed)
        self.busy += judged.seconds
        self.counts.update(judged.counts)
        if judged.violations:
            self.failures[judged.seed] = list(judged.violations)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            **attrs.asdict(self, recurse=False),
            "done": [list(span) for span in _spans(sorted(self.done))],
            "counts": dict(self.counts),
            "failures": [[seed, lines] for seed, lines in self.failures.items()],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Tally:
        """The inverse of `to_json`."""
        members = dict(plain)
        members["done"] = {seed for first, last in plain["done"] for seed in range(first, last + 1)}
        members["counts"] = Counter(plain["counts"])
        members["failures"] = dict(plain["failures"])
        return cls(**members)


def _spans(seeds: list[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for seed in seeds:
        if last is not None and seed == last + 1:
            last = seed
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = seed
    if first is not None and last is not None:
        yield first, last


def run_all(tally: Tally, options: argparse.Namespace, measured: Measured | None) -> None:
    """Run what is left of the seeds that are asked for; they are given out as processes come free."""
    wanted = [
        seed for seed in range(tally.start, tally.start + options.seeds) if seed not in tally.done
    ]  # fmt: skip
    todo: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    size = max(1, min(BATCH, -(-len(wanted) // options.jobs)))
    for first, last in _spans(wanted):
        for start in range(first, last + 1, size):
            todo.put((start, min(size, last + 1 - start)))
    lock = threading.Lock()
    began, before = time.monotonic(), tally.seconds

    def serve() -> None:
        while True:
            try:
                start, count = todo.get_nowait()
            except queue.Empty:
                return
            died = _run_batch(start, count, options, tally, lock, measured)
            if died is not None and died + 1 < start + count:
                todo.put((died + 1, start + count - died - 1))
            with lock:
                tally.seconds = before + time.monotonic() - began
                if options.resume is not None:
                    _write(options.resume, tally)

    threads = [threading.Thread(target=serve) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run_batch(
    start: int,
    count: int,
    options: argparse.Namespace,
    tally: Tally,
    lock: threading.Lock,
    measured: Measured | None,
) -> int | None:
    """Run a batch; gives the seed that its process has died of, if it has."""
    command = [sys.executable, str(WORKER), str(start), str(count), str(options.size)]
    command += ["twice"] if options.twice else []
    environment = dict(os.environ)
    if measured is not None:
        environment[MEASURING] = measured.folder.name
    following = start
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            plain = json.loads(line)
            with lock:
                if "differs" in plain:
                    tally.differing.append(plain["differs"])
                else:
                    judged = Judgement.from_json(plain)
                    following = judged.seed + 1
                    tally.add(judged)
    if worker.returncode:
        died = min(following, start + count - 1)
        with lock:
            tally.add(Judgement(died, (f"died with status {worker.returncode}",), {}, "", 0.0))
        return died
    return None


def _write(path: Path, tally: Tally) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(tally.to_json()) + "\n")
    draft.replace(path)


class Measured:
    """The branch coverage that workers found together."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()

    def enough(self, bars: Mapping[str, float]) -> bool:
        """Print what was covered, file by file; whether each package has enough of its branches."""
        import coverage

        data = coverage.Coverage(data_file=str(Path(self.folder.name, "data")), config_file=False)
        data.set_option("report:exclude_also", ["if TYPE_CHECKING:", "@overload"])
        data.combine([self.folder.name])
        report = Path(self.folder.name, "report.json")
        data.json_report(outfile=str(report))
        files: dict[str, dict[str, Any]] = json.loads(report.read_text())["files"]
        good = True
        for package in MEASURED:
            covered = whole = 0
            for path, found in sorted(files.items()):
                _, inside, name = path.rpartition(f"{package}/")
                summary = found["summary"]
                if not inside:
                    continue
                covered += summary["covered_branches"]
                whole += summary["num_branches"]
                if summary["covered_branches"] < summary["num_branches"]:
                    missing = " ".join(f"{start}>{end}" for start, end in found["missing_branches"])
                    some = f"{summary['covered_branches']} of {summary['num_branches']} branches"
                    print(f"{summary['percent_covered']:6.1f} %  {package}/{name}: {some}; not {missing}")
            percent, least = 100 * covered / max(1, whole), bars[package]
            good &= percent >= least
            print(f"{percent:6.1f} %  of the branches of {package}; {least:g} % are wanted")
        self.folder.cleanup()
        return good
