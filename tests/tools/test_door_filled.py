"""Arguments that the host fills, at the door: refused by name before anything is fetched, on no record."""

from __future__ import annotations

from typing import Any

import pytest

from afpool import ScriptedCredentials, ToolContext, bearer
from afpool.tools import Hook, Replace, define_tool, from_credential, from_identity, host_filled
from tests.tools.door_kit import ALICE, SECRET, door, refused

SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "token": {"type": "string"}, "tenant_id": {"type": "string"}},
    "required": ["q", "token", "tenant_id"],
    "additionalProperties": True,
}
FILLS = {"token": from_credential("crm"), "tenant_id": from_identity("tenant")}


class Search:
    def __init__(self) -> None:
        self.calls: list[Any] = []
        tool = define_tool(execute=self._run, name="search", input_schema=SCHEMA)
        self.tool = host_filled(tool, FILLS)

    def _run(self, args: Any, ctx: ToolContext) -> Any:
        self.calls.append(dict(args))
        return {"echo": dict(args)}


async def test_values_are_filled_in_and_are_on_no_record() -> None:
    through, search = door(credentials=ScriptedCredentials([bearer(SECRET)])), Search()
    args = {"q": "x"}
    result = await through(search.tool, args)
    assert search.calls == [{"q": "x", "token": SECRET, "tenant_id": "acme"}]
    assert args == {"q": "x"}
    assert result.structured == {"echo": {"q": "x", "token": "[host-filled]", "tenant_id": "acme"}}
    assert through.events.of("tool_start")["args"] == {"q": "x"}
    # nothing acted on the arguments that the model sent
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms"}
    assert SECRET not in through.events.text


@pytest.mark.parametrize(
    "sent",
    [
        {"token": "guess"},
        {"token": None},
        {"Token": "guess"},
        {"to-ken": 1},
        {"token": 1, "tenantId": "other"},
    ],
)
async def test_a_value_for_one_is_refused_by_name_before_a_secret_is_fetched(sent: dict[str, Any]) -> None:
    provider = ScriptedCredentials([])
    through, search = door(credentials=provider), Search()
    result = await through(search.tool, {"q": "x", **sent})
    refused(result, "ERR_HOST_FILLED_ARGUMENT")
    assert "'token'" in result.text
    assert ("tenant_id" in result.text) == ("tenantId" in sent)
    assert "guess" not in result.text
    assert not provider.requests
    assert not search.calls
    assert through.events.of("tool_start")["args"] == {"q": "x", **dict.fromkeys(sent, "[host-filled]")}
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms", "error"}


async def test_a_hook_cannot_put_a_filled_argument_back() -> None:
    hook = Hook("h", before=lambda call: Replace({**call.args, "token": "guess"}))
    through, search = door(hooks=[hook], credentials=ScriptedCredentials([])), Search()
    result = await through(search.tool, {"q": "x"})
    refused(result, "ERR_HOST_FILLED_ARGUMENT")
    assert not search.calls
    assert "guess" not in through.events.text + result.text


async def test_a_value_that_is_not_there_refuses_by_name() -> None:
    through, search = door(credentials=ScriptedCredentials([bearer(SECRET)])), Search()
    result = await through(search.tool, {"q": "x"}, identity=None)
    refused(result, "ERR_HOST_FILLED_VALUE_MISSING")
    assert "'tenant_id'" in result.text
    assert SECRET not in result.text
    assert not search.calls
    refused(await door()(search.tool, {"q": "x"}, identity=ALICE), "credential-failed")
