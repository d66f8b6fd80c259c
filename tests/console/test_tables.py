"""Tables over a real pool: what they say is what there is, and nothing of it is a secret."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import Identity, Server
from afpool.console import _overview, build_registry
from afpool.console._ask import make_ask
from afpool.console._slices import Slices, encode
from afpool.testing import FakeTool, Hold, echo_tool, sleep_tool
from tests.console.desk_kit import Desk, desk, memory_desk, rows_of, unreachable
from tests.pool.kit import ALICE, BOB, CAROL, person, refused, start, until

if TYPE_CHECKING:
    from trio.testing import MockClock

SECRET = "s3cret-canary"


async def test_the_contract_names_these_tables() -> None:
    async with desk() as at:
        for name in (
            "servers", "actors", "clients", "leases", "waiting", "calls", "lists", "shares", "credentials",
            "artifacts", "events", "slow", "errors", "config", "memory", "loop", "limits", "version", "runs",
            "recent", "stages", "refusals", "consoles",
        ):  # fmt: skip
            result = await at.ask(f"show {name}", at.reader)
            assert result["kind"] == "table"
            assert result["table"] == name
            json.dumps(result)
            table = at.registry.tables[name]
            kinds = {"text", "key", "id", "count", "seconds", "unix", "bytes", "flag", "rate", "percent"}
            assert {column.kind for column in table.columns} <= kinds
            assert table.help


async def test_an_actor_its_client_and_its_list() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        await tool.call({"text": "a"}, identity=ALICE)
        (actor,) = await at.rows("show actors")
        client = at.actor(ALICE).machine.client
        assert client is not None
        assert actor["key"] == at.actor(ALICE).shown
        assert (actor["server"], actor["state"], actor["client"]) == ("files", "open", client.id)
        assert (actor["in_flight"], actor["max"], actor["waiting"], actor["maxwait"]) == (0, 16, 0, None)
        assert actor["generation"] == 1
        assert actor["turns"] == at.actor(ALICE).turns > 0
        assert 0 <= actor["idle"] < 60
        (connection,) = await at.rows("show clients")
        assert (connection["id"], connection["key"], connection["state"]) == (client.id, actor["key"], "open")
        assert connection["place"].startswith("http://127.0.0.1:")
        assert connection["place"].count("/") == 2  # an origin, without a path
        (listed,) = await at.rows("show lists")
        assert (listed["state"], listed["tools"], listed["key"]) == ("settled", 1, actor["key"])
        (server,) = await at.rows("show servers")
        assert (server["keys"], server["clients"], server["waiting"]) == (1, 1, 0)
        assert server["place"] is None  # it differs by identity


async def test_calls_leases_and_waiters_are_the_same_calls_seen_from_their_sides() -> None:
    let_go = trio.Event()
    async with desk(pool={"max_operations": 1}) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        at.world.server.on("tools/call", Hold(let_go))
        first = start(nursery, lambda: tool.call({}, identity=ALICE, call_id="first"))
        await at.world.server.wait_until(lambda: at.world.sent() == 1)
        second = start(nursery, lambda: tool.call({}, identity=ALICE, call_id="second"))
        await until(lambda: at.pool.waiting == 1)
        calls = {row["call"]: row for row in await at.rows("show calls")}
        assert calls["first"]["state"] == "sent"
        assert calls["second"]["state"] == "waiting"
        assert calls["second"]["waits_for"] == "admission"
        assert calls["first"]["left"] > 0
        (lease,) = await at.rows("show leases")
        assert (lease["call"], lease["state"], lease["waits_for"]) == ("first", "running", "server")
        (waiter,) = await at.rows("show waiting")
        assert (waiter["call"], waiter["for"], waiter["place"]) == ("second", "key", 1)
        assert waiter["held_by"] == "first"
        (actor,) = await at.rows("show actors")
        assert (actor["state"], actor["in_flight"], actor["waiting"]) == ("full", 1, 1)
        assert actor["maxwait"] >= 0
        assert actor["maxwait"] == pytest.approx(waiter["waits"], abs=1)
        (server,) = await at.rows("show servers")
        assert (server["state"], server["in_flight"], server["waiting"]) == ("waiting", 1, 1)
        assert await at.rows("show waiting older=1h") == []
        assert len(await at.rows("show waiting tenant=acme principal=alice")) == 1
        assert await at.rows("show waiting tenant=globex") == []
        let_go.set()
        await first.answer()
        await second.answer()
        assert await at.rows("show calls") == []


async def test_a_call_whose_caller_has_gone_settles(autojump_clock: MockClock) -> None:
    async with memory_desk(tools=[FakeTool("slow", delay=3), echo_tool()]) as at:
        tool = await at.world.tool(ALICE, "slow")
        with trio.move_on_after(1):
            await tool.call({}, identity=ALICE, call_id="gone")
        (lease,) = await at.rows("show leases")
        assert (lease["call"], lease["state"], lease["tool"]) == ("gone", "settling", "slow")
        assert lease["left"] is None
        assert (await at.rows("show actors"))[0]["in_flight"] == 1
        await trio.sleep(10)
        assert await at.rows("show leases") == []


async def test_what_has_ended_is_found_by_outcome_and_by_time() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        await tool.call({}, identity=ALICE, call_id="good")
        at.pool.invalidate(identity=ALICE)
        await refused(tool.call({}, identity=ALICE, call_id="bad"), "binding-changed")
        recent = await at.rows("show recent")
        assert [row["call"] for row in recent] == ["bad", "good"]
        (bad,) = await at.rows("show errors")
        assert (bad["call"], bad["outcome"], bad["code"], bad["delivery"]) == (
            "bad", "refused", "binding-changed", "not-sent",
        )  # fmt: skip
        assert bad["key"] == at.actor(ALICE).shown
        (event,) = await at.rows("show events kind=revoked")
        assert bad["cause"] == event["n"]
        slow = await at.rows("show slow")
        assert [row["took"] for row in slow] == sorted((row["took"] for row in recent), reverse=True)
        assert {row["longest"] for row in slow if row["call"] == "good"} <= {
            "start", "leased", "attempt", "write", "sent", "answered", "end",
        }  # fmt: skip
        assert [row["call"] for row in await at.rows("show recent outcome=ok")] == ["good"]
        assert [row["call"] for row in await at.rows("show recent code=binding*")] == ["bad"]
        assert await at.rows("show recent older=1h") == []
        counted = {row["code"]: row["total"] for row in await at.rows("show refusals")}
        assert counted == {"binding-changed": 1}


async def test_states_of_keys(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:

        async def state() -> str:
            return str((await at.rows("show actors"))[0]["state"])

        tool = await at.world.tool(ALICE)
        assert await state() == "open"
        key = at.pool.key_of(ALICE, "files")
        at.pool.pause(key)
        assert await state() == "paused"
        at.pool.resume(key)
        at.pool.pause_server("files")
        assert await state() == "paused"
        assert (await at.rows("show servers"))[0]["state"] == "paused"
        at.pool.resume_server("files")
        at.pool.evict(key)
        await trio.sleep(1)
        assert await state() == "idle"
        assert tool is not None


async def test_a_server_that_cannot_be_opened_is_in_back_off(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        unreachable(at)
        for _ in range(2):
            with pytest.raises(afpool.AfpoolError):
                await at.pool.refresh(BOB, "files")
        keep = at.actor(BOB) if at.pool.actors() else at.pool.actor_for("files", BOB)
        rows = {row["key"]: row["state"] for row in await at.rows("show actors")}
        assert rows[keep.shown] == "backoff"
        (server,) = await at.rows("show servers")
        assert (server["state"], server["backoff"]) == ("backoff", 1)
        shown = await at.ask(f"show actor {keep.shown}")
        assert shown["state"] == "backoff"
        assert shown["backoff"]["failures"] == 2
        assert shown["backoff"]["left"] > 0
        (finding,) = (await at.ask("check servers"))["found"]
        assert finding["level"] == "bad"
        assert finding["facts"] == {"server": "files", "keys": 1, "failures": 2, "code": "open-failed"}
        await trio.sleep(60)
        assert {row["state"] for row in await at.rows("show actors")} == {"idle"}


async def test_the_lists_that_are_shared_are_shown_once() -> None:
    async with desk() as at:
        at.world.host.names = {"alice": "readers", "bob": "readers"}
        await at.pool.tools(ALICE)
        await at.pool.tools(BOB)
        (share,) = await at.rows("show shares")
        assert (share["members"], share["server"], share["tools"]) == (
            1,
            "files",
            1,
        )  # one has listed for both
        (listed,) = await at.rows("show lists")
        assert (listed["share"], listed["key"]) == (share["share"], None)
        assert "readers" not in json.dumps(await at.ask("show shares"))


async def test_limits_and_what_is_used_of_them() -> None:
    async with desk(pool={"max_in_flight": 10}) as at:
        rows = {row["name"]: row for row in await at.rows("show limits")}
        assert (rows["max_in_flight"]["value"], rows["max_in_flight"]["used"]) == (10, 0)
        assert rows["max_in_flight"]["default"] is False
        assert rows["max_clients"]["default"] is True
        assert rows["records"]["percent"] == 0.0


async def test_memory_by_part_adds_up_to_less_than_the_process() -> None:
    async with desk() as at:
        await at.world.tool(ALICE)
        rows = {row["part"]: row for row in await at.rows("show memory")}
        assert rows["process"]["bytes"] > 10_000_000
        assert rows["process, at its most"]["bytes"] >= rows["process"]["bytes"] * 0.5
        assert rows["definitions"]["items"] == rows["catalogs"]["items"] == 1
        assert rows["keys"]["items"] == rows["clients"]["items"] == 1
        parts = sum(row["bytes"] or 0 for name, row in rows.items() if not name.startswith("process"))
        assert parts < rows["process"]["bytes"]


async def test_a_sample_stands_for_many_definitions() -> None:
    tools = [FakeTool(f"tool_{at}") for at in range(200)]
    async with desk(tools=tools) as at:
        await at.pool.tools(ALICE)
        rows = {row["part"]: row for row in await at.rows("show memory")}
        exact = sum(400 + len(one.raw) for one in at.pool.catalogs.table.tools())
        assert rows["definitions"]["items"] == 200
        assert rows["definitions"]["how"] == "estimated"
        assert rows["definitions"]["bytes"] == pytest.approx(exact, rel=0.2)


async def test_runs_are_told_by_their_calls() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        context = afpool.ToolContext(identity=ALICE, run_id="run-1")
        await tool.execute({}, context)
        (run,) = await at.rows("show runs")
        assert (run["run"], run["running"], run["ended"], run["failed"]) == ("run-1", 0, 1, 0)
        assert run["open"] is False


async def test_overview_has_what_people_look_for_first() -> None:
    let_go = trio.Event()
    async with desk(pool={"max_operations": 1}) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        await tool.call({}, identity=ALICE)
        at.world.server.on("tools/call", Hold(let_go))
        for name in ("one", "two"):
            start(nursery, lambda name=name: tool.call({}, identity=ALICE, call_id=name))  # type: ignore[misc]
        await until(lambda: at.pool.waiting == 1 and at.world.sent() == 2)
        seen = await at.ask("show overview", at.reader)
        assert (seen["in_flight"], seen["waiting"], seen["clients"], seen["actors"]) == (1, 1, 1, 1)
        assert seen["oldest_wait"] >= 0
        assert seen["outcomes"]["ok"] == 1
        assert {row["stage"] for row in seen["stages"]} >= {"answered"}
        (server,) = seen["servers"]
        assert (server["server"], server["state"], server["waiting"]) == ("files", "waiting", 1)
        assert {"p50", "p95", "p99", "calls", "in_flight", "clients", "actors"} <= server.keys()
        let_go.set()


async def test_a_hundred_who_look_at_the_overview_cost_what_one_does(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_overview, "Slices", functools.partial(Slices, budget=0.0))
    async with memory_desk() as at:
        keep = [at.pool.actor_for("files", person(number)) for number in range(100)]
        looked: list[dict[str, Any]] = []

        async def look() -> None:
            looked.append(await at.ask("show overview"))

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(look)
        assert len({id(one) for one in looked}) == 1
        assert looked[0]["actors"] == len(keep)
        await trio.sleep(1)
        assert await at.ask("show overview") is not looked[0]


async def test_config_shows_what_is_in_force_and_no_secret() -> None:
    async with desk(server={"keyed_on": ("tenant",), "pins": {"echo": "d" * 64}}) as at:
        rows = {row["setting"]: row for row in await at.rows("show config")}
        assert rows["servers.files.keyed_on"]["value"] == "tenant"
        assert rows["servers.files.keyed_on"]["from"] == "given"
        assert rows["servers.files.plan"]["value"] == "by identity"
        assert rows["servers.files.pins"]["value"] == "echo"
        assert rows["limits.max_operations"] == {
            "setting": "limits.max_operations", "value": "16", "from": "default",
        }  # fmt: skip


HTTP = afpool.HttpTransport(url=f"https://api.example:8443/mcp?key={SECRET}", headers={"x-key": SECRET})
UDS = afpool.HttpTransport(url=f"http://localhost/{SECRET}", uds=f"/run/{SECRET}.sock")
SOCKET = afpool.WebSocketTransport(url=f"wss://api.example/{SECRET}?t={SECRET}", subprotocols=[SECRET])
CHILD = afpool.StdioTransport.of("/opt/bin/serve-mcp", f"--token={SECRET}", env={"KEY": SECRET})


@pytest.mark.parametrize(
    ("transport", "shown"),
    [
        (HTTP, "https://api.example:8443"),
        (UDS, "http://localhost (unix socket)"),
        (SOCKET, "wss://api.example"),
        (CHILD, "stdio serve-mcp"),
    ],
)
async def test_a_place_is_an_origin_or_the_name_of_a_command(transport: Any, shown: str) -> None:
    plan = afpool.Plan(transport=transport)
    async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
        registry = build_registry(pool=pool)
        at = Desk(None, registry)  # type: ignore[arg-type]
        async with registry.serving():
            (row,) = rows_of(await at.ask("show servers"))
            assert row["place"] == shown
            config = {one["setting"]: one["value"] for one in rows_of(await at.ask("show config"))}
            assert config["servers.files.plan"] == shown
            for name in registry.tables:
                assert SECRET not in json.dumps(await at.ask(f"show {name}"))


async def test_nothing_secret_and_nobody_is_in_what_a_reader_can_ask_for() -> None:
    who = Identity(f"tenant-{SECRET}", f"user-{SECRET}", f"talk-{SECRET}")
    async with desk(credential=True) as at:
        at.world.host.token = f"token-{SECRET}"
        tool = await at.world.tool(who)
        await tool.call({"text": f"argument-{SECRET}"}, identity=who, call_id="c-1")
        key = at.actor(who).shown
        asked = [f"show {name}" for name in at.registry.tables]
        asked += [
            "show",
            "help",
            "check",
            "tree",
            f"show actor {key}",
            "show call c-1",
            "why c-1",
            "show overview",
        ]
        for line in asked:
            told = json.dumps(await at.ask(line, at.reader))
            assert SECRET not in told, line
        for line in ("tail last=50", "watch actors", "watch overview"):
            stream = await at.stream(line, at.reader)
            with trio.fail_after(5):
                found = await stream.next()
            assert found is not None
            assert SECRET not in (await encode(found)).decode(), line
            stream.close()
        for option in ("tenant", "principal", "conversation"):
            await at.refused("show actors --reveal", "not-allowed", at.reader)
            assert (
                len(
                    await at.rows(f"show actors {option}={getattr(who, option, None) or who.conversation_id}")
                )
                == 1
            )
        told = json.dumps(await at.ask("show actors --reveal"))
        assert told.count(SECRET) == 3


async def test_tables_go_on_while_the_world_changes() -> None:
    async with desk(tools=[echo_tool(), sleep_tool()]) as at:
        keep = [await at.pool.tools(who) for who in (ALICE, BOB, CAROL)]
        rows = at.registry.tables["actors"].rows
        seen = []
        for row in rows(make_ask((), (), {}, at.reader, at.pool.seams)):  # type: ignore[union-attr]
            seen.append(row[0])
            at.pool.evict(at.pool.key_of(ALICE, "files"))
            keep.clear()
        assert len(seen) == len(set(seen)) == 3
