import base64
import email.utils

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.protocol import (
    BodyKind,
    Challenge,
    body_kind,
    header_value,
    invalid_param_annotations,
    mcp_param_headers,
    param_header_map,
    param_headers,
    parse_challenge,
    parse_challenges,
    parse_retry_after,
    same_origin_redirect,
)


@pytest.mark.parametrize("text", ["", "get_weather", "a b", 'q"uo:te', "=?base64?", "?=", "x=?base64?YQ==?="])
def test_plain_values_go_as_they_are(text):
    assert header_value(text) == text.encode()


@pytest.mark.parametrize(
    "text", [" a", "a ", "\ta", "é", "a\nb", "\x7f", "\0", "=?base64?YQ==?=", "=?base64??="]
)
def test_other_values_are_wrapped(text):
    wrapped = header_value(text)
    assert wrapped == b"=?base64?" + base64.b64encode(text.encode()) + b"?="


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_every_value_survives_a_header(text):
    value = header_value(text)
    assert all(0x20 <= byte <= 0x7E for byte in value)
    assert value == value.strip()
    if value.startswith(b"=?base64?") and value.endswith(b"?="):
        assert base64.b64decode(value[9:-2], validate=True).decode() == text
    else:
        assert value.decode() == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("application/json", BodyKind.JSON),
        (b"Application/JSON; charset=utf-8", BodyKind.JSON),
        (" application/problem+json ;x", BodyKind.JSON),
        ("text/event-stream", BodyKind.SSE),
        (b"TEXT/Event-Stream;charset=utf-8", BodyKind.SSE),
        ("text/html", BodyKind.OTHER),
        ("application/jsonp", BodyKind.OTHER),
        ("text/json-seq", BodyKind.OTHER),
        ("", BodyKind.OTHER),
        (b"\xff", BodyKind.OTHER),
        (None, BodyKind.OTHER),
    ],
)
def test_content_types(value, kind):
    assert body_kind(value) is kind


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        (b" 120 ", 120.0),
        (email.utils.formatdate(NOW + 30, usegmt=True), 30.0),
        (email.utils.formatdate(NOW - 30, usegmt=True), 0.0),
        ("Tue, 14 Nov 2023 22:13:50 -0000", 30.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("\u0663", None),
        ("9" * 100, None),
        ("Tue, 99 Nov 2023 99:13:50 GMT", None),
        (None, None),
    ],
)
def test_retry_after(value, seconds):
    assert parse_retry_after(value, NOW) == seconds


@given(st.text(max_size=80) | st.binary(max_size=80))
def test_readers_never_raise(value):
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or seconds >= 0
    parse_challenge(value)
    body_kind(value)
    target = same_origin_redirect("https://a.example/mcp", value)
    assert target is None or target.startswith("https://a.example")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('Bearer where="https://a/x", scope="a b"', [("bearer", {"where": "https://a/x", "scope": "a b"})]),
        (b"bearer", [("bearer", {})]),
        ("Basic realm=x, Bearer error=y", [("basic", {"realm": "x"}), ("bearer", {"error": "y"})]),
        ("Negotiate abc==, Bearer a=1", [("negotiate", {}), ("bearer", {"a": "1"})]),
        ('Bearer a="x\\"y\\\\", B = c ,, d=', [("bearer", {"a": 'x"y\\', "b": "c", "d": ""})]),
        ('Bearer a="1", a="2"', [("bearer", {"a": "1"})]),
        ('Bearer a="open', [("bearer", {"a": "open"})]),
        ('Bearer a="open\\', [("bearer", {"a": "open"})]),
        ('DPoP algs="ES256", Bearer a="b, c=d"', [("dpop", {"algs": "ES256"}), ("bearer", {"a": "b, c=d"})]),
        ('a="no scheme", Bearer b=c', [("bearer", {"b": "c"})]),
        ("@@, Bearer b=c", [("bearer", {"b": "c"})]),
        ("@@", []),
        ("", []),
        (None, []),
    ],
)  # fmt: skip
def test_challenges(value, expected):
    assert parse_challenges(value) == [Challenge(*one) for one in expected]


def test_the_challenge_that_is_answered():
    assert parse_challenge("Basic realm=x, Bearer a=b") == ("bearer", {"a": "b"})
    assert parse_challenge("Basic realm=x, DPoP a=b").scheme == "dpop"
    assert parse_challenge("Basic realm=x").scheme == "basic"
    assert parse_challenge(None) is None


def test_a_long_field_is_read_up_to_a_bound():
    assert parse_challenge(" " * 8180 + "Bearer a=b").scheme == "bearer"
    assert parse_challenge(" " * 8192 + "Bearer a=b") is None
    assert len(parse_challenges("a " * 1_000_000)) <= 8192


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/mcp/", "https://a.example/mcp/"),
        ("mcp/", "https://a.example/mcp/"),
        ("https://A.example:443/x?q#f", "https://A.example:443/x?q"),
        (b"//a.example/y", "https://a.example/y"),
        ("https://b.example/mcp", None),
        ("http://a.example/mcp", None),
        ("https://a.example:8443/mcp", None),
        ("https://a.example:0/mcp", None),
        ("https://u:p@a.example/mcp", None),
        ("https://a.example@b.example/", None),
        ("//b.example/", None),
        ("\\\\b.example/", None),
        ("/a b", None),
        ("/a\r\nx: y", None),
        ("https://[::1", None),
        ("https://a.example:99999/", None),
        ("javascript:alert(1)", None),
        ("", None),
        (None, None),
    ],
)
def test_redirects_stay_in_their_origin(location, target):
    assert same_origin_redirect("https://a.example/mcp", location) == target


def annotated(kind="string", token="Region", **more):
    return {"type": kind, "x-mcp-header": token, **more}


def test_param_headers():
    schema = {
        "type": "object",
        "properties": {
            "region": annotated(),
            "n": annotated("integer", "N"),
            "flag": annotated("boolean", "Flag"),
            "deep": {"type": "object", "properties": {"x": annotated(token="Deep-X")}},
            "plain": {"type": "string", "default": {"x-mcp-header": "Data"}},
        },
    }
    assert invalid_param_annotations(schema) is None
    arguments = {"region": "é", "n": 2**70, "flag": False, "deep": {"x": "v"}, "plain": "p"}
    assert sorted(mcp_param_headers(schema, arguments)) == [
        (b"mcp-param-deep-x", b"v"),
        (b"mcp-param-flag", b"false"),
        (b"mcp-param-n", str(2**70).encode()),
        (b"mcp-param-region", b"=?base64?w6k=?="),
    ]
    made_once = param_header_map(schema)
    assert param_headers(made_once, arguments) == mcp_param_headers(schema, arguments)
    for absent in ({}, {"region": None, "deep": None}, {"region": [1], "deep": 5}, {"deep": {}}):
        assert param_headers(made_once, absent) == []
    assert param_headers(made_once, {"n": 5.0}) == [(b"mcp-param-n", b"5")]
    assert param_headers(made_once, {"n": 5.5}) == [(b"mcp-param-n", b"5.5")]
    assert param_headers(made_once, {"flag": True}) == [(b"mcp-param-flag", b"true")]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": annotated(token="")}},
        {"properties": {"a": annotated(token="not a token")}},
        {"properties": {"a": annotated(token="s3cret:")}},
        {"properties": {"a": annotated(token=5)}},
        {"properties": {"a": annotated(token=None)}},
        {"properties": {"a": annotated("number")}},
        {"properties": {"a": annotated("object")}},
        {"properties": {"a": annotated(["string", "null"])}},
        {"properties": {"a": {"x-mcp-header": "A"}}},
        {"properties": {"a": annotated(token="X"), "b": annotated(token="x")}},
        {"x-mcp-header": "Root", "type": "string"},
        {"properties": {"a": {"type": "array", "items": annotated()}}},
        {"properties": {"a": {"items": [annotated()]}}},
        {"anyOf": [{"properties": {"a": annotated()}}]},
        {"$defs": {"d": annotated()}},
        {"definitions": {"d": {"properties": {"a": annotated()}}}},
        {"patternProperties": {"^a": annotated()}},
        {"additionalProperties": annotated()},
        {"if": annotated()},
        {"not": {"properties": {"a": annotated()}}},
    ],
)
def test_invalid_annotations(schema):
    reason = invalid_param_annotations(schema)
    assert reason is not None
    assert "s3cret" not in reason
    with pytest.raises(ValueError, match="x-mcp-header"):
        mcp_param_headers(schema, {"a": "x"})


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        [],
        "x",
        {},
        {"properties": None},
        {"properties": {"a": True, "b": None}},
        {"properties": {"a": {"enum": [{"x-mcp-header": "E"}], "const": {"x-mcp-header": "C"}}}},
        {"examples": [{"properties": {"a": annotated(token="")}}]},
        {"$ref": "#/$defs/x"},
        {"properties": {"x-mcp-header": {"type": "string"}}},
        {"anyOf": None, "items": 5},
    ],
)
def test_schemas_without_annotations(schema):
    assert invalid_param_annotations(schema) is None
    assert mcp_param_headers(schema, {"a": 1}) == []


def test_an_annotation_that_is_too_deep_is_invalid_and_depth_alone_is_not():
    plain = {"type": "string"}
    marked = annotated()
    for _ in range(65):
        plain = {"properties": {"a": plain}}
        marked = {"properties": {"a": marked}}
    assert invalid_param_annotations(plain) is None
    assert "deeper" in invalid_param_annotations(marked)
