"""One key, one call, one explanation; the task tree."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from afpool.console import build_registry
from afpool.testing import FakeTool, Hold, echo_tool
from tests.console.desk_kit import desk, memory_desk
from tests.pool.kit import ALICE, BOB, refused, start, until

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_one_actor_whole() -> None:
    let_go = trio.Event()
    async with desk(pool={"max_operations": 1}) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        at.world.server.on("tools/call", Hold(let_go))
        start(nursery, lambda: tool.call({}, identity=ALICE, call_id="first"))
        await at.world.server.wait_until(lambda: at.world.sent() == 1)
        start(nursery, lambda: tool.call({}, identity=ALICE, call_id="second"))
        await until(lambda: at.pool.waiting == 1)
        key = at.actor(ALICE).shown
        shown = await at.ask(f"show actor {key}", at.reader)
        json.dumps(shown)
        assert (shown["kind"], shown["key"], shown["server"], shown["state"]) == (
            "actor",
            key,
            "files",
            "full",
        )
        assert (shown["in_flight"], shown["max"], shown["waiting"], shown["epoch"]) == (1, 1, 1, 0)
        (running,) = shown["running"]
        assert (running["call_id"], running["tool"], running["waits_for"]) == ("first", "echo", "server")
        assert running["since"] >= 0
        assert running["sent"]
        (queued,) = shown["queue"]
        assert (queued["call_id"], queued["tool"]) == ("second", "echo")
        assert queued["waited"] >= 0
        assert 1 <= len(shown["turns"]) <= 20
        assert {"Admit", "Opened"} <= {turn["message"] for turn in shown["turns"]}
        assert all(turn["took"] > 0 and turn["at"] > 1_700_000_000 for turn in shown["turns"])
        assert shown["events"][0]["kind"] == "opened"
        assert {event["key"] for event in shown["events"]} == {key}
        assert shown["last_refusal"] is None
        assert shown["connection"]["version"]
        assert shown["list"]["tools"] == 1
        assert "identity" not in shown
        operator = await at.ask(f"show actor {key[:8]} --reveal")
        assert operator["identity"] == {"tenant": "acme", "principal": "alice", "conversation": None}
        await at.refused(f"show actor {key} --reveal", "not-allowed", at.reader)
        let_go.set()


async def test_an_actor_says_what_it_was_refused_last_and_why() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        await at.pool.tools(BOB)
        at.pool.invalidate(identity=ALICE)
        await refused(tool.call({}, identity=ALICE, call_id="lost"), "binding-changed")
        shown = await at.ask(f"show actor {at.actor(ALICE).shown}")
        assert shown["last_refusal"]["call_id"] == "lost"
        assert shown["last_refusal"]["cause"] == shown["events"][-1]["n"] or "revoked" in {
            event["kind"] for event in shown["events"]
        }
        assert shown["epoch"] == 1
        other = await at.ask(f"show actor {at.actor(BOB).shown}")
        assert other["last_refusal"] is None
        assert all(event["key"] == at.actor(BOB).shown for event in other["events"])


async def test_a_key_is_found_by_its_beginning_and_not_by_what_many_begin_with() -> None:
    async with desk() as at:
        keep = [at.pool.actor_for("files", who) for who in (ALICE, BOB)]
        one = keep[0].shown
        assert (await at.ask(f"show actor {one}"))["key"] == one
        shared = next(length for length in range(2, 15) if one[:length] != keep[1].shown[:length])
        assert (await at.ask(f"show actor {one[:shared]}"))["key"] == one
        if shared > 3:  # both begin alike
            error = await at.refused(f"show actor {one[: shared - 1]}", "unknown-id")
            assert set(error.tries) == {f"show actor {actor.shown}" for actor in keep}
        for unknown in ("k:ffffffffffff", "k:", "alice", "files", "k:" + "0" * 1000):
            error = await at.refused(f"show actor {unknown}", "unknown-id")
            assert len(error.message) < 200
        assert await at.registry.complete("show actor k:", at.reader) == sorted(actor.shown for actor in keep)


async def test_one_call_with_its_stages() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        await tool.call({}, identity=ALICE, call_id="call-of-mine-1")
        shown = await at.ask("show call call-of-mine", at.reader)
        assert (shown["kind"], shown["call_id"], shown["before"]) == ("call", "call-of-mine-1", [])
        use = shown["use"]
        assert (use["tool"], use["outcome"], use["key"]) == ("echo", "ok", at.actor(ALICE).shown)
        assert use["stages"][0][0] == "start"
        assert [since for _, since in use["stages"]] == sorted(since for _, since in use["stages"])
        assert use["took"] >= use["stages"][-1][1]
        await tool.call({}, identity=ALICE, call_id="call-of-mine-2")
        error = await at.refused("show call call-of-mine", "unknown-id")
        assert set(error.tries) == {"show call call-of-mine-1", "show call call-of-mine-2"}
        await at.refused("show call nothing", "unknown-id")
        assert await at.registry.complete("why call-of", at.reader) == ["call-of-mine-1", "call-of-mine-2"]


async def test_a_call_under_way_says_where_it_waits(autojump_clock: MockClock) -> None:
    async with (
        memory_desk(tools=[FakeTool("slow", delay=3), echo_tool()]) as at,
        trio.open_nursery() as nursery,
    ):
        tool = await at.world.tool(ALICE, "slow")
        start(nursery, lambda: tool.call({}, identity=ALICE, call_id="slow-1"))
        await trio.sleep(2)
        use = (await at.ask("show call slow-1"))["use"]
        assert (use["outcome"], use["waits_for"], use["took"]) == (None, "server", None)
        assert 1.9 < use["age"] < 2.1
        assert 1.9 < use["since"] < 2.1


async def test_calls_that_have_left_the_record_are_said_to_have() -> None:
    async with desk(pool={"records": 1}) as at:
        tool = await at.world.tool(ALICE)
        for name in ("one", "two"):
            await tool.call({}, identity=ALICE, call_id=name)
        error = await at.refused("show call one", "unknown-id")
        assert "1 ended calls have left the record" in error.message
        assert "left" in (await at.refused("why one", "unknown-id")).message


async def test_why_is_the_explanation_beside_the_calls_facts() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        at.pool.invalidate(identity=ALICE, by="console uid 7")
        await refused(tool.call({}, identity=ALICE, call_id="lost"), "binding-changed")
        told = await at.ask("why lost", at.reader)
        json.dumps(told)
        assert told["kind"] == "explanation"
        assert "binding-changed" in told["headline"]
        assert any("console uid 7" in clause["text"] for clause in told["clauses"])
        assert told["use"]["call_id"] == "lost"
        # what a tool said of an artifact can be typed as it stands
        short, long = [
            await at.refused(f"why {prefix}art_{'0' * 22}", "unknown-id")
            for prefix in ("", "afpool://artifact/")
        ]
        assert short.message == long.message
        await at.refused("why nothing", "unknown-id")
        await at.refused("why", "bad-option")


async def test_without_a_record_nothing_is_explained() -> None:
    async with desk() as at:
        registry = build_registry(pool=at.pool)
        at.registry = registry
        async with registry.serving():
            error = await at.refused("why x y", "bad-option")
            error = await at.refused("why x", "failed")
        assert "no record" in error.message


# ---------------------------------------------------------------------------- tree


async def asleep(secret: str) -> None:
    assert secret
    await trio.sleep_forever()


async def test_the_tree_shows_every_task_below_the_one_that_holds_it() -> None:
    async with desk() as at, trio.open_nursery() as nursery:
        nursery.start_soon(asleep, "s3cret", name="task of s3cret")
        await wait_all_tasks_blocked()
        tree = await at.ask("tree", at.reader)
        assert tree["total"] == tree["shown"] == len(tree["lines"])
        lines = tree["lines"]
        assert lines[0]["depth"] == 0
        assert all(after["depth"] <= before["depth"] + 1 for before, after in itertools.pairwise(lines))
        (mine,) = [line for line in lines if line["name"] == f"{__name__}.asleep"]
        assert mine["waits"].startswith("asleep:")
        assert "sleep_forever" in mine["waits"]
        assert "s3cret" not in json.dumps(tree)
        assert [line["waits"] for line in lines].count("this command") == 1
        names = {line["name"] for line in lines}
        assert any(
            name.endswith("Janitor.run") for name in names
        )  # what background work is, not who wraps it
        nursery.cancel_scope.cancel()


async def test_a_tree_is_cut_by_depth_and_by_number() -> None:
    async with desk() as at:
        whole = await at.ask("tree")
        assert len((await at.ask("tree limit=2"))["lines"]) == 2
        assert {line["depth"] for line in (await at.ask("tree depth=1"))["lines"]} == {0, 1}
        assert (await at.ask("tree depth=1"))["total"] == whole["total"]
        await at.refused("tree depth=x", "bad-option")
