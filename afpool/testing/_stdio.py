"""The stdio front in a process of its own.

* A scripted exit is `os._exit`: a crash runs no clean-up and waits for no task.
* The child ends at the end of stdin, or with its parent where a script makes it ignore that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import trio

from ._child_front import ChildFront, check_stdio_actions
from ._envelope import encode
from ._script import StdioScript, build_engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._engine import Engine


class _StdioServer(ChildFront):
    def __init__(self, script: StdioScript, engine: Engine) -> None:
        stdin, stdout = trio.lowlevel.FdStream(os.dup(0)), trio.lowlevel.FdStream(os.dup(1))
        super().__init__(script, engine, stdin, stdout)
        self._parent = os.getppid()

    async def linger(self) -> None:
        # Nothing wakes a process when its parent dies, so this looks.
        while self._script.ignore_eof and os.getppid() == self._parent:  # noqa: ASYNC110 - see above
            await trio.sleep(0.2)

    def exit(self, code: int) -> NoReturn:
        # Not sys.exit: a crash runs no clean-up and waits for no task.
        os._exit(code)


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


async def _serve(script: StdioScript, engine: Engine) -> None:
    await _StdioServer(script, engine).run()


def run_stdio(script: StdioScript, log: str | None) -> None:
    """Serve on stdin and stdout until stdin ends; blocks.

    Args:
        script: What to be.
        log: File to append to, one JSON object per line, each in one write.
    """
    engine = build_engine(script)
    check_stdio_actions(engine)
    if script.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if log is not None:
        descriptor = _open_log(log)

        def sink(entry: Mapping[str, Any]) -> None:
            os.write(descriptor, encode(entry) + b"\n")

        sink({"process": {"role": "server", "pid": os.getpid()}})
        engine.ledger.sink = sink
    if script.fork_child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        if engine.ledger.sink is not None:
            engine.ledger.sink({"process": {"role": "child", "pid": child.pid}})
    left = script.stderr_flood
    while left > 0:
        left -= os.write(2, b"x" * (min(left, 4096) - 1) + b"\n")
    trio.run(_serve, script, engine)
