"""What `afpool serve --demo` serves: two built-in servers, two tenants, and a token for each.

Nobody calls unless a client does; with `--traffic` the tenants do (`_demo_traffic`).
The servers are those of `afpool.testing`, in this process, on loopback. Everything is made for the time of
the demo and is gone with it; so are its tokens, but for others that are in the file that is named for them.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ..artifacts import MemoryArtifacts, NewArtifact
from ..client import HttpTransport, Plan
from ..config import IdentityConfig, ServeConfig, TokensConfig
from ..pool import Server
from ..runtime import RuntimeConfig
from ..testing import FakeServer, FakeTool, Progress, counter_tool, echo_tool, whoami_tool
from ..tools import define_tool
from ._demo_traffic import ALICE, BOB, PLACES, open_traffic, summary
from ._tokens import TokenFile
from ._tokens_file import TokenFileError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from .._base.identity import Identity
    from .._base.model import ToolContext
    from ..runtime import Runtime

WHO: Final = (ALICE, BOB)
_HEADERS: Final = ("x-tenant", "x-principal")


@attrs.frozen
class Demo:
    """What is served, and to whom.

    Attributes:
        runtime: Configuration of the runtime.
        serve: Configuration of the service.
        tell: Announces the tokens: given the service's address, and what takes lines.
        play: Calls for the two tenants until it is cancelled; `None` where they are left alone.
    """

    runtime: RuntimeConfig
    serve: ServeConfig
    tell: Callable[[str, Callable[[str], object]], None]
    play: Callable[[Runtime], Awaitable[object]] | None


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


def _revoke(tokens: TokenFile, number: str) -> None:
    with contextlib.suppress(TokenFileError):  # whoever took the file away has revoked it as well
        tokens.revoke(number)


@contextlib.asynccontextmanager
async def open_demo(serve: ServeConfig, *, traffic: bool = False) -> AsyncIterator[Demo]:
    """Open the demo's servers for the time of the block.

    Args:
        serve: Where to serve, and how.
        traffic: Whether the two tenants do something by themselves; see `_demo_traffic`.
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
        busy = await stack.enter_async_context(open_traffic()) if traffic else None
        named = serve.identity.tokens
        path = folder / "tokens" if named is None else Path(named.file)
        tokens = TokenFile(path)
        made = []
        for who in WHO:
            new = await trio.to_thread.run_sync(tokens.new, who, f"demo-{who.principal}")
            stack.callback(_revoke, tokens, new.entry.id)
            made.append((who, new.token))

        def plan(_: str, projection: Identity) -> Plan:
            headers: dict[str, str] = dict(
                zip(_HEADERS, (projection.tenant or "", projection.principal or ""), strict=True)
            )
            return Plan(transport=HttpTransport(url=directory.url, headers=headers))

        runtime = RuntimeConfig(
            servers=[
                Server(name="desk", plan=Plan(transport=HttpTransport(url=desk.url))),
                Server(name="directory", keyed_on=("tenant", "principal")),
                *(() if busy is None else busy.servers),
            ],
            plan=plan,
            tools=[note] if busy is None else [note, summary],
            artifacts=MemoryArtifacts(),
            pool={} if busy is None else {"max_operations": PLACES},
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
        play = None if busy is None else busy.run
        yield Demo(runtime, attrs.evolve(serve, identity=identity), tell, play)
