"""Filters and orders of tables: `server=desk waiting>3 state=!idle older=10s tenant=acme sort=-waiting`.

* Text: equal to one of the values that commas part, where `*` stands for anything; `!` in front: to none.
  Keys and ids may be cut short.
* Numbers: equal, or `>`, `<`, `>=`, `<=`, `!`; durations as `10s`, sizes as `4k`, `2M`; `a..b` is from a on,
  and less than b. Instants are seconds since 1970: a client reads the clock of whoever looks.
* A value that a row does not have (`None`) is found by `none` only.
* Identities are equal or not; see the rules of `_registry`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ._ask import CommandError, as_seconds
from ._parse import unknown
from ._spec import COMMON, IDENTITY, filters_named

if TYPE_CHECKING:
    from ._ask import Ask
    from ._spec import Column, Table

Test: TypeAlias = Callable[[Any], bool]

_SIGNS: Final = (">=", "<=", "!", ">", "<")
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "!": operator.ne,
    "": operator.eq,
}
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kKmMgG]?)[bB]?", re.ASCII)
_SIZES: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_FIELDS: Final = {"tenant": "tenant", "principal": "principal", "conversation": "conversation_id"}
_YES: Final = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_LONGEST: Final = 256


def filters_of(table: Table, ask: Ask) -> Callable[[tuple[Any, ...]], bool]:
    """What of a table's rows is to be shown.

    Raises:
        CommandError: An option is no column and no other filter of this table, or its value cannot be read.
    """
    places = {column.name: at for at, column in enumerate(table.columns)}
    tests: list[tuple[int, Test]] = []
    width = len(table.columns)
    for name, value in ask.options.items():
        if name in places:
            column = table.columns[places[name]]
            tests.append((places[name], test_of(column, value, ask)))
        elif name in IDENTITY and table.identities:
            tests.append((width, _of_identity(name, value)))
        elif name == "older" and table.older is not None:
            least = ask.seconds("older", 0.0, most=1e9)
            tests.append((places[table.older], _at_least(least)))
        elif name in table.options or (name in COMMON and name != "older"):
            if name == "reveal" and not table.identities:
                raise CommandError("bad-option", f"the rows of {table.name} belong to no identity")
        else:
            what = f"filter of {table.name}"
            raise unknown("bad-option", what, name, filters_named(table), tries=f"help {table.name}")
    if not tests:
        return lambda _row: True
    if len(tests) == 1:
        place, only = tests[0]
        return lambda row: only(row[place])
    return lambda row: all(test(row[at]) for at, test in tests)


def test_of(column: Column, value: str, ask: Ask) -> Test:
    """What one column's value has to be like.

    Raises:
        CommandError: The filter cannot be read.
    """
    sign = next((sign for sign in _SIGNS if value.startswith(sign)), "")
    text = value[len(sign) :]
    if text == "none" and sign in ("", "!"):
        return (lambda found: found is None) if not sign else (lambda found: found is not None)
    if column.kind in ("text", "key", "id"):
        if sign not in ("", "!") or not text or len(text) > _LONGEST:
            raise CommandError(
                "bad-option", f"{column.name} is compared with words, such as {column.name}=word"
            )
        wanted = _words(column, text)
        return wanted if not sign else (lambda found: not wanted(found))
    if column.kind == "flag":
        flag = _YES.get(text.casefold())
        if flag is None or sign not in ("", "!"):
            raise CommandError("bad-option", f"{column.name} is yes or no", [ask.line(f"{column.name}=yes")])
        flag = flag is not bool(sign)
        return lambda found: bool(found) is flag
    first, between, last = text.partition("..")
    number = _number(column, first)
    if between and sign in ("", "!"):
        limit = _number(column, last)
        if number is not None and limit is not None:
            return _within(number, limit, outside=bool(sign))
    if number is None or between:
        raise CommandError(
            "bad-option", f"{column.name} is compared with {_form(column)}", [ask.line(f"{column.name}>1")]
        )
    compare = _COMPARE[sign]
    return lambda found: found is not None and compare(found, number)


def order_of(table: Table, ask: Ask) -> tuple[Callable[[tuple[Any, ...]], Any] | None, bool]:
    """What a table's rows are sorted by, and whether backwards; rows without a value come last.

    Raises:
        CommandError: There is no such column.
    """
    wanted = ask.options.get("sort", table.sort)
    if wanted is None:
        return None, False
    reverse = wanted.startswith("-")
    name = wanted.lstrip("-+") if wanted else ""
    places = {column.name: at for at, column in enumerate(table.columns)}
    at = places.get(name)
    if at is None:
        raise unknown("bad-option", f"column of {table.name}", name, places, tries=ask.line("sort={}"))
    textual = table.columns[at].kind in ("text", "key", "id")

    def order(row: tuple[Any, ...]) -> tuple[bool, Any]:
        found = row[at]
        if found is None:
            return not reverse, "" if textual else 0
        return reverse, str(found) if textual else found

    return order, reverse


def _words(column: Column, text: str) -> Test:
    wanted = [word for word in text.split(",") if word]
    exact = {word for word in wanted if "*" not in word}
    patterns = [re.compile(_pattern(word)) for word in wanted if "*" in word]
    cut = tuple(exact) if column.kind == "key" else ()

    def test(found: Any) -> bool:
        if found is None:
            return False
        known = found if isinstance(found, str) else str(found)
        if known in exact or (cut and known.startswith(cut)):
            return True
        return any(pattern.fullmatch(known) is not None for pattern in patterns)

    return test


def _pattern(word: str) -> str:
    if word.count("*") > 4:
        raise CommandError("bad-option", "a pattern has at most four *")
    # only `*` means something: `?` and `[` are letters like others
    return translate(re.sub(r"([?\[])", r"[\1]", word))


def _of_identity(name: str, value: str) -> Test:
    field = _FIELDS[name]
    if not value or value[0] in "!<>":
        raise CommandError("bad-option", f"{name} is given in full, as {name}=…; or {name}=none")
    if value == "none":
        return lambda who: who is not None and getattr(who, field) is None
    return lambda who: who is not None and getattr(who, field) == value


def _within(least: float, limit: float, *, outside: bool) -> Test:
    return lambda found: found is not None and (least <= found < limit) is not outside


def _at_least(least: float) -> Test:
    return lambda found: found is not None and found >= least


def _number(column: Column, text: str) -> float | None:
    if column.kind == "seconds":
        return as_seconds(text)
    match = _SIZE.fullmatch(text)
    if match is None or (match[2] and column.kind != "bytes"):
        return None
    return float(match[1]) * _SIZES[match[2].lower()]


def _form(column: Column) -> str:
    if column.kind == "seconds":
        return f"a time, such as {column.name}>10s"
    if column.kind == "unix":
        return f"a time of the clock, such as {column.name}=14:03, or with seconds since 1970"
    return (
        f"a size, such as {column.name}>4k"
        if column.kind == "bytes"
        else f"a number, such as {column.name}>3"
    )
