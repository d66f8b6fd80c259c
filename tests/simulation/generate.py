"""Stories by chance: `generate(seed)` is the same story for the same seed, everywhere.

A story is a world (`making.py`), a plain workload over it, and some motifs (`motifs_*.py`): short series of
steps that belong together and aim at something, such as a list that changes between two calls, or a server
that is away while a key opens. Independent faults are strewn over it. Which motifs and faults a story knows
at all is drawn first (swarm testing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.making import Swarm, make_world
from tests.simulation.making_door import with_door
from tests.simulation.making_service import with_service
from tests.simulation.motifs import Scene
from tests.simulation.motifs_answers import ANSWER_MOTIFS
from tests.simulation.motifs_deep import DEEP_MOTIFS
from tests.simulation.motifs_host import HOST_MOTIFS
from tests.simulation.motifs_meets import MEETING_MOTIFS
from tests.simulation.motifs_server import SERVER_MOTIFS
from tests.simulation.motifs_work import WORK_MOTIFS, workload
from tests.simulation.steps import Story
from tests.simulation.strewn import strewn

if TYPE_CHECKING:
    from tests.simulation.steps import Step

# Motifs that need a feature which many worlds lack, or have many variants, and how many stories know them;
# others are known by 0.3.
OFTEN: Final = {
    "credential_changes": 0.6, "wants_more": 0.5, "subscriptions": 0.5, "broken_off": 0.5, "unreadable": 0.5,
    "taken_up_again": 0.7, "reconfigures": 0.6, "meets": 0.6, "beside_tools": 0.7, "subscribed": 0.5,
    "streams": 0.45, "asks_by_itself": 0.4, "many_questions": 0.4,
}  # fmt: skip

# How long the busy part of a story takes, and how often so: some things need contention, others time.
SPANS: Final = {0.3: 2, 3.0: 4, 20.0: 3, 150.0: 2, 900.0: 0.5}


def generate(seed: int, size: float = 1.0) -> Story:
    """Make a story.

    Args:
        seed: Decides it, together with `size`.
        size: 1 is a story of some thirty steps.
    """
    swarm = Swarm(seed)
    world = make_world(swarm)
    span = swarm.random.choices(list(SPANS), list(SPANS.values()))[0]
    scene = Scene(swarm, world, span)
    steps: list[Step] = workload(scene, max(2, int(swarm.random.gauss(9, 3) * size)))
    motifs = [*WORK_MOTIFS, *HOST_MOTIFS, *SERVER_MOTIFS, *ANSWER_MOTIFS, *DEEP_MOTIFS, *MEETING_MOTIFS]
    known = [motif for motif in motifs if swarm.has(motif.__name__, OFTEN.get(motif.__name__, 0.3))]
    known = known or [swarm.pick(motifs)]
    for _ in range(max(1, int(swarm.random.gauss(4, 2) * size))):
        steps += swarm.pick(known)(scene)
    if swarm.has("meetings"):
        for _ in range(max(1, round(size))):
            steps += swarm.pick(MEETING_MOTIFS)(scene)
    steps += strewn(scene, max(0, int(swarm.random.gauss(4, 3) * size)))
    steps.sort(key=lambda step: step.at)  # stable: steps of one motif that fall together stay in order
    return with_service(with_door(Story(world, tuple(steps), seed), size), size)
