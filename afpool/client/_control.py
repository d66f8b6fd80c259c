"""The caller behind a client's own requests, and small helpers of calls."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

from .._base.errors import (
    IN_DOUBT,
    NOT_SENT,
    AfpoolError,
    ClientClosed,
    DeadlineExceeded,
    LocalSessionHandleLostError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._base.credential import Credential
    from .._base.model import Progress, ProgressCallback
    from .._base.use import Use
    from ..transports import Headers
    from ._client import Client
    from ._running import Running
    from ._stages import Stages
    from ._trip import Trip

ENDED_HERE: Final = ("closed", "killed")


@final
class Control:
    """The caller behind a client's own requests: its gate is open while the client lives."""

    __slots__ = ("_client", "_stages", "begun", "deadline", "interrupted", "operation", "trip")

    def __init__(self, client: Client, deadline: float, stages: Stages | None = None) -> None:
        self._client = client
        self._stages = stages
        self.operation: Running | None = None  # what comes on its own stream belongs to no call
        self.deadline = deadline
        self.trip: Trip | None = None
        self.interrupted: AfpoolError | None = None  # nobody ends it but its scope
        self.begun = False

    def ask(self, stage: str, /) -> None:  # noqa: ARG002 -- the same at every stage
        """Raise when the client is over."""
        client = self._client
        if client.lost is None:
            return
        if client.lost in ENDED_HERE:
            raise ClientClosed(f"the client is over ({client.lost}); nothing was sent", delivery=NOT_SENT)
        raise LocalSessionHandleLostError(
            f"the client has ended ({client.lost}); nothing was sent", delivery=NOT_SENT
        )

    def began(self) -> None:
        """Note that bytes left."""
        self.begun = True
        if self._stages is not None:
            self._stages.begin("initialize")

    def started(self, body_bytes: int) -> None:  # noqa: ARG002 -- of calls it is recorded
        """Nothing is recorded of the client's own requests, but how long those of an opening take."""
        if self._stages is not None:
            self._stages.begin("connect")

    def carries(self, credential: Credential, /) -> None:
        """Nobody but the client reads what its own requests are answered."""

    def noted(self, stage: str, word: str, /) -> None:
        """Nothing is recorded of the client's own requests."""

    def questioned(self) -> None:
        """None of the client's own requests is answered so."""

    def bounded(self, stage: str, /) -> contextlib.AbstractContextManager[None]:
        """The scope around the whole request bounds every wait in it."""
        return contextlib.nullcontext() if self._stages is None else self._stages.within(stage)

    def failed(self, stage: str, word: str) -> None:
        """Nothing is recorded; the failure itself is what the client's own request ends with."""

    def woken(self) -> AfpoolError:
        """The request took too long, or its client ended."""
        delivery = IN_DOUBT if self.begun else NOT_SENT
        return DeadlineExceeded(
            "the server did not answer the client's own request in time", delivery=delivery
        )

    def still_wanted(self) -> None:
        """Raise when the client is over."""
        self.ask("resume")

    def relist(self) -> Awaitable[None] | None:
        """A client's own request stands on no list."""
        return None


@final
class Told:
    """A caller's progress callback. What it raises costs that notification, never the call or its answer."""

    __slots__ = ("_callback", "_failed", "_now", "_use")

    def __init__(self, callback: ProgressCallback, use: Use, now: Callable[[], float]) -> None:
        self._callback = callback
        self._use = use
        self._now = now
        self._failed = False

    def __call__(self, progress: Progress) -> None:
        """Call it; the use counts, and keeps the last numbers. The first failure is noted on it."""
        self._use.reports += 1
        self._use.reported = (progress.progress, progress.total)
        try:
            self._callback(progress)
        except Exception as error:  # noqa: BLE001 -- the app's code, and the answer behind it is the caller's
            if not self._failed:
                self._failed = True
                self._use.note("progress", type(error).__name__, self._now())


@final
class Nothing:
    """A sink for an answer whose content does not matter."""

    __slots__ = ()

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""

    def data(self, chunk: bytes, /) -> bool:  # noqa: ARG002 -- see the class
        """Take a piece."""
        return True
