"""One request's way over a channel, and the two sides that an attempt stands between.

A trip survives its task: after the first byte it can be taken over by a settle task with `finish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from .._base.errors import ANSWERED, TooLarge
from .._base.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from .._base.credential import Credential
    from .._base.errors import AfpoolError
    from .._base.model import Progress
    from ..protocol import BodyKind, Message
    from ..transports import Headers, LaneName
    from ._running import Running


HINT_BYTES: Final = 2048
"""Bytes that are kept of a body that is no JSON-RPC."""

PROGRESS_KEPT: Final = 32
"""Progress notifications that are kept for a caller who does not get to run."""


@final
class Answer:
    """What came back for one request.

    Attributes:
        message: The JSON-RPC response, or `None` where none could be read.
        status: The HTTP status; `None` on a stream.
        headers: Of the HTTP answer.
        kind: What its body was.
        hint: The first bytes of a body that is no JSON-RPC.
        size: Bytes of the body.
    """

    __slots__ = ("headers", "hint", "kind", "message", "size", "status")

    def __init__(
        self,
        message: Message | None,
        status: int | None = None,
        headers: Headers | None = None,
        kind: BodyKind | None = None,
        hint: bytes = b"",
        size: int = 0,
    ) -> None:
        self.message = message
        self.status = status
        self.headers = headers
        self.kind = kind
        self.hint = hint
        self.size = size

    def header(self, name: bytes) -> str | None:
        """The first value of a header, by its lower-case name."""
        value = first_of(self.headers or [], name)
        return None if value is None else value.decode("latin-1")


class Trip(Protocol):
    """One request on its way.

    Attributes:
        size: Bytes of its body or line.
    """

    size: int

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        ...

    @property
    def answered(self) -> bool:
        """Its answer has come."""
        ...

    @property
    def over(self) -> bool:
        """Nothing more is to come: answered, or its stream or connection has ended."""
        ...

    def run(self, gate: Caller, deadline: float) -> Awaitable[Answer]:
        """Send under the gate and wait for the answer."""
        ...

    def finish(self) -> Awaitable[Answer]:
        """Wait on, in whatever task, after the first one was cancelled or woken."""
        ...

    def wake(self) -> None:
        """Make the task that waits raise `Woken`."""
        ...

    def close(self) -> None:
        """Give up on the answer; a late one is dropped."""
        ...


@attrs.define(eq=False)
class Rpc:
    """One JSON-RPC message to send.

    Attributes:
        method: Its name.
        params: Raw JSON, or `None`; made per attempt where it holds the request's id.
        headers: HTTP headers of this request beside the channel's own.
        lane: Whose connection it may use.
        on_progress: Called in the task that waits, with each progress notification.
        notification: No answer is expected.
        bare: Send none of the headers that an open session adds (openings send their own).
        on_message: Told of what else comes on its own response stream (HTTP); the channel's own when absent.
    """

    method: str
    params: bytes | Callable[[int], bytes] | None = attrs.field(default=None, repr=False)
    headers: list[tuple[bytes, bytes]] = attrs.field(factory=list, repr=False)
    lane: LaneName = "control"
    on_progress: Callable[[Progress], object] | None = None
    notification: bool = False
    bare: bool = False
    on_message: Callable[[Message], None] | None = None


class Caller(Gate, Protocol):
    """Whoever an attempt works for: a call, or the client itself."""

    deadline: float
    trip: Trip | None
    interrupted: AfpoolError | None
    operation: Running | None

    def carries(self, credential: Credential, /) -> None:
        """Take note of a credential that the request under way carries, before it leaves."""
        ...

    def noted(self, stage: str, word: str, /) -> None:
        """Take note of something that does not decide by itself how it ends."""
        ...

    def questioned(self) -> None:
        """Take note that the server answered with a question: part of the request may have run."""
        ...

    def bounded(self, stage: str, /) -> AbstractContextManager[None]:
        """Bound a wait that is not a trip's by the deadline, and let it be interrupted."""
        ...

    def failed(self, stage: str, word: str) -> None:
        """Take note that a wait before the first byte failed; raise the refusal if the gate is closed too."""
        ...

    def woken(self) -> AfpoolError:
        """Say why it was woken out of a trip."""
        ...

    def started(self, body_bytes: int) -> None:
        """An attempt's request is about to go out."""
        ...

    def still_wanted(self) -> None:
        """Raise where the rest of an answer that broke off may not be asked for on its behalf."""
        ...

    def relist(self) -> Awaitable[None] | None:
        """Get a fresh tool list; `None` where the request stands on none."""
        ...


class Channel(Protocol):
    """How requests reach one server: HTTP exchanges, or one shared stream."""

    def trip(self, rpc: Rpc, headers: list[tuple[bytes, bytes]]) -> Trip:
        """Make a trip; nothing happens before its `run`."""
        ...

    def kill(self) -> None:
        """End everything at once; synchronous."""
        ...


def first_of(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header, by its lower-case name."""
    for key, value in headers:
        if key == name:
            return value
    return None


def result_of(answer: Answer) -> bytes:
    """Take the result out of an answer, which is let go of.

    Raises:
        TooLarge: This process has no memory for it.
    """
    assert answer.message is not None
    try:
        return bytes(answer.message.result)
    except MemoryError:
        pass  # the frames of what was raised hold the answer
    raise TooLarge("this process has no memory for the answer; the tool has run", delivery=ANSWERED)


def ignore_message(_: Message) -> None:
    """Take a message that nobody waits for."""


def ignore_reason(_: str) -> None:
    """Take a reason that nobody waits for."""
