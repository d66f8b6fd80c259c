"""Scenes of calls that the pool refused: who called, on what list, under which plan."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import trio

from afpool import Server
from afpool.record import Record
from afpool.testing import FakeTool, Hold, echo_tool
from tests.explain.play import Play, ended
from tests.pool.kit import ALICE, BOB, raises, start, until, world
from tests.pool.kit import Hold as Held

if TYPE_CHECKING:
    from afpool import BoundTool

SEARCH = {"type": "object", "properties": {"limit": {"type": "integer", "maximum": 100}, "q": {}}}
NARROWER = {"type": "object", "properties": {"limit": {"type": "integer", "maximum": 50}, "q": {}}}


def search(schema: dict[str, object] = SEARCH) -> FakeTool:
    return FakeTool("search", inputSchema=schema)


async def play(play: Play) -> None:
    play.title("Who calls, and on what")
    await strangers(play)
    await lists(play)
    await a_waiter_is_refused_when_its_list_changes(play)
    await a_list_that_came_with_another_client(play)
    await plans_and_shares(play)
    await configurations(play)
    await pins_arguments_and_what_is_not_offered(play)


async def strangers(play: Play) -> None:
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        await ended(tool.call(identity=BOB, call_id="bob"))
        await play.why(
            "Bob calls the tool that was listed for Alice", record, "bob",
            ("refused", "identity-mismatch", "not-sent"),
            f"does not encode to {w.pool.digest.show(w.pool.key_of(ALICE, 'files'))}",
        )  # fmt: skip
        play.check("nothing reached the server", holds=w.sent() == 0)


async def lists(play: Play) -> None:
    async with world(tools=[search()], credential=True) as w, trio.open_nursery() as nursery:
        record = Record(w.pool)
        tool = await w.tool(name="search")
        hold = w.host.hold_credential = Held()
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="gate"))
        await hold.reached.wait()
        await trio.sleep(0.05)
        w.server.set_tools([search(NARROWER)], notify=False)
        await w.announce(tool)
        await trio.sleep(0.03)
        hold.let_go.set()
        await call.refusal("stale-tools")
        await play.why(
            "the server announces another list while the credential is fetched", record, "gate",
            ("refused", "stale-tools", "not-sent"),
            r"at the gate `credential`",
            r"the server announced a changed tool list \d+ ms earlier, while the credential was",
            event="list-changed",
        )  # fmt: skip
        await w.pool.tools(ALICE)
        await play.why(
            "the same call, once the new list has been received", record, "gate",
            ("refused", "stale-tools", "not-sent"),
            "generation 1 → 2; the definition of `search` differs at "
            "`/inputSchema/properties/limit/maximum`$",
            event="list-changed",
        )  # fmt: skip
    async with world(tools=[search()], credential=True) as w, trio.open_nursery() as nursery:
        record = Record(w.pool)
        tool = await w.tool(name="search")
        hold = w.host.hold_credential = Held()
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="gone"))
        await hold.reached.wait()
        w.server.set_tools([echo_tool()], notify=False)
        await w.pool.refresh(ALICE)
        hold.let_go.set()
        await call.refusal("stale-tools")
        await play.why(
            "a list without the tool comes while the credential is fetched", record, "gone",
            ("refused", "stale-tools", "not-sent"),
            "a changed list, generation 2, came .* while the credential was being fetched",
            "the list does not hold `search` any more", event="list",
        )  # fmt: skip


async def a_waiter_is_refused_when_its_list_changes(play: Play) -> None:
    async with (
        world(tools=[search(), FakeTool("slow")], pool={"max_operations": 1}) as w,
        trio.open_nursery() as n,
    ):
        record = Record(w.pool)
        tools = await w.pool.tools(ALICE)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="slow")
        holder = start(n, lambda: tools["slow"].call(identity=ALICE, call_id="holder"))
        await w.server.wait_for("tools/call")
        waiter = start(n, lambda: tools["search"].call(identity=ALICE, call_id="waiter"))
        await until(lambda: w.pool.waiting == 1)
        now = record.explain("waiter")
        play.check(
            "a waiter says what it waits for and who holds it",
            holds="waiting for a place of its key" in now.headline and "call `holder`" in now.headline,
        )
        w.server.set_tools([search(NARROWER), FakeTool("slow")], notify=False)
        await w.pool.refresh(ALICE)
        await waiter.refusal("stale-tools")
        await play.why(
            "the list changes while the call waits for the only place of its key", record, "waiter",
            ("refused", "stale-tools", "not-sent"), "at the gate `admission`",
            "while it waited for a place of its key", "`/inputSchema/properties/limit/maximum`",
            "held by call `holder`", event="list",
            told=("call `holder` of `slow` held a place, .*it runs still",),
        )  # fmt: skip
        released.set()
        await holder.done.wait()
        play.check(
            "a holder that has ended since is told so",
            holds=any("after this call had ended (ok)" in c.text for c in record.explain("waiter").clauses),
        )


async def a_list_that_came_with_another_client(play: Play) -> None:
    async with world(tools=[search()]) as w:
        record, tool = Record(w.pool), await w.tool(name="search")
        await w.evict()
        w.server.set_tools([search(NARROWER)], notify=False)
        await ended(tool.call(identity=ALICE, call_id="replaced"))
        await play.why(
            "the client was evicted, and the list of the one that replaced it holds another definition",
            record, "replaced", ("refused", "stale-tools", "not-sent"),
            "`/inputSchema/properties/limit/maximum`", event="list",
            told=("the opening that it waited for: client \\d+ was opened, begun for call `replaced`",),
        )  # fmt: skip


async def plans_and_shares(play: Play) -> None:
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        w.pool.invalidate(identity=ALICE, reason="left the company")
        await ended(tool.call(identity=ALICE, call_id="revoked"))
        await play.why(
            "the host had invalidated the key before", record, "revoked",
            ("refused", "binding-changed", "not-sent"),
            r"the key was revoked.*left the company.* before the call began", event="revoked",
        )  # fmt: skip
        tool = await w.tool()
        hold = w.host.hold_credential = Held()
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="renamed"))
        await hold.reached.wait()
        w.host.names["alice"] = "team"
        hold.let_go.set()
        await call.refusal("binding-changed")
        explanation = await play.why(
            "`share` gives another name while the credential is fetched", record, "renamed",
            ("refused", "binding-changed", "not-sent"), "`share` gave another authorization name",
            event="share-changed",
        )  # fmt: skip
        play.check("the name itself is not told", holds="team" not in explanation.words())
        w.host.names["alice"] = raises(RuntimeError("no directory"))
        await ended(tool.call(identity=ALICE, call_id="no directory"))
        await play.why(
            "`share` raises", record, "no directory", ("refused", "share-failed", "not-sent"),
            "the app's `share` raised", "RuntimeError",
        )  # fmt: skip
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        w.host.variant = "two"
        await w.pool.refresh(ALICE)
        await ended(tool.call(identity=ALICE, call_id="replanned"))
        await play.why(
            "the app's plan became another one, which a list found out", record, "replanned",
            ("refused", "binding-changed", "not-sent"), "plan for this identity became another one",
            event="plan-changed",
        )  # fmt: skip


async def configurations(play: Play) -> None:
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        hold = w.host.hold_credential = Held()
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="reloaded"))
        await hold.reached.wait()
        await trio.sleep(0.02)
        w.pool.reconfigure([Server(name="files")], plan=functools.partial(w.host.plan))
        hold.let_go.set()
        await call.refusal("binding-changed")
        await play.why(
            "another configuration takes effect while the credential is fetched", record, "reloaded",
            ("refused", "binding-changed", "not-sent"), "another configuration", event="reconfigured",
        )  # fmt: skip


async def pins_arguments_and_what_is_not_offered(play: Play) -> None:
    async with world() as w:
        digest = (await w.tool()).binding.definition.digest
    async with world(server={"pins": {"echo": digest}}) as w:
        record = Record(w.pool)
        w.server.set_tools([FakeTool("echo", description="changed behind the user's back")], notify=False)
        tool: BoundTool = (await w.pool.refresh(ALICE))["echo"]
        await ended(tool.call(identity=ALICE, call_id="pinned"))
        await play.why(
            "the definition is not the one that was pinned", record, "pinned",
            ("refused", "not-approved", "not-sent"), "not the one that was pinned for `files`",
        )  # fmt: skip
        await ended(tool.call(["a"], identity=ALICE, call_id="no object"))  # type: ignore[arg-type]
        await play.why(
            "arguments that are no object", record, "no object",
            ("refused", "invalid-arguments", "not-sent"), "the arguments are not what `echo` takes",
        )  # fmt: skip
        server = await w.pool.bind(ALICE, "files")
        await ended(server.prompts(identity=ALICE, call_id="no prompts"))
        await play.why(
            "prompts are asked for of a server that offers none", record, "no prompts",
            ("refused", "not-offered", "not-sent"), "does not hold what `prompts/list` needs",
        )  # fmt: skip
