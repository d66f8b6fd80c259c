"""`afpool version`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:  # noqa: ARG001 -- as every command
    """Print the version."""
    from importlib import metadata

    version = metadata.version("afpool")
    if out.json:
        found = ".".join(map(str, sys.version_info[:3]))
        out.document({"afpool": version, "python": found, "platform": sys.platform})
    else:
        out.data(version)
    return 0
