"""A call that is cancelled, or loses its ground, at any of its waits: one end, places back, nothing half.

A first call counts the waits; then one call for each of them is ended there, in a runtime of its own.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing

from afpool import Issued, Progress, ToolContext, bearer
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import ServerRules
from afpool.testing import FakeTool
from afpool.tools import Hook, Replace, ResultLimits, define_tool, from_credential, from_identity
from tests.pool.kit import until
from tests.runtime.runtime_kit import ALICE, Here, runtime
from tests.tools.door_kit import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"key": TEXT, "tenant": TEXT, "rows": {}}, "required": ["key"]}
FILLS = {"key": from_credential("crm"), "tenant": from_identity("tenant")}
RULES = ServerRules(fill=FILLS, wants={"rows": "rows"})
LONG = "long " * 100


@attrs.define(eq=False, slots=False)
class AtWait(trio.abc.Instrument):
    """Does something where a task has begun its n-th wait."""

    task: Any
    number: int
    act: Callable[[], object]
    waits: int = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.waits += 1
            if self.waits == self.number:
                self.act()


async def yields(*_: Any) -> None:
    await trio.lowlevel.checkpoint()


async def replaces(*_: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return Replace(LONG)


class Vends:
    """A provider that takes its time."""

    async def get(self, request: Any) -> Issued:
        await trio.lowlevel.checkpoint()
        return Issued(bearer(SECRET))


async def outer(args: Any, ctx: ToolContext) -> Any:
    """Reports, stores, and calls the server's tool and a local one."""
    assert ctx.progress is not None
    ctx.progress(Progress(progress=1.0))
    meta = await ctx.artifacts.put(NewArtifact(kind="rows", media_type="application/json", data=[1, 2]))
    await ctx.tools.call("inner", {})
    return (await ctx.tools.call("report", {"rows": meta.ref})).text


async def inner(args: Any, ctx: ToolContext) -> str:
    await trio.lowlevel.checkpoint()
    return "inner"


OWN = [
    define_tool(execute=outer, name="outer", needs="crm"),
    define_tool(execute=inner, name="inner"),
]


class Ends:
    """What ends a call, and what there has to be afterwards."""

    def __init__(self, here: Here) -> None:
        self.here = here
        self.now = trio.Event()

    async def revoke(self) -> None:
        self.here.runtime.pool.invalidate(identity=ALICE)

    async def reconfigure(self) -> None:
        self.here.runtime.reconfigure(
            rules={"crm": attrs.evolve(RULES, fill={"key": from_credential("mail")})}
        )

    async def when(self, end: Callable[[], Any], task_status: Any) -> None:
        task_status.started()
        await self.now.wait()
        await end()


async def one(name: str, how: str, number: int) -> tuple[int, set[str]]:
    """Call a tool, end the call at one of its waits, and judge; gives its waits and the codes of all ends."""
    store = MemoryArtifacts()
    hooks = [Hook("h", before=yields, after=yields), Hook("r", after=replaces)]
    async with runtime(
        {"crm": [FakeTool("report", lambda arguments, arrival: LONG, inputSchema=SCHEMA)]},
        tools=OWN,
        rules={"crm": RULES},
        credentials=Vends(),
        artifacts=store,
        hooks=hooks,
        results=ResultLimits(max_inline_chars=100),
        repeat="when-nothing-ran",
    ) as here:
        await here.runtime.toolset(ALICE)
        rows = await store.put(ALICE, NewArtifact(kind="rows", media_type="application/json", data=[1]))
        ends, result = Ends(here), None
        at = AtWait(trio.lowlevel.current_task(), number, ends.now.set)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                if how == "cancel":
                    at.act = scope.cancel
                elif how != "nothing":
                    await nursery.start(functools.partial(when, ends, getattr(ends, how)))
                trio.lowlevel.add_instrument(at)
                try:
                    args = {"rows": rows.ref} if name == "report" else {}
                    result = await here.runtime.dispatch(ALICE, name, args, call_id="it")
                finally:
                    trio.lowlevel.remove_instrument(at)
                nursery.cancel_scope.cancel()
        judged(here, result, cancelled=scope.cancelled_caught)
        await trio.testing.wait_all_tasks_blocked()
        await until(lambda: busy(here) == 0)
        page = await store.list(ALICE)
        for ticket in page.items:
            assert await store.get(ALICE, ticket.ref) is not None
        placed = [ticket for ticket in page.items if ticket.kind == "tool-result/report"]
        assert len(placed) <= here.sent("crm")
        if how in ("cancel", "nothing"):
            assert (await here.runtime.dispatch(ALICE, "inner", {})).code == "ok"
            again = await here.runtime.dispatch(ALICE, "report", {"rows": rows.ref})
            assert again.code == "ok", again.text
        return at.waits, {
            event.code for event in here.events if event.kind == "tool_end" and event.call_id.startswith("it")
        }


def busy(here: Here) -> int:
    """Places held, calls that wait or settle."""
    now = here.runtime.pool.statistics()
    return now.in_flight + now.waiting + now.waiting_runtime + now.settling


async def when(ends: Ends, end: Callable[[], Any], task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    await ends.when(end, task_status)


def judged(here: Here, result: Any, *, cancelled: bool) -> None:
    starts = Counter(event.call_id for event in here.events if event.kind == "tool_start")
    ended = Counter(event.call_id for event in here.events if event.kind == "tool_end")
    assert starts == ended
    assert set(starts.values()) <= {1}
    for call in starts:
        kinds = [event.kind for event in here.events if event.call_id == call]
        assert (kinds[0], kinds[-1]) == ("tool_start", "tool_end"), kinds
    assert SECRET not in here.events.text
    codes = {event.call_id: (event.code, event.delivery) for event in here.events if event.kind == "tool_end"}
    if cancelled:
        assert result is None
        assert codes.get("it", ("cancelled", None)) == ("cancelled", None)
        return
    assert result is not None
    assert codes["it"] == (result.code, result.delivery)
    assert SECRET not in result.raw.decode()
    if result.code == "ok":
        assert here.sent("crm") <= 1
    if result.delivery in ("not-sent", "refused"):
        assert here.sent("crm") == 0


@pytest.mark.parametrize("how", ["cancel", "revoke", "reconfigure"])
@pytest.mark.parametrize("name", ["report", "outer"])
async def test_at_every_wait(name: str, how: str) -> None:
    waits, codes = await one(name, "nothing", 0)
    assert codes == {"ok"}
    assert waits > 8
    told = [(await one(name, how, number))[1] for number in range(1, waits + 1)]
    hit = [codes for codes in told if codes != {"ok"}]
    # a cancellation is noticed at each; what others change, before the request has left
    assert len(hit) >= (waits if how == "cancel" else 2), told
