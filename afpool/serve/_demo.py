"""What `afpool serve --demo` serves: two built-in servers, two tenants, and a token for each.

The servers are those of `afpool.testing`, in this process, on loopback. Everything is made for the time of
the demo and is gone with it.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from .._base.identity import Identity
from ..artifacts import MemoryArtifacts, NewArtifact
from ..client import HttpTransport, Plan
from ..config import IdentityConfig, ServeConfig, TokensConfig
from ..pool import Server
from ..runtime import RuntimeConfig
from ..testing import FakeServer, FakeTool, Progress, counter_tool, echo_tool, whoami_tool
from ..tools import define_tool
from ._tokens import TokenFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from .._base.model import ToolContext

WHO: Final = (Identity("acme", "alice"), Identity("globex", "bob"))
_HEADERS: Final = ("x-tenant", "x-principal")

Tell = "Callable[[str, Callable[[str], object]], None]"


async def _count_down(arguments: Mapping[str, Any], _: object) -> Any:
    steps = max(1, min(int(arguments.get("steps", 3)), 60))
    for step in range(1, steps + 1):
        await trio.sleep(0.5)
        yield Progress(step, total=steps, message=f"step {step} of {steps}")
    yield f"{steps} steps done"


@define_tool
async def note(text: str, ctx: ToolContext) -> str:
    """Keep a text as an artifact of the caller's; nobody else can read it."""
    meta = await ctx.artifacts.put(
        NewArtifact(kind="note", media_type="text/plain", data=text, label=text[:40])
    )
    return f"kept as afpool://artifact/{meta.ref}"


@contextlib.asynccontextmanager
async def open_demo(serve: ServeConfig) -> AsyncIterator[tuple[RuntimeConfig, ServeConfig, Any]]:
    """Open the demo's servers for the time of the block.

    Gives the configuration of the runtime and of the service, and what announces the tokens.
    """
    schema = {"type": "object", "properties": {"steps": {"type": "integer", "minimum": 1, "maximum": 60}}}
    slow = FakeTool(
        "count_down", _count_down, description="Count down slowly, with progress.", input_schema=schema
    )
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="afpool-demo-")))
        desk = await stack.enter_async_context(
            FakeServer.http(era="both", tools=[echo_tool(), counter_tool(), slow])
        )
        directory = await stack.enter_async_context(
            FakeServer.http(era="both", tools=[whoami_tool(headers=list(_HEADERS))])
        )
        path = folder / "tokens"
        tokens = TokenFile(path)
        made = [(who, tokens.new(who, f"demo-{who.principal}").token) for who in WHO]

        def plan(_: str, projection: Identity) -> Plan:
            headers: dict[str, str] = dict(
                zip(_HEADERS, (projection.tenant or "", projection.principal or ""), strict=True)
            )
            return Plan(transport=HttpTransport(url=directory.url, headers=headers))

        runtime = RuntimeConfig(
            servers=[
                Server(name="desk", plan=Plan(transport=HttpTransport(url=desk.url))),
                Server(name="directory", keyed_on=("tenant", "principal")),
            ],
            plan=plan,
            tools=[note],
            artifacts=MemoryArtifacts(),
        )

        def tell(address: str, announce: Callable[[str], object]) -> None:
            for who, token in made:
                announce("")
                announce(f"tenant {who.tenant}, user {who.principal}: Bearer {token.reveal()}")
                if address.startswith("http"):
                    entry = {
                        "type": "http",
                        "url": address,
                        "headers": {"Authorization": f"Bearer {token.reveal()}"},
                    }
                    announce(json.dumps({"mcpServers": {"afpool": entry}}))

        identity = IdentityConfig(tokens=TokensConfig(file=str(path)))
        yield runtime, attrs.evolve(serve, identity=identity), tell
