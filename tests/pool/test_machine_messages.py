"""Asking, giving back and opening, case by case: what the machine does and what it says about it.

The cases run in the watched world of `machine_world`, so every one of them is checked against all
invariants as well.
"""

from __future__ import annotations

import pytest

from afpool._base.errors import (
    AuthorizationRequired,
    BindingChanged,
    OpenBackoff,
    OpenFailed,
    Overloaded,
    PoolClosed,
)
from afpool.pool import _messages as m
from afpool.pool._key_places import ABANDONED_IN_A_ROW, TIMED_OUT_IN_A_ROW
from afpool.pool._key_state import LeaseReturnedTwice
from tests.pool.machine_books import (
    CONNECTING,
    FRESH,
    HOLDING,
    LISTS,
    WAITING,
    A,
    Asker,
    B,
)
from tests.pool.machine_case import Case, refusal

# ---------------------------------------------------------------------------- Admit


def test_admit_without_a_client_opens_one_and_waits():
    case = Case()
    asker = case.admit(A)
    assert asker.phase == WAITING
    assert len(case.openings) == 1
    assert case.kept is True


def test_admit_on_a_client_with_room_is_granted_at_once():
    case = Case()
    client, (asker,) = case.ready(1)
    assert asker.phase == HOLDING
    assert asker.reply.result() is client
    assert case.state["in_flight"] == 1


def test_admit_waits_when_all_places_are_taken():
    case = Case(places=1)
    _, (holder,) = case.ready(1)
    second, third = case.admit(A), case.admit(A)
    case.settle(holder)
    assert (second.phase, third.phase) == (HOLDING, WAITING)


def test_admit_of_a_list_takes_no_place():
    case = Case(places=1)
    client, _ = case.ready(1)
    asker = case.admit(LISTS)
    assert asker.reply.result() is client
    assert case.state["in_flight"] == 1


def test_admit_of_a_list_passes_waiting_calls_and_a_pause():
    case = Case(places=1)
    client, _ = case.ready(1)
    case.admit(A)
    case.send(m.Pause())
    assert case.admit(LISTS).reply.result() is client


def test_admit_of_another_context_is_refused_and_the_client_stays():
    case = Case()
    client, _ = case.ready()
    assert isinstance(refusal(case.admit(B)), BindingChanged)
    assert case.machine.client.handle is client


def test_admit_of_another_context_than_the_known_plan_of_the_opening_is_refused():
    case = Case()
    case.admit(A)
    (opening,) = case.openings.values()
    case.plan(opening, "A")
    assert isinstance(refusal(case.admit(B)), BindingChanged)


def test_admit_with_an_epoch_of_before_is_refused():
    case = Case()
    case.ready()
    message = m.Admit(case.next_id(), context="A", epoch=-1)
    case.askers[message.ticket] = asker = Asker(A, message.ticket, message, None)
    case.send(message)
    assert isinstance(refusal(asker), BindingChanged)


def test_admit_beyond_max_waiting_is_refused_with_the_numbers():
    case = Case(places=1, max_waiting=2)
    case.ready(1)
    case.admit(A)
    case.admit(A)
    error = refusal(case.admit(A))
    assert isinstance(error, Overloaded)
    assert "2 calls wait" in error.message
    assert "max_waiting 2" in error.message


def test_admit_on_a_closed_key_is_refused():
    case = Case()
    case.ready()
    case.close()
    assert isinstance(refusal(case.admit(A)), PoolClosed)
    assert isinstance(refusal(case.admit(LISTS)), PoolClosed)


@pytest.mark.parametrize("lost", [False, True], ids=["live client", "replaced client"])
def test_admit_that_would_wait_for_its_own_chain_is_refused(lost):
    case = Case(places=1)
    client, (holder,) = case.ready(1)
    if lost:
        case.lose(client)
    error = refusal(case.nest(holder))
    assert isinstance(error, Overloaded)
    assert "wait for itself" in error.message


def test_admit_of_a_chain_while_draining_is_refused():
    case = Case(places=2)
    _, (holder,) = case.ready(1)
    case.send(m.Drain())
    assert isinstance(refusal(case.nest(holder)), Overloaded)


def test_admit_of_a_chain_waits_where_a_place_is_free():
    case = Case(places=2)
    _, (holder,) = case.ready(1)
    case.send(m.Pause())
    nested = case.nest(holder)
    assert nested.phase == WAITING
    case.send(m.Resume())
    assert nested.phase == HOLDING


def test_admit_of_a_chain_that_holds_nothing_here_waits():
    case = Case(places=1)
    case.ready(1)
    assert case.admit(A, chain=(-1,)).phase == WAITING


# ---------------------------------------------------------------------------- Settle and Abandon


def test_settle_by_a_waiter_ends_the_opening_that_nobody_else_waits_for():
    case = Case()
    first, second = case.admit(A), case.admit(A)
    case.cancel(first)
    case.settle(first)
    assert len(case.openings) == 1
    case.cancel(second)
    case.settle(second)
    assert not case.openings
    assert case.kept is False


def test_settle_after_a_grant_that_nobody_took_frees_the_place():
    case = Case(places=1)
    _, (holder,) = case.ready(1)
    gone, next_one = case.admit(A), case.admit(A)
    case.cancel(gone)
    case.settle(holder)  # granted to the one that is gone and has not said so yet
    assert next_one.phase == WAITING
    case.settle(gone)
    assert next_one.phase == HOLDING


def test_settle_twice_is_an_error_and_changes_nothing():
    case = Case()
    _, (holder, other) = case.ready(2)
    case.settle(holder)
    with pytest.raises(LeaseReturnedTwice):
        case.machine.turn(m.Settle(holder.ticket, held=True), None)
    assert case.machine.leases.keys() == {other.ticket}


def test_settle_on_a_replaced_client_closes_it_with_the_last_place():
    case = Case()
    old, (first, second) = case.ready(2)
    case.lose(old)
    case.settle(first)
    assert not old.told
    case.settle(second)
    assert old.told


def test_settle_on_a_replaced_client_frees_a_place_of_the_key():
    case = Case(places=1)
    old, (holder,) = case.ready(1)
    case.lose(old)
    waiter = case.admit(A)
    case.open()
    assert waiter.phase == WAITING  # the one place of the key is on the old client
    case.settle(holder)
    assert waiter.phase == HOLDING


def test_abandon_keeps_the_place_until_it_is_final():
    case = Case(places=1)
    _, (holder,) = case.ready(1)
    waiter = case.admit(A)
    case.time_out(holder)
    assert waiter.phase == WAITING
    case.give_up(holder)
    assert waiter.phase == HOLDING
    assert case.state["abandoned"] == 1


def test_abandon_of_a_place_that_is_gone_is_dropped():
    case = Case()
    _, (holder,) = case.ready(1)
    case.settle(holder)
    assert not case.machine.turn(m.Abandon(holder.ticket, final=True), None)
    assert case.state["abandoned"] == 0


def test_abandonments_in_a_row_make_the_client_suspect():
    case = Case()
    case.ready()
    for expected in range(1, ABANDONED_IN_A_ROW + 1):
        asker = case.admit(A)
        case.time_out(asker)
        case.give_up(asker)
        assert case.pings == expected // ABANDONED_IN_A_ROW


def test_time_outs_in_a_row_make_the_client_suspect():
    case = Case()
    case.ready()
    for expected in range(1, TIMED_OUT_IN_A_ROW + 1):
        asker = case.admit(A)
        case.time_out(asker)
        case.settle(asker, answered=False)
        assert case.pings == expected // TIMED_OUT_IN_A_ROW


def test_an_answer_ends_the_row():
    case = Case()
    case.ready()
    for _ in range(2 * TIMED_OUT_IN_A_ROW):
        asker = case.admit(A)
        case.time_out(asker)
        case.settle(asker, answered=True)
    assert case.pings == 0


def test_silence_of_a_replaced_client_is_not_asked_about():
    case = Case(places=4)
    old, askers = case.ready(4)
    case.lose(old)
    for asker in askers:
        case.time_out(asker)
        case.give_up(asker)
    assert case.pings == 0


# ---------------------------------------------------------------------------- openings and plans


def test_opened_serves_all_that_wait_in_order():
    case = Case(places=2)
    askers = [case.admit(role) for role in (A, LISTS, A, A)]
    client = case.open()
    assert [asker.phase for asker in askers if asker.role is A] == [HOLDING, HOLDING, WAITING]
    assert askers[1].reply.result() is client


def test_opened_too_late_is_closed_and_changes_nothing():
    case = Case()
    asker = case.admit(A)
    (opening,) = case.openings.values()
    case.plan(opening, "A")
    case.cancel(asker)
    case.settle(asker)
    late = case.opened(opening)
    assert late.told
    assert case.machine.client is None


def test_open_failed_gives_each_waiter_an_exception_of_its_own():
    case = Case()
    askers = [case.admit(A), case.admit(LISTS)]
    (opening,) = case.openings.values()
    cause = OSError("no route")
    error = AuthorizationRequired("ask", retry_after=2.0, http_status=401, www_authenticate="Bearer")
    error.__cause__ = cause
    case._gone(opening)
    case.send(m.OpenFailed(opening.token, error))
    refusals = [refusal(asker) for asker in askers]
    assert len({id(one) for one in (*refusals, error)}) == 3
    for one in refusals:
        assert isinstance(one, AuthorizationRequired)
        assert (one.delivery, one.retry_after, one.http_status) == ("not-sent", 2.0, 401)
        assert one.www_authenticate == "Bearer"
        assert one.__cause__ is cause


def test_open_failed_of_an_overtaken_opening_is_dropped():
    case = Case()
    first = case.admit(A)
    (overtaken,) = case.openings.values()
    case.cancel(first)
    case.settle(first)
    second = case.admit(A)
    case.open_failed(overtaken)
    assert second.phase == WAITING
    assert len(case.openings) == 1


def test_the_next_admit_after_a_failed_opening_opens_again():
    case = Case()
    case.admit(A)
    case.open_failed(next(iter(case.openings.values())))
    case.admit(A)
    assert len(case.openings) == 1


def test_the_plan_of_an_opening_refuses_those_bound_to_another():
    case = Case()
    ours, theirs, lister = case.admit(A), case.admit(B), case.admit(LISTS)
    (opening,) = case.openings.values()
    case.plan(opening, "A")
    assert isinstance(refusal(theirs), BindingChanged)
    assert opening.phase == CONNECTING
    assert ours.phase == lister.phase == WAITING


def test_a_plan_that_nobody_waits_for_opens_nothing():
    case = Case()
    asker = case.admit(A)
    (opening,) = case.openings.values()
    case.plan(opening, "B")
    assert isinstance(refusal(asker), BindingChanged)
    assert not case.openings
    assert case.kept is False


def test_the_plan_of_an_overtaken_opening_does_not_go_on():
    case = Case()
    asker = case.admit(A)
    (opening,) = case.openings.values()
    case.cancel(asker)
    case.settle(asker)
    case.plan(opening, "A")
    assert opening.token not in case.overtaken


def test_a_back_off_refuses_who_waits_with_the_time_left():
    case = Case()
    ours, theirs = case.admit(A), case.admit(B)
    (opening,) = case.openings.values()
    case.plan(opening, "A", 1.5)
    error = refusal(ours)
    assert isinstance(error, OpenBackoff)
    assert error.retry_after == 1.5
    assert isinstance(refusal(theirs), BindingChanged)  # to wait would not help that one
    assert not case.openings


@pytest.mark.parametrize("first", [True, False])
def test_a_refresh_among_the_waiters_tries_at_once(first):
    case = Case()
    roles = (FRESH, A) if first else (A, FRESH)
    for role in roles:
        case.admit(role)
    (opening,) = case.openings.values()
    case.plan(opening, "A", 1.5)
    assert opening.phase == CONNECTING


def test_a_list_that_sees_another_plan_replaces_the_client():
    case = Case()
    old, (holder,) = case.ready(1)
    case.plan_seen("B")
    assert case.machine.client is None
    assert not old.told  # what runs goes on
    assert not case.openings  # and nobody waits
    case.settle(holder)
    assert old.told


def test_a_list_that_sees_the_same_plan_changes_nothing():
    case = Case()
    client, _ = case.ready()
    case.plan_seen("A")
    assert case.machine.client.handle is client


def test_another_plan_opens_for_those_who_wait_and_refuses_them_there():
    case = Case(places=1)
    case.ready(1)
    waiter = case.admit(A)
    case.plan_seen("B")
    (opening,) = case.openings.values()
    case.plan(opening, "B")
    assert isinstance(refusal(waiter), BindingChanged)
    assert not case.openings


def test_open_failed_carries_its_retry_after():
    case = Case()
    asker = case.admit(A)
    case.open_failed(next(iter(case.openings.values())))
    error = refusal(asker)
    assert isinstance(error, OpenFailed)
    assert error.retry_after == 1.0
