"""Names: refs, and scopes as paths.

Rules:

* A ref is drawn at random and never derived from what it names: two puts of the same bytes are two artifacts.
* `checked_ref` is the only way of telling a ref, and is asked before one touches a key or a statement.
* `scope_path` is injective, also where letters that differ in case only are the same: two scopes never share
  a place. Nothing is hashed or cut.
"""

from __future__ import annotations

import re
import secrets
from string import ascii_letters, digits
from typing import Final
from urllib.parse import quote

from .._base.identity import Identity

_ALPHABET: Final = (digits + ascii_letters).encode()
_DRAWN: Final = 22
_FAIR: Final = 256 - 256 % len(_ALPHABET)  # bytes from here on would make some characters likelier
_AS_CHARACTER: Final = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))
_UNFAIR: Final = bytes(range(_FAIR, 256))

_REF: Final = re.compile(r"art_[A-Za-z0-9]{22}")
_UPPER: Final = re.compile(r"[A-Z]")


def mint_ref() -> str:
    """Draw a ref: `art_` and 22 of 62 characters, about 131 bits from the system's randomness."""
    drawn = b""
    while len(drawn) < _DRAWN:
        drawn += secrets.token_bytes(32).translate(_AS_CHARACTER, _UNFAIR)
    return "art_" + drawn[:_DRAWN].decode()


def checked_ref(ref: object) -> str | None:
    """Give `ref` as an exact `str` if it has the form of a ref, else `None`."""
    if not isinstance(ref, str) or len(ref) != 4 + _DRAWN:
        return None
    text = str.__str__(ref)
    return text if _REF.fullmatch(text) else None


def is_artifact_ref(ref: object) -> bool:
    """Say whether something has the form of a ref. What it names may be gone, or another scope's."""
    return checked_ref(ref) is not None


def checked_scope(scope: object) -> Identity:
    """Give `scope` if it is one.

    Raises:
        TypeError: It is none. The message does not show it.
    """
    if not isinstance(scope, Identity):
        raise TypeError(f"the scope of an artifact must be an Identity, not {type(scope).__name__}")
    return scope


def _path_field(value: str | None) -> str:
    if not value:
        return "_"
    marked = _UPPER.sub(lambda letter: "~" + letter[0].lower(), value.replace("~", "~~"))
    escaped = quote(marked, safe="!~*'()-_").replace(".", "%2E")
    return "%5F" if escaped == "_" else escaped


def scope_path(scope: Identity) -> str:
    """Give the scope as three segments joined by `/`, for a directory or a key.

    Per field: an absent one is `_`; `~` is doubled, a capital of ASCII is `~` and its small letter; what is
    neither a letter, a digit nor one of `-_!~*'()` is percent-encoded; a value that would read `_` becomes
    `%5F`. No segment is `.` or `..`, and none is empty.
    """
    return "/".join(
        (_path_field(scope.tenant), _path_field(scope.principal), _path_field(scope.conversation_id))
    )
