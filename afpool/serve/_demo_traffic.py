"""What the demo's two tenants do by themselves, so that somebody who looks inside sees a service at work.

With `afpool serve --demo --traffic` there are two more servers, one more tool of the host's own, and the
habits below. Each of the questions that people ask of a console has its material here, within seconds:

* Bob wants six reports at a time where a key has four places: there are always calls that hold one, and calls
  that wait for one. `reports` is the slow server.
* `crm` narrows what `search` takes for five seconds of every thirty. Alice sends what she sent before: her
  next call is refused `stale-tools`, and those after it, listed anew, `invalid-arguments` until it is wide.
* Alice's `export` never ends in her time; the answer to Bob's `charge` is lost after it ran.
* Alice's summaries are artifacts that come from her notes.

Nothing of it goes through the service's own door: a client that is attached meets full places, but no limit
that these habits have used up.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from .._base.identity import Identity
from ..artifacts import NewArtifact
from ..client import HttpTransport, Plan
from ..pool import Server
from ..testing import Drop, FakeServer, FakeTool
from ..tools import define_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import NoReturn

    from .._base.model import ToolContext
    from ..runtime import Runtime

ALICE: Final = Identity("acme", "alice")
BOB: Final = Identity("globex", "bob")
PLACES: Final = 4
"""How many calls a key may have under way."""
WIDE, NARROW = 100, 50
"""The largest `limit` that `search` takes, most of the time and in between."""
WIDE_FOR, NARROW_FOR = 25.0, 5.0
FIRST: Final = 4.0
"""After so many seconds it is narrow for the first time, so that nobody has to wait for it."""

_LIST_AGAIN: Final = frozenset({"stale-tools", "invalid-arguments", "unknown-tool"})


@attrs.frozen
class Habit:
    """Something that somebody does again and again.

    Attributes:
        who: Who.
        tool: The tool, as a toolset shows it.
        arguments: What it is called with.
        pause: Seconds from the end of a call to the next one.
        at_once: How many of them go on side by side.
        patience: Seconds until its deadline; the runtime's own where it is `None`.
        then: A tool that is given the artifact which the call has put, as the argument of that name.
    """

    who: Identity
    tool: str
    arguments: Mapping[str, Any]
    pause: float
    at_once: int = 1
    patience: float | None = None
    then: tuple[str, str] | None = None


HABITS: Final = (
    Habit(ALICE, "search", {"text": "open orders", "limit": 80}, 2.0),
    Habit(ALICE, "whoami", {}, 5.0),
    Habit(ALICE, "build", {"pages": 2}, 7.0),
    Habit(ALICE, "export", {"year": 2025}, 13.0, patience=2.0),
    Habit(ALICE, "note", {"text": "Ghent wants its invoices on paper"}, 8.0, then=("summary", "note")),
    Habit(BOB, "search", {"text": "late payers", "limit": 10}, 3.0),
    Habit(BOB, "build", {"pages": 12}, 0.1, at_once=6),
    Habit(BOB, "charge", {"cents": 900}, 11.0),
)


@define_tool(wants={"note": "note"})
async def summary(note: str, ctx: ToolContext) -> str:
    """Sum a note up, as an artifact that comes from it."""
    assert ctx.wanted is not None  # it says what it wants
    meta = await ctx.artifacts.put(
        NewArtifact(
            kind="summary", media_type="text/plain", data=f"{len(note.split())} words",
            parent_refs=[ctx.wanted["note"].ref],
        )
    )  # fmt: skip
    return f"kept as afpool://artifact/{meta.ref}"


def search_tool(most: int) -> FakeTool:
    """The tool whose definition changes."""

    async def search(arguments: Mapping[str, Any], _: object) -> str:
        await trio.sleep(0.02)
        return f"{arguments['limit']} customers at most"

    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "limit": {"type": "integer", "maximum": most}},
        "required": ["text", "limit"],
    }  # fmt: skip
    return FakeTool("search", search, "Search customers.", schema)


def _crm_tools(most: int) -> list[FakeTool]:
    async def export(_: Mapping[str, Any], __: object) -> str:
        await trio.sleep(30)
        return "exported"

    year = {"type": "object", "properties": {"year": {"type": "integer"}}}
    cents = {"type": "object", "properties": {"cents": {"type": "integer", "minimum": 1}}}
    return [
        search_tool(most),
        FakeTool("export", export, "Export a year. Takes its time.", year),
        FakeTool("charge", description="Charge a customer.", input_schema=cents),
    ]


def _report_tool() -> FakeTool:
    async def build(arguments: Mapping[str, Any], _: object) -> str:
        pages = max(1, min(int(arguments.get("pages", 1)), 20))
        await trio.sleep(0.5 * pages)
        return f"{pages} pages"

    schema = {"type": "object", "properties": {"pages": {"type": "integer", "minimum": 1, "maximum": 20}}}
    return FakeTool("build", build, "Build a report, half a second a page.", schema)


@attrs.frozen
class Traffic:
    """The servers that the habits need beside the demo's own, and the habits.

    Attributes:
        servers: For the runtime's configuration.
        crm: The one whose list changes.
        reports: The slow one.
    """

    servers: tuple[Server, ...]
    crm: FakeServer
    reports: FakeServer

    async def run(self, runtime: Runtime) -> NoReturn:
        """Let everybody do what he does, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._change_the_list)
            for habit in HABITS:
                for _ in range(habit.at_once):
                    nursery.start_soon(_keep, runtime, habit)
        raise AssertionError("habits do not end")

    async def _change_the_list(self) -> NoReturn:
        await trio.sleep(FIRST)
        while True:
            self.crm.set_tools(_crm_tools(NARROW))
            await trio.sleep(NARROW_FOR)
            self.crm.set_tools(_crm_tools(WIDE))
            await trio.sleep(WIDE_FOR)


@contextlib.asynccontextmanager
async def open_traffic(**how: Any) -> AsyncIterator[Traffic]:
    """Open the servers for the time of the block.

    Args:
        how: Passed on to `FakeServer.http`.
    """
    async with (
        FakeServer.http(era="both", tools=_crm_tools(WIDE), **how) as crm,
        FakeServer.http(era="both", tools=[_report_tool()], **how) as reports,
    ):
        crm.on("tools/call", Drop(after_execution=True), tool="charge")
        yield Traffic((_server("crm", crm), _server("reports", reports)), crm, reports)


def _server(name: str, fake: FakeServer) -> Server:
    return Server(
        name=name, plan=Plan(transport=HttpTransport(url=fake.url)), keyed_on=("tenant", "principal")
    )


async def _keep(runtime: Runtime, habit: Habit) -> NoReturn:
    """One habit, as an agent has it: what it was shown counts until it is told otherwise."""
    tools = await runtime.toolset(habit.who)
    while True:
        deadline = None if habit.patience is None else trio.current_time() + habit.patience
        result = await tools.call(habit.tool, dict(habit.arguments), deadline=deadline)
        if result.code in _LIST_AGAIN:
            tools = await runtime.toolset(habit.who)
        elif habit.then is not None and result.code == "ok":
            tool, argument = habit.then
            await tools.call(tool, {argument: result.text.rpartition("/")[2]})
        await trio.sleep(habit.pause)
