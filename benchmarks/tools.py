"""What the door adds to a call of a tool of the host's own, in one process.

    python benchmarks/tools.py [--rounds N] [--seconds S] [--all]

Exit code 1 when something costs more than it is promised to. Figures are microseconds of this thread's own
time, the best of the rounds. What the door may cost is told by what one of trio's cancel scopes costs in the
same run, 5 us where the promise of 25 us was made: a busy or a slow machine is not what is asked about.
`--all` runs the figures of `shown.py` and `scrub.py` as well.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import trio
from shown import Figure, _each, _each_awaited

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
SCOPES = 5
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


async def dispatching(rounds: int, seconds: float) -> list[Figure]:
    """A call through the door, beside the function by itself."""
    direct: list[float] = []
    scope: list[float] = []
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        direct.append(await _each_awaited(lambda: function(ARGS, None), seconds))
        scope.append(_each(_scoped, seconds))
        for what, (door, tool) in doors().items():

            def call(door: Door = door, tool: Any = tool) -> Any:
                return door.dispatch(Asking(name="find", tool=tool, args=ARGS, identity=WHO))

            assert (await call()).text == "fine"
            taken.setdefault(what, []).append(await _each_awaited(call, seconds))
    figures = [
        Figure("the function by itself", min(direct), "us"),
        Figure("one of trio's cancel scopes", min(scope), "us"),
    ]
    for what, times in taken.items():
        promised = SCOPES * min(scope) if "filled" in what else None
        figures.append(Figure(f"{what}, over it", min(times) - min(direct), "us", promised))
    return figures


def validating(rounds: int, seconds: float) -> list[Figure]:
    """Judging arguments, beside what the validator itself takes."""
    compiled = Compiled(SCHEMA)
    args = {**ARGS, "tenant_id": "acme"}
    alone, judged = [], []
    for _ in range(rounds):
        alone.append(_each(lambda: compiled.validator.is_valid(args), seconds))
        judged.append(_each(lambda: compiled.allows(args), seconds))
    return [
        Figure("the validator by itself", min(alone), "us"),
        Figure("judging arguments, over it", min(judged) - min(alone), "us", 1.0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    figures = [
        *trio.run(dispatching, options.rounds, options.seconds),
        *validating(options.rounds, options.seconds),
    ]
    for figure in figures:
        promised = "" if figure.promised is None else f"   promised {figure.promised:.3g}"
        sign = "" if figure.kept else "   NOT KEPT"
        print(f"{figure.what:<50} {figure.measured:8.2f} {figure.unit}{promised}{sign}", flush=True)
    kept = all(figure.kept for figure in figures)
    if options.all:
        for other in ("shown.py", "scrub.py"):
            done = subprocess.run([sys.executable, str(Path(__file__).with_name(other))], check=False)
            kept = kept and done.returncode == 0
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
