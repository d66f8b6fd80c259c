import datetime as dt
import decimal
import enum
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from afpool.protocol import MalformedMessage, NotJson, decode_json, encode_json
from afpool.protocol._json import checked_text, split_array

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(JSON)
def test_what_is_written_is_what_the_standard_library_reads(value):
    text = encode_json(value)
    assert json.loads(text) == value
    assert b"\n" not in text
    assert decode_json(text) == value


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**64) - 1, 10**40, -(10**400), 2**53 + 1])
def test_integers_are_exact_both_ways(number):
    assert decode_json(encode_json([number])) == [number]
    assert decode_json(b'{"n":%d}' % number) == {"n": number}


SECRET = "s3cret-value"


class Secretive:
    def __repr__(self):
        return SECRET


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        (math.nan, "$", "a float that is not finite"),
        ({"a": [1, math.inf]}, "$.a[1]", "a float that is not finite"),
        ({"a": -math.inf, "b": None}, "$.a", "a float that is not finite"),
        ({"a": {"b": Secretive()}}, "$.a.b", "Secretive"),
        ([b"s3cret-value"], "$[0]", "bytes"),
        ([{1, 2}], "$[0]", "set"),
        ({"when": dt.date(2026, 1, 1)}, "$.when", "date"),
        ({"d": decimal.Decimal(1)}, "$.d", "Decimal"),
        ({"raw": Raw(b"1")}, "$.raw", "Raw"),
        ({"a": {1: "s3cret-value"}}, "$.a", "a key of type int"),
        ({"a": {None: 1}}, "$.a", "a key of type NoneType"),
        ({"a b": [Secretive()]}, '$["a b"][0]', "Secretive"),
        (["\ud800"], "$[0]", "a string with a lone surrogate"),
        ([{"\ud800": 1}], "$[0]", "a key with a lone surrogate"),
        ([10**5000], "$[0]", "an int of more than 4300 digits"),
        ({1: 2}, "$", "a key of type int"),
    ],
)
def test_what_is_not_json_is_named_by_path_and_type(value, path, kind):
    with pytest.raises(NotJson) as caught:
        encode_json(value)
    assert (caught.value.path, caught.value.kind) == (path, kind)
    assert SECRET not in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_the_first_offender_in_document_order_is_named():
    with pytest.raises(NotJson) as caught:
        encode_json({"a": [1, {"x": math.nan}], "b": math.nan})
    assert caught.value.path == "$.a[1].x"


def test_a_long_key_is_cut_in_the_path():
    with pytest.raises(NotJson) as caught:
        encode_json({"k" * 5000: math.nan})
    assert len(str(caught.value)) < 150


def test_a_cycle_and_great_depth_are_refused():
    cycle = []
    cycle.append(cycle)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(NotJson, match="nested too deeply"):
            encode_json(value)
    while deep:  # unwound by hand: the interpreter would recurse
        deep = deep[0]


class Text(str):
    __slots__ = ()


class Number(float):
    __slots__ = ()


class Colour(enum.StrEnum):
    RED = "red"


class Members(dict):
    pass


def test_subclasses_of_json_types_are_written_as_what_they_are():
    value = {"a": Text("x"), "b": Number(1.5), "c": Colour.RED, "d": Members(z=None), "e": (1, 2)}
    assert encode_json(value) == b'{"a":"x","b":1.5,"c":"red","d":{"z":null},"e":[1,2]}'
    with pytest.raises(NotJson, match="not finite"):
        encode_json({"d": Members(z=Number("nan"))})


def test_lone_surrogates_of_a_peer_are_read():
    assert decode_json(b'{"a":"\\ud83d","n":36893488147419103232}') == {"a": "\ud83d", "n": 2**65}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"nul",
        b"NaN",
        b"[Infinity]",
        b'["\\ud800", NaN]',
        b"1e999",
        b"[1] x",
        b"9" * 5000,
        b'"\xff"',
        b"[" * 100_000,
        b'["secret-of-the-peer" oops]',
    ],
)
def test_what_is_no_json_is_malformed_and_not_quoted(text):
    with pytest.raises(MalformedMessage) as caught:
        decode_json(text)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 100
    assert caught.value.reason == str(caught.value)


def test_text_is_checked_for_utf8_and_loses_its_byte_order_mark():
    assert checked_text(b"\xef\xbb\xbf{}") == b"{}"
    assert checked_text('{"é":1}'.encode()) == '{"é":1}'.encode()
    with pytest.raises(MalformedMessage, match="UTF-8"):
        checked_text(b'{"a":"\xff"}')


@given(st.lists(JSON, max_size=5), st.sampled_from(["", " ", "\n\t"]))
def test_an_array_is_cut_into_its_items_on_both_paths(items, space):
    plain = ("," + space).join(json.dumps(item) for item in items)
    fast = split_array(f"{space}[{space}{plain}{space}]{space}".encode())
    assert [json.loads(bytes(item)) for item in fast] == items
    slow = split_array(f'[{space}"\\ud800"{space}{"," + plain if items else ""}]'.encode())
    assert [json.loads(bytes(item)) for item in slow] == ["\ud800", *items]


@pytest.mark.parametrize(
    "text", [b"{}", b"1", b'["\\ud800",]', b'["\\ud800" 1]', b'["\\ud800"] 1', b'["\\ud800"']
)
def test_no_array_is_malformed(text):
    with pytest.raises(MalformedMessage):
        split_array(text)
