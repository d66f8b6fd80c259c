"""Refs, scopes as paths, cursors, limits: the small laws that every store stands on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afpool import Identity
from afpool.artifacts import Retention, _naming, is_artifact_ref, scope_path
from afpool.artifacts._paging import LONGEST_PAGE, cursor_after, page_size, read_cursor
from afpool.artifacts._retention import LAST, microseconds

FIELD = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CONFUSING = st.sampled_from(
    ["", "_", "%5F", "%5f", "~", "~~", "~a", "A", "a", ".", "..", "%2E", "/", "%2F", "a/b", "é"]
)
SCOPES = st.builds(Identity, FIELD | CONFUSING, FIELD | CONFUSING, FIELD | CONFUSING)


def test_a_ref_has_its_form_and_is_never_drawn_twice() -> None:
    refs = {_naming.mint_ref() for _ in range(2000)}
    assert len(refs) == 2000
    assert all(
        len(ref) == 26 and ref.startswith("art_") and ref[4:].isalnum() and ref.isascii() for ref in refs
    )
    assert all(map(is_artifact_ref, refs))
    counts = Counter("".join(ref[4:] for ref in refs))
    assert len(counts) == 62


def test_bytes_that_would_favour_some_characters_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([bytes(range(248, 256)) * 4, bytes(range(32))])
    monkeypatch.setattr(_naming.secrets, "token_bytes", lambda _: next(drawn))
    assert _naming.mint_ref() == "art_0123456789abcdefghijkl"[:26]
    # every character stands for as many bytes as every other
    counts = Counter(bytes(range(248)).translate(_naming._AS_CHARACTER))
    assert set(counts.values()) == {4}


@pytest.mark.parametrize(
    "ref",
    ["", "art_", "art_" + "a" * 21, "art_" + "a" * 23, "art_" + "a" * 21 + "\n", "Art_" + "a" * 22,
     "art_" + "a" * 21 + "é", "art_" + "a" * 21 + "-", None, 1, b"art_" + b"a" * 22, ["art_"]],
)  # fmt: skip
def test_what_is_no_ref(ref: Any) -> None:
    assert not is_artifact_ref(ref)


@given(SCOPES, SCOPES)
@example(Identity("Acme"), Identity("acme"))
@example(Identity("~a"), Identity("A"))
@example(Identity("_"), Identity())
@example(Identity("%5F"), Identity("_"))
def test_no_two_scopes_share_a_path_even_where_case_does_not_count(one: Identity, other: Identity) -> None:
    assert (scope_path(one) == scope_path(other)) == (one == other)
    assert (scope_path(one).lower() == scope_path(other).lower()) == (one == other)


@given(SCOPES)
def test_a_path_has_three_plain_segments(scope: Identity) -> None:
    segments = scope_path(scope).split("/")
    assert len(segments) == 3
    for segment in segments:
        assert segment not in {"", ".", ".."}
        assert segment.isascii()
        assert not set(segment) & set('{}[]/\\ .:\0\n"<>|')


def test_paths_that_never_move() -> None:
    pinned = {
        Identity("acme", "ada", "c1"): "acme/ada/c1",
        Identity("Acme", None, "_"): "~acme/_/%5F",
        Identity("a/b", "..", "~x y"): "a%2Fb/%2E%2E/~~x%20y",
        Identity("é!*'()", "-_", "%"): "%C3%A9!*'()/-_/%25",
    }
    assert {scope: scope_path(scope) for scope in pinned} == pinned


@given(st.integers(0, LAST))
def test_a_cursor_reads_back(created: int) -> None:
    ref = _naming.mint_ref()
    assert read_cursor(cursor_after(created, ref)) == (created, ref)


@pytest.mark.parametrize(
    "cursor", [None, "", "x", 7, "1-art_", "-1-art_" + "a" * 22, "f" * 15 + "-art_" + "a" * 22, "1" * 99]
)
def test_a_cursor_that_no_page_gave_reads_as_the_start(cursor: Any) -> None:
    assert read_cursor(cursor) is None


def test_the_length_of_a_page() -> None:
    assert [page_size(limit) for limit in (-5, 0, 1, 50, LONGEST_PAGE + 1)] == [1, 1, 1, 50, LONGEST_PAGE]
    for limit in (None, "5", 2.0, True):
        with pytest.raises(TypeError):
            page_size(limit)


@pytest.mark.parametrize("name", ["ttl", "max_bytes_per_scope", "max_count_per_scope"])
def test_limits_are_positive_or_absent(name: str) -> None:
    assert getattr(Retention(**{name: None}), name) is None
    assert getattr(Retention(**{name: 7}), name) == 7
    for bad in (0, -1):
        with pytest.raises(ValueError, match=name):
            Retention(**{name: bad})
    for bad_type in ("7", True, [7]):
        with pytest.raises(TypeError, match=name):
            Retention(**{name: bad_type})
    if name == "ttl":
        for not_finite in (float("nan"), float("inf"), -0.5):
            with pytest.raises(ValueError, match="ttl"):
                Retention(ttl=not_finite)
    else:
        with pytest.raises(TypeError, match=name):
            Retention(**{name: 7.5})


@given(st.integers(0, LAST), st.none() | st.integers(0, LAST), st.floats(0.001, 1e12))
@example(1_000_000, 6_000_000, 1.0)
@example(1_000_000, 1_500_000, 1.0)
@example(LAST - 1, None, 1e12)
def test_a_store_only_tightens_an_expiry(now: int, asked: int | None, ttl: float) -> None:
    expires = Retention(ttl=ttl).expiry(now, asked)
    assert expires is not None
    own = min(now + int(ttl * 1_000_000), LAST)
    assert expires == (own if asked is None else min(asked, own))
    assert Retention().expiry(now, asked) == asked


def test_times_beyond_what_every_store_holds_are_cut() -> None:
    assert microseconds(1e300) == LAST
    assert microseconds(1.5) == 1_500_000
