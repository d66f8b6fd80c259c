"""Heads as they come over a real connection: what a proxy says, and what somebody smuggles past it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import RuntimeConfig, define_tool
from afpool.config import IdentityConfig, ProxyConfig, ServeConfig
from afpool.pool._asking import ask_identity
from afpool.serve import open_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "who", "arguments": {}, "_meta": META},
    }
).encode()
USUAL = (
    b"Host: localhost", b"Content-Type: application/json", b"Accept: application/json, text/event-stream",
    b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tools/call", b"Mcp-Name: who",
)  # fmt: skip
LENGTH = b"Content-Length: %d" % len(BODY)
TENANT, USER = b"X-Tenant: acme", b"X-User: alice"


async def who(_: Any, ctx: Any) -> str:
    """Say who calls."""
    await trio.lowlevel.checkpoint()
    caller = ask_identity(ctx.identity)
    return f"<{caller.tenant}/{caller.principal}>"


@contextlib.asynccontextmanager
async def serving(trusted: str, bind: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """A service behind a proxy at an address, and where it listens."""
    proxy = ProxyConfig(trusted=(trusted,), headers={"tenant": "x-tenant", "principal": "x-user"})
    door = ServeConfig(bind=bind, identity=IdentityConfig(proxy=proxy))
    async with open_service(
        RuntimeConfig(tools=[define_tool(execute=who, name="who", input_schema={"type": "object"})]),
        door,
        listen=True,
    ) as service:
        yield service.addresses[0]


async def said(address: str, *lines: bytes, end: bytes = LENGTH, body: bytes = BODY) -> tuple[int, bytes]:
    """Send one request with these lines as they are, and give status and rest of what is answered."""
    if address.startswith("unix:"):
        stream: Any = await trio.open_unix_socket(address.removeprefix("unix:").removesuffix("/mcp"))
    else:
        host, _, port = address.removeprefix("http://").removesuffix("/mcp").rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
    heard = b""
    async with stream:
        with trio.fail_after(10), contextlib.suppress(trio.BrokenResourceError):
            head = b"\r\n".join((b"POST /mcp HTTP/1.1", *USUAL, b"Connection: close", *lines, end))
            await stream.send_all(head + b"\r\n\r\n" + body)
            while piece := await stream.receive_some(65536):
                heard += piece
    top, _, rest = heard.partition(b"\r\n\r\n")
    return int(top.split(b" ", 2)[1]), rest


async def test_the_proxy_at_its_address_says_who_calls() -> None:
    async with serving("127.0.0.1") as address:
        status, rest = await said(address, TENANT, USER)
        assert status == 200
        assert b"<acme/alice>" in rest
        status, rest = await said(address)
        assert status == 401


@pytest.mark.parametrize("line", [TENANT, b"x-user: alice", b"X_Tenant: acme"])
async def test_at_another_address_nobody_does(line: bytes) -> None:
    async with serving("127.0.0.2") as address:
        status, rest = await said(address, line, b"X-Forwarded-For: 127.0.0.2")
        assert status == 403
        assert b"identity-header-refused" in rest


@pytest.mark.parametrize(
    "lines",
    [
        (TENANT, b"X-Tenant: globex"),
        (TENANT, b"x-tenant: acme"),
        (TENANT, b"X_Tenant: globex"),
        (b"X_Tenant: globex", TENANT),
        (TENANT, b"X-Tenant : globex"),
        (TENANT, b" globex"),
        (TENANT, b"\tglobex"),
        (TENANT, b"X-Other: a\r", b"X-Tenant: globex"),
        (TENANT, b"X-Other: a\nX-Tenant: globex"),
        (TENANT, b"X-Other: a\0"),
        (TENANT, b"Host: localhost"),
        (TENANT, b"Content-Length: 5"),
        (TENANT, b"Content_Length: 5"),
        (TENANT, b"Transfer-Encoding: chunked"),
        (b"X-Tenant: ac\xffme",),
        (b"X-Tenant: \xc3",),
    ],
)
async def test_what_is_smuggled_beside_it_is_never_somebody_else(lines: tuple[bytes, ...]) -> None:
    """Refused, or read as one odd name that nobody has; never as the one that was smuggled in."""
    async with serving("127.0.0.1") as address:
        status, rest = await said(address, *lines, USER)
        assert status == 400 or (status == 200 and b"<globex/" not in rest and b"<acme/" not in rest), rest
        status, rest = await said(address, TENANT, USER)
        assert b"<acme/alice>" in rest


async def test_over_a_socket_whoever_may_open_it_is_the_proxy(tmp_path: Path) -> None:
    path = tmp_path / "door"
    async with serving("unix", f"unix:{path}") as address:
        status, rest = await said(address, TENANT, USER)
        assert status == 200
        assert b"<acme/alice>" in rest
    async with serving("127.0.0.1", f"unix:{path}") as address:
        assert (await said(address, TENANT, USER))[0] == 403
