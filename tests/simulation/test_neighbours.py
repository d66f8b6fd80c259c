"""A tenant in trouble costs its neighbours nothing, a loud one no more than its share; in simulated time.

What is compared is every latency of the nineteen others, with and without the trouble: calls, openings,
lists. They are equal as long as the trouble is one tenant's. The honest limits:

* A place is never taken back, so one tenant is kept to its share (`max_share`, half) of what all share. Two
  tenants whose servers hang at once may hold all of it; then the others wait, until a deadline passes there.
* Where more is wanted than there is, everybody waits; what is equal then are the shares.
* Large lists are read in a thread, one slice after the other, since there is one interpreter: one that is
  read for somebody else costs a slice of 64 KB. The lists here are small.
* A simulated clock does not see a loop that is held. The table of `neighbours.py` has the longest step.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.simulation.fairness import CASES, PLACES, SERVICE, compete
from tests.simulation.neighbour_troubles import TROUBLES, Trouble, nothing
from tests.simulation.neighbour_world import Outcome, live
from tests.simulation.neighbours import differing, main

if TYPE_CHECKING:
    from tests.simulation.neighbour_troubles import Kind
    from tests.simulation.neighbour_world import Form


@functools.cache
def undisturbed(form: Form, kind: Kind | None, **limits: int) -> Outcome:
    """Where each has a server of its own, the kind of the one in trouble is of no matter without it."""
    before = live(form, kind or "http", None, **limits)
    assert {each.outcome for each in before.latencies.values()} == {"ok"}
    assert before.percentile(0.5) >= SERVICE
    return before


def name(trouble: Trouble) -> str:
    return f"{trouble.name}, {trouble.kind}"


@pytest.mark.parametrize("trouble", TROUBLES, ids=name)
@pytest.mark.parametrize("form", ["own", "one"])
def test_nobody_notices_a_neighbour_in_trouble(form: Form, trouble: Trouble) -> None:
    before = undisturbed(form, None if form == "own" else trouble.kind)
    after = live(form, trouble.kind, trouble)
    assert differing(before, after) == []
    assert after.percentile(0.99) == before.percentile(0.99)
    assert len(after.latencies) > 200


HANGS = next(trouble for trouble in TROUBLES if trouble.name == "hangs in call")


@pytest.mark.parametrize(
    ("trouble", "limits"),
    [
        pytest.param(HANGS, {"max_waiting_total": 64, "max_operations": 1}, id="waiters"),
        pytest.param(
            attrs.evolve(HANGS, conversations=100, callers=1), {"max_clients": 120}, id="clients in use"
        ),
        pytest.param(
            Trouble("a key for each call", "http", nothing, conversations=120, callers=1, calls=1),
            {"max_clients": 120},
            id="idle clients",
        ),
    ],
)
def test_nobody_notices_a_neighbour_that_wants_all_of_it(trouble: Trouble, limits: dict[str, int]) -> None:
    """Smaller limits, which the one in trouble alone would use up; the others need less than half."""
    before = undisturbed("own", None, **limits)
    assert differing(before, live("own", trouble.kind, trouble, **limits)) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shares_are_equal_whatever_a_neighbour_offers(case) -> None:
    result = compete(case)
    assert result.share == PLACES / case.count
    assert result.off <= 0.1, str(result)
    assert not result.refused
    # all have been served again and again, and nobody waited longer than its own calls, and one round more
    quiet = [result.served[one] for one in result.parts][1:]
    assert min(quiet) >= 0.9 * max(quiet) > 10
    rounds = -(-3 * PLACES // case.count) / result.share
    assert result.waited <= SERVICE * (rounds + 1)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "connect"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4
    assert said[2].split()[:7] == [
        "own",
        "http",
        "hangs",
        "in",
        "connect",
        str(len(live("own", "http", None).latencies)),
        "102.000",
    ]
