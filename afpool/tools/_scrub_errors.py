"""Exceptions without secrets: their words, their attributes, and everything that hangs on them.

Rules:

* An exception without a secret stays the same object; what it hangs on (`__cause__`, `__context__`, the
  members of a group) is replaced where that has one.
* One with a secret is replaced by one of its class with the same attributes, cleaned; an attribute that
  cannot be looked into and carries one is gone. Where its words cannot be cleaned that way, a
  `RuntimeError` with its cleaned words takes its place.
* What is no `Exception` (a cancellation, `KeyboardInterrupt`, `SystemExit`) stays the same object always,
  since others wait for that very object; it is cleaned in place.
* No traceback is kept: the frames of a tool hold the secret in their locals, and many a program shows
  those. A note says where it was raised.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from .._base.untraced import RAISED, notes_of, place_of, put, say, says_where

if TYPE_CHECKING:
    from ._scrub import Scrubber

_MOST: Final = 200
_GONE: Final = object()


def cleaned(error: BaseException, scrubber: Scrubber) -> BaseException:
    """Give an exception that holds no secret, in its place or itself. Never raises."""
    return _Cleaning(scrubber).one(error) or _unread()


class _Cleaning:
    """One pass over everything that an exception hangs together with."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._done: dict[int, BaseException | None] = {}
        self._held: list[BaseException] = []

    def one(self, error: BaseException | None) -> BaseException | None:
        """Give what takes its place; `None` for nothing, and for one too many."""
        if error is None:
            return None
        if id(error) in self._done:
            return self._done[id(error)]
        if len(self._done) >= _MOST:
            return None
        self._done[id(error)] = None  # what comes back to it by a circle finds an end
        self._held.append(error)
        place = place_of(error.__traceback__)
        put(error, "__traceback__", None)
        try:
            clean = self._replaced(error)
        except Exception:  # noqa: BLE001 -- a stranger's class; nothing of it is given on then
            clean = _unread()
        self._done[id(error)] = clean
        if place and isinstance(clean, Exception) and not says_where(clean):
            say(clean, self._scrubber.text(RAISED + place))
        cause, context = self.one(error.__cause__), self.one(error.__context__)
        if clean.__cause__ is not cause or clean.__context__ is not context:
            quiet = error.__suppress_context__
            put(clean, "__cause__", cause)
            put(clean, "__context__", context)
            put(clean, "__suppress_context__", quiet)
        return clean

    def _replaced(self, error: BaseException) -> BaseException:
        if isinstance(error, BaseExceptionGroup):
            return self._group(error)
        args = _args_of(error)
        clean_args = tuple(self._scrubber.value(arg) for arg in args)
        state = {key: self._attribute(value) for key, value in vars(error).items()}
        state = {key: value for key, value in state.items() if value is not _GONE}
        same = all(map(_same, args, clean_args)) and _unchanged(state, vars(error))
        told = self._told(error)
        if same and not told:
            return error
        if not isinstance(error, Exception):
            error.args = clean_args
            vars(error).clear()
            vars(error).update(state)
            return error
        return self._copy(error, clean_args, state) or self._described(error)

    def _group(self, group: BaseExceptionGroup[Any]) -> BaseException:
        members = [self.one(member) for member in group.exceptions]
        kept = [member for member in members if member is not None]
        notes = [self._scrubber.text(note) for note in notes_of(group)]
        if all(map(_same, members, group.exceptions)) and not self._told(group) and notes == notes_of(group):
            return group
        message = self._scrubber.text(group.message)
        kept = kept or [_unread()]
        same = message == group.message
        clean: BaseException = group.derive(kept) if same else BaseExceptionGroup(message, kept)
        for note in notes:
            say(clean, note)
        return clean

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            return self.one(value)
        clean = self._scrubber.value(value)
        unknown = not isinstance(value, str | bytes | int | float | list | tuple | dict | type(None))
        return _GONE if unknown and clean is not value and type(clean) is not type(value) else clean

    def _copy(self, error: Exception, args: tuple[Any, ...], state: dict[str, Any]) -> Exception | None:
        kind = type(error)
        try:
            clean = kind(*args) if kind.__module__ == "builtins" else kind.__new__(kind, *args)
            clean.__dict__.update(state)
            if self._told(clean) or not f"{clean} {clean!r}":
                return None
        except Exception:  # noqa: BLE001 -- it cannot be built so, or not be shown
            return None
        return clean

    def _described(self, error: Exception) -> Exception:
        try:
            words = self._scrubber.text(str(error))
        except Exception:  # noqa: BLE001 -- a stranger's class
            words = "without words"
        return RuntimeError(f"{type(error).__name__}: {words}")

    def _told(self, error: BaseException) -> bool:
        """Whether an exception tells a secret when it is shown, or in an attribute beside its dictionary."""
        finds = self._scrubber.finds
        words: tuple[str, ...] = ()
        with contextlib.suppress(Exception):  # one that cannot be shown tells nothing
            words = (error.message,) if isinstance(error, BaseExceptionGroup) else (str(error), repr(error))
        if any(map(finds, words)):
            return True
        for kind in type(error).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                value = getattr(error, name, None)
                if not isinstance(value, BaseException) and self._scrubber.value(value) is not value:
                    return True
        return False


def _unread() -> RuntimeError:
    return RuntimeError("a tool failed, and what it raised could not be looked through")


def _args_of(error: BaseException) -> tuple[Any, ...]:
    """Give what its class was called with; the operating system's errors keep their file names elsewhere."""
    try:
        reduced = error.__reduce__()
    except Exception:  # noqa: BLE001 -- it refuses to be copied
        return error.args
    if isinstance(reduced, tuple) and reduced[0] is type(error) and isinstance(reduced[1], tuple):
        return reduced[1]
    return error.args


def _unchanged(state: dict[str, Any], before: dict[str, Any]) -> bool:
    return state.keys() == before.keys() and all(state[key] is before[key] for key in state)


def _same(left: Any, right: Any) -> bool:
    return left is right
