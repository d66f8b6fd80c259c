"""Every view in both themes and both widths: nothing sticks out, and axe has no complaint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.browser_kit import OPERATE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.browser.browser_kit import Console, Watched

WIDE, PHONE = (1280, 860), (390, 844)
VIEWS = {
    "overview": "#/",
    "actors": "#/actors",
    "refusals": "#/live/refusals",
    "calls": "#/live/calls",
    "events": "#/live/events",
    "servers": "#/servers",
    "checks": "#/checks",
    "tables": "#/tables/actors",
}


@pytest.fixture
def console(stand_in: Callable[..., Console]) -> Console:
    return stand_in("--keys", "300", "--rate", "40")


def open_call(one: Watched) -> None:
    one.at("#/live/refusals")
    link = one.page.locator("a.feed-what").first
    link.focus()
    link.press("Enter")
    one.page.locator(".fall-bar").first.wait_for()


def open_actor(one: Watched) -> None:
    """An actor with something under way."""
    one.at("#/actors")
    one.page.get_by_role("button", name=re.compile(r"^in flight \d")).click()
    one.page.get_by_label("List").check(force=True)
    one.page.locator(".list-body .list-row").first.click()
    one.page.get_by_role("region", name="Last turns").locator("tbody tr").first.wait_for()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_view_fits_and_axe_finds_nothing(
    console: Console, watched: Callable[..., Watched], scheme: str, size: tuple[int, int]
) -> None:
    one = watched(wide=size[0], high=size[1], color_scheme=scheme)
    one.page.goto(console.url)
    one.page.get_by_label("Token", exact=True).wait_for()
    found = {"door": one.axe()}
    one.sign_in(console.url, OPERATE)
    stuck_out = []

    def look(name: str) -> None:
        found[name] = one.axe()
        scrolled, shown = one.overflow()
        if scrolled > shown:
            stuck_out.append((name, scrolled, shown))

    for name, where in VIEWS.items():
        one.at(where)
        one.page.locator("main li:visible, main tbody tr:visible, main canvas").first.wait_for()
        look(name)
    one.at("#/actors")
    one.page.get_by_label("List").check(force=True)
    one.page.locator(".list-body .list-row").first.wait_for()
    look("list")
    open_actor(one)
    look("actor")
    open_call(one)
    one.page.locator(".clause summary").first.click()
    look("call")
    one.at("#/servers")
    one.page.get_by_role("button", name="Pause desk").click()
    look("confirmation")
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("?")
    expect(one.page.get_by_role("dialog", name="Keys")).to_be_visible()
    look("keys")
    assert stuck_out == []
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_theme_can_be_chosen_and_stays(console: Console, watched: Callable[..., Watched]) -> None:
    one = watched(color_scheme="light")
    one.sign_in(console.url, OPERATE)
    page = one.page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name=re.compile("^Colours: System")).click()
    assert page.evaluate(ground) == light
    page.get_by_role("button", name=re.compile("^Colours: Light")).click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.locator(".state.live").wait_for()
    assert page.evaluate(ground) == dark
    page.keyboard.press("t")
    assert page.evaluate(ground) == light  # as the system says


def test_the_map_is_painted_in_the_theme(console: Console, watched: Callable[..., Watched]) -> None:
    one = watched(color_scheme="light", may_say=("willReadFrequently",))
    one.sign_in(console.url, OPERATE)
    one.at("#/actors")
    expect(one.page.locator(".total")).to_have_text("300 keys")
    pixels = """() => {
      const map = document.querySelector("canvas");
      const data = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
      const seen = new Set();
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
      return [...seen];
    }"""  # noqa: E501 -- one expression
    one.page.wait_for_function(f"() => ({pixels})().includes('195,202,209')")  # an open cell
    one.page.keyboard.press("t")
    one.page.keyboard.press("t")
    one.page.wait_for_function(f"() => ({pixels})().includes('67,76,85')")
    assert "195,202,209" not in one.page.evaluate(pixels)


@pytest.mark.parametrize("where", [*VIEWS.values(), "call", "actor"])
def test_text_at_twice_its_size_still_fits(
    console: Console, watched: Callable[..., Watched], where: str
) -> None:
    one = watched(wide=1280, high=860)
    one.sign_in(console.url, OPERATE)
    if where == "call":
        open_call(one)
    elif where == "actor":
        open_actor(one)
    else:
        one.at(where)
    one.page.locator("main li:visible, main tbody tr:visible, main canvas").first.wait_for()
    one.page.evaluate(
        "document.documentElement.style.fontSize = '175%'"
    )  # of 87.5 %, which is where it begins
    scrolled, shown = one.overflow()
    assert scrolled <= shown
    # no button's or heading's text is cut off
    cut = """[...document.querySelectorAll("main button, h1, h2, .tile-value")]
      .filter((one) => one.checkVisibility() && !one.closest(".unseen") && !one.classList.contains("unseen"))
      .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible")
      .map((one) => one.textContent)"""
    assert one.page.evaluate(cut) == []


def test_reduced_motion_is_still(console: Console, watched: Callable[..., Watched]) -> None:
    one = watched(reduced_motion="reduce")
    one.sign_in(console.url, OPERATE)
    moving = """[...document.querySelectorAll("*")].filter((one) => {
      const style = getComputedStyle(one);
      return style.animationName !== "none" || style.transitionDuration.split(", ").some((part) => parseFloat(part) > 0);
    }).length"""  # noqa: E501 -- one expression
    for where in VIEWS.values():
        one.at(where)
        assert one.page.evaluate(moving) == 0
        assert one.page.evaluate("document.getAnimations().length") == 0
    lively = watched(reduced_motion="no-preference")
    lively.sign_in(console.url, OPERATE)
    assert lively.page.evaluate(moving) > 0


def test_pictures_of_the_main_views(
    console: Console, watched: Callable[..., Watched], tmp_path: Path
) -> None:
    for scheme in ("light", "dark"):
        for name, (wide, high) in {"wide": WIDE, "phone": PHONE}.items():
            one = watched(wide=wide, high=high, color_scheme=scheme)
            one.sign_in(console.url, OPERATE)
            one.page.locator(".stages tbody tr").first.wait_for()
            picture = tmp_path / f"{name}-{scheme}.png"
            one.page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 10_000
            scrolled, shown = one.overflow()
            assert scrolled <= shown == wide
