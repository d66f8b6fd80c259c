"""The reply slot: settled once, never lost, never left behind."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
import trio
from trio.lowlevel import currently_ki_protected
from trio.testing import wait_all_tasks_blocked

from actors import Reply


def test_a_value_is_taken_once() -> None:
    reply: Reply[int] = Reply()
    with pytest.raises(RuntimeError, match="not there yet"):
        reply.result()
    assert reply.set(1)
    assert reply.done
    assert reply.result() == 1
    with pytest.raises(RuntimeError, match="twice"):
        reply.set(2)
    assert reply.result() == 1


def test_the_first_of_value_and_error_wins() -> None:
    value: Reply[int] = Reply()
    assert value.set(1)
    assert not value.fail(ValueError("late"))
    assert value.result() == 1

    error: Reply[int] = Reply()
    assert error.fail(ValueError("first"))
    assert not error.fail(ValueError("second"))
    assert not error.set(1)
    with pytest.raises(ValueError, match="first"):
        error.result()


def test_an_abandoned_reply_takes_nothing() -> None:
    reply: Reply[int] = Reply()
    assert reply.abandon()
    assert reply.abandon()
    assert not reply.set(1)
    assert not reply.fail(ValueError())
    assert not reply.done
    with pytest.raises(RuntimeError, match="abandoned"):
        reply.result()


def test_a_reply_that_is_there_cannot_be_abandoned() -> None:
    reply: Reply[int] = Reply()
    reply.set(1)
    assert not reply.abandon()
    assert not reply.abandoned


@pytest.mark.parametrize("how", ["set", "fail", "abandon"])
def test_a_settled_reply_leaves_its_home(how: str) -> None:
    reply: Reply[int] = Reply()
    home = {reply: None}
    reply.home = home
    {"set": lambda: reply.set(1), "fail": lambda: reply.fail(ValueError()), "abandon": reply.abandon}[how]()
    assert not home
    assert reply.home is None


@pytest.mark.parametrize("how", ["set", "fail"])
async def test_settling_is_protected_from_keyboard_interrupts(how: str) -> None:
    seen: list[bool] = []

    class Home(dict[Any, Any]):
        def pop(self, *_args: Any) -> None:
            seen.append(currently_ki_protected())

    reply: Reply[Any] = Reply()
    reply.home = Home()

    @trio.lowlevel.disable_ki_protection
    async def unprotected() -> None:
        getattr(reply, how)(ValueError())

    await unprotected()
    assert seen == [True]


async def test_waiting_parks_until_the_value_comes(nursery: trio.Nursery) -> None:
    reply: Reply[int] = Reply()
    got: list[int] = []

    async def asker() -> None:
        got.append(await reply.wait())

    nursery.start_soon(asker)
    await wait_all_tasks_blocked()
    assert not got
    with pytest.raises(RuntimeError, match="only one task"):
        await reply.wait()
    with pytest.raises(RuntimeError, match="cancel the task"):
        reply.abandon()
    assert reply.set(7)
    await wait_all_tasks_blocked()
    assert got == [7]


async def test_a_reply_that_is_there_is_taken_without_a_checkpoint() -> None:
    reply: Reply[int] = Reply()
    reply.set(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        with trio.testing.assert_no_checkpoints():
            assert await reply.wait() == 1
    assert not scope.cancelled_caught


async def test_an_abandoned_reply_is_not_waited_for() -> None:
    reply: Reply[int] = Reply()
    with trio.CancelScope() as scope:
        scope.cancel()
        await reply.wait()
    assert reply.abandoned
    with pytest.raises(RuntimeError, match="only once"):
        await reply.wait()


@pytest.mark.parametrize("seed", range(50))
async def test_a_grant_and_a_cancellation_in_the_same_tick(seed: int) -> None:
    """Either the asker has the value, or the granter was told that it keeps it."""
    choose = random.Random(seed)
    for _ in range(10):
        reply: Reply[int] = Reply()
        got: list[int] = []
        scope = trio.CancelScope()

        async def asker(
            reply: Reply[int] = reply, got: list[int] = got, scope: trio.CancelScope = scope
        ) -> None:
            with scope:
                got.append(await reply.wait())

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asker)
                if choose.random() < 0.9:
                    await wait_all_tasks_blocked()
                steps = [scope.cancel, lambda reply=reply, taken=(taken := []): taken.append(reply.set(1))]
                choose.shuffle(steps)
                for step in steps:
                    step()
        # what was refused to the granter never reached the asker, and the other way round
        assert (got == [1]) == taken[0], (got, taken)


def test_an_error_is_freed_without_the_garbage_collector() -> None:
    class MarkError(Exception):
        pass

    def ask() -> weakref.ref[MarkError]:
        reply: Reply[int] = Reply()
        error = MarkError()
        seen = weakref.ref(error)
        reply.fail(error)
        del error
        try:
            reply.result()
        except MarkError:
            pass
        finally:
            del reply
        return seen

    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()
