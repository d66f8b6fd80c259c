"""Tokens that open nothing, processes that go away, come back or hang, and strangers' names."""

from __future__ import annotations

import re
import signal
import socket
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.browser_kit import OPERATE, READ

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.browser_kit import Console, Tokens, Watched

UNREACHABLE = "ERR_CONNECTION_REFUSED"  # what a browser says by itself where nobody listens


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def test_a_wrong_token_is_refused_and_forgotten(
    real: tuple[Console, Tokens], watched: Callable[..., Watched]
) -> None:
    console, tokens = real
    page = watched().page
    page.goto(console.url)
    token = page.get_by_label("Token", exact=True)
    expect(token).to_be_focused()
    token.fill("not-a-token-of-this-console")
    page.keyboard.press("Enter")
    said = page.locator("#token-said")
    expect(said).not_to_be_empty()
    assert "not-a-token-of-this-console" not in page.content()
    assert page.evaluate("sessionStorage.length") == 0
    expect(token).to_have_value("")
    token.fill(tokens.read)
    page.keyboard.press("Enter")
    expect(page.locator(".state")).to_have_text("live")


def test_a_token_can_be_kept_for_no_longer_than_the_page(
    real: tuple[Console, Tokens], watched: Callable[..., Watched]
) -> None:
    console, tokens = real
    page = watched().page
    page.goto(console.url)
    page.get_by_label("Keep it until this tab is closed").uncheck()
    page.get_by_label("Token", exact=True).fill(tokens.read)
    page.keyboard.press("Enter")
    expect(page.locator(".state")).to_have_text("live")
    assert page.evaluate("sessionStorage.length") == 0
    page.reload()
    expect(page.get_by_label("Token", exact=True)).to_be_visible()


def test_a_process_that_goes_away_and_comes_back(
    stand_in: Callable[..., Console], watched: Callable[..., Watched]
) -> None:
    console = stand_in("--keys", "40", "--port", free_port())
    one = watched(may_say=(UNREACHABLE,))
    one.sign_in(console.url, READ)
    page = one.page
    page.locator(".feed-row").first.wait_for()
    calls = page.locator("#tile-calls .tile-value").inner_text()
    before = page.locator(".process").inner_text()
    console.kill()
    expect(page.locator(".state")).to_have_text("away")
    expect(page.locator(".banner")).to_contain_text("The process went away")
    expect(page.locator(".banner")).to_contain_text(re.compile("Next try in|Trying now"))
    assert page.locator("#tile-calls .tile-value").inner_text() == calls  # what was known stays readable
    assert page.evaluate("document.querySelector('main').classList.contains('stale')")
    with page.expect_console_message(lambda said: UNREACHABLE in said.text):
        page.get_by_role("button", name="Try now").click()
    page.locator(".state.away").wait_for()  # nobody is there yet, and it goes on trying by itself
    console.start()
    expect(page.locator(".state")).to_have_text("live")
    expect(page.locator(".banner")).to_be_hidden()
    expect(page.locator(".process")).not_to_have_text(before)
    expect(page.get_by_role("alert").filter(has_text="another process")).to_be_attached()
    expect(page.locator("#tile-calls .tile-value")).not_to_have_text("\u2013")


def test_a_process_that_hangs(stand_in: Callable[..., Console], watched: Callable[..., Watched]) -> None:
    console = stand_in("--keys", "40", "--rate", "41")
    one = watched()
    one.sign_in(console.url, READ)
    page = one.page
    page.locator(".feed-row").first.wait_for()
    console.signal(signal.SIGSTOP)
    try:
        expect(page.locator(".banner")).to_contain_text("its event loop may hang")
        expect(page.locator(".state")).to_have_text("silent")
    finally:
        console.signal(signal.SIGCONT)
    expect(page.locator(".state")).to_have_text("live")
    expect(page.locator(".banner")).to_be_hidden()


def test_names_that_mean_harm_are_text(
    stand_in: Callable[..., Console], watched: Callable[..., Watched]
) -> None:
    console = stand_in("--keys", "60", "--hostile", "--rate", "60")
    for wide in (1280, 390):
        one = watched(wide=wide)
        one.sign_in(console.url, OPERATE)
        page = one.page
        expect(page.locator(".feed-row").filter(has_text="<img src=x").first).to_be_visible()
        for where in ("#/", "#/servers", "#/live/calls", "#/actors", "#/tables/actors"):
            one.at(where)
            page.locator("main li:visible, main tbody tr:visible, main canvas").first.wait_for()
            scrolled, shown = one.overflow()
            assert scrolled <= shown
        one.at("#/live/refusals")
        link = page.locator("a.feed-what").filter(has_text="<img").first
        link.focus()
        link.press("Enter")
        expect(page.locator("pre")).to_contain_text("<img src=x")
        expect(page.locator("pre")).to_contain_text("\\u202e")  # written out: it would turn its line around
        assert page.locator("img").count() == 0
        assert "owned" not in page.title()
        assert one.overflow()[0] <= one.overflow()[1]


def test_the_policy_would_stop_what_got_through(
    real: tuple[Console, Tokens], watched: Callable[..., Watched]
) -> None:
    console, tokens = real
    one = watched(may_say=("Content Security Policy", "requires 'Trusted"))
    one.sign_in(console.url, tokens.read)
    page = one.page
    failures: list[str | None] = []
    page.on("requestfailed", lambda asked: failures.append(asked.failure))
    tried = page.evaluate("""async () => {
      const found = {};
      try { document.body.innerHTML += "<b>x</b>"; found.markup = "done"; } catch (error) { found.markup = error.name; }
      try { setTimeout("window.ran = true"); } catch (error) { found.timer = error.name; }
      const script = document.createElement("script");
      try { script.textContent = "window.ran = true"; document.body.append(script); } catch (error) { found.script = error.name; }
      found.ran = window.ran ?? false;
      try { await fetch("https://example.org/"); found.fetch = "done"; } catch (error) { found.fetch = error.name; }
      const image = document.createElement("img");
      found.image = await new Promise((done) => {
        image.onload = () => done("loaded");
        image.onerror = () => done("error");
        image.src = "https://example.org/x.png";
      });
      return found;
    }""")  # noqa: E501 -- one script
    assert tried["markup"] == "TypeError"
    assert tried["ran"] is False
    assert tried["fetch"] == "TypeError"
    assert tried["image"] == "error"
    assert failures == ["csp"] * len(one.left)  # asked for, and stopped before the network
    one.left.clear()


def test_the_page_comes_with_its_headers(
    real: tuple[Console, Tokens], watched: Callable[..., Watched]
) -> None:
    console, _ = real
    answer = watched().page.goto(console.url)
    assert answer is not None
    headers = answer.headers
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
