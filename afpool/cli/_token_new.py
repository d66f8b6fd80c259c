"""`afpool token new`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ._failures import Usage
from ._reading import moment, who
from ._tokens_of import token_file, told, written

if TYPE_CHECKING:
    import argparse

    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """Make a token and print it, this once."""
    identity = who(options)
    if identity.tenant is None and identity.principal is None:
        raise Usage("a token is for somebody: give --tenant, --principal or both")
    now = time.time()
    file = token_file(options, out)
    made = file.new(identity, options.name, moment(options.expires, "--expires", now))
    if out.json:
        out.document({"token": made.token.reveal(), **told(made.entry, now), "file": str(file.path)})
        return 0
    out.data(made.token.reveal())
    until = written(made.entry.expires) or "it is revoked"
    out.say(f"{made.entry.id}: good until {until}; {file.path} keeps a digest, so this is shown once")
    return 0
