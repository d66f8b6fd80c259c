"""`main`: one command from its words to its exit code.

Rules:

* 0 done; 1 it failed; 2 the command line or the configuration cannot be used; 130 interrupted.
* An error is one line (of a configuration, one for each mistake): what, where, what to do. Never a value that
  was given, never a secret, and a traceback only where `--debug` asks for it.
* With `--json` a failure is a document too, where none was written before.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ._failures import FAILED, INTERRUPTED, WRONG_USAGE, Failure, Usage
from ._output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words; those of this process where absent.

    Returns:
        The exit code.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    out = Output(json="--json" in words, color=_color(words))
    out.debug = "--debug" in words
    try:
        try:
            code = _run(words, out)
        except Exception as error:  # noqa: BLE001 -- told as one line
            code = _failed(error, out)
        except BaseExceptionGroup as group:
            if group.split(KeyboardInterrupt)[0] is None:
                raise
            raise KeyboardInterrupt from None
        out.end()
    except KeyboardInterrupt:
        _let_go(out, reader=False)
        return INTERRUPTED
    except BrokenPipeError:
        _let_go(out, reader=True)
        return FAILED
    return code


def _color(words: Sequence[str]) -> str | None:
    """What `--color` says, before the words are understood: also that is told in colour, or not."""
    for number, word in enumerate(words):
        if word.startswith("--color="):
            return word.partition("=")[2]
        if word == "--color" and number + 1 < len(words):
            return words[number + 1]
    return None


def _run(words: Sequence[str], out: Output) -> int:
    from ._parsing import parse

    parsed = parse(words)
    if parsed.wants != "run":
        from ._help import render

        text = render(parsed.way, out.width, lambda title: out.paint(title, "bold"))
        if parsed.wants == "missing":
            out.say(text.rstrip("\n"))
            return WRONG_USAGE
        out.data(text.rstrip("\n"))
        return 0
    out.json = parsed.options.json
    parsed.options.called = parsed.called
    from importlib import import_module

    code: int = import_module(f".{parsed.command.home}", __package__).run(parsed.options, out)
    return code


def _failed(error: Exception, out: Output) -> int:
    if isinstance(error, BrokenPipeError):
        raise error
    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        return _failed(error.exceptions[0], out)
    if out.debug and not isinstance(error, Usage):
        import traceback

        out.say("".join(traceback.format_exception(error)).rstrip("\n"))
    code, told = _told(error)
    if out.json and not out.wrote:
        out.document({"error": told})
    for line in str(told["message"]).splitlines():
        out.error(line)
    if "hint" in told:
        out.say(f"try: {told['hint']}")
    return code


def _told(error: Exception) -> tuple[int, dict[str, Any]]:
    """Say what a failure is to whoever called: exit code, and what is written of it."""
    if isinstance(error, Usage):
        hint = {"hint": error.hint} if error.hint else {}
        return WRONG_USAGE, {"code": "usage", "message": error.what, **hint}
    if isinstance(error, Failure):
        return FAILED, {"code": "failed", "message": str(error)}
    from .._base.errors import AfpoolError

    if isinstance(error, AfpoolError):
        if error.code == "config-invalid":
            return WRONG_USAGE, {"code": error.code, "message": error.message}
        return FAILED, {
            "code": error.code,
            "delivery": error.delivery,
            "message": f"{error.code}: {error.message}",
        }
    if isinstance(error, ImportError) and "pip install" in str(error):
        return FAILED, {"code": "not-installed", "message": str(error)}
    # the text of another's exception may hold anything
    message = f"it failed ({type(error).__name__}); --debug shows where"
    return FAILED, {"code": "failed", "message": message}


def _let_go(out: Output, *, reader: bool) -> None:
    """Have nothing written any more, and nothing said about it, when the process ends."""
    if not reader and out.watched:
        out.say("")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError, AttributeError):
            continue
