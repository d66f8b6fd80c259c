"""`afpool`, which finds the consoles in its own `XDG_RUNTIME_DIR`, and none of other tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from afpool._base import console_place


def only_here(environ=None):
    return (Path(os.environ["XDG_RUNTIME_DIR"]) / "afpool",)


if __name__ == "__main__":
    console_place.runtime_directories = only_here
    from afpool.cli import main

    sys.exit(main())
