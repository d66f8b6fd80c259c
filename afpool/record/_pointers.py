"""Where two definitions of a tool differ: JSON pointers, found without holding the loop.

Rules:

* Pointers say where, never what: a definition may hold what its server made for one user.
* What `compare_without` leaves out of the comparison is no difference here either.
* Numbers are compared as canonical JSON compares them: `1` and `1.0` are one number, `true` is none.
* A list is compared from both of its ends, so that one element that came or went in the middle is one
  difference and not one for each element behind it.
* The work is bounded by size before it is begun (reading a document cannot be interrupted) and by nodes while
  it lasts. What was not looked at is said: `complete` is then false.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from .._base.definition import Definition

How: TypeAlias = Literal["added", "removed", "changed"]

READ_AT_ONCE: Final = 32 * 1024
"""Bytes of one definition that are read in the same step as the comparison."""
NODES: Final = 4_000
"""Values that are compared in one step: about 2 ms."""
READ_IN_STEPS: Final = 96 * 1024
"""Bytes of one definition that are read at all: in a step of its own, under 5 ms however they are nested."""
NODES_IN_STEPS: Final = 100_000
TOLD: Final = 12
MAX_POINTER: Final = 200


@attrs.frozen
class Place:
    """One difference.

    Attributes:
        pointer: JSON pointer (RFC 6901) into the definition; empty for all of it. Cut after 200 characters.
        how: What became of the value there.
    """

    pointer: str
    how: How


@attrs.frozen
class Difference:
    """Where two definitions differ.

    Attributes:
        places: The first ones, in the order of the older document.
        more: How many others were seen and are not told.
        complete: Whether all of both was compared.
        reason: Why not, in words; empty where it was.
    """

    places: tuple[Place, ...]
    more: int = 0
    complete: bool = True
    reason: str = ""

    def cleaned(self, clean: Callable[[str], str]) -> Difference:
        """Give it with each name in a pointer looked through; of one that was cut, without the last name."""
        return attrs.evolve(
            self, places=tuple(Place(_cleaned(each.pointer, clean), each.how) for each in self.places)
        )

    def as_json(self) -> dict[str, Any]:
        """Give plain data."""
        return {
            "differs": [{"pointer": place.pointer, "how": place.how} for place in self.places],
            "more": self.more,
            "complete": self.complete,
        }


def difference(was: Definition, became: Definition, without: Collection[str] = ()) -> Difference:
    """Find where two definitions differ, in one step of at most 5 ms.

    Args:
        was: The one that a tool was listed under.
        became: The one that a list holds now.
        without: JSON pointers that are left out, as `compare_without` of the server.

    Raises nothing: a document that cannot be read, or is too large, is said to be so.
    """
    if was.digest == became.digest:
        return Difference(())
    if (size := max(len(was.raw), len(became.raw))) > READ_AT_ONCE:
        return _too_large(size)
    try:
        gathered = _Gathered(_walk(json.loads(was.raw), json.loads(became.raw), frozenset(without)))
    except (ValueError, RecursionError):
        return UNREADABLE
    return gathered.result(over=gathered.step(NODES))


async def difference_in_steps(
    was: Definition, became: Definition, without: Collection[str] = ()
) -> Difference:
    """Find where two definitions differ, larger ones too; others run in between.

    A checkpoint, at least one. Cancelled, nothing remains of it.
    """
    if max(len(was.raw), len(became.raw)) <= READ_AT_ONCE:
        await trio.lowlevel.checkpoint()
        found = difference(was, became, without)
        if found.complete or not found.reason.startswith(_ONLY):
            return found
    if (size := max(len(was.raw), len(became.raw))) > READ_IN_STEPS:
        await trio.lowlevel.checkpoint()
        return _too_large(size)
    try:
        before = json.loads(was.raw)
        await trio.lowlevel.checkpoint()
        after = json.loads(became.raw)
        await trio.lowlevel.checkpoint()
    except (ValueError, RecursionError):
        await trio.lowlevel.checkpoint()
        return UNREADABLE
    gathered = _Gathered(_walk(before, after, frozenset(without)))
    while not gathered.step(NODES):
        if gathered.seen >= NODES_IN_STEPS:
            return gathered.result(over=False)
        await trio.lowlevel.checkpoint()
    return gathered.result(over=True)


def _too_large(size: int) -> Difference:
    return Difference((), complete=False, reason=f"they are too large to be compared here ({size} bytes)")


_ONLY: Final = "only the first"
UNREADABLE: Final = Difference((), complete=False, reason="one of them cannot be read")


class _Gathered:
    """What a walk has found so far."""

    __slots__ = ("_found", "_more", "_steps", "seen")

    def __init__(self, steps: Iterator[Place | None]) -> None:
        self._steps = steps
        self._found: list[Place] = []
        self._more = 0
        self.seen = 0

    def step(self, nodes: int) -> bool:
        """Look at so many values; whether that was all of them."""
        before = self.seen
        for place in islice(self._steps, nodes):
            self.seen += 1
            if place is None:
                continue
            if len(self._found) < TOLD:
                self._found.append(place)
            else:
                self._more += 1
        return self.seen - before < nodes

    def result(self, *, over: bool) -> Difference:
        found = tuple(self._found)
        if over:
            return Difference(found, self._more)
        reason = f"{_ONLY} {self.seen} values were compared"
        return Difference(found, self._more, complete=False, reason=reason)


def _walk(before: Any, after: Any, without: Collection[str]) -> Iterator[Place | None]:
    """Give each difference, and `None` for each value that was looked at without finding one."""
    stack: list[tuple[str, Any, Any]] = [("", before, after)]
    while stack:
        pointer, was, now = stack.pop()
        inner: list[tuple[str, Any, Any]] = []
        if isinstance(was, dict) and isinstance(now, dict):
            for key, value in was.items():
                inner.append((f"{pointer}/{_escaped(key)}", value, now.get(key, _ABSENT)))
                yield None
            for key, value in now.items():
                if key not in was:
                    inner.append((f"{pointer}/{_escaped(key)}", _ABSENT, value))
                yield None
        elif isinstance(was, list) and isinstance(now, list):
            for pair in _paired(pointer, was, now):
                if pair is not None:
                    inner.append(pair)
                yield None
        elif not _same(was, now):
            yield _place(pointer, was, now)
        else:
            yield None
        if without:
            inner = [each for each in inner if each[0] not in without]
        stack.extend(reversed(inner))


def _cleaned(pointer: str, clean: Callable[[str], str]) -> str:
    cut = len(pointer) > MAX_POINTER
    names = [clean(each.replace("~1", "/").replace("~0", "~")) for each in pointer.split("/")]
    if cut:
        names[-1] = "…"
    return "/".join(each.replace("~", "~0").replace("/", "~1") for each in names)


def _place(pointer: str, was: Any, now: Any) -> Place:
    how: How = "added" if was is _ABSENT else "removed" if now is _ABSENT else "changed"
    return Place(pointer if len(pointer) <= MAX_POINTER else f"{pointer[:MAX_POINTER]}…", how)


def _paired(pointer: str, was: list[Any], now: list[Any]) -> Iterator[tuple[str, Any, Any] | None]:
    """Pair the elements of two lists: equal ones from both ends first; gives `None` for each of those."""
    first, last_was, last_now = 0, len(was), len(now)
    if last_was != last_now:
        while first < min(last_was, last_now) and _same(was[first], now[first]):
            first += 1
            yield None
        while min(last_was, last_now) > first and _same(was[last_was - 1], now[last_now - 1]):
            last_was -= 1
            last_now -= 1
            yield None
    for index in range(first, max(last_was, last_now)):
        yield (
            f"{pointer}/{index}",
            was[index] if index < last_was else _ABSENT,
            now[index] if index < last_now else _ABSENT,
        )


def _same(was: Any, now: Any) -> bool:
    """Whether two values are the same JSON, as far as it can be said without walking through them."""
    if type(was) is type(now):
        # of containers `==` is only a hint: it takes `true` for 1
        return bool(was == now) if not isinstance(was, dict | list) else _alike(was, now)
    if isinstance(was, bool) or isinstance(now, bool):
        return False
    return isinstance(was, int | float) and isinstance(now, int | float) and was == now


def _alike(was: Any, now: Any) -> bool:
    # `repr` tells `true` from 1 and costs about what `==` does; it only decides which elements are paired
    return bool(was == now) and repr(was) == repr(now)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class _Absent:
    __slots__ = ()


_ABSENT: Final = _Absent()
