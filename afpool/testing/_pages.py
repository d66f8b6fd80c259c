"""Lists in pages: where one ends, what its cursor is called, and what is said to a cursor that is none.

How each is misspelled is said by `Advertise.page_size` and `Advertise.cursors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._envelope import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._envelope import Message
    from ._exchange import Advertise
    from ._ledger import Arrival


def page_of(member: str, listed: Sequence[Message], arrival: Arrival, advertise: Advertise) -> Message:
    """The page that a request for a list asks for, by its cursor.

    Raises:
        RpcError: There is no such page, and the server minds.
    """
    size, mode = advertise.page_size, advertise.cursors
    if size is None:
        return {member: listed}
    pages = [listed[start : start + size] for start in range(0, len(listed), size)] or [[]]
    names = ["" if mode == "empty-string" and page == 1 else f"page-{page}" for page in range(len(pages))]
    cursor = arrival.params.get("cursor")
    page = 0
    if cursor is not None and mode != "loop":
        if cursor in names:
            page = names.index(cursor)
        elif mode != "lenient":
            raise RpcError(INVALID_PARAMS, "Invalid cursor")
    result: Message = {member: pages[page]}
    if mode == "loop":
        result["nextCursor"] = "again"
    elif page + 1 < len(pages):
        result["nextCursor"] = names[page + 1]
    return result
