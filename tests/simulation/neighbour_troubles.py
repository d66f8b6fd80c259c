"""What a tenant's server may do to its neighbours, and how that tenant goes on calling it all the while.

A trouble befalls only what one tenant asks for: where all tenants have one server, it tells them apart by a
header (or, of a child, by its environment). The 100 MB are made by the network as they leave.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

from afpool.testing import Action, Drop, FakeTool, Hang, Notice, RawBytes, Status
from tests.simulation.network import filler

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from afpool.testing import Arrival, FakeServer
    from tests.simulation.kernel import Sim

Kind: TypeAlias = Literal["http", "http-sse", "http-stateless", "websocket", "stdio"]

HUGE: Final = 100 * 1024 * 1024
NOISY: Final = "t00"
TENANT: Final = "x-tenant"


def is_noisy(arrival: Arrival) -> bool:
    """Whether the tenant in trouble asks."""
    return arrival.headers.get(TENANT) == NOISY


@attrs.frozen(eq=False)
class Trouble:
    """One kind of trouble.

    Attributes:
        name: In words.
        kind: What the tenant's server is, and that of all where they have one.
        begin: Makes the trouble, given the world, the server and whether it is everybody's.
        tool: What the tenant calls.
        conversations: Under how many keys.
        callers: How many calls at once under each.
        calls: How many each of them makes, one after the other.
    """

    name: str
    kind: Kind
    begin: Callable[[Sim, FakeServer, bool], None]
    tool: str = "sleep"
    conversations: int = 40
    callers: int = 8
    calls: int = 1_000_000


def _rules(**rules: Action) -> Callable[[Sim, FakeServer, bool], None]:
    def begin(sim: Sim, server: FakeServer, shared: bool) -> None:
        for name, action in rules.items():
            server.on(METHODS[name], action, when=is_noisy)

    return begin


METHODS: Final[Mapping[str, str]] = {
    "calls": "tools/call", "initialize": "initialize", "discover": "server/discover", "everything": "*",
}  # fmt: skip


def _connecting_hangs(sim: Sim, server: FakeServer, shared: bool) -> None:
    if shared:  # the network cannot tell who connects: the server leaves the opening unanswered
        _rules(initialize=Hang(), discover=Hang())(sim, server, shared)
    else:
        sim.network.listening[server.host, 80].how = "hang"


def huge_answer(kind: Kind) -> RawBytes:
    """An answer of 100 MB to a call."""
    text = b'"' + filler(HUGE) + b'"'
    if kind == "http":
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (HUGE + 2)
        return RawBytes(head + text)
    if kind == "http-sse":
        return RawBytes(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: " + text + b"\n\n")
    if kind == "websocket":
        return RawBytes(bytes([0x81, 127]) + struct.pack("!Q", HUGE + 2) + text)
    return RawBytes(b'{"jsonrpc":"2.0","id":@request-id@,"result":' + text + b"}\n")


def _floods(
    method: str, params: Mapping[str, Any], *, tools: int = 0
) -> Callable[[Sim, FakeServer, bool], None]:
    """A tool that says the same 40 times every 10 ms; with `tools`, each list is another one, and so long."""

    async def flood(arguments: Mapping[str, Any], arrival: Arrival) -> AsyncGenerator[Any, None]:
        for _ in range(int(arguments["seconds"] * 100)):
            for _ in range(40):
                yield Notice(method, dict(params))
            await trio.sleep(0.01)
        yield "done"

    def begin(sim: Sim, server: FakeServer, shared: bool) -> None:
        usual = list(server.engine.tools)
        asked = 0

        def listed(arrival: Arrival) -> list[FakeTool]:
            nonlocal asked
            if not is_noisy(arrival):
                return usual
            if arrival.method == "tools/list":
                asked += 1
            return [
                FakeTool("sleep", flood),
                *(FakeTool(f"tool-{n}", description=f"{asked} " + "y" * 200) for n in range(tools)),
            ]

        server.set_tools_for(listed)

    return begin


LOG: Final = {"level": "info", "data": "the same again"}
CHANGED: Final = "notifications/tools/list_changed"


def nothing(sim: Sim, server: FakeServer, shared: bool) -> None:
    """No trouble of the server's."""


BUSY: Final = Status(429, headers={"retry-after": "1"})

TROUBLES: Final = (
    Trouble("hangs in connect", "http", _connecting_hangs),
    Trouble("hangs in call", "http", _rules(calls=Hang())),
    Trouble("hangs in call", "stdio", _rules(calls=Hang())),
    Trouble("100 MB body", "http", _rules(calls=huge_answer("http")), conversations=2, callers=1, calls=1),
    Trouble(
        "100 MB event", "http-sse", _rules(calls=huge_answer("http-sse")), conversations=2, callers=1, calls=1
    ),
    Trouble("100 MB line", "stdio", _rules(calls=huge_answer("stdio")), conversations=2, callers=1, calls=1),
    Trouble(
        "100 MB message",
        "websocket",
        _rules(calls=huge_answer("websocket")),
        conversations=2,
        callers=1,
        calls=1,
    ),
    Trouble("notifications", "http-sse", _floods("notifications/message", LOG), conversations=1, callers=1),
    Trouble("notifications", "stdio", _floods("notifications/message", LOG), conversations=1, callers=1),
    Trouble("429 to calls", "http", _rules(calls=BUSY), conversations=8, callers=4),
    Trouble("429 to all", "http-stateless", _rules(everything=BUSY), conversations=8, callers=4),
    Trouble("list changes", "http-sse", _floods(CHANGED, {}), conversations=1, callers=1),
    Trouble("large lists", "stdio", _floods(CHANGED, {}, tools=500), conversations=2, callers=1),
    Trouble("crash in call", "stdio", _rules(calls=Drop()), conversations=4, callers=2),
    Trouble(
        "crash at start", "stdio", _rules(initialize=Drop(), discover=Drop()), conversations=8, callers=2
    ),
)
