"""A pool and a server object of the official SDK in one process, which only such a process can try.

Run with the interpreter of `.cache/peers/mcp1` or `.cache/peers/mcp2`: `in_memory.py ROOT PACKAGES`, where
ROOT holds afpool and PACKAGES is the folder of the packages that afpool needs. Prints facts as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

root, packages = sys.argv[1:]
sys.path.insert(0, root)
sys.path.append(packages)  # behind the packages of the SDK's own environment

import anyio  # noqa: E402
import trio  # noqa: E402
import trio.testing  # noqa: E402

import afpool  # noqa: E402
from afpool import Identity, MemoryTransport, Plan, Server, StaleTools  # noqa: E402

assert "mcp" not in sys.modules, "afpool imports no SDK"

try:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as HighLevel
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as HighLevel

from mcp.server.lowlevel import NotificationOptions  # noqa: E402

ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="acme", principal="bob")
server = HighLevel("in-memory")
ran: list[str] = []
stopped: list[str] = []


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    ran.append(text)
    return text


@server.tool()
async def sleep(seconds: float) -> str:
    """Answer after so many seconds."""
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        stopped.append("sleep")
        raise
    return f"slept {seconds}"


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Report progress for each step, then answer."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"counted {steps}"


@server.tool()
async def big(size: int) -> str:
    """Answer so many letters."""
    return "x" * size


@server.tool()
async def grow(ctx: Context) -> str:
    """Add the tool `extra` and announce it."""
    server.add_tool(lambda: "extra", name="extra", description="Added later.")
    if hasattr(ctx, "notify_tools_changed"):
        await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


class Gate:
    """A gate that is closed by a rival, and says so when something began behind it."""

    def __init__(self) -> None:
        self.closed = False
        self.leaked = False

    def ask(self, stage: str, /) -> None:
        """Refuse once closed."""
        if self.closed:
            raise StaleTools("closed")

    def began(self) -> None:
        """Note whether it should have."""
        self.leaked = self.closed


async def rivals(pool: Any) -> list[int]:
    """How many of 200 messages left on a gate that a rival closed just before, and how many left at all."""
    (client, *_) = pool.openings.clients.values()
    leaked = left = 0
    for _ in range(200):
        gate = Gate()
        notice = trio.Event()

        async def rival(notice: trio.Event = notice, gate: Gate = gate) -> None:
            await notice.wait()
            gate.closed = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rival)
            await trio.testing.wait_all_tasks_blocked()
            notice.set()
            ping = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":999999}}'
            message = client.channel.link.submit(ping, gate, None, lambda _: None)
            while not message.done and message.refusal is None:
                await trio.lowlevel.checkpoint()
        leaked += gate.leaked
        left += message.done
    return [leaked, left]


async def scenario(transport: MemoryTransport, version: str | None, facts: dict[str, Any]) -> None:
    """Open, call, hear, cancel, close."""
    plan = Plan(transport=transport, protocol_version=version)
    with trio.fail_after(30):
        async with afpool.open_pool([Server(name="memory", plan=plan)], cancel_grace=0.3) as pool:
            tools = await pool.tools(ALICE)
            (client,) = pool.openings.clients.values()
            facts["version"] = client.negotiated.version
            facts["echo"] = (await tools["echo"].call({"text": "ä\u2028"}, identity=ALICE)).text
            seen: list[float] = []
            counted = tools["count"].call(
                {"steps": 3}, identity=ALICE, on_progress=lambda p: seen.append(p.progress)
            )
            facts["count"] = (await counted).text
            facts["progress"] = seen
            facts["big"] = len((await tools["big"].call({"size": 300_000}, identity=ALICE)).text)
            with trio.move_on_after(0.2):
                await tools["sleep"].call({"seconds": 20}, identity=ALICE)
            while not stopped:  # noqa: ASYNC110 -- a tool of the SDK sets no event of trio's
                await trio.sleep(0.01)
            facts["cancelled"] = list(stopped)
            stopped.clear()
            bob = await pool.tools(BOB)

            async def one(number: int) -> None:
                answer = await bob["echo"].call({"text": f"{number}"}, identity=BOB)
                assert answer.text == f"{number}"

            async with trio.open_nursery() as nursery:
                for number in range(200):
                    nursery.start_soon(one, number)
            facts["at once"] = len(set(ran)) - 1
            facts["clients"] = pool.statistics().opened
            facts["rivals"] = await rivals(pool)
            await tools["grow"].call(identity=ALICE)
            while "extra" not in await pool.tools(ALICE):  # noqa: ASYNC110 -- nothing announces it here
                await trio.sleep(0.01)
            facts["extra"] = (await (await pool.tools(ALICE))["extra"].call(identity=ALICE)).text


async def main() -> None:
    """Try the ways there are."""
    lowlevel = getattr(server, "_mcp_server", None) or server._lowlevel_server
    options = lowlevel.create_initialization_options(NotificationOptions(tools_changed=True))
    found: dict[str, Any] = {"names": []}
    for way, version in (("background", None), ("nursery", "2025-11-25")):
        facts: dict[str, Any] = {}
        ran.clear()
        async with trio.open_nursery() as nursery:
            transport = MemoryTransport.of_server(
                server if way == "background" else lowlevel,
                nursery=nursery if way == "nursery" else None,
                initialization_options=options,
            )
            found["names"].append(transport.name)
            await scenario(transport, version, facts)
            # Left alone the server has ended, or this waits for ever.
            with trio.fail_after(5):
                while nursery.child_tasks:  # noqa: ASYNC110 -- nothing tells of it
                    await trio.sleep(0.01)
        server.remove_tool("extra")
        found[way] = facts
    again = MemoryTransport.of_server(server).name
    found["stable"] = again == found["names"][0]
    found["others"] = MemoryTransport.of_server(HighLevel("in-memory")).name != again
    print(json.dumps(found))


trio.run(main)
