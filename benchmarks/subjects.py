"""The clients that are compared, each a process: `python subjects.py KIND URL`; see `windows.py`.

Those that begin with `bare-` are the floor (`bare.py`), and `httpx` is its plain client on trio. The others
are this project with everything on: one pool, its actor, leases, rechecks, the send gate at every boundary
and the record. `-full` adds what an app may add: `share`, a caller identity that is asked again at each
recheck, a credential per request, a sink. `-keys` is 64 identities with a client each; `-large` has answers
of 4 MB.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import trio
import windows
from bare import HEADERS, LARGE, RESPONDERS, Requests, http, large_http, stdio, websocket
from responders import TEXT

import afpool
from afpool import (
    CredentialRequest,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    Plan,
    Server,
    StdioTransport,
    WebSocketTransport,
    bearer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windows import Call

PLACES = 64
ALICE = Identity(tenant="acme", principal="alice", conversation_id="a-1")


class Vault:
    """Vends the same token to everybody."""

    async def get(self, _: CredentialRequest) -> Issued:
        await trio.lowlevel.checkpoint()
        return Issued(bearer("token"))


@asynccontextmanager
async def pooled(plan: Plan, size: int = 0, **options: Any) -> AsyncIterator[Call]:
    """One identity's bound tool, up to 64 calls of it at once."""
    who: Any = ALICE
    arguments: Any = {"size": size} if size else {"text": TEXT}
    length = size or len(TEXT)
    if options:
        who = lambda: ALICE  # noqa: E731
    async with afpool.open_pool(
        [Server(name="responder", plan=plan)], max_operations=PLACES, **options
    ) as pool:
        tool = (await pool.tools(ALICE))["echo"]

        async def call(_: int) -> None:
            result = await tool.call(arguments, identity=who)
            if len(result.text) != length:
                raise RuntimeError("the answer is not the one to this request")

        yield call


@asynccontextmanager
async def by_httpx(url: str) -> AsyncIterator[Call]:
    """The same requests by an `httpx.AsyncClient`, as it comes."""
    requests = Requests()
    async with httpx.AsyncClient(headers=HEADERS, limits=httpx.Limits(max_connections=PLACES)) as client:

        async def call(_: int) -> None:
            rpc_id, body = requests.next()
            answer = await client.post(url, content=body)
            requests.check(rpc_id, answer.json())

        yield call


@asynccontextmanager
async def many_keys(url: str) -> AsyncIterator[Call]:
    """As many identities as places, one call of each at a time."""
    plan = Plan(transport=HttpTransport(url=url))
    async with afpool.open_pool([Server(name="responder", plan=plan)]) as pool:
        people = [Identity(tenant=f"t{n % 8}", principal=f"p{n}") for n in range(PLACES)]
        tools = [(await pool.tools(who))["echo"] for who in people]

        async def call(place: int) -> None:
            result = await tools[place].call({"text": TEXT}, identity=people[place])
            if result.text != TEXT:
                raise RuntimeError("the answer is not the one to this request")

        yield call


def _full(url: str) -> Any:
    uses: list[Any] = []
    return pooled(
        Plan(transport=HttpTransport(url=url), credential=CredentialRequirement("responder", mode="user")),
        share=lambda _server, _who: "everybody",
        credentials=Vault(),
        on_use=lambda use: uses.append(use) if len(uses) < 1 else None,
    )


KINDS: dict[str, Any] = {
    "bare-http": http,
    "bare-http-large": large_http,
    "bare-stdio": stdio,
    "bare-websocket": websocket,
    "httpx-http": by_httpx,
    "afpool-http": lambda url: pooled(Plan(transport=HttpTransport(url=url))),
    "afpool-http-sse": lambda url: pooled(Plan(transport=HttpTransport(url=url.replace("/mcp", "/sse")))),
    "afpool-http-large": lambda url: pooled(Plan(transport=HttpTransport(url=url)), size=LARGE),
    "afpool-websocket": lambda url: pooled(Plan(transport=WebSocketTransport(url=url))),
    "afpool-stdio": lambda _: pooled(Plan(transport=StdioTransport.of(sys.executable, RESPONDERS, "stdio"))),
    "afpool-http-full": _full,
    "afpool-http-keys": many_keys,
}


def main() -> None:
    kind, url = sys.argv[1:]
    trio.run(windows.run, partial(KINDS[kind], url), windows.trio_tasks)


if __name__ == "__main__":
    main()
