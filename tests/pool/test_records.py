"""The ring of uses: bounded by count and by bytes, searched by call, told to any number of listeners."""

from __future__ import annotations

import logging

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import afpool
from afpool import Server, Use
from afpool._base.definition import build_definition
from afpool._base.errors import DeadlineExceeded, StaleTools, ToolFailed
from afpool._base.use import note_refusal
from afpool.pool._events import Event
from afpool.pool._records import Records, size_of
from afpool.testing import FakeTool, Status, echo_tool
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import ALICE, BOB, refused, start, world


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        self.at += 1.0
        return self.at


def records(kept: int = 10, most: int = 1_000_000, **more) -> Records:
    return Records(kept, most, Clock(), {}, **more)


def use(name: str, *, shown: bytes | None = None, marks: int = 0) -> Use:
    made = Use(name, "files", "echo", 1.0)
    made.shown = shown
    made.marks = ["stage", 1.0] * marks
    return made


# ---------------------------------------------------------------------------- how much is kept


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 50)), max_size=40),
    st.integers(1, 12),
    st.integers(500, 40_000),
)
def test_no_more_is_kept_than_may_be_and_no_less_than_can_be(filed, kept, most):
    ring = records(kept, most)
    all_of_them = []
    for number, (shown, marks) in enumerate(filed):
        one = use(f"c{number}", shown=b"x" * shown, marks=marks)
        all_of_them.append(one)
        ring.file(one)
        sizes = [size_of(each) for each in ring.uses]
        assert len(ring.uses) <= kept
        assert sum(sizes) == ring.bytes <= most
        there = len(ring.uses)
        assert list(ring.uses) == all_of_them[len(all_of_them) - there :], "the newest, in order"
        if there < min(kept, len(all_of_them)):
            assert ring.bytes + size_of(all_of_them[-there - 1]) > most, "the one before had room"
    assert ring.filed == len(filed)
    assert ring.forgotten == len(filed) - len(ring.uses)


def test_the_oldest_go_when_the_bytes_are_used_up():
    ring = records(100, 10_000)
    for number in range(10):
        ring.file(use(f"c{number}", shown=b"x" * 3_000))
        assert ring.bytes == sum(size_of(each) for each in ring.uses) <= 10_000
    assert [each.call_id for each in ring.uses] == ["c8", "c9"]


def test_what_can_be_large_counts():
    plain = size_of(use("c"))
    definition = build_definition(b'{"name":"echo","description":"%s"}' % (b"x" * 10_000))
    for name, value, least in (
        ("shown", b"x" * 5_000, 5_000),
        ("marks", ["stage", 1.0] * 100, 2_000),
        ("facts", [("answer", "http 503", 1.0)] * 50, 2_000),
        ("was", definition, 10_000),
        ("became", definition, 10_000),
        ("minted", ["artifact:x"] * 20, 1_000),
        ("name", "x" * 5_000, 5_000),
        ("call_id", "x" * 5_000, 4_999),
        ("changed", ("name",) * 50, 2_000),
        ("took", ["artifact:x"] * 20, 1_000),
        ("held_by", ("call-1",) * 16, 800),
        ("happened", Event(1, 0.0, "closed", "", {}), 200),
    ):
        one = use("c")
        setattr(one, name, value)
        assert size_of(one) >= plain + least, name


def test_a_ring_of_none_keeps_nothing_and_tells_all_the_same():
    told: list[Use] = []
    ring = records(0, on_use=told.append)
    one = use("c")
    ring.file(one)
    assert (list(ring.uses), ring.bytes, ring.filed, ring.forgotten) == ([], 0, 1, 1)
    assert told == [one]
    assert ring.find("c") == []


def test_when_it_was_filed_is_when_it_ended_unless_somebody_knows_better():
    ring = records()
    one, other = use("c"), use("d")
    other.ended_at = 7.0
    ring.file(one)
    ring.file(other)
    assert (one.ended_at, other.ended_at) == (101.0, 7.0)


def test_forgetting_all():
    ring = records()
    ring.file(use("c"))
    ring.clear()
    assert (list(ring.uses), ring.bytes, ring.forgotten) == ([], 0, 1)
    ring.file(use("d"))
    assert ring.bytes == size_of(ring.uses[0])


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(1, 8))
def test_what_is_found_is_what_is_kept(names, kept):
    ring = records(kept)
    for name in names:
        ring.file(use(name))
        for each in "abcd":
            assert ring.find(each) == [one for one in reversed(ring.uses) if one.call_id == each]
    ring.clear()
    assert not any(ring.find(each) for each in "abcd")


# ---------------------------------------------------------------------------- who is told


def test_every_listener_is_told_until_it_ends():
    ring = records()
    first, second, events = [], [], []
    end_first = ring.tap(on_use=first.append)
    end_both = ring.tap(on_use=second.append, on_event=events.append)
    one = use("c")
    ring.file(one)
    event = ring.event("closed", why="x")
    end_first()
    end_first()
    other = use("d")
    ring.file(other)
    end_both()
    ring.file(use("e"))
    ring.event("closed")
    assert (first, second, events) == ([one], [one, other], [event])


def test_a_listener_that_ends_another_one_in_the_middle():
    ring = records()
    told = []

    def ends(_: Use) -> None:
        end()

    ring.tap(on_use=ends)
    end = ring.tap(on_use=told.append)
    ring.file(use("c"))
    ring.file(use("d"))
    assert len(told) == 1


def test_a_listener_that_raises_is_counted_said_once_and_told_again(caplog):
    ring = records()
    told = []

    def fails(what: object) -> None:
        told.append(what)
        raise ValueError("full")

    ring.tap(on_use=fails, on_event=fails)
    after: list[Use] = []
    ring.tap(on_use=after.append)
    with caplog.at_level(logging.ERROR, "afpool"):
        for name in "cde":
            ring.file(use(name))
        ring.event("closed")
        ring.event("closed")
    assert ring.failures == len(told) == 5
    assert [each.call_id for each in after] == ["c", "d", "e"], "nobody behind it loses anything"
    assert [record.getMessage() for record in caplog.records] == ["on_use raised", "on_event raised"]


def test_a_tracer_that_raises_costs_no_call_and_no_other_tracer(caplog):
    ring = records()
    told: list[tuple[str, str]] = []

    class Tracer:
        def __init__(self, name: str, *, fails: bool = False) -> None:
            self.name, self.fails = name, fails

        def begin(self, use: Use) -> None:
            self._note("begin")

        def end(self, use: Use) -> None:
            self._note("end")

        def _note(self, what: str) -> None:
            told.append((self.name, what))
            if self.fails:
                raise ValueError("canary")

    ring.tracers = (Tracer("a", fails=True), Tracer("b"))
    one = use("c")
    ring.begin(one)
    ring.file(one)
    assert told == [("a", "begin"), ("b", "begin"), ("b", "end"), ("a", "end")], "the last begun ends first"
    assert ring.failures == 2
    assert ring.filed == 1
    assert [record.getMessage() for record in caplog.records] == ["a tracer raised ValueError"] * 2


# ---------------------------------------------------------------------------- finding


async def test_a_call_is_found_while_it_runs_and_when_it_has_ended():
    async with world(tools=[echo_tool(), FakeTool("block")]) as w, trio.open_nursery() as nursery:
        tool, block = await w.tool(), await w.tool(name="block")
        await tool.call(identity=ALICE, call_id="mine")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        running = start(nursery, lambda: block.call(identity=ALICE, call_id="mine"))
        await w.server.wait_for("tools/call", tool="block")
        newest, older = w.pool.records.find("mine")
        assert (newest.tool, newest.outcome, newest.waits_for) == ("block", None, "server")
        assert (older.tool, older.outcome, older.waits_for) == ("echo", "ok", None)
        event.set()
        await running.answer()
        assert w.pool.records.find("mine") == [newest, older]
        assert newest.outcome == "ok"
        assert w.pool.records.find("nobody's") == []


async def test_a_call_goes_through_its_stages_in_order_and_each_attempt_is_one():
    async with world(credential=True) as w:
        tool = await w.tool()
        w.server.on("tools/call", Status(401), times=1)
        await tool.call(identity=ALICE, call_id="c-1")
        [use] = [use for use in w.pool.records.uses if use.call_id == "c-1"]
        one_attempt = ["attempt", "credential", "write", "sent"]
        passed = [stage for stage, _ in use.stages]
        assert passed == ["start", "leased", *one_attempt, *one_attempt, "answered"]


async def test_a_pool_without_a_record():
    uses: list[Use] = []
    async with world(pool={"records": 0, "on_use": uses.append}) as w:
        tool = await w.tool()
        await tool.call(identity=ALICE)
        await refused(tool.call(identity=BOB), "identity-mismatch")
        assert [each.outcome for each in uses] == ["ok", "refused"]
        assert (len(w.pool.records.uses), w.pool.records.filed) == (0, 2)


@pytest.mark.parametrize("limits", [{"records": -1}, {"record_bytes": 0}])
async def test_a_ring_of_less_than_nothing(limits):
    with pytest.raises(ValueError, match="record"):
        async with afpool.open_pool([Server(name="files")], plan=lambda server, who: None, **limits):
            pass


# ---------------------------------------------------------------------------- the use itself


def test_what_an_error_knows_of_its_cause_is_filed_with_it():
    one, event = use("c"), Event(7, 1.0, "list-changed", "", {})
    note_refusal(one, StaleTools("no").because(event))
    assert (one.code, one.outcome, one.cause, one.happened) == ("stale-tools", "refused", 7, event)
    other = use("d")
    note_refusal(other, DeadlineExceeded("late", delivery="in-doubt").because(None))
    assert (other.outcome, other.cause, other.happened) == ("failed", None, None)
    note_refusal(other, ToolFailed("no"))
    assert other.code == "tool-failed"


def test_a_use_that_is_split_leaves_how_the_first_part_ended():
    one = use("c", shown=b"{}", marks=1)
    one.client_id, one.attempts, one.bytes_out = 4, 2, 10
    note_refusal(one, DeadlineExceeded("late", delivery="in-doubt").because(Event(1, 0.0, "x", "", {})))
    one.note("answer", "http 503", 1.0)
    part = one.split()
    assert (part.code, part.delivery, part.cause, part.client_id) == ("deadline-exceeded", "in-doubt", 1, 4)
    assert (part.attempts, part.bytes_out, part.shown) == (2, 10, b"{}")
    assert (one.outcome, one.code, one.delivery, one.cause, one.happened) == (None,) * 5
    assert (one.client_id, one.attempts, one.bytes_out) == (None, 0, 0)
    one.marks += ("sent", 2.0)
    one.note("answer", "http 500", 2.0)
    assert (len(part.marks), len(part.facts or ())) == (2, 1)
    assert (len(one.marks), len(one.facts or ())) == (4, 2), "it goes on with all that was done"


def test_what_is_written_into_a_use_later_counts_while_it_is_kept():
    definition = build_definition(b'{"name":"echo","description":"%s"}' % (b"x" * 10_000))
    ring = records(10, 14_000)
    first, second = use("a"), use("b")
    for each in (first, second):
        ring.file(each)
    second.was = definition
    ring.grown(second)
    assert list(ring.uses) == [first, second]
    assert ring.bytes == size_of(first) + size_of(second) == first.kept + second.kept
    second.became = definition
    ring.grown(second)
    assert (list(ring.uses), ring.bytes, ring.find("a"), ring.find("b")) == ([], 0, [], []), "too large"
    assert first.kept == second.kept == 0
    ring.grown(second)
    assert ring.bytes == 0, "what is not kept does not count"
