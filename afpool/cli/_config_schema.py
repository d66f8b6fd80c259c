"""`afpool config schema`: as it is shipped, which a test holds equal to what the reader goes by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:  # noqa: ARG001 -- as every command
    """Print the JSON Schema of afpool.toml."""
    shipped = Path(__file__).parent.parent / "config" / "afpool.schema.json"
    out.data(shipped.read_text(encoding="utf-8").rstrip("\n"))
    return 0
