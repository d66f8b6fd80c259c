"""The whole way by keyboard, from the token to an explanation and a pause; where the focus is meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.browser_kit import OPERATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.browser.browser_kit import Console, Watched

FOCUSED = (
    "() => { const one = document.activeElement; return one.getAttribute('aria-label') ?? one.textContent; }"
)
THERE = """(name) => [...document.querySelectorAll("main a, main button, main [tabindex]")].some(
  (one) => new RegExp(name).test(one.getAttribute("aria-label") ?? one.textContent))"""
RING = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


@pytest.fixture
def signed(stand_in: Callable[..., Console], watched: Callable[..., Watched]) -> Watched:
    one = watched()
    one.sign_in(stand_in("--keys", "120", "--rate", "40").url, OPERATE)
    return one


def tab_to(page: Page, name: str, most: int = 60) -> None:
    """Press Tab until something of that name has the focus; each stop must be visible as one."""
    page.wait_for_function(THERE, arg=name)  # what is asked for comes a moment after its view
    for _ in range(most):
        page.keyboard.press("Tab")
        said = page.evaluate(FOCUSED)
        assert page.evaluate(RING), f"no visible focus on {said[:80]!r}"
        if re.search(name, said):
            return
    pytest.fail(f"{name} cannot be reached with the Tab key")


def test_skip_link_and_order(signed: Watched) -> None:
    page = signed.page
    expect(page.get_by_role("heading", level=1)).to_be_focused()  # after the token: where the content begins
    page.reload()
    page.locator(".state.live").wait_for()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_the_whole_way(signed: Watched) -> None:
    page = signed.page
    page.keyboard.press("2")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Actors")
    expect(heading).to_be_focused()
    tab_to(page, "^Map of actors")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#map-said")).to_have_text(re.compile("^k:.*in flight"))
    page.keyboard.press("Enter")
    expect(heading).to_have_text(re.compile("^Actor k:"))
    page.keyboard.press("3")
    expect(heading).to_have_text("Refusals and failures")
    tab_to(page, " / ")
    page.keyboard.press("Enter")
    expect(heading).to_have_text(re.compile("^Call call-"))
    page.locator(".clause").first.wait_for()
    tab_to(page, "The server announced")
    expect(page.locator(".fall-mark.on")).to_have_text("2")
    page.keyboard.press("4")
    expect(heading).to_have_text("Servers")
    tab_to(page, "^Pause desk")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Pause", exact=True)).to_be_focused()
    page.keyboard.press("4")  # no shortcut while a dialog asks
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Pause desk")).to_be_focused()  # where it was
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator(".notice")).to_contain_text("pause desk")


def test_what_ends_something_begins_at_cancel(signed: Watched) -> None:
    page = signed.page
    page.keyboard.press("4")
    tab_to(page, "^Drain desk")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()


def test_the_list_of_shortcuts_and_how_to_turn_them_off(signed: Watched) -> None:
    page = signed.page
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Single keys are shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("4")
    expect(page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")
    page.get_by_role("button", name="Keys").click()
    dialog.get_by_label("Single keys are shortcuts").check()
    page.keyboard.press("Escape")
    page.keyboard.press("4")
    expect(page.get_by_role("heading", level=1)).to_have_text("Servers")


def test_a_key_typed_into_a_field_is_text(signed: Watched) -> None:
    page = signed.page
    page.keyboard.press("2")
    page.keyboard.press("/")
    search = page.get_by_label("Find by digest or state")
    expect(search).to_be_focused()
    page.keyboard.type("3?")
    expect(search).to_have_value("3?")
    expect(page.get_by_role("heading", level=1)).to_have_text("Actors")
    page.keyboard.press("Escape")
    expect(search).not_to_be_focused()


def test_what_falls_holds_still_while_somebody_looks(signed: Watched) -> None:
    page = signed.page
    signed.at("#/live/calls")
    rows = page.locator(".feed-row")
    rows.first.wait_for()
    link = page.locator("a.feed-what").first
    link.focus()
    expect(page.locator(".feed-said")).to_have_text(re.compile(r"Held still while you look; \d+ more came"))
    still = rows.first.inner_text()
    expect(page.locator(".feed-said")).to_have_text(re.compile(r"look; [1-9]\d+ more came"))
    assert rows.first.inner_text() == still
    page.get_by_role("button", name="Pause", exact=True).focus()
    expect(rows.first).not_to_have_text(still, use_inner_text=True)
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Go on")).to_have_attribute("aria-pressed", "true")
    still = rows.first.inner_text()
    expect(page.locator(".feed-said")).to_have_text(re.compile(r"look; [1-9]\d+ more came"))
    assert rows.first.inner_text() == still
    page.keyboard.press("p")
    expect(rows.first).not_to_have_text(still, use_inner_text=True)


def test_only_one_code(signed: Watched) -> None:
    page = signed.page
    page.keyboard.press("3")
    chip = page.get_by_role("group", name="Only one code").get_by_role("button").first
    chip.click()
    expect(chip).to_have_attribute("aria-pressed", "true")
    code = page.locator(".feed-row .code").first.inner_text()
    assert set(page.locator(".feed-row .code").all_inner_texts()) == {code}
    assert chip.inner_text().startswith(code)
