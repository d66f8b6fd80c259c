"""Messages that expect a reply, the slot the reply goes to, and the two effects that fill it.

Rules of a reply slot:

* It is settled once: by a value, by an error, or by its asker going away (*abandoned*). The first wins;
  whoever comes later is told `False` and keeps what it wanted to deliver. Only a second *value* raises: two
  grants for one request are a mistake of the machine, everything else is an ordinary race.
* A value that was accepted is never lost. trio does not call an `abort_fn` after `reschedule`, and there is
  no checkpoint between being woken and returning the value, so a cancellation that comes after the grant
  is delivered at the asker's next checkpoint, when the value is already in its hands.
* While somebody keeps the slot in a map (the request lane, or the replies an actor has deferred), `home` is
  that map, and the slot leaves it in the same step in which it is settled or abandoned: a cancelled asker
  leaves nothing behind that could be counted or served.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar, final

import attrs
from trio import lowlevel

R = TypeVar("R")

Effect: TypeAlias = object
"""What a turn returns: `Answer` and `Refuse` are carried out by the actor, the rest by its `perform`."""


class Request(Generic[R]):
    """Base of a message that expects a reply of type `R`; subclass it as a frozen attrs class.

    A message that expects no reply needs no base.
    """

    __slots__ = ()


@final
class Reply(Generic[R]):
    """A one-shot slot for the reply to one request; a machine may keep it and answer in a later turn.

    Like everything here it belongs to the thread that runs trio. Its attributes are for reading only.
    """

    __slots__ = ("_error", "_task", "_value", "abandoned", "done", "home")

    _value: R

    def __init__(self) -> None:
        self.done = False  # a value or an error is in the slot
        self.abandoned = False  # the asker is gone; nothing put into the slot would reach anybody
        self.home: dict[Reply[Any], Any] | None = None  # the map that holds it; the actor's bookkeeping
        self._error: BaseException | None = None
        self._task: lowlevel.Task | None = None

    @lowlevel.enable_ki_protection
    def set(self, value: R) -> bool:
        """Put the value in and wake the asker.

        Returns False when the asker is gone or an error came first: the caller still owns the value.
        Raises RuntimeError when the slot already holds a value.
        """
        if self.done or self.abandoned:
            if self.done and self._error is None:
                raise RuntimeError("a reply was given twice")
            return False
        self._value = value
        self.done = True
        if self.home is not None or self._task is not None:
            self._leave_and_wake()
        return True

    @lowlevel.enable_ki_protection
    def fail(self, error: BaseException) -> bool:
        """Put an error in and wake the asker; anybody may, for example a timer. Never raises.

        Returns False when the slot was settled or abandoned before.
        """
        if self.done or self.abandoned:
            return False
        self._error = error
        self.done = True
        if self.home is not None or self._task is not None:
            self._leave_and_wake()
        return True

    def abandon(self) -> bool:
        """Say that nobody will take the reply, without having waited for it.

        Returns False when the reply is there: the caller must take it, for it may be worth something.
        Raises RuntimeError while a task waits: cancel that task instead.
        """
        if self._task is not None:
            raise RuntimeError("a task waits for this reply; cancel the task")
        if self.done:
            return False
        self.abandoned = True
        self._leave_and_wake()
        return True

    def result(self) -> R:
        """Return the value or raise the error; RuntimeError when the slot is open or abandoned."""
        if not self.done:
            raise RuntimeError("the reply was abandoned" if self.abandoned else "the reply is not there yet")
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            del self  # the error's traceback holds this frame, and the slot holds the error

    @lowlevel.enable_ki_protection
    async def wait(self) -> R:
        """Wait for the reply, parking at most once; only one task may wait, and only once.

        It returns **without a checkpoint** when the reply is there: a cancellation delivered between the
        reply and the asker would lose a value that the machine has already given away. Cancelled while
        parked, the slot is abandoned and the actor is told nothing: it sees `abandoned`, or `False`.
        Raises RuntimeError when another task waits, or the slot was abandoned.
        """
        if not self.done:
            if self._task is not None or self.abandoned:
                raise RuntimeError("only one task may wait for a reply, and only once")
            self._task = lowlevel.current_task()
            await lowlevel.wait_task_rescheduled(self._abort)
        try:
            return self.result()
        finally:
            del self

    def _abort(self, _raise_cancel: lowlevel.RaiseCancelT, /) -> lowlevel.Abort:
        """Mark; start nothing, read no context variable, never raise."""
        self.abandoned = True
        self._task = None
        self._leave_and_wake()
        return lowlevel.Abort.SUCCEEDED

    def _leave_and_wake(self) -> None:
        home, self.home = self.home, None
        if home is not None:
            home.pop(self, None)
        task, self._task = self._task, None
        if task is not None:
            lowlevel.reschedule(task)


@final
@attrs.frozen(eq=False)
class Answer(Generic[R]):
    """Effect: put `value` into `reply`, or hand `Undelivered` to `perform` if nobody can take it."""

    reply: Reply[R]
    value: R


@final
@attrs.frozen(eq=False)
class Refuse:
    """Effect: fail `reply` with `error`, an instance made for this reply alone."""

    reply: Reply[Any]
    error: BaseException


@attrs.frozen(eq=False)
class Undelivered(Generic[R]):
    """What `perform` gets for an `Answer` whose asker was gone: whoever granted the value takes it back."""

    reply: Reply[R]
    value: R
