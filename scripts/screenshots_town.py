"""A service of several tenants with something going on, for the docs' pictures of its console.

Five servers, a hundred users, and all that goes wrong in a week within a minute: lists that change while
calls wait, few places, calls with little time, a hook that denies, one server that is away. Prints one JSON
line with where its console is, and lives until it is killed.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from typing import TYPE_CHECKING, Any

import trio

from afpool import AfpoolError, HttpTransport, Identity, Plan, Server, open_runtime
from afpool.console import ConsoleSettings
from afpool.runtime import RuntimeConfig
from afpool.testing import FakeServer, FakeTool
from afpool.tools import Deny, Hook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool.runtime import Runtime
    from afpool.tools import HookCall

TOKEN = "operate-the-town-of-pictures"
TENANTS = ("acme", "globex", "initech", "umbrella")
USERS = 24
TOOLS = {
    "crm": ("find_contact", "update_contact", "list_deals"),
    "tickets": ("search_tickets", "create_ticket"),
    "files": ("read_file", "export_report"),
    "billing": ("get_invoice", "refund"),
}
AWAY = "http://127.0.0.1:9/mcp"  # nobody listens there


def working(median: float, chance: random.Random) -> Any:
    """A handler that takes about so long, and now and then much longer."""

    async def handle(_: Mapping[str, Any], __: object) -> str:
        await trio.sleep(median * chance.lognormvariate(0, 0.7))
        return "done"

    return handle


def tools_of(server: str, chance: random.Random, most: int = 100) -> list[FakeTool]:
    """A server's tools; `most` stands in a schema, so that another one is another definition."""
    limit = {"type": "integer", "minimum": 1, "maximum": most}
    schema = {"type": "object", "properties": {"query": {"type": "string"}, "limit": limit}}
    speeds = {"crm": 0.25, "tickets": 0.4, "files": 1.2, "billing": 0.7}
    return [FakeTool(name, working(speeds[server], chance), "", schema) for name in TOOLS[server]]


async def deny_large_refunds(call: HookCall) -> Deny | None:
    """The host's own rule."""
    return Deny("over the limit") if call.tool.name == "refund" else None


async def one_user(runtime: Runtime, who: Identity, chance: random.Random) -> None:
    """A user's agent: lists once in a while, and calls."""
    await trio.sleep(chance.random() * 25)
    favourites = chance.sample(list(TOOLS), 2)
    while True:
        with contextlib.suppress(AfpoolError):
            run = runtime.run(who)
            for _ in range(chance.randint(2, 7)):
                name = chance.choice(TOOLS[chance.choice(favourites)])
                short = chance.random() < 0.03
                deadline = trio.current_time() + 0.2 if short else None
                with contextlib.suppress(AfpoolError):
                    await run.call(name, {"query": "overdue", "limit": 20}, deadline=deadline)
                await trio.sleep(chance.expovariate(1.0))


async def changes(fakes: dict[str, FakeServer], chance: random.Random) -> None:
    """Servers that are deployed while they are used."""
    for version in range(1, 1_000_000):
        await trio.sleep(9)
        name = chance.choice(["crm", "tickets", "files"])
        fakes[name].set_tools(tools_of(name, chance, 100 + version), notify=True)


async def main() -> None:
    """Run until killed."""
    chance = random.Random(3)
    async with contextlib.AsyncExitStack() as stack:
        fakes = {}
        for name in TOOLS:
            fakes[name] = await stack.enter_async_context(
                FakeServer.http(era="both", tools=tools_of(name, chance))
            )
        servers = [
            Server(
                name=name,
                keyed_on=("tenant",) if name == "billing" else ("tenant", "principal"),
                plan=Plan(transport=HttpTransport(url=fake.url)),
            )
            for name, fake in fakes.items()
        ]
        servers.append(
            Server(name="archive", keyed_on=("tenant",), plan=Plan(transport=HttpTransport(url=AWAY)))
        )
        settings = ConsoleSettings(name="agents", unix=False, bind="127.0.0.1:0", operate_token=TOKEN)
        config = RuntimeConfig(
            servers=servers, hooks=[Hook("refunds", before=deny_large_refunds)], console=settings,
            pool={"max_operations": 3, "max_waiting": 4},
        )  # fmt: skip
        runtime = await stack.enter_async_context(open_runtime(config))
        assert runtime.console is not None
        told = {"url": runtime.console.addresses[0], "token": TOKEN}
        print(json.dumps(told), flush=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes, fakes, chance)
            for number in range(USERS * len(TENANTS)):
                who = Identity(TENANTS[number % len(TENANTS)], f"user-{number // len(TENANTS)}", None)
                nursery.start_soon(one_user, runtime, who, random.Random(number))


if __name__ == "__main__":
    sys.exit(trio.run(main))
