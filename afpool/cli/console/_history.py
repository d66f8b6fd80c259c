"""What was typed before: kept in the user's state folder, for nobody else, bounded, and without secrets.

Each line is added when it is typed, so that two consoles at once keep the lines of both. A line that begins
with a blank is not kept, nor one in which something looks like a secret; an edit that the terminal still
remembers is gone with the process.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..._base.secret import Secret

KEPT: Final = 1_000
"""Lines; the file is cut to them when it has grown to twice as many."""

_LONGEST: Final = 4_096
_SECRET: Final = re.compile(
    r"(?i)(token|secret|passw|credential|api.?key|authorization|bearer)\S*\s*[=:]|\bbearer\s"
    r"|\bafp_|\beyJ[A-Za-z0-9_-]{8}|\b(?:sk|ghp|xox[a-z])[-_][A-Za-z0-9-]{8}|://\S*@"
)


def history_file() -> Path:
    """Give the file, whether it exists or not."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "afpool" / "console-history"


class History:
    """The lines of earlier consoles, and of this one. Where the file cannot be used, none are kept.

    Args:
        path: The file.
        token: What proves who asks: no line with it is kept, whatever it looks like.
    """

    def __init__(self, path: Path, token: Secret | None = None) -> None:
        self._path = path
        self._token = token
        self._last = ""

    def load(self) -> list[str]:
        """Give the lines, oldest first; a file that has grown too long is cut."""
        try:
            file = self._open(os.O_RDONLY)
        except OSError:
            return []
        with os.fdopen(file, encoding="utf-8", errors="replace") as reader:
            lines = [line.rstrip("\n") for line in reader]
        lines = [line for line in lines if line and line.isprintable()]
        if len(lines) > 2 * KEPT:
            with suppress(OSError):
                self._replace(lines[-KEPT:])
        self._last = lines[-1] if lines else ""
        return lines[-KEPT:]

    def add(self, line: str) -> bool:
        """Keep a line, and say whether it is one to keep."""
        if not may_be_kept(line) or line == self._last or self._holds_token(line):
            return False
        self._last = line
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._open(os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                data = f"{line}\n".encode("utf-8", "replace")
                written = os.write(file, data)
                size = os.fstat(file).st_size
                if written < len(data) and os.lseek(file, 0, os.SEEK_CUR) == size:
                    os.ftruncate(file, size - written)  # the disk is full: half a line is none
            finally:
                os.close(file)
        return True

    def _holds_token(self, line: str) -> bool:
        return self._token is not None and self._token.reveal() in line

    def _open(self, flags: int) -> int:
        """Open the file, made for its owner alone; no link of somebody's is followed."""
        file = os.open(self._path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if os.fstat(file).st_mode & 0o077:
            os.fchmod(file, 0o600)
        return file

    def _replace(self, lines: list[str]) -> None:
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "w", encoding="utf-8", errors="replace") as writer:
                writer.writelines(f"{line}\n" for line in lines)
            fresh.replace(self._path)
        except BaseException:
            with suppress(OSError):
                fresh.unlink()
            raise


def may_be_kept(line: str) -> bool:
    """Whether a line may stand in a file: printable, bounded, and nothing in it looks like a secret."""
    return (
        bool(line.strip())
        and not line.startswith(" ")
        and len(line) <= _LONGEST
        and line.isprintable()
        and _SECRET.search(line) is None
    )
