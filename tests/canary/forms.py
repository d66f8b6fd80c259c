"""Canaries, and who finds them: words that stand nowhere else, in every usual spelling.

A canary is a secret of the run. Each has what spellings differ in: a slash, signs, letters of both cases. A
`Finder` looks for all of them in a text, as they are and in the forms of `TEXTS`, the table that
`docs/host-filled.md` is held to.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import html
import json
import re
import zlib
from collections import Counter
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus

import attrs

from tests.tools.test_host_filled_nowhere import COVERED, TEXTS

UNCOVERED: Final = [form for form in TEXTS if form not in COVERED]
PLAIN: Final = "as it is"
HALF: Final = 9
SHARED: Final = 4


def canary(name: str) -> str:
    """The secret of a name."""
    digits = hashlib.sha256(name.encode()).hexdigest()
    return f"Q{digits[:8]}/Zz=&{digits[8:16]}q"


CONNECTION: Final = ("bearer", "api_key", "basic", "headers", "ticket")
"""Kinds of credential; each authenticates one server, and fills an argument of another one."""

NAMES: Final = (
    *(f"connection {kind}" for kind in CONNECTION),
    *(f"fill {kind}" for kind in CONNECTION),
    "connection headers, the second",
    "fill headers, the second",
    "fill from the environment",
    "fill from a file",
    "asked for by a tool",
    "oauth tokens",
    "oauth client secret",
    "consent address",
    "secret of checkpoints",
    "header of a plan",
    "query of a plan",
    "environment of a child",
    "provider's words",
    "provider's own refusal",
    "stored by a tool",
    "signer's words",
    "signature",
    "redacted by key",
    "redacted by pattern",
    "redacted by field",
    "redacted deep",
    "console read",
    "console operate",
    "metrics token",
    "typed token",
    "typed",
    "made up",
    "baggage",
    "tenant",
    "principal",
    "conversation",
)
IDENTITIES: Final = frozenset({"tenant", "principal", "conversation"})
"""Whom calls are made for: no secrets, and shown outside of the process only where they are asked for."""
CANARIES: Final = {name: canary(name) for name in NAMES}


@attrs.frozen
class Found:
    """One canary that was found.

    Attributes:
        name: Which.
        form: How it was written: one of `TEXTS`, or the first of them for all that can be undone.
        place: Where.
    """

    name: str
    form: str
    place: str


def in_base64(data: bytes) -> set[str]:
    """What base64 makes of bytes behind any others, without the edges that depend on their neighbours."""
    coded = {base64.b64encode(b"x" * number + data).decode()[4:-4] for number in range(3)}
    return coded | {one.replace("+", "-").replace("/", "_") for one in coded}


def spellings(secret: str) -> dict[str, set[str]]:
    """The forms of a secret: what a reader could turn back without knowing it, and what not."""
    digest = hashlib.sha256(secret.encode())
    return {
        PLAIN: {
            secret, quote(secret, safe=""), quote(secret), quote_plus(secret), html.escape(secret),
            secret.replace("/", "\\/"), json.dumps(secret)[1:-1], repr(secret)[1:-1],
        },
        "reversed": {secret[::-1], json.dumps(secret[::-1].replace("/", "\\/"))[1:-1]},
        "cut in two": {secret[:HALF], secret[HALF:]},
        "in another case": {secret.swapcase(), secret.lower(), secret.upper()},
        "base64 in a text": in_base64(secret.encode()) | in_base64(secret.encode("utf-16-le")),
        "hexadecimal": {secret.encode().hex(), secret.encode().hex().upper(), secret.encode().hex(" ")},
        "hashed": {digest.hexdigest(), base64.b64encode(digest.digest()).decode()},
        "compressed": {base64.b64encode(zlib.compress(secret.encode())).decode()},
        "rot13": {codecs.encode(secret, "rot13")},
    }  # fmt: skip


Needle: TypeAlias = tuple[str, str, str, str]


def by_what_they_share(needles: list[Needle]) -> list[tuple[str, list[Needle]]]:
    """Needles in groups, each with letters that all of it hold: where those are not, none of the group is.

    All canaries have the same middle, so that most texts are through with a few looks instead of thousands.
    """
    pieces = [{text[at : at + SHARED] for at in range(len(text) - SHARED + 1)} for _, _, text, _ in needles]
    counted = Counter(piece for held in pieces for piece in held)
    groups: list[tuple[str, list[Needle]]] = []
    left = set(range(len(needles)))
    while left:
        shared, count = counted.most_common(1)[0] if counted else ("", 0)
        if count < 2:
            break
        group = [number for number in left if shared in pieces[number]]
        groups.append((shared, [needles[number] for number in group]))
        left.difference_update(group)
        for number in group:
            counted.subtract(pieces[number])
    groups += [(needles[number][2], [needles[number]]) for number in left]
    assert sum(len(group) for _, group in groups) == len(needles)
    return groups


class Finder:
    """Finds canaries in texts.

    Args:
        canaries: Name to secret.
    """

    def __init__(self, canaries: dict[str, str] | None = None) -> None:
        told = CANARIES if canaries is None else canaries
        self._needles = by_what_they_share(
            [
                (name, form, needle, secret)
                for name, secret in told.items()
                for form, needles in spellings(secret).items()
                for needle in sorted(needles)
            ]
        )

    def __call__(self, text: str) -> set[tuple[str, str]]:
        """Which canaries a text holds, and in which form."""
        found: set[tuple[str, str]] = set()
        for one in {text, undone(text)}:
            for shared, needles in self._needles:
                if shared not in one:
                    continue
                for name, form, needle, secret in needles:
                    if needle in one and (form != "cut in two" or needle in one.replace(secret, "")):
                        found.add((name, form))
        # whoever is found whole is no finding as a half
        return {(name, form) for name, form in found if form != "cut in two" or (name, PLAIN) not in found}


def undone(text: str) -> str:
    """A text without escapes of JSON, of Python and of HTML."""
    if "\\" not in text and "&" not in text:
        return text
    while "\\\\" in text:
        text = text.replace("\\\\", "\\")
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
    return html.unescape(text.replace("\\/", "/").replace('\\"', '"'))
