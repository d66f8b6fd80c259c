"""The facts of one call, filed once, read by whoever explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from .errors import NOT_SENT, REFUSED, AfpoolError

if TYPE_CHECKING:
    from .definition import Definition
    from .errors import Delivery
    from .identity import Identity


@final
class Use:
    """What one call did and what was done to it. Never a secret.

    One call has one use, whichever way it came: the door that dispatches it by name makes it and files it,
    and the pool writes into the same one (`ToolContext.use`). A bound tool that is called directly makes its
    own.

    `marks` is a flat list of stage, time, stage, time: every check, wait and boundary in order, on the
    runtime's clock. `facts` are things noted beside the outcome, as (stage, word, time).

    Attributes:
        call_id: Stable across attempts.
        server: The server's name; empty for a tool of the host's own.
        tool: The tool's name; of a prompt its name; of other operations empty, since a URI may tell much.
        name: What the caller called it by, where that is another name.
        method: The JSON-RPC method that was asked for; empty for a tool of the host's own.
        run_id: The run that the call belongs to.
        parent: The call that it was made from inside of.
        repeated_of: The call that this one is the second attempt of, under an id of its own.
        repeat: Which repeat of a call that ended in doubt this is, under the same call id; 0 for the first.
        key: The whole pool key. Shown by digest only.
        who: Who the run acts for, as its caller named them. Selected by, and never shown unasked.
        epoch: The key's epoch when the tool was listed.
        context: The plan context that the tool was listed under.
        client_id: The incarnation that the request went to, once there is one.
        list_id: The list that decided, and its `generation`.
        attempts: How many times a request was started for it.
        request_id: The JSON-RPC id of the last request.
        bytes_out: Bytes of its body.
        bytes_in: Bytes of the answer's payload.
        reports: How many reports of progress the caller was told.
        reported: Of the last one, how far and out of what; its words are the server's and stand nowhere.
        shown: The arguments as they may be shown, as JSON; `None` where nobody dispatched the call by name.
        changed: Names of arguments that a hook changed or a view hides.
        minted: References of artifacts that the call put; `took`, of those that it was given.
        waits_for: What it waits for now, by the name of the stage; `None` while it does not, and at its end.
        held_by: Call ids that held the places which it waited for, oldest first, when it began to wait.
        opening: The number of the event that ended the opening which it waited for.
        was: The definition that it was listed under, and `became`, what the list held instead (`None`: it
            was gone), where that refused it.
        tool_error: The tool answered that it failed (`isError`).
        trace: `traceparent` of its span, where it is traced and its server is to be told; `trace_state`
            beside it, where there is one.
        span: Whatever traces it keeps for it.
        outcome: `ok`, `refused`, `failed` or `cancelled`, once it ended.
        code: The error's code, where there is one.
        delivery: The verdict.
        cause: The number of the event that caused a refusal, and `happened`, the event itself.
        reached: How many bound calls were made with it; the first wrote into it, the others have their own.
            That of a tool of the host's own counts as the first.
        ended_at: When it was filed.
        kept: Bytes that the record counts for it while it keeps it, else 0.
    """

    __slots__ = (
        "attempts", "became", "began_at", "bytes_in", "bytes_out", "call_id", "cause", "changed", "client_id",
        "code", "context", "delivery", "ended_at", "epoch", "facts", "generation", "happened", "held_by",
        "kept", "key", "list_id", "marks", "method", "minted", "name", "opening", "outcome", "parent",
        "reached", "repeat", "repeated_of", "reported", "reports", "request_id", "run_id", "server", "shown",
        "span", "took", "tool", "tool_error", "trace", "trace_state", "waits_for", "was", "who",
    )  # fmt: skip

    def __init__(self, call_id: str, server: str, tool: str, began_at: float) -> None:
        self.call_id = call_id
        self.server = server
        self.tool = tool
        self.name = tool
        self.method = "tools/call"
        self.run_id: str | None = None
        self.parent: str | None = None
        self.repeated_of: str | None = None
        self.repeat = 0
        self.began_at = began_at
        self.ended_at: float | None = None
        self.key: object = None
        self.who: Identity | None = None
        self.epoch = 0
        self.context: str | None = None
        self.client_id: int | None = None
        self.list_id: int | None = None
        self.generation: int | None = None
        self.attempts = 0
        self.request_id: int | None = None
        self.bytes_out = 0
        self.bytes_in = 0
        self.reports = 0
        self.reported: tuple[float, float | None] | None = None
        self.shown: bytes | None = None
        self.changed: tuple[str, ...] = ()
        self.minted: list[str] | None = None
        self.took: list[str] | None = None
        self.marks: list[str | float] = []
        self.facts: list[tuple[str, str, float]] | None = None
        self.waits_for: str | None = None
        self.held_by: tuple[str, ...] = ()
        self.opening: int | None = None
        self.was: Definition | None = None
        self.became: Definition | None = None
        self.tool_error = False
        self.trace: str | None = None
        self.trace_state: str | None = None
        self.span: object = None
        self.outcome: str | None = None
        self.code: str | None = None
        self.delivery: Delivery | None = None
        self.cause: int | None = None
        self.happened: Any = None  # an `Event` of the pool's
        self.reached = 0
        self.kept = 0

    def note(self, stage: str, word: str, now: float) -> None:
        """File a fact that does not decide the outcome."""
        if self.facts is None:
            self.facts = []
        self.facts.append((stage, word, now))

    def blame(self, event: Any) -> None:
        """File the event that caused what ends it."""
        self.cause = event.number
        self.happened = event

    def split(self) -> Use:
        """Give what was done so far as a use of its own, and let this one go on with another attempt.

        For a call that ended in doubt and is asked for again: the record keeps how each pass ended.
        """
        twin = self.copy()
        self.outcome = self.code = self.delivery = None
        self.cause = self.happened = self.opening = self.client_id = self.waits_for = None
        self.was = self.became = None
        self.held_by = ()
        self.attempts = self.bytes_out = self.bytes_in = 0
        self.request_id = None
        self.tool_error = False
        return twin

    def copy(self) -> Use:
        """Give the same facts as a use of its own: it is not kept yet, and has no span."""
        twin = object.__new__(Use)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.marks = list(self.marks)
        for name in ("facts", "minted", "took"):
            of_both = getattr(self, name)
            setattr(twin, name, None if of_both is None else list(of_both))
        twin.span = None
        twin.kept = 0
        return twin

    @property
    def stages(self) -> list[tuple[str, float]]:
        """The marks as pairs of stage and seconds since the call began."""
        began = self.began_at
        marks = iter(self.marks)
        return [(str(stage), float(at) - began) for stage, at in zip(marks, marks, strict=True)]

    def __repr__(self) -> str:
        what = self.tool if self.method in ("tools/call", "") else self.method
        return f"<Use {self.call_id} of {self.server}/{what}: {self.outcome} {self.code or ''}>"


def note_refusal(use: Use, error: BaseException) -> None:
    """File what ended a call: its code, its verdict, and whether that is a refusal or a failure.

    The text goes nowhere: a code is for programs, and what somebody else's exception says may hold anything.

    Args:
        use: The call's facts.
        error: What ended it. An `AfpoolError` gives code and verdict, and is a refusal where nothing ran.
            Anything else is a failure, filed by the name of its class; of the verdict it says nothing.
    """
    if isinstance(error, AfpoolError):
        use.code = error.code
        use.delivery = error.delivery
        if error.happened is not None:
            use.blame(error.happened)
        use.outcome = "refused" if error.delivery in (NOT_SENT, REFUSED) else "failed"
    else:
        use.code = type(error).__name__
        use.outcome = "failed"
