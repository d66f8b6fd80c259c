"""What a service adds to its console: sessions, its door, settings with their places, its end."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from afpool.config import ServeLimits, load_config
from afpool.console import Asker, CommandError, build_registry
from afpool.serve import Drained, TokenFile, open_service, serve
from afpool.serve._life import _Life
from afpool.testing import sleep_tool
from tests.console.desk_kit import rows_of
from tests.serve.serve_kit import ALICE, place, until

READER = Asker("read", "console token read", 1)
OPERATOR = Asker("operate", "console uid 1", 2)


class Seen:
    """A registry that a service has joined."""

    def __init__(self, service):
        self.service = service
        runtime = service.runtime
        self.registry = build_registry(pool=runtime.pool, record=runtime.record)
        self.take_back = service.join(self)

    async def rows(self, line, by=READER):
        return rows_of(await self.registry.run(line, by))

    async def refused(self, line, code, by=OPERATOR):
        with pytest.raises(CommandError) as caught:
            await self.registry.run(line, by)
        assert caught.value.code == code
        return caught.value


async def test_sessions_are_shown_by_digest_and_never_by_their_id(tmp_path):
    async with place(tmp_path) as here:
        seen = Seen(here.service)
        client = await here.opened()
        (row,) = await seen.rows("show sessions")
        assert (row["over"], row["state"], row["in_flight"]) == ("http", "idle", 0)
        assert row["session"].startswith("s:")
        assert row["who"].startswith("w:")
        assert row["client"]
        text = json.dumps(await seen.registry.run("show sessions", READER))
        assert client.session not in text
        assert "alice" not in text
        assert len(await seen.rows("show sessions principal=alice")) == 1
        assert await seen.rows("show sessions principal=bob") == []
        (shown,) = await seen.rows("show sessions --reveal", OPERATOR)
        assert shown["principal"] == ALICE.principal


async def test_a_call_that_a_limit_of_the_service_refused_is_on_record(tmp_path, autojump_clock):
    limits = ServeLimits(calls_per_principal=1)
    async with (
        place(tmp_path, servers={"desk": [sleep_tool()]}, serve={"limits": limits}) as here,
        trio.open_nursery() as nursery,
    ):
        seen = Seen(here.service)
        client = await here.opened()
        nursery.start_soon(client.call, "sleep", {"seconds": 50})
        await until(lambda: here.service.calls == 1)
        for _ in range(3):
            assert "error" in await client.rpc("tools/call", {"name": "sleep", "arguments": {}})
        # who hammers at the door does not push everybody else's calls out of the record
        (row,) = await seen.rows("show errors principal=alice")
        assert (row["tool"], row["code"], row["delivery"]) == ("sleep", "overloaded", "not-sent")
        assert await seen.rows("show errors principal=bob") == []
        told = here.service.runtime.record.explain(row["call"])
        assert "a limit was reached; the limit is `calls_per_principal`" in told.headline
        assert "the tool was not run" in told.words()
        assert "`sleep` was called\n" in told.words()
        # what a caller names before anybody has looked is no label of a metric
        refused = [use for use in here.service.runtime.record.calls() if use.code]
        assert [use.tool for use in refused] == [""]
        (door,) = await seen.rows("show door name=calls_per_principal")
        assert door["refused"] == 3
        await trio.sleep(1.1)
        assert "error" in await client.rpc("tools/call", {"name": "sleep", "arguments": {}})
        assert len(await seen.rows("show errors")) == 2
        nursery.cancel_scope.cancel()


async def test_the_door_says_what_is_used_and_what_was_refused(tmp_path):
    async with place(tmp_path) as here:
        seen = Seen(here.service)
        await here.opened()
        rows = {row["name"]: row for row in await seen.rows("show door")}
        assert (rows["sessions"]["used"], rows["calls"]["used"], rows["calls"]["refused"]) == (1, 0, 0)
        assert rows["calls"]["value"] == here.service.config.limits.calls
        assert rows["sessions"]["percent"] == round(100 / rows["sessions"]["value"], 1)


async def test_what_a_service_adds_goes_with_it(tmp_path):
    async with place(tmp_path) as here:
        seen = Seen(here.service)
        before = seen.registry.tables["config"]
        assert {"sessions", "door"} <= seen.registry.tables.keys()
        seen.take_back()
        assert not {"sessions", "door"} & seen.registry.tables.keys()
        assert ("shutdown",) not in seen.registry.commands
        assert seen.registry.tables["config"] is not before


async def test_a_service_that_is_part_of_a_program_is_not_ended_from_here(tmp_path):
    async with place(tmp_path) as here:
        seen = Seen(here.service)
        await seen.refused("shutdown", "not-allowed", READER)
        assert "nothing was done" in (await seen.refused("shutdown", "failed")).message
        assert "nothing was done" in (await seen.refused("reload", "failed")).message
        assert here.service.health.state == "ready"


CONFIG = """
[serve]
bind = "127.0.0.1:0"
drain = 30

[serve.identity.tokens]
file = "tokens"

[console]
enabled = false

[servers.desk]
url = "http://127.0.0.1:9/mcp"
headers = { x-key = "${KEY}" }
"""


@pytest.fixture
def configured(tmp_path):
    path = tmp_path / "afpool.toml"
    path.write_text(CONFIG)
    TokenFile(tmp_path / "tokens").new(ALICE, "alice")

    def load():
        return load_config(path, env={"KEY": "s3cret-canary"})

    return path, load


async def serving(load, states, task_status):
    return await serve(
        load(), load=load, announce=lambda _: None, notify=states.append, task_status=task_status
    )


async def test_settings_are_shown_with_file_and_line_and_secrets_are_not(configured):
    path, load = configured
    async with open_service(load(), listen=False) as service:
        seen = Seen(service)
        rows = {row["setting"]: row for row in await seen.rows("show config limit=2000")}
        drain = rows["serve.drain"]
        assert drain["value"] in ("30", "30.0")
        assert str(path) in drain["from"]
        assert drain["from"].endswith(":4")
        assert rows["serve.path"]["from"] == "default"
        assert "s3cret" not in json.dumps(list(rows.values()))


async def test_shutdown_drains_and_ends_as_asked(configured):
    _, load = configured
    states, codes = [], []
    async with trio.open_nursery() as nursery:

        async def run(task_status):
            codes.append(await serving(load, states, task_status))

        service = await nursery.start(run)
        seen = Seen(service)
        done = await seen.registry.run("shutdown drain=5s", OPERATOR)
        assert done["kind"] == "done"
        assert done["before"]["state"] == "ready"
        assert done["until"] > 1_700_000_000
        (event,) = [one for one in service.runtime.pool.records.events if one.kind == "shutdown"]
        assert event.facts == {"why": "drain 5 s", "by": "console uid 1"}
        with trio.fail_after(10):
            await until(lambda: bool(codes), 10)
    assert codes == [0]
    assert states == ["ready", "stopping"]


async def test_a_reload_is_asked_for_as_by_a_signal(configured):
    path, load = configured
    states = []
    async with trio.open_nursery() as nursery:

        async def run(task_status):
            await serving(load, states, task_status)

        service = await nursery.start(run)
        seen = Seen(service)
        path.write_text(CONFIG.replace("drain = 30", "drain = 31"))
        assert (await seen.registry.run("reload", OPERATOR))["what"] == "reading the configuration again"
        await until(lambda: service.config.drain == 31, 10)
        assert [one.kind for one in service.runtime.pool.records.events].count("reload-asked") == 1
        service.on_shutdown(0.0)
        await until(lambda: states[-1] == "stopping", 10)


async def test_shutdown_drains_as_long_as_it_was_asked_to(configured, autojump_clock):
    _, load = configured
    async with open_service(load(), listen=False) as service:
        life = _Life(None)
        asked = []

        async def drain(deadline):
            asked.append(deadline - trio.current_time())
            return Drained(0)

        service.drain = drain
        seen = Seen(service)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run, service, None)
            await trio.testing.wait_all_tasks_blocked()
            done = await seen.registry.run("shutdown drain=5s", OPERATOR)
            # it is not lengthened, and nobody is told that it were
            error = await seen.refused("shutdown drain=1h", "failed")
            assert "nothing was changed" in error.message
        assert [one.kind for one in service.runtime.pool.records.events].count("shutdown") == 1
        assert asked == [pytest.approx(5.0)]
        assert done["until"] - service.runtime.seams.unix_now() == pytest.approx(5.0, abs=2)
        await seen.refused("reload", "failed")
