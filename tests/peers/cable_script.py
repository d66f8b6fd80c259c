"""Run inside a network namespace of its own: a pool whose cable is pulled in the middle of things.

Prints one JSON object. The kernel's timers are shortened in here; their real values are checked elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Server
from afpool.testing import FakeServer, Hang
from afpool.transports import _connect

ALICE = Identity(tenant="acme", principal="alice")


def cable(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def shorten() -> None:
    changed: Any = _connect
    for name, value in {
        "_KEEPALIVE_IDLE": 1,
        "_KEEPALIVE_INTERVAL": 1,
        "_KEEPALIVE_PROBES": 2,
        "_USER_TIMEOUT_MS": 2000,
    }.items():
        if not hasattr(changed, name):
            raise AttributeError(name)
        setattr(changed, name, value)


async def main() -> dict[str, Any]:
    async with FakeServer.http() as fake:
        plan = Plan(transport=HttpTransport(url=fake.url))
        async with afpool.open_pool([Server(name="files", plan=plan)], list_ttl=60.0) as pool:
            tool = (await pool.tools(ALICE))["echo"]
            await tool.call({}, identity=ALICE)
            await fake.wait_until(lambda: fake.streams > 0)
            fake.on("tools/call", Hang())
            with trio.fail_after(40):
                async with trio.open_nursery() as nursery:
                    ends: list[str] = []

                    async def call() -> None:
                        try:
                            await tool.call({}, identity=ALICE)
                        except afpool.AfpoolError as error:
                            ends.append(f"{error.code} {error.delivery}")

                    nursery.start_soon(call)
                    await fake.wait_for("tools/call", 2)
                    cable("down")
                    began = time.monotonic()
                noticed = time.monotonic() - began
                kinds = [event.kind for event in pool.records.events]
                while "stream-lost" not in kinds:
                    await trio.sleep(0.1)
                    kinds = [event.kind for event in pool.records.events]
                stream = time.monotonic() - began
                # nothing can be sent while it is out, and it says so
                try:
                    await tool.call({}, identity=ALICE, deadline=trio.current_time() + 1)
                except afpool.AfpoolError as error:
                    ends.append(error.delivery)
                cable("up")
                fake.clear_rules()
                tool = (await pool.tools(ALICE))["echo"]
                text = (await tool.call({"n": 1}, identity=ALICE)).text
            return {
                "ends": ends,
                "noticed": noticed,
                "stream": stream,
                "text": text,
            }


if __name__ == "__main__":
    cable("up")
    shorten()
    sys.stdout.write(json.dumps(trio.run(main)))
