"""An answer is put together from the pieces that it comes in."""

from __future__ import annotations

import json

import pytest

from afpool.client._answer_sink import AnswerSink


@pytest.mark.parametrize(
    "pieces",
    [[1 << 20], [2000, 1 << 20], [1, 2000, 3, 4, 1 << 20], [1] * 5000 + [1 << 20]],
    ids=["whole", "two", "small and large", "bytes"],
)
def test_a_json_answer_comes_in_pieces_of_any_size(pieces: list[int]) -> None:
    text = "".join(chr(97 + at % 26) for at in range(9000))
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"text": text}}).encode()
    sink = AnswerSink(1 << 20, lambda message: None, None, 7)
    sink.head(200, [(b"content-type", b"application/json")])
    at = 0
    for size in pieces:
        if at < len(body):
            sink.data(body[at : at + size])
            at += size
    answer = sink.answer()
    assert answer.message is not None
    assert json.loads(bytes(answer.message.result)) == {"text": text}
    assert (answer.size, answer.hint) == (len(body), body[:2048])
