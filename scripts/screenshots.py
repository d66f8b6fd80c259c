"""Make the pictures of the docs: `make screenshots` writes docs/images/console-*.png.

Starts a service with something going on (screenshots_town.py), looks at its console in Chromium as a person
would, and saves what there is to see. What is not a picture of the real page has no place in the docs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
IMAGES = ROOT / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
WIDE, PHONE = (1200, 760), (390, 760)
LARGEST = 200_000  # bytes of one picture
PATIENCE = 90_000  # ms: until everything that is to be seen has happened
WARM = 45_000  # ms of history in the small curves
WANTED = "stale-tools"


def look(browser: Browser, url: str, token: str, scheme: str, size: tuple[int, int]) -> Page:
    """Open the page as a person does."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(url)
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")
    page.locator(".state.live").wait_for()
    return page


def save(page: Page, name: str) -> None:
    """Save what is in sight, and see that it is no burden to a repository."""
    path = IMAGES / f"console-{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)} {size / 1000:.0f} KB", flush=True)
    if size > LARGEST:
        raise SystemExit(f"{path.name} is too large: {size} bytes, more than {LARGEST}")


def to(page: Page, where: str) -> None:
    """Go to a view."""
    page.evaluate("(where) => { location.hash = where; }", where)
    page.locator("main#content .view").wait_for()


def pictures(browser: Browser, url: str, token: str) -> None:
    """Go through the views."""
    page = look(browser, url, token, "light", WIDE)
    page.wait_for_timeout(WARM)
    save(page, "overview")

    to(page, "#/actors")
    expect(page.locator(".total")).to_contain_text("keys")
    page.get_by_role("application").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_timeout(2000)
    save(page, "actors")

    page.get_by_label("Server").select_option("billing")
    page.get_by_label("List").check(force=True)
    page.locator(".list-body .list-row").first.click()
    page.locator(".time-call").first.wait_for()
    page.wait_for_timeout(20_000)
    save(page, "actor")

    to(page, f"#/live/refusals/{WANTED}")
    call = page.locator("a.feed-what").first
    call.wait_for()
    save(page, "refusals")
    call.focus()
    page.keyboard.press("Enter")
    page.locator(".clause").first.wait_for()
    save(page, "call")

    to(page, "#/servers")
    page.get_by_role("button", name="Pause crm").click()
    save(page, "pause")
    page.keyboard.press("Escape")

    dark = look(browser, url, token, "dark", PHONE)
    dark.wait_for_timeout(5000)
    save(dark, "phone-dark")


def main() -> None:
    """Start what is looked at, look, and end it."""
    IMAGES.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    town = subprocess.Popen(
        [sys.executable, HERE / "screenshots_town.py"], stdout=subprocess.PIPE, env=environment, text=True
    )
    try:
        assert town.stdout is not None
        told = json.loads(town.stdout.readline())
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            pictures(browser, told["url"], told["token"])
            browser.close()
    finally:
        town.kill()
        town.wait()


if __name__ == "__main__":
    main()
