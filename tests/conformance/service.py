"""`afpool serve` before the fixture's server, both as processes of their own, for the time of a block.

Everybody is one anonymous identity, as the suite brings no token. The server behind speaks both eras.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
READY_WITHIN: Final = 30.0
ENDED_WITHIN: Final = 10.0

CONFIG: Final = """\
[servers.fixture]
url = "{url}"

[serve]
bind = "127.0.0.1:0"
drain = "1s"
reload = false

[serve.identity.anonymous]
tenant = "conformance"
principal = "suite"
"""


class NotReadyError(Exception):
    """A process did not get ready; the message says which, and where it wrote."""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run both; gives the address of the service.

    Args:
        folder: Where their logs and the configuration go; it is there.

    Raises:
        NotReadyError: One of them did not start.
    """
    fixture = [sys.executable, str(Path(__file__).with_name("fixture.py")), "both"]
    with started(fixture, folder / "fixture.log", "ready ") as upstream:
        config = folder / "afpool.toml"
        config.write_text(CONFIG.format(url=upstream), encoding="utf-8")
        service = [sys.executable, "-m", "afpool", "serve", "--config", str(config)]
        with started(service, folder / "service.log", "serving ") as url:
            yield url


@contextlib.contextmanager
def started(
    command: list[str], log: Path, word: str, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a command until the block ends: it is told to by SIGTERM and by the end of its stdin.

    Args:
        command: The command.
        log: Where its stderr goes.
        word: What the line on its stdout begins with that says it is ready; the rest of it is given.
        environment: Variables; by default it can import what is in this checkout.

    Raises:
        NotReadyError: It did not get ready.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with log.open("wb") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            cwd=ROOT,
            env={**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": path, **(environment or {})},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = _line_after(process.stdout, word)
        if said is None:
            raise NotReadyError(f"{' '.join(command[1:4])} did not get ready; see {log}")
        yield said
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(ENDED_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _line_after(stdout: IO[bytes], word: str) -> str | None:
    seen = b""
    ends = time.monotonic() + READY_WITHIN
    while select.select([stdout], [], [], max(0.0, ends - time.monotonic()))[0]:
        part = os.read(stdout.fileno(), 4096)
        if not part:
            break
        seen += part
        for line in seen.decode(errors="replace").splitlines(keepends=True):
            if line.startswith(word) and line.endswith("\n"):
                return line.removeprefix(word).strip()
    return None
