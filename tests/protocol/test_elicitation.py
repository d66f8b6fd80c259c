"""Forms: defaults, answers checked against a flat schema, addresses; the parameters of a further round."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.errors import ElicitationRequired
from afpool.protocol import (
    InvalidAnswer,
    MalformedMessage,
    check_answer,
    classify_stream,
    decode_message,
    flat_schema_fault,
    is_web_address,
    read_input_requests,
    read_url_elicitations,
    round_params,
    round_wait,
    with_defaults,
)


def form(required: list[str] | None = None, **properties: dict) -> dict:
    return {"type": "object", "properties": properties, "required": required or []}


CHOICE = {"type": "string", "enum": ["red", "blue"]}
TITLED = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}
SEVERAL = {
    "type": "array",
    "items": {"type": "string", "enum": ["a", "b", "c"]},
    "minItems": 1,
    "maxItems": 2,
}
TITLED_SEVERAL = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}

GOOD = [
    ({"type": "string"}, ""),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "abc"),
    ({"type": "string", "format": "email"}, "alice@acme.example"),
    ({"type": "string", "format": "uri"}, "https://acme.example/"),
    ({"type": "string", "format": "date"}, "2026-02-28"),
    ({"type": "string", "format": "date-time"}, "2026-02-28T12:00:00Z"),
    ({"type": "string", "format": "x-unknown"}, "anything"),
    ({"type": "number", "minimum": 0, "maximum": 1}, 0.5),
    ({"type": "number"}, 7),
    ({"type": "integer"}, 7),
    ({"type": "integer"}, 7.0),
    ({"type": "boolean"}, False),
    (CHOICE, "blue"),
    (TITLED, "b"),
    (SEVERAL, ["a", "c"]),
    (TITLED_SEVERAL, []),
    ({"enum": ["x"]}, "x"),
]
BAD = [
    ({"type": "string"}, 1),
    ({"type": "string", "minLength": 2}, "a"),
    ({"type": "string", "maxLength": 3}, "abcd"),
    ({"type": "string", "format": "email"}, "alice"),
    ({"type": "string", "format": "email"}, "a b@acme.example"),
    ({"type": "string", "format": "uri"}, "acme"),
    ({"type": "string", "format": "uri"}, "http://[::1"),
    ({"type": "string", "format": "date"}, "2026-02-30"),
    ({"type": "string", "format": "date"}, "2026-W01-1"),
    ({"type": "string", "format": "date-time"}, "2026-02-28 12:00"),
    ({"type": "number"}, "1"),
    ({"type": "number"}, True),
    ({"type": "number"}, float("nan")),
    ({"type": "number", "minimum": 0}, -1),
    ({"type": "number", "maximum": 1}, 1.5),
    ({"type": "integer"}, 1.5),
    ({"type": "boolean"}, 0),
    (CHOICE, "green"),
    (TITLED, "Red"),
    (SEVERAL, []),
    (SEVERAL, ["a", "b", "c"]),
    (SEVERAL, ["d"]),
    (SEVERAL, "a"),
    ({"enum": ["x"]}, "y"),
]


@pytest.mark.parametrize(("inner", "value"), GOOD)
def test_an_answer_that_fits(inner, value):
    schema = form(["it"], it=inner)
    assert flat_schema_fault(schema) is None
    check_answer(schema, {"it": value})


@pytest.mark.parametrize(("inner", "value"), BAD)
def test_an_answer_that_does_not_fit_is_named_without_its_value(inner, value):
    with pytest.raises(InvalidAnswer, match='the property "it"') as caught:
        check_answer(form(it=inner), {"it": value})
    assert len(str(value)) < 4 or str(value) not in str(caught.value)


def test_what_is_missing_and_what_was_not_asked_for():
    with pytest.raises(InvalidAnswer, match="required"):
        check_answer(form(["name"], name={"type": "string"}), {})
    with pytest.raises(InvalidAnswer, match="not asked for"):
        check_answer(form(name={"type": "string"}), {"other": 1})


def test_defaults_complete_an_answer_and_change_nothing_of_it():
    schema = form(
        name={"type": "string", "default": "alice"},
        age={"type": "integer", "default": 0},
        sure={"type": "boolean", "default": False},
        colour={**CHOICE, "default": "red"},
        other={"type": "string"},
    )
    defaults = {"name": "alice", "age": 0, "sure": False, "colour": "red"}
    assert with_defaults(schema) == defaults
    given_content = {"name": "", "sure": True}
    assert with_defaults(schema, given_content) == {**defaults, "name": "", "sure": True}
    assert given_content == {"name": "", "sure": True}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "enum", "items", "oneOf", "const", "default", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.dictionaries(st.sampled_from(["a", "type", "enum"]), JSON, max_size=3))
def test_no_schema_breaks_the_reader(schema, content):
    fault = flat_schema_fault(schema)
    if fault is not None:
        assert isinstance(fault, str)
        return
    completed = with_defaults(schema, content)
    assert content.items() <= completed.items()
    try:
        check_answer(schema, completed)
    except InvalidAnswer:
        return
    assert set(schema.get("required", [])) <= completed.keys() <= schema.get("properties", {}).keys()


@given(st.text(max_size=40))
def test_an_address_is_of_the_web_and_printable_or_it_is_none(text):
    for prefix in ("", "http://", "https://acme.example/"):
        if is_web_address(prefix + text):
            assert (prefix + text).lower().startswith(("http://", "https://"))
            assert (prefix + text).isprintable()


def test_addresses_of_an_error_are_read_as_data_and_stay_out_of_its_text():
    secret = "https://acme.example/connect?state=s3cret"
    data = {
        "elicitations": [
            {"mode": "url", "elicitationId": "e1", "url": secret, "message": "Connect"},
            {"mode": "url", "url": "javascript:1", "message": "no"},
            {"mode": "form", "url": secret},
            "odd",
        ]
    }
    raw = {"id": 1, "error": {"code": -32042, "message": "visit", "data": data}}
    error = classify_stream(decode_message(json.dumps(raw).encode())).to_error()
    assert isinstance(error, ElicitationRequired)
    assert (error.code, error.delivery, error.error_code) == ("elicitation-required", "answered", -32042)
    (address,) = error.elicitations
    assert (address.url, address.message, address.elicitation_id) == (secret, "Connect", "e1")
    assert "s3cret" not in f"{error} {error!r} {address!r}"
    assert read_url_elicitations(None) == read_url_elicitations({"elicitations": 1}) == ()


# ---------------------------------------------------------------------------- rounds


def test_questions_are_read_in_order():
    raw = b'{"b":{"method":"roots/list"},"a":{"method":"m","params":{"x":1}}}'
    assert read_input_requests(raw) == [("b", "roots/list", {}), ("a", "m", {"x": 1})]
    assert read_input_requests(None) == read_input_requests(b"{}") == []


@pytest.mark.parametrize("raw", [b"[]", b'{"a":1}', b'{"a":{}}', b'{"a":{"method":"m","params":[]}}', b"{"])
def test_questions_that_cannot_be_read(raw):
    with pytest.raises(MalformedMessage):
        read_input_requests(raw)


@given(st.text(), st.booleans(), st.none() | st.text())
def test_the_next_round_is_the_first_and_what_was_asked_for(name, responses, state):
    first = json.dumps({"name": name, "arguments": {"n": 1}}).encode()
    raw = None if state is None else json.dumps(state).encode()
    built = round_params(first, b'{"k":{}}' if responses else None, raw)
    expected = {"name": name, "arguments": {"n": 1}}
    if responses:
        expected["inputResponses"] = {"k": {}}
    if state is not None:
        expected["requestState"] = state
        assert raw in built
    assert json.loads(built) == expected
    assert built.endswith(first[1:])


def test_waits_double_to_a_quarter_of_a_second():
    assert [round_wait(number) for number in range(5)] == [0.05, 0.1, 0.2, 0.25, 0.25]
