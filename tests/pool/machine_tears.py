"""Turns that crash in their middle: at any line, and where that makes a difference.

A turn may raise at any of its lines, and half of what it does is done then. What becomes of it is decided by
what the successor reads of the torn machine (`left`). Between two lines that leave the same it makes no
difference where the turn crashed, so the walk tries one line for each different thing that is left.

Tracing costs tens of microseconds for each turn, so it is on only for the turn that is watched or torn.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from actors import Reply
    from afpool.pool._key_state import Effects
    from afpool.pool._machine import KeyMachine

FILES = ("_key_state.py", "_key_places.py", "_key_clients.py", "_machine.py")


class Crash(Exception):
    """What a broken turn raises."""


def left(machine: KeyMachine) -> tuple[Any, ...]:
    """What a successor would read of this machine."""
    client = machine.client
    return (
        None if client is None else client.id,
        tuple(machine.old or ()),
        tuple(machine.leases or ()),
        tuple(machine.ghosts or ()),
        machine.last_opening,
        machine.epoch,
        machine.revoked,
        machine.removed,
        machine.limits,
        machine.closed,
        machine.paused,
        machine.abandoned,
    )


def is_turn(frame: FrameType) -> bool:
    """Whether a frame belongs to a turn: to the code of the machine, its own entry excepted."""
    code = frame.f_code
    return code.co_filename.endswith(FILES) and code.co_name != "turn"


class _Lines:
    """Follows a turn line by line."""

    def __init__(self, machine: KeyMachine, tear_at: int = 0) -> None:
        self.machine = machine
        self.line = 0
        self.tear_at = tear_at
        self.left: tuple[Any, ...] | None = None
        self.differs: list[int] = []
        self.seen: set[tuple[str, int]] | None = None

    def enter(self, frame: FrameType, _event: str, _arg: object) -> Any:
        return self.inside if is_turn(frame) else None

    def inside(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line":
            self.line += 1
            if self.tear_at:
                if self.line == self.tear_at:
                    raise Crash
            elif (now := left(self.machine)) != self.left:
                self.left = now
                self.differs.append(-self.line)
            if self.seen is not None:
                self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self.inside

    def turn(self, message: Any, reply: Reply[Any] | None) -> Effects | None:
        before = sys.gettrace()
        sys.settrace(self.enter)
        try:
            return self.machine.turn(message, reply)
        finally:
            sys.settrace(before)


def watch(
    machine: KeyMachine,
    message: Any,
    reply: Reply[Any] | None,
    differs: list[int],
    seen: set[tuple[str, int]] | None = None,
) -> Effects | None:
    """Run a turn, and note where a crash of it would leave something else: minus the number of the line.

    All the lines that were run are added to `seen`, by file and number.
    """
    lines = _Lines(machine)
    lines.seen = seen
    try:
        return lines.turn(message, reply)
    finally:
        differs[:] = lines.differs


def tear(machine: KeyMachine, message: Any, reply: Reply[Any] | None, line: int) -> Effects | None:
    """Run a turn up to a line of it, counted from 1, and raise `Crash` there."""
    if line == 1:  # nothing of it was done
        machine.torn = message
        raise Crash
    return _Lines(machine, line).turn(message, reply)
