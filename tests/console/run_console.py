"""A pool with a console and something going on, to look at: `python -m tests.console.run_console`.

Two servers, four tenants with three users each, calls at a steady rate, some of which fail or are slow. The
console listens on a Unix socket in `--directory` and on TCP, with the tokens that are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
from typing import TYPE_CHECKING, Any

import trio

from afpool import AfpoolError, HttpTransport, Identity, Plan, Server
from afpool.console import ConsoleSettings, open_console
from afpool.pool import open_pool
from afpool.testing import FakeServer, FakeTool, echo_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

READ = "read-token-of-the-dev-console"
OPERATE = "operate-token-of-the-dev-console"


async def _slow(arguments: Mapping[str, Any], _: object) -> Any:
    await trio.sleep(float(arguments.get("seconds", 0.3)))
    yield "done"


async def _failing(_: Mapping[str, Any], __: object) -> Any:
    raise ValueError("this tool fails")
    yield ""


async def main(options: argparse.Namespace) -> None:
    """Run until interrupted."""
    async with contextlib.AsyncExitStack() as stack:
        plans = {}
        for name in ("desk", "crm"):
            fake = await stack.enter_async_context(
                FakeServer.http(
                    era="both",
                    tools=[echo_tool(), FakeTool("slow", _slow), FakeTool("fails", _failing)],
                )
            )
            plans[name] = Plan(transport=HttpTransport(url=fake.url))
        pool = await stack.enter_async_context(
            open_pool([Server(name=name, plan=plan) for name, plan in plans.items()])
        )
        try:
            from afpool.record import Record  # type: ignore[attr-defined, unused-ignore]

            record: Any = Record(pool)
        except (ImportError, AttributeError):
            record = None
        settings = ConsoleSettings(
            name=options.name, directory=options.directory, bind=options.bind,
            read_token=READ, operate_token=OPERATE,
        )  # fmt: skip
        console = await stack.enter_async_context(open_console(pool, record=record, settings=settings))
        assert console is not None
        told = {"addresses": console.addresses, "read_token": READ, "operate_token": OPERATE}
        print(json.dumps(told), flush=True)
        chance = random.Random(1)
        async with trio.open_nursery() as nursery:
            for number in range(options.tasks):
                nursery.start_soon(_calls, pool, number, options, random.Random(chance.random()))
            if options.seconds is not None:
                await trio.sleep(options.seconds)
                nursery.cancel_scope.cancel()


async def _calls(pool: Any, number: int, options: argparse.Namespace, chance: random.Random) -> None:
    gap = options.tasks / options.rate
    await trio.sleep(chance.random() * gap)
    while True:
        tenant = f"tenant-{number % options.tenants}"
        who = Identity(
            tenant, f"user-{number % options.users}", f"c-{chance.randrange(options.conversations)}"
        )
        server = chance.choice(["desk", "crm"])
        name = chance.choices(["echo", "slow", "fails"], [90, 7, 3])[0]
        with contextlib.suppress(AfpoolError):
            tools = await pool.tools(who, server)
            await tools[name].call({"n": 1} if name == "echo" else {}, identity=who)
        await trio.sleep(chance.expovariate(1 / gap))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="dev")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--bind", default="127.0.0.1:8790")
    parser.add_argument("--rate", type=float, default=50.0, help="calls a second")
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--tenants", type=int, default=4)
    parser.add_argument("--users", type=int, default=3)
    parser.add_argument("--conversations", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=None, help="end after so long")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        trio.run(main, _parsed())
