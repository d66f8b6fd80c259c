"""The arguments of a call, as they are said on a command line: JSON, a file of it, or stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from .._base.canonical import ContentError, parse_strict
from ._failures import Usage

_EXAMPLE: Final = """'{"text": "hello"}'"""
MOST_BYTES: Final = 16 * 1024 * 1024


def read_arguments(text: str | None) -> dict[str, Any]:
    """Read the arguments of a call.

    Args:
        text: A JSON object, `@` and a file that holds one, or `-` for stdin; `None` for an empty object.

    Raises:
        Usage: They are no JSON object, or the file cannot be read. No value is in the text.
    """
    if text is None:
        return {}
    raw, where = _raw(text)
    try:
        found = parse_strict(raw)
    except ContentError as error:
        # its words never quote the document
        raise Usage(f"{where}: {error}; expected an object such as {_EXAMPLE}") from None
    if not isinstance(found, dict):
        raise Usage(f"{where}: the arguments of a tool are a JSON object")
    return found


def _raw(text: str) -> tuple[bytes, str]:
    if text == "-":
        return _bounded(sys.stdin.buffer.read(MOST_BYTES + 1), "stdin"), "stdin"
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape"), "ARGUMENTS"
    path = Path(text[1:])
    try:
        with path.open("rb") as file:
            return _bounded(file.read(MOST_BYTES + 1), "the file"), str(path)
    except OSError as error:
        raise Usage(
            f"the file of arguments cannot be read: {error.strerror or type(error).__name__}"
        ) from None


def _bounded(raw: bytes, what: str) -> bytes:
    if len(raw) > MOST_BYTES:
        raise Usage(f"{what} has more than {MOST_BYTES} bytes")
    return raw
