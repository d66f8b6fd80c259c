"""`afpool token revoke`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ._failures import Usage
from ._tokens_of import token_file, told

if TYPE_CHECKING:
    import argparse

    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """Revoke a token."""
    if options.token.startswith("afp_"):
        raise Usage("name a token by its id or its name, not by itself", "afpool token list")
    entry = token_file(options, out).revoke(options.token)
    if out.json:
        out.document(told(entry, time.time()))
    else:
        out.say(f"{entry.id} is revoked")
    return 0
