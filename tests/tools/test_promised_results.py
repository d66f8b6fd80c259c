"""What stands in the place of a large result, word for word; what is never placed; what a text may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from afpool import InvalidOutput, ProtocolError, ToolError, ToolResult
from afpool.artifacts import MemoryArtifacts
from afpool.tools import Deny, Hook, ResultLimits, content_result, read_structured
from afpool.tools import _reading as results_module
from tests.tools.door_kit import ALICE, Ran, door, refused

LONG = "naïve 漢字 " * 5


@pytest.mark.parametrize(
    ("answer", "media", "stored"),
    [(LONG, "text/plain", LONG), ({"rows": [LONG]}, "application/json", {"rows": [LONG]})],
)
async def test_a_ticket_reads_so_and_what_it_stands_for_is_stored_whole(
    answer: Any, media: str, stored: Any
) -> None:
    store = MemoryArtifacts()
    through = door(store=store, limits=ResultLimits(max_inline_chars=10))
    whole = await door()(Ran(answer).tool)
    result = await through(Ran(answer).tool)
    (meta,) = (await store.list(ALICE)).items
    ticket = {
        "placed": True, "ref": meta.ref, "kind": "tool-result/work", "media_type": media, "bytes": meta.bytes,
        "reason": f"the result has {len(whole.text)} characters and at most 10 are shown here; it is stored "
        "whole under this ref: pass the ref to a tool that takes one of this kind",
    }  # fmt: skip
    # the same on every channel: what the model reads, what a program reads, what is recorded
    assert result.text == json.dumps(ticket, ensure_ascii=False, separators=(",", ":"))
    assert result.structured == ticket
    assert through.events.of("tool_end")["result"] == result.document
    assert (meta.label, meta.media_type) == ("work result", media)
    assert meta.bytes == len(whole.text.encode())
    found = await store.get(ALICE, meta.ref)
    assert found is not None
    assert found.data == stored


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_denial_is_never_placed(moment: str) -> None:
    store = MemoryArtifacts()
    said = Hook("h", **{moment: lambda *what: Deny("x" * 200)})
    through = door(store=store, hooks=[said], limits=ResultLimits(max_inline_chars=10))
    result = await through(Ran(LONG).tool)
    refused(result, "denied", "not-sent" if moment == "before" else "answered")
    assert result.text.startswith("x" * 200)
    assert (await store.list(ALICE)).items == ()


# ---------------------------------------------------------------------------- one text that is JSON


def one_text(text: str) -> ToolResult:
    return content_result([{"type": "text", "text": text}], call_id="c")


def test_one_text_is_read_as_json_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert results_module.MAX_TEXT == 16_000_000
    monkeypatch.setattr(results_module, "MAX_TEXT", 20)
    within = '{"a": "secret"}'.ljust(20)
    assert read_structured(one_text(within), or_json=True) == {"a": "secret"}
    with pytest.raises(InvalidOutput) as caught:
        read_structured(one_text(within + " "), or_json=True)
    assert "secret" not in str(caught.value)


def test_a_number_that_json_does_not_have_makes_a_result_unreadable_and_is_not_quoted() -> None:
    for number in ("NaN", "Infinity", "1e999"):
        raw = f'{{"structuredContent":{{"secret":{number}}},"content":[]}}'.encode()
        with pytest.raises(ProtocolError) as caught:
            read_structured(ToolResult(raw, "c"))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "block", [{"type": "image", "data": "c2VjcmV0"}, {"type": "resource", "resource": {}}]
)
def test_a_failure_that_says_more_than_text_is_told_in_our_words(block: Any) -> None:
    answer = content_result([{"type": "text", "text": "secret"}, block], is_error=True, structured={"a": 1})
    with pytest.raises(ToolError) as caught:
        read_structured(answer)
    assert "secret" not in str(caught.value)
    assert "was not read" in str(caught.value)
