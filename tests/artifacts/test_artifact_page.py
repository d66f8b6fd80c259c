"""The page about artifacts says what is there: every public name, and the table of errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import afpool.artifacts
from afpool.artifacts import ArtifactError, MemoryArtifacts, testing
from afpool.artifacts._paging import LONGEST_PAGE
from afpool.artifacts._types import DEFAULT_PAGE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "artifacts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [afpool.artifacts, testing], ids=lambda module: module.__name__)
def test_every_public_name_is_on_the_page(module: object) -> None:
    words = set(re.findall(r"\w+", PAGE))
    # what the store's verbs give and take in signatures alone
    said_by_others = {"Artifact", "ArtifactMeta", "ArtifactPage", "ArtifactScope", "Swept", "Retention"}
    missing = set(module.__all__) - words  # type: ignore[attr-defined]
    assert missing <= said_by_others, missing - said_by_others
    for name in missing:
        assert getattr(module, name) is not None


def test_the_table_of_errors_is_the_classes() -> None:
    rows = re.findall(r"^\| `(ERR_\w+)` \| `(\w+)` \| ([\w, -]+) \|", PAGE, re.MULTILINE)
    classes = {(cls.code, cls.__name__, ", ".join(cls.deliveries)) for cls in ArtifactError.__subclasses__()}
    assert set(rows) == classes
    assert len(rows) == len(classes)


def test_the_figures_on_the_page_are_the_defaults() -> None:
    limits = MemoryArtifacts().retention
    assert (
        f"{(limits.max_bytes_per_scope or 0) >> 20} MiB and {limits.max_count_per_scope} artifacts a scope"
        in PAGE
    )
    assert f"`limit` {DEFAULT_PAGE} by default and {LONGEST_PAGE} at most" in PAGE
