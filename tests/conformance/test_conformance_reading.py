"""What counts as passed in the conformance suite: no tick for nothing, nothing left out, nothing unknown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests.conformance import docs_table
from tests.conformance.reading import (
    DONE,
    SERVER_BAR,
    SERVER_PREFIX,
    Bar,
    Outcome,
    UnreadableError,
    judge,
    read_bars,
    read_outcomes,
    table,
)

if TYPE_CHECKING:
    from pathlib import Path

STAMP = "2026-11-30T03-52-11-123Z"
BAR = Bar(required={"tools_call": 2, "auth/metadata-default": 3}, listed={"auth/dpop": 9})


def file_scenario(
    folder: Path, scenario: str, statuses: str, *, said: str = f"hello\n{DONE}\n", stamp: str = STAMP
) -> Path:
    """File a scenario as the suite does; a letter for each check."""
    place = folder / f"{scenario}-{stamp}"
    place.mkdir(parents=True)
    words = {"s": "SUCCESS", "f": "FAILURE", "w": "WARNING", "i": "INFO", "k": "SKIPPED"}
    checks = [{"id": f"check-{n}", "status": words[letter]} for n, letter in enumerate(statuses)]
    (place / "checks.json").write_text(json.dumps(checks))
    (place / "stdout.txt").write_text(said)
    return place


def rows(folder: Path, bar: Bar = BAR) -> dict[str, tuple[str, ...]]:
    return {row.scenario: row.reasons for row in judge(bar, read_outcomes(folder))}


def both_hold(folder: Path) -> None:
    file_scenario(folder, "tools_call", "issk")
    file_scenario(folder, "auth/metadata-default", "ssss")


def test_enough_passed_and_none_failed_holds(tmp_path: Path) -> None:
    both_hold(tmp_path)
    file_scenario(tmp_path, "auth/dpop", "s" * 9)
    assert rows(tmp_path) == {"tools_call": (), "auth/metadata-default": (), "auth/dpop": ()}


def test_a_tick_for_nothing_does_not_hold(tmp_path: Path) -> None:
    file_scenario(tmp_path, "tools_call", "")
    assert rows(tmp_path)["tools_call"] == ("0 checks passed, fewer than 2",)


def test_skipped_checks_and_remarks_count_for_nothing(tmp_path: Path) -> None:
    file_scenario(tmp_path, "tools_call", "skkii")
    assert rows(tmp_path)["tools_call"] == ("1 checks passed, fewer than 2",)


@pytest.mark.parametrize("letter", ["f", "w"])
def test_one_failure_or_warning_does_not_hold_however_many_passed(tmp_path: Path, letter: str) -> None:
    file_scenario(tmp_path, "tools_call", "ssssss" + letter)
    assert rows(tmp_path)["tools_call"] == ("1 checks failed",)


def test_a_scenario_that_was_not_run_does_not_hold(tmp_path: Path) -> None:
    file_scenario(tmp_path, "auth/metadata-default", "sss")
    assert rows(tmp_path)["tools_call"] == ("it was not run",)


def test_nothing_at_all_holds_nothing(tmp_path: Path) -> None:
    assert [row.holds for row in judge(BAR, read_outcomes(tmp_path))] == [False, False, False]


@pytest.mark.parametrize("said", ["", "Traceback\n", f"{DONE}\nand then it broke\n"])
def test_a_driver_that_did_not_end_does_not_hold(tmp_path: Path, said: str) -> None:
    file_scenario(tmp_path, "tools_call", "ss", said=said)
    assert rows(tmp_path)["tools_call"] == ("the driver did not come to its end",)


def test_a_driver_whose_output_was_not_kept_does_not_hold(tmp_path: Path) -> None:
    (file_scenario(tmp_path, "tools_call", "ss") / "stdout.txt").unlink()
    assert rows(tmp_path)["tools_call"] == ("the driver did not come to its end",)


def test_a_scenario_that_nobody_decided_about_is_required_and_does_not_hold(tmp_path: Path) -> None:
    both_hold(tmp_path)
    file_scenario(tmp_path, "brand-new", "ssss")
    row = {row.scenario: row for row in judge(BAR, read_outcomes(tmp_path))}["brand-new"]
    assert row.required
    assert row.reasons == ("it is not in the table",)


def test_only_what_was_asked_for_is_judged(tmp_path: Path) -> None:
    file_scenario(tmp_path, "tools_call", "ss")
    only = judge(BAR, read_outcomes(tmp_path), ["tools_call"])
    assert [(row.scenario, row.holds) for row in only] == [("tools_call", True)]
    missing = judge(BAR, read_outcomes(tmp_path), ["initialize"])
    assert missing[0].reasons == ("it is not in the table", "it was not run")


def test_what_is_listed_is_not_required(tmp_path: Path) -> None:
    file_scenario(tmp_path, "auth/dpop", "sf")
    row = {row.scenario: row for row in judge(BAR, read_outcomes(tmp_path))}["auth/dpop"]
    assert not row.required
    assert not row.holds


def test_a_scenario_that_was_run_twice_is_refused(tmp_path: Path) -> None:
    file_scenario(tmp_path, "tools_call", "ss")
    file_scenario(tmp_path, "tools_call", "ss", stamp="2026-11-30T03-52-12-000Z")
    with pytest.raises(UnreadableError, match="tools_call was run twice"):
        read_outcomes(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "{}x", '[{"id": "no status"}]', '["SUCCESS"]', "3"])
def test_checks_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    (file_scenario(tmp_path, "tools_call", "ss") / "checks.json").write_text(text)
    with pytest.raises(UnreadableError, match=r"checks\.json"):
        read_outcomes(tmp_path)


def test_a_failed_check_says_what_it_saw(tmp_path: Path) -> None:
    place = file_scenario(tmp_path, "tools_call", "")
    checks: list[dict[str, Any]] = [
        {"id": "a", "status": "FAILURE", "errorMessage": "no header", "details": {"seen": 1}},
        {"id": "b", "status": "FAILURE", "description": "wanted two", "details": {"seen": 1}},
    ]
    (place / "checks.json").write_text(json.dumps(checks))
    assert read_outcomes(tmp_path)["tools_call"].faults == (
        "FAILURE a: no header",
        'FAILURE b: wanted two {"seen": 1}',
    )


def test_the_printed_table_has_every_row_and_the_totals(tmp_path: Path) -> None:
    both_hold(tmp_path)
    lines = table("2026-07-28", judge(BAR, read_outcomes(tmp_path))).splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert cells["tools_call"] == ["2", "0", "2"]
    assert cells["auth/dpop"][:4] == ["0", "0", "9", "listed:"]
    assert cells["required"][:6] == ["6", "0", "5", "2", "of", "2"]
    assert cells["all"][:6] == ["6", "0", "14", "2", "of", "3"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[X.required]\na = 0\n[X.listed]\n", "asks for 0 checks"),
        ("[X.required]\na = true\n[X.listed]\n", "asks for True checks"),
        ("[X.required]\na = 1\n[X.listed]\na = 1\n", r"requires and lists \['a'\]"),
        ("[X.required]\n[X.listed]\na = 1\n", "requires and lists"),
        ("[X.required]\na = 1\n[X.listed]\n[X.apart]\nb = {checks = 0, why = 'w'}\n", "asks for 0 checks"),
        ("[X.required]\na = 1\n[X.listed]\n[X.apart]\na = {checks = 1, why = 'w'}\n", r"lists \['a'\]"),
    ],
)
def test_a_table_that_asks_for_nothing_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "bar.toml"
    file.write_text(text)
    with pytest.raises(UnreadableError, match=why):
        read_bars(file)


APART = Bar(
    required={"tools-list": 1}, listed={}, apart={"caching": {"checks": 2, "why": "prompts are not served"}}
)


@pytest.mark.parametrize(
    ("statuses", "reasons"),
    [
        ("ssf", ()),
        ("sf", ("1 checks passed, fewer than 2",)),
        ("sss", ("it holds in full, so it is required and does not stand apart",)),
    ],
)
def test_what_stands_apart_may_fail_in_part_and_no_further(
    tmp_path: Path, statuses: str, reasons: tuple[str, ...]
) -> None:
    # nothing drives a server, so nothing says that it is done
    file_scenario(tmp_path, "server-caching", statuses, said="")
    file_scenario(tmp_path, "server-tools-list", "s", said="")
    judged = judge(APART, read_outcomes(tmp_path, prefix=SERVER_PREFIX, driven=False))
    assert [(row.scenario, row.required, row.reasons) for row in judged] == [
        ("tools-list", True, ()),
        ("caching", True, reasons),
    ]
    lines = table("x", judged).splitlines()
    assert lines[-2].split()[:6] == ["required", "1", "0", "1", "1", "of"]
    if not reasons:
        assert lines[2].endswith("apart: prompts are not served")
        assert "| `caching`: prompts are not served | 2 / 1 |" in docs_table.build({"x": judged})
        assert "| **all that is required** | 1 / 0 |" in docs_table.build({"x": judged})


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_page_shows_a_service_that_reached_its_table(revision: str) -> None:
    bar = read_bars(SERVER_BAR)[revision]
    shown = docs_table.written(begin=docs_table.SERVER_BEGIN)[revision]
    assert shown.keys() == bar.required.keys() | bar.apart.keys() | bar.listed.keys()
    for scenario, asked in bar.required.items():
        passed, failed = map(int, shown[scenario].split(" / "))
        assert (passed >= asked, failed) == (True, 0), scenario
    for scenario, one in bar.apart.items():
        assert int(shown[scenario].split(" / ")[0]) >= one.checks, scenario


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_of_what_concerns_tools_only_sampling_and_log_messages_stand_apart(revision: str) -> None:
    bar = read_bars(SERVER_BAR)[revision]
    apart = {name: one.why for name, one in bar.apart.items() if name.startswith(("tools-", "elicitation-"))}
    assert apart == (
        {
            "tools-call-with-logging": "log messages of servers are not served",
            "tools-call-sampling": "sampling is not passed through",
        }
        if revision == "2025-11-25"
        else {}
    )


# What the client of the official SDK reaches: what is scored with the schema scenario beside it; extensions.
SDK = {"2025-11-25": (238 + 9, 51), "2026-07-28": (396 + 9, 50)}


@pytest.mark.parametrize("revision", list(SDK))
def test_the_table_asks_for_all_that_the_official_client_passes(revision: str) -> None:
    bar = read_bars()[revision]
    assert sum(bar.required.values()) + sum(bar.listed.values()) == sum(SDK[revision])
    assert read_bars().keys() == SDK.keys()


@pytest.mark.parametrize("revision", list(SDK))
def test_the_page_shows_a_run_that_reached_the_table(revision: str) -> None:
    bar = read_bars()[revision]
    shown = docs_table.written()[revision]
    assert shown.keys() == bar.required.keys() | bar.listed.keys()
    for scenario, asked in bar.required.items():
        passed, failed = map(int, shown[scenario].split(" / "))
        assert (passed >= asked, failed) == (True, 0), scenario


def test_what_is_written_into_the_page_is_read_back(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{docs_table.BEGIN}\n{docs_table.END}\nafter\n")
    outcomes = {"tools_call": Outcome("tools_call", 2, ("FAILURE x: y",), True, tmp_path)}
    judged = judge(BAR, outcomes)
    docs_table.write({"one": judged, "two": [attrs.evolve(judged[0], passed=5)]}, page)
    docs_table.write({"one": judged, "two": [attrs.evolve(judged[0], passed=7)]}, page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert docs_table.written(page) == {
        "one": {"tools_call": "2 / 1", "auth/metadata-default": "not run", "auth/dpop": "not run"},
        "two": {"tools_call": "7 / 1"},
    }
    page.write_text("no place\n")
    with pytest.raises(ValueError, match="has 0 places"):
        docs_table.write({"one": judged}, page)
