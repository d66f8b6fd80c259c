"""The tables of conformance in `docs/conformance.md`: written from a run, never by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.conformance.reading import Row

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
BEGIN: Final = '<!-- written by `make conformance ARGS="--write-docs"` -->'
END: Final = "<!-- end of what was written -->"
SERVER_BEGIN: Final = '<!-- the server side, written by `make conformance ARGS="--write-docs"` -->'


def between(begin: str) -> re.Pattern[str]:
    """What stands after the line `begin`, up to its end."""
    return re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(END)})", re.DOTALL)


def cell(row: Row | None) -> str:
    """Passed and failed checks of one scenario; empty where the set does not have it."""
    if row is None:
        return ""
    if row.outcome is None:
        return "not run"
    return f"{row.passed} / {row.failed}"


def build(played: Mapping[str, Iterable[Row]]) -> str:
    """Write the table in Markdown."""
    columns = {revision: {row.scenario: row for row in rows} for revision, rows in played.items()}
    scenarios = list(dict.fromkeys(name for column in columns.values() for name in column))
    lines = [f"| scenario | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for name in scenarios:
        rows = [column.get(name) for column in columns.values()]
        note = "" if any(row is not None and row.required for row in rows) else " (listed)"
        note += "".join(dict.fromkeys(f": {row.apart}" for row in rows if row is not None and row.apart))
        lines.append(f"| `{name}`{note} | {' | '.join(map(cell, rows))} |")
    totals = [
        f"{sum(row.passed for row in column.values() if row.required and not row.apart)} / "
        f"{sum(row.failed for row in column.values() if row.required and not row.apart)}"
        for column in columns.values()
    ]
    lines.append(f"| **all that is required** | {' | '.join(totals)} |")
    return "\n".join(lines) + "\n"


def write(played: Mapping[str, Iterable[Row]], page: Path = PAGE, begin: str = BEGIN) -> None:
    """Put the table into the page, after the line `begin`.

    Raises:
        ValueError: The page has no place for it.
    """
    text, count = between(begin).subn(lambda _: f"\n{build(played)}\n", page.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{page} has {count} places for the table, not one")
    page.write_text(text, encoding="utf-8")


def written(page: Path = PAGE, begin: str = BEGIN) -> dict[str, dict[str, str]]:
    """Read the table from the page: requirement set to scenario to cell."""
    found = between(begin).search(page.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{page} has no place for the table")
    lines = [
        [part.strip() for part in line.strip("|").split("|")]
        for line in found[0].splitlines()
        if line.startswith("|")
    ]
    head, _rule, *body = lines
    return {
        revision: {
            row[0].split("`")[1]: row[number] for row in body if row[number] and row[0].startswith("`")
        }
        for number, revision in enumerate(head[1:], 1)
    }
