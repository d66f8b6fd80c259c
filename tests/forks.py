"""Programs and commands in forks of one process that has imported the project: the imports are left out.

    python -W error -m tests.forks

One line of JSON on stdin is `{"folder", "surroundings", "stdin", "words"}` for a command of `afpool`, or with
`"program"` instead of `"words"` for a file that is run as a script; each is answered by a line
`[code, stdout, stderr]`. A fork has the surroundings, the folder and the standard streams that it was given,
and nothing else of anybody's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import runpy
import sys
import tempfile
import traceback
from typing import IO, Any

import afpool


def answer(asked: dict[str, Any]) -> tuple[int, str, str]:
    """Run one; gives how it ended and what it said."""
    with (
        tempfile.TemporaryFile() as heard,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as told,
    ):
        heard.write(asked["stdin"].encode())
        heard.seek(0)
        process = os.fork()
        if process == 0:
            play(asked, (heard, said, told))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        said.seek(0)
        told.seek(0)
        return code, said.read().decode(), told.read().decode()


def play(asked: dict[str, Any], streams: tuple[IO[bytes], ...]) -> None:
    """In the fork: be that; does not come back."""
    code: Any = 0
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        os.environ.clear()
        os.environ.update(asked["surroundings"])
        os.chdir(asked["folder"])
        try:
            if "program" in asked:
                sys.argv = [asked["program"]]
                runpy.run_path(asked["program"], run_name="__main__")
            else:
                sys.argv = ["afpool", *asked["words"]]
                code = importlib.import_module("afpool.cli").main()
        except SystemExit as leaving:
            code = leaving.code
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main() -> None:
    for module in pkgutil.walk_packages(afpool.__path__, "afpool."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # adapters without their framework
                importlib.import_module(module.name)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
