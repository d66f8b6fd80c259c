"""Reading JSON and text of any size in small steps; the rules are at the head of `_slices.py`."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from .._base.canonical import MAX_DEPTH
from ._slices import SLICE

_DECODER: Final[Any] = json.JSONDecoder()  # its scanner is in no stub
_scan = _DECODER.scan_once
_UNKNOWN: Final = object()
_BLANKS: Final = " \t\n\r"
_BEHIND: Final = ",]}" + _BLANKS  # what may stand behind a value
_PLAIN: Final = re.compile(r'[^"\\]{0,65536}')
_ESCAPES: Final = re.compile(r"(?:\\(?:u[0-9a-fA-F]{4}|[^u])){1,4096}", re.DOTALL)
_HIGH_SURROGATE: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


def read_small(data: bytes) -> Any:
    """Read a document of at most about `SLICE` bytes.

    Raises:
        ValueError: It is no JSON.
    """
    return json.loads(data)


def read(data: bytes, slice_: int = SLICE) -> Any:
    """Read a document of any size. Runs in a thread.

    Raises:
        ValueError: It is no JSON.
    """
    return _Reader(decode_text(data, slice_), slice_).document()


def decode_text(data: bytes, slice_: int = SLICE) -> str:
    """Decode a text of any size.

    Raises:
        ValueError: It is not UTF-8.
    """
    pieces: list[str] = []
    at = 0
    while at < len(data):
        end = at + slice_
        while end < len(data) and data[end] & 0xC0 == 0x80:  # not between the bytes of one character
            end += 1
        pieces.append(data[at:end].decode())
        at = end
    return "".join(pieces)


class _Reader:
    """Reads what fits a window with one call, and takes apart what does not."""

    __slots__ = ("_at", "_one_by_one", "_slice", "_start", "_text", "_window")

    def __init__(self, text: str, slice_: int) -> None:
        self._text = text
        self._slice = slice_
        self._at = 0
        self._start = 0  # of the window
        self._window = text[:slice_]
        self._one_by_one = 0  # up to here members are read singly

    def document(self) -> Any:
        value = self._value(MAX_DEPTH)
        if self._skip():
            raise ValueError("something stands behind the end of the document")
        return value

    def _skip(self) -> str:
        """Pass blanks and give the next character, or nothing at the end."""
        while (char := self._text[self._at : self._at + 1]) and char in _BLANKS:
            self._at += 1
        return char

    def _value(self, depth: int) -> Any:
        char = self._skip()
        value = self._from_window()
        if value is _UNKNOWN and self._start != self._at:
            self._start = self._at
            self._window = self._text[self._at : self._at + self._slice]
            value = self._from_window()
        if value is not _UNKNOWN:
            return value
        if char == '"':
            return self._string()
        if char not in ("[", "{"):
            return self._number()
        if depth == 0:
            raise ValueError("the document is nested too deeply")
        return self._list(depth - 1) if char == "[" else self._object(depth - 1)

    def _from_window(self) -> Any:
        """Read the next value if all of it is in the window."""
        at = self._at - self._start
        if at >= len(self._window):
            return _UNKNOWN
        try:
            value, end = _scan(self._window, at)
        except (StopIteration, ValueError):
            return _UNKNOWN  # cut off, or no JSON: then whoever takes it apart will say so
        # a number may go on behind the window, and `1e` reads as `1`
        behind = self._window[end : end + 1] or " " * (self._start + end == len(self._text))
        if self._window[end - 1].isdigit() and (not behind or behind not in _BEHIND):
            return _UNKNOWN
        self._at = self._start + end
        return value

    def _number(self) -> Any:
        end = self._at
        while end < len(self._text) and self._text[end] not in _BEHIND:
            end += 1
        value, length = _DECODER.raw_decode(self._text[self._at : end])
        self._at += length
        return value

    def _string(self) -> str:
        text = self._text
        pieces: list[str] = []
        start = at = self._at + 1
        while True:
            plain = _PLAIN.match(text, at)
            at = at if plain is None else plain.end()
            char = text[at : at + 1]
            if char == '"':
                pieces.append(_unescape(text[start:at]))
                self._at = at + 1
                return "".join(pieces)
            if char == "\\":
                escapes = _ESCAPES.match(text, at)
                if escapes is None:
                    raise ValueError("a string holds an escape that is none")
                at = escapes.end()
            elif not char:
                raise ValueError("a string has no end")
            # the two escapes of one character stay together
            if at - start >= self._slice and not _HIGH_SURROGATE.fullmatch(text, at - 6, at):
                pieces.append(_unescape(text[start:at]))
                start = at

    def _list(self, depth: int) -> list[Any]:
        values: list[Any] = []
        self._at += 1
        if self._skip() == "]":
            self._at += 1
            return values
        while True:
            values.append(self._value(depth))
            if self._ends("]"):
                return values
            more = self._run("[", "]", values[-1])
            if more is not None:
                values += more
                if self._ends("]"):
                    return values

    def _object(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        self._at += 1
        if self._skip() == "}":
            self._at += 1
            return values
        while True:
            if self._skip() != '"':
                raise ValueError("a key is no string")
            key = self._value(depth)
            if self._skip() != ":":
                raise ValueError("a key has no value")
            self._at += 1
            values[key] = self._value(depth)
            if self._ends("}"):
                return values
            more = self._run("{", "}", values[key])
            if more is not None:
                values |= more
                if self._ends("}"):
                    return values

    def _run(self, first: str, last: str, like: Any) -> Any:
        """Read the members up to the last that ends like the one before, in one call; `None` if that fails.

        It fails where that end stands inside a member. They are read singly then, for the length of a window.
        """
        if self._at < self._one_by_one:
            return None
        window = self._text[self._at : self._at + self._slice]
        kind = type(like)
        end = "}," if kind is dict else "]," if kind is list else '",' if kind is str else ","
        comma = window.rfind(end) + len(end) - 1
        if comma >= len(end) - 1:
            try:
                members, stop = _scan(first + window[:comma] + last, 0)
            except (StopIteration, ValueError):
                pass
            else:
                self._at += stop - 2
                return members
        self._one_by_one = self._at + len(window)
        return None

    def _ends(self, close: str) -> bool:
        """Pass a comma or the end of the container; say whether it was the end."""
        char = self._skip()
        if char not in {",", close}:
            raise ValueError("a list or an object has no end")
        self._at += 1
        return char == close


def _unescape(text: str) -> str:
    if "\\" not in text and text.isprintable():
        return text
    value: str = json.loads(f'"{text}"')
    return value
