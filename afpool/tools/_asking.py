"""Who calls what, as whoever opens the door for them says it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from .._base.identity import Identity
from ..pool._asking import ask_identity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .._base.errors import AfpoolError
    from .._base.identity import CallerIdentity
    from .._base.model import Progress, Tool
    from .._base.use import Use
    from ._hiding import Hiding

Again: TypeAlias = "Callable[[Tool], Awaitable[Tool | None]]"


@attrs.define(kw_only=True, eq=False)
class Asking:
    """One call, before the door.

    Attributes:
        name: The tool's name, as the model gave it.
        tool: The tool that it means; `None` where there is none.
        args: The model's arguments; whatever it sent.
        identity: The caller's, or a callable that is asked again.
        scope: Whose artifacts the run sees; the caller's where absent, or `scope_of_its_own`.
        run_id: Of the run, where there is one; made up for what is nobody's, and stores.
        call_id: Made up when absent.
        deadline: Absolute, seconds on trio's clock; the door's default from now when absent.
        on_progress: Told of progress, in the caller's own task.
        chain: Tickets of the calls that this one is made from inside of.
        depth: How many tools stand between the model and this call.
        tools: Makes what the tool calls others with, of this very object once it is complete.
        names: What there is, for the refusal of an unknown name.
        problem: Why there is no tool, where that is something else than an unknown name.
        again: Gives the same tool freshly listed, or `None`; where a call in which nothing ran is repeated.
        hiding: What the calls around this one have fetched, with what is fetched for this one added; `None`
            where that is nothing.
        parent: The id of the call that this one is made from inside of.
        use: Its use, where it was begun before its tool was known.
    """

    name: str
    tool: Tool | None
    args: Any = attrs.field(default=None, repr=False)
    identity: CallerIdentity = None
    scope: Identity | None = None
    run_id: str | None = None
    call_id: str | None = None
    deadline: float | None = None
    on_progress: Callable[[Progress], object] | None = None
    chain: tuple[int, ...] = ()
    depth: int = 0
    tools: Callable[[Asking], Any] | None = None
    names: Callable[[], Sequence[str]] = tuple
    problem: AfpoolError | None = None
    again: Again | None = None
    hiding: Hiding | None = attrs.field(default=None, repr=False)
    parent: str | None = None
    use: Use | None = attrs.field(default=None, repr=False)

    def check_caller(self) -> None:
        """Ask a caller again after a wait: what was put together for one is not run for another.

        Raises:
            IdentityMismatch: He is another, or nobody.
            IdentityMissing: He cannot be asked any more.
        """
        caller = self.identity
        if caller is not None and not isinstance(caller, Identity):
            ask_identity(caller)

    def scope_of_its_own(self) -> Identity:
        """Give the scope of what belongs to no caller: of its run, or of one that begins and ends with it."""
        if self.run_id is None:
            self.run_id = new_run_id()
        return Identity(conversation_id=self.run_id)


def new_run_id() -> str:
    """Make up a run's id that nobody can guess."""
    return f"run-{secrets.token_hex(16)}"
