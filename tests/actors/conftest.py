"""A machine whose messages bring their own turn, so that each test shows the turns it is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

import actors


@attrs.frozen
class Do:
    """A control message."""

    run: Any
    epoch: int | None = None


@attrs.frozen
class Ask(actors.Request[Any]):
    """A request."""

    run: Any


class Played:
    def __init__(self) -> None:
        self.log: list[Any] = []
        self.kept: list[actors.Reply[Any]] = []

    def turn(self, message: Any, reply: actors.Reply[Any] | None, /) -> Any:
        return message.run(self, reply)

    def snapshot(self) -> dict[str, object]:
        return {"log": list(self.log)}


def note(word: Any) -> Any:
    """A turn that writes a word down, and answers it when it was asked."""

    def run(machine: Played, reply: actors.Reply[Any] | None) -> list[actors.Effect]:
        machine.log.append(word)
        return [actors.Answer(reply, word)] if reply is not None else []

    return run


def keep(machine: Played, reply: actors.Reply[Any] | None) -> None:
    """A turn that defers its reply."""
    assert reply is not None
    machine.kept.append(reply)


def effects(*items: Any) -> Any:
    """A turn that returns these effects."""
    return lambda _machine, _reply: list(items)


def boom(_machine: Played, _reply: object) -> None:
    raise ZeroDivisionError("boom")


def no(machine: Played, _reply: object) -> None:
    raise actors.Refusal("no")


@pytest.fixture
def kit() -> SimpleNamespace:
    def perform(actor: actors.Actor[Any], effect: Any) -> None:
        if callable(effect):
            effect(actor)
        else:
            kit.performed.append(effect)

    def make(**options: Any) -> actors.Actor[Any]:
        options.setdefault("perform", perform)
        return actors.Actor("a", Played(), **options)

    def restarting(**options: Any) -> actors.Actor[Any]:
        return make(successor=lambda _actor, _error: Played(), **options)

    kit = SimpleNamespace(
        Do=Do, Ask=Ask, Played=Played, note=note, keep=keep, effects=effects, boom=boom, no=no,
        make=make, restarting=restarting, performed=[], trio=trio,
    )  # fmt: skip
    return kit
