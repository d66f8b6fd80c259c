"""What is typed, taken apart: words, options, quotes; anything at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.console import CommandError
from afpool.console._ask import as_seconds, shown
from afpool.console._parse import LONGEST, nearest, parse_line, parse_words


@pytest.mark.parametrize(
    ("line", "words", "options"),
    [
        ("", [], {}),
        ("  show   actors ", ["show", "actors"], {}),
        ("show actors server=desk limit=20", ["show", "actors"], {"server": "desk", "limit": "20"}),
        ("show actors waiting>3 turns<=9", ["show", "actors"], {"waiting": ">3", "turns": "<=9"}),
        ("show actors state!=idle waiting>=3", ["show", "actors"], {"state": "!idle", "waiting": ">=3"}),
        ("show actors --reveal --sort=-waiting", ["show", "actors"], {"reveal": "yes", "sort": "-waiting"}),
        ("tail tenant='a b=c'", ["tail"], {"tenant": "a b=c"}),
        ("why 'a=b'", ["why", "a=b"], {}),
        ('why "a \\" b"', ["why", 'a " b'], {}),
        ("why a\\ b", ["why", "a b"], {}),
        ("why 'a\\b'", ["why", "a\\b"], {}),
        ("why ''", ["why", ""], {}),
        ("pause k:12ab", ["pause", "k:12ab"], {}),
        ("tail x=", ["tail"], {"x": ""}),
        ("tail =x", ["tail", "=x"], {}),
        ("show\tactors", ["show", "actors"], {}),
        ("show actors\r\n", ["show", "actors"], {}),
    ],
)
def test_words_and_options(line: str, words: list[str], options: dict[str, str]) -> None:
    assert parse_line(line) == (words, options)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("why 'open", "bad-option"),
        ("why a\\", "bad-option"),
        ("tail a=1 a=2", "bad-option"),
        ("why \x1b[2J", "bad-option"),
        ("why a\nb", "bad-option"),
        ("why \ud800", "bad-option"),
        ("x" * (LONGEST + 1), "too-long"),
        ("x" * 1_000_000, "too-long"),
        ("a " * 65, "too-long"),
    ],
)
def test_what_is_refused(line: str, code: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_line(line)
    assert caught.value.code == code
    assert len(caught.value.message) < 200


@given(st.text(max_size=300))
def test_anything_is_read_or_refused(line: str) -> None:
    try:
        words, options = parse_line(line)
    except CommandError as refusal:
        code: str | None = refusal.code
        words, options = [], {}
    else:
        code = None
    assert code in (None, "bad-option", "too-long")
    assert all(isinstance(word, str) for word in [*words, *options, *options.values()])
    assert len(words) <= len(line)


@given(
    st.lists(
        st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=20), min_size=1, max_size=8
    )
)
def test_what_is_quoted_comes_back_as_it_was(words: list[str]) -> None:
    words = [word.replace("\x7f", "") for word in words]
    line = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words)
    assert parse_line(line) == (words, {})


@given(st.lists(st.text(max_size=10), max_size=5), st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_words_of_a_program_are_taken_as_they_are_or_refused(
    words: list[str], options: dict[str, str]
) -> None:
    try:
        taken: object = parse_words(words, dict(options))
    except CommandError as refusal:
        taken = refusal.code
    assert taken in ((words, options), "bad-option")


@pytest.mark.parametrize(
    ("words", "options"),
    [([], {}), ([1], {}), (["a"], {"b": 1}), (["a"], {1: "b"}), (["a" * 5000], {}), (["a"] * 65, {})],
)
def test_a_program_that_sends_something_else_is_refused(
    words: list[object], options: dict[object, object]
) -> None:
    with pytest.raises(CommandError):
        parse_words(words, options)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10), ("10s", 10), ("500ms", 0.5), ("2m", 120), ("1.5h", 5400), ("1d", 86400), ("0", 0),
        ("", None), ("s", None), ("-1s", None), ("1e3", None), ("10 s", None), ("\u0661s", None),
        ("9" * 30, None),
        ("nan", None), ("inf", None),
    ],
)  # fmt: skip
def test_times(text: str, seconds: float | None) -> None:
    assert as_seconds(text) == seconds


def test_a_word_in_an_error_is_short_and_steers_no_terminal() -> None:
    assert shown("\x1b[2Jabc") == "'?[2Jabc'"
    assert shown("x" * 1000) == f"'{'x' * 48}…'"


def test_the_nearest_names_begin_alike_or_look_alike() -> None:
    names = ["actors", "artifacts", "servers", "sessions"]
    assert nearest("act", names)[0] == "actors"
    assert nearest("servres", names)[0] == "servers"
    assert nearest("x" * 1000, names) == []
    assert nearest("", names) == []
