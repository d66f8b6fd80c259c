"""What there is at the prompt: what the console names in its hello, and what is done on this side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._help import rows_of
from .._text import one_line
from ._words import HERE

if TYPE_CHECKING:
    from ._look import Look

_WIDTH: Final = 100
_FOR_PROGRAMS: Final = frozenset({"complete"})


def help_lines(hello: dict[str, Any], look: Look) -> list[str]:
    """Write what there is.

    Args:
        hello: Of the console.
        look: Who looks at it.
    """
    width = _WIDTH if look.width is None else look.width
    commands = [
        (one_line(str(one.get("usage", ""))), one_line(str(one.get("help", ""))))
        for one in _objects(hello.get("commands"))
        if " ".join(map(str, one.get("words") or [])) not in _FOR_PROGRAMS
    ]
    tables = [
        (one_line(str(one.get("name", ""))), one_line(str(one.get("help", ""))))
        for one in _objects(hello.get("tables"))
    ]
    lines = []
    for title, rows in (
        ("commands", sorted(commands)),
        ("tables of `show`", tables),
        ("here", list(HERE.values())),
    ):
        if rows:
            lines += [look.paint(f"{title}:", "bold"), *rows_of(rows, width), ""]
    lines.append("`help COMMAND` and `help TABLE` say more; --json behind a line writes its rows as JSON.")
    return lines


def help_here(word: str) -> list[str] | None:
    """Write what is known on this side of one of its own commands; `None` for others."""
    if word not in HERE:
        return None
    usage, what = HERE[word]
    return [usage, f"    {what}"]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
