"""Chromium, consoles, and pages that are watched.

Where Chromium or what npm brings is missing the tests are skipped, unless AFPOOL_REQUIRE_PEERS=1 (which
`make test` sets): then they fail.

Playwright's loop lives in this thread for as long as it is started, and tests of asyncio could not run beside
it; so it is started for one module at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.browser_kit import AXE, CHROMIUM, HERE, WAIT, WATCH_LONG, Console, Tokens, Watched, is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.peer)


def missing(what: str) -> None:
    message = f"{what} is not installed: run `make test` or `make browser`"
    if os.environ.get("AFPOOL_REQUIRE_PEERS") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium, Debian's own."""
    if not Path(CHROMIUM).exists():
        missing("chromium")
    if not AXE.exists():
        missing("axe-core")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT)
    # no proxy: whatever the environment says, the page is on this machine, and nothing else is wanted
    arguments = ["--no-sandbox", "--no-proxy-server", "--disable-background-networking"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield started
        finally:
            started.close()


def _of_stand_in(line: str) -> str | None:
    return line.split()[1] + "/" if line.startswith("ready http") else None


@pytest.fixture(scope="module")
def stand_in() -> Iterator[Callable[..., Console]]:
    """Start stand-ins: `stand_in("--keys", "10000", …)`. Equal ones are started once for a module."""
    with contextlib.ExitStack() as stack:
        started: dict[tuple[str, ...], Console] = {}

        def start(*options: str) -> Console:
            if options not in started:
                command = [sys.executable, str(HERE / "stand_in.py"), *options]
                started[options] = Console(command, _of_stand_in)
                stack.callback(started[options].kill)
            return started[options]

        yield start


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Console, Tokens]]:
    """A real pool at work with the real console, in a process of its own."""
    tokens = Tokens()

    def read(line: str) -> str | None:
        if not line.startswith("{"):
            return None
        found = json.loads(line)
        tokens.read, tokens.operate = found["read_token"], found["operate_token"]
        url: str = next(one for one in found["addresses"] if one.startswith("http"))
        return url

    folder = tmp_path_factory.mktemp("console")
    options = ["--bind", "127.0.0.1:0", "--rate", "60", "--name", "at-work", "--directory", str(folder)]
    console = Console([sys.executable, "-m", "tests.console.run_console", *options], read)
    try:
        yield console, tokens
    finally:
        console.kill()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Open a page in a context of its own. It must have no error, and talk to nobody else."""
    opened: list[Watched] = []
    expected: list[str] = []
    with contextlib.ExitStack() as stack:

        def open_page(
            *, wide: int = 1280, high: int = 860, may_say: tuple[str, ...] = (), **options: Any
        ) -> Watched:
            context = browser.new_context(viewport={"width": wide, "height": high}, **options)
            stack.callback(context.close)
            context.set_default_timeout(WAIT)
            page = context.new_page()
            page.add_init_script(WATCH_LONG)
            opened.append(Watched(page))
            expected.extend(may_say)
            return opened[-1]

        yield open_page
        for one in opened:
            assert not one.left, "a request left this machine"
            assert all(is_here(url) for url in one.sockets)
            wrong = [text for text in one.errors if not any(part in text for part in expected)]
            assert not wrong
