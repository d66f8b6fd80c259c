"""One agent for two tenants: a loop around a model, a CRM whose secrets the model never sees, a report.

    python examples/tenants.py                     # a server of the testing kit stands in for the CRM
    python examples/tenants.py http://host/mcp     # or any MCP server with a tool `orders`,
    python examples/tenants.py python crm.py       # by its address or its command

The model is a script here. Everything else is what a host writes: who calls, where tokens come from, what the
host fills, what no record may hold. Each tenant has a connection of its own, or a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import trio

from afpool import (
    CredentialRequest,
    HttpTransport,
    Identity,
    Issued,
    Plan,
    Run,
    Server,
    ServerRules,
    StdioTransport,
    ToolContext,
    bearer,
    define_tool,
    open_runtime,
)
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.testing import FakeServer, FakeTool
from afpool.tools import PLAIN, RedactionPolicy, ToolEvent, answer_calls, from_credential, from_identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Mapping

ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="globex", principal="bob")
TOKENS = {"acme": "acme-t0ken-5f2c", "globex": "globex-t0ken-91ab"}
ORDERS = {"acme": [120, 80, 45], "globex": [7]}


# ------------------------------------------------------------------ the CRM, which is somebody else's


def orders(arguments: Mapping[str, Any], _: object) -> str:
    """Answer a customer's orders, to a tenant who has the tenant's token."""
    tenant = arguments["tenant_id"]
    if arguments["token"] != TOKENS[tenant]:
        return "wrong token"
    return json.dumps({"tenant": tenant, "asked_with": arguments["token"], "orders": ORDERS[tenant]})


STRING = {"type": "string"}
CRM = FakeTool(
    "orders",
    orders,
    description="The orders of a customer.",
    inputSchema={
        "type": "object",
        "properties": {"customer": STRING, "card": STRING, "tenant_id": STRING, "token": STRING},
        "required": ["customer", "tenant_id", "token"],
    },
)


# ------------------------------------------------------------------ what the host says


class Tokens:
    """Vends the token of the caller's tenant."""

    async def get(self, request: CredentialRequest) -> Issued:
        """Vend one; a call for no tenant has none."""
        return Issued(bearer(TOKENS[request.identity.tenant or ""]))


@define_tool
async def collect(customer: str, ctx: ToolContext) -> str:
    """Store a customer's orders as a dataset; gives its reference."""
    answer = await ctx.tools.call("orders", {"customer": customer})
    rows = json.loads(answer.text)["orders"]
    new = NewArtifact(kind="dataset/orders", media_type="application/json", data=rows)
    stored = await ctx.artifacts.put(new)
    return str(stored.ref)


@define_tool(wants={"rows": "dataset/orders"})
async def report(rows: Any) -> str:
    """Sum up a stored dataset of orders."""
    return f"{len(rows)} orders, {sum(rows)} in all"


RULES = ServerRules(
    fill={"token": from_credential("crm"), "tenant_id": from_identity("tenant")},
    redact=RedactionPolicy(keys=["card"]),
)


# ------------------------------------------------------------------ the agent


Messages = list[dict[str, Any]]


def model(other_ref: str | None) -> Generator[Messages, Messages, None]:
    """Play a model: give calls, get sent their results. It tries a few things that it should not."""
    told = yield [{"id": "1", "name": "orders", "args": {"customer": "ann", "card": "4111 1111 1111 1111"}}]
    told = yield [{"id": "2", "name": "orders", "args": {"customer": "ann", "tenant_id": "globex"}}]
    print("   ", told[0]["code"])
    told = yield [{"id": "3", "name": "collect", "args": {"customer": "ann"}}]
    ref = told[0]["text"]
    told = yield [{"id": "4", "name": "report", "args": {"rows": ref}}]
    print("   ", told[0]["text"])
    if other_ref is not None:
        told = yield [{"id": "5", "name": "report", "args": {"rows": other_ref}}]
        print("    another tenant's dataset:", told[0]["code"])


async def agent(run: Run, other_ref: str | None = None) -> str:
    """Go on until the model makes no further call; gives the reference of what it stored."""
    toolset = await run.toolset()
    shown = {tool["name"]: sorted(tool["input_schema"]["properties"]) for tool in PLAIN.tools(toolset)}
    print("    the model sees", shown)
    thinking = model(other_ref)
    message = next(thinking)
    ref = ""
    while True:
        answers = await answer_calls(run, message, PLAIN, deadline=trio.current_time() + 30)
        if message[0]["name"] == "orders" and not answers[0]["is_error"]:
            print("    the model reads", answers[0]["text"])
        if message[0]["name"] == "collect":
            ref = answers[0]["text"]
        try:
            message = thinking.send(answers)
        except StopIteration:
            return ref


@contextlib.asynccontextmanager
async def crm(where: list[str]) -> AsyncIterator[HttpTransport | StdioTransport]:
    """Say how to reach the CRM: by the address or command that was given, or one that stands in for it."""
    if not where:
        async with FakeServer.http(tools=[CRM]) as server:
            yield HttpTransport(url=server.url)
    elif where[0].startswith(("http://", "https://")):
        yield HttpTransport(url=where[0])
    else:
        yield StdioTransport.of(*where)


async def main(*where: str) -> None:
    """Serve both tenants from one runtime."""
    events: list[ToolEvent] = []
    async with (
        crm([*where]) as transport,
        open_runtime(
            servers=[Server(name="crm", plan=Plan(transport=transport))],
            tools=[collect, report],
            rules={"crm": RULES},
            credentials=Tokens(),
            artifacts=MemoryArtifacts(),
            on_event=events.append,
        ) as runtime,
    ):
        print("alice of acme:")
        ref = await agent(runtime.run(ALICE))
        print("bob of globex:")
        await agent(runtime.run(BOB), other_ref=ref)
        assert runtime.pool is not None
        print("connections to the CRM:", runtime.pool.statistics().clients)
    recorded = json.dumps([event.payload for event in events])
    print("recorded:", next(event.payload["args"] for event in events if event.kind == "tool_start"))
    print("secrets on the record:", sum(secret in recorded for secret in (*TOKENS.values(), "4111")))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
