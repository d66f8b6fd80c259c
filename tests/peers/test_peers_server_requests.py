"""Real servers ask: forms, samples, roots and addresses, in both eras and over both transports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import ElicitationRequired, Plan, SampleAnswer, Server, ServerRequests
from tests.peers.pool_peer_kit import ALICE, LEGACY, Target, transport_of

if TYPE_CHECKING:
    from afpool import ElicitAnswer, ElicitRequest, SampleRequest

pytestmark = pytest.mark.peer

URL = "https://acme.example/connect"


class Desk:
    """Answers everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def elicit(self, request: ElicitRequest) -> ElicitAnswer:
        self.asked.append(request)
        said = {"sure": True, "name": "alice"}
        asked = request.schema.get("properties", {})
        return request.accept({name: value for name, value in said.items() if name in asked})

    async def sample(self, request: SampleRequest) -> SampleAnswer:
        self.asked.append(request)
        return SampleAnswer(content={"type": "text", "text": "forty-two"}, model="m")

    @property
    def offers(self) -> ServerRequests:
        return ServerRequests(
            roots=["file:///srv/acme"],
            sample=self.sample,
            elicit=self.elicit,
            elicitation_modes=("form", "url"),
        )

    @property
    def calls(self) -> list[str | None]:
        return [None if request.operation is None else request.operation.call_id for request in self.asked]


@pytest.mark.parametrize(
    "target",
    [
        Target("mcp2", "http"),
        Target("mcp2", "stdio"),
        Target("mcp2", "http", LEGACY),
        Target("mcp2", "stdio", LEGACY),
        Target("mcp1", "http"),
        Target("mcp1", "stdio"),
    ],
    ids=str,
)
async def test_a_tool_asks_its_user_for_the_call_that_it_runs_for(request: Any, target: Target) -> None:
    desk = Desk()
    plan = Plan(
        transport=transport_of(request, target), protocol_version=target.version, requests=desk.offers
    )
    with trio.fail_after(60):
        async with afpool.open_pool([Server(name="peer", plan=plan)]) as pool:
            choose = (await pool.tools(ALICE))["choose"]
            result = await choose.call({"thing": "door"}, identity=ALICE, call_id="c1")
            assert result.text == "door: red, True"
            assert desk.calls == ["c1"]
            assert desk.asked[0].message == "Which door?"
            (use,) = pool.records.uses
            assert use.attempts == (2 if target.stateless else 1)


async def test_without_an_offer_a_tool_that_asks_fails_and_nothing_hangs(request: Any) -> None:
    target = Target("mcp1", "http")
    with trio.fail_after(60):
        plan = Plan(transport=transport_of(request, target))
        async with afpool.open_pool([Server(name="peer", plan=plan)]) as pool:
            choose = (await pool.tools(ALICE))["choose"]
            assert (await choose.call({"thing": "door"}, identity=ALICE)).is_error


@pytest.mark.parametrize("kind", ["http", "stdio"])
async def test_the_reference_server_asks_for_everything(request: Any, kind: Any) -> None:
    desk = Desk()
    transport = transport_of(request, Target("everything", kind))
    plan = Plan(transport=transport, requests=desk.offers)
    with trio.fail_after(60):
        async with afpool.open_pool([Server(name="peer", plan=plan)]) as pool:
            tools = await pool.tools(ALICE)

            async def call(name: str, **arguments: Any) -> str:
                # it announces a list that has not changed whenever it likes
                tool = (await pool.tools(ALICE))[name]
                return (await tool.call(arguments, identity=ALICE, call_id=name)).text

            assert {"trigger-elicitation-request", "trigger-sampling-request", "get-roots-list"} <= set(tools)
            assert "forty-two" in await call("trigger-sampling-request", prompt="?", maxTokens=5)
            answer = await call("trigger-elicitation-request")
            assert "It was a dark and stormy night." in answer
            assert json.dumps("hero-1") in answer
            assert "file:///srv/acme" in await call("get-roots-list")
            assert "accept" in await call("trigger-url-elicitation", url=URL)
            assert [asked.url for asked in desk.asked if getattr(asked, "url", None)] == [URL]
            with pytest.raises(ElicitationRequired) as caught:
                await call("trigger-url-elicitation", url=URL + "/2", errorPath=True)
            assert caught.value.delivery == "answered"
            assert caught.value.elicitations[0].url.startswith("https://")
            if kind == "http":
                assert set(desk.calls) <= {
                    "trigger-sampling-request", "trigger-elicitation-request", "trigger-url-elicitation",
                }  # fmt: skip
