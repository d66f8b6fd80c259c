"""The example of the ticket counter keeps what it says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.testing import run_turns

EXAMPLE = Path(__file__).parents[2] / "examples" / "actors_counter.py"


@pytest.fixture
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE), run_name="example")


def test_three_a_second(example: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    tickets = trio.run(example["run"], 10, clock=MockClock(autojump_threshold=0))
    assert [number for number, _ in tickets] == list(range(1, 11))
    assert [round(second) for _, second in tickets] == [0] * 3 + [1] * 3 + [2] * 3 + [3]
    trio.run(example["main"], clock=MockClock(autojump_threshold=0))
    assert capsys.readouterr().out.splitlines()[-1] == "ticket 10 after 3.0 s"


def test_its_machine_without_trio(example: dict[str, Any]) -> None:
    take, tick = example["Take"], example["Tick"]
    counter = example["TicketCounter"](rate=1, seats=2)
    first, second, gone, full = run_turns(counter, [take(0.0), take(0.1), take(0.2), take(0.3)])
    assert first.reply is not None
    assert first.reply.result() == 1
    assert second.effects == (example["WakeAt"](1.0),)
    assert gone.effects == ()
    assert type(full.error) is example["TooManyWaiting"]
    assert gone.reply is not None
    gone.reply.abandon()
    third, last = run_turns(counter, [tick(1.0), tick(2.0)])
    assert second.reply is not None
    assert second.reply.result() == 2
    assert third.effects[1:] == (example["WakeAt"](2.0),)
    assert last.effects == ()
    assert counter.snapshot() == {"issued": 2, "left": 1, "waiting": 0}
