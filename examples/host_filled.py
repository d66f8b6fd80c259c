"""A token and a tenant that no model sees, sets or gets back.

    python examples/host_filled.py

The server's tool takes a token and a tenant's id, as many do. The host fills both in: the token from the
call's credential, the tenant from who is calling. The model, a script here, is told of neither and tries all
the same.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import trio

from afpool import (
    CredentialRequest,
    HttpTransport,
    Identity,
    Issued,
    Plan,
    Server,
    ServerRules,
    bearer,
    open_runtime,
)
from afpool.testing import FakeServer, FakeTool
from afpool.tools import from_credential, from_identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool.tools import ToolEvent

ANN = Identity(tenant="acme", principal="ann")
TOKENS = {"acme": "acme-t0ken-5f2c", "globex": "globex-t0ken-91ab"}


def invoices(arguments: Mapping[str, Any], _: object) -> str:
    """Answer for a server that is somebody else's, and that repeats what it was asked with."""
    if arguments["token"] != TOKENS[arguments["tenant_id"]]:
        return "wrong token"
    return json.dumps({"asked": arguments, "invoices": [f"{arguments['tenant_id']}-2026-07"]})


TEXT = {"type": "string"}
BILLING = FakeTool(
    "invoices",
    invoices,
    description="The invoices of a year.",
    inputSchema={
        "type": "object",
        "properties": {"year": {"type": "integer"}, "tenant_id": TEXT, "token": TEXT},
        "required": ["year", "tenant_id", "token"],
    },
)


class Tokens:
    """Where the host has its tokens: one for each tenant."""

    asked = 0

    async def get(self, request: CredentialRequest) -> Issued:
        """Vend the token of whoever calls."""
        self.asked += 1
        return Issued(bearer(TOKENS[request.identity.tenant or ""]))


async def main() -> None:
    """Call as a model would: rightly, and then with what is not its to say."""
    tokens = Tokens()
    events: list[ToolEvent] = []
    async with (
        FakeServer.http(tools=[BILLING]) as server,
        open_runtime(
            servers=[Server(name="billing", plan=Plan(transport=HttpTransport(url=server.url)))],
            rules={
                "billing": ServerRules(
                    fill={"token": from_credential("billing"), "tenant_id": from_identity("tenant")}
                )
            },
            credentials=tokens,
            on_event=events.append,
        ) as runtime,
    ):
        toolset = await runtime.toolset(ANN)
        print("the model sees:", json.dumps(toolset["invoices"].input_schema))

        result = await toolset.call("invoices", {"year": 2026})
        print("it reads:", result.text)
        ran = server.executed[0].arguments
        print("the server got:", ran["tenant_id"], ran["token"] == TOKENS["acme"])

        for args in ({"year": 2026, "tenant_id": "globex"}, {"year": 2026, "Token": None}):
            refused = await toolset.call("invoices", args)
            print(f"{refused.code}, {refused.delivery}: {refused.text}")
        print("tokens fetched:", tokens.asked, "- calls that ran:", server.executions["invoices"])

    starts = [event.payload["args"] for event in events if event.kind == "tool_start"]
    print("recorded:", starts[:2])
    recorded = json.dumps([event.payload for event in events])
    print("tokens on the record:", sum(token in recorded for token in TOKENS.values()))


if __name__ == "__main__":
    trio.run(main)
