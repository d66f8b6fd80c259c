"""A console in a process of its own, and a page that notices everything it must not do."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
AXE = ROOT / ".cache" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
READY_WITHIN = 60.0
WAIT = 20_000  # ms, how long a page may take to show what is waited for
LOOPBACK = {"127.0.0.1", "localhost"}
READ, OPERATE = "read-token", "operate-token"

# Tasks that hold the page longer than 50 ms, by the browser's own account.
WATCH_LONG = """
window.long = [];
new PerformanceObserver((list) => window.long.push(...list.getEntries().map((entry) => entry.duration)))
  .observe({ type: "longtask" });
"""


class Console:
    """A process with a console, started as a child; its first line says where it is."""

    def __init__(self, command: list[str], read: Callable[[str], str | None]) -> None:
        self.command = command
        self._read_line = read
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it; again after `kill`, at the same address where the command says so."""
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{HERE}"}
        self.process = subprocess.Popen(
            self.command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        settled = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(settled,), daemon=True)
        self._reader.start()
        if not settled.wait(READY_WITHIN) or not self.url:
            self.kill()
            pytest.fail(f"{self.command[1]} did not get ready: {self.lines[-20:]}", pytrace=False)

    def _read(self, settled: threading.Event) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            url = self._read_line(line)
            if url is not None:
                self.url = url
                settled.set()
        settled.set()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill it at once, with all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@attrs.define
class Tokens:
    """What the real console was started with."""

    read: str = ""
    operate: str = ""


def is_here(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"data", "blob", "about"} or parts.hostname in LOOPBACK


class Watched:
    """A page, and what it did that nobody wants."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.left: list[str] = []
        self.sockets: list[str] = []
        page.on("console", lambda said: said.type in {"error", "warning"} and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda asked: is_here(asked.url) or self.left.append(asked.url))
        page.on("websocket", lambda socket: self.sockets.append(socket.url))

    def sign_in(self, url: str, token: str) -> None:
        """Open the page and give the token, as a person does."""
        self.page.goto(url)
        self.page.get_by_label("Token", exact=True).fill(token)
        self.page.keyboard.press("Enter")
        self.page.locator(".state.live").wait_for()

    def at(self, where: str) -> None:
        """Go to a view and wait for it."""
        self.page.evaluate("(where) => { location.hash = where; }", where)
        self.page.locator("main#content .view").wait_for()

    def overflow(self) -> tuple[int, int]:
        wide = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        scrolled, shown = self.page.evaluate(wide)
        return scrolled, shown

    def axe(self) -> list[str]:
        """What axe-core finds that is serious or critical, as lines for people."""
        self.page.evaluate(AXE.read_text("utf-8"))
        options = {"resultTypes": ["violations"]}
        found: dict[str, Any] = self.page.evaluate("(options) => axe.run(document, options)", options)
        return [
            f"{one['id']} ({one['impact']}): {node['html'][:160]} {node['failureSummary']}"
            for one in found["violations"]
            if one["impact"] in {"serious", "critical"}
            for node in one["nodes"]
        ]
