"""The examples of the runtime run, and say what they promise to."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def said_by(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_one_agent_for_two_tenants(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("tenants.py", capsys)
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
        "recorded: {'customer': 'ann', 'card': 'REDACTED'}",
        "secrets on the record: 0",
    ]


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
