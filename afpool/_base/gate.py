"""The question that every boundary asks before a request crosses it."""

from __future__ import annotations

from typing import Protocol, final


class Gate(Protocol):
    """What a wire asks in the same step in which it hands the first byte to the kernel.

    `ask` is synchronous, reads committed state only, and raises an `AfpoolError` when the gate is
    closed. `began` is told, in the same step, that the kernel took the first byte; after it the request
    can only be settled, never unsent.
    """

    def ask(self, stage: str, /) -> None:
        """Raise if the request may not cross the boundary `stage`."""
        ...

    def began(self) -> None:
        """The kernel took the first byte of the request."""
        ...


@final
class OpenGate:
    """A gate that never closes, for traffic that belongs to a client and to no call."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = False

    def ask(self, stage: str, /) -> None:
        """Let everything through."""

    def began(self) -> None:
        """Note that bytes left."""
        self.begun = True
