"""Results too large for a model's context: what is stored, what stands in its place, what stays inline."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from afpool.artifacts import (
    MemoryArtifacts,
    NoArtifacts,
    Placement,
    bind_artifacts,
    place,
    placed_artifact,
)
from afpool.artifacts.testing import BadStore
from tests.artifacts.store_kit import ADA


@pytest.mark.parametrize("bad", [0, -1, None, "10", 1.5, True])
def test_a_threshold_is_a_positive_number(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="max_inline_chars"):
        Placement(bad)


async def test_a_text_up_to_the_threshold_stays_and_a_longer_one_is_placed() -> None:
    store = MemoryArtifacts()
    bound = bind_artifacts(store, ADA)
    placement = Placement(10)
    assert await place(bound, placement, "search", "x" * 10) is None
    assert not (await store.list(ADA)).items
    found = await place(bound, placement, "search", "é" * 11)
    assert found is not None
    artifact = await store.get(ADA, found.ref)
    assert artifact is not None
    assert artifact.data == "é" * 11
    assert (artifact.meta.kind, artifact.meta.label) == ("tool-result/search", "search result")
    assert artifact.meta.media_type == "text/plain"
    assert artifact.meta.digest is not None
    data = found.as_json()
    assert json.loads(json.dumps(data)) == data
    assert {name: data[name] for name in ("placed", "ref", "kind", "media_type", "bytes")} == {
        "placed": True, "ref": artifact.meta.ref, "kind": "tool-result/search", "media_type": "text/plain",
        "bytes": 22,
    }  # fmt: skip
    assert "11 characters" in data["reason"]
    assert "at most 10" in data["reason"]


async def test_what_is_no_text_is_stored_as_the_json_that_it_is() -> None:
    store = MemoryArtifacts()
    rows = {"rows": [{"n": n} for n in range(20)]}
    text = json.dumps(rows)
    found = await place(
        bind_artifacts(store, ADA), Placement(20), "query", text, data=rows, kind="dataset/rows"
    )
    assert found is not None
    assert (found.kind, found.media_type) == ("dataset/rows", "application/json")
    artifact = await store.get(ADA, found.ref)
    assert artifact is not None
    assert artifact.data == rows


async def test_a_store_that_fails_or_is_not_there_leaves_the_result_inline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = bind_artifacts(BadStore(MemoryArtifacts(), fails_after={"put": 0}), ADA)
    full = bind_artifacts(MemoryArtifacts(max_bytes_per_scope=5), ADA)
    with caplog.at_level(logging.WARNING, "afpool"):
        for artifacts in (bad, full, NoArtifacts()):
            assert await place(artifacts, Placement(5), "search", "secret-4711") is None
    words = [record.getMessage() for record in caplog.records]
    assert [word.split("(")[1].split(")")[0] for word in words] == [
        "ERR_ARTIFACT_STORE", "ERR_INVALID_ARTIFACT", "ERR_NO_ARTIFACT_STORE"
    ]  # fmt: skip
    assert "4711" not in caplog.text


@pytest.mark.parametrize("error", [OSError("secret-4711"), KeyError("secret-4711")])
async def test_a_failure_of_any_kind_costs_the_placement_and_not_the_result(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bound = bind_artifacts(BadStore(MemoryArtifacts(), fails_after={"put": 0}, error=lambda: error), ADA)
    with caplog.at_level(logging.WARNING, "afpool"):
        assert await place(bound, Placement(5), "search", "too long a text") is None
    assert f"({type(error).__name__})" in caplog.text
    assert "4711" not in caplog.text


def test_what_is_put_can_be_had_without_putting_it() -> None:
    new = placed_artifact("search", {"a": 1}, digest=None)
    assert (new.kind, new.media_type, new.digest) == ("tool-result/search", "application/json", None)
