"""Secrets taken out of what a tool gives back: `[host-filled]` stands where one stood.

Rules:

* What holds no secret comes back as the same object. One search over the raw bytes says so; only a hit, or an
  escape that could spell one, is looked at closely.
* A result is rewritten as bytes, so that everything else in it stays as the server wrote it: numbers, order,
  spaces, keys that stand twice.
* A replacement never makes two keys of an object one: the second becomes `[host-filled]-2`.
* What cannot be looked into is not given on: it is dropped, or described by its shape.
* The secrets are held so that nothing that prints, walks, copies or stores objects shows them.

See `_base/spellings.py` for the ways of writing a secret that are found, and `_scrub_errors` for exceptions.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex, final

import attrs
import msgspec

from .._base.canonical import MAX_DEPTH
from .._base.model import Progress, ToolResult
from .._base.spellings import Span, Words, as_bytes
from .._base.steps import at_leisure, at_once
from ._scrub_objects import carries, without

if TYPE_CHECKING:
    from .._base.secret import Secret

from ._filled_arguments import HOST_FILLED_PLACEHOLDER

SLICE: Final = 256 * 1024
_STEP: Final = 64 * 1024
_HITS: Final = 1000
_PLACEHOLDER: Final = HOST_FILLED_PLACEHOLDER.encode()
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_REST_OF_STRING: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLON: Final = re.compile(rb"[ \t\n\r]*:")
_NUMERALS: Final = b"0123456789+-.eE"
_BLOB: Final = re.compile(rb'[ \t\n\r]*:[ \t\n\r]*"([A-Za-z0-9+/=\\]+)"')


@final
class Scrubber:
    """Replaces secrets in what a tool answers, reports and raises.

    Args:
        secrets: What must not be given on. An empty one is not looked for.

    It refuses to be copied or pickled, and its `repr` shows nothing of the secrets.
    """

    __slots__ = ("_words",)

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._words = _holder(secrets)

    def __repr__(self) -> str:
        return "<Scrubber>"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError("a Scrubber holds secrets and is never copied or pickled")

    def text(self, text: str) -> str:
        """Give a text without the secrets."""
        return self._words().cleaned(text)

    def data(self, data: bytes) -> bytes:
        """Give bytes without the secrets, which are looked for in UTF-8."""
        return self._words().without(data)

    def raw(self, raw: bytes) -> bytes:
        """Give a JSON document without the secrets; the same object where it holds none. Synchronous."""
        return at_once(self._document(raw))

    async def result(self, result: Any) -> Any:
        """Give what a tool returned without the secrets: a `ToolResult`, or any other value.

        What is larger than `SLICE` is gone through in steps with a checkpoint after each; else there is none.
        """
        if not isinstance(result, ToolResult):
            return self.value(result)
        raw = result.raw
        if len(raw) <= SLICE:
            clean = self.raw(raw)
        else:
            clean = await at_leisure(self._document(raw))
        return self._as(result, clean)

    def value(self, value: Any) -> Any:
        """Give any value without the secrets, keys included; the same object where it holds none.

        What is nested deeper than `MAX_DEPTH`, or within itself, is replaced as a whole.
        """
        return self._value(value, {}, MAX_DEPTH)

    def progress(self, report: Any) -> Any:
        """Give a progress report without the secrets; one that cannot be looked into is named by its class.

        Never raises.
        """
        try:
            if isinstance(report, Progress):
                message = None if report.message is None else self.text(report.message)
                return report if message is report.message else attrs.evolve(report, message=message)
            return self.value(report)
        except Exception:  # noqa: BLE001 -- an object of the tool's own, which may raise whatever is asked of it
            return f"[unreadable: {type(report).__name__}]"

    def finds(self, value: str | bytes) -> bool:
        """Whether a text or bytes hold a secret."""
        if isinstance(value, str):
            return self._words().may_be_in(value) and self.finds(as_bytes(value))
        return bool(self._words().spans(value, raw=False))

    # -- values

    def _value(self, value: Any, done: dict[int, Any], depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._number(value)
        if isinstance(value, bytes | bytearray):
            clean = self.data(data := bytes(value))
            return value if clean is data else clean
        if depth == 0:
            return HOST_FILLED_PLACEHOLDER
        known = done.get(id(value), done)
        if known is not done:
            return known
        done[id(value)] = HOST_FILLED_PLACEHOLDER  # what it is within itself
        result = done[id(value)] = self._container(value, done, depth - 1)
        return result

    def _container(self, value: Any, done: dict[int, Any], depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, done, depth)
        if isinstance(value, list | tuple):
            kept = [self._value(one, done, depth) for one in value]
            if all(map(_same, kept, value)):
                return value
            if isinstance(value, list):
                return kept
            return type(value)(*kept) if hasattr(value, "_fields") else tuple(kept)
        if isinstance(value, ToolResult):
            return self._as(value, self.raw(value.raw))
        if isinstance(value, Progress):
            return self.progress(value)
        if not carries(value, self.finds):
            return value
        return without(value, lambda one: self._value(one, done, depth), HOST_FILLED_PLACEHOLDER)

    def _mapping(self, value: Mapping[Any, Any], done: dict[int, Any], depth: int) -> Any:
        out: dict[Any, Any] = {}
        changed = False
        for key, one in value.items():
            kept_key = self._value(key, done, depth)
            kept = self._value(one, done, depth)
            changed = changed or kept_key is not key or kept is not one
            if kept_key is not key and kept_key in (value.keys() | out.keys()):
                kept_key = _numbered(str(kept_key), value.keys() | out.keys())
            out[kept_key] = kept
        return out if changed else value

    def _number(self, value: float) -> Any:
        if self._words().outside and self.finds(repr(value)):
            return HOST_FILLED_PLACEHOLDER
        return value

    def _as(self, result: ToolResult, raw: bytes) -> ToolResult:
        error = result.error if result.error is None else self.exception(result.error)
        if raw is result.raw and error is result.error:
            return result
        code = result.code
        return ToolResult(
            raw,
            result.call_id,
            code=None if code in {"ok", "tool-error"} else code,
            delivery=result.delivery,
            error=error,
        )

    def exception(self, error: Any) -> Any:
        """Give an exception without the secrets, and all that hangs on it; see `_scrub_errors`."""
        from ._scrub_errors import cleaned

        return cleaned(error, self)

    # -- documents

    def _document(self, raw: bytes) -> Generator[None, None, bytes]:
        """Rewrite a document; each `yield` is a place to let others go first."""
        clean = yield from self._rewritten(raw)
        if b"blob" in clean or b"image" in clean or b"audio" in clean:
            clean = yield from self._blobs(clean)
        return clean

    def _spans(self, raw: bytes) -> Generator[None, None, list[Span]]:
        words = self._words()
        if len(raw) <= SLICE:
            return words.spans(raw, raw=True)
        found: list[Span] = []
        for start in range(0, len(raw), SLICE):
            # a window begins early enough to see an escape that its first hit would be a part of
            begin = max(0, start - words.reach)
            while begin and raw[begin - 1] == 0x5C:
                begin -= 1
            window = raw[begin : start + SLICE + words.reach]
            found += [
                (begin + first, begin + last)
                for first, last in words.spans(window, raw=True)
                if start <= begin + first < start + SLICE
            ]
            yield
        return found

    def _rewritten(self, raw: bytes) -> Generator[None, None, bytes]:
        spans = yield from self._spans(raw)
        if not spans:
            return raw
        pieces: list[bytes] = []
        strings = _Strings(raw) if self._words().outside else None
        taken = keys = 0
        within = -1  # where the string that the last hit was in ends; whether it is a key is known
        for count, (start, end) in enumerate(spans):
            if count % _HITS == _HITS - 1:
                yield
            placeholder = _PLACEHOLDER
            if strings is not None and not strings.inside(start):
                if raw[start] not in _NUMERALS:
                    continue
                start, end = _number_at(raw, max(start, taken), end)  # noqa: PLW2901 -- the whole of it
                placeholder = b'"' + _PLACEHOLDER + b'"'
            elif end > within:
                rest = _REST_OF_STRING.match(raw, end)
                within = len(raw) if rest is None else rest.end()
                keys += _COLON.match(raw, within) is not None
            if start >= taken:
                pieces += (raw[taken:start], placeholder)
            taken = max(taken, end)
        if not pieces:
            return raw
        pieces.append(raw[taken:])
        clean = b"".join(pieces)
        return _without_twins(clean) if keys else clean

    def _blobs(self, raw: bytes) -> Generator[None, None, bytes]:
        """Rewrite what a document holds in base64, where a block of a result has binary contents."""
        pieces: list[bytes] = []
        taken = 0
        for found in _blobs_of(raw):
            yield
            held = yield from self._in_base64(found[1])
            if held:
                try:
                    clean = self.data(base64.b64decode(found[1].replace(b"\\/", b"/"), validate=True))
                except binascii.Error:
                    continue
                pieces += (raw[taken : found.start(1)], base64.b64encode(clean))
                taken = found.end(1)
        return b"".join((*pieces, raw[taken:])) if pieces else raw

    def _in_base64(self, coded: bytes) -> Generator[None, None, bool]:
        coded = coded.replace(b"\\/", b"/")
        reach = self._words().reach
        before = b""
        for start in range(0, len(coded), _STEP):
            try:
                part = before + base64.b64decode(coded[start : start + _STEP], validate=True)
            except binascii.Error:
                return False
            if self.finds(part):
                return True
            before = part[-reach:]
            yield
        return False


@final
class _Strings:
    """Tells whether a place in a document is inside one of its strings; asked in ascending order."""

    __slots__ = ("_end", "_found", "_start")

    def __init__(self, raw: bytes) -> None:
        self._found = _STRING.finditer(raw)
        self._start = self._end = -1

    def inside(self, at: int) -> bool:
        while self._end <= at:
            string = next(self._found, None)
            if string is None:
                return False
            self._start, self._end = string.span()
        return self._start < at


def _holder(secrets: Iterable[Secret]) -> Callable[[], Words]:
    """Keep the secrets where nothing that shows, walks or stores objects looks: in a function."""
    words = Words(secret.reveal() for secret in secrets)
    return lambda: words


def _blobs_of(raw: bytes) -> Iterator[re.Match[bytes]]:
    places = []
    for key in (b'"blob"', b'"data"'):
        at = raw.find(key)
        while at >= 0:
            places.append(at + len(key))
            at = raw.find(key, at + 1)
    for place in sorted(places):
        found = _BLOB.match(raw, place)
        if found is not None:
            yield found


def _number_at(raw: bytes, start: int, end: int) -> Span:
    while start and raw[start - 1] in _NUMERALS:
        start -= 1
    while end < len(raw) and raw[end] in _NUMERALS:
        end += 1
    return start, end


def _numbered(name: str, taken: Iterable[Any]) -> str:
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"


def _without_twins(raw: bytes) -> bytes:
    """Give a document in which no replacement has made two keys of one object the same."""
    renamed = False

    def built(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal renamed
        out: dict[str, Any] = {}
        names = {key for key, _ in pairs}
        for key, value in pairs:
            if key in out and HOST_FILLED_PLACEHOLDER in key:
                renamed = True
                key = _numbered(key, names | out.keys())  # noqa: PLW2901 -- it is another key from here on
            out[key] = value
        return out

    try:
        document = json.loads(raw, object_pairs_hook=built)
        return msgspec.json.encode(document) if renamed else raw
    except (ValueError, RecursionError, TypeError):
        return raw


def _same(left: Any, right: Any) -> bool:
    return left is right
