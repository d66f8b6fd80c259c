"""The one door: whoever calls a tool by name, a call goes through here, in this order.

1. Look up. An unknown name is refused with what there is.
2. `before` hooks.
3. The record's start, with the model's arguments as they may be shown.
4. Arguments that the host fills: a value for one is refused by name, before any secret is fetched.
5. The schema that the model saw.
6. `wants`: references become data, before credentials: no secret is fetched for a call that does not run.
7. `needs`: the credential.
8. Execute.
9. `after` hooks, the last first; only of what has run.
10. Limits of the result.
11. The record's end.

Rules:

* It answers with a result, always: a refusal is one too, with code, verdict and words to learn from. It
  raises only what is no `Exception`: a cancellation, ^C.
* What a refusal or a record says never holds a value that is hidden. What a provider, a hook or a sink raises
  is named by its class; what a tool of the host's own raises is told to the model, without the credential.
* A caller who can be asked is asked again after every wait until the tool runs, and has to be who he was:
  arguments, artifacts and credential of one are never used for another. What a call is made from inside of
  asks the same.
* The deadline is absolute and over everything. A bound tool keeps it itself; around everything else stands a
  scope.
* What is stored is its caller's. Where nobody is named it is the run's own; a call of nobody's outside of any
  run is a run of its own, so that no two of them see each other's artifacts.
* At least one checkpoint.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, final

import trio

from .._base.identity import Identity, is_nobody
from .._base.use import Use
from . import _call_use as kept
from ._call import Call
from ._call_use import Books
from ._correction import MAX_NAME
from ._known import KnownTools
from ._limits import ResultLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .._base.credential import CredentialProvider
    from .._base.model import ToolResult
    from .._base.seams import Seams
    from ..artifacts import ArtifactMeta, ArtifactStore
    from ._asked_credentials import OnAuthorization
    from ._asking import Asking
    from ._hooks import Hook
    from ._tool_event import EventSink


@final
class Door:
    """Dispatches calls; holds what is the same for all of them.

    Args:
        seams: Clock and ids.
        deadline: Seconds that a call has where it brings no deadline.
        hooks: In the order in which they are asked.
        on_event: Told of everything that is recorded; synchronous.
        store: Of artifacts, if there is one.
        credentials: Vends what tools need, if anybody does.
        on_authorization: Told when somebody has to authorize first; the only place where the address goes.
        limits: Of results.
        begin: Told of the use of each call once it says which tool is meant; synchronous, must not raise.
        file: Takes the use of each call when it has ended; likewise.
        running: Where the uses of calls under way are kept, for doors that follow one another.
        on_minted: Told of each artifact that a call puts: its ticket, whose it is, the use of the call.
        on_cleaned: Told of the use of a call that has put some, once more is known as secret, and of what
            takes that out of words.
    """

    __slots__ = (
        "books", "credentials", "deadline", "hooks", "hooks_after", "hooks_before", "limits",
        "on_authorization", "seams", "sink", "store", "tools", "unlimited",
    )  # fmt: skip

    def __init__(
        self,
        *,
        seams: Seams,
        deadline: float = 60.0,
        hooks: Sequence[Hook] = (),
        on_event: EventSink | None = None,
        store: ArtifactStore | None = None,
        credentials: CredentialProvider | None = None,
        on_authorization: OnAuthorization | None = None,
        limits: ResultLimits | None = None,
        begin: Callable[[Use], object] | None = None,
        file: Callable[[Use], object] | None = None,
        running: dict[int, Use] | None = None,
        on_minted: Callable[[ArtifactMeta, Identity, Use], object] | None = None,
        on_cleaned: Callable[[Use, Callable[[str], str]], object] | None = None,
    ) -> None:
        self.seams = seams
        self.deadline = deadline
        self.hooks = tuple(hooks)
        self.hooks_before = any(hook.before is not None for hook in self.hooks)
        self.hooks_after = any(hook.after is not None for hook in self.hooks)
        self.sink = on_event
        self.store = store
        self.credentials = credentials
        self.on_authorization = on_authorization
        self.limits = ResultLimits() if limits is None else limits
        self.unlimited = self.limits == ResultLimits()
        self.tools = KnownTools(seams)
        self.books = Books(seams.now, begin, file, running, on_minted, on_cleaned)

    @property
    def running(self) -> dict[int, Use]:
        """The uses of the calls under way, oldest first."""
        return self.books.running

    def begin(self, asking: Asking) -> Use:
        """Begin a call: its id, its deadline, its use, before anybody knows which tool it means. Synchronous.

        Whoever begins one dispatches it, or gives it up (`abandon`).
        """
        seams = self.seams
        now = seams.now()
        name = asking.name
        scrubber = None if asking.hiding is None else asking.hiding.scrubber
        if scrubber is not None:
            name = scrubber.text(name)
        if len(name) > MAX_NAME:
            name = name[:MAX_NAME] + "…"
        if asking.call_id is None:
            asking.call_id = f"call-{seams.next_id()}"
        if asking.deadline is None:
            asking.deadline = now + self.deadline
        use = asking.use = Use(asking.call_id, "", name, now)
        use.method = ""
        use.run_id = asking.run_id
        use.parent = asking.parent
        self.books.running[id(use)] = use
        return use

    @contextlib.contextmanager
    def finding(self, asking: Asking) -> Iterator[None]:
        """Begin a call, and wait in this for whatever says which tool it means."""
        use = self.begin(asking)
        who = asking.identity
        if isinstance(who, Identity) and not is_nobody(who):
            use.who = who
        use.waits_for = "listing"
        try:
            yield
        except BaseException as error:
            self._found(use)
            if not isinstance(error, Exception):  # the others are refusals, which are dispatched
                self.abandon(use)
            raise
        self._found(use)

    def _found(self, use: Use) -> None:
        use.marks += ("listing", self.seams.now())
        use.waits_for = None

    def abandon(self, use: Use) -> None:
        """File a call that was cancelled before anybody knew which tool it means. Synchronous."""
        if self.books.begin is not None:
            self.books.begin(use)
        kept.cancelled(use)
        self.books.close(use, self.seams.now())

    async def dispatch(self, asking: Asking) -> ToolResult:
        """Run a call from its name to its result; see the module.

        Raises no `Exception`. At least one checkpoint.
        """
        use = asking.use or self.begin(asking)
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            call = Call(self, asking, use)
        except BaseException:
            self.abandon(use)
            raise
        task = trio.lowlevel.current_task()
        # A checkpoint costs a good part of what the door does. Where the tool, or anything else on the way,
        # has let others run, another one would be for nothing.
        before = getattr(task, "_schedule_points", None)
        try:
            result = await call.run()
        except BaseException as error:
            call.record.broken(error)
            raise
        if before is None or task._schedule_points == before:  # noqa: SLF001 -- as trio.testing does
            await trio.lowlevel.cancel_shielded_checkpoint()
        return result
