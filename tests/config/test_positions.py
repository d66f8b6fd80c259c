"""Every key of every text has the line that it stands on."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from afpool.config._positions import json_lines, toml_lines

KEYS = st.one_of(
    st.text("abc_-0", min_size=1, max_size=3),
    st.sampled_from(["", "a b", 'q"q', "ö", "a.b", "#", "[x]", "=", "\\", "\n", "\t", "'"]),
)
VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(10**6), 10**6),
        st.floats(allow_nan=False, allow_infinity=False, width=32),
        st.text(st.characters(codec="utf-8", exclude_characters="\r\x7f"), max_size=8),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class Writer:
    """Writes TOML in ways that are drawn, and notes where each key came to stand."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.at: dict[tuple[str | int, ...], int] = {}

    def key(self, key: str) -> str:
        bare = key and key.isascii() and key.replace("-", "").replace("_", "").isalnum()
        if bare and self.draw(st.booleans()):
            return key
        literal = "'" not in key and all(char >= " " for char in key)
        return f"'{key}'" if literal and self.draw(st.booleans()) else _quoted(key)

    def text(self, value: str) -> str:
        how = self.draw(st.integers(0, 3))
        plain = all(char >= " " for char in value)
        if how == 1 and plain and "'" not in value:
            return f"'{value}'"
        if how == 2:
            inside = value.replace("\\", "\\\\").replace('"', '\\"')
            inside = "".join(
                char if char >= " " or char in "\n\t" else f"\\u{ord(char):04x}" for char in inside
            )
            return f'"""{inside}"""' if not inside.startswith("\n") else _quoted(value)
        if how == 3 and "'" not in value and all(char >= " " or char in "\n\t" for char in value):
            return f"'''{value}'''" if not value.startswith("\n") else _quoted(value)
        return _quoted(value)

    def value(self, value: Any, path: tuple[str | int, ...], line: int) -> str:
        """Write a value that begins on a line; several lines are joined by line ends."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            parts = []
            for key, inner in value.items():
                self.at[*path, key] = line
                written = self.value(inner, (*path, key), line)
                line += written.count("\n")
                parts.append(f"{self.key(key)} = {written}")
            return "{" + ", ".join(parts) + "}"
        text = "["
        for index, inner in enumerate(value):
            if self.draw(st.booleans()):
                text += "\n  # a, comment ] with = signs\n"
                line += 2
            self.at[*path, index] = line
            written = self.value(inner, (*path, index), line)
            line += written.count("\n")
            text += written + ", "
        return text + "]"

    def pair(self, key: str, value: Any, table: tuple[str | int, ...]) -> None:
        line = self.here
        self.at[*table, key] = line
        written = f"{self.key(key)} = {self.value(value, (*table, key), line)}"
        self.lines += (written + self.draw(st.sampled_from(["", " # end", "   "]))).split("\n")

    @property
    def here(self) -> int:
        return len(self.lines) + 1

    def blank(self) -> None:
        self.lines += self.draw(st.sampled_from([[], [""], ["# [not.a.table]", "", "  # x = 1"]]))

    def document(self, document: dict[str, Any]) -> str:
        tables = {
            key: value
            for key, value in document.items()
            if value
            and (
                isinstance(value, dict)
                or (isinstance(value, list) and all(isinstance(each, dict) for each in value))
            )
            and self.draw(st.booleans())
        }
        for key, value in document.items():
            if key not in tables:
                self.blank()
                self.pair(key, value, ())
        for key, value in tables.items():
            self.at[key,] = self.here + 1
            for index, each in enumerate([value] if isinstance(value, dict) else value):
                self.lines.append("")
                many = isinstance(value, list)
                path: tuple[str | int, ...] = (key, index) if many else (key,)
                self.at.setdefault(path, self.here)
                self.lines.append(f"[[ {self.key(key)} ]]" if many else f"[{self.key(key)}]")
                for inner, held in each.items():
                    self.blank()
                    self.pair(inner, held, path)
        return "\n".join(self.lines) + "\n"


@st.composite
def toml_texts(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[tuple[str | int, ...], int]]:
    document = draw(DOCUMENTS)
    writer = Writer(draw)
    text = writer.document(document)
    return text, document, writer.at


@hypothesis.given(toml_texts())
@hypothesis.settings(max_examples=300)
def test_every_key_of_toml_has_its_line(drawn) -> None:
    text, document, at = drawn
    assert tomllib.loads(text) == document
    assert toml_lines(text) == at


def test_what_toml_spells_in_other_ways() -> None:
    text = (
        "a.b.'c d' = 1\n"
        "a.e = { f.g = 1, h = [1.5,\n 1979-05-27 07:32:00Z] }\n"
        '"\\u0061\\n" = """\nx\ny"""\n'
        "[t . u]\n"
        "x = +1_0.0e-3\n"
        "[[t.v]]\n"
        "y = inf\n"
        "[t.v.w]\n"
        "z = 07:32:00\n"
        "[[t.v]]\n"
        "y = 0xff # t.v = 2\n"
        "[t.v.w.q]\n"
    )
    assert tomllib.loads(text)["t"]["v"][1]["y"] == 255
    assert toml_lines(text) == {
        ("a",): 1, ("a", "b"): 1, ("a", "b", "c d"): 1, ("a", "e"): 2, ("a", "e", "f"): 2,
        ("a", "e", "f", "g"): 2, ("a", "e", "h"): 2, ("a", "e", "h", 0): 2, ("a", "e", "h", 1): 3,
        ("a\n",): 4, ("t",): 7, ("t", "u"): 7, ("t", "u", "x"): 8, ("t", "v"): 9, ("t", "v", 0): 9,
        ("t", "v", 0, "y"): 10, ("t", "v", 0, "w"): 11, ("t", "v", 0, "w", "z"): 12, ("t", "v", 1): 13,
        ("t", "v", 1, "y"): 14, ("t", "v", 1, "w"): 15, ("t", "v", 1, "w", "q"): 15,
    }  # fmt: skip


def _json_at(value: Any, path: tuple[str | int, ...], out: dict, line: list[int]) -> str:
    """Write JSON with a line for each member, and note where it came to stand."""
    if isinstance(value, dict):
        parts = []
        for key, inner in value.items():
            line[0] += 1
            out[*path, key] = line[0]
            parts.append(f"\n{json.dumps(key)} : {_json_at(inner, (*path, key), out, line)}")
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        parts = []
        for index, inner in enumerate(value):
            line[0] += 1
            out[*path, index] = line[0]
            parts.append(f"\n{_json_at(inner, (*path, index), out, line)}")
        return "[" + ",".join(parts) + "]"
    return json.dumps(value, ensure_ascii=False)


@hypothesis.given(DOCUMENTS)
@hypothesis.settings(max_examples=300)
def test_every_key_of_json_has_its_line(document) -> None:
    at: dict[tuple[str | int, ...], int] = {}
    text = _json_at(document, (), at, [1])
    assert json.loads(text) == document
    assert json_lines(text) == (at, [])


def test_keys_that_stand_twice_in_json() -> None:
    lines, twice = json_lines('{"a": {"b": 1,\n"b": 2}, "c": [{"d": 1}, {"d": 1}],\n"a": 3}')
    assert twice == [(("a", "b"), 2), (("a",), 3)]
    assert lines["a",] == 1


@hypothesis.given(st.text(st.sampled_from('ab[]{}"\'=.,#\n\\ 1"""'), max_size=40))
def test_no_text_is_too_much(text) -> None:
    toml_lines(text)
    json_lines(text)


@pytest.mark.parametrize("text", ['a = "' + "\\\\" * 100_000, "[" * 100_000, '"""' * 50_000, "a." * 100_000])
def test_a_large_text_is_gone_through_once(text) -> None:
    # quadratic or exponential work would run into the test's own time limit
    toml_lines(text)
    json_lines(text)
