"""A model shows its user a stored artifact: by reference, within its own scope, without reading it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from afpool import Identity, ToolContext
from afpool.artifacts import (
    ArtifactRefused,
    MemoryArtifacts,
    NewArtifact,
    NoArtifactStoreError,
    bind_artifacts,
)
from afpool.tools import present_tool
from tests.tools.door_kit import ALICE, SECRET, door, refused

BOB = Identity(tenant="acme", principal="bob")


async def stored(store: MemoryArtifacts, who: Identity = ALICE, **more: Any) -> str:
    new = NewArtifact(kind="chart/bars", media_type="text/plain", data=SECRET, **more)
    return (await store.put(who, new)).ref


async def test_the_model_gets_the_ticket_and_the_host_an_event() -> None:
    store = MemoryArtifacts()
    ref = await stored(store, label="Sales", digest="sha-256")
    meta = await store.head(ALICE, ref)
    assert meta is not None
    through = door(store=store)
    result = await through(present_tool(), {"ref": ref, "as": "chart"})
    assert result.structured == {
        "presented": True, "ref": ref, "as": "chart", "label": "Sales", "snapshot": meta.as_json(),
    }  # fmt: skip
    assert through.events.kinds == ["tool_start", "artifacts.resolved", "artifacts.presented", "tool_end"]
    assert through.events.of("artifacts.presented") == {
        "ref": ref, "as": "chart", "label": "Sales", "snapshot": meta.as_json(), "tool": "present",
    }  # fmt: skip
    assert SECRET not in through.events.text + result.raw.decode()


@pytest.mark.parametrize(
    ("spoken", "own", "counts"),
    [("Mine", "Sales", "Mine"), (None, "Sales", "Sales"), ("", "Sales", "Sales"), ("Mine", None, "Mine")],
)
async def test_the_label_of_the_call_comes_before_the_artifacts_own(
    spoken: Any, own: Any, counts: str
) -> None:
    store = MemoryArtifacts()
    args = {"ref": await stored(store, label=own), "as": "table"}
    through = door(store=store)
    result = await through(present_tool(), args if spoken is None else {**args, "label": spoken})
    assert result.structured["label"] == counts
    assert through.events.of("artifacts.presented")["label"] == counts


async def test_without_a_label_there_is_none() -> None:
    store = MemoryArtifacts()
    through = door(store=store)
    result = await through(present_tool(), {"ref": await stored(store), "as": "table"})
    assert "label" not in result.structured
    assert "label" not in through.events.of("artifacts.presented")


async def test_a_reference_that_names_nothing_shows_nothing_and_says_which_do() -> None:
    store = MemoryArtifacts()
    mine = [await stored(store, label=f"number {n}") for n in range(12)]
    theirs = await stored(store, BOB)
    through = door(store=store)
    for ref in (theirs, "art_0000000000000000000000", SECRET):
        through.events.clear()
        result = await through(present_tool(), {"ref": ref, "as": "chart"})
        assert (result.is_error, result.code, result.delivery) == (True, "tool-error", "answered")
        assert [ref for ref in mine if ref in result.text] == mine[2:]
        assert "Nothing was shown" in result.text
        assert SECRET not in result.text
        # looking around leaves nothing on the record
        assert through.events.kinds == ["tool_start", "artifacts.refused", "tool_end"]


async def test_a_store_that_hangs_does_not_keep_the_refusal(autojump_clock: trio.testing.MockClock) -> None:
    class Hanging(MemoryArtifacts):
        async def list(self, *what: Any, **more: Any) -> Any:
            await trio.sleep_forever()

    result = await door(store=Hanging())(present_tool(), {"ref": "art_0000000000000000000000", "as": "chart"})
    assert result.text.endswith("Which artifacts there were could not be found out.")
    assert trio.current_time() == pytest.approx(2.0)


async def test_only_ways_that_the_host_knows() -> None:
    store = MemoryArtifacts()
    ref = await stored(store)
    through = door(store=store)
    tool = present_tool("show", ways=("chart", "table"))
    assert tool.name == "show"
    assert (await through(tool, {"ref": ref, "as": "table"})).code == "ok"
    refused(await through(tool, {"ref": ref, "as": "dance"}), "invalid-arguments")
    assert (await through(tool, {"ref": ref, "as": "table", "label": "x" * 200})).code == "ok"
    refused(await through(tool, {"ref": ref, "as": "table", "label": "x" * 201}), "invalid-arguments")
    for missing in ({"ref": ref}, {"as": "chart"}, {"ref": 3, "as": "chart"}, {"ref": ref, "as": ""}):
        refused(await through(present_tool(), missing), "invalid-arguments")


async def test_without_a_store_it_is_refused() -> None:
    result = await door()(present_tool(), {"ref": "art_0000000000000000000000", "as": "chart"})
    assert result.is_error
    assert "no artifact store is attached" in result.text
    with pytest.raises(Exception, match="no artifact store is attached") as caught:
        await present_tool().execute({"ref": "r", "as": "chart"}, ToolContext(call_id="c"))
    assert isinstance(caught.value.__cause__ or caught.value, NoArtifactStoreError)


async def test_whoever_calls_it_directly_gets_the_same() -> None:
    facts: list[Any] = []
    store = MemoryArtifacts()
    ref = await stored(store)
    ctx = ToolContext(call_id="c", artifacts=bind_artifacts(store, ALICE, on_fact=facts.append))
    result = await present_tool().execute({"ref": ref, "as": "chart"}, ctx)
    assert json.loads(result.text)["snapshot"]["ref"] == ref
    facts.clear()
    assert (await present_tool().execute({"ref": "none", "as": "chart"}, ctx)).is_error
    assert [type(fact) for fact in facts] == [ArtifactRefused]


@pytest.mark.parametrize(
    ("ways", "error"), [((), ValueError), (("",), ValueError), (("x" * 65,), ValueError), ((3,), TypeError)]
)
def test_a_way_is_a_short_word(ways: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        present_tool(ways=ways)
