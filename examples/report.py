"""A report about a dataset that another tool has stored: the model passes a reference, never the rows.

    python examples/report.py

`load` belongs to the host and stores ten thousand rows. `total` is listed by a server and takes rows as its
argument; `wants` has the model pass the reference to them instead. What a reference of somebody else's, an
expired one or the rows themselves are answered, teaches the model what would have worked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from afpool import (
    HttpTransport,
    Identity,
    Plan,
    Server,
    ServerRules,
    ToolContext,
    define_tool,
    open_runtime,
)
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.testing import FakeServer, FakeTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool.tools import ToolEvent

ANN = Identity(tenant="acme", principal="ann")
BOB = Identity(tenant="globex", principal="bob")
KIND = "dataset/sales"


@define_tool
async def load(year: int, ctx: ToolContext) -> str:
    """Load the sales of a year as a dataset; gives its reference."""
    rows = [{"day": day % 365, "eur": (year + day) % 50} for day in range(10_000)]
    new = NewArtifact(kind=KIND, media_type="application/json", data=rows, label=f"sales of {year}")
    meta = await ctx.artifacts.put(new)
    return str(meta.ref)


def total(arguments: Mapping[str, Any], _: object) -> str:
    """Answer for a server that is somebody else's: it gets the rows."""
    rows = arguments["rows"]
    return f"{len(rows)} rows, {sum(row['eur'] for row in rows)} euros in all"


TOTAL = FakeTool(
    "total",
    total,
    description="Add up the rows of a table.",
    inputSchema={
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
        "required": ["rows"],
    },
)


async def main() -> None:
    """Load, report, and what goes wrong with references."""
    events: list[ToolEvent] = []
    async with (
        FakeServer.http(tools=[TOTAL]) as server,
        open_runtime(
            servers=[Server(name="sums", plan=Plan(transport=HttpTransport(url=server.url)))],
            tools=[load],
            rules={"sums": ServerRules(wants={"rows": KIND})},
            artifacts=MemoryArtifacts(),
            on_event=events.append,
        ) as runtime,
    ):
        run = runtime.run(ANN)
        toolset = await run.toolset()
        print("the model passes:", toolset["total"].input_schema["properties"]["rows"]["type"])

        ref = (await run.call("load", {"year": 2026})).text
        print("the model reads a reference of", len(ref), "characters")
        print("the report:", (await run.call("total", {"rows": ref})).text)

        others = runtime.run(BOB)
        for who, given in ((others, ref), (run, [{"eur": 7}]), (run, "art_" + "0" * 22)):
            refused = await who.call("total", {"rows": given})
            print(f"{refused.code}, {refused.delivery}:", refused.text.replace(ref, "art_..."))
        print("calls that ran:", server.executions["total"])

    resolved = [event.payload for event in events if event.kind == "artifacts.resolved"]
    minted = [event.payload for event in events if event.kind == "artifacts.minted"]
    print("recorded:", len(minted), "stored,", len(resolved), "used,", minted[0]["bytes"], "bytes")


if __name__ == "__main__":
    trio.run(main)
