r"""Where a secret stands in bytes, however it is written: as it is, in JSON escapes, in a URL, in HTML.

A character may be escaped (`s` as `\u0073`, `/` as `\/`), behind as many backslashes as JSON inside JSON
inside JSON has. What is changed in any other way (encoded in base64 or hexadecimal, hashed, reversed, cut
in two) is not found, and cannot be.

Rules:

* First the bytes are searched as they are, then flattened: every escape of a character that a secret has is
  undone. Both run at the speed of `bytes.find`. Only where the flat bytes hold one are they read piece by
  piece, so that it is known where in the bytes it stood.
* In a JSON document (`raw`) what is found begins and ends where a character of the document does, and a bare
  quote is never part of it.
* A secret of fewer than `SHORT` characters is found only where it stands alone, with no letter or digit
  next to it: within words it would be found everywhere, and every replacement would tell it.
* No pattern is made of a secret: `re` keeps the last few hundred for the whole process.
"""

from __future__ import annotations

import contextlib
import html
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, TypeAlias, final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PLACEHOLDER: Final = "[host-filled]"
"""Stands where a secret stood that nobody else is to read."""

SHORT: Final = 4
_LEVELS: Final = 6
_LONGEST_ESCAPE: Final = 2 ** (_LEVELS - 1) + 5

_PLACEHOLDER: Final = PLACEHOLDER.encode()

Span: TypeAlias = tuple[int, int]
Mark: TypeAlias = tuple[int, int, int, int]  # what an escape spells: from, to; the escape itself: from, to

_PLAIN: Final = re.compile(r"[0-9A-Za-z._~-]*")
_HEX: Final = re.compile(r"%[0-9A-F]{2}")
_WORD: Final = re.compile(rb"[0-9A-Za-z]")
_ESCAPES: Final = re.compile(rb"\\u([0-9A-Fa-f]{4})")
_TOKEN: Final = re.compile(
    rb"""\\u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\(["\\/bfnrt])"""
)
_TOKEN_OR_QUOTE: Final = re.compile(_TOKEN.pattern + rb'|"')
_HALF_ESCAPE: Final = re.compile(rb"\\u[0-9A-Fa-f]{0,3}\Z")
_LETTERS: Final = {
    b"/": b"/", b'"': b'"', b"\\": b"\\", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t",
}  # fmt: skip
# What JSON may hold outside of its strings: numbers, words, signs, spaces.
_OUTSIDE: Final = re.compile(r"[0-9+\-.eEtrufalsn ,:\[\]{}\t\n\r]*")
# What a document never has as it is within its strings.
_BARE: Final = re.compile(rb'["\\\x00-\x1f]')
_OWN_QUOTE: Final = b"\xff"  # a document's own quote, in what its escapes spell; no text has this byte


@final
class Words:
    """The secrets in all their spellings, ready to be looked for.

    Args:
        secrets: What is looked for; an empty one is not.

    Attributes:
        reach: How many bytes one takes at most, escaped as badly as can be.
        outside: Whether one may stand in JSON outside of its strings, as `12345` may be a number.
    """

    __slots__ = ("_needles", "_rare", "_texts", "_units", "outside", "reach")

    def __init__(self, secrets: Iterable[str]) -> None:
        # Made for every call: what only a hit needs is made on a hit.
        self._texts, rare = _spellings(secrets)
        self._needles = [as_bytes(text) for text in self._texts]
        # What has a `%` or `&` in front of everything else is not looked for where there is none.
        self._rare = [(sign, as_bytes(text)) for sign, text in rare]
        self.reach = max(map(len, self._needles), default=0) * _LONGEST_ESCAPE
        self.outside = any(_OUTSIDE.fullmatch(text) for text in self._texts)
        self._units: frozenset[int] | None = None

    def may_be_in(self, text: str) -> bool:
        """Whether a text may hold one: as it is, or spelled with a backslash, `%` or `&`."""
        if any(word in text for word in self._texts) or "\\" in text:
            return True
        return bool(self._rare) and ("%" in text or "&" in text)

    def spans(self, data: bytes, *, raw: bool) -> list[Span]:
        """Give where they stand, in order and without overlaps."""
        needles = [needle for needle in self._needles if needle in data]
        for sign, needle in self._rare:
            if sign in data and needle in data:
                needles.append(needle)
        escapes = b"\\" in data
        if not needles and not escapes:
            return []
        found = [
            span for needle in needles if not (raw and _BARE.search(needle)) for span in _all(needle, data)
        ]
        if raw and found and escapes:
            found = [span for span in found if _aligned(data, span[0])]
        if escapes and self._flat_holds(data):
            found += self._escaped(data, raw=raw)
        if any(len(needle) < SHORT for needle in self._needles):
            found = [span for span in found if span[1] - span[0] >= SHORT or _alone(data, span)]
        return _merged(found)

    def without(self, data: bytes) -> bytes:
        """Give bytes with the placeholder in the place of each; the same object where there is none."""
        spans = self.spans(data, raw=False)
        if not spans:
            return data
        pieces: list[bytes] = []
        taken = 0
        for start, end in spans:
            pieces += (data[taken:start], _PLACEHOLDER)
            taken = end
        return b"".join((*pieces, data[taken:]))

    def cleaned(self, text: str) -> str:
        """Give a text so; the same object where there is none."""
        if not self.may_be_in(text):
            return text
        data = as_bytes(text)
        clean = self.without(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def _characters(self) -> frozenset[int]:
        if self._units is None:
            self._units = frozenset(unit for text in self._texts for unit in _code_units(text))
        return self._units

    def _flat_holds(self, data: bytes) -> bool:
        """Whether they may stand in what the escapes spell: quick, and sometimes wrongly so."""
        units = self._characters()
        if 0x5C in units or min(units, default=0x20) < 0x20:
            return True  # what is spelled depends on what stands around it
        spelled = [digits for digits in set(_ESCAPES.findall(data)) if int(digits, 16) in units]
        letters = [letter for letter in (b"/", b'"') if ord(letter) in units and b"\\" + letter in data]
        if not spelled and not letters:
            return False
        flat = data
        while b"\\\\" in flat:
            flat = flat.replace(b"\\\\", b"\\")
        for digits in spelled:
            if 0xD800 <= int(digits, 16) < 0xE000:
                return True
            flat = flat.replace(b"\\u" + digits, as_bytes(chr(int(digits, 16))))
        for letter in letters:
            flat = flat.replace(b"\\" + letter, letter)
        return any(needle in flat for needle in self._all_needles())

    def _all_needles(self) -> list[bytes]:
        return [*self._needles, *(needle for _, needle in self._rare)]

    def _escaped(self, data: bytes, *, raw: bool) -> list[Span]:
        """Read what the escapes spell, and what those of that spell, and so on; look in each."""
        needles = self._all_needles()
        views: list[tuple[list[int], list[Mark]]] = []
        found: list[Span] = []
        flat = data
        while b"\\" in flat and len(views) < _LEVELS:
            quotes = raw and not views and 0x22 in self._characters()
            flat, marks = _read(flat, _TOKEN_OR_QUOTE if quotes else _TOKEN)
            views.append(([mark[0] for mark in marks], marks))
            for needle in needles:
                for span in _all(needle, flat):
                    for starts, marks_there in reversed(views):
                        span = _back(starts, marks_there, span)  # noqa: PLW2901 -- one level up
                    found.append(span)
        return found


def as_bytes(text: str) -> bytes:
    """Encode in UTF-8; what has no place in it is passed through."""
    return text.encode("utf-8", "surrogatepass")


def _spellings(secrets: Iterable[str]) -> tuple[list[str], list[tuple[bytes, str]]]:
    """Give the secrets, each once and none empty, and what they become in a URL and in HTML."""
    texts = list(dict.fromkeys(secrets))
    if "" in texts:
        texts.remove("")
    written: set[str] = set()
    for text in texts:
        if len(text) >= SHORT and not _PLAIN.fullmatch(text):
            written |= {html.escape(text), html.escape(text, quote=False)}
            with contextlib.suppress(UnicodeEncodeError):  # an unpaired surrogate is in no URL
                coded = {quote(text, safe=""), quote(text), quote_plus(text)}
                written |= coded | {_HEX.sub(lambda found: found[0].lower(), one) for one in coded}
    rare: list[tuple[bytes, str]] = []
    for text in written.difference(texts):
        sign = next((sign for sign in ("%", "&") if sign in text), None)
        if sign is None:
            texts.append(text)  # spaces alone have become signs
        else:
            rare.append((sign.encode(), text))
    return texts, rare


def _code_units(text: str) -> list[int]:
    if text.isascii():
        return list(text.encode())
    coded = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(coded[at : at + 2]) for at in range(0, len(coded), 2)]


def _read(data: bytes, token: re.Pattern[bytes]) -> tuple[bytes, list[Mark]]:
    """Give what bytes spell once each escape is read, and where each was."""
    pieces: list[bytes] = []
    marks: list[Mark] = []
    taken = length = 0
    for found in token.finditer(data):
        high, low, unit, letter = found.groups()
        if high is not None:
            spelled = bytes.fromhex((high + low).decode()).decode("utf-16-be").encode()
        elif unit is not None:
            spelled = as_bytes(chr(int(unit, 16)))
        else:
            spelled = _OWN_QUOTE if letter is None else _LETTERS[letter]
        start, end = found.span()
        length += start - taken
        pieces += (data[taken:start], spelled)
        marks.append((length, length + len(spelled), start, end))
        length += len(spelled)
        taken = end
    pieces.append(data[taken:])
    return b"".join(pieces), marks


def _all(needle: bytes, data: bytes) -> Iterator[Span]:
    at = data.find(needle)
    while at >= 0:
        yield at, at + len(needle)
        at = data.find(needle, at + 1)


def _back(starts: list[int], marks: list[Mark], span: Span) -> Span:
    """Give where a span of what was spelled stands in what spells it."""
    start, last = span[0], span[1] - 1
    first = bisect_right(starts, start) - 1
    if first >= 0:
        _, to, begin, end = marks[first]
        start = begin if start < to else end + start - to
    final = bisect_right(starts, last) - 1
    if final < 0:
        return start, last + 1
    _, to, _, end = marks[final]
    return start, end if last < to else end + last - to + 1


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _alone(data: bytes, span: Span) -> bool:
    return not (
        (span[0] and _WORD.match(data, span[0] - 1)) or (span[1] < len(data) and _WORD.match(data, span[1]))
    )


def _aligned(data: bytes, start: int) -> bool:
    """Whether a place is where a character of a document begins, not within an escape of one."""
    if _run(data, start) % 2:
        return False
    half = _HALF_ESCAPE.search(data, max(0, start - 5), start)
    return half is None or _run(data, half.start() + 1) % 2 == 0


def _run(data: bytes, end: int) -> int:
    """Count the backslashes that end at a place."""
    start = end
    while start and data[start - 1] == 0x5C:
        start -= 1
    return end - start
