r"""JSON in and out, exactly.

Rules:

* What is written is JSON: no NaN, no Infinity, no bytes or dates that turn into strings by themselves,
  text that is UTF-8. What cannot be written is named by its path and type, never by its value.
* What is read keeps its integers exact, whatever their size.
* The fast path is msgspec. Its two gaps are closed here: it writes `null` for NaN, and it does not read
  a lone surrogate (`"\ud83d"`), which RFC 8259 allows and real servers send. A value that msgspec does not
  read is read once more by the standard library.
* A text is read one level at a time (`decode_members`): a member that nobody asked about stays bytes.
* Cutting a text into its members costs about what msgspec costs, whatever is in it: one escape in an answer
  of 16 MB must not make a reader of another kind walk over all of it.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Callable

RawJson: TypeAlias = bytes | Raw
S = TypeVar("S", bound=msgspec.Struct)
R = TypeVar("R")

_UTF8_BOM = b"\xef\xbb\xbf"
_MAX_DIGITS = 4300  # what Python converts between int and text without complaint
_MAX_SHOWN_KEY = 64
_PLAIN = frozenset({str, int, bool, type(None)})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class MalformedMessage(ValueError):
    """Bytes from the peer that are not what the protocol says they are.

    Args:
        reason: The shape that was found or missing. It never quotes what the peer sent.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotJson(TypeError):
    """A value that JSON cannot hold.

    Args:
        path: Where it is, such as `$.filter.ids[3]`.
        kind: What it is: the name of its type, or of the fault. Never the value.
    """

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"not JSON at {path}: {kind}")
        self.path = path
        self.kind = kind


def _plain_scalar(value: Any) -> Any:
    # Subclasses that msgspec does not know (numpy's float64 is a float) are written as what they are.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError


_encoder = msgspec.json.Encoder(enc_hook=_plain_scalar)
_encode = _encoder.encode
_decode_any = msgspec.json.Decoder().decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_map = msgspec.json.Decoder(dict[str, Raw]).decode


def encode_json(value: Any) -> bytes:
    """Write a value as JSON on a single line, UTF-8.

    Args:
        value: `None`, booleans, numbers, strings, lists, tuples and dicts with string keys. Integers of
            any size up to 4300 digits are exact.

    Raises:
        NotJson: Something else is in it, or NaN, an infinity, a lone surrogate, a cycle. Names path and
            type of the first offender.
    """
    try:
        text = _encode(value)
    except RecursionError:
        raise NotJson("$", "nested too deeply, or a cycle") from None
    except (TypeError, ValueError, OverflowError):
        _refuse(value)
    # msgspec writes `null` for NaN and the infinities; a text without `null` holds none of them.
    if not _is_plain(value, b"null" in text):
        _locate(value)
    return text


def _is_plain(root: Any, floats_matter: bool) -> bool:
    """Say whether everything is of JSON's own types; the paths are for the one that is not."""
    stack: list[Any] = [root if type(root) is dict else (root,)]
    while stack:
        value = stack.pop()
        if type(value) is dict:
            for key in value:
                if type(key) is not str:
                    return False
            value = value.values()
        for member in value:
            kind = type(member)
            if kind in _PLAIN:
                continue
            if kind is dict or kind is list or kind is tuple:
                stack.append(member)
            elif kind is not float or (floats_matter and not isfinite(member)):
                return False
    return True


def _refuse(value: Any) -> NoReturn:
    _locate(value)
    raise NotJson("$", type(value).__name__)


def _locate(root: Any) -> None:
    """Raise for the first member that is not JSON; return where all are, by inheritance."""
    stack: list[tuple[Any, tuple[Any, ...]]] = [(root, ())]
    while stack:
        value, path = stack.pop()
        fault = _fault(value)
        if fault is not None:
            raise NotJson(_shown(path), fault)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise NotJson(_shown(path), f"a key of type {type(key).__name__}")
                if _fault(key) is not None:
                    raise NotJson(_shown(path), "a key with a lone surrogate")
            stack.extend((value[key], (path, key)) for key in reversed(value))
        elif isinstance(value, list | tuple):
            stack.extend((value[i], (path, i)) for i in range(len(value) - 1, -1, -1))


def _fault(value: Any) -> str | None:
    if value is None or isinstance(value, bool | dict | list | tuple):
        return None
    if isinstance(value, str):
        try:
            str.encode(value)
        except UnicodeEncodeError:
            return "a string with a lone surrogate"
        return None
    if isinstance(value, int):
        # 3.3 bits a digit; the exact bound does not matter, that it is refused by name does.
        return (
            f"an int of more than {_MAX_DIGITS} digits" if value.bit_length() > _MAX_DIGITS * 3.32 else None
        )
    if isinstance(value, float):
        return None if isfinite(value) else "a float that is not finite"
    return type(value).__name__


def _shown(path: tuple[Any, ...]) -> str:
    steps: list[str] = []
    while path:
        path, step = path
        if isinstance(step, int):
            steps.append(f"[{step}]")
        elif _IDENTIFIER.match(step) and len(step) <= _MAX_SHOWN_KEY:
            steps.append(f".{step}")
        else:
            steps.append(f"[{json.dumps(step[:_MAX_SHOWN_KEY])}]")
    steps.append("$")
    return "".join(reversed(steps))


def decode_json(data: RawJson) -> Any:
    """Read one JSON value; integers are exact.

    Raises:
        MalformedMessage: Not JSON, NaN or an infinity, a number out of range, nested too deeply.
    """
    try:
        return _decode_any(data)
    except (msgspec.DecodeError, RecursionError):
        text = _text(bytes(data))
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise malformed(error) from None


def decode_members(data: RawJson, decode: Any, kind: type[S]) -> S:
    """Read the members of one object into a struct, leaving those typed `Raw` as bytes.

    Args:
        data: UTF-8 text of one JSON object.
        decode: `msgspec.json.Decoder(kind).decode`, made once by the caller.
        kind: A struct whose fields are typed `Raw` or plain JSON types, all with defaults.

    Raises:
        MalformedMessage: Not an object, or a member of another type.
    """
    try:
        value: S = decode(data)
    except msgspec.ValidationError as error:
        raise MalformedMessage(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        pass
    else:
        return value
    try:
        return _members_slowly(bytes(data), kind)
    except (MalformedMessage, msgspec.DecodeError, RecursionError) as error:
        raise malformed(error) from None


def split_array(data: RawJson) -> list[Raw]:
    """Cut an array into its items, each raw.

    Raises:
        MalformedMessage: Not an array.
    """
    try:
        return _decode_items(data)
    except msgspec.ValidationError as error:
        raise MalformedMessage(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _read_masked(bytes(data), _decode_items)
    except (msgspec.DecodeError, RecursionError) as error:
        raise malformed(error) from None


def _members_slowly(data: bytes, kind: type[S]) -> S:
    cut = _read_masked(data, _decode_map)
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        raw = cut.get(field.encode_name)
        if raw is None:
            continue
        # What is read here and now decides about the message (its id, its method) and goes back to the peer,
        # so it holds nothing that cannot be written.
        found[field.name] = (
            raw if field.type is Raw else msgspec.convert(decode_json(_masked(bytes(raw))), field.type)
        )
    return kind(**found)


def _masked(data: bytes) -> bytes:
    """Put something that msgspec reads, of the same length, in place of all that only it does not read.

    No blanks: a member begins and ends where it did. What looks the same inside a string is masked as well,
    which makes no difference to where the string ends.
    """
    data = data.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")
    return data.replace(b"NaN", b"100").replace(b"Infinity", b"10000000")


def _read_masked(data: bytes, decode: Callable[[bytearray], R]) -> R:
    """Cut a text that msgspec does not read: cut its masked copy, then put the original back under the cuts.

    One member that is not JSON (NaN) so spoils only itself.
    """
    buffer = bytearray(_masked(data))
    found = decode(buffer)  # its `Raw` members are views of the buffer
    buffer[:] = data
    return found


def checked_text(data: bytes) -> bytes:
    """Return the bytes without a byte order mark, known to be UTF-8.

    msgspec does not look into members that it skips, so a text is checked once, where it comes in.

    Raises:
        MalformedMessage: Not UTF-8.
    """
    if not data.isascii():
        if data.startswith(_UTF8_BOM):
            data = data[3:]
        _text(data)
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedMessage("not UTF-8") from None


def _no_constant(_: str) -> NoReturn:
    raise MalformedMessage("NaN or Infinity where JSON has none")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise MalformedMessage("a number out of range")
    return value


def malformed(error: Exception) -> MalformedMessage:
    """Turn what a JSON reader raised into a reason that quotes nothing."""
    if isinstance(error, MalformedMessage):
        return error
    if isinstance(error, RecursionError):
        return MalformedMessage("JSON is nested too deeply")
    if isinstance(error, json.JSONDecodeError):
        return MalformedMessage(f"JSON is malformed (character {error.pos})")
    if isinstance(error, msgspec.ValidationError):
        return MalformedMessage(str(error))
    if isinstance(error, msgspec.DecodeError):
        return MalformedMessage("JSON is malformed")
    return MalformedMessage("JSON is malformed: a number is too long")
