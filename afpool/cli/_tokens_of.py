"""What the commands of `afpool token` share: which file, and how an entry is written."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from ._failures import Usage
from ._reading import configured

if TYPE_CHECKING:
    import argparse

    from ..serve import TokenEntry, TokenFile
    from ._output import Output


def token_file(options: argparse.Namespace, out: Output) -> TokenFile:
    """Give the file that is meant.

    Raises:
        Usage: Neither the command line nor the configuration names one.
    """
    from ..serve import TokenFile

    if options.file is not None:
        return TokenFile(options.file)
    config, _ = configured(options, out)
    tokens = config.serve.identity.tokens
    if tokens is None:
        raise Usage("no token file is named: give --file, or set serve.identity.tokens.file")
    return TokenFile(tokens.file)


def state_of(entry: TokenEntry, now: float) -> str:
    """Say whether a token is good."""
    if entry.revoked is not None:
        return "revoked"
    return "good" if entry.is_good(now) else "expired"


def told(entry: TokenEntry, now: float) -> dict[str, Any]:
    """Give an entry for programs."""
    return {
        "id": entry.id,
        "name": entry.name,
        "state": state_of(entry, now),
        "tenant": entry.identity.tenant,
        "principal": entry.identity.principal,
        "conversation": entry.identity.conversation_id,
        "created": written(entry.created),
        "expires": written(entry.expires),
        "revoked": written(entry.revoked),
    }


def written(moment: float | None) -> str | None:
    """Write a moment as people and programs read it."""
    if moment is None:
        return None
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
