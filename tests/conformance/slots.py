"""A few drivers at once: the suite starts all of a set together, and a small machine is then late throughout.

A driver waits here before it imports anything of weight. Its scenario's server waits for the first request
without a limit, so that what is measured there begins when the driver does.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO, Final

FOLDER: Final = "AFPOOL_CONFORMANCE_SLOTS"
"""Environment variable: a folder of files, one per driver that may run."""
WAIT: Final = 0.05  # seconds between two looks

_held: list[IO[bytes]] = []


def make(folder: Path, number: int) -> None:
    """Make the folder with this many slots in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        (folder / str(index)).touch()


def take() -> None:
    """Wait for a slot and keep it until this process ends; nothing happens where there are none."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    files = [path.open("rb") for path in sorted(Path(folder).iterdir())]
    while files:
        for file in files:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _held.append(file)
            return
        time.sleep(WAIT)
