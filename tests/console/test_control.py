"""What an operator does: before, after, who asked; and pauses that end by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from afpool.console import Asker
from afpool.console._leases import GRACE
from afpool.testing import FakeTool, Hold, echo_tool
from tests.console.desk_kit import Desk, desk, memory_desk, unreachable
from tests.pool.kit import ALICE, BOB, Outcome, refused, start, until

if TYPE_CHECKING:
    from trio.testing import MockClock


def filed(at: Desk, kind: str) -> list[dict[str, Any]]:
    return [dict(event.facts) for event in at.pool.records.events if event.kind == kind]


async def ended(call: Outcome) -> None:
    """The call has its answer, after a while of virtual time."""
    with trio.fail_after(100):
        await call.done.wait()
    await call.answer()


async def paused(at: Desk) -> bool:
    (row,) = await at.rows("show actors")
    return bool(row["state"] == "paused")


@pytest.mark.parametrize(
    "line",
    [
        "pause files", "resume files", "drain files", "kill 1", "evict k:1", "refresh k:1", "invalidate k:1",
        "cancel c", "trace k:1 on",
    ],
)  # fmt: skip
async def test_who_may_only_look_changes_nothing(line: str) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        before = at.pool.records.events.filed
        await at.refused(line, "not-allowed", at.reader)
        assert at.pool.records.events.filed == before


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("pause flies", "unknown-id"), ("pause", "bad-option"), ("pause files forever", "bad-option"),
        ("pause files hold for=10s", "bad-option"), ("pause files for=0s", "bad-option"),
        ("pause files for=2h", "bad-option"), ("pause k:ffffffff", "unknown-id"),
        ("resume acme", "unknown-id"),
        ("drain files for=x", "bad-option"), ("kill 99999999", "unknown-id"), ("kill x", "unknown-id"),
        ("kill -1", "unknown-id"), ("kill " + "9" * 400, "unknown-id"), ("evict files", "unknown-id"),
        ("cancel nothing", "unknown-id"), ("refresh files", "unknown-id"), ("invalidate acme", "unknown-id"),
    ],
)  # fmt: skip
async def test_what_is_not_there_or_cannot_be_read_changes_nothing(line: str, code: str) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        before = at.pool.records.events.filed
        error = await at.refused(line, code)
        assert len(error.message) < 300
        assert at.pool.records.events.filed == before
    if line == "pause flies":
        assert error.tries == ("pause files",)


# ---------------------------------------------------------------------------- pauses


@pytest.mark.parametrize("what", ["key", "server"])
async def test_a_pause_ends_when_its_time_is_up(what: str, autojump_clock: MockClock) -> None:
    async with memory_desk() as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        name = at.actor(ALICE).shown if what == "key" else "files"
        began = trio.current_time()
        done = await at.ask(f"pause {name} for=20s")
        assert done["what"] == f"paused {name}"
        assert (done["before"]["state"], done["after"]["state"]) == ("open", "paused")
        assert done["until"] == pytest.approx(at.pool.seams.unix_now() + 20, abs=5)
        assert "20 s" in done["ends"]
        assert "after this console has gone" in done["ends"]
        assert filed(at, "paused") == [{"by": "console uid 1000"}]
        call = start(nursery, lambda: tool.call({}, identity=ALICE))
        await ended(call)
        assert trio.current_time() - began == pytest.approx(20)
        assert filed(at, "resumed") == [{"by": "console uid 1000 (its time is up)"}]


async def test_a_pause_ends_soon_after_its_console_has_gone(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        await at.ask("pause files for=10m")
        await trio.sleep(30)
        assert await paused(at)
        at.operator.end()
        await trio.sleep(GRACE - 0.1)
        assert await paused(at)
        await trio.sleep(0.2)
        assert not await paused(at)
        assert filed(at, "resumed") == [{"by": "console uid 1000 (its console has gone)"}]


async def test_a_console_that_goes_late_in_a_pause_does_not_lengthen_it(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        await at.ask("pause files for=10s")
        await trio.sleep(9)
        at.operator.end()
        await trio.sleep(1.1)
        assert not await paused(at)


async def test_a_pause_that_is_held_says_so_and_outlives_its_console(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        done = await at.ask("pause files hold")
        assert done["until"] is None
        assert done["ends"] == "not before `resume files`"
        at.operator.end()
        await trio.sleep(10_000)
        assert (await at.rows("show servers"))[0]["state"] == "paused"
        error = await at.refused("pause files", "failed")
        assert "by console uid 1000" in error.message
        assert "nothing was changed" in error.message
        assert error.tries == ("resume files",)
        assert (await at.ask("resume files"))["after"]["state"] in ("open", "idle")


async def test_a_pause_of_the_host_is_not_ended_by_a_console(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        key = at.pool.key_of(ALICE, "files")
        at.pool.pause(key)
        error = await at.refused(f"pause {at.actor(ALICE).shown}", "failed")
        assert "the host" in error.message
        await trio.sleep(100)
        assert await paused(at)


async def test_a_lease_ends_only_what_it_began(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        key = at.pool.key_of(ALICE, "files")
        await at.ask(f"pause {at.actor(ALICE).shown} for=10s")
        at.pool.resume(key)
        at.pool.pause(key, by="the host")
        await trio.sleep(60)
        assert await paused(at)
        assert at.registry.leases.find(key) is None


async def test_asking_again_renews_and_hold_drops_the_lease(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        other = Asker("operate", "console uid 2", 3)
        await at.ask("pause files for=10s")
        await trio.sleep(8)
        await at.ask("pause files for=10s", other)
        at.operator.end()  # it is the other's now
        await trio.sleep(8)
        assert await paused(at)
        await at.ask("pause files hold", other)
        await trio.sleep(1000)
        assert (await at.rows("show servers"))[0]["state"] == "paused"
        await at.ask("resume files", other)
        await trio.sleep(1000)
        assert len(filed(at, "resumed")) == 1


async def test_resuming_takes_the_lease_back(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        await at.ask("pause files for=10s")
        done = await at.ask("resume files")
        assert (done["before"]["state"], done["after"]["state"]) == ("paused", "open")
        await trio.sleep(100)
        assert filed(at, "resumed") == [{"by": "console uid 1000"}]
        assert not at.operator._at_end


async def test_a_key_of_a_paused_server_is_said_to_be_held_still() -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        await at.ask("pause files")
        done = await at.ask(f"resume {at.actor(ALICE).shown}")
        assert done["after"]["state"] == "paused"
        assert done["note"] == "its server is paused still: `resume files`"


async def test_when_the_console_of_the_process_closes_what_is_leased_ends(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        await at.ask("pause files for=10m")
        await at.ask(f"pause {at.actor(ALICE).shown} hold")
        at.registry.leases.end_all()
        assert "files" not in at.pool.held_servers
        assert at.actor(ALICE).machine.paused
        pool = at.pool
        await at.ask("pause files for=10m")
        assert "files" in pool.held_servers
        async with at.registry.serving():
            pass
        assert "files" not in pool.held_servers
        assert filed(at, "resumed")[-1] == {"by": "console uid 1000 (its console was closed)"}


async def test_a_key_that_is_gone_needs_no_resume(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        actor = at.pool.actor_for("files", ALICE)
        await at.ask(f"pause {actor.shown} for=10s")
        at.pool.reconfigure([])
        del actor
        await trio.sleep(100)
        assert not at.pool.held_servers


# ---------------------------------------------------------------------------- drain, kill, evict


async def test_a_drain_waits_for_what_runs_and_says_how_it_ended(autojump_clock: MockClock) -> None:
    async with (
        memory_desk(tools=[FakeTool("slow", delay=3), echo_tool()]) as at,
        trio.open_nursery() as nursery,
    ):
        tool = await at.world.tool(ALICE, "slow")
        call = start(nursery, lambda: tool.call({}, identity=ALICE))
        await trio.sleep(1)
        key = at.actor(ALICE).shown
        began = trio.current_time()
        done = await at.ask(f"drain {key}")
        assert trio.current_time() - began == pytest.approx(2)
        assert done["what"] == f"drained {key}"
        assert done["before"]["in_flight"] == 1
        assert done["after"]["in_flight"] == 0
        assert "note" not in done
        await call.answer()
        assert [event["by"] for event in filed(at, "draining")] == ["console uid 1000"]


async def test_a_drain_goes_on_when_its_asker_does_not_wait(autojump_clock: MockClock) -> None:
    async with (
        memory_desk(tools=[FakeTool("slow", delay=30), echo_tool()]) as at,
        trio.open_nursery() as nursery,
    ):
        tool = await at.world.tool(ALICE, "slow")
        call = start(nursery, lambda: tool.call({}, identity=ALICE))
        await trio.sleep(1)
        done = await at.ask(f"drain {at.actor(ALICE).shown} for=2s")
        assert done["what"].startswith("draining")
        assert done["note"] == "1 of 1 keys have not settled; it goes on"
        assert (await at.rows("show actors"))[0]["state"] == "draining"
        assert (await at.rows("show servers"))[0]["state"] == "draining"
        with trio.move_on_after(1):
            await at.ask(f"drain {at.actor(ALICE).shown}")  # who is killed in the middle of waiting
        await ended(call)
        await wait_all_tasks_blocked()
        assert len(filed(at, "drained")) == 2
        assert (await at.rows("show actors"))[0]["state"] == "idle"


async def test_a_server_is_drained_with_all_its_keys(autojump_clock: MockClock) -> None:
    async with (
        memory_desk(tools=[FakeTool("slow", delay=3), echo_tool()]) as at,
        trio.open_nursery() as nursery,
    ):
        keep = [at.pool.actor_for("files", who) for who in (ALICE, BOB)]
        slow = await at.world.tool(ALICE, "slow")
        await at.pool.tools(BOB)
        start(nursery, lambda: slow.call({}, identity=ALICE))
        await trio.sleep(1)
        done = await at.ask("drain files")
        assert done["what"] == "drained files"
        assert (done["before"]["clients"], done["after"]["clients"]) == (2, 0)
        assert {row["state"] for row in await at.rows("show actors")} == {"idle"}
        assert len(keep) == 2
        again = await at.ask("drain files")
        assert again["what"] == "drained files"


async def test_a_client_is_killed_and_its_calls_end_with_their_verdict() -> None:
    let_go = trio.Event()
    async with desk() as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        at.world.server.on("tools/call", Hold(let_go))
        call = start(nursery, lambda: tool.call({}, identity=ALICE))
        await at.world.server.wait_until(lambda: at.world.sent() == 1)
        (client,) = await at.rows("show clients")
        done = await at.ask(f"kill {client['id']}")
        assert done["what"] == f"killed client {client['id']}"
        assert done["before"] == {"state": "open", "in_flight": 1, "sent": 1}
        assert "in doubt" in done["note"]
        with trio.fail_after(5):
            await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == ("client-closed", "in-doubt")
        assert [event["by"] for event in filed(at, "killed")] == ["console uid 1000"]
        let_go.set()


async def test_an_idle_client_is_evicted_and_a_used_one_is_not() -> None:
    let_go = trio.Event()
    async with desk() as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        key = at.actor(ALICE).shown
        at.world.server.on("tools/call", Hold(let_go), times=1)
        call = start(nursery, lambda: tool.call({}, identity=ALICE))
        await at.world.server.wait_until(lambda: at.world.sent() == 1)
        error = await at.refused(f"evict {key}", "failed")
        assert "nothing was changed" in error.message
        assert error.tries[0] == f"drain {key}"
        let_go.set()
        await call.answer()
        done = await at.ask(f"evict {key}")
        assert done["before"]["client"] is not None
        assert filed(at, "evicted")[-1]["by"] == "console uid 1000"
        await until(lambda: not at.actor(ALICE).machine.old)
        await at.refused(f"evict {key}", "failed")


# ---------------------------------------------------------------------------- lists, bindings, calls


async def test_a_list_is_asked_for_again() -> None:
    async with desk() as at:
        await at.pool.tools(ALICE)
        key = at.actor(ALICE).shown
        at.world.server.set_tools([echo_tool(), FakeTool("more")], notify=False)
        done = await at.ask(f"refresh {key}")
        assert (done["before"]["generation"], done["after"]["generation"]) == (1, 2)
        assert (done["before"]["tools"], done["after"]["tools"]) == (1, 2)
        assert filed(at, "refreshed") == [{"by": "console uid 1000"}]


async def test_a_list_that_cannot_be_had_is_said_by_its_code(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        unreachable(at)
        keep = at.pool.actor_for("files", BOB)
        error = await at.refused(f"refresh {keep.shown}", "failed")
        assert "open-failed" in error.message
        assert f"show actor {keep.shown}" in error.tries


async def test_bindings_are_ended() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        done = await at.ask(f"invalidate {at.actor(ALICE).shown}")
        assert (done["before"]["epoch"], done["after"]["epoch"]) == (0, 1)
        assert filed(at, "revoked") == [{"why": "by an operator", "by": "console uid 1000"}]
        await refused(tool.call({}, identity=ALICE), "binding-changed")


async def test_a_call_is_withdrawn() -> None:
    let_go = trio.Event()
    async with desk() as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        at.world.server.on("tools/call", Hold(let_go))
        call = start(nursery, lambda: tool.call({}, identity=ALICE, call_id="one-long-call"))
        await at.world.server.wait_until(lambda: at.world.sent() == 1)
        assert await at.registry.complete("cancel one", at.operator) == ["one-long-call"]
        done = await at.ask("cancel one-long")
        assert done["what"] == "cancelled call one-long-call"
        assert done["before"]["waits_for"] == "server"
        with trio.fail_after(5):
            await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == ("cancelled", "in-doubt")
        error = await at.refused("cancel one-long-call", "failed")
        assert "has ended" in error.message
        assert error.tries == ("why one-long-call",)
        let_go.set()


# ---------------------------------------------------------------------------- what goes meanwhile


@pytest.mark.parametrize("what", ["key", "server"])
async def test_a_pause_of_a_console_that_closes_does_not_stay(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        name = at.actor(ALICE).shown if what == "key" else "files"
        with monkeypatch.context() as closing:
            closing.setattr(at.registry, "_nursery", None)
            error = await at.refused(f"pause {name}", "failed")
            assert "closing" in error.message
        assert not await paused(at)
        assert not at.pool.held_servers
        done = await at.ask(f"pause {name}")  # and nothing is left that would end the next one
        assert done["after"]["state"] == "paused"


async def test_what_is_changed_of_a_pause_is_filed_with_who_asked() -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        other = Asker("operate", "console uid 2", 3)
        for name in ("files", at.actor(ALICE).shown):
            before = len(filed(at, "paused"))
            await at.ask(f"pause {name} for=10s")
            await at.ask(f"pause {name} for=20s", other)
            await at.ask(f"pause {name} hold", other)
            assert filed(at, "paused")[before:] == [
                {"by": "console uid 1000"},
                {"why": "for 20 s more", "by": "console uid 2"},
                {"why": "held", "by": "console uid 2"},
            ]
            await at.ask(f"resume {name}")


async def test_a_client_that_goes_by_itself_was_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        (row,) = await at.rows("show clients")
        monkeypatch.setattr(type(at.pool), "kill", lambda *_, **__: False)
        error = await at.refused(f"kill {row['id']}", "failed")
        assert "nothing was changed" in error.message


@pytest.mark.parametrize("line", ["pause KEY", "resume KEY", "evict KEY"])
async def test_a_key_that_goes_while_it_is_looked_at_is_said_to_be_gone(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)

        def gone(*_: object, **__: object) -> None:
            raise LookupError("k")

        monkeypatch.setattr(type(at.pool), line.partition(" ")[0], gone)
        error = await at.refused(line.replace("KEY", at.actor(ALICE).shown), "unknown-id")
        assert "nothing was changed" in error.message


async def test_a_server_that_is_removed_while_it_is_looked_at_is_said_to_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from afpool.console import _control

    async def none(*_: object) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {}

    monkeypatch.setattr(_control, "by_server", none)
    async with memory_desk() as at:
        done = await at.ask("pause files")
        assert done["after"]["in_flight"] == 0


async def test_a_drain_that_breaks_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        await at.pool.tools(BOB)
        bob = at.actor(BOB).shown
        await at.ask(f"pause {bob}")

        async def breaks(*_: object, **__: object) -> None:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("CANARY")

        monkeypatch.setattr(type(at.pool), "drain", breaks)
        done = await at.ask(f"drain {at.actor(ALICE).shown} for=5s")
        assert "1 of 1 keys have not settled" in done["note"]
        assert at.registry.leases.find(at.actor(BOB).key) is not None
    assert "a task of the console failed: RuntimeError" in caplog.text
    assert "CANARY" not in caplog.text
