"""The examples of the runtime run, and say what they promise to."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = Path(__file__).parents[2] / "examples"


def said_by(name: str, capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *argv])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def serves_two_tenants(said: Sequence[str]) -> None:
    """What the example promises, whoever serves its CRM."""
    sees = "the model sees {'collect': ['customer'], 'report': ['rows'], 'orders': ['card', 'customer']}"
    reads = 'the model reads {"tenant": "%s", "asked_with": "[host-filled]", "orders": %s}'
    assert said == [
        "alice of acme:",
        sees,
        reads % ("acme", "[120, 80, 45]"),
        "ERR_HOST_FILLED_ARGUMENT",
        "3 orders, 245 in all",
        "bob of globex:",
        sees,
        reads % ("globex", "[7]"),
        "ERR_HOST_FILLED_ARGUMENT",
        "1 orders, 7 in all",
        "another tenant's dataset: wants-refused",
        "connections to the CRM: 2",
        "recorded: {'customer': 'ann', 'card': 'REDACTED'}",
        "secrets on the record: 0",
    ]


def test_one_agent_for_two_tenants(capsys: pytest.CaptureFixture[str]) -> None:
    serves_two_tenants(said_by("tenants.py", capsys))


def test_a_run_waits_for_consent_and_is_gone_on_with_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("consent.py", capsys)
    asked = (
        "the model reads: The tool send needs somebody's authorization for 'mail' first; it was not run. The "
        "user has been asked; call again once it is given"
    )
    assert said == [
        "alice, please consent to mail at https://login.example/authorize?state=8c1f",
        asked,
        "the address is in what was saved: False",
        "True, ok: sent to bob",
        "refused: the checkpoint is none of this runtime's: its proof does not hold",
    ]


def test_a_token_and_a_tenant_that_no_model_sees(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("host_filled.py", capsys)
    sees = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
    asked = {"year": 2026, "token": "[host-filled]", "tenant_id": "acme"}
    refused = (
        "ERR_HOST_FILLED_ARGUMENT, not-sent: the host fills %s of the tool 'invoices' itself, and nobody "
        "else can set it; the tool was not run; call it again without"
    )
    assert said == [
        "the model sees: " + json.dumps(sees),
        "it reads: " + json.dumps({"asked": asked, "invoices": ["acme-2026-07"]}),
        "the server got: acme True",
        refused % "'tenant_id'",
        refused % "'token' (sent as 'Token')",
        "tokens fetched: 1 - calls that ran: 1",
        "recorded: [{'year': 2026}, {'year': 2026, 'tenant_id': '[host-filled]'}]",
        "tokens on the record: 0",
    ]


def test_a_report_about_a_dataset_of_another_tool(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("report.py", capsys)
    refused = (
        'wants-refused, not-sent: The tool "total" was not run: an artifact argument did not resolve. %s, '
        'given as "rows", named nothing that was stored for this conversation at the time of the call: it '
        "had expired, was swept, or never was a ref from here. "
    )
    assert said == [
        "the model passes: string",
        "the model reads a reference of 26 characters",
        "the report: 10000 rows, 245000 euros in all",
        refused % "art_..." + 'No artifact of kind "dataset/sales" was stored then; produce one first.',
        "invalid-arguments, not-sent: The arguments for total are invalid, and the tool was not run:",
        "- rows: expected string, got array",
        "Correct them and call again.",
        refused % f"art_{'0' * 22}"
        + 'Of kind "dataset/sales" there were, newest first: art_... ("sales of 2026", 204921 bytes).',
        "calls that ran: 1",
        "recorded: 1 stored, 1 used, 204921 bytes",
    ]


def test_what_a_record_may_hold_of_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("redaction.py", capsys)
    failure = "The tool open_door failed (PermissionError): the lock did not open"
    assert said == [
        "the model reads: booked Ulm, paid with a card that ends in 1111",
        "the server got all of it: True",
        "a refusal says: - city: expected string, got integer",
        f"a failure says: {failure} - the PIN in its traceback: False",
        "by hand: {'city': 'Ulm'} ('card', 'door_secret')",
        "recorded: {'city': 'Ulm', 'card': {'number': 'REDACTED', 'month': 3}, 'door_secret': 'REDACTED'}",
        "secrets on the record: 0",
    ]


def test_no_example_is_left_out() -> None:
    """Each is run by a test, here or beside what it shows, and is linked from a page."""
    root = EXAMPLES.parent
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (root / "tests").rglob("test_*.py"))
    pages = "\n".join(
        file.read_text(encoding="utf-8") for file in [root / "README.md", *(root / "docs").glob("*.md")]
    )
    for example in EXAMPLES.glob("*.py"):
        assert f'"{example.name}"' in tests or f"examples.{example.stem}" in tests, example.name
        assert f"examples/{example.name}" in pages, example.name
