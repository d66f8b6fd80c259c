"""The page beside a real pool at work: what it shows is what the process says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.browser_kit import Console, Tokens, Watched


@pytest.fixture
def signed(real: tuple[Console, Tokens], watched: Callable[..., Watched]) -> Watched:
    """A page that may operate."""
    console, tokens = real
    one = watched()
    one.sign_in(console.url, tokens.operate)
    return one


def test_the_overview_is_live(signed: Watched) -> None:
    page = signed.page
    calls = page.locator("#tile-calls .tile-value")
    expect(calls).not_to_have_text(re.compile("^(\u2013|0)$"))
    so_far = page.locator("#tile-calls .tile-below")
    before = so_far.inner_text()
    expect(so_far).not_to_have_text(before)
    expect(page.locator(".stages tbody tr").first).to_be_visible()
    assert page.locator("#tile-calls .spark-line").get_attribute("d")
    expect(page.get_by_role("region", name="Servers").locator("tbody tr")).to_have_count(2)


def test_the_token_is_in_no_address_and_in_no_other_store(
    signed: Watched, real: tuple[Console, Tokens]
) -> None:
    token = real[1].operate
    kept = signed.page.evaluate(
        "JSON.stringify([localStorage, document.cookie, location.href, history.state])"
    )
    assert token not in kept
    assert all(token not in url for url in signed.sockets)
    assert token in signed.page.evaluate("JSON.stringify(sessionStorage)")
    signed.page.get_by_role("button", name="Sign out").click()
    expect(signed.page.get_by_label("Token", exact=True)).to_be_focused()
    assert token not in signed.page.evaluate("JSON.stringify(sessionStorage)")


def test_an_actor_with_its_timeline(signed: Watched) -> None:
    page = signed.page
    signed.at("#/actors")
    expect(page.locator(".total")).to_have_text(re.compile(r"^\d+ keys$"))
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(re.compile("^Actor k:"))
    expect(heading).to_be_focused()
    expect(page.locator(".timeline .time-turn").first).to_be_attached()
    expect(page.locator(".timeline .time-call").first).to_be_attached()
    expect(page.get_by_role("region", name="Last turns").locator("tbody tr").first).to_be_visible()
    expect(page.get_by_label("Calls and events of this actor").locator("li").first).to_be_visible()


def test_a_call_as_a_waterfall_with_its_explanation(signed: Watched) -> None:
    page = signed.page
    signed.at("#/live/calls")
    feed = page.get_by_label("Every call, newest first")
    first = feed.get_by_role("link").first
    first.focus()  # what falls holds still while somebody looks
    called = first.get_attribute("href")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(re.escape(called or "")))
    stages = page.get_by_role("table", name="Stages of the call in order")
    expect(stages.get_by_role("rowheader").filter(has_text="start").first).to_be_visible()
    assert stages.locator(".fall-bar").count() >= 3
    expect(page.get_by_role("heading", name="Why")).to_be_visible()
    expect(page.locator(".clause").first).to_be_visible()
    marked = page.locator(".clause[tabindex]").first
    marked.focus()
    expect(page.locator(".fall-mark.on")).to_have_count(1)
    expect(page.locator(".fall-hair")).to_be_visible()


def test_pause_and_resume_a_server(signed: Watched) -> None:
    page = signed.page
    signed.at("#/servers")
    row = page.get_by_role("row").filter(has_text="desk")
    row.get_by_role("button", name="Pause desk").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Calls to every key of this server wait")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    expect(row).not_to_contain_text("paused")  # nothing was asked for
    row.get_by_role("button", name="Pause desk").click()
    dialog.get_by_label("For").select_option(label="ten minutes")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".notice")).to_contain_text("paused desk")
    expect(row).to_contain_text("paused")
    signed.at("#/")
    expect(page.locator("#tile-waiting .tile-value")).not_to_have_text("0")
    expect(page.locator("#tile-waiting .tile-below")).to_contain_text("oldest")
    signed.at("#/servers")
    row.get_by_role("button", name="Resume desk").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator(".notice")).to_contain_text("resumed desk")
    expect(row).not_to_contain_text("paused")


def test_an_event_says_who_paused(signed: Watched) -> None:
    page = signed.page
    signed.at("#/servers")
    page.get_by_role("row").filter(has_text="crm").get_by_role("button", name="Pause crm").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".notice")).to_contain_text("paused crm")
    signed.at("#/live/events")
    paused = page.get_by_label("Events, newest first").get_by_role("listitem").filter(has_text="paused")
    expect(paused.first).to_contain_text("console token")
    signed.at("#/servers")
    page.get_by_role("row").filter(has_text="crm").get_by_role("button", name="Resume crm").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator(".notice")).to_contain_text("resumed crm")


def test_who_may_only_read_is_offered_no_control(
    real: tuple[Console, Tokens], watched: Callable[..., Watched]
) -> None:
    console, tokens = real
    one = watched()
    one.sign_in(console.url, tokens.read)
    page = one.page
    expect(page.locator(".level")).to_have_text("read")
    one.at("#/servers")
    expect(page.get_by_role("row").filter(has_text="desk")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Pause|Drain|Resume"))).to_have_count(0)


def test_tables_checks_and_the_tree(signed: Watched) -> None:
    page = signed.page
    signed.at("#/tables/actors")
    region = page.get_by_role("region", name="actors")
    expect(region.locator("tbody tr").first).to_be_visible()
    region.get_by_role("button", name="turns").click()
    expect(region.locator("th[aria-sort='descending']")).to_have_text("turns")
    page.get_by_placeholder("server=desk state=open").fill("server=desk")
    page.keyboard.press("Enter")
    expect(region.locator("tbody tr td:nth-child(2)").filter(has_text="crm")).to_have_count(0)
    page.get_by_placeholder("server=desk state=open").fill("sever=desk")
    page.keyboard.press("Enter")
    expect(page.locator(".wrong").filter(has_text="sever")).to_be_visible()
    signed.at("#/tables/tree")
    expect(page.get_by_label("Tasks", exact=True).locator("li").first).to_be_visible()
    signed.at("#/checks")
    expect(page.locator(".total")).to_contain_text(re.compile("all fine|to look at"))
    expect(page.locator(".check").first).to_be_visible()


def test_an_unknown_call_is_said_to_be_unknown(signed: Watched) -> None:
    signed.at("#/call/no-such-call")
    expect(signed.page.get_by_role("alert").filter(has_text="no-such-call")).to_be_visible()
