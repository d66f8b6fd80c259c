"""The words of the console's protocol: who asks, what is refused, how much there may be of anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PROTOCOL: Final = 1
"""The protocol's number, as hello says it."""

SUBPROTOCOL: Final = "afpool.console.1"
PATH: Final = "/console"

Level: TypeAlias = Literal["read", "operate"]
"""What somebody may do: look, or also act."""

Code: TypeAlias = Literal[
    "unknown-command", "unknown-table", "unknown-id", "bad-option", "not-allowed", "too-long", "busy", "failed"
]
"""Why a command is refused, for programs."""


class CommandError(Exception):
    """A command cannot be carried out. Its text is shown to whoever asked; it holds no secret.

    Args:
        code: Why, for programs.
        message: Why, for people, and what to do.
        tries: Commands that may be meant.
    """

    def __init__(self, code: Code, message: str, tries: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.tries = tuple(tries)


class Asker(Protocol):
    """Who asks: one console that is attached."""

    @property
    def level(self) -> Level:
        """What it may do."""
        ...

    @property
    def who(self) -> str:
        """What it is called where something says who asked for it."""
        ...

    @property
    def number(self) -> int:
        """Its number, never used twice in a process."""
        ...

    def at_end(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Have something told when it is gone.

        Args:
            tell: Called once, synchronously.

        Returns:
            What takes the wish back.
        """
        ...


@attrs.frozen(kw_only=True)
class ConsoleLimits:
    """How much a console may take up. Sizes are bytes, times seconds.

    Attributes:
        sessions: Consoles at once; the next one is told so.
        pending: Connections on one socket that have not said yet who they are; the oldest makes room.
        head: Of a request head.
        head_timeout: That a connection has until it is a session.
        command: Characters of one command.
        frame: Of one message of a console.
        running: Commands and streams of one console at once.
        outbox: What is on its way to one console; beyond it streams lose events, and answers wait.
        stalled: That a console may take no byte.
        gap: Between two frames of one stream, at least.
        cpu: The part of the loop's time that all streams together may take up.
        ping: Between two looks whether a silent console is still there.
    """

    sessions: int = 64
    pending: int = 64
    head: int = 16 * 1024
    head_timeout: float = 5.0
    command: int = 4096
    frame: int = 64 * 1024
    running: int = 16
    outbox: int = 1024 * 1024
    stalled: float = 30.0
    gap: float = 0.02
    cpu: float = 0.07
    ping: float = 20.0
