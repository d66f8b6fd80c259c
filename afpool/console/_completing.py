"""What the last word of a line may become: commands, tables, filters, their values, keys and ids."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from ._ask import CommandError, make_ask
from ._parse import LONGEST
from ._slices import closing
from ._spec import filters_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._ask import Asker
    from ._registry import Registry
    from ._spec import Table

VALUES: Final = 1000


async def completed(registry: Registry, line: str, asker: Asker, most: int) -> list[str]:
    """Give whole last words, in order. Never raises.

    A checkpoint where a key has to be looked for among many.
    """
    if len(line) > LONGEST:
        return []
    before, _, word = line.rpartition(" ")
    options = {name for name in before.split() if "=" in name}
    words = [name for name in before.split() if "=" not in name and not name.startswith("--")]
    try:
        found = await _candidates(registry, words, word, options, asker)
    except CommandError:
        return []
    return sorted({name for name in found if name.startswith(word)})[:most]


async def _candidates(
    registry: Registry, words: list[str], word: str, options: set[str], asker: Asker
) -> Iterable[str]:
    found: set[str] = {
        names[len(words)]
        for names, command in registry.commands.items()
        if len(names) > len(words)
        and list(names[: len(words)]) == words
        and (command.level == "read" or asker.level == "operate")
    }
    if not words:
        return found
    command, rest = registry.find(words)
    if command.level == "operate" and asker.level != "operate":
        return found
    if command.complete is not None and "=" not in word and len(rest) < command.takes[1]:
        more = command.complete(word, rest)
        found |= set(await more if inspect.isawaitable(more) else more)
    names = command.options
    if command.words == ("show",) and rest:
        table = registry.tables.get(rest[0])
        if table is not None:
            name, sign, _ = word.partition("=")
            if sign:
                return await _values(registry, table, name, asker)
            names = tuple(filters_named(table))
    given = {option.partition("=")[0].lstrip("-") for option in options}
    return found | {f"{name}=" for name in names if name not in given}


async def _values(registry: Registry, table: Table, name: str, asker: Asker) -> Iterable[str]:
    if name in ("sort", "columns"):
        signs = ("", "-") if name == "sort" else ("",)
        return [f"{name}={sign}{column.name}" for column in table.columns for sign in signs]
    at = next((at for at, column in enumerate(table.columns) if column.name == name), None)
    if at is None or table.columns[at].kind not in ("text", "key", "id", "flag"):
        return []
    ask = make_ask(("show",), (table.name,), {}, asker, registry.seams)
    values: set[str] = set()
    made = table.rows(ask)
    async with closing(made):
        async for row in ask.slices.each(made):
            if row is not None and isinstance(row[at], str) and " " not in row[at]:
                values.add(f"{name}={row[at]}")
            if len(values) >= VALUES:
                break
    return values
