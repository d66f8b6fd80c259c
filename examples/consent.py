"""A run that waits for somebody's consent: refused, paused as JSON, gone on with by another process.

    python examples/consent.py

The address where the user consents goes to the host's callback only: the model reads that the user was asked,
and neither it nor the checkpoint nor the record holds where.
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
    NeedsAuthorization,
    Plan,
    Runtime,
    Server,
    ServerRules,
    bearer,
    open_runtime,
)
from afpool.testing import FakeServer, FakeTool
from afpool.tools import from_credential

if TYPE_CHECKING:
    from collections.abc import Mapping

ALICE = Identity(tenant="acme", principal="alice")
WHERE = "https://login.example/authorize?state=8c1f"
TOKEN = "alices-own-t0ken"


def send(arguments: Mapping[str, Any], _: object) -> str:
    """Answer for a mail server that wants a user's own token."""
    return f"sent to {arguments['to']}" if arguments["token"] == TOKEN else "wrong token"


MAIL = FakeTool(
    "send",
    send,
    inputSchema={
        "type": "object",
        "properties": {"to": {"type": "string"}, "token": {"type": "string"}},
        "required": ["to", "token"],
    },
)


class Consents:
    """Vends a user's token once the user has consented."""

    def __init__(self) -> None:
        self.given: set[str | None] = set()

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization:
        """Vend it, or say where to consent."""
        if request.identity.principal in self.given:
            return Issued(bearer(TOKEN))
        return NeedsAuthorization(WHERE, "session-1")


def ask_user(service: str, who: Identity, needs: NeedsAuthorization) -> None:
    """Whatever the host has for that: a push message, a page, a line."""
    print(f"{who.principal}, please consent to {service} at {needs.authorization_url}")


async def main() -> None:
    """Pause a run of one runtime, and go on with it in another one."""
    consents = Consents()
    async with FakeServer.http(tools=[MAIL]) as mail:

        def opened() -> Any:
            return open_runtime(
                servers=[Server(name="mail", plan=Plan(transport=HttpTransport(url=mail.url)))],
                rules={"mail": ServerRules(fill={"token": from_credential("mail", mode="user")})},
                credentials=consents,
                on_authorization=ask_user,
                secret=b"one secret of all processes of this host",
            )

        runtime: Runtime
        async with opened() as runtime:
            run = runtime.run(ALICE)
            await run.toolset()
            refused = await run.call("send", {"to": "bob"})
            print(f"the model reads: {refused.text}")
            saved = json.dumps(run.checkpoint())
            print("the address is in what was saved:", WHERE in saved)

        consents.given.add("alice")  # the user has been there

        async with opened() as runtime:
            again = runtime.resume(saved)
            result = await again.call("send", {"to": "bob"})
            print(f"{again.identity == ALICE}, {result.code}: {result.text}")
            try:
                runtime.resume(saved.replace("alice", "mallory"))
            except ValueError as refusal:
                print(f"refused: {refusal}")


if __name__ == "__main__":
    trio.run(main)
