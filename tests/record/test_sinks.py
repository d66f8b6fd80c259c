"""Sinks around a pool: opened before it, closed after it, and nothing of them reaches the block."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool.record import JsonlSettings, RecordSettings, open_sinks
from tests.record.sink_kit import Source, use
from tests.runtime.runtime_kit import ALICE, runtime, said

if TYPE_CHECKING:
    from pathlib import Path

    from afpool._base.use import Use
    from afpool.pool import Event


class Own:
    """A sink of the host's."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.dropped = 0
        self.uses: list[Use] = []
        self.events: list[Event] = []
        self.closed = 0

    def file(self, use: Use) -> None:
        if self.broken:
            raise RuntimeError("the secret is 42")
        self.uses.append(use)

    def event(self, event: Event) -> None:
        self.events.append(event)

    async def aclose(self) -> None:
        self.closed += 1
        if self.broken:
            raise RuntimeError("the secret is 42")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in path.read_bytes().splitlines()]


async def test_everything_that_a_runtime_files_until_it_is_closed_is_written(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    own, told = Own(), []
    settings = RecordSettings(jsonl=JsonlSettings(path=path), on_record=told.append, sinks=[own])
    async with runtime({"desk": [said("desk", "echo")]}, record=settings) as here:
        toolset = await here.runtime.toolset(ALICE)
        for number in range(5):
            await toolset.call("echo", {"n": number}, call_id=f"call-{number}")
        await toolset.call("nothing")
        assert [state.name for state in here.runtime.sinks.states()] == ["jsonl", "on_record", "Own"]
    written = rows(path)
    assert [{**row, "at": 0, "began": 0} for row in written] == [{**row, "at": 0, "began": 0} for row in told]
    calls = [row for row in written if row["kind"] == "call"]
    assert [row["call_id"] for row in calls[:5]] == [f"call-{number}" for number in range(5)]
    assert [row["arguments"] for row in calls[:5]] == [{"n": number} for number in range(5)]
    assert calls[5]["code"] == "unknown-tool"
    # the client is closed while the pool is left, after the block
    assert written[-1]["kind"] == "closed"
    assert [use.call_id for use in own.uses] == [row["call_id"] for row in calls]
    assert [event.kind for event in own.events] == [row["kind"] for row in written if row["kind"] != "call"]
    assert own.closed == 1


async def test_a_sink_of_the_hosts_that_is_broken_costs_no_call(caplog) -> None:
    own, good = Own(broken=True), Own()
    async with runtime({"desk": [said("desk", "echo")]}, record=RecordSettings(sinks=[own, good])) as here:
        toolset = await here.runtime.toolset(ALICE)
        for _ in range(3):
            assert (await toolset.call("echo")).code == "ok"
        assert here.runtime.pool.records.failures == 3
    assert len(good.uses) == 3
    assert good.closed == own.closed == 1
    assert "closing the sink 'Own' failed (RuntimeError)" in caplog.text


async def test_on_record_that_raises_or_hangs_costs_no_call_and_bounds_the_end(caplog) -> None:
    hangs, seen = threading.Event(), threading.Event()
    told: list[str] = []

    def on_record(record: dict[str, Any]) -> None:
        told.append(record["call_id"])
        if record["call_id"] == "bad":
            raise RuntimeError("the secret is 42")
        if record["call_id"] == "slow":
            seen.set()
            hangs.wait(60)

    source = Source()
    settings = RecordSettings(on_record=on_record, close_timeout=0.2)
    async with open_sinks(settings) as sinks:
        sinks.attach(source)  # type: ignore[arg-type]
        for name in ("a", "bad", "b", "slow"):
            source.records.file(use(name))
        assert await trio.to_thread.run_sync(seen.wait, 60)
        source.records.file(use("c"))
    hangs.set()
    assert told[:4] == ["a", "bad", "b", "slow"]
    assert "on_record raised RuntimeError" in caplog.text
    assert "42" not in caplog.text
    assert "records of it were not written" in caplog.text


async def test_an_exception_of_the_block_leaves_as_itself_after_all_is_written(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    source = Source()

    async def block() -> None:
        async with open_sinks(RecordSettings(jsonl=JsonlSettings(path=path), close_timeout=60.0)) as sinks:
            sinks.attach(source)  # type: ignore[arg-type]
            source.records.file(use("a"))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()
    assert [row["call_id"] for row in rows(path)] == ["a"]


async def test_a_cancelled_block_is_written_all_the_same(tmp_path) -> None:
    path = tmp_path / "calls.jsonl"
    source = Source()
    with trio.CancelScope() as scope:
        async with open_sinks(RecordSettings(jsonl=JsonlSettings(path=path), close_timeout=60.0)) as sinks:
            sinks.attach(source)  # type: ignore[arg-type]
            scope.cancel()
            source.records.file(use("a"))
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [row["call_id"] for row in rows(path)] == ["a"]


async def test_numbers_are_counted_from_when_somebody_asks_or_from_the_start() -> None:
    source = Source()
    async with open_sinks() as sinks:
        sinks.attach(source)  # type: ignore[arg-type]
        assert sinks.counted is None
        source.records.file(use(began=trio.current_time()))
        numbers = sinks.numbers()
        assert sinks.numbers() is numbers is sinks.counted
        source.records.file(use(began=trio.current_time()))
        assert numbers.overview()["total"] == 1
    source = Source()
    async with open_sinks(RecordSettings(numbers=True)) as sinks:
        sinks.attach(source)  # type: ignore[arg-type]
        source.records.file(use(began=trio.current_time()))
        assert sinks.numbers().overview()["total"] == 1


async def test_without_settings_a_runtime_has_no_sink_and_nobody_listens() -> None:
    async with runtime({"desk": [said("desk", "echo")]}) as here:
        assert here.runtime.sinks.states() == []
        assert here.runtime.sinks.counted is None


async def test_where_records_go_cannot_be_changed_while_it_is_open(tmp_path) -> None:
    async with runtime() as here:
        import attrs

        other = attrs.evolve(
            here.runtime.config, record=RecordSettings(jsonl=JsonlSettings(path=tmp_path / "x"))
        )
        with pytest.raises(ValueError, match="record cannot be changed"):
            here.runtime.reconfigure(other)


@pytest.mark.parametrize("wrong", [{"tools": -1}, {"tenants": -1}, {"close_timeout": 0}])
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RecordSettings(**wrong)


def test_a_runtime_takes_settings_of_its_record_and_nothing_else() -> None:
    from afpool import RuntimeConfig

    with pytest.raises(TypeError, match="record is a RecordSettings, not dict"):
        RuntimeConfig(record={"jsonl": "x"})


async def test_two_sinks_of_one_class_are_told_apart(tmp_path) -> None:
    jsonl = type("jsonl", (Own,), {})
    settings = RecordSettings(
        jsonl=JsonlSettings(path=tmp_path / "x"), sinks=[Own(), Own(), jsonl()], close_timeout=60.0
    )
    source = Source()
    async with open_sinks(settings) as sinks:
        sinks.attach(source)  # type: ignore[arg-type]
        # of two series that are one, a scrape takes neither
        assert [state.name for state in sinks.states()] == ["jsonl", "Own", "Own-2", "jsonl-2"]
