"""`afpool token list`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ._tokens_of import state_of, token_file, told, written

if TYPE_CHECKING:
    import argparse

    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """List tokens."""
    now = time.time()
    file = token_file(options, out)
    entries = file.list()
    if out.json:
        out.document([told(entry, now) for entry in entries])
        return 0
    if not entries:
        out.say(f"{file.path} holds no token")
        return 0
    rows = [
        (
            entry.id,
            state_of(entry, now),
            entry.identity.tenant or "-",
            entry.identity.principal or "-",
            entry.identity.conversation_id or "-",
            written(entry.expires) or "never",
            entry.name,
        )
        for entry in entries
    ]
    out.table(
        ("id", "state", "tenant", "principal", "conversation", "expires", "name"),
        rows,
        lambda row, column: None if column != 1 else "green" if rows[row][1] == "good" else "red",
    )
    return 0
