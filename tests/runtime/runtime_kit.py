"""What the tests of the runtime share: runtimes over fake servers whose tools say whose they are."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import attrs
import trio

from afpool import HttpTransport, Identity, Plan, Server
from afpool.runtime import Runtime, open_runtime
from afpool.testing import FakeServer, FakeTool
from tests.tools.door_kit import Events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="acme", principal="bob")


def said(server: str, name: str, **members: Any) -> FakeTool:
    """A tool that answers whose it is and what it was called with."""

    def answer(arguments: Any, arrival: Any) -> str:
        return json.dumps({"server": server, "tool": name, "args": arguments})

    return FakeTool(name, answer, **members)


def taking(server: str, name: str, **properties: Any) -> FakeTool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return said(server, name, inputSchema=schema)


@attrs.define(eq=False)
class Here:
    """A runtime, its servers and what it records."""

    runtime: Runtime
    servers: dict[str, FakeServer]
    events: Events

    def sent(self, server: str) -> int:
        """How many tool calls have reached a server."""
        return self.servers[server].count("tools/call")

    async def names(self, who: Any = ALICE) -> list[str]:
        return list(await self.runtime.toolset(who))


@contextlib.asynccontextmanager
async def runtime(
    servers: Mapping[str, list[FakeTool] | str] | None = None,
    *,
    server: dict[str, dict[str, Any]] | None = None,
    **config: Any,
) -> AsyncIterator[Here]:
    """Open a runtime; each server is a list of tools, or a URL where nobody need listen."""
    events = Events()
    config.setdefault("on_event", events)
    async with contextlib.AsyncExitStack() as stack:
        fakes: dict[str, FakeServer] = {}
        listed = []
        for name, tools in (servers or {}).items():
            url = tools
            if not isinstance(tools, str):
                fakes[name] = await stack.enter_async_context(FakeServer.http(tools=tools))
                url = fakes[name].url
            assert isinstance(url, str)
            plan = Plan(transport=HttpTransport(url=url))
            listed.append(Server(name=name, plan=plan, **(server or {}).get(name, {})))
        opened = await stack.enter_async_context(open_runtime(servers=listed, **config))
        with trio.fail_after(60):
            yield Here(opened, fakes, events)
