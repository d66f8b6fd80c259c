"""Why a command cannot go on, as one line for people, and the exit codes."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130


class Usage(Exception):
    """The command line cannot be understood, or names what is not there: exit 2.

    No text of it holds a value that was given, which may be a secret in the wrong place.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class Failure(Exception):
    """It could not be done: exit 1."""
