"""The command line. Imports what a command needs when it runs, so that `afpool --help` is quick."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="afpool", description="The tool runtime of a multi-tenant agent.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "demo", help="several tenants, two real server processes, every refusal for a real reason"
    )
    commands.add_parser("version", help="print the version")
    options = parser.parse_args(argv)
    if options.command == "version":
        from importlib import metadata

        sys.stdout.write(metadata.version("afpool") + "\n")
        return 0
    from .demo import run

    try:
        return run()
    except KeyboardInterrupt:
        return 130
