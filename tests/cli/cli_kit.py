"""Commands as people start them: in a process of their own, with nothing of this one's surroundings."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHIN = 60.0
AFPOOL = [sys.executable, "-m", "afpool"]


def surroundings(folder, **more):
    usual = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "AFPOOL_CONSOLE_DIRECTORY": str(folder / "c"),
        "LANG": "C.UTF-8",
    }
    return {name: value for name, value in (usual | more).items() if value is not None}


def run(folder, *words, stdin="", **env):
    return subprocess.run(
        [*AFPOOL, *words],
        cwd=folder, env=surroundings(folder, **env), input=stdin, capture_output=True, text=True,
        timeout=WITHIN, check=False,
    )  # fmt: skip


def run_all(folder, *commands):
    """Run many, each `(words, more of its surroundings)`; gives what each did, as `run` does."""
    asked = [
        {"words": words, "surroundings": surroundings(folder, **more), "folder": str(folder), "stdin": ""}
        for words, more in commands
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.forks"],
        cwd=ROOT, env=surroundings(folder), input="".join(json.dumps(each) + "\n" for each in asked),
        capture_output=True, text=True, timeout=WITHIN + 2 * len(commands), check=True,
    )  # fmt: skip
    return [
        subprocess.CompletedProcess(words, *json.loads(line))
        for (words, _), line in zip(commands, done.stdout.splitlines(), strict=True)
    ]


def document(done):
    """The one JSON document on stdout."""
    return json.loads(done.stdout)


def on_terminal(folder, *words, columns=80, ends=True, **env):
    """Run with stdout and stderr on one terminal; what stood on it, and the exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*AFPOOL, *words],
        cwd=folder, env=surroundings(folder, **{"TERM": "xterm", "COLUMNS": str(columns), **env}),
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    until = time.monotonic() + WITHIN
    while time.monotonic() < until:
        if select.select([ours], [], [], 1.0)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            seen += piece
    os.close(ours)
    return seen.decode(), process.wait(WITHIN)


class Running:
    """A command that goes on; its lines as they come."""

    def __init__(self, folder, *words, command=None, **env):
        self.process = subprocess.Popen(
            [*(command or AFPOOL), *words],
            cwd=folder, env=surroundings(folder, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said = []
        self.errors = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.said), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, lines):
        for line in stream:
            with self._news:
                lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            lines.append(None)
            self._news.notify_all()

    def line(self, wanted, *, errors=False):
        """Wait for a line that the function likes, and give it."""
        lines = self.errors if errors else self.said
        with self._news:
            found = self._news.wait_for(
                lambda: None in lines or any(line is not None and wanted(line) for line in lines), WITHIN
            )
            assert found, (self.said, self.errors)
            liked = [line for line in lines if line is not None and wanted(line)]
            assert liked, (self.said, self.errors)
            return liked[0]

    def end(self, number=None):
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(WITHIN)
        for reader in self._readers:
            reader.join(WITHIN)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.process.poll() is None:
            self.process.kill()
        self.end()


def with_server(folder, name="desk", script=None, more=""):
    """A configuration with one scripted server on stdio."""
    words = ["-m", "afpool.testing", "stdio"]
    if script is not None:
        words += ["--script", json.dumps(script)]
    path = folder / "afpool.toml"
    text = path.read_text() if path.exists() else ""
    path.write_text(
        f"{text}[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(words)}\n"
        f'env = {{ PYTHONPATH = "{ROOT}" }}\n{more}\n'
    )
    return path
