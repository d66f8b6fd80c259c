"""A call that ended in doubt, asked for again where its server recognises repeats and the host says so.

Rules:

* Nothing is repeated by default. It takes a server that promised to know a call id again
  (`Server.repeat="recognised"`) and, for each repeat, the word of the host (`on_in_doubt`).
* A repeat is a pass of its own through all five steps, under the same call id, arguments and absolute
  deadline. Between two passes nothing is held.
* Once a pass ended in doubt the call stays so until an answer comes: a later pass that is refused, or was not
  sent, proves nothing about the first. The error that is raised then is the one in doubt; what ended the
  later pass is its cause.
* What was ended from outside (deadline, withdrawal, kill, close) is not repeated; a call may be withdrawn
  between two passes, too.
* What is filed last is how the call ended for who made it: a doubt that a later pass could not end, and a
  result that was kept back. Each pass before is filed as it ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import attrs
import trio

from .._base.errors import ANSWERED, IN_DOUBT, AfpoolError
from .._base.use import note_refusal
from ._operation import execute
from ._records import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._base.model import JsonObject, ToolContext, ToolResult
    from .._base.use import Use
    from ._bound import Binding
    from ._call import Call
    from ._records import Records

InDoubtAnswer: TypeAlias = Literal["raise", "repeat"]
InDoubtCallback: TypeAlias = "Callable[[Use], InDoubtAnswer]"
Check: TypeAlias = "Callable[[ToolResult], Awaitable[ToolResult]]"

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0
# A later pass that ended so has met the same trouble as the first, and not another ground.
TRANSIENT: Final = frozenset(
    {"connection-lost", "session-handle-lost", "session-expired", "open-failed", "open-backoff"}
)


@final
class Passes:
    """The passes of one call.

    Attributes:
        call: Of the pass under way, or of the last one.
        encoded: The arguments, from the second pass on.
        follows: The use that the next pass writes into, where that is not its door's.
        repeats: How many passes followed the first.
        withdrawn: Set where the call was withdrawn between two passes.
    """

    __slots__ = ("_scope", "_unfiled", "call", "encoded", "follows", "repeats", "withdrawn")

    def __init__(self) -> None:
        self._unfiled: Use | None = None
        self.follows: Use | None = None
        self.call: Call | None = None
        self.encoded: bytes | None = None
        self.repeats = 0
        self.withdrawn: AfpoolError | None = None
        self._scope: trio.CancelScope | None = None

    def waiting(self, delay: float) -> trio.CancelScope:
        """The scope to wait in for so many seconds; it ends when the call is withdrawn."""
        self._scope = trio.CancelScope(deadline=trio.current_time() + delay)
        return self._scope

    def withdraw(self, error: AfpoolError) -> None:
        """Let no further pass begin. Synchronous."""
        self.withdrawn = error
        if self._scope is not None:
            self._scope.cancel()

    def begin(self, call: Call) -> None:
        """A pass begins."""
        self.call = call
        call.use.repeat = self.repeats

    def over(self, use: Use, records: Records) -> None:
        """A pass with a use of its own is over; it is filed once it is known whether the call is, too."""
        self._unfiled = use
        records.unfiled[id(use)] = use

    def file(self, records: Records) -> None:
        """File the pass that is over; safe to repeat. Synchronous."""
        use, self._unfiled = self._unfiled, None
        if use is not None:
            del records.unfiled[id(use)]
            records.file(use)

    def ends(self, error: AfpoolError, records: Records, now: float) -> None:
        """The call ends with this, whatever its last pass ended with: write that down."""
        use = self._last(records)
        if use is None:
            return
        if use.code is not None and (use.code, use.delivery) != (error.code, error.delivery):
            use.note("repeat", use.code, now)
            use.cause = use.happened = use.was = use.became = None
        elif self.withdrawn is not None:
            use.note("repeat", self.withdrawn.code, now)
        note_refusal(use, error)

    def cancelled(self, records: Records) -> None:
        """The caller was cancelled, maybe when no pass was under way: write that down."""
        use = self._last(records)
        if use is not None and use.outcome != "cancelled":
            use.outcome = use.code = "cancelled"
            use.delivery = use.delivery or IN_DOUBT

    def _last(self, records: Records) -> Use | None:
        """What the call ends with in the record: the use of its last pass, or of the one that never began."""
        call = self.call
        if call is not None and call.use.ended_at is None:
            return call.use
        if self.follows is not None:
            self.over(self.follows, records)
        return self.follows


@trio.lowlevel.enable_ki_protection
async def execute_recognised(
    binding: Binding, args: JsonObject, ctx: ToolContext, check: Check | None = None
) -> ToolResult:
    """Run a tool call, again where it ended in doubt and may be repeated; see the module.

    Args:
        binding: What it stands on.
        args: Its arguments.
        ctx: Who asks, until when.
        check: Looks at the result before the call has ended well; gives it, or raises.

    Raises:
        AfpoolError: As `execute`; in doubt also where a repeat was not sent or was refused. What `check`
            raises.
    """
    pool = binding.actor.pool
    passes = Passes()
    try:
        result = await _passes(binding, args, ctx, passes)
        return result if check is None else await check(result)
    except AfpoolError as error:
        passes.ends(error, pool.records, pool.seams.now())
        raise
    except trio.Cancelled:
        passes.cancelled(pool.records)
        raise
    finally:
        passes.file(pool.records)


async def _passes(binding: Binding, args: JsonObject, ctx: ToolContext, passes: Passes) -> ToolResult:
    pool = binding.actor.pool
    if ctx.deadline is None:
        ctx = attrs.evolve(ctx, deadline=pool.seams.now() + pool.limits.deadline)
    if ctx.call_id is None:
        ctx = attrs.evolve(ctx, call_id=f"call-{pool.seams.next_id()}")
    assert ctx.deadline is not None
    doubt: AfpoolError | None = None
    while True:
        try:
            result: ToolResult = await execute(binding, args, ctx, passes=passes)
        except AfpoolError as error:
            if error.delivery == ANSWERED or (error.delivery != IN_DOUBT and doubt is None):
                raise
            ended = error
        else:
            return result
        if ended.delivery == IN_DOUBT:
            doubt = ended
        assert doubt is not None
        delay = _delay(binding, passes, ended, ctx.deadline)
        if delay is None:
            if ended is doubt:
                raise doubt
            raise doubt from ended
        assert passes.call is not None
        passes.encoded = passes.call.args  # whatever becomes of the host's own object meanwhile
        use = passes.call.use
        # it goes on with the next pass; how this one ended is filed by itself
        if use is ctx.use and use.ended_at is None:
            pool.records.file(use.split())
        elif use is not ctx.use:
            passes.follows = use.copy()
            passes.follows.split()
        else:
            passes.follows = None
        passes.file(pool.records)
        passes.repeats += 1
        # the next pass begins with every check anew, so that nothing of this wait has to be looked at
        pool.between[passes] = None
        try:
            with passes.waiting(delay):
                await trio.sleep_forever()
        finally:
            pool.between.pop(passes, None)
        if passes.withdrawn is not None:
            raise doubt from passes.withdrawn


def _delay(binding: Binding, passes: Passes, error: AfpoolError, deadline: float) -> float | None:
    """Decide about a repeat: the seconds to wait first, or `None` for no repeat."""
    server, pool, call = binding.actor.server, binding.actor.pool, passes.call
    assert call is not None
    if server.repeat == "never" or pool.on_in_doubt is None:
        return None
    if call.interrupted is not None or passes.repeats >= server.max_repeats:
        return None
    if error.delivery != IN_DOUBT and error.code not in TRANSIENT:
        return None
    delay = min(FIRST_WAIT * 2.0**passes.repeats, LONGEST_WAIT) * (1 + pool.seams.random.random()) / 2
    delay = max(delay, error.retry_after or 0.0)
    if pool.closing or pool.seams.now() + delay >= deadline:
        return None
    try:
        answer: object = pool.on_in_doubt(call.use)
    except Exception as failure:  # noqa: BLE001 -- the app's code; whatever it raises is no leave to repeat
        logger.error("on_in_doubt raised %s", type(failure).__name__)
        return None
    return delay if answer == "repeat" else None
