"""Patterns over names: they find what `re` finds, in time that no pattern and no name can blow up."""

from __future__ import annotations

import random
import re
import string
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from afpool.tools import _pattern_match, _pattern_syntax
from afpool.tools._pattern_match import Exhausted, Patterns, Work
from afpool.tools._pattern_syntax import PatternRefused, compile_pattern

PLENTY = 10**7
LETTERS = "aAbB_1-.\n éÉßKk\u017f\u03c3\u03c2\u03a3\u212a²\u0660\U0001f600"
NAMES = st.text(alphabet=LETTERS, max_size=12)


def found(pattern: str | re.Pattern[str], text: str, budget: int = PLENTY) -> bool:
    return Patterns([compile_pattern(pattern)]).search(text, Work(budget))


def _atoms() -> st.SearchStrategy[str]:
    plain = st.sampled_from([re.escape(letter) for letter in LETTERS])
    classes = ["[ab]", "[^a]", "[]a]", "[^]a]", r"[\]b]", r"[\w-]", "[A-Z_]", r"[^\d\W]"]
    special = [".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\x41", r"\u00e9", r"\101", r"\n"]
    odd = ["-", "_", "é", "K", "{", "{}", "(?:a{,})"]
    return plain | st.sampled_from([*classes, *special, *odd])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.lists(inner, max_size=4).map("".join)
    group = st.builds(
        "{}{})".format,
        st.sampled_from(["(", "(?:", "(?i:", "(?-i:", "(?s:", "(?m:", "(?a:", "(?u:", "(?im-s:"]),
        joined,
    )
    either = st.lists(joined, min_size=2, max_size=3).map("|".join).map("(?:{})".format)
    counts = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{,2}", "{1,}", "{1,3}?"])
    repeat = st.builds("(?:{}){}".format, joined, counts) | st.builds("{}{}".format, _atoms(), counts)
    places = st.sampled_from(["^", "$", r"\A", r"\Z", r"\b", r"\B"])
    return joined | group | either | repeat | places


PATTERNS = st.recursive(_atoms(), _grown, max_leaves=8)
FLAGS = st.sampled_from(
    [
        re.NOFLAG,
        re.IGNORECASE,
        re.MULTILINE,
        re.DOTALL,
        re.ASCII,
        re.IGNORECASE | re.ASCII,
        re.IGNORECASE | re.MULTILINE | re.DOTALL,
    ]
)


@given(pattern=PATTERNS, flags=FLAGS, names=st.lists(NAMES, min_size=1, max_size=4))
@settings(max_examples=500)
@example(pattern=r"a$", flags=re.NOFLAG, names=["a\n", "a\n\n", "\na"])
@example(pattern=r"\bé", flags=re.NOFLAG, names=["é", "aé", ".é"])
@example(pattern=r"\bé", flags=re.ASCII, names=["é", "aé", ".é"])
@example(pattern=r"^b|a\Z", flags=re.MULTILINE, names=["a\nb", "a\n", "b"])
@example(pattern=r"(?i:s)(?-i:S)", flags=re.IGNORECASE, names=["\u017fS", "ss", "SS"])
@example(pattern=r"\B", flags=re.NOFLAG, names=["", "a", "ab"])
@example(pattern=r"(?u:[\w-])", flags=re.ASCII, names=["²"])
def test_it_finds_what_re_finds(pattern: str, flags: re.RegexFlag, names: list[str]) -> None:
    try:
        compiled = re.compile(pattern, flags)
    except (re.error, FutureWarning):
        return
    automaton = Patterns([compiled])
    for name in names:
        # not `search`, which looks for a first character by the flags outside of a group's own
        found = any(compiled.match(name, at) for at in range(len(name) + 1))
        assert automaton.search(name, Work(PLENTY)) == found, (compiled, name)


@given(patterns=st.lists(PATTERNS, min_size=2, max_size=4), names=st.lists(NAMES, min_size=1, max_size=4))
@settings(max_examples=200)
def test_several_patterns_are_any_of_them(patterns: list[str], names: list[str]) -> None:
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except (re.error, FutureWarning):
        return
    automaton = Patterns(compiled)
    for name in names:
        assert automaton.search(name, Work(PLENTY)) == any(pattern.search(name) for pattern in compiled)


@given(
    pattern=PATTERNS, name=st.text(alphabet=LETTERS.replace("\n", ""), max_size=12), cut=st.integers(0, 12)
)
@settings(max_examples=200)
def test_a_text_may_come_in_pieces(pattern: str, name: str, cut: int) -> None:
    try:
        compiled = re.compile(pattern)
    except (re.error, FutureWarning):
        return
    automaton, work = Patterns([compiled]), Work(PLENTY)
    state = automaton.feed(automaton.feed(automaton.start(), name[:cut], work), name[cut:], work)
    if name:  # what an empty text is, versions of Python disagree about
        assert automaton.ends(state, work) == bool(compiled.search(name))


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(a)\1", "a reference to a group"),
        (r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10", "a reference to a group"),
        ("(?P<x>a)(?P=x)", "a reference to a group"),
        ("(?=a)", "looking ahead"),
        ("^(?!public_)", "looking ahead"),
        ("(?<=a)b", "looking behind"),
        ("(?<!a)b", "looking behind"),
        ("(a)?(?(1)b|c)", "a condition"),
        ("(?>a+)b", "an atomic group"),
        ("a++b", "a possessive repeat"),
        ("a{2,3}+b", "a possessive repeat"),
    ],
)
def test_what_no_automaton_matches_is_refused_with_an_alternative(pattern: str, what: str) -> None:
    with pytest.raises(PatternRefused, match=f"uses {what}.*`keys`") as refused:
        Patterns([compile_pattern(pattern)])
    assert repr(pattern) in str(refused.value)


@pytest.mark.parametrize(
    "pattern",
    ["^a(?#c){2}$", "^a(?#c)(?#d)*b$", "^(?#c)a?(?#c)b$", "^a(?#c)|b(?#c)+c$", "^(ab)(?#c){2}(?#c)$"],
)
@pytest.mark.parametrize("name", ["a", "aa", "ab", "aab", "b", "bbc", "abab", ""])
def test_a_repeat_behind_a_comment_is_of_what_stands_before_the_comment(pattern: str, name: str) -> None:
    found = Patterns([compile_pattern(pattern)]).search(name, Work(1_000))
    assert found == (re.search(pattern, name) is not None)


@pytest.mark.parametrize("pattern", ["(?x) a b", re.compile("a b", re.VERBOSE), "a(?x:b c)"], ids=str)
def test_a_verbose_pattern_is_refused(pattern: str | re.Pattern[str]) -> None:
    with pytest.raises(PatternRefused, match="verbose"):
        Patterns([compile_pattern(pattern)])


@pytest.mark.parametrize("pattern", ["(a", "a**", "[a", "a{99999999999}", "(" * 5_000 + "a" + ")" * 5_000])
def test_what_re_cannot_read_is_said_at_once(pattern: str) -> None:
    with pytest.raises(PatternRefused, match="is no regular expression: "):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", [b"a", re.compile(b"a"), None, 3], ids=str)
def test_only_strings_and_their_patterns(pattern: object) -> None:
    with pytest.raises(TypeError, match=r"a pattern is a string or a compiled re\.Pattern of strings"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["a{2001}", "(?:(?:(?:a{90}){90}){90}){90}", "(?:a|b){1001}", "(?:a?){5000}"]
)
def test_a_pattern_that_is_too_large_written_out_is_refused(pattern: str) -> None:
    with pytest.raises(PatternRefused, match=f"more than {_pattern_syntax.MAX_STEPS} steps"):
        Patterns([compile_pattern(pattern)])


def test_all_patterns_of_a_policy_share_one_size() -> None:
    one = compile_pattern("a{900}")
    Patterns([one, one])
    with pytest.raises(PatternRefused, match="fewer patterns"):
        Patterns([one, one, one])


def test_groups_nest_only_so_deep() -> None:
    deep = _pattern_syntax.MAX_NESTING - 1
    assert found("(" * deep + "a" + ")" * deep, "a")
    with pytest.raises(PatternRefused, match="nests groups deeper"):
        found("(" * (deep + 1) + "a" + ")" * (deep + 1), "a")


def test_a_repeat_of_nothing_is_nothing() -> None:
    assert found("^(?:){1000000}a$", "a")
    assert found("^(?:(?:)*)*a(?:b*)*$", "abb")


CATASTROPHIC = [
    "(a+)+$",
    "(a|aa)+$",
    "(a|a)*b",
    "(.*)*x(.*)*y",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    "(?:a?){40}a{40}b",
]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_no_pattern_is_catastrophic(pattern: str) -> None:
    # the budget is what would be spent if every character met every step of the program once
    text = "a" * 255 + "!"
    steps = len(_pattern_syntax.build_program([re.compile(pattern)]).steps)
    budget = 2 * 2 * steps * len(text)
    assert found(pattern, text, budget) is False
    assert found(pattern, "a" * 4_000 + "!", 16 * budget) is False


def test_a_second_name_of_the_kind_costs_next_to_nothing() -> None:
    automaton = Patterns([re.compile(pattern) for pattern in CATASTROPHIC])
    automaton.search("a" * 255 + "!", Work(PLENTY))
    assert automaton.search("a" * 255 + "!", Work(400)) is False


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("a*", "", True),
        ("a", "", False),
        (r"\Aa", "ab", True),
        (r"\Aa", "ba", False),
        (r"a\Z", "ba", True),
        (r"a\Z", "ab", False),
        (r"a\b", "a_", False),  # which is a letter of a word
        (r"a\b", "a-", True),
        (r"a\B", "a_", True),
        (r"(?a:a\b)", "aé", True),
        (r"a\b", "aé", False),
    ],
)
def test_places_in_a_text(pattern: str, text: str, is_found: bool) -> None:
    assert found(pattern, text) is is_found
    assert bool(re.search(pattern, text)) is is_found


def test_work_that_does_not_suffice_is_said() -> None:
    automaton = Patterns([re.compile("a.{200}b")])
    with pytest.raises(Exhausted):
        automaton.search("a" * 256, Work(500))
    assert automaton.search("a" * 201 + "b", Work(PLENTY)), "and nothing is left broken"
    work = Work(3)
    work.spend(3)
    with pytest.raises(Exhausted):
        work.spend(1)


def test_what_is_kept_is_bounded_whatever_names_come() -> None:
    automaton = Patterns([re.compile("a.{150}b")])
    draw = random.Random(7)
    for _ in range(60):
        name = "".join(draw.choices("ac", k=256))
        assert automaton.search(name, Work(PLENTY)) is False
        # one state and its move beyond the bound, at most
        assert automaton._held <= _pattern_match.KEPT + 200
    held = sum(1 + len(state.steps) + len(state.moves) for state in [*automaton._table.values()])
    assert held <= _pattern_match.KEPT + 200
    assert automaton.search("a" + "c" * 150 + "b", Work(PLENTY))


def test_many_characters_do_not_fill_the_memory_either() -> None:
    automaton = Patterns([re.compile("secret")])
    for first in range(0x10000, 0x10000 + 2 * _pattern_match.KEPT, 256):
        automaton.search("".join(map(chr, range(first, first + 256))), Work(PLENTY))
    assert automaton._held <= _pattern_match.KEPT + 10
    assert automaton.search("my_secret", Work(PLENTY))


def test_several_threads_ask_at_once() -> None:
    automaton = Patterns([re.compile(r"(?i)\b(?:token|secret)\b.{0,9}$")])
    names = ["".join(random.Random(seed).choices(string.ascii_lowercase + " -", k=40)) for seed in range(200)]
    names += ["a token", "SECRET-1", "tokens"]
    wrong: list[str] = []

    def ask() -> None:
        pattern = re.compile(r"(?i)\b(?:token|secret)\b.{0,9}$")
        wrong.extend(
            name for name in names if automaton.search(name, Work(PLENTY)) != bool(pattern.search(name))
        )

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
