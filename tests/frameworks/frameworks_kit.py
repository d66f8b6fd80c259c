"""What the tests of the adapters share: two real servers, two tenants, and loops within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from afpool import HttpTransport, Identity, Plan, Server, StdioTransport
from afpool.aio import AsyncRuntime, open_runtime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

WITHIN = 50.0
PEER = Path(__file__).resolve().parents[1] / "peers" / "servers" / "mcp2_server.py"
SCRIPT = '{"tools": ["counter", {"name": "hang", "builtin": "sleep"}, "whoami"]}'
ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="globex", principal="bob")


@attrs.frozen
class Deps:
    """What an agent's run is given."""

    identity: Identity | None


@contextlib.contextmanager
def sdk_server() -> Iterator[str]:
    """The official SDK's server in a process of its own; gives its URL."""
    process = subprocess.Popen(
        [sys.executable, str(PEER), "http", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    guard = threading.Timer(WITHIN, process.kill)
    guard.start()
    try:
        ready = next((line for line in process.stdout if line.startswith("ready http")), None)
        assert ready is not None, "the server did not get ready"
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        yield ready.split()[1]
    finally:
        guard.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        reader.join(10)
        process.stdin.close()
        process.stdout.close()


@contextlib.asynccontextmanager
async def opened(**fields: Any) -> AsyncIterator[AsyncRuntime]:
    """A runtime over the SDK's server and a fake one, both processes; connections are a tenant's own."""
    with sdk_server() as url:

        def plan(server: str, identity: Identity) -> Plan:
            if server == "sdk":
                headers = {"x-tenant": identity.tenant or "nobody"}
                return Plan(transport=HttpTransport(url=url, headers=headers))
            command = (sys.executable, "-m", "afpool.testing", "stdio", "--script", SCRIPT)
            return Plan(transport=StdioTransport.of(*command, env={"USER_TOKEN": identity.tenant or ""}))

        servers = [Server(name="sdk"), Server(name="fake")]
        async with open_runtime(servers=servers, plan=plan, **fields) as runtime:
            yield runtime


def in_asyncio(main: Callable[[AsyncRuntime], Coroutine[Any, Any, Any]], **fields: Any) -> None:
    """Run a test over a runtime, within a bound."""

    async def bounded() -> None:
        async with asyncio.timeout(WITHIN), opened(**fields) as runtime:
            await main(runtime)

    asyncio.run(bounded(), debug=True)
