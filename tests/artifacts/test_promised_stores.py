"""A put that is refused says which of its facts was wrong, on every store in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from afpool.artifacts import InvalidArtifactError, NewArtifact
from tests.artifacts.store_kit import ADA

if TYPE_CHECKING:
    from afpool.artifacts.testing import StoreHarness

WRONG: dict[str, tuple[Any, ...]] = {
    "kind": ("", " ", None, 7, "k" * 5000),
    "media_type": ("", None, "m" * 5000),
    "label": (7, "l" * 5000),
    "digest": ("md5", True),
    "expires_at": (1.0, float("nan"), "tomorrow"),
    "origin": ({"run_id": "r"},),
    "parent_refs": (7, [None], ["art_" + "0" * 22] * 5000),
}


@pytest.mark.parametrize("fact", WRONG)
async def test_a_refused_put_names_the_fact(harness: StoreHarness, fact: str) -> None:
    async with harness.open_store() as store:
        for value in WRONG[fact]:
            facts = {"kind": "note", "media_type": "text/plain", "data": "x", fact: value}
            with pytest.raises(InvalidArtifactError) as caught:
                await store.put(ADA, NewArtifact(**facts))
            said = str(caught.value)
            assert fact in said, said
            assert "nothing was stored" in said
            assert len(said) < 500
        assert (await store.list(ADA)).items == ()
