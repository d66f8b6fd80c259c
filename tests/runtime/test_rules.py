"""What is done to a server's tools at every listing: filled, wanted, hidden; what is withheld, how long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from afpool import ScriptedCredentials, StaticCredentials, bearer
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import ServerRules
from afpool.tools import RedactionPolicy, binding_of, from_credential, from_identity
from tests.runtime.runtime_kit import ALICE, BOB, runtime, said, taking
from tests.tools.door_kit import SECRET, refused

TEXT = {"type": "string"}
FILLS = {"token": from_credential("crm"), "tenant_id": from_identity("tenant")}


def crm(**more: Any) -> list[Any]:
    return [
        taking("crm", "find", q=TEXT, token=TEXT, tenant_id=TEXT, **more),
        taking("crm", "whoami", token=TEXT),
        taking("crm", "ping"),
    ]


async def test_fills_are_applied_to_every_tool_that_declares_them() -> None:
    credentials = StaticCredentials({"crm": SECRET})
    rules = {"crm": ServerRules(fill=FILLS)}
    async with runtime({"crm": crm()}, rules=rules, credentials=credentials) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert list(toolset["find"].input_schema["properties"]) == ["q"]
        assert toolset["find"].input_schema["required"] == ["q"]
        assert toolset["whoami"].input_schema["properties"] == {}
        assert binding_of(toolset["find"]) is not None
        result = await toolset.call("find", {"q": "x"})
        assert json.loads(result.text)["args"] == {"q": "x", "token": "[host-filled]", "tenant_id": "acme"}
        (arrival,) = here.servers["crm"].arrivals("tools/call")
        assert arrival.params["arguments"] == {"q": "x", "token": SECRET, "tenant_id": "acme"}
        refused(await toolset.call("find", {"q": "x", "Token": None}), "ERR_HOST_FILLED_ARGUMENT")
        assert (await toolset.call("ping")).code == "ok"
        assert SECRET not in here.events.text


async def test_an_argument_that_no_tool_declares_is_a_mistake_at_the_first_listing() -> None:
    rules = {"crm": ServerRules(fill={"tokken": from_credential("crm")})}
    credentials = StaticCredentials({"crm": SECRET})
    async with runtime({"crm": crm()}, rules=rules, credentials=credentials) as here:
        for _ in range(2):
            with pytest.raises(TypeError, match="'crm' declares 'tokken'"):
                await here.runtime.toolset(ALICE)
        for call in (here.runtime.dispatch, lambda _, *what: here.runtime.run(ALICE).call(*what)):
            result = await call(ALICE, "find", {"q": "x", "token": "guess"})
            assert "declares 'tokken'" in refused(result, "plan-failed").message
        assert here.sent("crm") == 0


async def test_a_renamed_argument_withholds_the_server_until_somebody_has_looked() -> None:
    rules = {"crm": ServerRules(fill={"token": from_credential("crm")})}
    servers = {"crm": crm(), "web": [said("web", "fetch")]}
    async with runtime(servers, rules=rules, credentials=StaticCredentials({"crm": SECRET})) as here:
        assert "find" in await here.runtime.toolset(ALICE)
        here.servers["crm"].set_tools([taking("crm", "find", q=TEXT, api_token=TEXT)], notify=False)
        toolset = await here.runtime.toolset(ALICE, refresh=True)
        assert list(toolset) == ["fetch"]
        assert toolset.withheld["crm"].startswith("fill-undeclared: no tool declares 'token'")
        result = await here.runtime.dispatch(ALICE, "find", {"q": "x", "api_token": "guess"})
        assert "crm (fill-undeclared)" in refused(result, "unknown-tool").message
        here.runtime.acknowledge("crm", "token")
        toolset = await here.runtime.toolset(ALICE)
        assert set(toolset) == {"find", "fetch"}
        assert toolset.withheld == {}
        with pytest.raises(LookupError, match="'nope'"):
            here.runtime.acknowledge("nope")
        with pytest.raises(ValueError, match="'other'"):
            here.runtime.acknowledge("crm", "other")


async def test_a_tool_that_an_argument_cannot_be_taken_out_of_costs_itself() -> None:
    schema = {"properties": {"token": TEXT}, "minProperties": 1, "not": {"required": ["token"]}}
    odd = said("crm", "odd", inputSchema={"type": "object", **schema})
    rules = {"crm": ServerRules(fill={"token": from_credential("crm")})}
    credentials = StaticCredentials({"crm": SECRET})
    async with runtime({"crm": [odd, *crm()]}, rules=rules, credentials=credentials) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert "odd" not in toolset
        assert "find" in toolset
        assert "crm/odd" in toolset.quarantined


async def test_wanted_artifacts_are_passed_by_reference() -> None:
    store = MemoryArtifacts()
    rows = taking("crm", "load", data={"type": "array"}, q=TEXT)
    rules = {"crm": ServerRules(wants={"data": "dataset/rows"})}
    async with runtime({"crm": [rows, taking("crm", "ping")]}, rules=rules, artifacts=store) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert toolset["load"].wants == {"data": "dataset/rows"}
        assert toolset["load"].input_schema["properties"]["data"]["type"] == "string"
        assert toolset["ping"].wants is None
        new = NewArtifact(kind="dataset/rows", media_type="application/json", data=[1, 2])
        ref = (await store.put(ALICE, new)).ref
        result = await toolset.call("load", {"data": ref, "q": "x"})
        assert json.loads(result.text)["args"] == {"data": [1, 2], "q": "x"}
        assert here.events.of("tool_start")["args"] == {"data": ref, "q": "x"}
        refused(await here.runtime.dispatch(BOB, "load", {"data": ref, "q": "x"}), "wants-refused")
        assert here.sent("crm") == 1


async def test_a_wanted_argument_that_no_tool_declares_is_a_mistake_at_the_first_listing() -> None:
    rules = {"crm": ServerRules(wants={"dataa": "dataset/rows"})}
    async with runtime({"crm": crm()}, rules=rules, artifacts=MemoryArtifacts()) as here:
        with pytest.raises(TypeError, match="'crm' declares 'dataa'"):
            await here.runtime.toolset(ALICE)


async def test_what_is_wanted_of_a_tool_that_cannot_be_offered_is_no_mistake() -> None:
    schema = {"properties": {"token": TEXT, "data": TEXT}, "not": {"required": ["token"]}}
    odd = said("crm", "odd", inputSchema={"type": "object", "minProperties": 1, **schema})
    rules = {"crm": ServerRules(fill={"token": from_credential("crm")}, wants={"data": "dataset/rows"})}
    credentials = StaticCredentials({"crm": SECRET})
    servers = {"crm": [odd, taking("crm", "ping")], "wiki": [taking("wiki", "read", q=TEXT)]}
    store = MemoryArtifacts()
    async with runtime(servers, rules=rules, credentials=credentials, artifacts=store) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert sorted(toolset) == ["ping", "read"]
        assert list(toolset.quarantined) == ["crm/odd"]
        assert (await here.runtime.dispatch(ALICE, "read", {"q": "x"})).code == "ok"


async def test_recorded_arguments_are_redacted() -> None:
    rules = {"crm": ServerRules(redact=RedactionPolicy(keys=["q"]))}
    async with runtime({"crm": [taking("crm", "find", q=TEXT)]}, rules=rules) as here:
        result = await here.runtime.dispatch(ALICE, "find", {"q": "private words"})
        assert json.loads(result.text)["args"] == {"q": "private words"}
        assert here.events.of("tool_start")["args"] == {"q": "REDACTED"}
        assert here.events.of("tool_end")["changed_arg_keys"] == ["q"]


async def test_an_argument_is_filled_or_wanted_and_not_both() -> None:
    with pytest.raises(TypeError, match="'token' cannot be filled"):
        ServerRules(fill={"token": from_credential("crm")}, wants={"token": "k"})


async def test_everything_at_once_on_a_qualified_name() -> None:
    store = MemoryArtifacts()
    rules = {
        "crm": ServerRules(
            fill={"token": from_credential("crm")}, wants={"data": "k"}, redact=RedactionPolicy(keys=["q"])
        )
    }
    servers = {"crm": [taking("crm", "find", q=TEXT, token=TEXT, data={})], "web": [said("web", "find")]}
    provider = ScriptedCredentials([bearer(SECRET)])
    async with runtime(servers, rules=rules, artifacts=store, credentials=provider) as here:
        new = NewArtifact(kind="k", media_type="text/plain", data="the data")
        ref = (await store.put(ALICE, new)).ref
        result = await here.runtime.dispatch(ALICE, "crm__find", {"q": "words", "data": ref})
        assert json.loads(result.text)["args"] == {"q": "words", "data": "the data", "token": "[host-filled]"}
        assert here.events.of("tool_start") == {
            "tool_name": "crm__find", "call_id": result.call_id, "args": {"q": "REDACTED", "data": ref},
        }  # fmt: skip
        assert SECRET not in here.events.text
