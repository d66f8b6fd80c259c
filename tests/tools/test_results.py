"""Results: made of what a tool returned, read for a model and for a program, held to limits."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import uuid
from typing import Any

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from afpool import AfpoolError, InvalidOutput, ProtocolError, StaleTools, ToolError, ToolResult
from afpool.tools import (
    ResultCeiling,
    ResultLimits,
    content_result,
    define_tool,
    read_structured,
    read_text,
    with_result_ceiling,
)
from afpool.tools._limits import cut_result, limited_for_record, refused_by_ceiling
from afpool.tools._reading import error_text, reading_size
from afpool.tools._results import error_result, is_sound, json_of, text_result, value_result


def result(document: Any) -> ToolResult:
    return ToolResult(json.dumps(document).encode(), "c")


# ---------------------------------------------------------------------------- making


@dataclasses.dataclass
class Point:
    x: int


@attrs.frozen
class Frozen:
    y: str


class Struct(msgspec.Struct):
    z: float


class Mode(enum.Enum):
    ON = "on"


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("text", "text", None),
        ("", "", None),
        (None, "", None),
        (3, "3", None),
        (True, "true", None),
        ([1, "a"], '[1,"a"]', None),
        ({"a": [None]}, '{"a":[null]}', {"a": [None]}),
        ({}, "{}", {}),
        (Point(1), '{"x":1}', {"x": 1}),
        ([Point(1)], '[{"x":1}]', None),
        ({"p": (Frozen("a"), Struct(0.5), Mode.ON)}, '{"p":[{"y":"a"},{"z":0.5},"on"]}', ...),
        (dt.date(2024, 5, 6), '"2024-05-06"', None),
        ({1: uuid.UUID(int=1)}, '{"1":"00000000-0000-0000-0000-000000000001"}', ...),
        ("a\ud800b", "a�b", None),
        ({"k\ud800": ["\udfff"]}, '{"k�":["�"]}', ...),
        ("😀", "😀", None),
        (type("Str", (str,), {})("sub"), "sub", None),
    ],
)
def test_a_value_becomes_text_and_an_object_is_structured(value: Any, text: str, structured: Any) -> None:
    made = value_result(value, "c")
    assert (made.text, read_text(made), made.call_id) == (text, text, "c")
    assert (made.code, made.delivery, made.is_error) == ("ok", "answered", False)
    assert made.structured == (json.loads(text) if structured is ... else structured)
    assert json.loads(made.raw) == made.document


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), r"\$: object"), ({"a": [1, object()]}, r"\$\.a\[1\]: object"),
        (float("nan"), "not finite"),
        ({"a": float("inf")}, r"\$\.a: a float that is not finite"), (1j, "complex"),
    ],
)  # fmt: skip
def test_what_json_cannot_hold_is_named_by_place_and_type(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        value_result(value, "c")


def test_a_number_that_python_does_not_print_is_refused() -> None:
    with pytest.raises(TypeError, match="digits"):
        value_result(10**5000, "c")


def test_a_cycle_is_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["again"] = cycle
    with pytest.raises(TypeError, match="not JSON"):
        value_result(cycle, "c")


def test_a_result_stays_what_it_is_and_gets_the_calls_id() -> None:
    made = text_result("x", "")
    stamped = value_result(made, "c")
    assert (stamped.raw, stamped.call_id) == (made.raw, "c")
    assert value_result(stamped, "c") is stamped
    error = StaleTools("gone")
    again = value_result(error_result(error, "inner"), "outer")
    assert (again.code, again.delivery, again.error, again.call_id) == (
        "stale-tools", "not-sent", error, "outer",
    )  # fmt: skip
    assert error.call_id == "inner"


def test_a_refusal_is_a_result_with_its_message() -> None:
    error = StaleTools("the list changed; nothing was sent")
    made = error_result(error, "c")
    assert made.document == {
        "content": [{"type": "text", "text": "the list changed; nothing was sent"}],
        "isError": True,
    }
    assert (made.code, made.delivery, made.error, error.call_id) == ("stale-tools", "not-sent", error, "c")


def test_content_of_ones_own() -> None:
    made = content_result([{"type": "text", "text": "a"}], structured={"a": 1}, is_error=True)
    assert made.document == {
        "content": [{"type": "text", "text": "a"}],
        "structuredContent": {"a": 1},
        "isError": True,
    }
    with pytest.raises(TypeError, match="not JSON"):
        content_result([{"type": "text", "text": object()}])


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=10,
    )
)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert json.loads(json_of(value)) == value


# ---------------------------------------------------------------------------- reading


def blocks(*content: Any, **more: Any) -> dict[str, Any]:
    return {"content": list(content), **more}


def resource(**facts: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": facts}


NO_RESULT = "The tool answered something that is no tool result: an object with"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (blocks(), ""),
        (blocks({"type": "text", "text": "a"}, {"type": "text", "text": ""}), "a\n"),
        (
            blocks({"type": "image", "data": "AAAA" * 9 + "AA==", "mimeType": "image/png"}),
            "[image: image/png, 28 bytes]",
        ),
        (blocks({"type": "audio", "data": "AAA="}), "[audio: 2 bytes]"),
        (blocks({"type": "image"}), "[image: ]"),
        (
            blocks(resource(uri="file:///a", mimeType="text/x", text="body")),
            "[resource: file:///a (text/x)]\nbody",
        ),
        (blocks(resource(uri="file:///a", blob="AAAA")), "[resource: file:///a (3 bytes)]"),
        (blocks(resource()), "[resource: without a URI]"),
        (blocks({"type": "resource", "resource": "secret"}), "[resource]"),
        (
            blocks({"type": "resource_link", "uri": "x://y", "name": "n", "size": 5}),
            "[resource link: x://y (n, 5 bytes)]",
        ),
        (blocks({"type": "resource_link", "uri": 3, "size": True}), "[resource link: without a URI]"),
        (
            blocks({"type": "new-kind", "secret": 1}, {"type": 3}, "secret", None),
            "[new-kind]\n[unknown block]\n[unreadable block]\n[unreadable block]",
        ),
        (blocks({"type": "text", "text": 3}), "[text]"),
        ({"toolResult": "legacy"}, "legacy"),
        (blocks(toolResult={"a": 1}), '{"a":1}'),
        ({"toolResult": None}, "null"),
        (blocks({"type": "text", "text": "wins"}, toolResult="legacy"), "wins"),
        (blocks(structuredContent={"a": "ü"}), '{"a":"ü"}'),
        ({"secret": "value", "other": 2}, f"{NO_RESULT} the members secret, other."),
        ({}, f"{NO_RESULT}out members."),
        ({"content": "secret"}, f"{NO_RESULT} the members content."),
        (
            {f"k{n}": n for n in range(11)},
            f"{NO_RESULT} the members k0, k1, k2, k3, k4, k5, k6, k7 and 3 more.",
        ),
        ({"x" * 1000: 1}, f"{NO_RESULT} the members {'x' * 79}…."),
    ],
)
def test_every_form_of_a_result_reads_as_text(document: Any, text: str) -> None:
    made = result(document)
    assert read_text(made) == text
    assert made.has_form == (not text.startswith("The tool answered something"))


def test_words_of_any_length_are_cut() -> None:
    document = blocks(
        {"type": "x" * 10_000},
        {"type": "image", "mimeType": "y" * 10_000},
        {"type": "resource_link", "uri": "u" * 10_000, "title": "t" * 10_000},
    )
    assert len(read_text(result(document))) < 3_000


def test_what_is_no_json_is_an_error_of_the_protocol() -> None:
    for raw in (b"[]", b"not json", b'{"a": NaN}', b"[" * 5000):
        with pytest.raises(ProtocolError):
            read_text(ToolResult(raw, "c"))


def test_the_size_is_what_a_model_is_given() -> None:
    image = {"type": "image", "data": "A" * 500, "mimeType": "a/b"}
    blob = {"type": "resource", "resource": {"uri": "x:", "blob": "B" * 70}}
    made = result({"content": [{"type": "text", "text": "abc"}, image, blob]})
    assert reading_size(made) == len(read_text(made)) + 570


@pytest.mark.parametrize(
    ("document", "or_json", "says"),
    [
        ({"content": []}, False, "no structured content"),
        ({"content": [{"type": "text", "text": '{"a": 1}'}]}, False, "no structured content"),
        ({"content": [{"type": "text", "text": "[1]"}]}, True, "an array of 1"),
        ({"content": [{"type": "text", "text": "nope"}]}, True, "null"),
        ({"content": [{"type": "note", "text": "{}"}]}, True, "null"),
        ({"content": [{"type": "text", "text": "{}"}] * 2}, True, "null"),
        ({"structuredContent": None, "content": [{"type": "text", "text": "{}"}]}, True, "null"),
        ({"structuredContent": "secret"}, True, "a string of 6 characters"),
        ({"structuredContent": True}, True, "a boolean"),
        ({"structuredContent": 3.5}, True, "a number"),
    ],
)
def test_structured_content_that_is_none_is_refused_without_data(
    document: Any, or_json: bool, says: str
) -> None:
    made = result(document)
    with pytest.raises(InvalidOutput, match=says) as caught:
        read_structured(made, or_json=or_json)
    assert "secret" not in str(caught.value)
    assert caught.value.result is made
    assert caught.value.call_id == "c"


def test_structured_content() -> None:
    shared = {"x": [1]}
    assert read_structured(result({"structuredContent": {"a": shared, "b": shared}})) == {
        "a": shared,
        "b": shared,
    }
    text = {"content": [{"type": "text", "text": ' {"a": 1}'}]}
    assert read_structured(result(text), or_json=True) == {"a": 1}
    both = {**text, "structuredContent": {"b": 2}}
    assert read_structured(result(both), or_json=True) == {"b": 2}


@pytest.mark.parametrize(("levels", "fine"), [(64, True), (65, False)])
def test_structured_content_is_bounded_in_depth(levels: int, fine: bool) -> None:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    made = result({"structuredContent": value})
    if fine:
        assert read_structured(made) == value
    else:
        with pytest.raises(InvalidOutput, match="nested deeper"):
            read_structured(made)


def test_structured_content_is_bounded_in_nodes() -> None:
    with pytest.raises(InvalidOutput, match="over 1000000"):
        read_structured(result({"structuredContent": {"a": [0] * 1_000_001}}))


def test_a_failed_tool_is_heard_before_anything_is_decoded() -> None:
    made = result(
        {"isError": True, "structuredContent": {"a": 1}, "content": [{"type": "text", "text": "no"}]}
    )
    with pytest.raises(ToolError, match="no") as caught:
        read_structured(made)
    assert caught.value.call_id == "c"
    with pytest.raises(StaleTools):
        read_structured(error_result(StaleTools("gone"), "c"))


TEXT = {"type": "text", "text": "word"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([TEXT, TEXT], "word\nword"),
        ([TEXT] * 32, "\n".join(["word"] * 32)),
        ([TEXT] * 33, None),
        ([TEXT, {"type": "image", "data": "x"}], None),
        ([{"type": "text", "text": "x" * 8_192}], "x" * 8_192),
        ([{"type": "text", "text": "x" * 8_193}], None),
        ([{"type": "text", "text": " \n"}], None),
        ([], None),
        ("nope", None),
    ],
)
def test_the_words_of_a_failure_are_its_own_and_bounded(content: Any, text: str | None) -> None:
    fallback = "The tool says that it failed; what else it answered was not read."
    assert error_text(result({"isError": True, "content": content})) == (fallback if text is None else text)
    assert error_text(ToolResult(b"nope", "c")) == fallback


@pytest.mark.parametrize(
    ("raw", "sound"),
    [
        (b'{"content":[]}', True),
        (b'{"toolResult":1}', True),
        (b'{"anything":1}', False),
        (b'["content"]', False),
        (b"content", False),
        ('{"content":[]}', False),
    ],
)
def test_a_result_made_by_hand_is_one_that_a_tool_could_have_given(raw: Any, sound: bool) -> None:
    assert is_sound(ToolResult(raw, "c")) is sound


# ---------------------------------------------------------------------------- limits


def test_a_ceiling_says_how_large_it_was_and_what_makes_it_smaller() -> None:
    made = refused_by_ceiling("find", ResultCeiling(10, ("limit", "since")), 5000, "c")
    assert (made.code, made.delivery, made.is_error) == ("too-large", "answered", True)
    assert made.text == (
        "The tool find has run, and its result of 5000 characters is larger than the 10 that it may have. "
        "Nothing of it was returned. Narrow it with limit, since."
    )
    assert "Ask for less." in refused_by_ceiling("find", ResultCeiling(10), 5000, "c").text


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=150, max_size=2000), st.integers(1, 400))
def test_a_text_that_was_cut_says_so_and_fits(text: str, limit: int) -> None:
    made = cut_result(text_result(text, "c"), text, limit)
    marker = json.loads(made.text)
    assert marker["truncated"] is True
    assert str(len(text)) in marker["reason"]
    assert text.startswith(marker.get("head", ""))
    bare = len(json.dumps({key: value for key, value in marker.items() if key != "head"}, ensure_ascii=False))
    assert len(made.text) <= max(limit, bare)
    if limit > bare + 40:
        assert marker["head"]


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
def test_a_text_that_was_cut_fills_what_it_may(letter: str) -> None:
    text = letter * 900
    for limit in (150, 200, 333):
        made = cut_result(text_result(text, "c"), text, limit)
        assert limit - 4 <= len(made.text) <= limit
        assert letter in made.text


def test_a_ceiling_holds_for_the_record_too_where_nothing_is_cut() -> None:
    tool = with_result_ceiling(define_tool(execute=lambda args, ctx: None, name="find"), ResultCeiling(9))
    small, large = text_result("y" * 9, "c"), text_result("z" * 10, "c")
    assert limited_for_record(small, tool, ResultLimits()) is small
    assert limited_for_record(large, tool, ResultLimits()).code == "too-large"


def test_cutting_keeps_what_the_result_is() -> None:
    error = StaleTools("x" * 900)
    for before in (
        error_result(error, "c"),
        text_result("y" * 900, "c", is_error=True),
        text_result("z" * 900, "c"),
    ):
        after = cut_result(before, before.text, 200)
        assert (after.code, after.delivery, after.is_error, after.error, after.call_id) == (
            before.code, before.delivery, before.is_error, before.error, "c",
        )  # fmt: skip


@pytest.mark.parametrize("name", ["max_inline_chars", "max_chars"])
@pytest.mark.parametrize("value", [0, -3, 2.5, "9", True])
def test_limits_are_positive_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        ResultLimits(**{name: value})


def test_every_error_can_be_a_result() -> None:
    for cls in AfpoolError.__subclasses__():
        if cls.__module__ != AfpoolError.__module__:
            continue
        assert error_result(cls("why"), "c").text == "why"
