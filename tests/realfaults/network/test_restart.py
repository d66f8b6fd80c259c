"""A server that is killed and comes back, with many keys. With more of them: `tests.realfaults.restart`."""

from __future__ import annotations

import attrs
import pytest
import trio

from tests.realfaults.restart import AT_WORK, Report, _judged, restart

KEYS = 60
CONNECTING = 4


@pytest.fixture(scope="module")
def report() -> Report:
    return trio.run(lambda: restart(KEYS, max_connecting=CONNECTING))


def test_every_key_comes_back_and_what_was_said_meanwhile_is_true(report: Report):
    assert not report.wrong
    count, most, _ = report.openings()
    assert count == KEYS
    assert 1 <= most <= CONNECTING
    # what was at work when the server was killed may have run, and is not asked for again
    doubtful = [told for told in report.said if told.word == "connection-lost in-doubt"]
    assert len(doubtful) >= AT_WORK
    # one for a call and one for what is announced, of each key
    assert max(line["peak"] for line in report.log) <= 2 * KEYS + AT_WORK


def test_the_judge_of_a_restart_can_fail(report: Report):
    def judged(**changes: object) -> str:
        return "; ".join(_judged(attrs.evolve(report, **changes), CONNECTING))

    assert not judged()
    ran = next(line for line in report.log if line["kind"] == "execution")
    opening = next(line for line in report.second_life() if line["kind"] == "initialize")
    mine = next(told for told in report.said if told.n == ran["n"])
    session = next(line for line in report.log if line.get("session"))
    assert "ran 2 times" in judged(log=[*report.log, ran])
    assert "not sent, and it came" in judged(said=[attrs.evolve(mine, word="connection-lost not-sent")])
    assert "refused, and it ran" in judged(said=[attrs.evolve(mine, word="session-expired refused")])
    assert "not its answer" in judged(said=[attrs.evolve(mine, text='{"n": 0}')])
    assert "it never came" in judged(said=[attrs.evolve(mine, n=-1, word="connection-lost in-doubt")])
    assert "no kind that there is" in judged(said=[attrs.evolve(mine, word="protocol-error answered")])
    assert "a session of" in judged(log=[*report.log, session | {"who": "somebody"}])
    assert "are well" in judged(well=report.well[1:])
    crowd = [opening | {"connection": 10_000 + number} for number in range(CONNECTING + 1)]
    assert "openings at once" in judged(log=[*report.log, *crowd])
    assert "for 60 keys" in judged(log=[*report.log, *crowd])
