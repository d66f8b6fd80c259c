"""How this program is called from where it runs, for commands that are printed to be copied."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def afpool_command() -> str:
    """Give what starts `afpool` here: the name alone where the shell finds this very one."""
    script = Path(sys.executable).parent / "afpool"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m afpool"
    found = shutil.which("afpool")
    if found is not None and os.path.realpath(found) == os.path.realpath(script):
        return "afpool"
    here = os.path.relpath(script)
    return shlex.quote(here if not here.startswith("..") else str(script))
