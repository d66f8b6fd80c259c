"""Who an offered tool is called for, and what it then means; no framework is needed for that."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from afpool import HttpTransport, Identity, IdentityMissing, Plan, RuntimeConfig, Server
from afpool.adapters._callers import OfferedTool, caller_of
from afpool.aio import open_runtime
from afpool.testing import FakeServer, FakeTool, in_memory
from tests.aio.aio_kit import ALICE, BOB, WITHIN, in_asyncio


def files(says: str, argument: str) -> FakeTool:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}}
    return FakeTool("read", lambda *_: says, inputSchema=schema)


@contextlib.asynccontextmanager
async def config() -> Any:
    """Alice and her colleague see one server, Bob another one, whose tool of that name is another."""
    acme = FakeServer.http(tools=[files("acme", "path")], memory=True, host="acme.test")
    globex = FakeServer.http(tools=[files("globex", "url")], memory=True, host="globex.test")
    async with acme, globex:

        def plan(_server: str, identity: Identity) -> Plan:
            fake = acme if identity.tenant == "acme" else globex
            return Plan(transport=HttpTransport(url=fake.url))

        yield RuntimeConfig(servers=[Server(name="files")], plan=plan, seams=in_memory(acme, globex))


def called(identity_of: Any, context: Any, *, blocking: bool) -> Any:
    async def main() -> Any:
        async with open_runtime(config) as runtime:
            toolset = await runtime.toolset(ALICE)
            offered = OfferedTool(runtime, toolset, toolset["read"], identity_of, None)
            if blocking:
                async with asyncio.timeout(WITHIN):
                    return await asyncio.to_thread(offered.call_blocking, {}, context)
            return await offered.call({}, context)

    return in_asyncio(main)


@pytest.mark.parametrize("blocking", [False, True], ids=["loop", "thread"])
def test_a_tool_means_what_was_offered(blocking: bool) -> None:
    colleague = Identity(tenant="acme", principal="carol")
    assert called(None, None, blocking=blocking).text == "acme"
    assert called(lambda who: who, colleague, blocking=blocking).text == "acme"
    other = called(lambda who: who, BOB, blocking=blocking)
    assert (other.code, other.delivery) == ("stale-tools", "not-sent")
    nobody = called(lambda who: who, None, blocking=blocking)
    assert (nobody.code, nobody.delivery) == ("identity-missing", "not-sent")


def test_a_runtime_that_is_closed_is_a_result() -> None:
    async def main() -> None:
        async with open_runtime(config) as runtime:
            toolset = await runtime.toolset(ALICE)
        offered = OfferedTool(runtime, toolset, toolset["read"], lambda who: who, None)
        assert (await offered.call({}, ALICE)).code == "pool-closed"

    in_asyncio(main)


def test_whoever_says_who_calls_names_somebody() -> None:
    assert caller_of(lambda _: ALICE, None) == ALICE
    assert callable(caller_of(lambda _: lambda: ALICE, None))
    with pytest.raises(IdentityMissing, match="gave str, no identity"):
        caller_of(lambda _: "alice", None)  # type: ignore[arg-type, return-value]
    with pytest.raises(IdentityMissing, match="raised KeyError") as caught:
        caller_of(lambda context: context["s3cr3t"], {})
    assert "s3cr3t" not in str(caught.value)
