"""What Tab offers: words of this side, and what the console says its last word may become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._failures import Failure
from ._link import Refused
from ._words import HERE, watched

if TYPE_CHECKING:
    from ._link import Link

_PATIENCE: Final = 1.0


def candidates(line: str, link: Link) -> list[str]:
    """Give what the last word of a line may become, whole words each.

    Args:
        line: Up to the cursor.
        link: Asked, for a second at most; whatever goes wrong offers nothing.
    """
    line = line.lstrip()
    again = watched(line) if " " in line else None
    if again is not None and not line.endswith("watch "):
        line = again[1] + (" " if again[1] and line.endswith(" ") else "")
    first = line.partition(" ")[0]
    word = line.rpartition(" ")[2]
    here: list[str] = []
    if " " not in line:
        here = [name for name in (*HERE, "help") if name.startswith(word) and again is None]
    elif first == "help" and line.count(" ") == 1:
        here = [name for name in HERE if name.startswith(word)]
    return sorted({*here, *_asked(line, link)})


def _asked(line: str, link: Link) -> list[str]:
    try:
        found: dict[str, Any] = link.ask(["complete"], {"line": line}, within=_PATIENCE)
    except (Failure, Refused):
        return []
    words = found.get("words", found.get("lines"))
    if not isinstance(words, list):
        return []
    return [word for word in words if isinstance(word, str) and word.isprintable() and " " not in word]
