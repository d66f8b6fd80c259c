"""Worlds for what is asked of a bound server: every transport, both eras, one way to look at what arrived."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import afpool
from afpool import Server, StdioConfig, StdioTransport
from afpool.testing import Delay, FakePrompt, FakeResource, FakeServer, Rule
from tests.pool.kit import Host, memory_world, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from afpool import Pool
    from afpool.testing import Arrival

KEY = "com.example/callId"
NOTES = "note://one"
CASES = [(way, era) for way in ("http", "stdio", "memory") for era in ("handshake", "stateless")]
EVERYWHERE = pytest.mark.parametrize(("way", "era"), CASES, ids=["-".join(case) for case in CASES])


@attrs.define(eq=False)
class Bound:
    """A pool over one server `files`, and what has arrived there."""

    pool: Pool
    host: Host
    arrivals: Callable[[], list[Arrival]]
    rules: Any = None
    engine: Any = None

    def count(self, method: str) -> int:
        return sum(arrival.name == method for arrival in self.arrivals())

    def last(self, method: str) -> Arrival:
        return [arrival for arrival in self.arrivals() if arrival.name == method][-1]


def furnish(offers: Any) -> None:
    offers.resources = [FakeResource(NOTES, "first"), FakeResource("note://two", "second")]
    offers.prompts = [FakePrompt("greet", "Hello {name}", ["name"])]
    offers.complete = lambda params: [params["argument"]["value"] + "!"]
    offers.logging = True


@contextlib.asynccontextmanager
async def bound_world(
    way: str,
    era: str,
    tmp_path: Path,
    *,
    pool: Mapping[str, Any] | None = None,
    slow: str | None = None,
    script: Mapping[str, Any] | None = None,
) -> AsyncIterator[Bound]:
    """Open it over one transport and in one era; `slow` is a method that takes half a minute.

    `script` are further members of a child's script.
    """
    rules = [] if slow is None else [Rule(slow, Delay(30))]
    if way == "http":
        async with world(http={"era": era}, pool=pool) as here:
            furnish(here.server.offers)
            here.server.engine.rules.rules += rules
            yield Bound(
                here.pool, here.host, lambda: here.server.log, here.server.engine.rules, here.server.engine
            )
    elif way == "memory":
        async with memory_world(era=era, pool=pool) as (server, host, opened):
            furnish(server.engine.offers)
            server.engine.rules.rules += rules
            yield Bound(opened, host, lambda: server.ledger.arrivals, server.engine.rules, server.engine)
    else:
        log = tmp_path / "log"
        played = {
            "resources": {NOTES: "first", "note://two": "second"},
            "prompts": {"greet": "Hello {name}"},
            "logging": True,
            "rules": [{"method": slow, "action": {"do": "Delay", "seconds": 30}}] if slow else [],
            **(script or {}),
        }
        command = FakeServer.stdio_command(played, era=era, log=log)  # type: ignore[arg-type]

        def transport(host: Host, projection: Any) -> StdioTransport:
            config = StdioConfig(tuple(command), env={"VARIANT": host.variant})
            return StdioTransport(config=config)

        host = Host(transport)
        options = {"plan": host.plan, "share": host.share, **(pool or {})}
        async with afpool.open_pool([Server(name="files")], **options) as opened:
            yield Bound(opened, host, lambda: FakeServer.read_log(log))
