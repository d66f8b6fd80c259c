"""Openings of this project's client: `python open_subject.py KIND URL AUTHORITY`; see `windows.py`."""

from __future__ import annotations

import itertools
import sys
import time

import trio
import windows
from responders import TEXT

import afpool
from afpool import HttpTransport, Identity, Plan, Server, TlsConfig

CROWD = 500  # other clients that stay open meanwhile
ALICE = Identity(tenant="acme", principal="alice")


async def opened(kind: str, url: str, authority: str) -> None:
    """Open a client for one identity after the other."""
    tls = TlsConfig(ca_file=authority) if url.startswith("https:") else TlsConfig()
    server = Server(name="responder", plan=Plan(transport=HttpTransport(url=url, tls=tls)))
    numbers = itertools.count()
    share = None if kind == "open-afpool-lists" else lambda _server, _who: "everybody"
    async with afpool.open_pool([server], share=share) as pool:
        kept = await pool.tools(ALICE)  # so that the shared list lives
        for number in range(CROWD if kind == "open-afpool-crowd" else 0):
            await pool.warm(Identity(tenant="acme", principal=f"other-{number}"))

        async def once() -> tuple[float, float]:
            who = Identity(tenant="acme", principal=f"p{next(numbers)}")
            began = time.perf_counter()
            tool = (await pool.tools(who))["echo"]
            result = await tool.call({"text": TEXT}, identity=who)
            ended = time.perf_counter()
            if result.text != TEXT:
                raise RuntimeError("the answer is not the one to this request")
            pool.evict(pool.key_of(who, "responder"))
            await trio.sleep(0.001)  # its connection is closed in the background
            return began, ended

        await windows.openings(once)
        del kept


if __name__ == "__main__":
    trio.run(opened, *sys.argv[1:])
