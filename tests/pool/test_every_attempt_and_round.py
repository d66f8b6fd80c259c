"""What a request carries beside its parameters is the same on every attempt and in every round."""

from __future__ import annotations

import pytest

from afpool.testing import Result, Status, input_required, input_tool
from tests.pool.bound_kit import KEY, NOTES, furnish
from tests.pool.kit import ALICE, quiet, world
from tests.pool.test_server_requests import Desk
from tests.pool.test_server_requests_rounds import FORM_REQUEST

STATELESS = {"era": "stateless"}
LEVEL = "io.modelcontextprotocol/logLevel"
NAME = "wetter für bob"
ENCODED = "=?base64?d2V0dGVyIGbDvHIgYm9i?="
SCHEMA = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


def ids(arrivals):
    return [arrival.id for arrival in arrivals]


def tokens(arrivals):
    return [arrival.params["_meta"].get("progressToken") for arrival in arrivals]


async def test_a_tool_call():
    desk = Desk()
    tool = input_tool(NAME, {"a": FORM_REQUEST}, {"b": FORM_REQUEST}, inputSchema=SCHEMA)
    options = {"server": {"call_id_key": KEY}, "pool": {"on_log": lambda *_: None}}
    async with world(tools=[tool], http=STATELESS, credential=True, requests=desk.offers(), **options) as w:
        furnish(w.server.offers)
        bound = await w.tool(name=NAME)
        server = await w.pool.bind(ALICE, "files")
        await server.set_log_level("warning", identity=ALICE)
        seen = []

        def second(arrival):
            seen.append(arrival)
            return len(seen) == 2  # the second round meets a 401 first

        w.server.on("tools/call", Status(401), when=second)
        await bound.call({"region": "süd"}, identity=ALICE, call_id="c1", on_progress=lambda progress: None)
        calls = w.server.arrivals("tools/call")
        assert len(calls) == 4
        assert len(set(ids(calls))) == 4
        assert tokens(calls) == ids(calls)
        for call in calls:
            meta = call.params["_meta"]
            assert (meta[KEY], meta[LEVEL]) == ("c1", "warning")
            assert call.params["arguments"] == {"region": "süd"}
            assert call.headers["mcp-name"] == ENCODED
            assert call.headers["mcp-method"] == "tools/call"
            assert call.headers["mcp-param-region"] == "=?base64?c8O8ZA==?="
            assert call.headers["authorization"] == "Bearer token"
        assert ["inputResponses" in call.params for call in calls] == [False, True, True, True]
        assert calls[1].params["inputResponses"] == calls[2].params["inputResponses"]
        assert calls[1].params["requestState"] == calls[2].params["requestState"]
        assert w.server.violations == []
        quiet(w.pool)


@pytest.mark.parametrize("told", [None, print])
async def test_what_is_read_of_a_bound_server(told):
    desk = Desk()
    async with world(http=STATELESS, server={"call_id_key": KEY}, requests=desk.offers()) as w:
        furnish(w.server.offers)
        server = await w.pool.bind(ALICE, "files")
        w.server.on("resources/read", Result(input_required({"a": FORM_REQUEST}, "state")), times=1)
        result = await server.read_resource(NOTES, identity=ALICE, call_id="c1", on_progress=told)
        assert b"first" in result.raw
        first, second = w.server.arrivals("resources/read")
        for arrival in (first, second):
            assert arrival.params["_meta"][KEY] == "c1"
            assert arrival.params["uri"] == NOTES
            assert arrival.headers["mcp-name"] == NOTES
        assert second.params["requestState"] == "state"
        assert second.params["inputResponses"]["a"]["action"] == "accept"
        assert tokens([first, second]) == ([None, None] if told is None else [first.id, second.id])
        assert w.server.violations == []
        quiet(w.pool)


async def test_in_the_handshake_era_the_call_id_goes_out_with_each_attempt():
    async with world(credential=True, server={"call_id_key": KEY}) as w:
        tool = await w.tool()
        w.server.on("tools/call", Status(401), times=1)
        await tool.call({}, identity=ALICE, call_id="c1", on_progress=lambda progress: None)
        calls = w.server.arrivals("tools/call")
        assert [call.params["_meta"][KEY] for call in calls] == ["c1", "c1"]
        assert tokens(calls) == ids(calls)
        assert "mcp-name" not in calls[0].headers
