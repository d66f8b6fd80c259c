"""Run many simulated worlds and say what they broke.

    python tests/simulation/simulate.py 300                 so many fresh seeds
    python tests/simulation/simulate.py 5000 --from 1 --resume FILE
    python tests/simulation/simulate.py --seed 17           one of them, with all that happened
    python tests/simulation/simulate.py --story FILE        a story from a file
    python tests/simulation/simulate.py --seed 17 --shrink --keep NAME

Ends with status 1 on any violation, where two runs of a seed differ, and after a run of LONG worlds or more
where something that there is was never seen (see `counts.py`). `docs/simulation.md` says more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.simulation import judging
from tests.simulation.batches import Measured, Tally, run_all
from tests.simulation.counts import apart, missing, table
from tests.simulation.generate import generate
from tests.simulation.judging import rule
from tests.simulation.shrink import shrink
from tests.simulation.steps import Story

STORIES: Final = Path(__file__).with_name("stories")
LONG: Final = 1000
COVERED: Final = {"afpool/pool": 90.0, "afpool/client": 90.0, "afpool/tools": 90.0}
"""Per cent of a package's branches that 1,000 worlds have to take."""
SHRUNK: Final = 3  # of the rules that a run breaks, so many are shown by a shrunk story


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _options().parse_args(arguments)
    if options.seed is not None or options.story is not None:
        return _one(options)
    return _many(options)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", nargs="?", type=int, default=100, help="how many worlds")
    parser.add_argument("--from", dest="start", type=int, help="the first seed; fresh ones by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--size", type=float, default=1.0, help="of each story; 1 is some thirty steps")
    parser.add_argument("--resume", type=Path, help="keep what was done here, and go on from it")
    parser.add_argument("--seed", type=int, help="this one only, with all that happened")
    parser.add_argument("--story", type=Path, help="a story from a file only")
    parser.add_argument("--shrink", action="store_true", help="shrink the story of --seed or --story")
    parser.add_argument("--keep", metavar="NAME", help="write the story to stories/NAME.json")
    parser.add_argument("--no-shrink", action="store_true", help="do not shrink what a run of many breaks")
    parser.add_argument("--coverage", action="store_true", help="fail where too few branches are taken")
    parser.add_argument("--pairs", action="store_true", help="name the pairs that never met")
    parser.add_argument("--twice", action="store_true", help="run every world twice, and compare the runs")
    return parser


# ------------------------------------------------------------------------------------------ one


def _one(options: argparse.Namespace) -> int:
    if options.story is not None:
        story = Story.from_json(json.loads(options.story.read_text()))
    else:
        story = generate(options.seed, options.size)
    judged = judging.judge(story, lines=True)
    if options.shrink and judged.violations:
        story = smaller(story, frozenset(map(rule, judged.violations)))
        judged = judging.judge(story, lines=True)
    print(story)
    print("-" * 100)
    for line in judged.lines:
        print(line)
    print("-" * 100)
    print(table(judged.counts))
    print(f"digest {judged.digest}; {judged.seconds:.2f} s of a core")
    if options.keep is not None:
        print(f"kept as {keep(story, options.keep)}")
    for violation in judged.violations:
        print(f"VIOLATION {violation}")
    return 1 if judged.violations else 0


def smaller(story: Story, rules: frozenset[str], seconds: float = 60.0) -> Story:
    """Shrink a story that breaks one of these rules."""
    return shrink(story, lambda candidate: judging.breaks(candidate, rules), seconds=seconds, say=print)


def keep(story: Story, name: str) -> Path:
    """Write a story where the tests find it."""
    path = STORIES / f"{name}.json"
    path.write_text(json.dumps(story.to_json(), indent=1, ensure_ascii=False) + "\n")
    return path


# ------------------------------------------------------------------------------------------ many


def _many(options: argparse.Namespace) -> int:
    start = options.start
    tally = Tally()
    if options.resume is not None and options.resume.exists():
        tally = Tally.from_json(json.loads(options.resume.read_text()))
        start = tally.start if start is None else start
    if start is None:
        start = int(time.time())
    tally.start = start
    print(f"seeds {start} to {start + options.seeds - 1}, {options.jobs} processes")
    measured = Measured() if options.coverage else None
    run_all(tally, options, measured)
    print(table(tally.counts))
    print(
        f"{tally.worlds} worlds in {tally.seconds:.1f} s: {tally.per_minute:.0f} a minute, "
        f"{tally.per_core_minute:.0f} a minute and core"
    )
    pairs, strangers = apart(tally.counts)
    print(f"{pairs - len(strangers)} of {pairs} pairs of what calls waited for and what happened have met")
    if options.pairs:
        print(f"never met: {', '.join(strangers)}")
    failed = _say_failures(tally, options)
    absent = missing(tally.counts)
    if absent:
        print(f"never seen: {', '.join(absent)}")
    failed |= bool(absent) and tally.worlds >= LONG
    if measured is not None:
        failed |= not measured.enough(COVERED)
    return 1 if failed else 0


def _say_failures(tally: Tally, options: argparse.Namespace) -> bool:
    for seed in tally.differing:
        print(f"VIOLATION determinism: two runs of seed {seed} differ")
    shown: set[str] = set()
    for seed, violations in sorted(tally.failures.items()):
        print(f"seed {seed} ({len(violations)} violations): {violations[0]}")
        first = rule(violations[0])
        if first in shown or len(shown) >= SHRUNK or options.no_shrink:
            continue
        shown.add(first)
        story = smaller(generate(seed, options.size), frozenset({first}))
        print(story)
        print(f"as a file: {json.dumps(story.to_json(), ensure_ascii=False)}")
        print(f"again: python tests/simulation/simulate.py --seed {seed} --size {options.size:g} --shrink")
    if tally.failures:
        rules = sorted({rule(line) for lines in tally.failures.values() for line in lines})
        print(f"{len(tally.failures)} of {tally.worlds} worlds broke {', '.join(rules)}")
    return bool(tally.failures or tally.differing)


if __name__ == "__main__":
    sys.exit(main())
