"""What filling arguments and taking secrets out of results costs, in one process, in rounds.

    python benchmarks/scrub.py [--rounds N]

Exit code 1 when something is slower than promised. Times are this thread's own processor time, the best of
the rounds: what else the machine does is not what is asked about.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import trio
from figures import Figure, tell

from afpool import Identity, Secret, Tool, ToolContext, ToolResult, bearer
from afpool.tools import from_credential, from_identity, host_filled
from afpool.tools._schema_cut import cut_schema
from afpool.tools._scrub import Scrubber

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECRETS = (
    "sk-live-51HxA9aZzQ0pLkJhGfDsAqWeRtYuIoP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.dGhpcyBpcyBubyByZWFsIHNpZ25hdHVyZQ",
    "p4ss/w0rd+of=ann",
)
ANSWER = ToolResult(b'{"content":[{"type":"text","text":"found nobody of that name"}]}', "c")


class Answers(Tool):
    """A tool that answers at once."""

    name = "search"
    description = "searches"
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "token": {"type": "string"}, "tenant": {"type": "string"}},
        "required": ["q", "token"],
    }

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:  # noqa: ARG002 -- it just answers
        return ANSWER


def rows(number: int, **extra: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": at,
            "name": f"user {at}",
            "email": f"u{at}@example.com",
            "tags": ["a", "b"],
            "ok": True,
            **extra,
        }
        for at in range(number)
    ]


def documents() -> dict[str, tuple[bytes, float | None]]:
    """Structured results of about 1 MB, and how fast each has to go."""
    plain = rows(11_000)
    few = [{**row, "note": SECRETS[row["id"] % 3]} if row["id"] % 500 == 0 else row for row in plain]
    many = [{**row, "note": SECRETS[row["id"] % 3]} if row["id"] % 10 == 0 else row for row in plain]
    prose = {"content": [{"type": "text", "text": 'He said "no".\nThen he left.\n' * 33_000}]}
    return {
        "no secret": (json.dumps(plain).encode(), 200.0),
        "no secret, 16 MB": (json.dumps(plain * 16).encode(), 200.0),
        "no secret, text with line breaks": (json.dumps(prose).encode(), None),
        "no secret, slashes escaped": (
            json.dumps(rows(9_000, url="a/b/c")).replace("/", "\\/").encode(),
            None,
        ),
        "no secret, all beyond ASCII escaped": (json.dumps(rows(9_000, city="Zürich, 東京")).encode(), None),
        "22 secrets": (json.dumps(few).encode(), 40.0),
        "1,100 secrets": (json.dumps(many).encode(), 40.0),
        "22 secrets, slashes escaped": (json.dumps(few).replace("/", "\\/").encode(), 40.0),
    }


def once(doing: Callable[[], object], times: int = 1) -> float:
    """Give the seconds of this thread that one doing takes."""
    began = time.thread_time()
    for _ in range(times):
        doing()
    return (time.thread_time() - began) / times


def best(doings: Mapping[str, Callable[[], object]], rounds: int, times: int = 1) -> dict[str, float]:
    """Give the seconds of each doing, the best of the rounds; in each round all have their turn."""
    found = dict.fromkeys(doings, float("inf"))
    for _ in range(rounds):
        for name, doing in doings.items():
            found[name] = min(found[name], once(doing, times))
    return found


def scrubbing(rounds: int) -> list[Figure]:
    """How fast results of a megabyte are gone through for three secrets."""
    scrubber = Scrubber(map(Secret, SECRETS))
    texts = documents()
    took = best({name: (lambda raw=raw: scrubber.raw(raw)) for name, (raw, _) in texts.items()}, rounds)
    figures = [
        Figure(f"scrub 1 MB, {name}", len(raw) / took[name] / 1e6, "MB/s", promised, at_least=True)
        for name, (raw, promised) in texts.items()
    ]
    small = ANSWER.raw
    (seconds,) = best({"": lambda: Scrubber((Secret(SECRETS[0]),)).raw(small)}, rounds, 2_000).values()
    return [*figures, Figure("scrub a small result, one secret, from the start", seconds * 1e6, "us")]


async def filling(rounds: int) -> list[Figure]:
    """What a filled argument adds to a call of a tool that answers at once."""
    plain = Answers()
    tools: dict[str, Tool] = {
        "nothing": plain,
        "an identity": host_filled(plain, {"tenant": from_identity("tenant")}),
        "a credential": host_filled(plain, {"token": from_credential("crm")}),
        "both": host_filled(plain, {"token": from_credential("crm"), "tenant": from_identity("tenant")}),
    }
    ctx = ToolContext(identity=Identity(tenant="acme"), credential=bearer(SECRETS[0]), call_id="c")
    took = dict.fromkeys(tools, float("inf"))
    for _ in range(rounds):
        for name, tool in tools.items():
            began = time.thread_time()
            for _ in range(2_000):
                await tool.execute({"q": "x"}, ctx)
            took[name] = min(took[name], (time.thread_time() - began) / 2_000 * 1e6)
    base = took.pop("nothing")
    # together with validation and a record a filled call may take 25 µs; half of that is for this part
    promised = {"a credential": 12.5, "both": 12.5, "an identity": 5.0}
    return [Figure(f"fill {name}", value - base, "us", promised[name]) for name, value in took.items()]


def cutting(rounds: int) -> list[Figure]:
    """How long it takes to take one argument out of a schema."""
    small = Answers.input_schema
    branches = {
        "oneOf": [
            {
                "properties": {
                    "kind": {"const": at},
                    "token": {"type": "string"},
                    "at": {"$ref": "#/$defs/At"},
                },
                "required": ["kind", "token"],
            }
            for at in range(8)
        ],
        "$defs": {"At": {"type": "object", "properties": {"at": {"type": "string"}}}},
    }
    large = {
        "properties": {
            **{f"p{at}": {"type": "string", "description": "x" * 60} for at in range(1_000)},
            "token": {},
        }
    }
    took = best(
        {
            name: (lambda schema=schema: cut_schema(schema, ["token"]))
            for name, schema in {"small": small, "of eight branches": branches, "of 100 KB": large}.items()
        },
        rounds,
        20,
    )
    return [Figure(f"cut a schema, {name}", seconds * 1e6, "us") for name, seconds in took.items()]


def measure(rounds: int) -> list[Figure]:
    """Give all figures."""
    return [*scrubbing(rounds), *trio.run(filling, rounds), *cutting(rounds)]


def main() -> int:
    """Measure, print, and say whether what is promised is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    return tell(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    sys.exit(main())
