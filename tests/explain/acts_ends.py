"""Scenes of calls that were ended from outside: deadlines, withdrawals, cancellations, closings, crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from afpool.pool import _messages as m
from afpool.pool._machine import KeyMachine
from afpool.record import Record
from afpool.testing import Hang, Hold, sleep_tool
from tests.explain.play import Play, ended
from tests.pool.kit import ALICE, start, until, world
from tests.pool.kit import Hold as Held

if TYPE_CHECKING:
    from tests.pool.kit import World


SOON = {"close_timeout": 0.2}
"""What a server never answers is not waited for when the scene is over."""


async def play(play: Play) -> None:
    play.title("Ends from outside")
    await deadlines(play)
    await withdrawals(play)
    await cancellations(play)
    await clients_that_are_killed(play)
    await a_crash(play)
    await leaving(play)


async def at_credential(w: World) -> Held:
    hold = w.host.hold_credential = Held()
    return hold


async def deadlines(play: Play) -> None:
    async with world(credential=True, pool=SOON) as w:
        record, tool = Record(w.pool), await w.tool()
        await at_credential(w)
        await ended(tool.call(identity=ALICE, call_id="early", deadline=trio.current_time() + 0.1))
        await play.why(
            "the deadline passes while the credential is fetched", record, "early",
            ("refused", "deadline-exceeded", "not-sent"), "at the gate `credential`",
            r"its deadline passed; \d+ ms of it \(\d+ %\) while the credential was being fetched",
            told=("nothing was sent", "with more time"),
        )  # fmt: skip
        w.server.on("tools/call", Hang(), times=1)
        await ended(tool.call(identity=ALICE, call_id="late", deadline=trio.current_time() + 0.1))
        await play.why(
            "the deadline passes while the server works", record, "late",
            ("failed", "deadline-exceeded", "in-doubt"), "in doubt, while the server worked",
            r"its deadline passed; \d+ ms of it \(\d+ %\) while the server worked",
            told=("was sent, and nothing proves what became of it", "now: think first"),
        )  # fmt: skip


async def withdrawals(play: Play) -> None:
    async with world(credential=True, pool=SOON) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        hold = await at_credential(w)
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="withdrawn"))
        await hold.reached.wait()
        w.pool.cancel("withdrawn", reason="the user pressed stop")
        await call.done.wait()
        await play.why(
            "the host withdraws the call while the credential is fetched", record, "withdrawn",
            ("refused", "cancelled", "not-sent"), r"the host withdrew the call \(the user pressed stop\)",
            "at the gate `credential`", event="withdrawn",
        )  # fmt: skip
        w.server.on("tools/call", Hang(), times=1)
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="withdrawn late"))
        await w.server.wait_for("tools/call")
        await trio.sleep(0.02)
        w.pool.cancel("withdrawn late")
        await call.done.wait()
        await play.why(
            "the host withdraws the call while the server works", record, "withdrawn late",
            ("failed", "cancelled", "in-doubt"), "the host withdrew the call", "while the server worked",
            event="withdrawn",
        )  # fmt: skip


async def cancellations(play: Play) -> None:
    async with world(credential=True, pool=SOON) as w:
        record, tool = Record(w.pool), await w.tool()
        hold = await at_credential(w)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: tool.call(identity=ALICE, call_id="gone"))
            await hold.reached.wait()
            await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
        await play.why(
            "the caller's task is cancelled while the credential is fetched", record, "gone",
            ("cancelled", "cancelled", "not-sent"), "cancelled while the credential was being fetched",
            "its caller was cancelled",
        )  # fmt: skip
        w.server.on("tools/call", Hang(), times=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: tool.call(identity=ALICE, call_id="gone late"))
            await w.server.wait_for("tools/call")
            await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
        await play.why(
            "the caller's task is cancelled while the server works", record, "gone late",
            ("cancelled", "cancelled", "in-doubt"), "cancelled while the server worked",
        )  # fmt: skip


async def clients_that_are_killed(play: Play) -> None:
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        hold = await at_credential(w)
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="killed"))
        await hold.reached.wait()
        client = tool.binding.actor.machine.client
        assert client is not None
        w.pool.kill(client.id, by="console uid 1000")
        await call.refusal("client-closed")
        await play.why(
            "an operator kills the client while the credential is fetched", record, "killed",
            ("refused", "client-closed", "not-sent"), rf"client {client.id} was killed by console uid 1000",
            "while the credential was being fetched", event="killed",
        )  # fmt: skip
    async with world(tools=[sleep_tool()]) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool(name="sleep")
        w.server.on("tools/call", Hang(), times=1)
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="killed late"))
        await w.server.wait_for("tools/call")
        client = tool.binding.actor.machine.client
        assert client is not None
        w.pool.kill(client.id, by="console uid 1000")
        await call.done.wait()
        await play.why(
            "an operator kills the client while the server works", record, "killed late",
            ("failed", "client-closed", "in-doubt"), rf"client {client.id} was killed by console uid 1000",
            "while the server worked", event="killed",
        )  # fmt: skip


async def a_crash(play: Play) -> None:
    async with world(pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        released = trio.Event()
        w.server.on("tools/call", Hold(released), times=1)
        holder = start(nursery, lambda: tool.call(identity=ALICE, call_id="holder"))
        await w.server.wait_for("tools/call")
        waiter = start(nursery, lambda: tool.call(identity=ALICE, call_id="waiter"))
        await until(lambda: w.pool.waiting == 1)
        turn = KeyMachine.turn

        def broken(self: KeyMachine, message: Any, reply: Any) -> Any:
            raise ZeroDivisionError

        KeyMachine.turn = broken  # type: ignore[method-assign]
        try:
            tool.binding.actor.tell(m.ListChanged(client_id=None))
        finally:
            KeyMachine.turn = turn  # type: ignore[method-assign]
        await waiter.refusal("actor-crashed")
        await play.why(
            "the key's actor crashes while the call waits for a place", record, "waiter",
            ("refused", "actor-crashed", "not-sent"), r"the actor of the key crashed \(ZeroDivisionError\)",
            event="actor-crashed",
        )  # fmt: skip
        released.set()
        await holder.answer()
        await play.why(
            "what had been sent keeps its own answer", record, "holder", ("ok", "", "answered"),
            told=("noted: when the answer came, this had changed: `actor-crashed`",),
        )  # fmt: skip


async def leaving(play: Play) -> None:
    async with world(credential=True, pool={"close_timeout": 0.3}) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        w.server.on("tools/call", Hang(), times=1)
        sent = start(nursery, lambda: tool.call(identity=ALICE, call_id="sent"))
        await w.server.wait_for("tools/call")
        hold = await at_credential(w)
        unsent = start(nursery, lambda: tool.call(identity=ALICE, call_id="unsent"))
        await hold.reached.wait()
        await trio.sleep(0.02)
        nursery.start_soon(w.pool.aclose)
        await unsent.done.wait()
        await sent.done.wait()
        await play.why(
            "the pool begins to close while the credential is fetched", record, "unsent",
            ("refused", "pool-closed", "not-sent"), "the pool began to close", "at the gate `credential`",
            event="closing",
        )  # fmt: skip
        await play.why(
            "the pool closes, and the server does not answer within the time for it", record, "sent",
            ("failed", "pool-closed", "in-doubt"), "the pool began to close", "while the server worked",
            event="closing",
        )  # fmt: skip
