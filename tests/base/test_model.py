"""What a result says for programs, whoever it came from."""

from __future__ import annotations

import pytest

from afpool import StaleTools, ToolError, ToolResult

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
