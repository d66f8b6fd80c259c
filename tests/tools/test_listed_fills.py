"""Fills at every listing: a renamed secret argument is never shown; what is withheld has a reason."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from afpool import Seams
from afpool.testing import FakeTool
from afpool.tools._fills import from_credential, from_identity
from afpool.tools._host_filled import host_fills_of
from afpool.tools._listed_fills import FILL_UNDECLARED, STEP, ListedFills
from tests.pool.kit import ALICE, world
from tests.tools.test_host_filled import Search
from tests.turns import turns_of_another

FILLS = {"token": from_credential("crm"), "tenantId": from_identity("tenant")}


def tool(name: str, *arguments: str, **schema: Any) -> Search:
    properties = {argument: {"type": "string"} for argument in arguments}
    return Search({"type": "object", "properties": properties, **schema}, name=name)


def test_each_tool_of_a_listing_takes_what_it_declares() -> None:
    fills = ListedFills("crm", FILLS)
    plain = tool("plain", "q")
    listing = fills.apply([tool("a", "q", "token"), plain, tool("b", "tenantId", "token")])
    assert [one.name for one in listing.tools] == ["a", "plain", "b"]
    assert listing.tools[1] is plain
    assert (dict(listing.withheld), listing.undeclared) == ({}, ())
    told = host_fills_of(listing.tools[2])
    assert told is not None
    assert (dict(told.identity), told.credential) == ({"tenantId": "tenant"}, ("token",))


def test_at_the_first_listing_an_undeclared_argument_is_a_mistake() -> None:
    fills = ListedFills("crm", {**FILLS, "tokne": from_credential("crm")})
    for _ in range(2):
        with pytest.raises(TypeError, match=r"no tool of the server 'crm' declares 'tokne'"):
            fills.apply([tool("a", "token", "tenantId")])
    with pytest.raises(TypeError, match="declares 'token' and 'tenantId' and 'tokne'"):
        fills.apply([])
    with pytest.raises(TypeError, match="from_credential"):
        ListedFills("crm", {"token": "crm"})  # type: ignore[dict-item]


def test_at_the_first_listing_a_fill_that_does_not_fit_is_a_mistake() -> None:
    fills = ListedFills("crm", {"token": from_credential()})
    with pytest.raises(TypeError, match="has to name the service"):
        fills.apply([tool("a", "token")])


def test_a_renamed_argument_withholds_the_server_until_its_host_has_looked() -> None:
    fills = ListedFills("crm", FILLS)
    fills.apply([tool("a", "token", "tenantId"), tool("b", "q")])
    renamed = [tool("a", "auth_token", "tenantId"), tool("b", "q")]
    for _ in range(2):
        listing = fills.apply(renamed)
        assert listing.tools == ()
        assert listing.undeclared == ("token",)
        assert dict(listing.withheld) == dict.fromkeys(
            ("a", "b"), f"{FILL_UNDECLARED}: no tool of the server declares 'token' any more"
        )
    with pytest.raises(ValueError, match="does not fill 'auth_token'"):
        fills.acknowledge("auth_token")
    fills.acknowledge("token")
    listing = fills.apply(renamed)
    assert [one.name for one in listing.tools] == ["a", "b"]
    assert "auth_token" in listing.tools[0].input_schema["properties"]


def test_what_was_acknowledged_holds_until_the_argument_is_back() -> None:
    fills = ListedFills("crm", FILLS)
    fills.apply([tool("a", "token", "tenantId")])
    fills.acknowledge()
    assert [one.name for one in fills.apply([]).tools] == []
    assert fills.apply([tool("a", "q")]).undeclared == ()
    assert host_fills_of(fills.apply([tool("a", "token", "tenantId")]).tools[0]) is not None
    assert fills.apply([tool("a", "tenantId")]).undeclared == ("token",)


def test_one_tool_that_lost_it_is_withheld_alone() -> None:
    fills = ListedFills("crm", FILLS)
    fills.apply([tool("a", "token", "tenantId"), tool("b", "token")])
    listing = fills.apply([tool("a", "token", "tenantId"), tool("b", "auth_token"), tool("c", "q")])
    assert [one.name for one in listing.tools] == ["a", "c"]
    assert dict(listing.withheld) == {"b": f"{FILL_UNDECLARED}: it does not declare 'token' any more"}
    fills.acknowledge("token")
    listing = fills.apply([tool("a", "token", "tenantId"), tool("b", "auth_token")])
    assert [one.name for one in listing.tools] == ["a", "b"]
    lost = fills.apply([tool("a", "tenantId"), tool("b", "token")])
    assert dict(lost.withheld) == {"a": f"{FILL_UNDECLARED}: it does not declare 'token' any more"}


def test_a_tool_that_cannot_be_cut_is_withheld_and_the_others_are_offered() -> None:
    fills = ListedFills("crm", {"token": from_credential("crm")})
    broken = tool("broken", "token", patternProperties={"(": {}})
    listing = fills.apply([broken, tool("a", "token")])
    assert [one.name for one in listing.tools] == ["a"]
    assert listing.withheld["broken"].startswith("cannot-hide-argument: a pattern")
    only = ListedFills("crm", {"token": from_credential("crm")}).apply([broken])
    assert only.tools == ()
    assert only.undeclared == ()


def test_a_fill_that_does_not_fit_a_later_tool_withholds_that_one() -> None:
    from afpool import CredentialRequirement

    fills = ListedFills("crm", {"token": from_credential("crm")})
    fills.apply([tool("a", "token")])
    other = Search({"properties": {"token": {}}}, name="b", needs=CredentialRequirement("mail"))
    listing = fills.apply([tool("a", "token"), other])
    assert [one.name for one in listing.tools] == ["a"]
    assert listing.withheld["b"].startswith("fill-refused: ")


def test_without_fills_everything_is_offered_as_it_is() -> None:
    one = tool("a", "token")
    listing = ListedFills("crm", {}).apply([one])
    assert listing.tools == (one,)
    assert dict(listing.withheld) == {}


async def test_large_schemas_are_cut_in_a_thread_and_small_ones_are_not() -> None:
    properties: dict[str, Any] = {f"p{number}": {"type": "string"} for number in range(4000)}
    large = {"type": "object", "properties": {**properties, "token": {"type": "string"}}}
    small = {"type": "object", "properties": {"token": {"type": "string"}}}
    threads: list[Any] = []

    async def in_thread(fn: Any, limiter: Any) -> Any:
        threads.append(limiter)
        return await trio.to_thread.run_sync(fn, limiter=limiter)

    seams = Seams(in_thread=in_thread)
    limiter = trio.CapacityLimiter(1)
    fills = ListedFills("files", {"token": from_credential("crm")})
    for schema, times in ((small, 0), (large, 1)):
        async with world(tools=[FakeTool("a", lambda *_: "x", input_schema=schema)]) as here:
            bound = await here.tool(ALICE, "a")
            listing = await fills.apply_in_thread([bound], seams, limiter)
            assert threads == [limiter] * times
            assert "token" not in listing.tools[0].input_schema["properties"]
            await fills.apply_in_thread([await here.tool(ALICE, "a")], seams, limiter)
            assert threads == [limiter] * times, "once for a definition"


async def test_a_long_list_lets_others_go_first() -> None:
    fills = ListedFills("crm", {"token": from_credential("crm")})
    tools = [tool(f"t{number}", "q", *(["token"] if number % 2 else [])) for number in range(STEP * 6)]
    async with turns_of_another() as turns:
        listing = await fills.apply_in_thread(tools, Seams(), trio.CapacityLimiter(1))
        assert turns.had >= 8
    assert [one.name for one in listing.tools] == [one.name for one in tools]
    assert sum(host_fills_of(one) is not None for one in listing.tools) == STEP * 3
