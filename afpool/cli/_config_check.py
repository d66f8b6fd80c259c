"""`afpool config check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._failures import DONE, WRONG_USAGE
from ._reading import configured

if TYPE_CHECKING:
    import argparse

    from ..config import Problem
    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """Say all that is wrong with a configuration."""
    from ..config import ConfigError

    try:
        config, _ = configured(options, out)
    except ConfigError as error:
        if out.json:
            out.document({"ok": False, "problems": [_told(each) for each in error.problems], "warnings": []})
        for problem in error.problems:
            out.error(str(problem))
        return WRONG_USAGE
    if out.json:
        out.document(
            {
                "ok": True,
                "problems": [],
                "warnings": [_told(each) for each in config.warnings],
                "servers": list(config.servers),
                "files": [str(path) for path in config.source],
            }
        )
        return DONE
    files = ", ".join(str(path) for path in config.source) or "no file: all defaults"
    many = len(config.enabled)
    out.say(f"{out.paint('ok', 'green', err=True)}: {many} server{'s' if many != 1 else ''}, from {files}")
    return DONE


def _told(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "key": problem.key,
        "what": problem.what,
        "nearest": problem.nearest,
    }
