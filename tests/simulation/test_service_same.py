"""The first run with a service is the same as any later one: also in a process that had not loaded one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TWICE = """
from tests.simulation.driver import run_story
from tests.simulation.making_service import with_service
from tests.simulation.steps import Story
from tests.simulation.world import Person, ServerSpec, World
world = World(people=(Person(name="a", tenant="t", principal="a"),), servers=(ServerSpec(name="files"),))
story = next(told for seed in range(99) if (told := with_service(Story(world, (), seed))).world.service)
print(run_story(story).digest == run_story(story).digest)
"""


def test_the_first_run_of_a_process_is_as_the_second() -> None:
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, cwd=root, timeout=60, check=False
    )
    assert told.stdout.strip() == "True", told.stderr
