"""What a run of the conformance suite has shown, judged by `bar.toml` and `bar-server.toml`.

Rules:

* A scenario counts by the checks that it filed: `SUCCESS` as passed, `FAILURE` and `WARNING` as failed (the
  suite itself calls a scenario with a warning failed). `SKIPPED` and `INFO` count for nothing.
* A required scenario holds when it was run, nothing failed, at least as many checks passed as the table says,
  and the driver came to its end. The suite ticks off scenarios that filed no check: here these are too few.
* A scenario that the suite runs and the table does not know is a fault: nobody has decided about it.
* What is listed is shown and decides nothing.
* A scenario that stands apart wants in part what is not offered, and the table says what. Its checks may
  fail; as many as the table says have to pass.
* No process, no network.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BAR: Final = Path(__file__).with_name("bar.toml")
SERVER_BAR: Final = Path(__file__).with_name("bar-server.toml")
SERVER_PREFIX: Final = "server-"
"""What the suite puts before a scenario's name in the names of its folders, on the server side."""
DONE: Final = "driver: done"
"""The last line that the driver prints, after everything went as the scenario wants it."""

_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


class UnreadableError(Exception):
    """The table or a result of the suite is not what it should be."""


@attrs.frozen
class Apart:
    """A scenario that is not offered in full.

    Attributes:
        checks: How many checks have to pass all the same.
        why: What it wants that is not offered.
    """

    checks: int
    why: str


@attrs.frozen
class Bar:
    """What one requirement set asks for: scenario to the number of checks that have to pass."""

    required: Mapping[str, int]
    listed: Mapping[str, int]
    apart: Mapping[str, Apart] = attrs.field(
        factory=dict, converter=lambda given: {name: Apart(**one) for name, one in given.items()}
    )


@attrs.frozen
class Outcome:
    """What one scenario filed.

    Attributes:
        scenario: The suite's name for it.
        passed: How many checks passed.
        faults: What the others say, one line each.
        done: Whether the driver came to its end.
        folder: Where the suite left its files.
    """

    scenario: str
    passed: int
    faults: tuple[str, ...]
    done: bool
    folder: Path


@attrs.frozen
class Row:
    """One scenario held against the table.

    Attributes:
        scenario: The suite's name for it.
        passed: How many checks passed; 0 where it was not run.
        failed: How many failed.
        asked: How many have to pass; `None` where the table does not know the scenario.
        required: Whether it decides the exit code.
        apart: What it wants that is not offered; empty where it is offered in full.
        reasons: Why it does not hold; empty where it does.
        outcome: What was filed, if anything.
    """

    scenario: str
    passed: int
    failed: int
    asked: int | None
    required: bool
    reasons: tuple[str, ...]
    outcome: Outcome | None
    apart: str = ""

    @property
    def holds(self) -> bool:
        """Whether it reaches the table."""
        return not self.reasons


def read_bars(path: Path = BAR) -> dict[str, Bar]:
    """Read the table: requirement set to what it asks for.

    Raises:
        UnreadableError: A number is not positive, or a scenario stands in both halves.
    """
    bars: dict[str, Bar] = {}
    for revision, halves in tomllib.loads(path.read_text(encoding="utf-8")).items():
        bar = bars[revision] = Bar(**halves)
        apart = {scenario: one.checks for scenario, one in bar.apart.items()}
        for scenario, number in [*bar.required.items(), *bar.listed.items(), *apart.items()]:
            if type(number) is not int or number < 1:
                raise UnreadableError(f"{path.name}: {revision} {scenario} asks for {number!r} checks")
        both = sorted(
            (bar.required.keys() & bar.listed.keys())
            | (apart.keys() & (bar.required.keys() | bar.listed.keys()))
        )
        if both or not bar.required:
            raise UnreadableError(f"{path.name}: {revision} requires and lists {both}")
    return bars


def read_outcomes(folder: Path, *, prefix: str = "", driven: bool = True) -> dict[str, Outcome]:
    """Read what the suite left in its output folder: one folder per scenario, whose name ends with the time.

    Args:
        folder: The output folder.
        prefix: What the name of each folder begins with.
        driven: Whether a driver played it, which says so at its end.

    Raises:
        UnreadableError: A scenario was run twice, or its checks are no list of objects.
    """
    found: dict[str, Outcome] = {}
    for file in sorted(folder.rglob("checks.json")):
        scenario = _STAMP.sub("", file.parent.relative_to(folder).as_posix()).removeprefix(prefix)
        if scenario in found:
            raise UnreadableError(f"{folder}: {scenario} was run twice")
        found[scenario] = _outcome(scenario, file, driven=driven)
    return found


def _outcome(scenario: str, file: Path, *, driven: bool) -> Outcome:
    try:
        checks: Any = json.loads(file.read_text(encoding="utf-8"))
        passed = sum(check["status"] == "SUCCESS" for check in checks)
        faults = tuple(_fault(check) for check in checks if check["status"] in {"FAILURE", "WARNING"})
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableError(f"{file}: {type(error).__name__}: {error}") from error
    said = file.with_name("stdout.txt")
    lines = said.read_text(encoding="utf-8").splitlines() if said.exists() else []
    return Outcome(scenario, passed, faults, not driven or lines[-1:] == [DONE], file.parent)


def _fault(check: Mapping[str, Any]) -> str:
    said = check.get("errorMessage") or check.get("description") or ""
    details = check.get("details")
    if not check.get("errorMessage") and details:
        said = f"{said} {json.dumps(details)[:600]}"
    return f"{check['status']} {check.get('id')}: {said}"


def judge(bar: Bar, outcomes: Mapping[str, Outcome], only: Iterable[str] | None = None) -> list[Row]:
    """Hold what was filed against what is asked for, in the table's order.

    Args:
        bar: What the requirement set asks for.
        outcomes: What was filed, by scenario.
        only: The scenarios that were asked for; all of the table and of the outcomes when absent.
    """
    names = (
        list(dict.fromkeys([*bar.required, *bar.apart, *bar.listed, *outcomes]))
        if only is None
        else list(only)
    )
    return [_row(name, bar, outcomes.get(name)) for name in names]


def _row(scenario: str, bar: Bar, outcome: Outcome | None) -> Row:
    required = scenario not in bar.listed
    asked = bar.required.get(scenario, bar.listed.get(scenario))
    apart = bar.apart.get(scenario)
    why = ""
    if apart is not None:
        asked, why = apart.checks, apart.why
    reasons = []
    if asked is None:
        reasons.append("it is not in the table")
    if outcome is None:
        return Row(scenario, 0, 0, asked, required, (*reasons, "it was not run"), None, why)
    if outcome.faults and apart is None:
        reasons.append(f"{len(outcome.faults)} checks failed")
    if asked is not None and outcome.passed < asked:
        reasons.append(f"{outcome.passed} checks passed, fewer than {asked}")
    if not outcome.done:
        reasons.append("the driver did not come to its end")
    if apart is not None and not outcome.faults:
        reasons.append("it holds in full, so it is required and does not stand apart")
    return Row(scenario, outcome.passed, len(outcome.faults), asked, required, tuple(reasons), outcome, why)


def table(revision: str, rows: Iterable[Row]) -> str:
    """Write the rows of one requirement set as lines for a terminal, with the totals."""
    rows = list(rows)
    width = max(len(row.scenario) for row in rows)
    lines = [f"{revision:{width}}  passed  failed  asked"]
    for row in rows:
        note = "" if row.holds else "  " + "; ".join(row.reasons)
        if not row.required:
            note = "  listed" if row.holds else f"  listed: {'; '.join(row.reasons)}"
        elif row.apart and row.holds:
            note = f"  apart: {row.apart}"
        asked = "-" if row.asked is None else row.asked
        lines.append(f"{row.scenario:{width}}  {row.passed:6}  {row.failed:6}  {asked:>5}{note}")
    for name in ("required", "all"):
        chosen = [row for row in rows if name == "all" or (row.required and not row.apart)]
        passed, failed = sum(row.passed for row in chosen), sum(row.failed for row in chosen)
        held = sum(row.holds for row in chosen)
        lines.append(
            f"{name:{width}}  {passed:6}  {failed:6}  {sum(row.asked or 0 for row in chosen):5}"
            f"  {held} of {len(chosen)} scenarios hold"
        )
    return "\n".join(lines)
