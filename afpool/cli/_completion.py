"""`afpool completion`: a script for a shell, made of the descriptions of the commands.

A script is a table of words for each command and a small function around it. Only these are asked for while
somebody types: names of servers (`afpool completion names`, which prints nothing where there is no
configuration), of processes that have a console, and of what the console of the only one shows (`processes`,
`tables`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ._commands import AFPOOL, EVERYWHERE
from ._completion_shells import bash, fish, zsh

if TYPE_CHECKING:
    import argparse

    from ._output import Output

_MADE: Final = {"bash": bash, "zsh": zsh, "fish": fish}


def run(options: argparse.Namespace, out: Output) -> int:
    """Print a completion script."""
    if options.shell == "names":
        return _names(out)
    if options.shell in {"processes", "tables"}:
        return _running(options.shell, out)
    out.data(_MADE[options.shell](AFPOOL, EVERYWHERE).rstrip("\n"))
    return 0


def _names(out: Output) -> int:
    """Print the names of the servers of the usual configuration; a shell is told nothing else."""
    from .._base.errors import AfpoolError
    from ..config import load_config

    try:
        config = load_config()
    except AfpoolError:
        return 0
    for name in config.servers:
        out.data(name)
    return 0


def _running(what: str, out: Output) -> int:
    """Print what there is of the processes that run; a shell is told nothing else."""
    from .console._offered import processes, tables

    for name in processes() if what == "processes" else tables():
        out.data(name)
    return 0
