"""Work in steps: a generator that says when it may be left, driven to its end at once or at leisure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """Do all steps and give what they come to. Synchronous."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value


async def at_leisure(steps: Generator[None, None, T]) -> T:
    """Do all steps, with a checkpoint after each, and give what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
        await trio.lowlevel.checkpoint()
