"""Noisy neighbours and fairness in simulated time, as one table.

    python tests/simulation/neighbours.py [--only WORD]

Twenty tenants at one pool. One of them is in trouble, or offers a hundred times the load of the others;
what do these notice? Ends with status 1 where a latency differs, or a share is not fair. The same is held
by `test_neighbours.py`. The figure before the last is the CPU time of the longest step of the loop: a
simulated clock does not see a loop that is held. It is printed and not judged.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.simulation.fairness import CASES, compete
from tests.simulation.neighbour_troubles import TROUBLES
from tests.simulation.neighbour_world import live

if TYPE_CHECKING:
    from tests.simulation.neighbour_troubles import Kind
    from tests.simulation.neighbour_world import Form, Outcome

COLUMNS = "{:<6} {:<15} {:<16} {:>7} {:>8} {:>8} {:>8} {:>9}  {}"


def undisturbed(known: dict[tuple[Form, Kind | None], Outcome], form: Form, kind: Kind) -> Outcome:
    """The run without a neighbour; where all have a server of their own it is one for all kinds."""
    name = (form, None if form == "own" else kind)
    if name not in known:
        known[name] = live(form, kind, None)
    return known[name]


def differing(before: Outcome, after: Outcome) -> list[str]:
    """The requests of healthy tenants that did not end as before, and as soon."""
    return [
        f"{' '.join(name)}: {latency} became {after.latencies.get(name)}"
        for name, latency in before.latencies.items()
        if after.latencies.get(name) != latency
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="Noisy neighbours in simulated time.")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="only troubles with this word in their name"
    )
    options = parser.parse_args(arguments)
    wrong = 0
    known: dict[tuple[Form, Kind | None], Outcome] = {}
    print(
        "own: 20 tenants, each with a server of its own; one: all at one. Milliseconds; p99 of the other 19."
    )
    print(COLUMNS.format("form", "server", "trouble", "asked", "p99", "p99 then", "differ", "step CPU", "it"))
    forms: tuple[Form, ...] = ("own", "one")
    for form in forms:
        for trouble in TROUBLES:
            if options.only not in trouble.name:
                continue
            before = undisturbed(known, form, trouble.kind)
            after = live(form, trouble.kind, trouble)
            differs = differing(before, after)
            wrong += bool(differs)
            said = ", ".join(f"{code} {count}" for code, count in sorted(after.noisy.items())) or "waits"
            figures = [f"{1000 * each:.3f}" for each in (before.percentile(0.99), after.percentile(0.99))]
            print(
                COLUMNS.format(
                    form,
                    trouble.kind,
                    trouble.name,
                    len(after.latencies),
                    *figures,
                    len(differs),
                    f"{1000 * after.longest:.1f}",
                    said,
                )
            )
            for line in differs[:3]:
                print(f"       {line}")
    for case in CASES:
        if options.only in case.name:
            result = compete(case)
            print(f"fair   {case.name}: {result}")
            wrong += not result.fair
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
