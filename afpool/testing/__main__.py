"""Entry of `python -m afpool.testing`, and of the same file run by its path.

Run by path, which needs neither an installation nor a working directory, the package is found first.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # The interpreter put this directory there; its modules must not be importable by their bare names.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from afpool.testing._command import main

if __name__ == "__main__":
    sys.exit(main())
