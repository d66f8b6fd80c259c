"""Parts of the fake that have an input space: header values, JSON, log lines."""

from __future__ import annotations

import base64
import json
import string

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from afpool.testing._envelope import RpcError, check_routing_headers, decode_header, encode
from afpool.testing._ledger import Ledger, arrival_from_json, arrival_to_json, ledger_lines, parse_log

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(TEXT)
def test_an_encoded_header_decodes_to_its_text(text):
    coded = f"=?base64?{base64.b64encode(text.encode()).decode()}?="
    assert decode_header(coded) == text


@given(st.text(string.ascii_letters + string.digits + "-_=? ", max_size=20))
def test_a_plain_header_is_itself_and_a_wrong_code_is_nothing(text):
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        assert decode_header(text) == text
    assert decode_header(f"=?base64?{text}!?=") is None
    assert decode_header("=?base64?YQ?=") is None
    assert decode_header("=?base64?YR==?=") is None
    assert decode_header("=?base64?/w==?=") is None


@given(st.booleans() | st.integers() | st.text(string.ascii_letters, min_size=1) | st.none())
def test_a_parameter_header_says_what_the_body_says(value):
    schema = {"properties": {"p": {"x-mcp-header": "P"}}}
    spelled = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    headers = {"mcp-method": "tools/call", "mcp-name": "t"}
    params = {"name": "t", "arguments": {"p": value}}
    good = headers if value is None else headers | {"mcp-param-p": spelled}
    check_routing_headers(good, "tools/call", params, schema)
    bad = headers | {"mcp-param-p": spelled + "x"}
    with pytest.raises(RpcError, match="mcp-param-P"):
        check_routing_headers(bad, "tools/call", params, schema)


@given(JSON)
def test_json_is_written_as_it_is_read(value):
    assert json.loads(encode(value)) == value


def test_a_lone_surrogate_is_written_as_an_escape():
    assert json.loads(encode(["\ud800ä"])) == ["\ud800ä"]


@given(
    message=JSON | st.builds(lambda p: {"method": "tools/call", "id": 1, "params": p}, JSON), raw=st.binary()
)
def test_a_log_line_gives_the_arrival_back(message, raw):
    async def main() -> None:
        ledger = Ledger()
        for body in (encode(message), raw):
            try:
                decoded = json.loads(body)
            except ValueError:
                decoded = None
            headers = {"mcp-session-id": "s"}
            arrival = ledger.arrive(decoded, body, connection=3, http_method="POST", headers=headers)
            ledger.execute("t", {"a": 1}, "s", arrival)
            ledger.cancel(arrival.id if isinstance(arrival.id, (str, int)) else None)
            again = arrival_from_json(json.loads(json.dumps(arrival_to_json(arrival))))
            for name in (
                "number",
                "time",
                "body",
                "kind",
                "method",
                "id",
                "params",
                "session_id",
                "tool",
                "name",
            ):
                assert getattr(again, name) == getattr(arrival, name), name
        parsed = parse_log(line.decode() for line in ledger_lines(ledger))
        assert [each.body for each in parsed.arrivals] == [each.body for each in ledger.arrivals]
        assert [run.arrival.number for run in parsed.executed] == [0, 1]
        assert parsed.cancelled == ledger.cancelled

    trio.run(main)
