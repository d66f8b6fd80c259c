"""An operation while its caller waits, and the gate that answers about it pass."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Protocol, final

from .._base.errors import AfpoolError
from ._control import Control
from ._server_requests import Operation

if TYPE_CHECKING:
    import trio

    from .._base.identity import CallerIdentity
    from .._base.use import Use
    from ._client import Client


class OperationCaller(Protocol):
    """A call, as far as a server's request about it is concerned."""

    chain: tuple[int, ...]
    deadline: float
    identity: CallerIdentity
    ticket: int
    use: Use

    def recheck(self, stage: str, *, gate: bool = True) -> None:
        """Raise if anything that the call stands on has changed."""
        ...


class OperationOverError(Exception):
    """The call that an answer belongs to has ended."""


@final
class Running:
    """An operation while its caller waits.

    Attributes:
        operation: What handlers are told.
        over: Its caller has gone; nothing is asked or answered for it any more.
    """

    __slots__ = ("_caller", "_context", "_handlers", "operation", "over")

    def __init__(self, caller: OperationCaller) -> None:
        use = caller.use
        self.operation = Operation(
            call_id=use.call_id,
            name=use.tool,
            identity=caller.identity,
            deadline=caller.deadline,
            chain=(*caller.chain, caller.ticket),
        )
        self.over = False
        self._caller = caller
        self._context = contextvars.copy_context()
        self._handlers: dict[trio.CancelScope, None] = {}

    def ask(self) -> None:
        """Raise unless an answer may still leave for it."""
        if self.over:
            raise OperationOverError
        self._context.run(self._caller.recheck, "answer", gate=False)

    def note(self, word: str, now: float) -> None:
        """File on the use of the call that a handler failed; one that was filed is not touched any more."""
        if not self.over:
            self._caller.use.note("server-request", word, now)

    def add(self, scope: trio.CancelScope) -> None:
        """A handler works for it, in this scope."""
        self._handlers[scope] = None

    def discard(self, scope: trio.CancelScope) -> None:
        """That handler has ended."""
        self._handlers.pop(scope, None)

    def end(self) -> None:
        """Its caller goes: cancel its handlers. Synchronous."""
        self.over = True
        for scope in tuple(self._handlers):
            scope.cancel()


@final
class AnswerGate:
    """The gate of an answer: that of its client, and the recheck of the call that it belongs to.

    Attributes:
        closed: The call's recheck refused.
    """

    __slots__ = ("_control", "_running", "closed")

    def __init__(self, client: Client, running: Running | None) -> None:
        self._control = Control(client, float("inf"))
        self._running = running
        self.closed = False

    def ask(self, stage: str, /) -> None:
        """Raise when the client is over, or the call is."""
        self._control.ask(stage)
        if self._running is not None:
            try:
                self._running.ask()
            except (AfpoolError, OperationOverError):
                self.closed = True
                raise

    def began(self) -> None:
        """Nothing is kept of it."""
