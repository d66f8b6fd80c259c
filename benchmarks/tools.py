"""What the door adds to a call of a tool of the host's own, in one process.

    python benchmarks/tools.py [--rounds N] [--seconds S] [--all]

Exit code 1 when something costs more than it may. Figures are microseconds of this thread's own time, the
best of the rounds. The door may cost 25 us; on a machine on which one of trio's cancel scopes takes more than
6 us in the same run, as much more as that: a slow machine is not what is asked about. `--all` shows the
figures of `shown.py`, `scrub.py` and `artifacts.py` as well, each beside its limit.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import artifacts
import scrub
import shown
import trio
from figures import Figure, each, each_awaited, tell

from afpool import Identity, Seams
from afpool._base.compiled import Compiled
from afpool.tools import define_tool, from_identity, host_filled
from afpool.tools._asking import Asking
from afpool.tools._dispatch import Door

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "tags": {"type": "array", "items": {"type": "string"}},
        "tenant_id": {"type": "string"},
    },
    "required": ["query", "tenant_id"],
    "additionalProperties": False,
}
ARGS = {"query": "what the weather will be", "limit": 10, "tags": ["a", "b"]}
DOOR = 25.0
SCOPE = 6.0
WHO = Identity(tenant="acme", principal="alice")


async def function(_args: Any, _ctx: Any) -> str:
    await trio.lowlevel.checkpoint()  # as nearly every tool does that is asynchronous for a reason
    return "fine"


def doors() -> dict[str, tuple[Door, Any]]:
    events: list[Any] = []

    def sink(event: Any) -> None:
        events.append(event)
        if len(events) > 1_000:
            events.clear()

    seams = Seams(now=trio.lowlevel.current_clock().current_time)
    tool = define_tool(execute=function, name="find", input_schema={**SCHEMA, "required": ["query"]})
    filled = host_filled(
        define_tool(execute=function, name="find", input_schema=SCHEMA),
        {"tenant_id": from_identity("tenant")},
    )
    return {
        "a tool of the host's own, validated": (Door(seams=seams), tool),
        "the same, recorded": (Door(seams=seams, on_event=sink), tool),
        "the same, with an argument filled in": (Door(seams=seams, on_event=sink), filled),
    }


def _scoped() -> None:
    with trio.CancelScope(deadline=trio.current_time() + 60):  # noqa: ASYNC100 -- it is what is measured
        pass


def limit_of_the_door(scope: float) -> float:
    """What the door may cost on a machine on which a cancel scope takes so many microseconds."""
    return DOOR * max(1.0, scope / SCOPE)


async def dispatching(rounds: int, seconds: float) -> list[Figure]:
    """A call through the door, beside the function by itself."""
    direct: list[float] = []
    scope: list[float] = []
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        direct.append(await each_awaited(lambda: function(ARGS, None), seconds))
        scope.append(each(_scoped, seconds))
        for what, (door, tool) in doors().items():

            def call(door: Door = door, tool: Any = tool) -> Any:
                return door.dispatch(Asking(name="find", tool=tool, args=ARGS, identity=WHO))

            assert (await call()).text == "fine"
            taken.setdefault(what, []).append(await each_awaited(call, seconds))
    figures = [
        Figure("the function by itself", min(direct), "us"),
        Figure("one of trio's cancel scopes", min(scope), "us"),
    ]
    for what, times in taken.items():
        promised = limit_of_the_door(min(scope)) if "filled" in what else None
        figures.append(Figure(f"{what}, over it", min(times) - min(direct), "us", promised))
    return figures


def validating(rounds: int, seconds: float) -> list[Figure]:
    """Judging arguments, beside what the validator itself takes."""
    compiled = Compiled(SCHEMA)
    args = {**ARGS, "tenant_id": "acme"}
    alone, judged = [], []
    for _ in range(rounds):
        alone.append(each(lambda: compiled.validator.is_valid(args), seconds))
        judged.append(each(lambda: compiled.allows(args), seconds))
    return [
        Figure("the validator by itself", min(alone), "us"),
        Figure("judging arguments, over it", min(judged) - min(alone), "us", 1.0),
    ]


def measure(rounds: int, seconds: float) -> list[Figure]:
    """Give all figures of the door."""
    return [*trio.run(dispatching, rounds, seconds), *validating(rounds, seconds)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each window")
    parser.add_argument("--all", action="store_true", help="show also what stands around the door")
    parser.add_argument("--puts", type=float, default=1.0, help="seconds of each measurement of puts")
    parser.add_argument("--listed", type=int, default=10_000, help="artifacts in the long list")
    parser.add_argument("--redis", action="store_true", help="measure a Redis as well")
    options = parser.parse_args()
    rounds, seconds = options.rounds, options.seconds
    figures = measure(rounds, seconds)
    if options.all:
        figures += shown.measure(rounds, seconds)
        figures += scrub.measure(rounds)
        figures += artifacts.measured(
            min(rounds, 5), seconds=options.puts, listed=options.listed, with_redis=options.redis
        )
    return tell(figures)


if __name__ == "__main__":
    sys.exit(main())
