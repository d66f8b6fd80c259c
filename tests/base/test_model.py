"""What a result says for programs, whoever it came from."""

from __future__ import annotations

import pytest

from afpool import ProtocolError, StaleTools, ToolError, ToolResult

TEXT = b'{"content":[{"type":"text","text":"gone"}],"isError":true}'


def test_an_answer_says_what_the_server_said() -> None:
    result = ToolResult(b'{"content":[]}', "c")
    assert (result.code, result.delivery, result.is_error, result.error) == ("ok", "answered", False, None)
    assert result.raise_for_error() is result
    failed = ToolResult(TEXT, "c")
    assert (failed.code, failed.delivery, failed.is_error) == ("tool-error", "answered", True)
    with pytest.raises(ToolError, match="gone") as caught:
        failed.raise_for_error()
    assert caught.value.call_id == "c"


def test_a_refusal_that_was_made_a_result_keeps_its_word_and_its_error() -> None:
    error = StaleTools("the list changed; nothing was sent")
    result = ToolResult(TEXT, "c", code=error.code, delivery=error.delivery, error=error)
    assert (result.code, result.delivery, result.is_error) == ("stale-tools", "not-sent", True)
    assert (result.text, result.call_id) == ("gone", "c")
    with pytest.raises(StaleTools) as caught:
        result.raise_for_error()
    assert caught.value is error


@pytest.mark.parametrize(
    ("raw", "form", "failed"),
    [
        (b'{"content":[]}', True, False),
        (b'{"isError":true,"content":[1]}', True, True),
        (b'{"content":"text","isError":0}', False, False),
        (b'{"content":null}', False, False),
        (b'{"structuredContent":null}', True, False),
        (b'{"toolResult":"x"}', True, False),
        (b'{"content":["\\ud800"],"isError":1}', True, True),
        (b'{"structuredContent":"\\udfff"}', True, False),
        (b"{}", False, False),
        ('{"content":["ü"]}'.encode(), True, False),
    ],
)
def test_what_is_a_result_at_all(raw: bytes, form: bool, failed: bool) -> None:
    assert (ToolResult(raw, "c").has_form, ToolResult(raw, "c").is_error) == (form, failed)
    read = ToolResult(raw, "c")
    assert read.document is read.document
    assert (read.has_form, read.is_error) == (form, failed)


@pytest.mark.parametrize("raw", [b"[]", b"nope", b'{"content":["\xff"]}', b'{"content":[NaN]}', b""])
def test_what_is_no_json_object_says_so(raw: bytes) -> None:
    for what in ("has_form", "is_error", "document", "text"):
        with pytest.raises(ProtocolError, match=f"{len(raw)} bytes"):
            getattr(ToolResult(raw, "c"), what)
