"""Each message in each state, case by case: what the machine does, and what it says about it.

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
    StaleTools,
)
from afpool.pool import _messages as m
from afpool.pool._machine import (
    ABANDONED_IN_A_ROW,
    TIMED_OUT_IN_A_ROW,
    KeyLimits,
    KeyMachine,
    LeaseReturnedTwice,
)
from tests.pool.machine_world import (
    CONNECTING,
    FRESH,
    HOLDING,
    LISTS,
    NEW_TOOLS,
    OLD_TOOLS,
    WAITING,
    A,
    Asker,
    B,
    Crash,
    World,
)


class Case(World):
    """A world with short cuts."""

    def open(self, context="A"):
        (opening,) = self.openings.values()
        self.plan(opening, context)
        return self.opened(opening)

    def ready(self, calls=0):
        """A client of A, with so many calls on it."""
        first = self.admit(A)
        client = self.open()
        held = [first, *(self.admit(A) for _ in range(calls - 1))]
        if not calls:
            self.settle(first)
        return client, held[:calls]

    @property
    def state(self):
        return self.machine.snapshot()


def refusal(asker: Asker):
    error = asker.reply._error
    assert error is not None, f"{asker} was not refused"
    return error


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
    case.askers[message.ticket] = asker = Asker(A, message, None)
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


# ---------------------------------------------------------------------------- lists


def test_listed_refuses_waiters_of_the_old_list_when_it_changes():
    case = Case(places=1)
    client, _ = case.ready(0)
    case.listed(client, OLD_TOOLS)
    case.admit(A)
    waiter = case.admit(A)
    case.listed(client, OLD_TOOLS)
    assert waiter.phase == WAITING
    case.listed(client, NEW_TOOLS)
    assert isinstance(refusal(waiter), StaleTools)


def test_listed_by_a_client_that_is_not_the_keys_any_more_is_dropped():
    case = Case()
    old, _ = case.ready(1)
    case.lose(old)
    case.admit(A)
    case.open()
    case.listed(old, NEW_TOOLS)
    assert case.state["generation"] == 0


def test_a_notice_doubts_the_list_and_refuses_no_waiter():
    case = Case(places=1)
    client, _ = case.ready(0)
    case.listed(client, OLD_TOOLS)
    case.admit(A)
    waiter = case.admit(A)
    case.notice(client)
    assert case.machine.client.list.noticed
    assert waiter.phase == WAITING


@pytest.mark.parametrize("ends", [False, True], ids=["changes", "ends"])
def test_a_shared_list_refuses_its_waiters(ends):
    case = Case(places=1)
    case.admit(B)
    case.open("B")
    waiter, lister = case.admit(B), case.admit(LISTS)
    case.shared_moves(ends=ends)
    assert isinstance(refusal(waiter), StaleTools)
    assert lister.reply.result() is not None


def test_the_last_waiter_refused_for_its_list_ends_the_opening():
    case = Case()
    case.admit(B)
    case.shared_moves(ends=False)
    assert not case.openings
    assert case.kept is False


def test_with_recheck_only_the_own_definition_counts():
    class Shows:
        def __init__(self, digest, **tools):
            self.digest = digest
            self.tools = tools

        def get(self, name):
            return self.tools.get(name)

    case = Case()
    case.limits = KeyLimits(max_operations=1, recheck_lists=True)
    case.machine = KeyMachine(case.limits, case.next_id)
    client, _ = case.ready(0)
    case.listed(client, Shows("one", search=OLD_TOOLS, other=OLD_TOOLS))
    case.admit(A)
    waiter = case.admit(A)
    effects = case.machine.turn(
        m.Listed(client.id, Shows("two", search=OLD_TOOLS, other=NEW_TOOLS), 0, 1e9), None
    )
    assert not effects
    case.listed(client, Shows("three", search=NEW_TOOLS, other=NEW_TOOLS))
    assert isinstance(refusal(waiter), StaleTools)


# ---------------------------------------------------------------------------- clients that end


def test_a_lost_client_is_replaced_for_those_who_wait():
    case = Case(places=1)
    client, (holder,) = case.ready(1)
    waiter = case.admit(A)
    case.lose(client)
    assert len(case.openings) == 1
    case.settle(holder)
    case.open()
    assert waiter.phase == HOLDING


def test_a_lost_client_ends_its_list_for_good():
    case = Case()
    client, _ = case.ready()
    listed = case.machine.client.list
    case.lose(client)
    assert not listed.alive


def test_the_loss_of_an_old_client_is_nobodys():
    case = Case()
    old, _ = case.ready(1)
    case.lose(old)
    case.admit(A)
    new = case.open()
    case.lose(old)
    assert case.machine.client.handle is new


def test_evict_closes_an_idle_client_and_the_next_opening_waits_for_it():
    case = Case()
    client, _ = case.ready()
    case.evict()
    assert client.told
    assert case.kept is True
    asker = case.admit(A)
    assert not case.openings
    case.close_done(client)
    assert len(case.openings) == 1
    case.open()
    assert asker.phase == HOLDING


def test_evict_leaves_a_client_in_use():
    case = Case()
    client, _ = case.ready(1)
    case.evict()
    assert not client.told


def test_evict_of_nothing_is_nothing():
    case = Case()
    case.evict()
    assert case.kept is False


def test_revoke_ends_waiters_opening_and_epoch():
    case = Case()
    askers = [case.admit(A), case.admit(LISTS)]
    case.revoke()
    assert all(isinstance(refusal(asker), BindingChanged) for asker in askers)
    assert case.state["epoch"] == 1
    assert not case.openings


def test_revoke_lets_what_runs_settle():
    case = Case()
    client, (holder,) = case.ready(1)
    case.revoke()
    assert not client.told
    case.settle(holder)
    assert client.told


def test_close_refuses_and_closes_once_nothing_runs():
    case = Case(places=1)
    client, (holder,) = case.ready(1)
    waiter = case.admit(A)
    case.close()
    assert isinstance(refusal(waiter), PoolClosed)
    assert not client.told
    case.settle(holder)
    assert client.told
    case.close_done(client)
    assert case.kept is False


# ---------------------------------------------------------------------------- operators


def test_pause_holds_calls_and_resume_serves_them():
    case = Case()
    case.ready()
    case.send(m.Pause())
    waiter = case.admit(A)
    assert waiter.phase == WAITING
    case.send(m.Resume())
    assert waiter.phase == HOLDING


def test_a_paused_key_is_kept():
    case = Case()
    case.send(m.Pause())
    assert case.kept is True
    case.send(m.Resume())
    assert case.kept is False


def test_drain_of_an_idle_key_closes_its_client_at_once():
    case = Case()
    client, _ = case.ready()
    assert case.send(m.Drain()).done
    assert client.told


def test_drain_waits_for_what_runs_and_holds_the_rest():
    case = Case(places=2)
    client, (holder,) = case.ready(1)
    drains = [case.send(m.Drain()), case.send(m.Drain())]
    waiter = case.admit(A)
    assert waiter.phase == WAITING
    assert not any(drain.done for drain in drains)
    case.settle(holder)
    assert all(drain.done for drain in drains)
    assert client.told
    case.open()
    assert waiter.phase == HOLDING


# ---------------------------------------------------------------------------- crash


def test_a_crash_admits_nothing_until_the_old_places_and_clients_are_gone():
    case = Case()
    client, (first, second) = case.ready(2)
    waiter = case.admit(A)
    case.crash()
    assert isinstance(waiter.reply._error, Crash)
    late = case.admit(A)
    case.kicked()
    case.settle(first)
    assert not client.told
    case.time_out(second)
    case.give_up(second)
    assert client.told
    assert not case.openings
    case.close_done(client)
    case.open()
    assert late.phase == HOLDING


def test_a_crash_ends_the_list_of_the_client():
    case = Case()
    case.ready()
    listed = case.machine.client.list
    case.crash()
    assert not listed.alive


def test_a_crash_cancels_the_opening_before_the_next():
    case = Case()
    case.admit(A)
    (opening,) = case.openings.values()
    case.crash()
    case.admit(A)
    case.kicked()
    assert opening.token in case.overtaken
    assert len(case.openings) == 1


def test_a_crash_of_a_key_with_nothing_lets_go_of_it():
    case = Case()
    case.admit(A)
    case.crash()
    case.kicked()
    assert case.kept is False


def test_a_crash_keeps_epoch_pause_close_and_count():
    case = Case()
    _, (holder,) = case.ready(1)
    case.time_out(holder)
    case.give_up(holder)
    case.revoke()
    case.send(m.Pause())
    case.close()
    before = case.state
    case.crash()
    for fact in ("epoch", "paused", "closed", "abandoned"):
        assert case.state[fact] == before[fact]


def test_a_drain_after_a_crash_waits_for_the_old_places():
    case = Case()
    client, (holder,) = case.ready(1)
    case.crash()
    case.kicked()
    drain = case.send(m.Drain())
    case.settle(holder)
    assert not drain.done
    case.close_done(client)
    assert drain.done


def test_a_call_made_from_a_call_of_before_the_crash_is_refused():
    case = Case()
    _, (holder,) = case.ready(1)
    case.crash()
    assert isinstance(refusal(case.nest(holder)), Overloaded)


@pytest.mark.parametrize("final", [False, True], ids=["settle", "abandon"])
def test_a_crash_in_the_turn_that_takes_a_place_back_frees_it(final):
    case = Case()
    client, (holder,) = case.ready(1)
    if final:
        case.time_out(holder)
    case.crash_next = -1
    if final:
        case.give_up(holder)
    else:
        case.settle(holder)
    case.kicked()
    assert client.told
    assert case.state["in_flight"] == 0


@pytest.mark.parametrize(
    ("message", "fact", "value"),
    [
        (m.Revoke("left"), "epoch", 1),
        (m.Close(), "closed", True),
        (m.Pause(), "paused", True),
    ],
    ids=["revoke", "close", "pause"],
)
def test_a_crash_does_not_lose_what_its_message_decided(message, fact, value):
    case = Case()
    case.epoch += fact == "epoch"
    case.closed = fact == "closed"
    case.crash_next = -1
    case.send(message)
    assert case.state[fact] == value


def test_a_crash_while_a_client_comes_closes_that_client():
    case = Case()
    case.admit(A)
    (opening,) = case.openings.values()
    case.plan(opening, "A")
    case.crash_next = -1
    client = case.opened(opening)
    case.kicked()
    assert client.told


def test_open_failed_carries_its_retry_after():
    case = Case()
    asker = case.admit(A)
    case.open_failed(next(iter(case.openings.values())))
    error = refusal(asker)
    assert isinstance(error, OpenFailed)
    assert error.retry_after == 1.0
