"""How a static token is spelled: made to be found where it has leaked, and to be told from any other text.

`afp_` + 10 characters of id + `_` + 43 characters of secret + 6 of checksum, all of base62. So

* one pattern finds it in logs and repositories (`SCANNER`), and the checksum tells a token from a text that
  merely looks like one, without asking anybody;
* the id is no secret: lists, logs and revocations name a token by it;
* 43 characters drawn at random are 256 bits, which nobody guesses. That is why one round of SHA-256 is what
  is kept of it: slow hashes are for what people make up. They would add nothing here, and give whoever sends
  garbage a way to keep us busy. A key for the hash (HMAC) would lie beside the file it protects.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from typing import Final

from .._base.secret import Secret

PREFIX: Final = "afp_"
SCANNER: Final = r"\bafp_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}\b"
_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID: Final = 10
_SECRET: Final = 43
_CHECK: Final = 6
_TOKEN: Final = re.compile(r"afp_([0-9A-Za-z]{10})_[0-9A-Za-z]{49}")
_ID_FORM: Final = re.compile(r"[0-9A-Za-z]{10}")


def _draw(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))


def _checksum(text: str) -> str:
    rest = zlib.crc32(text.encode())
    digits = ""
    for _ in range(_CHECK):
        rest, digit = divmod(rest, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def draw_token() -> tuple[str, Secret]:
    """Draw a token: its id, and the whole of it."""
    number = _draw(_ID)
    return number, _drawn(number)


def _drawn(number: str) -> Secret:
    body = f"{PREFIX}{number}_{_draw(_SECRET)}"
    return Secret(body + _checksum(body))


def id_of(token: Secret) -> str | None:
    """The id of a well-formed token, its checksum included; `None` for any other text."""
    found = _TOKEN.fullmatch(token.reveal())
    if found is None or _checksum(found[0][:-_CHECK]) != found[0][-_CHECK:]:
        return None
    return found[1]


def is_id(text: str) -> bool:
    """Whether a text may be a token's id."""
    return _ID_FORM.fullmatch(text) is not None


def digest_of(token: Secret) -> str:
    """What is kept of a token: SHA-256 over all of it, in hexadecimal digits."""
    return hashlib.sha256(token.reveal().encode()).hexdigest()
