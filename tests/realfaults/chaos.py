"""Random runs over real sockets, as many as are wanted; what a run is stands in `running.py`.

    python -m tests.realfaults.chaos --seeds 200            fresh seeds, printed; `--seed N` shows one

It ends with status 1 if a run broke a rule.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import trio

from tests.realfaults.judging import judge
from tests.realfaults.running import ERAS, WAYS_THERE, Run


def main() -> int:
    """Run seeds until they are used up; say what was seen, and which seeds broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.realfaults.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many")
    parser.add_argument(
        "--from", type=int, dest="first", help="the first of them; from the clock if not given"
    )
    parser.add_argument("--seed", type=int, help="run this one, and show all")
    parser.add_argument("--way", choices=WAYS_THERE)
    parser.add_argument("--era", choices=ERAS)
    options = parser.parse_args()
    first = options.first if options.first is not None else int(time.time()) % 1_000_000 * 100
    seeds = [options.seed] if options.seed is not None else range(first, first + options.seeds)
    ends: Counter[str] = Counter()
    fallen: Counter[str] = Counter()
    bad: list[int] = []
    spaced = 0.0
    for seed in seeds:
        run = Run(seed, way=options.way, era=options.era)
        facts = trio.run(run.carry_out)
        ends.update(f"{told.word} {told.delivery}".strip() for told in facts.told)
        fallen.update(fault.kind for passage in facts.proxy.passages for _, fault in passage.fell)
        wrong = judge(facts)
        spaced = max(spaced, run.spaced)
        if wrong:
            bad.append(seed)
            print(run, *wrong, sep="\n    ", flush=True)
        if options.seed is not None:
            for told in facts.told:
                print(told)
            for passage in facts.proxy.passages:
                print(passage)
    print(f"seeds {seeds[0]} to {seeds[-1]}: {ends.total()} calls")
    print("ends:  ", ", ".join(f"{count} {word}" for word, count in ends.most_common()))
    print("faults:", ", ".join(f"{count} {kind}" for kind, count in fallen.most_common()))
    print(f"the next list was at most {spaced:.1f} s away when all was mended")
    print("broken:", " ".join(map(str, bad)) or "none")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
