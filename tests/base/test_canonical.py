"""One spelling per JSON value, and no document that hurts the reader."""

from __future__ import annotations

import json
import math
import sys
import threading
import time

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from afpool._base.canonical import MAX_DEPTH, ContentError, canonical_json, parse_strict

SAFE = 2**53 - 1
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WILD_TEXT = st.text(
    st.characters() | st.sampled_from('\ud83d\ude00\ud800\udfff\ue000\uffff\U00010000\u2028\x7f"\\/\b')
)


def documents(scalars, text):
    return st.recursive(
        scalars | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=5),
        max_leaves=20,
    )


PLAIN = documents(st.none() | st.booleans() | st.integers(-SAFE, SAFE) | FLOAT, TEXT)
WILD = documents(st.none() | st.booleans() | st.integers() | FLOAT, WILD_TEXT)


def normal(value):
    """What JSON says about a value: 1.0 is 1, True is not, text is joined UTF-16."""
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, int | float):
        return ("number", value)
    if isinstance(value, str):
        return ("text", value.encode("utf-16-be", "surrogatepass"))
    if isinstance(value, list):
        return ("array", tuple(map(normal, value)))
    return ("object", frozenset((normal(key), normal(item)) for key, item in value.items()))


class TestCanonical:
    @given(PLAIN)
    @example({"\U00010000": 1, "\uffff": 2, "\ue000": 3, "a": 4, "": 5})
    @example([0.1, 1e20, 1e21, 1.5e-7, 1e-6, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53, -(2.0**60)])
    def test_equal_to_the_library_on_its_domain(self, value):
        assert canonical_json(value) == rfc8785.dumps(value)

    @given(WILD)
    @example("\ud83d\ude00")
    @example({"\ud83d": 1} | {"\ude00": "\ude00\ud83d"})
    def test_fixed_point(self, value):
        try:
            written = canonical_json(value)
        except ContentError as error:
            # Only for two keys that are one text once their surrogates are joined.
            assert error.reason == "a key stands twice in one object"  # noqa: PT017 - both ends are asserted
            return
        assert canonical_json(parse_strict(written)) == written

    @given(PLAIN, PLAIN)
    @example(1, 1.0)
    @example(1, True)
    @example(0, False)
    @example(0.0, -0.0)
    @example("1", 1)
    @example([], {})
    def test_same_bytes_if_and_only_if_equal(self, one, other):
        assert (canonical_json(one) == canonical_json(other)) == (normal(one) == normal(other))

    @given(PLAIN, st.sampled_from([None, 2]), st.booleans())
    def test_spelling_does_not_matter(self, value, indent, ascii_only):
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        assert canonical_json(parse_strict(text.encode())) == canonical_json(value)

    @given(st.dictionaries(WILD_TEXT, st.none()))
    def test_keys_are_ordered_by_code_unit(self, value):
        try:
            keys = list(parse_strict(canonical_json(value)))
        except ContentError:
            return
        units = [key.encode("utf-16-be", "surrogatepass") for key in keys]
        assert units == sorted(units)

    @given(st.integers())
    @example(2**53)
    @example(2**63 - 1)
    @example(-(2**63))
    def test_integers_are_exact(self, value):
        assert canonical_json(value) == str(value).encode()
        assert parse_strict(canonical_json(value)) == value

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            ({"b": 1, "a": [True, None, "x"]}, b'{"a":[true,null,"x"],"b":1}'),
            ((), b"[]"),
            ({}, b"{}"),
            (1.0, b"1"),
            (-0.0, b"0"),
            (1e21, b"1e+21"),
            (1e20, b"100000000000000000000"),
            (1e-7, b"1e-7"),
            (333333333.33333329, b"333333333.3333333"),
            (9223372036854775807, b"9223372036854775807"),
            ("\u2028\x7f\u00e9/", '"\u2028\x7f\u00e9/"'.encode()),
            ('"\\\b\f\n\r\t\x00\x1f', b'"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f"'),
            ("\ud83d", b'"\\ud83d"'),
            ("\ud83d\ude00\ud83d", b'"\xf0\x9f\x98\x80\\ud83d"'),
            ("\\ud83d", b'"\\\\ud83d"'),
        ],
    )
    def test_pinned(self, value, written):
        assert canonical_json(value) == written

    @pytest.mark.parametrize(
        "value",
        [math.nan, math.inf, -math.inf, b"x", {1: 2}, {None: 1}, object(), {"a": {1, 2}}, [10**5000]],
    )
    def test_refused(self, value):
        with pytest.raises(ContentError) as refused:
            canonical_json(value)
        assert refused.value.reason == str(refused.value)

    def test_two_keys_of_one_text(self):
        with pytest.raises(ContentError, match="twice"):
            canonical_json({"\ud83d\ude00": 1, "\U0001f600": 2})

    def test_cycles_and_depth(self):
        cycle: list = []
        cycle.append(cycle)
        with pytest.raises(ContentError, match="nested"):
            canonical_json(cycle)
        deep: object = 1
        for _ in range(MAX_DEPTH):
            deep = {"a": deep}
        canonical_json(deep)
        with pytest.raises(ContentError, match="nested"):
            canonical_json([deep])


class TestParse:
    @pytest.mark.parametrize(
        ("raw", "reason"),
        [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"{} x", "not JSON"),
            (b"{}{}", "not JSON"),
            (b"[1,]", "not JSON"),
            (b"01", "not JSON"),
            (b"1.", "not JSON"),
            (b"'a'", "not JSON"),
            (b'"a\nb"', "not JSON"),
            (b'"\\x"', "not JSON"),
            (b"\xef\xbb\xbf{}", "not JSON"),
            (b'"\xff"', "not UTF-8"),
            (b'"\xed\xa0\x80"', "not UTF-8"),
            ("{}".encode("utf-16"), "not UTF-8"),
            (b'{"a":1,"a":1}', "twice"),
            (b'{"a":1,"\\u0061":2}', "twice"),
            (b'[{"x":{"a":1,"b":2,"a":3}}]', "twice"),
            (b"NaN", "NaN"),
            (b"[Infinity]", "NaN"),
            (b"-Infinity", "NaN"),
            (b"1e400", "NaN"),
            (b"-1e400", "NaN"),
            (b"9" * 5_000, "digits"),
        ],
    )
    def test_refused(self, raw, reason):
        with pytest.raises(ContentError, match=reason):
            parse_strict(raw)

    @pytest.mark.parametrize(
        "raw",
        [
            b'{"k": "canary", "k": 1}',
            b'{"canary": nope}',
            b'"canary\xff"',
            b'{"canary":' + b"7" * 5_000 + b"}",
        ],
    )
    def test_refusals_carry_no_content(self, raw):
        with pytest.raises(ContentError) as refused:
            parse_strict(raw)
        error = refused.value
        assert "canary" not in repr(error)
        assert error.__context__ is None
        assert error.__cause__ is None

    @given(st.binary())
    def test_any_bytes_parse_or_refuse(self, raw):
        try:
            value = parse_strict(raw)
        except ContentError:
            return
        canonical_json(value)

    @given(st.text(st.sampled_from('{}[]",:\\u19eE+-.0atrfn \n')))
    def test_near_json_agrees_with_json(self, text):
        raw = text.encode()
        try:
            value = parse_strict(raw)
        except ContentError as error:
            if error.reason.startswith("not JSON"):
                with pytest.raises(json.JSONDecodeError):
                    json.loads(raw)
            return
        assert value == json.loads(raw)

    @pytest.mark.parametrize(
        "raw",
        [
            b"[" * 10_000 + b"]" * 10_000,
            b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
            b"[" * 1_000_000,
            b'[{"a":' * 5_000,
            b'"\\"' + b"[" * 200,
        ],
    )
    def test_deep_nesting_is_refused(self, raw):
        with pytest.raises(ContentError):
            parse_strict(raw)

    def test_the_limit_is_exact(self):
        at, beyond = MAX_DEPTH, MAX_DEPTH + 1
        canonical_json(parse_strict(b"[" * at + b"]" * at))
        with pytest.raises(ContentError, match="nested"):
            parse_strict(b"[" * beyond + b"]" * beyond)
        # Width, and brackets in strings, are not depth.
        assert len(parse_strict(b"[" + b",".join([b"[]"] * 1_000) + b"]")) == 1_000
        assert parse_strict(json.dumps(["[" * 1_000, '"\\[' * 500]).encode())[0] == "[" * 1_000

    @pytest.mark.parametrize("raw", [b'"' + b'\\"' * 500_000, b'"\\' * 300_000, b"[" * 129 + b'"' * 300_001])
    def test_hostile_strings_cost_linear_time(self, raw):
        raw += b"[" * (MAX_DEPTH + 1)
        start = time.perf_counter()
        with pytest.raises(ContentError):
            parse_strict(raw)
        # Linear takes about 20 ms; quadratic would take hours.
        assert time.perf_counter() - start < 5

    def test_the_limit_does_not_depend_on_the_stack(self):
        raw = b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
        outcome = []

        def deep(levels):
            if levels:
                deep(levels - 1)
            else:
                outcome.append(canonical_json(parse_strict(raw)))

        thread = threading.Thread(target=deep, args=(sys.getrecursionlimit() // 2,))
        thread.start()
        thread.join(10)
        assert outcome == [raw]
