"""JSON of any size without ever holding the interpreter for long: many small steps in place of a large one.

The encoder and the decoder of the standard library are one call into C each, which lets no other thread
run: a document of 10 MB would stop the loop for a tenth of a second, in whatever thread it is handled. Here
(and in `_slices_read.py`) each such call sees at most about `SLICE` bytes, and a thread that does many of
them gives way in between.

Invariants:

* What is written is what `json.dumps` writes (compact, in insertion order, not escaped to ASCII), save that
  an unpaired surrogate is written as its escape; what is read is what `json.loads` reads.
* Everything that is accepted is JSON: string keys, finite numbers, no cycle, no more than `MAX_DEPTH` levels.
* No error quotes a value.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from .._base.canonical import MAX_DEPTH, ContentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SLICE: Final = 64 * 1024
"""Bytes, roughly, that one step handles."""

_NODE: Final = 8  # what a value costs beside its characters
_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode

_FIRST_RUN: Final = 64
_NO_KEY: Final = "the data holds a key of type {}; keys must be strings"
_TOO_DEEP: Final = f"the data is nested deeper than {MAX_DEPTH} levels, or holds itself"


def _weight(value: Any) -> int:
    """Give about how many bytes a scalar takes, or refuse it."""
    if isinstance(value, str):
        return _NODE + len(value)
    if value is None or isinstance(value, bool):
        return _NODE
    if isinstance(value, float):
        if not isfinite(value):
            raise ContentError("the data holds NaN or an infinity, which JSON has no word for")
        return _NODE + 16
    if isinstance(value, int):
        return _NODE + value.bit_length() // 3
    raise ContentError(f"the data holds a value of type {type(value).__name__}, which is not JSON")


def weigh(value: Any, limit: int, depth: int = MAX_DEPTH) -> int:
    """Check a value and give its weight, or any number above `limit` as soon as it is known to be more.

    Raises:
        ContentError: What was seen of it is not JSON.

    Time is bounded by `limit`, whatever the value. It is walked to the end only where it is within it.
    """
    total = _NODE
    waiting: list[tuple[Any, int]] = [(value, depth)]
    while waiting and total <= limit:
        item, left = waiting.pop()
        members: Any
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise ContentError(_NO_KEY.format(type(key).__name__))
                total += _NODE + len(key)
                if total > limit:
                    return total
            members = item.values()
        elif isinstance(item, list | tuple):
            members = item
        else:
            total += _weight(item)
            continue
        if left == 0:
            raise ContentError(_TOO_DEEP)
        for member in members:
            kind = type(member)
            if kind is str:
                total += _NODE + len(member)
            elif kind is dict or kind is list:
                total += _NODE
                waiting.append((member, left - 1))
            elif kind is int:
                total += _NODE + member.bit_length() // 3
            elif isinstance(member, dict | list | tuple):
                total += _NODE
                waiting.append((member, left - 1))
            else:
                total += _weight(member)
            if total > limit:
                return total
    return total


def write_small(value: Any) -> bytes:
    """Write a value that `weigh` has walked to the end."""
    try:
        return _encode(value).encode("utf-8", "backslashreplace")
    except ValueError:
        pass
    raise ContentError("the data holds an integer with too many digits")


def write(value: Any, slice_: int = SLICE) -> bytes:
    """Write a value of any size. Runs in a thread; the value must not change meanwhile.

    Raises:
        ContentError: It is not JSON, or it changed.
    """
    try:
        return b"".join(_pieces(value, slice_, MAX_DEPTH))
    except RuntimeError:
        pass
    raise ContentError("the data was changed by somebody else while it was being stored")


def _pieces(value: Any, slice_: int, depth: int) -> Iterator[bytes]:
    if weigh(value, slice_, depth) <= slice_:
        yield write_small(value)
    elif isinstance(value, str):
        yield b'"'
        for at in range(0, len(value), slice_):
            yield write_small(value[at : at + slice_])[1:-1]
        yield b'"'
    elif isinstance(value, dict):
        if depth == 0:
            raise ContentError(_TOO_DEEP)
        yield b"{"
        yield from _members(value, slice_, depth - 1)
        yield b"}"
    elif isinstance(value, list | tuple):
        if depth == 0:
            raise ContentError(_TOO_DEEP)
        yield b"["
        yield from _items(value, slice_, depth - 1)
        yield b"]"
    else:
        yield write_small(value)  # an integer of many digits


def _runs(size: int, slice_: int, weight: Callable[[int, int], int]) -> Iterator[tuple[int, int]]:
    """Cut `size` members into runs of at most `slice_`, or of one member that is heavier."""
    at, count = 0, _FIRST_RUN
    while at < size:
        end = min(at + count, size)
        found = weight(at, end)
        if found > slice_ and end > at + 1:
            count = (end - at) // 2
            continue
        yield at, end
        count = max(1, min(4 * (end - at), (end - at) * slice_ * 7 // (8 * found)))
        at = end


def _items(values: Sequence[Any], slice_: int, depth: int) -> Iterator[bytes]:
    def weight(at: int, end: int) -> int:
        return weigh(values[at:end], slice_, depth + 1)

    for at, end in _runs(len(values), slice_, weight):
        if at:
            yield b","
        if end == at + 1:
            yield from _pieces(values[at], slice_, depth)
        else:
            yield write_small(values[at:end])[1:-1]


def _members(values: dict[str, Any], slice_: int, depth: int) -> Iterator[bytes]:
    keys = list(values)

    def weight(at: int, end: int) -> int:
        return weigh({key: values[key] for key in keys[at:end]}, slice_, depth + 1)

    for at, end in _runs(len(keys), slice_, weight):
        if at:
            yield b","
        if end == at + 1:
            if not isinstance(keys[at], str):
                raise ContentError(_NO_KEY.format(type(keys[at]).__name__))
            yield from _pieces(keys[at], slice_, depth)
            yield b":"
            yield from _pieces(values[keys[at]], slice_, depth)
        else:
            yield write_small({key: values[key] for key in keys[at:end]})[1:-1]


def encode_text(text: str, slice_: int = SLICE) -> bytes:
    """Encode a text of any size.

    Raises:
        ContentError: It holds an unpaired surrogate.
    """
    try:
        return b"".join(text[at : at + slice_].encode() for at in range(0, len(text), slice_))
    except UnicodeEncodeError:
        pass
    raise ContentError("the text holds an unpaired surrogate, which UTF-8 cannot say")
