"""What one tenant's trouble costs the others, on the wall clock and on real sockets.

    python benchmarks/neighbours.py [--only WORD] [--rounds 10] [--seconds 2] [--tries 2] [--freeze]

Twenty healthy tenants call at a fixed rate (`RATE` a second each, whether or not the calls before have ended)
servers of five kinds, where a call takes `SERVICE` seconds. For each case four windows take turns, ten times:
`before` and `again`, without any trouble; `during` it; `after` it. A fifth one is there where the noise takes
processor time: the noise alone, made for a reader in another process, with the pool out of its way.

Judged is the p99 of the healthy ones, `during` beside the window before it; the median of the ten pairs
counts, so that one hiccup of the machine does not. A run of a case counts only where `again` beside `before`,
which differ in nothing, are within 10 % of each other; else it is made again. Ends with 1 where a p99 moved
by 20 % or more, or where a case could not be judged.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio
from compare import write
from neighbours_cases import CASES, RATE, SERVICE, TENANTS, Processes, Town, opened, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neighbours_cases import Case

MOVES: Final = 0.20
SAME: Final = 0.10
WINDOWS: Final = ("before", "again", "during", "after", "noise alone")
TICKS: Final = os.sysconf("SC_CLK_TCK")


@attrs.frozen
class Window:
    """What the healthy ones saw in one window. Seconds.

    Attributes:
        busy: The part of the machine that worked, on whatever.
        own: The part of one processor that this process took.
    """

    p50: float
    p99: float
    calls: int
    busy: float
    own: float


@attrs.define
class Outcome:
    """One case."""

    case: Case
    windows: dict[str, list[Window]] = attrs.field(factory=lambda: defaultdict(list))
    noisy: Counter[str] = attrs.field(factory=Counter)

    def middle(self, window: str, what: str) -> float:
        """The median of what was seen in windows of a kind."""
        return float(statistics.median(getattr(each, what) for each in self.windows[window]))

    def moved(self, window: str, beside: str = "again", what: str = "p99") -> float:
        """By which part windows differ from those of another kind in the same round, as a median."""
        pairs = zip(self.windows[window], self.windows[beside], strict=True)
        return float(statistics.median(getattr(one, what) / getattr(two, what) for one, two in pairs)) - 1

    @property
    def counts(self) -> bool:
        """Whether windows that differ in nothing are alike."""
        return abs(self.moved("again", "before")) < SAME

    @property
    def kept(self) -> bool:
        """Whether the others did not notice."""
        return self.moved("during") < MOVES


def busy() -> tuple[float, float]:
    """Seconds that all processors have worked, and that there have been."""
    fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / TICKS, sum(fields) / TICKS


async def window(town: Town, seconds: float) -> Window:
    """Look at the healthy ones for a while."""
    worked, total = busy()
    own, began = sum(os.times()[:2]), trio.current_time()
    taken = sorted(await town.live(seconds))
    own, wall = sum(os.times()[:2]) - own, trio.current_time() - began
    worked_then, total_then = busy()
    return Window(
        p50=taken[len(taken) // 2],
        p99=taken[len(taken) * 99 // 100],
        calls=len(taken),
        busy=(worked_then - worked) / max(total_then - total, 1e-9),
        own=own / wall,
    )


async def measure(case: Case, rounds: int, seconds: float, freeze: bool) -> Outcome:
    """All rounds of one case."""
    outcome = Outcome(case)
    with Processes() as processes:
        drain = processes.drain(case) if case.heavy else None
        town = Town(processes, case, outcome.noisy)
        async with opened(town) as town.pool:
            await town.settle_in()
            await town.live(min(1.0, seconds))
            if freeze:
                gc.collect()
                gc.freeze()
            for _ in range(rounds):
                for name in WINDOWS[:2]:
                    outcome.windows[name].append(await window(town, seconds))
                async with trio.open_nursery() as nursery:
                    tell(processes.noisy, case.name)
                    nursery.start_soon(town.make_noise)
                    await trio.sleep(min(0.5, seconds))  # until the trouble is at its height
                    outcome.windows["during"].append(await window(town, seconds))
                    nursery.cancel_scope.cancel()
                tell(processes.noisy, "none")
                await town.quiet_down()
                await trio.sleep(min(0.3, seconds))
                outcome.windows["after"].append(await window(town, seconds))
                if drain is not None:
                    tell(processes.noisy, case.name)
                    tell(drain, case.name)
                    await trio.sleep(min(0.5, seconds))
                    outcome.windows["noise alone"].append(await window(town, seconds))
                    tell(drain, "none")
                    tell(processes.noisy, "none")
                    await trio.sleep(min(0.3, seconds))
    return outcome


def show(outcome: Outcome) -> None:
    """Print what was seen in one case."""
    case = outcome.case
    told = ", ".join(f"{code} {count}" for code, count in outcome.noisy.most_common(4))
    print(f"\n{case.name}  ({case.at}; its own calls: {told or 'none ended'})")
    print(
        f"  {'window':<12}{'p50 ms':>9}{'p99 ms':>9}{'p99 beside `again`':>20}{'machine':>9}{'pool CPU':>10}"
    )
    for name in WINDOWS:
        if name not in outcome.windows:
            continue
        beside = "" if name in {"before", "again"} else f"{outcome.moved(name):+.1%}"
        if name == "again":
            beside = f"A/A {outcome.moved('again', 'before'):+.1%}"
        figures = [1000 * outcome.middle(name, what) for what in ("p50", "p99")]
        print(
            f"  {name:<12}{figures[0]:>9.2f}{figures[1]:>9.2f}{beside:>20}"
            f"{outcome.middle(name, 'busy'):>9.0%}{outcome.middle(name, 'own'):>10.0%}"
        )
    print(f"  {verdict(outcome)}", flush=True)


def verdict(outcome: Outcome) -> str:
    """Say what came of it."""
    if not outcome.counts:
        return f"does not count: windows that differ in nothing differ by {SAME:.0%} or more"
    moved = f"p99 of the others moved by {outcome.moved('during'):+.1%}, at most {MOVES:.0%}"
    if "noise alone" in outcome.windows:
        moved += f"; {outcome.moved('noise alone'):+.1%} by the noise's processor time alone"
    return moved + ("" if outcome.kept else "   MISSED")


def judged(outcomes: Sequence[Outcome]) -> int:
    """The exit code: what could not be judged has not been kept either."""
    return 0 if all(outcome.counts and outcome.kept for outcome in outcomes) else 1


def main(arguments: list[str] | None = None) -> int:
    """Measure, and judge."""
    parser = argparse.ArgumentParser(description="What one tenant's trouble costs the others.")
    parser.add_argument("--only", default="", metavar="WORD", help="only cases with this word in their name")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a window")
    parser.add_argument("--tries", type=int, default=2, help="how often a case that does not count is made")
    parser.add_argument("--freeze", action="store_true", help="gc.freeze() once all is open")
    options = parser.parse_args(arguments)
    print(
        f"{TENANTS} healthy tenants, {RATE:g} calls a second each, of {1000 * SERVICE:g} ms; "
        f"{options.rounds} rounds of windows of {options.seconds:g} s"
    )
    outcomes = []
    for case in CASES:
        if options.only not in case.name:
            continue
        for _ in range(options.tries):
            outcome = trio.run(measure, case, options.rounds, options.seconds, options.freeze)
            show(outcome)
            if outcome.counts:
                break
        outcomes.append(outcome)
    missed = [each.case.name for each in outcomes if each.counts and not each.kept]
    unjudged = [each.case.name for each in outcomes if not each.counts]
    print(f"\n{len(outcomes)} cases; missed: {', '.join(missed) or 'none'}; "
          f"not judged: {', '.join(unjudged) or 'none'}")  # fmt: skip
    write("neighbours", {"cases": [attrs.asdict(each) for each in outcomes]})
    return judged(outcomes)


if __name__ == "__main__":
    sys.exit(main())
