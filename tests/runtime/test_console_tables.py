"""What a runtime adds to its console: runs, artifacts, sinks, settings, the calls at its door."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import trio

from afpool import define_tool
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.console import Asker, build_registry
from afpool.record import JsonlSettings, RecordSettings
from afpool.runtime._console_tables import register
from tests.console.desk_kit import rows_of
from tests.runtime.runtime_kit import ALICE, BOB, Here, runtime, said

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from afpool.console import Registry

READER = Asker("read", "console token read", 1)
OPERATOR = Asker("operate", "console uid 1", 2)


@contextlib.asynccontextmanager
async def shown(**options: Any) -> AsyncIterator[tuple[Here, Registry, Callable[..., Any]]]:
    """A runtime and its registry, and what asks for rows."""
    async with runtime({"desk": [said("desk", "echo")]}, **options) as here:
        registry = build_registry(
            pool=here.runtime.pool, record=here.runtime.record, numbers=here.runtime.sinks.numbers()
        )
        register(here.runtime, registry)

        async def rows(line: str, by: Asker = READER) -> list[dict[str, Any]]:
            result = await registry.run(line, by)
            assert isinstance(result, dict)
            return rows_of(result)

        async with registry.serving():
            yield here, registry, rows


async def test_a_run_is_shown_while_somebody_holds_it_and_afterwards_by_its_calls() -> None:
    async with shown() as (here, _, rows):
        run: Any = here.runtime.run(ALICE, "run-1")
        other: Any = here.runtime.run(BOB, "run-2")
        await run.call("echo", {})
        found = {row["run"]: row for row in await rows("show runs")}
        assert found["run-1"]["open"] is True
        assert (found["run-1"]["running"], found["run-1"]["ended"]) == (0, 1)
        assert (found["run-2"]["open"], found["run-2"]["ended"]) == (True, 0)
        assert found["run-1"]["who"].startswith("w:")
        assert "alice" not in json.dumps(list(found.values()))
        assert [row["run"] for row in await rows("show runs principal=bob")] == ["run-2"]
        assert [row["principal"] for row in await rows("show runs run=run-1 --reveal", OPERATOR)] == ["alice"]
        del run, other
        left = await rows("show runs")
        assert [(row["run"], row["open"]) for row in left] == [("run-1", False)]


async def test_a_call_at_the_door_is_shown_before_it_reaches_a_server() -> None:
    reached, let_go = trio.Event(), trio.Event()

    async def work() -> str:
        """Work."""
        reached.set()
        await let_go.wait()
        return "done"

    async with shown(tools=[define_tool(work)]) as (here, _, rows), trio.open_nursery() as nursery:
        nursery.start_soon(here.runtime.dispatch, ALICE, "work", {})
        with trio.fail_after(5):
            await reached.wait()
        (call,) = await rows("show calls")
        assert (call["server"], call["tool"], call["state"], call["left"]) == ("", "work", "door", None)
        assert call["waits_for"] == "run"
        assert len(await rows("show calls principal=alice")) == 1
        let_go.set()


async def test_artifacts_are_shown_by_what_put_them_and_without_their_payload() -> None:
    store = MemoryArtifacts()
    async with shown(artifacts=store) as (here, registry, rows):
        run = here.runtime.run(ALICE, "run-1")
        assert run.artifacts is not None
        meta = await run.artifacts.put(
            NewArtifact(kind="report", media_type="application/json", data={"secret": "s3cret-payload"})
        )
        (row,) = await rows("show artifacts")
        assert (row["ref"], row["kind"], row["bytes"], row["run"]) == (
            meta.ref,
            "report",
            meta.bytes,
            "run-1",
        )
        assert "s3cret" not in json.dumps(row)
        memory = {row["part"]: row for row in await rows("show memory")}
        assert memory["artifacts in memory"]["bytes"] > meta.bytes
        assert memory["record: artifacts put"]["items"] == 1
        told = await registry.run(f"why {meta.ref}", READER)
        assert isinstance(told, dict)
        assert told["kind"] == "explanation"


async def test_sinks_of_the_runtime_are_shown_and_counted(tmp_path: Any) -> None:
    settings = RecordSettings(jsonl=JsonlSettings(path=tmp_path / "calls.jsonl"))
    async with shown(record=settings) as (here, registry, rows):
        await here.runtime.dispatch(ALICE, "echo", {})
        (sink,) = await rows("show sinks")
        assert (sink["sink"], sink["dropped"], sink["trouble"]) == ("jsonl", 0, None)
        overview = await registry.run("show overview", READER)
        assert isinstance(overview, dict)
        assert overview["sinks"] == [
            {"name": "jsonl", "dropped": 0, "queued": sink["queued"], "trouble": None}
        ]
        assert overview["outcomes"]["ok"] == 1


async def test_settings_of_the_runtime_stand_before_those_of_the_pool() -> None:
    async with shown(list_patience=3.0) as (_, __, rows):
        found = await rows("show config")
        settings = {row["setting"]: row for row in found}
        assert settings["runtime.list_patience"] == {
            "setting": "runtime.list_patience", "value": "3", "from": "given",
        }  # fmt: skip
        assert settings["runtime.deadline"]["from"] == "default"
        assert settings["servers.desk.plan"]["value"].startswith("http://127.0.0.1:")
        assert found[0]["setting"].startswith("runtime.")


async def test_a_registry_of_somebodys_own_is_left_alone() -> None:
    from afpool import Seams
    from afpool.console import Registry

    async with runtime() as here:
        own = Registry(Seams())
        register(here.runtime, own)
        assert not own.tables
