"""One story run and judged: what it broke, what was counted, and its digest.

A run that takes too much real time and a simulation that raises are violations like any other: the first word
of a violation is its rule, here `hang` and `raised`.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.steps import Story


@attrs.frozen
class Judgement:
    """What became of one story.

    Attributes:
        seed: Of the story.
        violations: One line each; its first word is the rule.
        counts: See `counts.py`.
        digest: Of everything that happened, in order.
        seconds: Of this process's time on a core.
        lines: What happened, for people.
    """

    seed: int
    violations: tuple[str, ...]
    counts: Mapping[str, int]
    digest: str
    seconds: float
    lines: tuple[str, ...] = attrs.field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, without the lines."""
        return {
            "seed": self.seed,
            "violations": list(self.violations),
            "counts": dict(self.counts),
            "digest": self.digest,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Judgement:
        """The inverse of `to_json`."""
        return cls(
            plain["seed"], tuple(plain["violations"]), plain["counts"], plain["digest"], plain["seconds"]
        )


def rule(violation: str) -> str:
    """The rule that a violation breaks."""
    return violation.split(maxsplit=1)[0]


def judge(story: Story, *, lines: bool = False) -> Judgement:
    """Run a story; `lines` for people are made only where they are asked for."""
    from tests.simulation.driver import run_story
    from tests.simulation.kernel import RanTooLong

    started = time.process_time()
    try:
        report = run_story(story)
    except RanTooLong as error:
        return _broken(story, f"hang {error}", started)
    except Exception as error:
        text = "".join(traceback.format_exception(error)).rstrip()
        return _broken(story, f"raised {type(error).__name__}: {error}\n{text}", started)
    return Judgement(
        story.seed,
        tuple(report.violations),
        Counter(report.counts),
        report.digest,
        time.process_time() - started,
        tuple(report.lines) if lines else (),
    )


def _broken(story: Story, violation: str, started: float) -> Judgement:
    return Judgement(story.seed, (violation,), {}, "", time.process_time() - started)


def breaks(story: Story, rules: frozenset[str]) -> bool:
    """Whether a story breaks one of these rules."""
    return any(rule(violation) in rules for violation in judge(story).violations)
