"""Exceptions that are handed over instead of raised: without frames, whose locals hold what nobody shall see.

Rules:

* A traceback is for whoever an exception is raised to. Whoever is given one as a value learns from its frames
  nothing but what was under way, arguments and secrets among it; many a program prints those.
* Where an exception of somebody else's code loses its traceback, a note says where it was raised.
* A class of somebody else's may let nobody set anything on it (a frozen dataclass does). What hangs on its
  exceptions is set all the same (`put`): else it would be raised in the place of what is told.
* What a credential provider, a signer or a hook raises stays with it: its words, its causes and its frames
  may all hold the secret, or an argument that is hidden. What is told is its class, and where.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

from .errors import AfpoolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_MOST: Final = 200
_PLACES: Final = 6
RAISED: Final = "raised at "

E = TypeVar("E", bound=AfpoolError)


def place_of(traceback: TracebackType | None) -> str:
    """Give the last few places of a traceback: file, line and function."""
    places: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno} in {code.co_name}")
        traceback = traceback.tb_next
    return ", ".join(places[-_PLACES:])


def put(error: BaseException, name: str, value: object) -> None:
    """Set what hangs on an exception, whatever its class says of that."""
    object.__setattr__(error, name, value)


def notes_of(error: BaseException) -> list[str]:
    """Give the notes of an exception; none where its class has something else by that name."""
    notes: object = None
    with contextlib.suppress(Exception):  # a class may have anything by that name, and it may raise
        notes = getattr(error, "__notes__", None)
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def say(error: BaseException, note: str) -> None:
    """Add a note, as `add_note` does."""
    put(error, "__notes__", [*notes_of(error), note])


def says_where(error: BaseException) -> bool:
    """Whether a note says already where an exception was raised."""
    return any(note.startswith(RAISED) for note in notes_of(error))


def untraced(error: AfpoolError, *, foreign: bool) -> None:
    """Take the tracebacks off an exception and off what hangs on it, in place.

    Args:
        error: What is handed over.
        foreign: Also those of exceptions that are none of afpool's own. Without, they stay: the frames of a
            tool are what its author looks for.
    """
    for one in _chain(error):
        if isinstance(one, AfpoolError):
            one.__traceback__ = None
        elif foreign:
            _unframed(one)


def unframed(error: Exception) -> None:
    """Make what an app's own callback raised fit to be a cause: with its words, without its frames.

    They may hold what a plan is made of, for one: headers, the environment of a child.
    """
    for one in _chain(error):
        _unframed(one)


def _unframed(error: BaseException) -> None:
    if error.__traceback__ is None:
        return
    place = place_of(error.__traceback__)
    put(error, "__traceback__", None)
    if not says_where(error):
        say(error, RAISED + place)


def in_place_of(error: Exception, failure: E) -> E:
    """Give the failure that is told instead of what such a one raised, with a note of where."""
    failure.add_note(f"{type(error).__name__} {RAISED}{place_of(error.__traceback__)}")
    return failure


def by_itself(error: E) -> E:
    """Give an error of afpool's kinds that a provider or signer raised, without all but its own words."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen: dict[int, BaseException] = {}
    while waiting and len(seen) < _MOST:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen[id(one)] = one
        yield one
        waiting += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
