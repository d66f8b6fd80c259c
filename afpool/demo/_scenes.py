"""The scenes of the demo, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from afpool import (
    AfpoolError,
    BindingChanged,
    BoundTool,
    Identity,
    IdentityMismatch,
    SessionExpiredError,
    StaleTools,
)

from ._stage import ALICE, ALICE_LATER, BOB, CAROL, DAVE, ERIN

if TYPE_CHECKING:
    from ._stage import Stage


async def play(stage: Stage) -> None:
    """Play everything; under 15 seconds."""
    await _many_at_once(stage)
    await _somebody_else(stage)
    await _list_changes(stage)
    await _session_expires(stage)
    await _revoked(stage)
    await _cancelled(stage)
    _table(stage)


def _who(identity: Identity) -> str:
    return f"{identity.principal}@{identity.tenant}/{identity.conversation_id}"


async def _refused(stage: Stage, call: Any, kind: type[AfpoolError]) -> AfpoolError | None:
    try:
        await call
    except AfpoolError as error:
        stage.check(isinstance(error, kind), f"{kind.__name__}, not {type(error).__name__}")
        stage.say(f"refused: {error.code} ({error.delivery})")
        return error
    stage.check(False, f"{kind.__name__}")
    return None


async def _many_at_once(stage: Stage) -> None:
    stage.title("1. Five conversations of two tenants, two servers, all at once")
    stage.say(f"crm  is a process that speaks streamable HTTP at {stage.url}")
    stage.say("desk is a process that speaks stdio, one per user")
    lines: list[str] = []

    async def converse(identity: Identity, number: int) -> None:
        tools = await stage.pool.tools(identity)
        found = await tools["search"].call({"text": f"customer {number}"}, identity=identity)
        note = await tools["note"].call({}, identity=identity)
        lines.append(f"{_who(identity):<22} crm/search -> {found.text:<24} desk/note -> {note.text}")
        stage.check(str(number) in found.text, "an answer to the question that was asked")

    async with trio.open_nursery() as nursery:
        for number, identity in enumerate((ALICE, ALICE_LATER, BOB, CAROL, DAVE)):
            nursery.start_soon(converse, identity, number)
    for line in sorted(lines):
        stage.say(line)
    stage.check(stage.pool.statistics().clients >= 9, "a client of its own for every key")


async def _somebody_else(stage: Stage) -> None:
    stage.title("2. Bob gets hold of Alice's tool")
    tool = await _tool(stage, ALICE, "search")
    before = await stage.calls_arrived()
    stage.say("bob calls the tool that was listed for alice")
    await _refused(stage, tool.call({"text": "hers"}, identity=BOB), IdentityMismatch)
    after = await stage.calls_arrived()
    stage.say(f"calls in the server's log: {before} before, {after} after")
    stage.check(0 < before == after, "no byte of it at the server")


async def _list_changes(stage: Stage) -> None:
    stage.title("3. The tool list changes while Carol's credential is fetched")
    tool = await _tool(stage, CAROL, "search")
    before = await stage.calls_arrived()
    hold = stage.vault.hold()

    async def change() -> None:
        await stage.vault.asked.wait()
        stage.say("the call waits for its credential; the server announces another list")
        await stage.order(
            "set_tools", tools=[{"name": "search", "builtin": "echo", "description": "Find anybody."}]
        )
        with trio.move_on_after(3):
            while not any(event.kind == "list-changed" for event in stage.pool.records.events):
                await trio.sleep(0.01)
        stage.say("the credential arrives")
        stage.vault.held = None
        hold.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await _refused(stage, tool.call({"text": "them"}, identity=CAROL), StaleTools)
    after = await stage.calls_arrived()
    stage.say(f"calls in the server's log: {before} before, {after} after")
    stage.check(0 < before == after, "no byte of it at the server")
    tools = await stage.pool.tools(CAROL, "crm")
    answer = await tools["search"].call({"text": "listed again"}, identity=CAROL)
    stage.say(f"listed again, called again: {answer.text}")


async def _session_expires(stage: Stage) -> None:
    stage.title("4. The server forgets its sessions")
    # Without a notification stream nothing tells of the loss before the call itself does.
    await stage.order("advertise", list_changed=False)
    tools = await stage.pool.tools(ERIN, "crm")
    tool = tools["search"]
    client = tool.binding.client_id
    await stage.order("forget_sessions", spelling="404")
    await _refused(stage, tool.call({"text": "one"}, identity=ERIN), SessionExpiredError)
    stage.say("not repeated: whether to is the caller's decision. The same bound tool again:")
    answer = await tool.call({"text": "one"}, identity=ERIN)
    use = stage.pool.records.uses[-1]
    stage.say(f"answered: {answer.text}, on incarnation {use.client_id} (it was {client})")
    stage.check(use.client_id != client, "a new incarnation")


async def _revoked(stage: Stage) -> None:
    stage.title("5. Bob is revoked while his call waits")
    tool = await _tool(stage, BOB, "search")
    before = await stage.calls_arrived()
    hold = stage.vault.hold()

    async def revoke() -> None:
        await stage.vault.asked.wait()
        hit = stage.pool.invalidate(
            identity=Identity(tenant="acme", principal="bob"), reason="left the company"
        )
        stage.say(f"revoked: {hit} keys of bob, in that instant")
        stage.vault.held = None
        hold.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(revoke)
        await _refused(stage, tool.call({"text": "mine"}, identity=BOB), BindingChanged)
    after = await stage.calls_arrived()
    stage.say(f"calls in the server's log: {before} before, {after} after")
    stage.check(0 < before == after, "no byte of it at the server")


async def _cancelled(stage: Stage) -> None:
    stage.title("6. Alice's caller gives up")
    await stage.order(
        "set_tools",
        tools=[
            {"name": "report", "builtin": "sleep", "cancellable": False},
            {"name": "search", "builtin": "echo"},
        ],
        notify=False,
    )
    tools = await stage.pool.refresh(ALICE, "crm")
    key = stage.pool.key_of(ALICE, "crm")
    began = trio.current_time()
    with trio.move_on_after(0.2):
        await tools["report"].call({"seconds": 0.8}, identity=ALICE)
    back = trio.current_time() - began
    stage.say(f"cancelled after 0.20 s, back after {back:.2f} s; places held: {_held(stage, key)}")
    stage.check(_held(stage, key) == 1, "the place held until the server is done")
    with trio.move_on_after(4):
        while _held(stage, key):
            await trio.sleep(0.01)
    stage.say(
        f"the server is done after {trio.current_time() - began:.2f} s; places held: {_held(stage, key)}"
    )
    stage.check(_held(stage, key) == 0, "the place given back")


def _held(stage: Stage, key: str) -> int:
    shown = stage.pool.digest.show(key)
    return sum(row.in_flight for row in stage.pool.statistics().actors if row.key == shown)


async def _tool(stage: Stage, identity: Identity, name: str) -> BoundTool:
    tools = await stage.pool.tools(identity, "crm")
    return tools[name]


def _table(stage: Stage) -> None:
    stage.title("7. Keys, incarnations, generations, leases")
    statistics = stage.pool.statistics()
    stage.say(f"{'key':<16}{'server':<8}{'incarnation':>12}{'generation':>12}{'in flight':>11}{'epoch':>7}")
    for row in sorted(statistics.actors, key=lambda row: (row.server, row.client or 0)):
        client = "-" if row.client is None else str(row.client)
        generation = "-" if row.generation is None else str(row.generation)
        stage.say(
            f"{row.key:<16}{row.server:<8}{client:>12}{generation:>12}{row.in_flight:>11}{row.epoch:>7}"
        )
    calls = len(stage.pool.records.uses)
    refused = sum(1 for use in stage.pool.records.uses if use.outcome == "refused")
    stage.say(f"{calls} calls filed, {refused} refused, {statistics.opened} clients opened")
