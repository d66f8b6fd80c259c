"""The page of real servers: what is written can be read back; what got worse is told from what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop import catalogue, page
from tests.interop.examining import VERSIONS, Facts

if TYPE_CHECKING:
    from pathlib import Path

KEY = ("Some SDK", "HTTP")
FACTS = Facts(
    package="some-sdk 1.0", negotiated="2025-11-25", era="handshake", tools="3", called="ok",
    session="HTTP session", changes="listening", restart="ok", pinned=dict.fromkeys(VERSIONS, "ok"),
)  # fmt: skip

cells = st.text("abcXYZ019-., ", min_size=1).filter(lambda text: text == text.strip())
facts_of_rows = st.dictionaries(
    st.tuples(cells, cells),
    st.builds(
        Facts,
        **dict.fromkeys(page.COLUMNS.values(), cells),
        pinned=st.fixed_dictionaries(dict.fromkeys(VERSIONS, cells)),
    ),
    min_size=1,
    max_size=4,
)


def empty_page(folder: Path) -> Path:
    place = folder / "real-servers.md"
    place.write_text(f"# Servers\n\n{page.BEGIN}\n\n{page.END}\n\nMore.\n")
    return place


@pytest.fixture(scope="module")
def some_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One page for all examples of a property, which is written over by each."""
    return empty_page(tmp_path_factory.mktemp("page"))


def test_a_page_without_tables_holds_nothing(tmp_path: Path) -> None:
    assert page.read(empty_page(tmp_path)) == {}


@given(facts_of_rows)
def test_what_is_written_is_read_back(some_page: Path, facts: dict[tuple[str, str], Facts]) -> None:
    page.write(facts, some_page)
    assert page.read(some_page) == facts
    text = some_page.read_text()
    assert text.startswith("# Servers\n")
    assert text.endswith("\n\nMore.\n")


def test_a_page_without_a_place_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "real-servers.md"
    place.write_text(page.BEGIN)
    for use in (lambda: page.write({KEY: FACTS}, place), lambda: page.read(place)):
        with pytest.raises(ValueError, match="place"):
            use()


@pytest.mark.parametrize(
    ("field", "column", "now"),
    [
        ("called", "called", "server-failed"),
        ("called", "called", "shared"),
        ("restart", "after a restart", "session-expired, then ok"),
        ("restart", "after a restart", "open-failed, then open-failed"),
        ("changes", "list changes", "unsupported"),
        ("negotiated", "negotiated", "2024-11-05"),
        ("negotiated", "negotiated", "none"),
    ],
)
def test_what_worked_and_does_not_is_worse(field: str, column: str, now: str) -> None:
    (difference,) = page.differences({KEY: FACTS}, {KEY: attrs.evolve(FACTS, **{field: now})})
    assert (difference.column, difference.now, difference.worse) == (column, now, True)
    (back,) = page.differences({KEY: attrs.evolve(FACTS, **{field: now})}, {KEY: FACTS})
    assert not back.worse


def test_a_pinned_version_that_is_refused_now_is_worse() -> None:
    pinned = {**FACTS.pinned, "2025-03-26": "open-failed"}
    (difference,) = page.differences({KEY: FACTS}, {KEY: attrs.evolve(FACTS, pinned=pinned)})
    assert difference.worse
    assert "2025-03-26" in str(difference)


@pytest.mark.parametrize(
    ("field", "now"), [("package", "some-sdk 2.0"), ("tools", "4"), ("session", "none"), ("era", "stateless")]
)
def test_what_only_differs_is_not_worse(field: str, now: str) -> None:
    (difference,) = page.differences({KEY: FACTS}, {KEY: attrs.evolve(FACTS, **{field: now})})
    assert not difference.worse


def test_rows_that_only_one_has_are_no_difference() -> None:
    assert page.differences({KEY: FACTS}, {("Other", "stdio"): FACTS}) == []


def test_the_page_has_the_rows_of_the_catalogue_and_names_its_command() -> None:
    assert list(page.read()) == [row.key for row in catalogue.read()]
    assert "make servers" in page.PAGE.read_text(encoding="utf-8")
