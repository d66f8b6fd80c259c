"""The tables of `docs/real-servers.md`: written from a run, read back to see whether something got worse.

A cell is good (`ok`, `listed`, `listening`), half good (a failure that the next call got over), or neither;
which protocol version was agreed on is better the newer it is. What is neither better nor worse may differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from tests.interop.catalogue import ROOT
from tests.interop.examining import LISTED, OK, VERSIONS, Facts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PAGE: Final = ROOT / "docs" / "real-servers.md"
BEGIN: Final = "<!-- written by `make servers` -->"
END: Final = "<!-- end of what was written -->"
_BETWEEN = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)

# Column of the first table to field.
COLUMNS: Final = {
    "version": "package",
    "negotiated": "negotiated",
    "era": "era",
    "tools": "tools",
    "called": "called",
    "session": "session",
    "list changes": "changes",
    "after a restart": "restart",
}
GOOD: Final = frozenset({OK, LISTED, "listening"})
HALF: Final = f", then {OK}"

Key = tuple[str, str]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _head(names: list[str]) -> str:
    return _line(names) + _line(["---"] * len(names))


def build(facts: Mapping[Key, Facts]) -> str:
    """Write both tables in Markdown."""
    first = _head(["server", "over", *COLUMNS])
    second = _head(["server", "over", *VERSIONS])
    for key, each in facts.items():
        first += _line([*key, *(str(getattr(each, field)) for field in COLUMNS.values())])
        second += _line([*key, *(each.pinned.get(version, "") for version in VERSIONS)])
    return f"\n{first}\nWith a protocol version pinned (`Plan(protocol_version=...)`):\n\n{second}\n"


def read(page: Path = PAGE) -> dict[Key, Facts]:
    """Read both tables from the page.

    Raises:
        ValueError: The page has no place for them, or they are not as `build` writes them.
    """
    found = _BETWEEN.search(page.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{page} has no place for the tables")
    tables: list[list[list[str]]] = []
    inside = False
    for line in found[0].splitlines():
        if line.startswith("|"):
            if not inside:
                tables.append([])
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        inside = line.startswith("|")
    if not tables:
        return {}
    heads = [["server", "over", *COLUMNS], ["server", "over", *VERSIONS]]
    if [table[0] for table in tables] != heads:
        raise ValueError(f"{page} has tables of other columns: remove them and run `make servers` anew")
    pins = {(row[0], row[1]): dict(zip(VERSIONS, row[2:], strict=True)) for row in tables[1][2:]}
    return {
        (row[0], row[1]): Facts(
            **dict(zip(COLUMNS.values(), row[2:], strict=True)), pinned=pins[row[0], row[1]]
        )
        for row in tables[0][2:]
    }


def write(facts: Mapping[Key, Facts], page: Path = PAGE) -> None:
    """Put both tables into the page.

    Raises:
        ValueError: The page has no place for them.
    """
    text, count = _BETWEEN.subn(lambda _: build(facts), page.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{page} has {count} places for the tables, not one")
    page.write_text(text, encoding="utf-8")


@attrs.frozen
class Difference:
    """One cell that is not as it was."""

    key: Key
    column: str
    was: str
    now: str

    @property
    def worse(self) -> bool:
        """Whether something that worked does not any more, or does so less well."""
        if self.column == "negotiated":
            known = [version in VERSIONS for version in (self.was, self.now)]
            return known[0] and (not known[1] or self.now < self.was)
        return _rank(self.now) < _rank(self.was)

    def __str__(self) -> str:
        return f"{' over '.join(self.key)}, {self.column}: was {self.was!r}, is {self.now!r}"


def _rank(cell: str) -> int:
    return 2 if cell in GOOD else 1 if cell.endswith(HALF) else 0


def differences(was: Mapping[Key, Facts], now: Mapping[Key, Facts]) -> list[Difference]:
    """What differs in the rows that both have."""
    found = []
    for key, facts in now.items():
        if key not in was:
            continue
        before = was[key]
        pairs = [(name, getattr(before, field), getattr(facts, field)) for name, field in COLUMNS.items()]
        pairs += [
            (f"{version} pinned", before.pinned[version], facts.pinned[version]) for version in VERSIONS
        ]
        found += [Difference(key, name, old, new) for name, old, new in pairs if old != new]
    return found
