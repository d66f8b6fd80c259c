"""The public face of an actor: sending, steering, looking. How it works is in `_core`."""

from __future__ import annotations

import math
from collections import deque
from copy import copy
from typing import TYPE_CHECKING

import attrs
import trio
from trio.lowlevel import checkpoint, enable_ki_protection

from ._core import BUSY, HELD, PAUSED, STOPPED, Core, M
from ._errors import DeadlinePassed
from ._messages import R, Reply, Request
from ._observe import ActorInfo, Counts, Hook, Observer

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.define(eq=False, repr=False)
class Actor(Core[M]):
    """A machine with a mailbox, restarted when it crashes. It has no task and starts none.

    Everything but `ask` is synchronous, never blocks, and belongs to the thread that runs trio. Turns and
    effects run under KeyboardInterrupt protection, in the task and context of whoever sent the message, or
    of whoever drains the mailbox: `perform` must not decide anything by a context variable.

    A turn that raises one of `refusals` refuses: the asker gets that exception, the state stays. Any other
    exception of a turn, and any of `perform`, is a crash. The asker and every deferred reply of the old
    machine fail with `ActorCrashed`, the effects not yet run are dropped, the epoch is raised, and
    `successor` makes the next machine. Requests that had not had their turn wait for that machine.

    Args:
        name: What it is called in errors and in `info()`.
        machine: The state and its turns; afterwards the attribute `machine` is the present one.
        perform: Carries out an effect that is neither `Answer` nor `Refuse`, after the turn has committed.
            Also gets `Undelivered` for an answer that came too late.
        successor: Makes the next machine after a crash; the actor's `machine` is still the crashed one and
            its `epoch` (how often it crashed) the new one. It may call `hold()`. None: the first crash
            stops the actor for good.
        refusals: The exceptions that a turn raises on purpose.
        mailbox_limit: Requests that may wait. Control messages are not limited.
        restart: How many crashes are tolerated.
        clock: Seconds, for waiting times, traces and the restart intensity.
    """

    def __repr__(self) -> str:
        waiting = f"{len(self._control or ())} control, {len(self._requests or ())} requests"
        return f"<Actor {self.name!r} {self.phase}, epoch {self.epoch}, waiting: {waiting}>"

    @enable_ki_protection
    def tell(self, message: object) -> None:
        """Send a control message; it is never refused, and never waits for `resume` or `release`.

        Its turn runs now, or next if the actor is in a turn. If it has an attribute `epoch` that is neither
        None nor the actor's at that time, it reaches the machine only if the machine's class says
        `accepts_old = True`; otherwise it is counted and dropped. So is any message after the actor's end.
        """
        if self._flags & (BUSY | STOPPED):
            if self._flags & STOPPED:
                self._count().dropped_stopped += 1
            elif self._control is None:
                self._control = deque((message,))
            else:
                self._control.append(message)
            return
        self._flags |= BUSY
        try:
            self._control_turn(message)
        finally:
            self._next()

    @enable_ki_protection
    def post(self, request: Request[R]) -> Reply[R]:
        """Send a request and return the slot of its reply, which may be filled already.

        Its turn runs now if the actor is idle and neither paused nor held; otherwise it waits. A refusal is
        in the slot and is not raised here.

        Raises:
            MailboxFull: `mailbox_limit` requests wait. Nothing was enqueued.
            ActorStopped: The actor was stopped.
            ActorCrashed: The actor crashed and does not come back.
        """
        reply: Reply[R] = Reply()
        if self._flags:
            self._enqueue(request, reply)
            return reply
        self._flags = BUSY
        try:
            self._turn(request, reply)
        finally:
            self._next()
        return reply

    @enable_ki_protection
    async def ask(self, request: Request[R], *, deadline: float | None = None) -> R:
        """Send a request and wait for its reply; several tasks may ask at once.

        It passes one checkpoint **before** the turn and none after the reply is there, so that no
        cancellation can come between a granted reply and its asker. Cancelled in that checkpoint, nothing
        was sent; cancelled while parked, the reply is abandoned, and a request still waiting never runs.

        Args:
            request: The message.
            deadline: Absolute, in seconds on trio's clock; it passes without the actor's help.

        Raises:
            DeadlinePassed: It passed before the turn, or before the reply came.
            MailboxFull, ActorStopped, ActorCrashed: See `post`; the last two also while waiting.
            Exception: The refusal that the machine raised, or the error it put into the reply.
        """
        await checkpoint()
        if deadline is not None and deadline <= trio.current_time():
            raise DeadlinePassed(f"actor {self.name!r}: the deadline had passed, nothing was asked")
        reply = self.post(request)
        try:
            if reply.done or deadline is None or deadline == math.inf:
                return await reply.wait()
            with trio.CancelScope(deadline=deadline):  # paid for only by an asker that really parks
                return await reply.wait()
            raise DeadlinePassed(f"actor {self.name!r}: no reply before the deadline")
        finally:
            del reply  # an error in it holds this frame by its traceback

    def pause(self) -> None:
        """Let requests wait until `resume`. Control messages and deferred replies go on."""
        self._flags |= PAUSED

    @enable_ki_protection
    def resume(self) -> None:
        """Take requests again; those that wait get their turns now."""
        self._reopen(PAUSED)

    def hold(self) -> None:
        """Let requests wait until `release`; for a successor that must not admit anything yet."""
        self._flags |= HELD

    @enable_ki_protection
    def release(self) -> None:
        """End `hold`. It is independent of `pause`: requests run when neither is in force."""
        self._reopen(HELD)

    @property
    def turns(self) -> int:
        """Turns begun since it exists."""
        return self._turns

    @property
    def held(self) -> bool:
        """Whether `hold` is in force."""
        return bool(self._flags & HELD)

    @enable_ki_protection
    def stop(self, error: BaseException | None = None) -> None:
        """End the actor: every waiting and every deferred reply fails with an `ActorStopped` of its own.

        Control messages that wait are counted and dropped. A turn that is running finishes its effects.
        Stopping a second time does nothing. `error` says why; it is the `__cause__` of each `ActorStopped`.
        """
        if not self._flags & STOPPED:
            self._end(error, crashed=False)

    def info(self) -> ActorInfo:
        """Return what can be seen of the actor, at once, whatever it is doing."""
        observer, requests = self._observer, self._requests
        try:
            state = self.machine.snapshot()
        except Exception as error:  # noqa: BLE001  # a broken machine is looked at most of all
            state = {"snapshot failed": type(error).__name__}
        return ActorInfo(
            name=self.name,
            phase=self.phase,
            in_turn=bool(self._flags & BUSY),
            epoch=self.epoch,
            turns=self._turns,
            control=len(self._control or ()),
            requests=len(requests or ()),
            deferred=len(self._deferred or ()),
            oldest_s=self._clock() - next(iter(requests.values()))[1] if requests else 0.0,
            turn_p50_us=observer.quantile_us(0.5) if observer else None,
            turn_p99_us=observer.quantile_us(0.99) if observer else None,
            counts=copy(self._counts) if self._counts else Counts(),
            ended_by=type(self._end_cause).__name__ if self._end_cause else None,
            recent=observer.recent(self.name) if observer else (),
            state=state,
        )

    def observe(self, on: bool) -> None:
        """Switch the histogram and the ring of the last 20 turns on or off; off drops what they hold."""
        self._observer = self._observer or Observer()
        self._observer.switch(on)
        self._tidy_observer()

    def subscribe(self, hook: Hook) -> Callable[[], None]:
        """Call `hook` after every turn, in the same step; it must not block.

        A hook that raises is removed and counted; it never hurts a turn. Returns what ends the subscription.
        """
        observer = self._observer = self._observer or Observer()
        token = object()
        observer.hooks[token] = hook

        def unsubscribe() -> None:
            observer.hooks.pop(token, None)
            self._tidy_observer()

        return unsubscribe
