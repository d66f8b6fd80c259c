"""Pausing, holding, stopping, crashing, epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import ActorCrashed, ActorError, ActorStopped, Answer, MailboxFull, Restart
from actors.testing import assert_quiescent

if TYPE_CHECKING:
    import trio


async def test_a_pause_holds_requests_only(kit: Any) -> None:
    actor = kit.make()
    actor.post(kit.Ask(kit.keep))
    actor.pause()
    waiting = actor.post(kit.Ask(kit.note("request")))
    actor.tell(kit.Do(lambda m, _r: [Answer(m.kept[0], "deferred")]))
    actor.tell(kit.Do(kit.note("control")))
    assert actor.machine.kept[0].result() == "deferred"
    assert actor.machine.log == ["control"]
    assert actor.phase == "paused"
    actor.resume()
    assert waiting.result() == "request"
    assert actor.phase == "running"
    assert_quiescent(actor)


async def test_a_pause_in_the_middle_of_a_drain(kit: Any) -> None:
    actor = kit.make()
    actor.pause()
    first = actor.post(kit.Ask(lambda _m, r: [Answer(r, 1), lambda a: a.pause()]))
    second = actor.post(kit.Ask(kit.note(2)))
    actor.resume()
    assert first.done
    assert not second.done
    actor.resume()
    assert second.result() == 2


async def test_pause_and_hold_are_independent(kit: Any) -> None:
    actor = kit.make()
    actor.pause()
    actor.hold()
    reply = actor.post(kit.Ask(kit.note(1)))
    actor.resume()
    assert actor.held
    assert not reply.done
    actor.release()
    assert not actor.held
    assert reply.done


async def test_stopping_fails_what_waits_and_what_was_deferred(kit: Any) -> None:
    actor = kit.make()
    deferred = actor.post(kit.Ask(kit.keep))
    actor.pause()
    queued = actor.post(kit.Ask(kit.note("never")))
    why = ValueError("closing")
    actor.stop(why)
    errors = []
    for reply in (deferred, queued):
        with pytest.raises(ActorStopped) as caught:
            reply.result()
        assert caught.value.__cause__ is why
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    with pytest.raises(ActorStopped) as late:
        actor.post(kit.Ask(kit.note("never")))
    assert late.value.__cause__ is why
    actor.tell(kit.Do(kit.note("never")))
    actor.stop()
    actor.resume()
    info = actor.info()
    assert info.counts.dropped_stopped == 1
    assert info.phase == "stopped"
    assert info.ended_by == "ValueError"
    assert actor.machine.log == []
    assert_quiescent(actor)


async def test_a_turn_that_stops_its_actor_finishes_and_leaves_no_open_reply(kit: Any) -> None:
    actor = kit.make()
    done: list[int] = []
    turn = kit.effects(
        lambda a: a.tell(kit.Do(kit.note("never"))), lambda a: a.stop(), lambda _a: done.append(1)
    )
    with pytest.raises(ActorStopped):
        await actor.ask(kit.Ask(turn))
    assert done == [1]
    assert actor.machine.log == []
    assert actor.info().counts.dropped_stopped == 1
    assert_quiescent(actor)


async def test_a_crash_fails_the_asker_and_the_deferred_and_brings_a_successor(kit: Any) -> None:
    states: list[Any] = []

    def successor(actor: Any, error: BaseException) -> Any:
        states.append((actor.machine, actor.epoch, actor.phase, type(error)))
        actor.tell(kit.Do(kit.note("told while restarting")))
        states.append(actor.post(kit.Ask(kit.note("asked while restarting"))))
        return kit.Played()

    actor = kit.make(successor=successor)
    old = actor.machine
    deferred = actor.post(kit.Ask(kit.keep))
    asked = actor.post(kit.Ask(kit.boom))
    errors = []
    for reply in (deferred, asked):
        with pytest.raises(ActorCrashed) as caught:
            reply.result()
        assert type(caught.value.__cause__) is ZeroDivisionError
        assert not caught.value.final
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert states[0] == (old, 1, "restarting", ZeroDivisionError)
    assert actor.machine is not old
    assert actor.machine.log == ["told while restarting", "asked while restarting"]
    assert states[1].done
    assert actor.phase == "running"
    assert_quiescent(actor)


async def test_waiting_requests_survive_a_crash(kit: Any) -> None:
    actor = kit.restarting()
    actor.pause()
    replies = [actor.post(kit.Ask(run)) for run in (kit.note(1), kit.boom, kit.note(2))]
    actor.resume()
    assert replies[0].result() == 1
    with pytest.raises(ActorCrashed):
        replies[1].result()
    assert replies[2].result() == 2
    assert actor.machine.log == [2]


async def test_an_effect_that_raises_is_a_crash_and_the_rest_is_dropped(kit: Any) -> None:
    actor = kit.restarting()

    def bad(_actor: Any) -> None:
        raise ZeroDivisionError

    reply = actor.post(kit.Ask(lambda _m, r: ["before", bad, "after", Answer(r, 1)]))
    with pytest.raises(ActorCrashed):
        reply.result()
    assert kit.performed == ["before"]
    assert actor.epoch == 1


async def test_an_answer_before_the_crash_stands(kit: Any) -> None:
    actor = kit.restarting()

    def bad(_actor: Any) -> None:
        raise ZeroDivisionError

    assert await actor.ask(kit.Ask(lambda _m, r: [Answer(r, 1), bad])) == 1
    assert actor.epoch == 1


async def test_answering_twice_is_a_crash(kit: Any) -> None:
    actor = kit.restarting()
    assert actor.post(kit.Ask(lambda _m, r: [Answer(r, 1), Answer(r, 2)])).result() == 1
    assert actor.epoch == 1


async def test_a_told_crash_reaches_nobody_but_the_successor(kit: Any) -> None:
    actor = kit.restarting()
    actor.tell(kit.Do(kit.boom))
    assert actor.epoch == 1


async def test_a_parked_asker_is_woken_by_a_crash(kit: Any, nursery: trio.Nursery) -> None:
    actor = kit.restarting()
    caught: list[BaseException] = []

    async def asker() -> None:
        try:
            await actor.ask(kit.Ask(kit.keep))
        except ActorCrashed as error:
            caught.append(error)

    nursery.start_soon(asker)
    nursery.start_soon(asker)
    await wait_all_tasks_blocked()
    actor.tell(kit.Do(kit.boom))
    await wait_all_tasks_blocked()
    assert len(set(map(id, caught))) == 2


async def test_without_a_successor_a_crash_is_for_good(kit: Any) -> None:
    actor = kit.make()
    actor.tell(kit.Do(kit.boom))
    assert actor.info().phase == "crashed"
    assert actor.info().ended_by == "ZeroDivisionError"
    with pytest.raises(ActorCrashed, match="does not come back") as caught:
        await actor.ask(kit.Ask(kit.note(1)))
    assert caught.value.final
    assert type(caught.value.__cause__) is ZeroDivisionError


async def test_one_crash_too_many_is_for_good(kit: Any, mock_clock: MockClock) -> None:
    actor = kit.restarting(restart=Restart(intensity=2, within=5.0))
    for _ in range(10):  # two within five seconds, again and again, are tolerated
        actor.tell(kit.Do(kit.boom))
        mock_clock.jump(2.6)
    assert actor.phase == "running"
    mock_clock.jump(10)
    actor.tell(kit.Do(kit.boom))
    actor.tell(kit.Do(kit.boom))
    actor.pause()
    queued = actor.post(kit.Ask(kit.note("queued")))
    actor.tell(kit.Do(kit.boom))
    for refused in (queued.result, lambda: actor.post(kit.Ask(kit.note(1)))):
        with pytest.raises(ActorCrashed, match=r"more than 2 within 5 s") as caught:
            refused()
        assert caught.value.final
    assert_quiescent(actor)


async def test_a_successor_that_fails_ends_the_actor(kit: Any) -> None:
    def successor(_actor: Any, _error: BaseException) -> Any:
        raise KeyError("none")

    actor = kit.make(successor=successor)
    actor.tell(kit.Do(kit.boom))
    assert actor.info().ended_by == "KeyError"
    with pytest.raises(ActorCrashed):
        actor.post(kit.Ask(kit.note(1)))


async def test_a_successor_may_hold_the_request_lane(kit: Any) -> None:
    def successor(actor: Any, _error: BaseException) -> Any:
        actor.hold()
        return kit.Played()

    actor = kit.make(successor=successor, mailbox_limit=1)
    actor.tell(kit.Do(kit.boom))
    assert actor.held
    assert actor.phase == "held"
    waiting = actor.post(kit.Ask(kit.note("request")))
    with pytest.raises(MailboxFull, match="held"):
        actor.post(kit.Ask(kit.note("more")))
    actor.tell(kit.Do(kit.note("control")))
    assert not waiting.done
    actor.release()
    assert actor.machine.log == ["control", "request"]


async def test_an_old_epochs_control_message_is_dropped_and_counted(kit: Any) -> None:
    actor = kit.restarting()
    actor.tell(kit.Do(kit.note("of 0"), epoch=0))
    assert actor.machine.log == ["of 0"]
    actor.tell(kit.Do(kit.boom))
    actor.tell(kit.Do(kit.note("of 0"), epoch=0))
    actor.tell(kit.Do(kit.note("of 1"), epoch=1))
    actor.tell(kit.Do(kit.note("of none")))
    assert actor.machine.log == ["of 1", "of none"]
    assert actor.info().counts.dropped_old == 1


async def test_the_epoch_is_compared_when_the_turn_comes(kit: Any) -> None:
    actor = kit.restarting()

    def bad(a: Any) -> None:
        a.tell(kit.Do(kit.note("of 0"), epoch=0))
        raise ZeroDivisionError

    actor.tell(kit.Do(kit.effects(bad)))
    assert actor.machine.log == []
    assert actor.info().counts.dropped_old == 1


async def test_a_machine_may_accept_old_messages(kit: Any) -> None:
    class Accepting(kit.Played):
        accepts_old = True

    actor = kit.make(successor=lambda _a, _e: Accepting())
    actor.tell(kit.Do(kit.boom))
    actor.tell(kit.Do(kit.note("of 0"), epoch=0))
    assert actor.machine.log == ["of 0"]
    assert actor.info().counts.dropped_old == 0


async def test_what_is_no_exception_leaves_after_the_crash_was_dealt_with(kit: Any) -> None:
    actor = kit.restarting()

    def leave(_machine: Any, _reply: Any) -> None:
        raise SystemExit(3)

    actor.pause()
    replies = [actor.post(kit.Ask(run)) for run in (leave, kit.note("next"))]
    with pytest.raises(SystemExit):
        actor.resume()
    with pytest.raises(ActorCrashed):
        replies[0].result()
    await wait_all_tasks_blocked()
    assert replies[1].result() == "next"
    with pytest.raises(SystemExit):
        actor.tell(kit.Do(leave))
    assert actor.epoch == 2
    assert_quiescent(actor)


def test_outside_of_a_trio_run_the_next_message_drains_what_was_left(kit: Any) -> None:
    actor = kit.restarting(clock=lambda: 0.0)

    def leave(_machine: Any, _reply: Any) -> None:
        raise SystemExit(3)

    actor.pause()
    replies = [actor.post(kit.Ask(run)) for run in (leave, kit.note("left"))]
    with pytest.raises(SystemExit):
        actor.resume()
    assert not replies[1].done
    actor.tell(kit.Do(kit.note("next")))
    assert actor.machine.log == ["next", "left"]
    assert_quiescent(actor)


async def test_what_is_no_exception_leaves_a_successor_too(kit: Any) -> None:
    def successor(_actor: Any, _error: BaseException) -> Any:
        raise SystemExit(3)

    actor = kit.make(successor=successor)
    with pytest.raises(SystemExit):
        actor.tell(kit.Do(kit.boom))
    assert actor.info().ended_by == "SystemExit"
    assert not actor.info().in_turn


async def test_a_turn_that_stops_its_actor_and_then_crashes_stays_stopped(kit: Any) -> None:
    actor = kit.restarting()

    def bad(a: Any) -> None:
        a.stop()
        raise ZeroDivisionError

    with pytest.raises(ActorCrashed):
        actor.post(kit.Ask(kit.effects(bad))).result()
    assert actor.phase == "stopped"
    assert actor.epoch == 0
    with pytest.raises(ActorStopped):
        actor.post(kit.Ask(kit.note(1)))


async def test_a_reply_abandoned_in_its_own_turn_is_not_kept(kit: Any) -> None:
    actor = kit.make()
    reply = actor.post(kit.Ask(lambda m, r: [kit.keep(m, r), lambda _a: r.abandon()][1:]))
    assert reply.abandoned
    assert actor.info().deferred == 0


def test_every_error_has_one_root() -> None:
    assert {ActorCrashed, ActorStopped, MailboxFull} <= set(ActorError.__subclasses__())
