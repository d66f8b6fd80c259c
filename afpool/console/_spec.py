"""What a table and a command are: data, made by whoever has something to show or to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from ._stream import Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from ._ask import Ask, Level

Kind: TypeAlias = Literal[
    "text", "key", "id", "count", "seconds", "unix", "bytes", "flag", "rate", "percent"
]  # fmt: skip

Result: TypeAlias = dict[str, Any] | Stream

IDENTITY: Final = ("tenant", "principal", "conversation")
COMMON: Final = ("columns", "limit", "older", "reveal", "sort")


@attrs.frozen
class Column:
    """One column.

    Attributes:
        name: Lower case, as filters and `sort` name it.
        kind: How its values are meant: `seconds` is a duration, `unix` an instant, `key` a digest, `percent`
            0 to 100. A value may be `None` in any of them.
        help: What it says, in a few words.
    """

    name: str
    kind: Kind = "text"
    help: str = ""


@attrs.frozen(kw_only=True)
class Table:
    """Something that `show NAME` shows.

    Attributes:
        name: As it is asked for.
        help: One line.
        columns: Of each row.
        rows: Makes the rows: tuples of plain values, one for each column; where `identities` is set, and one
            more behind them, whose row it is (an `Identity` or `None`). Asynchronous where much has to be
            gone through before there is a first row; `None` instead of a row is a step that found none, and
            whoever goes through more than a few things that are no rows says so for each.
        identities: Whether rows belong to identities: `tenant=` and others select then, and `reveal` shows.
        older: The column of kind `seconds` that `older=10s` is about.
        sort: The order without `sort=`, such as `-waiting`; `None` as the rows come.
        options: Further options that `rows` reads itself.
    """

    name: str
    help: str
    columns: tuple[Column, ...]
    rows: Callable[[Ask], Iterable[tuple[Any, ...] | None] | AsyncIterator[tuple[Any, ...] | None]]
    identities: bool = False
    older: str | None = None
    sort: str | None = None
    options: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Command:
    """Something that is done when it is asked for.

    Attributes:
        words: What it begins with, such as `("show", "actor")`; the longest that fits counts.
        usage: How it is typed.
        help: One line.
        run: Does it. Gives a result as a plain object with a `kind`, or a `Stream`; raises `CommandError`.
        level: Who may.
        options: Names of options that it reads; anything else is refused.
        takes: How many words may follow, at least and at most.
        complete: Gives what its next word may be, for as far as it is typed; may be asynchronous.
        any_option: It judges options itself.
    """

    words: tuple[str, ...]
    usage: str
    help: str
    run: Callable[[Ask], Result | Awaitable[Result]]
    level: Level = "read"
    options: tuple[str, ...] = ()
    takes: tuple[int, int] = (0, 0)
    complete: Callable[[str, Sequence[str]], Iterable[str] | Awaitable[Iterable[str]]] | None = None
    any_option: bool = False


def filters_named(table: Table) -> list[str]:
    """Names of what a table is filtered, sorted and cut by."""
    names = [column.name for column in table.columns]
    names += [name for name in COMMON if name not in ("older", "reveal")]
    names += ["older"] if table.older is not None else []
    names += [*IDENTITY, "reveal"] if table.identities else []
    return [*names, *table.options]
