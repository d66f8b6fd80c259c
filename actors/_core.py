"""An actor without a task: turns run in whoever sends, one at a time, and never inside one another.

Rules, for whoever changes this file:

R1  A turn commits, then its effects run in order. Only then is the next message looked at.
R2  `BUSY` is set from before a turn until its mailbox has been drained. Whoever finds it set enqueues;
    only whoever set it (or the continuation it scheduled) drains. So nothing recurses: a message to the
    actor from its own effects is the next message, not a nested call.
R3  Control lane before request lane. Control runs while paused and while held; requests do not.
R4  A drain takes at most `BUDGET` turns in one step of the loop. Then the rest goes on by
    `TrioToken.run_sync_soon`, which needs no task of ours; `BUSY` stays set in between, so that order is
    kept and nobody overtakes. Outside of a trio run nothing can be scheduled, and the drain goes on.
R5  Every reply is settled: answered, refused, failed by a crash or a stop, or abandoned by its asker. A
    reply that outlives its turn is in `_deferred`; one that has not had its turn is in `_requests`; each
    leaves its map by itself when it is settled (see `Reply.home`).
R6  Nothing raised by a turn or an effect leaves through a sender, except what is no `Exception`, and that
    only after the crash has been dealt with.
R7  What an idle actor does not need does not exist: lanes, maps, counters and instruments are None.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import attrs
import trio
from trio.lowlevel import current_trio_token

from ._errors import ActorCrashed, ActorError, ActorStopped, MailboxFull, Refusal
from ._machine import Machine
from ._messages import Answer, Effect, Refuse, Reply, Request, Undelivered
from ._observe import Counts, Observer, Phase, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._actor import Actor

M = TypeVar("M", bound=Machine)
_Requests: TypeAlias = OrderedDict[Reply[Any], tuple[Request[Any], float]]

BUSY, PAUSED, HELD, RESTARTING, STOPPED = 1, 2, 4, 8, 16
BUDGET = 1_000


@attrs.frozen
class Restart:
    """How many crashes an actor survives; one more within that time stops it for good."""

    intensity: int = 1  # crashes tolerated
    within: float = 5.0  # in so many seconds


@attrs.define(eq=False, repr=False)
class Core(Generic[M]):
    """The fields of an actor, its turns, its mailbox and its end; `Actor` is its public face."""

    name: str
    machine: M
    _perform: Callable[[Actor[M], Effect], None] = attrs.field(kw_only=True, alias="perform")
    _successor: Callable[[Actor[M], BaseException], M] | None = attrs.field(
        default=None, kw_only=True, alias="successor"
    )
    _refusals: tuple[type[Exception], ...] = attrs.field(default=(Refusal,), kw_only=True, alias="refusals")
    _mailbox_limit: int = attrs.field(default=256, kw_only=True, alias="mailbox_limit")
    _restart: Restart = attrs.field(default=Restart(), kw_only=True, alias="restart")
    _clock: Callable[[], float] = attrs.field(default=trio.current_time, kw_only=True, alias="clock")
    epoch: int = attrs.field(default=0, init=False)
    _flags: int = attrs.field(default=0, init=False)
    _turns: int = attrs.field(default=0, init=False)
    _control: deque[object] | None = attrs.field(default=None, init=False)
    _requests: _Requests | None = attrs.field(default=None, init=False)
    _deferred: dict[Reply[Any], None] | None = attrs.field(default=None, init=False)
    _crashes: list[float] | None = attrs.field(default=None, init=False)
    _end_cause: BaseException | None = attrs.field(default=None, init=False)
    _end_crashed: bool = attrs.field(default=False, init=False)
    _observer: Observer | None = attrs.field(default=None, init=False)
    _counts: Counts | None = attrs.field(default=None, init=False)

    @property
    def phase(self) -> Phase:
        """What the actor does with a request now."""
        flags = self._flags
        if flags & STOPPED:
            return "crashed" if self._end_crashed else "stopped"
        if flags & RESTARTING:
            return "restarting"
        return "held" if flags & HELD else "paused" if flags & PAUSED else "running"

    def _turn(self, message: Any, reply: Reply[Any] | None) -> None:
        observer = self._observer
        if observer is None:
            self._step(message, reply)
            return
        epoch, at, began = self.epoch, self._clock(), perf_counter_ns()
        verdict = self._step(message, reply)
        removed = observer.note(self.name, epoch, at, message, perf_counter_ns() - began, verdict)
        if removed:
            self._count().hooks_removed += removed
            self._tidy_observer()

    def _control_turn(self, message: object) -> None:
        epoch = getattr(message, "epoch", None)
        if epoch is None or epoch == self.epoch or getattr(type(self.machine), "accepts_old", False):
            self._turn(message, None)
        else:
            self._count().dropped_old += 1

    def _step(self, message: Any, reply: Reply[Any] | None) -> Verdict:
        """One turn and its effects (R1)."""
        me: Any = self  # an Actor, the one subclass
        self._turns += 1
        try:
            try:
                effects = self.machine.turn(message, reply)
                if type(effects) is not list:
                    effects = tuple(effects or ())  # a generator's body is part of the turn
            except self._refusals as refusal:
                if reply is None:
                    self._count().refused_tells += 1
                else:
                    reply.fail(refusal)
                return "refused"
            for effect in effects:
                if type(effect) is Answer:
                    if not effect.reply.set(effect.value):
                        self._perform(me, Undelivered(effect.reply, effect.value))
                elif type(effect) is Refuse:
                    effect.reply.fail(effect.error)
                else:
                    self._perform(me, effect)
        except BaseException as error:
            self._crash(error, reply)
            if not isinstance(error, Exception):
                raise
            return "crashed"
        if reply is not None and not reply.done:
            self._defer(reply)
        return "done"

    def _defer(self, reply: Reply[Any]) -> None:
        """Keep track of a reply that outlives its turn (R5)."""
        if self._flags & STOPPED:  # an effect of its own turn stopped the actor
            reply.fail(self._gone())
        elif not reply.abandoned:
            self._deferred = reply.home = {} if self._deferred is None else self._deferred
            self._deferred[reply] = None

    def _enqueue(self, request: Request[Any], reply: Reply[Any]) -> None:
        if self._flags & STOPPED:
            raise self._gone()
        if self._requests is None:
            self._requests = OrderedDict()
        if len(self._requests) >= self._mailbox_limit:
            raise MailboxFull(f"actor {self.name!r} is {self.phase}, {len(self._requests)} requests wait")
        self._requests[reply] = (request, self._clock())
        reply.home = self._requests

    def _reopen(self, flag: int) -> None:
        self._flags &= ~flag
        if self._requests and not self._flags & (BUSY | STOPPED):
            self._flags |= BUSY
            self._next()

    def _next(self) -> None:
        """End of a turn run from outside: drain what may have its turn now (R2, R3, R4), then be idle."""
        budget = BUDGET
        try:
            while self._control or self._requests:
                if self._control:
                    self._control_turn(self._control.popleft())
                elif self._requests and not self._flags & (PAUSED | HELD):
                    reply, (request, _) = self._requests.popitem(last=False)
                    reply.home = None
                    self._turn(request, reply)
                else:
                    break
                budget -= 1
                if budget <= 0 and self._drain_later():
                    return
        except BaseException:  # no Exception leaves a turn (R6); what is left must still be drained
            if not self._drain_later():
                self._flags &= ~BUSY
            raise
        if self._deferred is not None and not self._deferred:
            self._deferred = None
        if self._requests is not None and not self._requests:
            self._requests = None
        self._control = None
        self._flags &= ~BUSY

    def _drain_later(self) -> bool:
        """Schedule the rest of a drain; False outside of a trio run."""
        try:
            token = current_trio_token()
        except RuntimeError:
            return False
        token.run_sync_soon(self._next)
        return True

    def _crash(self, error: BaseException, reply: Reply[Any] | None) -> None:
        """Fail what the old machine owed, then put its successor in place, or end."""
        owed = list(self._deferred or ())
        self._deferred = None
        if reply is not None:
            owed.append(reply)
        for each in owed:
            each.home = None
            each.fail(_because(ActorCrashed(f"actor {self.name!r} crashed: {type(error).__name__}"), error))
        if self._flags & STOPPED:
            return
        self.epoch += 1
        if self._successor is None or not self._may_restart():
            self._end(error, crashed=True)
            return
        me: Any = self  # an Actor, the one subclass
        self._flags |= RESTARTING
        try:
            self.machine = self._successor(me, error)
        except BaseException as second:
            self._end(second, crashed=True)
            if not isinstance(second, Exception):
                raise
        finally:
            self._flags &= ~RESTARTING

    def _may_restart(self) -> bool:
        now = self._clock()
        recent = [at for at in self._crashes or () if now - at <= self._restart.within]
        if len(recent) >= self._restart.intensity:
            return False
        self._crashes = [*recent, now]
        return True

    def _end(self, error: BaseException | None, *, crashed: bool) -> None:
        self._flags |= STOPPED
        self._end_cause, self._end_crashed = error, crashed
        owed = [*(self._requests or ()), *(self._deferred or ())]
        self._requests = self._deferred = None
        for reply in owed:
            reply.home = None
            reply.fail(self._gone())
        if self._control:
            self._count().dropped_stopped += len(self._control)
            self._control = None

    def _gone(self) -> ActorError:
        """Make the error for one reply or one sender after the end."""
        if not self._end_crashed:
            return _because(ActorStopped(f"actor {self.name!r} was stopped"), self._end_cause)
        limit = self._restart
        why = f"more than {limit.intensity} within {limit.within:g} s" if self._successor else "no successor"
        text = f"actor {self.name!r} crashed and does not come back ({why})"
        return _because(ActorCrashed(text, final=True), self._end_cause)

    def _count(self) -> Counts:
        self._counts = self._counts or Counts()
        return self._counts

    def _tidy_observer(self) -> None:
        if self._observer is not None and not self._observer.wanted:
            self._observer = None


def _because(error: ActorError, cause: BaseException | None) -> ActorError:
    error.__cause__ = cause
    return error
