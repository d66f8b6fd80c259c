"""What is counted of calls and events: against a plain count of the same, and within its bounds."""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.identity import KeyDigest
from afpool._base.seams import Seams
from afpool.pool._records import Records
from afpool.record import Numbers
from afpool.record._counts import BUCKETS, SUM, Rate, Tally, add, bound, quantile, row
from afpool.record._numbers import CODES, LEAST, OTHER, SERVERS, STAGES, TOGETHER
from tests.record.sink_kit import WHO, use


class Clock:
    """A pool of records, and a clock that is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.seams = Seams(now=lambda: self.now)
        self.digest = KeyDigest(b"0123456789abcdef")
        self.records = Records(10, 2**20, self.seams.now, {})

    def event(self, kind: str, **facts: Any) -> None:
        self.records.event(kind, "k:0123456789ab", "search", **facts)


@pytest.mark.parametrize("number", range(28))
def test_a_bound_falls_into_its_bucket_and_what_is_longer_does_not(number: int) -> None:
    counts = row()
    add(counts, bound(number))
    assert counts[number] == 1
    add(counts, bound(number) + 1e-9)
    assert counts[number + 1] == 1
    assert counts[SUM] == pytest.approx(2 * bound(number), abs=1e-8)


def test_nothing_takes_too_long_for_a_bucket() -> None:
    counts = row()
    for seconds in (0.0, 1e-12, 1e6, 1e8):
        add(counts, seconds)
    assert sum(counts[:BUCKETS]) == 4
    assert counts[0] == 2


@given(st.lists(st.floats(1e-6, 1000.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_within_the_bucket_of_the_true_one(times: list[float], part: float) -> None:
    counts = row()
    for seconds in times:
        add(counts, seconds)
    true = sorted(times)[max(0, math.ceil(part * len(times)) - 1)]
    told = quantile(counts, part)
    assert told is not None
    upper = 2.0 ** math.ceil(math.log2(true * 1e6) - 1e-9) / 1e6
    assert upper / 2 - 1e-9 <= told <= upper * 1.000001


def test_of_nothing_there_is_no_percentile() -> None:
    assert quantile(row(), 0.5) is None


@given(st.lists(st.integers(0, 200), max_size=100), st.integers(0, 300), st.sampled_from([1, 10, 60]))
def test_a_rate_counts_the_whole_seconds_before(seconds: list[int], later: int, span: int) -> None:
    rate = Rate()
    newest = 0
    counted: list[int] = []
    for second in seconds:
        newest = max(newest, second)
        counted.append(newest)  # a late one is of now
        rate.count(second)
    now = newest + later
    assert rate.total == len(seconds)
    assert rate.over(span, now) == sum(now - span <= each < now for each in counted)


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 40.0),
            st.sampled_from(["search", "mail", ""]),
            st.sampled_from(["ok", "refused", "failed", "cancelled"]),
            st.floats(0.0, 10.0),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_calls_are_counted_as_they_are(calls: list[tuple[float, str, str, float, bool]]) -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]
    seen: list[tuple[float, str, float]] = []
    for wait, server, outcome, took, error in calls:
        clock.now += wait
        began = clock.now
        clock.now += took
        code = None if outcome == "ok" else f"code-{outcome}"
        clock.records.file(
            use(
                began=began, lasted=took, server=server, outcome=outcome, code=code, tool_error=error,
                marks=["start", began, "leased", began + took / 2, "answered", clock.now],
            )
        )  # fmt: skip
        seen.append((clock.now, server, took))
    told = numbers.overview()
    outcomes = Counter(call[2] for call in calls)
    assert told["total"] == len(calls)
    assert told["outcomes"] == {word: outcomes[word] for word in ("ok", "refused", "failed", "cancelled")}
    assert told["tool_errors"] == sum(call[4] for call in calls)
    assert {each["code"]: each["total"] for each in told["refusals"]} == {
        f"code-{outcome}": count for outcome, count in outcomes.items() if outcome != "ok"
    }
    by_server = Counter(call[1] for call in calls)
    assert {each["server"]: each["calls"] for each in told["servers"]} == dict(by_server)
    second = int(clock.now)
    for span in (1, 10, 60):
        passed = max(1, min(span, second - 1000))
        expected = sum(second - passed <= int(at) < second for at, _, _ in seen) / passed
        assert told["rates"][str(span)] == pytest.approx(expected)
    # of the last minute: all of the last 30 s, none that is older than 60 s
    count = told["call"]["count"]
    assert (
        sum(at >= clock.now - 30 for at, _, _ in seen)
        <= count
        <= sum(at > clock.now - 60 for at, _, _ in seen)
    )
    whole = sum(took for _, _, took in seen)
    assert sum(tally.whole[SUM] for tally in numbers.tallies.values()) == pytest.approx(whole)
    waited = sum(tally.wait[SUM] for tally in numbers.tallies.values())
    assert waited == pytest.approx(whole / 2)


def test_a_stage_is_what_lies_between_two_marks_and_a_check_in_passing_is_none() -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]
    at = clock.now
    marks = [
        "hooks",
        at + 0.001,
        "start",
        at + 0.001 + LEAST / 2,
        "admission",
        at + 0.101,
        "server",
        at + 0.601,
    ]
    clock.now += 1
    clock.records.file(use(began=at, lasted=1.0, marks=marks))
    stages = {each["stage"]: each for each in numbers.overview()["stages"]}
    assert set(stages) == {"hooks", "admission", "server"}
    assert stages["hooks"]["p50"] == pytest.approx(0.001, rel=0.5)
    assert stages["admission"]["p95"] == pytest.approx(0.1, rel=0.5)
    assert stages["server"]["p99"] == pytest.approx(0.5, rel=0.5)
    tally = numbers.tallies["search"]
    assert tally.stages["server"][SUM] == pytest.approx(0.5)
    assert tally.wait[SUM] == 0.0  # it got no place


def test_percentiles_forget_and_totals_do_not() -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]

    def call(took: float) -> None:
        clock.now += took
        clock.records.file(use(began=clock.now - took, lasted=took))

    for _ in range(100):
        call(0.001)
    clock.now += 61
    for _ in range(3):
        call(1.0)
    told = numbers.overview()
    assert told["call"]["count"] == 3
    assert told["call"]["p50"] > 0.5
    assert told["total"] == 103
    clock.now += 200
    assert numbers.overview()["call"] == {"count": 0, "p50": None, "p95": None, "p99": None}
    assert numbers.servers()["search"]["p50"] is None
    assert numbers.servers()["search"]["calls"] == 103


def test_whatever_callers_name_the_rows_are_bounded() -> None:
    clock = Clock()
    numbers = Numbers(clock, tools=5, tenants=3)  # type: ignore[arg-type]
    for number in range(3000):
        at = clock.now
        who = type(WHO)(tenant=f"t{number}")
        clock.records.file(
            use(
                began=at, server=f"s{number}", tool=f"t{number}", code=f"c{number}", who=who,
                outcome="failed", marks=[f"m{number}", at + 0.1, "m", at + 0.2],
            )
        )  # fmt: skip
        clock.event("open-failed", why=f"w{number}")
        clock.event(f"kind{number}")
    numbers.fold()
    assert len(numbers.tallies) == SERVERS + 1
    assert len(numbers.codes) == CODES + 1
    assert len(numbers.events) <= CODES + 1
    assert len(numbers.open_failures) <= CODES + 1
    assert len(numbers.tools) == 6
    assert len(numbers.tenants) == 4
    assert all(len(tally.stages) <= STAGES + 1 for tally in numbers.tallies.values())
    assert numbers.tallies[OTHER].calls.total == 3000 - SERVERS
    assert sum(rate.total for rate in numbers.codes.values()) == 3000
    assert all(name == OTHER or name.startswith("t:") for name in numbers.tenants)


def test_clients_that_come_and_go() -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]
    clock.event("opened", client=1, took=0.25, connect=0.125, initialize=0.0625)
    clock.event("evicted", client=1, why="idle")
    clock.event("closed", client=1, why="evicted")
    evicted = clock.records.events.filed - 1
    clock.event("opened", client=2, took=0.5, after=evicted)
    clock.event("client-lost", client=2, why="reset")
    clock.event("opened", client=3, after=clock.records.events.filed)
    clock.event("open-failed", why="open-failed")
    clock.event("opened", client=4, after=999_999)
    told = numbers.overview()
    assert (told["opened"], told["evictions"]) == (4, 1)
    assert told["restarts"] == {"evicted": 1, "client-lost": 1, OTHER: 1}
    assert told["open_failures"] == {"open-failed": 1}
    assert numbers.creating["search"][SUM] == 0.75
    assert numbers.creating_stages["connect"][SUM] == 0.125
    assert set(numbers.creating_stages) == {"connect", "initialize"}
    assert numbers.evicted == {"idle": 1}
    clock.now += 5
    assert numbers.overview()["opens"] == 4 / 5


def test_calls_are_counted_together_and_whoever_reads_sees_all_of_them() -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]
    for number in range(1, 200):
        clock.records.file(use(began=clock.now))
        assert sum(tally.calls.total for tally in numbers.tallies.values()) == number - number % TOGETHER
    assert numbers.servers()["search"]["calls"] == 199
    clock.records.file(use(began=clock.now))
    assert numbers.overview()["total"] == 200


def test_a_call_that_is_noted_while_another_thread_counts_is_counted_the_next_time() -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]
    noted = numbers._ended_calls  # as `use` has it in hand when the other thread comes in between
    numbers.fold()
    noted.append(use(began=clock.now))
    assert numbers.overview()["total"] == 1
    assert not numbers._ended_calls


def test_a_scraper_in_another_thread_loses_no_call() -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]
    stop = threading.Event()

    def scrape() -> None:
        while not stop.is_set():
            numbers.fold()

    threads = [threading.Thread(target=scrape) for _ in range(2)]
    for thread in threads:
        thread.start()
    made = use(began=clock.now)
    for _ in range(20_000):
        clock.records.file(made)
    stop.set()
    for thread in threads:
        thread.join()
    assert numbers.overview()["total"] == 20_000
    assert numbers.tallies["search"].whole[SUM] == pytest.approx(20_000 * 0.25)


def test_when_it_is_closed_nothing_is_counted_any_more() -> None:
    clock = Clock()
    numbers = Numbers(clock)  # type: ignore[arg-type]
    numbers.close()
    numbers.close()
    clock.records.file(use(began=clock.now))
    assert numbers.overview()["total"] == 0


def test_a_tally_that_nobody_touches_costs_nothing_and_forgets_all_the_same() -> None:
    tally = Tally()
    tally.turn(10)
    add(tally.whole, 0.5)
    assert sum(next(tally.recent(11))[1][:BUCKETS]) == 1
    assert sum(next(tally.recent(12))[1][:BUCKETS]) == 0
    add(tally.whole, 0.5)
    assert sum(next(tally.recent(90))[1][:BUCKETS]) == 0
