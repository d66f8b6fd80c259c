"""The run of real servers: what is written, what is only compared, and what the exit code says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests.interop import catalogue, page, run
from tests.interop.catalogue import Entry, Row
from tests.interop.examining import VERSIONS, Facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FACTS = Facts(package="some 1", negotiated="2025-11-25", called="ok", pinned=dict.fromkeys(VERSIONS, "ok"))


def row(name: str, **more: Any) -> Row:
    entry = Entry(name=name, package="some", installed="there", over={"stdio": ["some"]}, **more)
    return Row(entry, "stdio")


ROWS = [row("new", node=20), row("short", quick=["stdio"]), row("plain")]


class Run:
    """A run whose servers answer what `now` says; those that it lacks could not be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        self._page = place / "docs" / "real-servers.md"
        self._page.parent.mkdir()
        self._page.write_text(f"{page.BEGIN}\n\n{page.END}\n")
        self.was = {each.key: FACTS for each in ROWS}
        self.now = dict(self.was)
        self.tried: list[str] = []
        page.write(self.was, self._page)
        monkeypatch.setattr(catalogue, "ROOT", place)
        monkeypatch.setattr(page, "PAGE", self._page)
        monkeypatch.setattr(page.read, "__defaults__", (self._page,))
        monkeypatch.setattr(page.write, "__defaults__", (self._page,))
        monkeypatch.setattr(catalogue, "read", lambda: ROWS)
        monkeypatch.setattr(run, "node_version", lambda: self.node)
        monkeypatch.setattr(run, "examine_all", self._examine_all)
        self.node = 20

    async def _examine_all(self, rows: Sequence[Row]) -> tuple[Any, Any]:
        self.tried = [each.entry.name for each in rows]
        found = {each.key: self.now[each.key] for each in rows if each.key in self.now}
        return found, {each.key: "did not get ready" for each in rows if each.key not in self.now}

    def __call__(self, *arguments: str) -> int:
        return run.main(arguments)

    def becomes(self, name: str, **changed: str) -> None:
        self.now[name, "stdio"] = attrs.evolve(FACTS, **changed)

    def written(self) -> dict[Any, Facts]:
        return page.read(self._page)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return Run(monkeypatch, tmp_path)


def test_a_whole_run_writes_what_it_found(servers: Run) -> None:
    servers.becomes("plain", tools="9")
    assert servers() == 0
    assert servers.written() == servers.now
    assert servers.tried == ["new", "short", "plain"]


def test_what_got_worse_fails_and_is_not_written(servers: Run, capsys: pytest.CaptureFixture[str]) -> None:
    servers.becomes("plain", called="open-failed")
    assert servers() == run.WORSE
    assert servers.written() == servers.was
    assert "worse: plain over stdio, called: was 'ok', is 'open-failed'" in capsys.readouterr().out
    assert servers("--accept") == 0
    assert servers.written() == servers.now


@pytest.mark.parametrize(("argument", "tried"), [(["--quick"], ["short"]), (["--only", "pla"], ["plain"])])
def test_a_part_is_compared_and_not_written(servers: Run, argument: list[str], tried: list[str]) -> None:
    servers.becomes(tried[0], tools="9")
    assert servers(*argument) == 0
    assert servers.tried == tried
    servers.becomes(tried[0], called="open-failed")
    assert servers(*argument) == run.WORSE
    assert servers.written() == servers.was


def test_a_server_that_could_not_be_tried_fails_the_run(servers: Run) -> None:
    del servers.now["plain", "stdio"]
    assert servers() == run.UNTRIED
    assert servers.written() == servers.was


def test_rows_that_need_a_newer_node_stay_as_they_were_and_are_named(
    servers: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    servers.node = 18
    servers.becomes("plain", tools="9")
    assert servers() == run.MISSING
    assert servers.tried == ["short", "plain"]
    assert servers.written() == servers.now
    assert "left out: new over stdio needs Node.js 20, and this is 18" in capsys.readouterr().out


def test_a_name_that_no_row_has_is_refused(servers: Run) -> None:
    with pytest.raises(SystemExit):
        servers("--only", "nobody")
