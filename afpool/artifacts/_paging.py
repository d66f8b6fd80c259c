"""Pages: where the next one starts, and how long one is.

A cursor names a position (time and ref), no row and no count: a page costs the same wherever it starts, and
while artifacts come and go every one that stays is listed exactly once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ._types import ArtifactPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._minting import Ticket

LONGEST_PAGE: Final = 500
_CURSOR: Final = re.compile(r"([0-9a-f]{1,14})-(art_[A-Za-z0-9]{22})")


def cursor_after(created: int, ref: str) -> str:
    """Give the cursor of the page that follows this row. `created` is in microseconds since 1970."""
    return f"{created:x}-{ref}"


def read_cursor(cursor: object) -> tuple[int, str] | None:
    """Give the position that a cursor names; `None` for what no page gave, which reads as the start."""
    if not isinstance(cursor, str) or len(cursor) > 64:
        return None
    found = _CURSOR.fullmatch(str.__str__(cursor))
    return None if found is None else (int(found[1], 16), found[2])


def page_size(limit: object) -> int:
    """Give how many tickets a page holds at most.

    Raises:
        TypeError: `limit` is no whole number.
    """
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"the limit of a page must be a whole number, not {type(limit).__name__}")
    return max(1, min(limit, LONGEST_PAGE))


def page_of(tickets: Sequence[Ticket], size: int) -> ArtifactPage:
    """Make a page of up to `size + 1` tickets; the one too many says that there are more."""
    shown = tickets[:size]
    more = cursor_after(shown[-1].created, shown[-1].ref) if len(tickets) > size else None
    return ArtifactPage(tuple(ticket.meta() for ticket in shown), more)
