"""A process with a console, in which a few things have happened: `-m tests.cli.console_process FOLDER`.

Alice's call `call-1` was answered; then the server narrowed the schema of `search`, and her `call-2` was
refused. It says `ready` and waits. After SIGUSR1 its loop hangs until a line comes on stdin.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import trio

from afpool import AfpoolError, HttpTransport, Identity, Plan, Server
from afpool.console import ConsoleSettings, open_console
from afpool.pool import open_pool
from afpool.record import Record
from afpool.testing import FakeServer, FakeTool, echo_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

ALICE = Identity("acme", "alice", "c-1")
BOB = Identity("globex", "bob", "c-2")
READ = "read-token-of-a-test"
OPERATE = "operate-token-of-a-test"


def search(most: int) -> FakeTool:
    return FakeTool(
        "search",
        inputSchema={"type": "object", "properties": {"limit": {"type": "integer", "maximum": most}}},
    )


async def slow(_: Mapping[str, Any], __: object) -> Any:
    await trio.sleep_forever()
    yield ""


def stuck_in_a_loop() -> None:
    os.read(0, 1)


async def main(folder: str) -> None:
    async with (
        FakeServer.http(era="both", tools=[echo_tool(), search(100), FakeTool("slow", slow)]) as fake,
        open_pool([Server(name="desk", plan=Plan(transport=HttpTransport(url=fake.url)))]) as pool,
        trio.open_nursery() as nursery,
    ):
        record = Record(pool)
        settings = ConsoleSettings(
            name="desk-pool", directory=folder, bind="127.0.0.1:0", read_token=READ, operate_token=OPERATE
        )
        async with open_console(pool, record=record, settings=settings) as console:
            tools = {who: await pool.tools(who, "desk") for who in (ALICE, BOB)}
            await tools[ALICE]["echo"].call({"text": "hello"}, identity=ALICE, call_id="call-1")
            heard = trio.Event()
            forget = pool.records.tap(
                on_event=lambda event: heard.set() if event.kind == "list-changed" else None
            )
            fake.set_tools([echo_tool(), search(50), FakeTool("slow", slow)])
            with trio.fail_after(30):
                await heard.wait()
            forget()
            with contextlib.suppress(AfpoolError):
                await tools[ALICE]["search"].call({"limit": 1}, identity=ALICE, call_id="call-2")
            tools[BOB] = await pool.tools(BOB, "desk")

            async def wait() -> None:
                with contextlib.suppress(AfpoolError):
                    await tools[BOB]["slow"].call({}, identity=BOB, call_id="call-3")

            nursery.start_soon(wait)
            with trio.open_signal_receiver(signal.SIGUSR1) as signals:
                print(json.dumps({"ready": list(console.addresses)}), flush=True)
                async for _ in signals:
                    stuck_in_a_loop()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        trio.run(main, sys.argv[1])
