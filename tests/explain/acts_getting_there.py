"""Scenes of calls that did not get to a server: limits, plans, openings, credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from afpool import CredentialRequirement, Issued, NeedsAuthorization, bearer
from afpool.record import Record
from afpool.testing import Hold, Status
from tests.explain.play import Play, ended
from tests.pool.kit import ALICE, BOB, start, until, world

if TYPE_CHECKING:
    from afpool import CredentialRequest


async def play(play: Play) -> None:
    play.title("Limits, plans, openings, credentials")
    await limits_of_a_key(play)
    await limits_of_the_runtime(play)
    await plans(play)
    await openings(play)
    await credentials(play)
    await challenges(play)


async def limits_of_a_key(play: Play) -> None:
    limits = {"max_operations": 1, "max_waiting": 1}
    async with world(pool=limits) as w, trio.open_nursery() as nursery:
        record, tool = Record(w.pool), await w.tool()
        released = trio.Event()
        w.server.on("tools/call", Hold(released), times=1)
        holder = start(nursery, lambda: tool.call(identity=ALICE, call_id="holder"))
        await w.server.wait_for("tools/call")
        waiter = start(nursery, lambda: tool.call(identity=ALICE, call_id="waiter"))
        await until(lambda: w.pool.waiting == 1)
        await ended(tool.call(identity=ALICE, call_id="one too many"))
        await play.why(
            "the key's only place is held, and as many wait as may", record, "one too many",
            ("refused", "overloaded", "not-sent"), "max_waiting", "held by call `holder`",
            told=("call `holder` of `echo` held a place",),
        )  # fmt: skip
        (inside, _) = w.pool.running
        await ended(tool.call(identity=ALICE, call_id="inner", chain=(inside,)))
        await play.why(
            "a call from inside of the call that holds the only place", record, "inner",
            ("refused", "overloaded", "not-sent"), "the limit is `itself`",
        )  # fmt: skip
        released.set()
        await holder.done.wait()
        await waiter.done.wait()
        await play.why(
            "a call that had to wait, and then ran", record, "waiter", ("ok", "", "answered"),
            "while it waited for a place of its key; the place that it waited for was held by call `holder`",
            told=(r"call `holder` .* it ended .* before this call ended \(ok\)",),
        )  # fmt: skip


async def limits_of_the_runtime(play: Play) -> None:
    limits = {"max_in_flight": 1, "max_waiting_total": 1}
    async with world(pool=limits) as w, trio.open_nursery() as nursery:
        record, tool, bobs = Record(w.pool), await w.tool(), await w.tool(BOB)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), times=1)
        holder = start(nursery, lambda: tool.call(identity=ALICE, call_id="holder"))
        await w.server.wait_for("tools/call")
        waiter = start(nursery, lambda: bobs.call(identity=BOB, call_id="waiter"))
        await until(lambda: w.pool.admission.waiting == 1)
        now = record.explain("waiter").headline
        play.check(
            "a waiter for a place of the runtime says so and who holds it",
            holds="waiting for a place of the runtime" in now and "call `holder`" in now,
        )
        await ended(bobs.call(identity=BOB, call_id="one too many"))
        await play.why(
            "the runtime's only place is held, and as many wait as may", record, "one too many",
            ("refused", "overloaded", "not-sent"), "max_waiting_total",
        )  # fmt: skip
        await trio.sleep(0.05)
        released.set()
        await holder.done.wait()
        await waiter.done.wait()
        await play.why(
            "a call that had to wait for another tenant's call", record, "waiter", ("ok", "", "answered"),
            "while it waited for a place of the runtime", "held by call `holder`",
        )  # fmt: skip


async def plans(play: Play) -> None:
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        await w.evict()

        async def broken(server: str, projection: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise LookupError("no tenant 's3cret' in the directory")

        w.pool.plan = broken
        await ended(tool.call(identity=ALICE, call_id="no plan"))
        explanation = await play.why(
            "the app's plan raises", record, "no plan", ("refused", "plan-failed", "not-sent"),
            "LookupError", event="open-failed", told=("begun for call `no plan`",),
        )  # fmt: skip
        play.check("what the plan said is not told", holds="s3cret" not in explanation.words())


async def openings(play: Play) -> None:
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        await w.evict()
        w.server.refuse_connections()
        await ended(tool.call(identity=ALICE, call_id="nobody listens"))
        await play.why(
            "nobody listens where the server was", record, "nobody listens",
            ("refused", "open-failed", "not-sent"), r"an opening of a client failed \(open-failed\)",
            event="open-failed", told=("begun for call `nobody listens`",),
        )  # fmt: skip
        failed = next(each for each in w.pool.records.events if each.kind == "open-failed")
        await ended(tool.call(identity=ALICE, call_id="too soon"))
        explanation = await play.why(
            "another call at once, before the next opening is due", record, "too soon",
            ("refused", "open-backoff", "not-sent"), "an opening of a client failed",
            told=("now: wait until the next opening is due",), event="open-failed",
        )  # fmt: skip
        play.check(
            "back-off names the opening that failed before",
            holds=any(clause.facts.get("event") == failed.number for clause in explanation.clauses),
        )
    async with world() as w:
        record, tool = Record(w.pool), await w.tool()
        await w.evict()
        released = trio.Event()
        w.server.on("initialize", Hold(released), times=1)
        async with trio.open_nursery() as nursery:
            first = start(nursery, lambda: tool.call(identity=ALICE, call_id="first"))
            await w.server.wait_for("initialize", 2)
            second = start(nursery, lambda: tool.call(identity=ALICE, call_id="second"))
            await until(lambda: w.pool.waiting == 2)
            await trio.sleep(0.1)
            released.set()
            await first.answer()
            await second.answer()
        for call_id in ("first", "second"):
            await play.why(
                f"the {call_id} call of two that wait for one opening, whose server is slow to begin",
                record, call_id, ("ok", "", "answered"), "while it waited for a place of its key",
                told=(r"client \d+ was opened, begun for call `first`, after \d+ ms .*initializing \d+ ms",),
            )  # fmt: skip


async def credentials(play: Play) -> None:
    async with world(credential=True) as w:
        record, tool = Record(w.pool), await w.tool()
        w.host.fail_credential = ConnectionError("token s3cret was refused")
        await ended(tool.call(identity=ALICE, call_id="no credential"))
        explanation = await play.why(
            "the credential provider raises", record, "no credential",
            ("refused", "credential-failed", "not-sent"), "ConnectionError", "at the gate `credential`",
        )  # fmt: skip
        play.check("what the provider said is not told", holds="s3cret" not in explanation.words())

        async def ask_first(request: CredentialRequest) -> NeedsAuthorization:
            await trio.lowlevel.checkpoint()
            return NeedsAuthorization("https://idp.example/authorize?state=s3cret", "state")

        w.host.get = ask_first  # type: ignore[method-assign, assignment]
        await ended(tool.call(identity=ALICE, call_id="consent"))
        explanation = await play.why(
            "somebody has to consent first", record, "consent",
            ("refused", "authorization-required", "not-sent"), "somebody has to authorize first",
            told=("now: ask the user",),
        )  # fmt: skip
        play.check("the address is not told", holds="idp.example" not in explanation.words())


async def challenges(play: Play) -> None:
    async with world(credential=CredentialRequirement("files")) as w:
        record, tool = Record(w.pool), await w.tool()

        async def slow(request: CredentialRequest) -> Issued:
            await trio.sleep(0.05)
            return Issued(bearer("token"))

        w.host.get = slow  # type: ignore[method-assign]
        w.server.on("tools/call", Status(401, headers={"www-authenticate": "Bearer"}))
        await ended(tool.call(identity=ALICE, call_id="rejected"))
        await play.why(
            "the server rejects two credentials, one after the other", record, "rejected",
            ("refused", "authorization-required", "refused"), "http 401",
            told=("the last of 2 attempts, and what was answered proves that nothing ran", "attempt 2 began"),
        )  # fmt: skip
