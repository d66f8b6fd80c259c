"""Run the quick tests on every newer Python of this machine: `python3 scripts/nightly.py [VERSION ...]`.

Interpreters are looked for on PATH and among the versions that pyenv holds. No registry ships CPython,
so nothing is downloaded; versions that were not found are named at the end. Without any, the exit code is 3.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from prepare import CACHE, LAYERS, ROOT, PrepareError, Venv, install_layer, say

VERSIONS = ("3.12", "3.13", "3.14")
QUICK = ["-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", "not peer", "-q"]


def answers(python: str | Path, version: str) -> bool:
    """Whether this file is a Python of that version that starts; a shim for an inactive version does not."""
    shown = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.returncode == 0 and shown.stdout.strip() == version


def find(version: str) -> str | None:
    """Find a Python of this version, or None."""
    candidates: list[str | Path] = []
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        candidates.append(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    return next((str(path) for path in candidates if answers(path, version)), None)


def main() -> int:
    """Run from the command line."""
    wanted = sys.argv[1:] or VERSIONS
    found = {version: find(version) for version in wanted}
    failed: list[str] = []
    for version, python in found.items():
        if python is None:
            continue
        say(f"Python {version}: {python}")
        venv = Venv(CACHE / "nightly" / version, python)
        try:
            install_layer(LAYERS[1], venv)
        except PrepareError as error:
            say(str(error))
            failed.append(version)
            continue
        if subprocess.run([venv.interpreter, *QUICK], cwd=ROOT, check=False).returncode:
            failed.append(version)
    missing = [version for version, python in found.items() if python is None]
    ran = [version for version in wanted if version not in missing]
    print(f"ran on: {', '.join(ran) or 'none'}; failed: {', '.join(failed) or 'none'}; ", end="")
    print(f"not found on this machine: {', '.join(missing) or 'none'}")
    if not ran:
        return 3
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
