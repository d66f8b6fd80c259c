"""Tables and what a stranger's text may do on a terminal."""

from __future__ import annotations

import io
import json

import hypothesis
import hypothesis.strategies as st

from afpool.cli._output import Output
from afpool.cli._text import cut, harmless, one_line, table, width_of

CELLS = st.text(max_size=40)


@hypothesis.given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=6), width=st.integers(40, 120))
def test_a_table_fits_and_has_a_line_for_each_row(rows, width):
    lines = table(("one", "two", "three"), rows, width)
    assert len(lines) == len(rows) + 1
    assert all(width_of(line) <= width for line in lines)
    assert all("\n" not in line and "\x1b" not in line for line in lines)
    whole = table(("one", "two", "three"), rows, None)
    for line, row in zip(whole[1:], rows, strict=True):
        assert all(one_line(cell) in line for cell in row)


@hypothesis.given(st.text())
def test_no_text_steers_a_terminal(text):
    shown = harmless(text)
    assert all(char in "\n\t" or not (ord(char) < 32 or 127 <= ord(char) < 160) for char in shown)
    assert not set(shown) & set("\u202e\u202d\u2066\u2067\u2068\u2069\u200e\u200f")
    assert harmless(shown) == shown


def test_signs_that_steer_are_spelled_out():
    assert harmless("a\x1b[2J\x9b1m\u202eb\tc\nd") == "a\\x1b[2J\\x9b1m\\x202eb\tc\nd"


@hypothesis.given(text=st.text(), width=st.integers(1, 30))
def test_what_is_cut_fits_and_says_so(text, width):
    found = cut(text, width)
    assert width_of(found) <= width
    assert found == text or found.endswith("…")


def test_wide_and_combining_signs_are_counted_as_they_stand():
    assert width_of("日本") == 4
    assert width_of("e\u0301") == 1
    assert cut("日本語", 5) == "日本…"


def test_documents_can_be_read_whatever_is_in_them():
    out = io.StringIO()
    output = Output(json=True, stdout=out, stderr=io.StringIO(), env={})
    output.document({"text": "\ud800 é \x1b"})
    assert json.loads(out.getvalue())["text"] == "? é \x1b"
    assert output.wrote


def test_a_stream_without_the_signs_gets_them_spelled_out():
    raw = io.BytesIO()
    output = Output(stdout=io.TextIOWrapper(raw, encoding="ascii"), stderr=io.StringIO(), env={})
    output.data("naïve …")
    output.end()
    assert raw.getvalue() == b"na\\xefve \\u2026\n"
