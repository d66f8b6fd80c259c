"""Chromium pointed at the town: what each view of the page shows, and what of it stays in the browser."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import trio

from tests.browser.browser_kit import CHROMIUM, Watched
from tests.canary.forms import CANARIES
from tests.console.server_kit import port_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.canary.collecting import Collected
    from tests.canary.town import Town

# All that stands in the document, also where nobody sees it, and what is kept beside it. The token is where
# the page says that it is, and nowhere else.
SHOWN = """
() => JSON.stringify([
  document.documentElement.outerHTML, document.body.innerText, document.title, location.href,
  [...document.querySelectorAll("input, textarea, select")].map((one) => one.value), document.cookie,
  {...localStorage}, history.state, performance.getEntries().map((one) => one.name),
])
"""
VIEWS = (
    "#/", "#/actors", "#/live/refusals", "#/live/calls", "#/live/events", "#/servers", "#/checks",
)  # fmt: skip
WAIT = 20_000
SETTLED = 250


async def looked_at(here: Town) -> None:
    """Look at every view, as somebody who may look and as one who may act."""
    console, pool = here.runtime.console, here.runtime.pool
    assert console is not None
    assert pool is not None
    tables = [table["name"] for table in console.registry.describe()["tables"]]
    keys = [actor.shown for actor in pool.actors()]
    by_code = {use.code: use.call_id for use in pool.records.uses if use.facts or use.shown}
    calls = [*dict.fromkeys((*by_code.values(), *[use.call_id for use in pool.records.uses][-2:]))][:8]
    views = [*VIEWS, *(f"#/tables/{name}" for name in [*tables, "tree"])]
    views += [f"#/actor/{key}" for key in keys[:3]] + [f"#/call/{call}" for call in calls]
    look = functools.partial(_look, here.collected, f"http://127.0.0.1:{port_of(console)}/", views)
    await trio.to_thread.run_sync(look)


@contextlib.contextmanager
def _chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--no-proxy-server", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def _look(collected: Collected, url: str, views: list[str]) -> None:
    with _chromium() as browser:
        for level in ("read", "operate"):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            context.set_default_timeout(WAIT)
            watched = Watched(context.new_page())
            told = _frames(collected, watched.page)
            watched.sign_in(url, CANARIES[f"console {level}"])
            for view in views if level == "operate" else views[:7]:
                watched.at(view)
                watched.page.wait_for_timeout(SETTLED if "call" in view or "actor" in view else SETTLED / 4)
                collected.text(f"page shown at {view}", watched.page.evaluate(SHOWN))
            told.append("page own view")  # what it is answered from now on is about what is typed
            _type(collected, watched.page)
            collected.text("page console", repr((watched.errors, watched.left, watched.sockets)))
            assert not watched.left
            context.close()
        _refuse(collected, browser, url)
    shown = [text for place, text in collected.texts if place.startswith("page shown at #/call/")]
    assert any("waterfall" in text or "fall-bar" in text for text in shown)


def _frames(collected: Collected, page: Page) -> list[str]:
    """Keep what the browser is sent, under the last of the places that are given back."""
    places = ["page frame"]

    def told(sent: Any) -> None:
        collected.text(places[-1], sent if isinstance(sent, str) else sent.decode())

    page.on("websocket", lambda opened: opened.on("framereceived", told))
    return places


def _type(collected: Collected, page: Page) -> None:
    page.evaluate("() => { location.hash = '#/tables/actors'; }")
    field = page.locator("#table-filter")
    field.fill(f"server={CANARIES['typed']} {CANARIES['typed']}=1")
    field.press("Enter")
    page.wait_for_timeout(SETTLED)
    collected.text("page own view", page.evaluate(SHOWN))
    page.evaluate("(word) => { location.hash = '#/call/' + encodeURIComponent(word); }", CANARIES["typed"])
    page.wait_for_timeout(SETTLED)
    collected.text("page own view", page.evaluate(SHOWN))


def _refuse(collected: Collected, browser: Browser, url: str) -> None:
    context = browser.new_context()
    context.set_default_timeout(WAIT)
    page = context.new_page()
    _frames(collected, page)
    page.goto(url)
    field = page.get_by_label("Token", exact=True)
    field.fill(CANARIES["typed token"])
    page.keyboard.press("Enter")
    page.get_by_role("alert").filter(has_text="token").first.wait_for()
    collected.text("page refused", page.locator("body").inner_text() + page.content())
    collected.text("page refused", page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})"))
    context.close()
