"""Turns and effects: order, re-entrance, the drain budget, refusals, protection."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import trio
from trio.lowlevel import currently_ki_protected
from trio.testing import wait_all_tasks_blocked

from actors import Answer, MailboxFull, Refusal, Refuse, Reply, Undelivered
from actors.testing import assert_quiescent, run_turns


async def test_an_idle_actor_answers_in_the_senders_step(kit: Any) -> None:
    actor = kit.make()
    reply = actor.post(kit.Ask(kit.note("x")))
    assert reply.result() == "x"
    actor.tell(kit.Do(kit.note("y")))
    assert actor.machine.log == ["x", "y"]
    assert_quiescent(actor)


async def test_the_turn_commits_before_its_effects_and_they_keep_their_order(kit: Any) -> None:
    actor = kit.make()
    seen: list[Any] = []

    def turn(machine: Any, reply: Any) -> Any:
        machine.log.append("changed")
        return (
            lambda a: seen.append(list(a.machine.log)),
            Answer(reply, 1),
            lambda _a: seen.append(reply.done),
        )

    actor.post(kit.Ask(turn))
    assert seen == [["changed"], True]


async def test_a_generators_body_belongs_to_the_turn(kit: Any) -> None:
    actor = kit.make()
    log: list[str] = []

    def turn(_machine: Any, _reply: Any) -> Any:
        yield lambda _a: log.append("effect")
        log.append("body")

    actor.tell(kit.Do(turn))
    assert log == ["body", "effect"]


async def test_messages_from_effects_come_next_and_do_not_nest(kit: Any) -> None:
    actor = kit.make()
    replies: list[Reply[Any]] = []

    def again(a: Any) -> None:
        replies.append(a.post(kit.Ask(kit.note("request"))))
        a.tell(kit.Do(kit.note("control")))
        assert a.machine.log == []
        assert a.info().in_turn

    actor.tell(kit.Do(kit.effects(again, lambda a: kit.performed.append(list(a.machine.log)))))
    assert kit.performed == [[]]
    assert actor.machine.log == ["control", "request"]
    assert replies[0].result() == "request"
    assert_quiescent(actor)


async def test_ten_thousand_messages_to_oneself_neither_recurse_nor_get_lost(kit: Any) -> None:
    actor = kit.make()
    depths: set[int] = set()

    def depth() -> int:
        frame, n = sys._getframe(), 0
        while frame is not None:
            frame, n = frame.f_back, n + 1
        return n

    def turn(machine: Any, _reply: Any) -> Any:
        machine.log.append(len(machine.log))
        depths.add(depth())
        if len(machine.log) < 10_000:
            return [lambda a: a.tell(kit.Do(turn))]
        return None

    actor.tell(kit.Do(turn))
    first = len(actor.machine.log)
    assert 1_000 <= first <= 1_001  # the budget: the loop gets its turn in between
    overtaker = actor.post(kit.Ask(kit.note("late")))
    assert not overtaker.done
    with trio.fail_after(5):
        await wait_all_tasks_blocked()
    assert actor.machine.log == [*range(10_000), "late"]
    assert overtaker.result() == "late"
    assert max(depths) - min(depths) <= 30
    assert_quiescent(actor)


def test_outside_of_a_trio_run_a_drain_simply_goes_on(kit: Any) -> None:
    actor = kit.make(clock=lambda: 0.0)

    def turn(machine: Any, _reply: Any) -> Any:
        machine.log.append(1)
        return [lambda a: a.tell(kit.Do(turn))] if len(machine.log) < 2_500 else None

    actor.tell(kit.Do(turn))
    assert len(actor.machine.log) == 2_500
    assert_quiescent(actor)


async def test_stopping_between_two_slices_of_a_drain(kit: Any) -> None:
    actor = kit.make()

    def turn(_machine: Any, _reply: Any) -> Any:
        return [lambda a: a.tell(kit.Do(turn))]

    actor.tell(kit.Do(turn))
    assert actor.info().control == 1
    actor.stop()
    await wait_all_tasks_blocked()
    assert_quiescent(actor)
    assert actor.info().counts.dropped_stopped == 1


async def test_a_refusal_goes_to_the_asker_and_keeps_the_state(kit: Any) -> None:
    actor = kit.make()
    machine = actor.machine
    with pytest.raises(Refusal, match="no"):
        actor.post(kit.Ask(kit.no)).result()
    with pytest.raises(Refusal, match="no"):
        await actor.ask(kit.Ask(kit.no))
    actor.tell(kit.Do(kit.no))
    assert actor.machine is machine
    assert actor.epoch == 0
    assert actor.info().counts.refused_tells == 1


async def test_other_exceptions_can_be_named_as_refusals(kit: Any) -> None:
    actor = kit.make(refusals=(ZeroDivisionError,))
    with pytest.raises(ZeroDivisionError):
        actor.post(kit.Ask(kit.boom)).result()
    assert actor.epoch == 0


async def test_a_deferred_reply_is_given_by_a_later_turn(kit: Any) -> None:
    actor = kit.make()
    first, second = actor.post(kit.Ask(kit.keep)), actor.post(kit.Ask(kit.keep))
    assert actor.info().deferred == 2
    actor.tell(kit.Do(lambda m, _r: [Answer(m.kept[0], 1), Refuse(m.kept[1], Refusal("later"))]))
    assert first.result() == 1
    with pytest.raises(Refusal, match="later"):
        second.result()
    assert_quiescent(actor)


async def test_an_answer_nobody_takes_comes_back_as_undelivered(kit: Any) -> None:
    actor = kit.make()
    reply = actor.post(kit.Ask(kit.keep))
    reply.abandon()
    assert actor.info().deferred == 0
    actor.tell(kit.Do(lambda m, _r: [Answer(m.kept[0], "lease")]))
    (effect,) = kit.performed
    assert type(effect) is Undelivered
    assert effect.reply is reply
    assert effect.value == "lease"


async def test_a_full_request_lane_refuses_and_control_is_never_refused(kit: Any) -> None:
    actor = kit.make(mailbox_limit=3)
    actor.pause()
    replies = [actor.post(kit.Ask(kit.note(n))) for n in range(3)]
    with pytest.raises(MailboxFull, match="3 requests"):
        actor.post(kit.Ask(kit.note("too many")))
    assert actor.info().requests == 3
    replies[1].abandon()
    replies.append(actor.post(kit.Ask(kit.note(3))))
    for n in range(100):
        actor.tell(kit.Do(kit.note(f"c{n}")))
    actor.resume()
    assert actor.machine.log[100:] == [0, 2, 3]
    assert "too many" not in actor.machine.log


async def test_turns_and_effects_are_protected_from_keyboard_interrupts(kit: Any) -> None:
    actor = kit.make()
    seen: list[bool] = []

    def turn(_machine: Any, _reply: Any) -> Any:
        seen.append(currently_ki_protected())
        return [lambda _a: seen.append(currently_ki_protected())]

    @trio.lowlevel.disable_ki_protection
    async def unprotected() -> None:
        assert not currently_ki_protected()
        actor.tell(kit.Do(turn))
        actor.post(kit.Ask(turn))
        actor.pause()
        actor.post(kit.Ask(turn))
        actor.resume()

    await unprotected()
    assert seen == [True] * 6


def test_a_machine_is_driven_without_trio(kit: Any) -> None:
    machine = kit.Played()
    effect = object()
    asked, kept, refused, told = run_turns(
        machine, [kit.Ask(kit.note("a")), kit.Ask(kit.keep), kit.Ask(kit.no), kit.Do(kit.effects(effect))]
    )
    run_turns(machine, [kit.Do(lambda m, _r: [Refuse(m.kept[0], Refusal("later"))])])
    assert asked.reply is not None
    assert asked.reply.result() == "a"
    assert kept.reply is machine.kept[0]
    with pytest.raises(Refusal, match="later"):
        kept.reply.result()
    assert type(refused.error) is Refusal
    assert told.reply is None
    assert told.effects == (effect,)
