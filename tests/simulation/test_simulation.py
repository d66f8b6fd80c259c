"""Stories that once broke a rule hold it now; fresh ones are run, and the same seed is the same run.

Many more are run by `make simulate`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.simulation import batches
from tests.simulation.batches import WORKER, Tally
from tests.simulation.counts import all_codes, missing, table, wanted
from tests.simulation.generate import generate
from tests.simulation.judging import Judgement, judge, rule
from tests.simulation.simulate import STORIES, main
from tests.simulation.steps import Story

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.json")), ids=lambda path: path.stem)
def test_a_story_that_once_broke_a_rule(path: Path) -> None:
    story = Story.from_json(json.loads(path.read_text()))
    assert story.note, "a kept story says what it shows"
    judged = judge(story)
    assert list(judged.violations) == []
    assert judged.counts["calls"] or judged.counts["door calls"]


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_fresh_stories(first: int) -> None:
    for seed in range(first, first + 10):
        judged = judge(generate(seed))
        assert list(judged.violations) == [], f"see simulate.py --seed {seed}"


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    seeds = range(100, 108)
    here = [judge(generate(seed)).digest for seed in seeds]
    assert all(here)
    assert [judge(generate(seed)).digest for seed in seeds[:2]] == here[:2]
    command = [sys.executable, str(WORKER), str(seeds[0]), str(len(seeds)), "1"]
    for hashed in ("1", "2"):
        environment: Mapping[str, str] = {**os.environ, "PYTHONHASHSEED": hashed}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=100, check=True
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["digest"] for line in lines if "digest" in line] == here
        assert not any("differs" in line for line in lines)


# ------------------------------------------------------------------------------------------ the command


def test_a_run_is_added_up_kept_and_taken_up_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    assert main(["6", "--from", "200", "--jobs", "2", "--resume", str(kept)]) == 0
    said = capsys.readouterr().out
    assert "seeds 200 to 205" in said
    assert "6 worlds in" in said
    first = Tally.from_json(json.loads(kept.read_text()))
    assert first.done == set(range(200, 206))
    assert first.counts["calls"] > 0
    assert main(["8", "--resume", str(kept)]) == 0
    second = Tally.from_json(json.loads(kept.read_text()))
    assert second.done == set(range(200, 208))
    assert second.counts["calls"] > first.counts["calls"]
    assert "seeds 200 to 207" in capsys.readouterr().out


def test_where_a_process_dies_the_rest_of_its_batch_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, os, sys\n"
        "start, count = int(sys.argv[1]), int(sys.argv[2])\n"
        "for seed in range(start, start + count):\n"
        "    if seed in (203, 205):\n"
        "        os._exit(9)\n"
        "    world = {'seed': seed, 'violations': [], 'counts': {'calls': 1}, 'digest': 'd', 'seconds': 0}\n"
        "    print(json.dumps(world), flush=True)\n"
    )
    monkeypatch.setattr(batches, "WORKER", worker)
    kept = tmp_path / "kept.json"
    assert main(["6", "--from", "200", "--jobs", "1", "--no-shrink", "--resume", str(kept)]) == 1
    tally = Tally.from_json(json.loads(kept.read_text()))
    assert tally.done == set(range(200, 206))
    died = ["died with status 9"]
    assert (tally.counts["calls"], tally.failures) == (4, {203: died, 205: died})


def test_what_breaks_a_rule_is_shown_and_ends_with_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.simulation import judging

    def broken(story: Story, *, lines: bool = False) -> Judgement:
        bad = ("I4 broken on purpose",) if any(step.at > 0.5 for step in story.steps) else ()
        return Judgement(story.seed, bad, {"calls": 1}, "digest", 0.0)

    monkeypatch.setattr(judging, "judge", broken)
    assert main(["--seed", "3", "--shrink"]) == 1
    said = capsys.readouterr().out
    assert "VIOLATION I4 broken on purpose" in said
    assert "steps became 1 in" in said


def test_one_seed_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "200"]) == 0
    said = capsys.readouterr().out
    assert str(generate(200)) in said
    assert judge(generate(200)).digest in said


# ------------------------------------------------------------------------------------------ counting


def test_what_should_be_seen_is_read_from_the_code() -> None:
    assert {"stale-tools", "overloaded", "tool-error", "input-required"} <= set(all_codes())
    assert not {"not-owner", "lease-returned-twice", "wants-refused"} & set(all_codes())
    assert "afpool-error" not in all_codes()
    counts = dict.fromkeys(wanted(), 1)
    assert missing(counts) == []
    del counts["outcome:stale-tools"]
    counts["fault:CutLink"] = 0
    assert missing(counts) == ["outcome:stale-tools", "fault:CutLink"]


def test_counts_are_shown_by_family() -> None:
    said = table({"calls": 3, "outcome:ok": 2, "outcome:cancelled": 1}).splitlines()
    assert said[0].split() == ["3", "calls"]
    assert said[1] == "outcome (3):"
    assert said[2].split() == ["2", "ok", "1", "cancelled"]


def test_a_tally_survives_its_file() -> None:
    tally = Tally(start=5)
    tally.add(Judgement(7, ("I1 x",), {"calls": 2}, "d", 1.0))
    tally.add(Judgement(8, (), {"calls": 1}, "d", 1.0))
    tally.add(Judgement(11, (), {}, "d", 1.0))
    again = Tally.from_json(json.loads(json.dumps(tally.to_json())))
    assert again == tally
    assert again.failures == {7: ["I1 x"]}
    assert again.per_core_minute == 60.0
    assert rule("I1 x y") == "I1"
