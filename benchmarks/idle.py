"""What a key keeps while its client is open and nobody calls: memory, descriptors, tasks.

    python benchmarks/idle.py [--keys N] [--only http|stream|tls]

Each way is a process of its own that opens so many clients against one responder: plain HTTP without a
notification stream (2026-07-28 has none here), plain HTTP with one (a session of 2025-11-25), and TLS with
one shared configuration. Each client has called once, and its connection is still there. Memory is resident
memory after a collection, beside what it was with one client open. Exit code 1 when a bar was missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trio
from compare import responder
from figures import Figure, tell
from memory import resident
from openings import certificate
from responders import TEXT

import afpool
from afpool import HttpTransport, Identity, Plan, Server, TlsConfig

KB = 1024
LIMITS = {"http": 5.0, "stream": 11.0, "tls": 40.0}
VERSIONS = {"http": "2026-07-28", "stream": "2025-11-25", "tls": "2026-07-28"}


async def measure(way: str, url: str, authority: str, count: int) -> dict[str, float]:
    """Open so many clients; what each of them keeps."""
    tls = TlsConfig(ca_file=authority) if way == "tls" else TlsConfig()
    transport = HttpTransport(url=url.replace("/mcp", "/stream") if way == "stream" else url, tls=tls)
    plan = Plan(transport=transport, protocol_version=VERSIONS[way])
    pool_options: dict[str, Any] = {
        "max_clients": count + 100,
        "keepalive_expiry": 3600.0,
        "idle_timeout": 3600.0,
    }
    async with afpool.open_pool([Server(name="here", plan=plan)], **pool_options) as pool:
        held = [await _used(pool, number) for number in range(20)]
        before = _now()
        held += [await _used(pool, 20 + number) for number in range(count)]
        after = _now()
        assert pool.statistics().clients == count + 20
        del held
    return {name: (after[name] - before[name]) / count for name in before}


async def _used(pool: afpool.Pool, number: int) -> object:
    """A key whose tool was called once."""
    who = Identity(tenant=f"t{number % 97}", principal=f"p{number}")
    tool = (await pool.tools(who))["echo"]
    await tool.call({"text": TEXT}, identity=who)
    return tool


def _now() -> dict[str, float]:
    return {
        "bytes": resident(),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
    }


def figures(way: str, found: dict[str, float]) -> list[Figure]:
    """What was seen, and what is judged of it."""
    return [
        Figure(f"{way}: memory of a key with an open client", found["bytes"] / KB, "KB", LIMITS[way]),
        Figure(f"{way}: its descriptors", found["descriptors"], "", 1.02 if way != "stream" else 2.02),
        Figure(f"{way}: its tasks", found["tasks"], ""),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="What a key with an open client keeps.")
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--only", choices=sorted(LIMITS), action="append")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(trio.run(measure, *options.one, options.keys)))
        return 0
    seen: list[Figure] = []
    for way in options.only or [*LIMITS]:
        with ExitStack() as stack:
            server, authority = certificate(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            url = stack.enter_context(responder(None, server if way == "tls" else None))
            command = [
                sys.executable,
                __file__,
                "--keys",
                str(options.keys),
                "--one",
                way,
                url,
                str(authority),
            ]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seen += figures(way, json.loads(done.stdout))
    return tell(seen, "idle")


if __name__ == "__main__":
    sys.exit(main())
