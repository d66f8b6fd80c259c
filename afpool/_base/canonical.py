r"""One spelling for one JSON value, so that "the same definition" is equality of bytes.

The form is RFC 8785 (JSON Canonicalization Scheme) with two additions, both for what real schemas hold
and the RFC leaves out:

* An integer beyond 2**53 is written as its exact decimal digits (the bounds of int64 are common).
* An unpaired surrogate is written as `\udxxx`, lowercase.

Invariants:

* `canonical_json(parse_strict(canonical_json(x))) == canonical_json(x)`.
* Everything that `parse_strict` accepts, `canonical_json` writes.
* On the domain of the `rfc8785` library the bytes are the library's; numbers that are not integral are
  formatted by it. The writer here is for the two additions, the bound on depth, and speed.
* No error quotes a value or carries one in its context: what is read here may be secret.

An integral number from 1e21 up keeps the kind it was written in: with a point or an exponent it is a
double (`1e+22`), in digits it is exact. The two count as different, which is the careful side to err on.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, NoReturn

import rfc8785

MAX_DEPTH = 128
"""Arrays and objects inside one another, at most. Deeper documents are refused, not attempted."""

_EXACT = 2.0**53
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEP = {byte: 1 if byte in b"[{" else -1 for byte in b"[]{}"}


class ContentError(ValueError):
    """A document that has no canonical form.

    Args:
        reason: What is wrong, in words that never quote the document.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_DUPLICATE = "a key stands twice in one object"
_NOT_FINITE = "a number is NaN, infinite or beyond the range of a double"
_TOO_LONG = "an integer has too many digits"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ContentError(_DUPLICATE)
    return read


def _float(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ContentError(_NOT_FINITE)
    return value


def _constant(_name: str) -> NoReturn:
    raise ContentError(_NOT_FINITE)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def _check_depth(raw: bytes) -> None:
    # Before parsing, so that no parser ever recurses further than it may: what is left of the stack
    # depends on the caller, and the same document must not be accepted here and refused there.
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    brackets = _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise ContentError(_TOO_DEEP)


def parse_strict(raw: bytes) -> Any:
    """Read one JSON document and refuse what readers disagree about.

    Args:
        raw: The document in UTF-8, without a byte order mark.

    Returns:
        Plain `dict`, `list`, `str`, `int`, `float`, `bool` and `None`. Integers are exact.

    Raises:
        ContentError: Not UTF-8, not JSON, something behind the end, a key twice in one object, NaN,
            Infinity, a number beyond a double, an integer beyond Python's limit for digits, or nesting
            deeper than `MAX_DEPTH`.

    Synchronous and without shared state: may run in any thread. About 50 ms a megabyte.
    """
    _check_depth(raw)
    try:
        return _DECODER.decode(raw.decode())
    except ContentError:
        raise
    except UnicodeDecodeError:
        reason = "not UTF-8"
    except json.JSONDecodeError as error:
        reason = f"not JSON at character {error.pos}"
    except ValueError:
        reason = _TOO_LONG
    # Raised here and not above: these exceptions carry the whole document.
    raise ContentError(reason)


def canonical_json(value: Any) -> bytes:
    """Write `value` in the canonical form described at the head of this module.

    Args:
        value: `dict` with string keys, `list`, `tuple`, `str`, `int`, `float`, `bool` or `None`, in any
            nesting up to `MAX_DEPTH`.

    Raises:
        ContentError: NaN, Infinity, another type, a key that is no string, two keys that are the same
            text, or nesting deeper than `MAX_DEPTH` (a cycle is that as well).

    Synchronous and without shared state: may run in any thread. About 50 ms a megabyte.
    """
    text = _write(value, MAX_DEPTH)
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    # Two surrogates that stand together are one character to whoever reads them back.
    joined = text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    return joined.encode("utf-8", "backslashreplace")


def _code_units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _ordered(keys: dict[str, Any]) -> list[str]:
    for key in keys:
        if not isinstance(key, str):
            raise ContentError("an object has a key that is no string")
    # Code points and UTF-16 code units order alike where no character is beyond ASCII.
    if all(map(str.isascii, keys)):
        return sorted(keys)
    if len(set(map(_code_units, keys))) != len(keys):
        raise ContentError(_DUPLICATE)
    return sorted(keys, key=_code_units)


def _write(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, dict):
        if depth == 0:
            raise ContentError(_TOO_DEEP)
        depth -= 1
        members = [f"{encode_basestring(key)}:{_write(value[key], depth)}" for key in _ordered(value)]
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        if depth == 0:
            raise ContentError(_TOO_DEEP)
        depth -= 1
        return "[" + ",".join([_write(item, depth) for item in value]) + "]"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, str):
        return encode_basestring(value)
    raise ContentError(f"a value of type {kind.__name__} is not JSON")


def _integer(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:
        pass
    raise ContentError(_TOO_LONG)


def _double(value: float) -> str:
    if value - value != 0.0:
        raise ContentError(_NOT_FINITE)
    if value.is_integer() and -_EXACT < value < _EXACT:
        return int.__repr__(int(value))
    return rfc8785.dumps(float(value)).decode()
