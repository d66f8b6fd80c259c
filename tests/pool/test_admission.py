"""The runtime's admission: fair between tenants, then keys; nothing is lost or given twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import Reply
from afpool._base.errors import DeadlineExceeded, Overloaded
from afpool.pool._admission import RuntimeAdmission, Seat


def queue(admission: RuntimeAdmission, *who: str) -> list[Seat]:
    """Queue up: `tenant/key` or `tenant/key@server`."""
    seats = []
    for one in who:
        name, _, server = one.partition("@")
        seats.append(admission.wait(server or "files", name.split("/")[0], name))
    return seats


def full(limit: int = 1, per_server: int | None = None) -> RuntimeAdmission:
    admission = RuntimeAdmission(limit, per_server)
    for _ in range(limit):
        assert admission.try_enter("files")
    return admission


def order(admission: RuntimeAdmission, seats: list[Seat], server: str = "files") -> list[str]:
    """Let one after the other leave; the keys in the order in which they were served."""
    served: list[str] = []
    known: set[int] = set()
    for _ in range(len(seats)):
        admission.leave(server)
        for seat in seats:
            if seat.granted and id(seat) not in known:
                known.add(id(seat))
                served.append(seat.key)
    return served


def test_it_counts_and_refuses_beyond_the_limit():
    admission = RuntimeAdmission(2)
    assert admission.try_enter("files")
    assert admission.try_enter("mail")
    assert not admission.try_enter("mail")
    assert admission.in_flight == 2
    assert (admission.count("files"), admission.count("mail"), admission.count("none")) == (1, 1, 0)
    admission.leave("files")
    assert (admission.in_flight, admission.count("files")) == (1, 0)
    assert admission.try_enter("mail")
    assert admission.count("mail") == 2


def test_one_key_is_served_in_the_order_of_coming():
    admission = full()
    seats = queue(admission, "acme/a", "acme/a", "acme/a")
    for index in range(3):
        admission.leave("files")
        assert [seat.granted for seat in seats] == [True] * (index + 1) + [False] * (2 - index)


def test_tenants_take_turns_then_their_keys():
    admission = full()
    seats = queue(admission, "acme/a", "acme/a", "acme/b", "acme/b", "globex/c", "globex/c", "globex/c")
    assert order(admission, seats) == [
        "acme/a", "globex/c", "acme/b", "globex/c", "acme/a", "globex/c", "acme/b",
    ]  # fmt: skip


def test_a_tenant_with_a_hundred_times_the_load_starves_nobody():
    admission = full()
    seats = queue(admission, *[f"acme/{index % 7}" for index in range(400)], *["globex/c"] * 4)
    served = order(admission, seats)
    assert len(served) == 404
    assert [place for place, key in enumerate(served) if key == "globex/c"] == [1, 3, 5, 7]


def test_who_comes_late_waits_one_round_at_most():
    admission = full()
    seats = queue(admission, *["acme/a"] * 50, *["globex/b"] * 50)
    for _ in range(10):
        admission.leave("files")
    (late,) = queue(admission, "initech/c")
    for _ in range(3):
        admission.leave("files")
    assert late.granted
    assert sum(seat.granted for seat in seats) == 12


def test_nobody_overtakes_who_waits():
    admission = full()
    (seat,) = queue(admission, "acme/a")
    admission.leave("files")
    assert seat.granted
    assert not admission.try_enter("files")
    admission.leave("files")
    assert admission.try_enter("files")


def test_a_full_server_is_passed_over_and_not_waited_for():
    admission = RuntimeAdmission(4, per_server=2)
    assert admission.try_enter("files")
    assert admission.try_enter("files")
    assert not admission.try_enter("files")
    stuck, other = queue(admission, "acme/a@files", "acme/b@mail")
    assert not stuck.granted
    assert other.granted
    third = admission.wait("mail", "globex", "globex/c")
    assert third.granted
    admission.leave("mail")
    assert not stuck.granted
    admission.leave("files")
    assert stuck.granted


def test_a_free_place_of_another_server_is_given_though_somebody_waits():
    admission = RuntimeAdmission(4, per_server=1)
    assert admission.try_enter("files")
    queue(admission, "acme/a@files")
    assert not admission.try_enter("mail")  # it asks by waiting, and is served at once
    assert admission.wait("mail", "acme", "acme/b").granted


def test_beyond_max_waiting_it_refuses_with_the_numbers_and_keeps_nothing():
    admission = RuntimeAdmission(1, max_waiting=2)
    assert admission.try_enter("files")
    queue(admission, "acme/a", "acme/a")
    with pytest.raises(Overloaded, match=r"max_in_flight 1.*2 wait.*max_waiting_total 2"):
        queue(admission, "globex/b")
    assert admission.waiting == 2
    assert list(admission._tenants) == ["acme"]


# ---------------------------------------------------------------------------- going away


def test_withdrawn_before_its_turn_it_is_gone():
    admission = full()
    first, second, third = queue(admission, "acme/a", "acme/a", "globex/b")
    assert admission.withdraw(first)
    assert admission.waiting == 2
    assert admission.withdraw(third)
    admission.leave("files")
    assert second.granted
    assert admission.waiting == 0
    assert not admission._tenants


def test_withdrawn_after_the_grant_it_owns_the_place():
    admission = full()
    (seat,) = queue(admission, "acme/a")
    admission.leave("files")
    assert not admission.withdraw(seat)
    assert seat.granted
    admission.leave("files")
    assert admission.in_flight == 0


def test_withdrawn_twice_it_is_gone_once():
    admission = full()
    seat, other = queue(admission, "acme/a", "acme/a")
    assert admission.withdraw(seat)
    assert not admission.withdraw(seat)
    assert not seat.granted
    assert admission.waiting == 1
    assert admission.withdraw(other)


@pytest.mark.parametrize("how", ["abandoned", "late"])
def test_who_went_away_without_a_word_gets_no_place(how):
    admission = full()
    gone, there = queue(admission, "acme/a", "globex/b")
    if how == "abandoned":
        gone.reply.abandon()
    else:
        gone.reply.fail(DeadlineExceeded("late", delivery="not-sent"))
    admission.leave("files")
    assert not gone.granted
    assert there.granted
    assert admission.in_flight == 1
    assert not admission.withdraw(gone)
    assert (admission.in_flight, admission.waiting) == (1, 0)


def test_who_went_away_does_not_cost_its_tenant_a_turn():
    admission = full()
    gone, mine, theirs = queue(admission, "acme/a", "acme/a", "globex/b")
    gone.reply.abandon()
    admission.leave("files")
    assert mine.granted
    assert not theirs.granted


def test_thousands_may_go_away_at_once():
    admission = full()
    seats = queue(admission, *[f"acme/{index % 5}" for index in range(4096)], "globex/b")
    for seat in seats[:-1]:
        seat.reply.fail(DeadlineExceeded("late", delivery="not-sent"))
    admission.leave("files")
    assert seats[-1].granted
    assert (admission.in_flight, admission.waiting) == (1, 0)


# ---------------------------------------------------------------------------- conservation

SERVERS = ("files", "mail", "web")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from(SERVERS)),
        st.tuples(
            st.just("wait"),
            st.sampled_from(SERVERS),
            st.sampled_from(["acme", "globex", None]),
            st.integers(0, 2),
        ),
        st.tuples(st.just("leave"), st.integers(0, 100)),
        st.tuples(st.just("withdraw"), st.integers(0, 100)),
        st.tuples(st.just("go"), st.integers(0, 100)),
    ),
    max_size=60,
)


@given(st.integers(1, 6), st.integers(1, 4), STEPS)
def test_no_place_is_lost_or_given_twice(limit, per_server, steps):
    admission = RuntimeAdmission(limit, per_server)
    inside: list[str] = []
    seats: list[Seat] = []
    gone: set[int] = set()

    def absorb():
        for seat in [seat for seat in seats if seat.granted]:
            assert id(seat) not in gone
            seats.remove(seat)
            inside.append(seat.server)

    for name, *values in steps:
        if name == "enter":
            if admission.try_enter(values[0]):
                inside.append(values[0])
        elif name == "wait":
            server, tenant, number = values
            seats.append(admission.wait(server, tenant, f"{server}|{tenant}/{number}"))
        elif name == "leave" and inside:
            admission.leave(inside.pop(values[0] % len(inside)))
        elif name == "withdraw" and seats:
            seat = seats.pop(values[0] % len(seats))
            admission.withdraw(seat)
            assert not seat.granted
        elif name == "go" and seats:
            seat = seats[values[0] % len(seats)]
            if seat.reply.abandon():
                gone.add(id(seat))
        absorb()
        counts = Counter(inside)
        assert admission.in_flight == len(inside) <= limit
        assert all(admission.count(server) == counts[server] <= per_server for server in SERVERS)
        live = [seat for seat in seats if id(seat) not in gone]
        assert len(live) <= admission.waiting <= len(seats)
        # whoever waits does so because it is full
        assert all(len(inside) == limit or counts[seat.server] == per_server for seat in live)
    for seat in seats:
        admission.withdraw(seat)
    while inside:
        admission.leave(inside.pop())
    assert (admission.in_flight, admission.waiting) == (0, 0)
    assert not admission._tenants
    assert not admission._per_server


def test_a_seat_is_answered_by_an_ordinary_reply():
    admission = RuntimeAdmission(1)
    seat = admission.wait("files", None, "files|_/_/_")
    assert isinstance(seat.reply, Reply)
    assert seat.granted
    assert seat.reply.result() is None
