"""Random runs over real sockets with fixed seeds; long ones: `python -m tests.realfaults.chaos --seeds N`.

The judge is held as well: each of its rules is broken once, in the facts of a run that broke none.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from tests.realfaults.judging import judge
from tests.realfaults.running import ERAS, WAYS_THERE, Facts, Run

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = (*range(14), 19, 24)
"""Every way in both eras; the last two change bytes in plain text."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_breaks_no_rule(seed):
    run = Run(seed)
    assert not judge(trio.run(run.carry_out)), str(run)


def test_the_seeds_are_of_every_kind():
    runs = [Run(seed) for seed in SEEDS]
    assert {run.way for run in runs} == set(WAYS_THERE)
    assert {run.era for run in runs if run.way != "old-sse"} == set(ERAS)
    assert any(run.plain and run.corrupting for run in runs)
    fallen = Counter(fault.kind for run in runs for index in range(20) for fault in run.script(index))
    assert min(fallen.values()) > 3
    assert len(fallen) == 7


# ---------------------------------------------------------------------------- the judge


@pytest.fixture(scope="module")
def good() -> Facts:
    """The facts of a quiet run over HTTP."""
    run = Run(0, way="json", era="handshake")
    run.rate, run.away, run.corrupting = 0.0, False, False
    facts = trio.run(run.carry_out)
    assert not judge(facts)
    assert len([told for told in facts.told if told.word == "ok"]) > 5
    return facts


def _again(facts: Facts) -> None:
    facts.server.executed.append(facts.server.executed[0])


def _unsent(facts: Facts) -> None:
    told = next(each for each in facts.told if each.word == "ok")
    told.word, told.delivery, told.use = "connection-lost", "not-sent", "not-sent"


def _unsent_at_the_proxy(facts: Facts) -> None:
    """The server never saw it, but the proxy did."""
    _unsent(facts)
    n = next(each for each in facts.told if each.delivery == "not-sent").n
    facts.server.log[:] = [each for each in facts.server.log if each.arguments.get("n") != n]
    facts.server.executed[:] = [each for each in facts.server.executed if each.arguments["n"] != n]


def _refused(facts: Facts) -> None:
    told = next(each for each in facts.told if each.word == "ok")
    told.word, told.delivery, told.use = "session-expired", "refused", "refused"


def _anothers_answer(facts: Facts) -> None:
    first, second, *_ = (each for each in facts.told if each.word == "ok" and each.tool == "pay")
    first.text = second.text


def _invented(facts: Facts) -> None:
    told = next(each for each in facts.told if each.word == "ok")
    facts.server.executed[:] = [each for each in facts.server.executed if each.arguments["n"] != told.n]


def _in_doubt(facts: Facts) -> None:
    told = next(each for each in facts.told if each.word == "ok")
    told.word, told.delivery, told.use = "connection-lost", "in-doubt", "in-doubt"


def _another_record(facts: Facts) -> None:
    next(each for each in facts.told if each.word == "ok").use = "refused"


def _late(facts: Facts) -> None:
    facts.told[0].ended = facts.told[0].deadline + facts.lag + 1.1


def _late_list(facts: Facts) -> None:
    facts.lists_late = facts.lag + 1.1


def _header(facts: Facts, name: str, value: str) -> None:
    index = next(n for n, each in enumerate(facts.server.log) if each.tool)
    arrival = facts.server.log[index]
    facts.server.log[index] = attrs.evolve(arrival, headers={**arrival.headers, name: value})


def _another_token(facts: Facts) -> None:
    _header(facts, "authorization", "Bearer token-of-somebody-1")


def _another_person(facts: Facts) -> None:
    _header(facts, "authorization", "Bearer token-of-somebody-1")
    _header(facts, "x-who", "somebody")


def _another_session(facts: Facts) -> None:
    index, arrival = next((n, each) for n, each in enumerate(facts.server.log) if each.session_id)
    other = next(
        each.session_id
        for each in facts.server.log
        if each.session_id and each.headers["x-who"] != arrival.headers["x-who"]
    )
    facts.server.log[index] = attrs.evolve(arrival, session_id=other)


def _another_connection(facts: Facts) -> None:
    first = facts.server.log[0]
    index = next(
        n for n, each in enumerate(facts.server.log) if each.headers["x-who"] != first.headers["x-who"]
    )
    facts.server.log[index] = attrs.evolve(facts.server.log[index], connection=first.connection)


def _left_over(facts: Facts) -> None:
    facts.left.append("descriptors")


def _not_mended(facts: Facts) -> None:
    facts.after.append("the next call")


def _violated(facts: Facts) -> None:
    facts.server.violations.append("tools/call before notifications/initialized")


BROKEN = {
    _again: "times",
    _unsent: "not to have been sent",
    _unsent_at_the_proxy: "not to have been sent",
    _refused: "refused, and ran",
    _anothers_answer: "not its own",
    _invented: "not its own",
    _in_doubt: "nothing fell on its connection",
    _another_record: "the record says",
    _late: "came back",
    _late_list: "a list came back",
    _another_token: "with the token of",
    _another_person: "came from somebody",
    _another_session: "session of",
    _another_connection: "connection of",
    _left_over: "descriptors",
    _not_mended: "the next call",
    _violated: "before notifications/initialized",
}


@pytest.mark.parametrize(("breaks", "words"), BROKEN.items(), ids=[each.__name__[1:] for each in BROKEN])
def test_the_judge_finds_what_is_broken(good: Facts, breaks: Callable[[Facts], None], words: str):
    class Server:
        """What the judge reads of a server, to be changed."""

        def __init__(self) -> None:
            self.log = list(good.server.log)
            self.executed = list(good.server.executed)
            self.violations = list(good.server.violations)

        def arrivals(self, method: str) -> list:
            return [each for each in self.log if each.name == method]

    facts = attrs.evolve(
        good, server=Server(), told=[copy.copy(each) for each in good.told], after=[], left=[]
    )
    assert not judge(facts)
    breaks(facts)
    assert any(words in found for found in judge(facts)), judge(facts)


def test_changed_bytes_give_nobody_what_is_somebody_elses(good: Facts):
    facts = attrs.evolve(good, corrupting=True, told=[copy.copy(each) for each in good.told])
    assert not judge(facts)
    first, *others = (each for each in facts.told if each.word == "ok")
    first.text = next(each for each in others if each.who != first.who).text
    assert any("somebody else's" in found for found in judge(facts))
