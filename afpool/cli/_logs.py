"""What is logged on stderr, and how."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from ._text import harmless

if TYPE_CHECKING:
    from ._output import Output

_WORDS: Final = {"WARNING": "warning", "ERROR": "error", "CRITICAL": "error"}


class _Words(logging.Formatter):
    """As the other words of a command."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out

    def format(self, record: logging.LogRecord) -> str:
        word = _WORDS.get(record.levelname, record.levelname.lower())
        color = {"warning": "yellow", "error": "red"}.get(word, "dim")
        text = f"{self._out.paint(f'{word}:', color, err=True)} {harmless(record.getMessage())}"
        return text + _traceback(self, record, self._out.debug)


class _Lines(logging.Formatter):
    """Time, level, who, what; in the journal, which has a time of its own, its level instead."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out
        self._journal = "JOURNAL_STREAM" in os.environ

    def format(self, record: logging.LogRecord) -> str:
        text = harmless(record.getMessage()).replace("\n", "\n  ") + _traceback(self, record, debug=True)
        if self._journal:
            level = 7 if record.levelno < logging.INFO else {20: 6, 30: 4, 40: 3}.get(record.levelno, 2)
            return "\n".join(f"<{level}>{line}" for line in f"{record.name}: {text}".splitlines())
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{moment}.{int(record.msecs):03d}Z {record.levelname.lower():<7} {record.name}: {text}"


class _Documents(logging.Formatter):
    """One JSON document on a line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord, debug: bool) -> str:
    if not record.exc_info or not debug:
        return ""
    return "\n" + formatter.formatException(record.exc_info)


class _Handler(logging.StreamHandler[Any]):
    """Writes to stderr; whoever reads it and has gone is no reason for a word."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- as logging calls it
        """Let it go."""


def log_words(out: Output, quiet: bool = False) -> None:
    """Log as the other words of a command that runs once; warnings and worse, unless `quiet` or `--debug`."""
    _install(_Words(out), logging.DEBUG if out.debug else logging.CRITICAL if quiet else logging.WARNING)


def log_lines(out: Output, level: str | None, form: str | None) -> None:
    """Log as a service does."""
    number = logging.getLevelNamesMapping()[(level or ("debug" if out.debug else "info")).upper()]
    _install(_Documents() if form == "json" else _Lines(out), number)


def _install(formatter: logging.Formatter, level: int) -> None:
    handler = _Handler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for before in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("afpool").setLevel(level)
