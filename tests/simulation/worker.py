"""One batch of simulated worlds, in a process of its own.

    python tests/simulation/worker.py START COUNT SIZE [twice]

Prints one line of JSON for each world, so that a process that dies is known to have died in the next one.
Each fortieth world, from the first on, is run a second time at the end, in another state of the process, and
with `twice` every world is: both runs must be the same. What is imported here is measured, where the
environment asks for that.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
MEASURING: Final = "AFPOOL_SIMULATION_COVERAGE"
AGAIN: Final = 40
MEASURED: Final = ("afpool/pool", "afpool/client", "afpool/tools")


def work(start: int, count: int, size: float, *, twice: bool = False) -> None:
    """Run a batch."""
    from tests.simulation.generate import generate
    from tests.simulation.judging import judge

    def again(seed: int, digest: str) -> None:
        if judge(generate(seed, size)).digest != digest:
            print(json.dumps({"differs": seed}), flush=True)

    known: dict[int, str] = {}
    for seed in range(start, start + count):
        judged = judge(generate(seed, size))
        print(json.dumps(judged.to_json()), flush=True)
        if (seed - start) % AGAIN == 0:
            known[seed] = judged.digest
            gc.collect()  # what a world has left behind outside of itself
        if twice:
            again(seed, judged.digest)
    for seed, digest in known.items():
        again(seed, digest)


def main(start: str, count: str, size: str, *options: str) -> None:
    """Run a batch as the command line says."""
    measure: Any = None
    folder = os.environ.get(MEASURING)
    if folder is not None:
        import coverage

        measure = coverage.Coverage(
            data_file=str(Path(folder, "data")),
            data_suffix=True,
            branch=True,
            include=[f"{ROOT}/{package}/*" for package in MEASURED],
            config_file=False,
        )
        measure.start()
    try:
        work(int(start), int(count), float(size), twice="twice" in options)
    finally:
        if measure is not None:
            measure.stop()
            measure.save()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(*sys.argv[1:])
