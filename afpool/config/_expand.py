"""`${VAR}`, `${VAR:-default}`, `${env:VAR}` and `${identity.field}`, in one pass over a text.

Rules:

* What a variable gives is taken as it is and never looked through again, so that nothing can go in circles. A
  value that holds `${…}` itself was meant to be: it is refused, and so is one placeholder inside another.
* The default stands for a variable that is unset or empty. One that is unset and has no default is an error.
* `$${` is a literal `${`; a dollar sign before anything else is one.
* A refusal names the variable, never its value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .._base.identity import FIELDS
from .._base.secret import Secret
from ._problems import nearest, shown_name
from ._written import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MARK: Final = "${"
MOST: Final = 64
"""Placeholders in one text."""
LONGEST: Final = 256 * 1024
"""Characters that one text may come to."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HELP: Final = (
    "what is understood is ${VAR}, ${VAR:-default}, ${env:VAR} and ${identity.tenant}; $${ is a literal ${"
)


class BadText(Exception):
    """Why a text cannot be expanded; holds no value."""

    def __init__(self, what: str, nearest: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.nearest = nearest


def expand(
    text: str, env: Mapping[str, str], special: Callable[[str], tuple[str, str] | None] | None = None
) -> Written:
    """Expand one text.

    Args:
        text: As it stands in the file.
        env: The variables.
        special: Asked for names of other kinds (`input:token`, `workspaceFolder`): gives the value and the
            variable that it came from (empty where from none), or `None` where it knows no such name.

    Raises:
        BadText: A placeholder that cannot be understood, or a variable that is not set.
    """
    pieces: list[Secret | str] = []
    variables: list[str] = []
    literal: list[str] = []
    length = at = count = 0
    while True:
        mark = text.find(MARK, at)
        if mark < 0:
            literal.append(text[at:])
            break
        if mark > at and text[mark - 1] == "$":
            literal += [text[at : mark - 1], MARK]
            at = mark + 2
            continue
        literal.append(text[at:mark])
        inside, at = _inside(text, mark)
        count += 1
        if count > MOST:
            raise BadText(f"the text holds more than {MOST} placeholders")
        field = _identity_field(inside)
        if field is not None:
            if any(literal):
                pieces.append(Secret("".join(literal)))
            literal = []
            pieces.append(field)
            continue
        value, variable = _value(inside, env, special)
        if variable:
            variables.append(variable)
        literal.append(value)
        length += len(value)
        if length > LONGEST:
            raise BadText(f"the text comes to more than {LONGEST} characters")
    if any(literal):
        pieces.append(Secret("".join(literal)))
    return Written(tuple(pieces), Secret(text), tuple(dict.fromkeys(variables)))


def _inside(text: str, mark: int) -> tuple[str, int]:
    end = text.find("}", mark)
    if end < 0:
        raise BadText(f"a placeholder has no closing brace; {_HELP}")
    inside = text[mark + 2 : end]
    if MARK in inside:
        raise BadText("a placeholder stands inside another one, which is not expanded; give the value itself")
    return inside, end + 1


def _identity_field(inside: str) -> str | None:
    kind, dot, field = inside.partition(".")
    if kind != "identity" or not dot:
        return None
    if field in FIELDS:
        return field
    plain = field.partition(":")[0]
    if plain in FIELDS:
        raise BadText(
            f"${{identity.{plain}}} takes no default: whoever has no such field would be taken for another"
        )
    raise BadText(f"an identity has {', '.join(FIELDS)} and no other field", nearest(field, FIELDS))


def _value(
    inside: str, env: Mapping[str, str], special: Callable[[str], tuple[str, str] | None] | None
) -> tuple[str, str]:
    name, default_mark, default = inside.removeprefix("env:").partition(":-")
    if _NAME.fullmatch(name) is None:
        found = special(inside) if special is not None else None
        if found is None:
            raise BadText(f"a placeholder cannot be understood; {_HELP}")
        return found
    if special is not None and not default_mark and not inside.startswith("env:"):
        found = special(inside)
        if found is not None:
            return found
    value = env.get(name)
    if default_mark and not value:
        return default, ""
    if value is None:
        raise BadText(
            f"the variable {shown_name(name)} is not set; set it, or write ${{{shown_name(name)}:-default}}",
            nearest(name, (known for known in env if known.isupper())),
        )
    if MARK in value and "}" in value[value.index(MARK) :]:
        raise BadText(
            f"the value of the variable {shown_name(name)} holds ${{…}} itself, which is not expanded again"
        )
    return value, name
