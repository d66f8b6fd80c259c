"""Where a field of an identity may stand in what a server is reached by, and what of its value may go there.

A value of an identity is a caller's word, often a stranger's. So:

* A field never decides *what* is reached: not the command, not scheme, host or port of a URL, not a name of a
  header or a variable. It stands for one value among others, and cannot become two.
* One field in a header, an argument or a variable: of two beside each other two people could read the same. A
  URL takes several, each percent-encoded, with a sign between them that an encoded value cannot hold.
* What does not fit its place is refused for that identity (`PlanFailed`), before anything is opened. Nothing
  is left out, cut or replaced: the tenant that a server sees is the caller's, or there is no call.
* Whoever lacks a field is refused. A default would be somebody.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from .._base.header_rules import value_problem
from .._base.secret import Secret
from ._checks import url_problem
from ._problems import shown_name

if TYPE_CHECKING:
    from ._written import Written

# One word: no blank, no quote, nothing that a shell, a path or a list would read as more than a letter. Its
# first letter is no dash, so that it is no option, and no dot, so that it is no folder above.
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+~=:-]{0,255}")
# What a header may hold alone: visible, and no sign by which one value becomes a list or gets parts.
_HEADER: Final = re.compile(r"[!#-+\x2d-:<-\[\]-~]{1,1024}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SEPARATOR: Final = re.compile(r"[^A-Za-z0-9._~%-]")

DECIDES_WHAT_RUNS: Final = frozenset(
    {
        "PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP",
        "NODE_OPTIONS", "NODE_PATH", "BASH_ENV", "ENV", "SHELLOPTS", "IFS", "PERL5LIB", "PERL5OPT", "RUBYLIB",
        "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_SSH_COMMAND",
    }
)  # fmt: skip
"""Variables that a program is found or changed by; no field of an identity stands in them."""

_STAND_IN: Final = "x"


class Misfit(Exception):
    """Why a value of an identity cannot stand where it should; names the field, never the value."""


def _one(text: Written) -> str | None:
    return (
        "holds several fields of the identity, so that two people could read the same"
        if len(text.fields) > 1
        else None
    )


def _whole(text: Written) -> bool:
    return len(text.pieces) == 1


def _sample(text: Written) -> str:
    return "".join(piece.reveal() if isinstance(piece, Secret) else _STAND_IN for piece in text.pieces)


# -- headers


def header_judge(text: Written) -> str | None:
    """Judge the value of a header."""
    problem = value_problem(_sample(text))
    return f"the value {problem}" if problem is not None else _one(text)


def header_value(text: Written, identity: object) -> str:
    """Give the value of a header for an identity."""
    look = _HEADER if _whole(text) else _WORD
    return _filled(text, identity, lambda value: value if look.fullmatch(value) else None)


# -- a process


def argument_judge(text: Written) -> str | None:
    """Judge an argument of a command."""
    return _one(text)


def word_value(text: Written, identity: object) -> str:
    """Give an argument, or the path of a folder, for an identity."""
    return _filled(text, identity, lambda value: value if _WORD.fullmatch(value) else None)


def variable_judge(text: Written) -> str | None:
    """Judge a value of the environment."""
    return _one(text)


def variable_value(text: Written, identity: object) -> str:
    """Give a value of the environment for an identity: as it is where it stands alone."""
    if _whole(text):
        return _filled(text, identity, lambda value: None if _CONTROL.search(value) else value)
    return word_value(text, identity)


def variable_name_problem(name: str, text: Written) -> str | None:
    """Judge a variable by its name."""
    if text.fields and (name in DECIDES_WHAT_RUNS or name.startswith(("LD_", "DYLD_"))):
        return f"{shown_name(name)} decides what runs, so no field of an identity stands in it"
    return None


# -- a URL

SCHEMES: Final = ("http", "https", "ws", "wss")


def url_judge(text: Written) -> str | None:
    """Judge the URL of a server: its fields stand behind the host, apart from each other."""
    sample = _sample(text)
    problem = url_problem(sample, SCHEMES)
    if problem is not None:
        return f"the URL {problem}"
    begun = ""
    previous = None
    for piece in text.pieces:
        if isinstance(piece, Secret):
            previous = piece.reveal()
            begun += previous
            continue
        if not re.match(r"[a-z]+://[^/?#]+[/?]", begun):
            return "a field of an identity cannot decide which host is asked; it stands in path or query"
        if previous is None or (_STAND_IN in begun and not _SEPARATOR.search(previous)):
            return "two fields of an identity stand side by side; put a sign such as / between them"
        begun += _STAND_IN
        previous = None
    return None


def url_value(text: Written, identity: object) -> str:
    """Give the URL for an identity, its fields percent-encoded.

    A value in the path holds no slash and no dot alone: many servers decode before they look for folders.
    """
    parts: list[str] = []
    for piece in text.pieces:
        if isinstance(piece, Secret):
            parts.append(piece.reveal())
            continue
        in_path = "?" not in "".join(parts)
        value = _field(identity, piece)
        if _CONTROL.search(value) or len(value) > 1024:
            raise Misfit(f"its {piece} holds what no URL takes")
        if in_path and (set(value) & {"/", "\\"} or set(value) <= {"."}):
            raise Misfit(f"its {piece} holds what a path would read as a folder")
        parts.append(quote(value, safe=""))
    return "".join(parts)


# -- what they have in common


def _field(identity: object, name: str) -> str:
    value = getattr(identity, name)
    if not isinstance(value, str) or not value:
        raise Misfit(f"it names no {name}")
    return value


def _filled(text: Written, identity: object, fits: object) -> str:
    parts: list[str] = []
    for piece in text.pieces:
        if isinstance(piece, Secret):
            parts.append(piece.reveal())
            continue
        value = fits(_field(identity, piece))  # type: ignore[operator]
        if value is None:
            raise Misfit(f"its {piece} holds signs that cannot stand there")
        parts.append(value)
    return "".join(parts)
