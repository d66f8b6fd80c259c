"""Lists that change, clients that end, operators and crashes, case by case, in the watched world."""

from __future__ import annotations

import pytest

from actors import Reply, Request
from afpool._base.errors import (
    BindingChanged,
    Overloaded,
    PoolClosed,
    StaleTools,
)
from afpool.pool import _messages as m
from afpool.pool._key_state import KeyLimits
from afpool.pool._machine import KeyMachine
from afpool.pool._refusals import epoch_over
from tests.pool.machine_books import (
    HOLDING,
    LISTS,
    NEW_TOOLS,
    OLD_TOOLS,
    WAITING,
    A,
    B,
)
from tests.pool.machine_case import Case, refusal
from tests.pool.machine_tears import Crash

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


def test_a_list_is_settled_by_what_its_listing_says():
    case = Case()
    client, _ = case.ready()
    case.listed(client, OLD_TOOLS)
    state = case.machine.client.list
    assert state.settled(1e9 - 1)
    assert not state.settled(1e9)
    case.notice(client)
    case.send(m.Listed(client.id, NEW_TOOLS, 0, 1e9))  # asked for before the notice
    assert state.noticed
    case.send(m.Listed(client.id, NEW_TOOLS, 1, 1e9))
    assert not state.noticed


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
    case.shared_moves(None if ends else NEW_TOOLS)
    assert isinstance(refusal(waiter), StaleTools)
    assert lister.reply.result() is not None


def test_the_last_waiter_refused_for_its_list_ends_the_opening():
    case = Case()
    case.admit(B)
    case.shared_moves(NEW_TOOLS)
    assert not case.openings
    assert case.kept is False


def test_with_recheck_only_the_own_definition_counts():
    class Shows:
        def __init__(self, digest, **tools):
            self.digest = digest
            self.tools = tools

        def get(self, name):
            return self.tools.get(name)

        def shows(self, name, digest):
            return name in self.tools and self.tools[name].digest == digest

    case = Case()
    case.limits = KeyLimits(max_operations=1, max_waiting=256, recheck_lists=True)
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


def test_evict_leaves_a_client_that_is_waited_for():
    case = Case()
    client, _ = case.ready()
    case.send(m.Pause())
    case.admit(A)
    case.evict()
    assert not client.told


def test_a_key_is_idle_when_nobody_uses_it_or_waits_for_it():
    case = Case()
    assert case.machine.idle
    case.admit(A)
    assert not case.machine.idle
    case = Case()
    _, (holder,) = case.ready(1)
    assert not case.machine.idle
    case.crash()
    assert not case.machine.idle
    case.kicked()
    case.settle(holder)
    assert case.machine.idle


def test_what_an_operator_sees_of_a_key():
    case = Case(places=1)
    client, (holder,) = case.ready(1)
    case.lose(client)
    case.admit(A)
    case.admit(A)
    case.time_out(holder)
    seen = {
        "epoch": 0, "client": None, "generation": None, "in_flight": 1, "waiting": 2, "opening": True,
        "old_clients": 1, "abandoned": 0, "paused": False, "halted": False, "closed": False, "removed": False,
    }  # fmt: skip
    assert case.state == seen
    new = case.open()
    case.give_up(holder)
    case.listed(new, OLD_TOOLS)
    case.halt()
    case.send(m.Pause())
    seen |= {"client": new.id, "generation": 1, "waiting": 1, "opening": False, "abandoned": 1}
    assert case.state == seen | {"paused": True, "halted": True}


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


def test_a_drain_refuses_a_call_that_what_runs_has_made_and_waits_for():
    """It would be admitted after the drain, which waits for the one that waits for it."""
    case = Case(places=2)
    _, (holder,) = case.ready(1)
    case.send(m.Pause())
    inner, other = case.nest(holder), case.admit(A)
    drain = case.send(m.Drain())
    assert isinstance(refusal(inner), Overloaded)
    assert "wait for itself" in refusal(inner).message
    assert other.phase == WAITING
    case.settle(holder)
    assert drain.done


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


def test_a_second_crash_forgets_nothing_of_what_the_first_left():
    case = Case()
    client, (holder,) = case.ready(1)
    case.crash()
    case.crash()
    assert case.state["in_flight"] == 1
    assert case.state["old_clients"] == 1
    case.kicked()
    late = case.admit(A)
    case.settle(holder)
    case.close_done(client)
    case.open()
    assert late.phase == HOLDING


def test_a_crash_keeps_a_removed_server_removed():
    case = Case()
    case.reconfigure("removed")
    case.crash()
    assert case.state["removed"]


def test_a_crash_in_the_turn_that_hears_of_a_close_does_not_wait_for_it():
    case = Case()
    client, _ = case.ready()
    case.evict()
    case.crash_next = -1
    case.close_done(client)
    case.kicked()
    assert case.state["old_clients"] == 0
    assert case.kept is False


def test_a_crash_in_the_turn_that_limits_the_key_keeps_the_limits():
    case = Case()
    case.crash_next = -1
    case.halt()
    assert case.state["halted"]


@pytest.mark.parametrize("first", ["pause", "removed"])
def test_a_crash_in_the_turn_that_removes_or_pauses_leaves_no_pause_that_nobody_could_end(first):
    case = Case()
    if first == "pause":
        case.send(m.Pause())
        case.crash_next = -1
        case.reconfigure("removed")
    else:
        case.reconfigure("removed")
        case.crash_next = -1
        case.send(m.Pause())
    assert case.state["removed"]
    assert not case.state["paused"]


def test_a_crash_in_the_turn_that_reconfigures_keeps_the_pause():
    case = Case()
    case.send(m.Pause())
    case.crash_next = -1
    case.reconfigure("bindings")
    assert case.state["paused"]


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
        (m.Reconfigure(KeyLimits(2, 256)), "epoch", 1),
        (m.Reconfigure(None), "removed", True),
    ],
    ids=["revoke", "close", "pause", "reconfigure", "remove"],
)
def test_a_crash_does_not_lose_what_its_message_decided(message, fact, value):
    case = Case()
    case.epoch += fact in ("epoch", "removed")
    case.revoked += isinstance(message, m.Revoke)
    case.closed = fact == "closed"
    case.removed = fact == "removed"
    case.crash_next = -1
    case.send(message)
    assert case.state[fact] == value


@pytest.mark.parametrize("crash", [None, -1, -4], ids=["done", "at its first line", "in its middle"])
def test_a_reconfiguration_brings_its_limits_also_where_its_turn_crashes(crash):
    case = Case()
    case.limits = KeyLimits(case.limits.max_operations, case.limits.max_waiting, recheck_lists=True)
    case.epoch += 1
    case.crash_next = crash
    case.send(m.Reconfigure(case.limits))
    assert case.machine.limits is case.limits
    assert case.crashes == (crash is not None)


def test_what_a_reconfiguration_ends_is_told_from_what_a_revocation_ends():
    case = Case()
    bound = case.epoch
    case.reconfigure("bindings")
    assert "configuration" in str(epoch_over(case.machine, bound))
    case.revoke()
    assert "revoked" in str(epoch_over(case.machine, bound))
    later = case.epoch
    case.reconfigure("clients")
    assert "configuration" in str(epoch_over(case.machine, later))
    assert "revoked" in str(epoch_over(case.machine, bound))


def test_a_crash_while_a_client_comes_closes_that_client():
    case = Case()
    case.admit(A)
    (opening,) = case.openings.values()
    case.plan(opening, "A")
    case.crash_next = -1
    client = case.opened(opening)
    case.kicked()
    assert client.told


# ---------------------------------------------------------------------------- late words, and what is said


def test_what_is_said_of_clients_and_openings_that_are_gone_changes_nothing():
    case = Case()
    lost, (holder,) = case.ready(1)
    case.lose(lost)
    for fact in (m.Listed(lost.id, OLD_TOOLS, 0, 1e9), m.ListChanged(lost.id), m.PlanChanged("B")):
        case.send(fact)
    case.send(m.ClientLost(lost.id + 1000, "closed", closed=True))
    assert case.state["old_clients"] == 1
    case.settle(holder)
    case.close_done(lost)
    case.send(m.ClientLost(lost.id, "closed", closed=True))
    assert case.state["old_clients"] == 0


def test_a_notice_of_an_old_client_does_not_doubt_the_list_of_the_new_one():
    case = Case()
    old, _ = case.ready(1)
    case.lose(old)
    case.admit(A)
    case.open()
    case.notice(old)
    assert not case.machine.client.list.noticed


def test_the_plan_and_the_failure_of_an_overtaken_opening_are_not_those_of_the_next():
    case = Case()
    first = case.admit(A)
    (overtaken,) = case.openings.values()
    case.cancel(first)
    case.settle(first)
    second = case.admit(A)
    case.plan(overtaken, "B")
    assert second.phase == WAITING
    assert case.machine.opening.context is None


def test_the_failure_of_an_overtaken_opening_is_nobodys():
    case = Case()
    asker = case.admit(A)
    (overtaken,) = case.openings.values()
    case.cancel(asker)
    case.settle(asker)
    case.open_failed(overtaken)
    assert case.kept is False


def test_each_of_two_old_clients_is_waited_for():
    case = Case()
    first, (one,) = case.ready(1)
    case.lose(first)
    other = case.admit(A)
    second = case.open()
    case.lose(second)
    case.settle(one)
    case.close_done(first)
    assert case.state["old_clients"] == 1
    assert case.kept is True
    case.settle(other)
    case.close_done(second)
    assert case.kept is False


def test_a_shared_list_that_moves_where_nobody_waits_changes_nothing():
    case = Case()
    case.shared_moves(NEW_TOOLS)
    assert case.kept is False


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (m.Evict(), "evicted"),
        (m.Drain(), "drained"),
        (m.Revoke("left"), "left"),
        (m.Reconfigure(None), "reconfigured"),
        (m.Close(), "pool closed"),
        (m.PlanChanged("B"), "replaced"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_client_is_closed_for_a_reason(message, reason):
    case = Case()
    client, _ = case.ready()
    reply = Reply() if isinstance(message, Request) else None
    effects = case.machine.turn(message, reply)
    assert m.CloseClient(client, reason) in effects


def test_the_clients_of_a_crash_are_closed_for_it():
    case = Case()
    client, _ = case.ready()
    case.crash()
    assert m.CloseClient(client, "its actor crashed") in case.machine.turn(m.Evict(), None)


@pytest.mark.parametrize("how", ["bindings", "clients", "removed"])
def test_a_reconfiguration_refuses_who_waits(how):
    case = Case()
    asker, lister = case.admit(A), case.admit(LISTS)
    case.reconfigure(how)
    assert all(isinstance(refusal(one), BindingChanged) for one in (asker, lister))
    assert not case.openings


def test_a_server_that_is_removed_is_paused_no_longer():
    case = Case()
    case.send(m.Pause())
    case.reconfigure("removed")
    assert not case.state["paused"]
    case.send(m.Pause())  # nobody could say that it is to go on
    assert not case.state["paused"]


def test_waiters_of_a_shared_list_that_ends_are_stale_also_where_only_their_definition_counts():
    case = Case()
    case.limits = KeyLimits(max_operations=1, max_waiting=256, recheck_lists=True)
    case.machine = KeyMachine(case.limits, case.next_id)
    case.admit(B)
    case.open("B")
    waiter = case.admit(B)
    case.shared_moves(None)
    assert isinstance(refusal(waiter), StaleTools)


def test_a_stale_waiter_is_told_which_list_it_stood_on():
    case = Case(places=1)
    client, _ = case.ready(0)
    case.listed(client, OLD_TOOLS)
    case.admit(A)
    waiter = case.admit(A)
    case.listed(client, NEW_TOOLS)
    assert "generation 1, now 2" in refusal(waiter).message


def test_the_plan_that_a_list_tells_is_answered_by_yes():
    case = Case()
    assert case.send(m.PlanChanged("A")).result() is True


def test_a_refusal_for_waiting_for_itself_says_so_on_the_record():
    case = Case(places=1)
    _, (holder,) = case.ready(1)
    assert refusal(case.nest(holder)).noted == ("limit", "itself")


def test_abandoned_places_of_a_crash_are_counted():
    case = Case()
    _, (holder,) = case.ready(1)
    case.time_out(holder)
    case.crash()
    case.kicked()
    case.give_up(holder)
    assert case.state["abandoned"] == 1


def test_an_opening_that_a_crash_left_is_cancelled_once():
    case = Case()
    case.admit(A)
    (opening,) = case.openings.values()
    case.plan(opening, "A")
    case.opened(opening)
    case.crash()
    tokens = [
        effect.token
        for _ in range(2)
        for effect in case.machine.turn(m.Evict(), None)
        if isinstance(effect, m.CancelOpening)
    ]
    assert tokens == [opening.token]
