"""Many commands in one go: each in a fork of a process that has imported all of the project.

    python -m tests.cli.many FOLDER < COMMANDS

COMMANDS is a list of `[words, surroundings, stdin]`; what is printed is a list of `[code, stdout, stderr]`.
Each fork has the surroundings, the folder and the standard streams of its command, and nothing else of
anybody's: what is left out is half a second of imports for each.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import sys
import tempfile
import traceback
from typing import IO, Any

import afpool


def answer(words: list[str], surroundings: dict[str, str], stdin: str) -> tuple[int, str, str]:
    """Run one command; gives how it ended and what it said."""
    with (
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as told,
        tempfile.TemporaryFile() as asked,
    ):
        asked.write(stdin.encode())
        asked.seek(0)
        process = os.fork()
        if process == 0:
            play(words, surroundings, (asked, said, told))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        said.seek(0)
        told.seek(0)
        return code, said.read().decode(), told.read().decode()


def play(words: list[str], surroundings: dict[str, str], streams: tuple[IO[bytes], ...]) -> None:
    """In the fork: be that command; does not come back."""
    code: Any = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        os.environ.clear()
        os.environ.update(surroundings)
        sys.argv = ["afpool", *words]
        try:
            code = importlib.import_module("afpool.cli").main()
        except SystemExit as leaving:
            code = leaving.code
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main(folder: str) -> None:
    commands = json.load(sys.stdin)
    os.chdir(folder)
    for module in pkgutil.walk_packages(afpool.__path__, "afpool."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # adapters without their framework
                importlib.import_module(module.name)
    print(json.dumps([answer(*command) for command in commands]))


if __name__ == "__main__":
    main(*sys.argv[1:])
