"""The page in a browser, pointed at the town: no view of it shows a canary, and none stays there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.browser_kit import CHROMIUM
from tests.canary.browser import looked_at
from tests.canary.test_canary_plants import in_a_use
from tests.canary.test_canary_run import Told, told_apart, toured
from tests.canary.tour import briefly

pytestmark = pytest.mark.peer


@pytest.fixture(autouse=True)
def chromium() -> None:
    if not Path(CHROMIUM).exists():
        message = "chromium is not installed: run `make test` or `make browser`"
        if os.environ.get("AFPOOL_REQUIRE_PEERS") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


async def test_no_view_of_the_page_shows_a_canary(tmp_path: Path, capfd: Any) -> None:
    found, here, _ = await toured("memory", tmp_path, capfd, briefly, beside=looked_at)
    told = told_apart(found, here)
    assert not told.leaks, "\n".join(sorted({f"{one.name}, {one.form}: {one.place}" for one in told.leaks}))
    assert told == Told(kept=told.kept)


async def test_a_leak_into_the_page_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    in_a_use(monkeypatch)
    found, here, _ = await toured("memory", tmp_path, capfd, briefly, beside=looked_at)
    leaks = told_apart(found, here).leaks
    for place in (r"page shown at #/call/", r"page frame"):
        assert any(re.match(place, one.place) for one in leaks), sorted({one.place for one in leaks})[:30]
