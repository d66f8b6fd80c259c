"""afpool in a trio program of your own: the pool lives in the host's nursery beside the host's other work.

    python examples/embed_trio.py

A server of the testing kit stands in for a real one. `plan` says how an identity reaches a server; whoever
the tools were listed for is who may call them.
"""

from __future__ import annotations

import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Server
from afpool.testing import FakeServer, counter_tool, echo_tool, progress_tool

ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="acme", principal="bob")


async def heartbeat() -> None:
    """Whatever else the host does; the pool does not disturb it, and it does not disturb the pool."""
    while True:
        await trio.sleep(1)


async def conversation(pool: afpool.Pool, who: Identity) -> None:
    """One user's run: list, call, watch progress, bound a call in time."""
    tools = await pool.tools(who)
    print(f"{who.principal} sees {', '.join(tools)}")
    result = await tools["echo"].call({"text": f"hello from {who.principal}"}, identity=who)
    print(f"{who.principal} got {result.text}")
    await tools["progress"].call(
        {"steps": 2}, identity=who, on_progress=lambda step: print(f"{who.principal}: {step.message}")
    )
    await tools["counter"].call(identity=who, deadline=trio.current_time() + 5)


async def main() -> None:
    """Open the pool in the host's nursery, use it from several tasks, close it, go on."""
    fake = FakeServer.http(tools=[echo_tool(), progress_tool(), counter_tool()])
    async with fake as server, trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat)
        plan = Plan(transport=HttpTransport(url=server.url))
        pool = await nursery.start(afpool.run_pool, [Server(name="files", plan=plan)])

        async with trio.open_nursery() as runs:
            runs.start_soon(conversation, pool, ALICE)
            runs.start_soon(conversation, pool, BOB)

        alices = (await pool.tools(ALICE))["echo"]
        try:
            await alices.call({"text": "whose tool is this?"}, identity=BOB)
        except afpool.IdentityMismatch as refusal:
            print(f"refused: {refusal}")

        report = await pool.aclose()
        print(f"closed {report.closed} clients; each user had a session of their own")
        nursery.cancel_scope.cancel()  # the host goes on living after the pool, until it wants to stop


if __name__ == "__main__":
    trio.run(main)
