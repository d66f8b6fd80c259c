"""What redaction and arguments by reference add to a call, in one process, one after the other in rounds.

    python benchmarks/shown.py [--rounds N] [--seconds S]

Exit code 1 when something costs more than it is promised to. Figures are microseconds of this thread's own
time, the best of the rounds: what else the machine does is not what is asked about.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING, Any

import trio
from figures import Figure, each, each_awaited, tell

from afpool import Identity, Tool
from afpool.artifacts._types import Artifact, ArtifactMeta
from afpool.tools import RedactionPolicy, redacted, resolve_wants, shown_args_of
from afpool.tools._derive import derive
from afpool.tools._pattern_match import Patterns, Work
from afpool.tools._pattern_syntax import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

PATTERNS = ["(?i)api.?key", "secret", "(?i)token$", "^x-", "pass(?:word|wd)?"]
ARGS = {"city": "Ulm", "days": 3, "note": "what the weather will be"}
SCOPE = Identity(tenant="acme", principal="alice")
META = ArtifactMeta(
    ref=f"art_{7:022d}", kind="dataset/rows", media_type="application/json", bytes=40, created_at=1.0
)


class Plain(Tool):
    """A tool that is never run."""

    name = "plain"
    description = "does nothing"
    input_schema: Mapping[str, Any] = {}


def redaction(rounds: int, seconds: float) -> list[Figure]:
    """Redaction that hides nothing, that hides something, and patterns on names that nobody has seen."""
    plain = derive(Plain())
    tool = redacted(Plain(), RedactionPolicy(keys=["password"], patterns=PATTERNS, fields={"auth": ["pin"]}))
    deep = redacted(Plain(), RedactionPolicy(keys=["password"], patterns=PATTERNS, deep=True))
    hidden = {**ARGS, "apiKey": "s"}
    nested = {"rows": [{"id": n, "name": "x", "value": n} for n in range(1_000)]}
    assert shown_args_of(tool, ARGS) is ARGS
    assert shown_args_of(deep, nested) is nested
    automaton = Patterns([compile_pattern(pattern) for pattern in PATTERNS])
    name = "a_name_that_nobody_has_seen_before"
    kinds: dict[str, Callable[[], object]] = {
        "no policy": lambda: shown_args_of(plain, ARGS),
        "hides nothing": lambda: shown_args_of(tool, ARGS),
        "hides one": lambda: shown_args_of(tool, hidden),
        "deep, 4,000 places": lambda: shown_args_of(deep, nested),
        "five patterns, a new name": lambda: automaton.search(name, Work(1_000_000)),
    }
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, run in kinds.items():
            taken[kind].append(each(run, seconds))
    best = {kind: min(values) for kind, values in taken.items()}
    return [
        Figure("a tool without a policy", best["no policy"], "us"),
        Figure("5 patterns, 3 arguments, nothing hidden", best["hides nothing"], "us", 2.0),
        Figure("the same with one hidden", best["hides one"], "us", 5.0),
        Figure("at every depth, for each of 4,000 places", best["deep, 4,000 places"] / 4_000, "us", 4.0),
        Figure("5 patterns on a name of 34 characters", best["five patterns, a new name"], "us"),
    ]


class Memory:
    """A store that decodes anew for every answer and does nothing else."""

    def __init__(self, data: Any) -> None:
        self._raw = json.dumps(data)

    async def get(self, *_: object) -> Artifact:
        await trio.lowlevel.checkpoint()
        return Artifact(META, json.loads(self._raw))


async def _wants(rounds: int, seconds: float) -> list[Figure]:
    store: Any = Memory([{"id": n} for n in range(10)])
    args = {"title": "Q1", "rows": META.ref}
    wants = {"rows": META.kind}
    schema = {"properties": {"rows": {"type": "string"}}, "required": ["rows"]}
    got: list[float] = []
    resolved: list[float] = []

    alone: list[float] = []

    def resolve(deadline: float | None) -> Awaitable[object]:
        return resolve_wants(store, SCOPE, "report", wants, args, schema, deadline=deadline)

    for _ in range(rounds):
        got.append(await each_awaited(lambda: store.get(SCOPE, META.ref), seconds))
        resolved.append(await each_awaited(lambda: resolve(math.inf), seconds))
        alone.append(await each_awaited(lambda: resolve(None), seconds))
    return [
        Figure("the store's own get, with the copy", min(got), "us"),
        Figure("resolving one ref beside that, in a door", min(resolved) - min(got), "us", 10.0),
        Figure("the same by itself, with a limit of its own", min(alone) - min(got), "us"),
    ]


def wants(rounds: int, seconds: float) -> list[Figure]:
    """Redeeming a ref from memory, beside the store's own work."""
    return trio.run(_wants, rounds, seconds)


def measure(rounds: int, seconds: float) -> list[Figure]:
    """Give all figures."""
    return [*redaction(rounds, seconds), *wants(rounds, seconds)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.02)
    options = parser.parse_args()
    return tell(measure(options.rounds, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
