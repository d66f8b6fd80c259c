"""A raw HTTP/1.1 client for the tests of the fake: nothing of afpool stands between them and the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import h11
import pytest
import trio

if TYPE_CHECKING:
    import ssl

    from afpool.testing import FakeServer

BOTH = "application/json, text/event-stream"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@attrs.frozen
class Seen:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The messages of an event stream with plain line ends."""
        found = []
        for block in self.body.decode().split("\n\n"):
            data = [line[len("data: ") :] for line in block.split("\n") if line.startswith("data: ")]
            if data:
                found.append(json.loads("\n".join(data)))
        return found

    @property
    def message(self) -> Any:
        """The answer, however it came."""
        return self.events[-1] if self.headers["content-type"] == "text/event-stream" else self.json


class CutError(ConnectionError):
    """The connection ended; holds what had come of the answer."""

    def __init__(self, status: int | None, body: bytes) -> None:
        super().__init__(f"cut after status {status} and {len(body)} bytes")
        self.status = status
        self.body = body


def raise_cut() -> None:
    raise CutError(None, b"")


class Client:
    """One connection, and by hand what an MCP client would do."""

    def __init__(self, server: FakeServer, stream: trio.abc.Stream) -> None:
        self.server = server
        self.stream = stream
        self.session: str | None = None
        self._http = h11.Connection(h11.CLIENT)
        self._ids = 0

    async def send(self, verb: str, body: bytes = b"", **headers: str) -> None:
        sent = {"host": "test", "content-length": str(len(body))}
        if verb == "POST":
            sent |= {"accept": BOTH, "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = h11.Request(method=verb, target=self.server.path, headers=list(sent.items()))
        data = self._http.send(request) or b""
        data += self._http.send(h11.Data(data=body)) or b""
        await self.stream.send_all(data + (self._http.send(h11.EndOfMessage()) or b""))

    async def event(self) -> Any:
        while (found := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                raise CutError(None, b"") from None
            try:
                self._http.receive_data(data)
                found = self._http.next_event()
            except h11.RemoteProtocolError:
                raise CutError(None, b"") from None
            if found is not h11.NEED_DATA:
                return found
        return found

    async def receive(self) -> Seen:
        response, body = None, b""
        try:
            while True:
                found = await self.event()
                if isinstance(found, h11.Response):
                    response = found
                elif isinstance(found, h11.Data):
                    body += bytes(found.data)
                elif isinstance(found, h11.EndOfMessage):
                    break
                else:
                    raise_cut()
        except (CutError, h11.RemoteProtocolError):
            raise CutError(response.status_code if response else None, body) from None
        assert response is not None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return Seen(response.status_code, {k.decode(): v.decode() for k, v in response.headers}, body)

    async def ask(self, verb: str, body: bytes = b"", **headers: str) -> Seen:
        await self.send(verb, body, **headers)
        return await self.receive()

    def message(self, method: str, params: Any = None, rpc_id: Any = None) -> bytes:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        if not method.startswith("notifications/"):
            self._ids += 1
            message["id"] = self._ids if rpc_id is None else rpc_id
        return json.dumps(message).encode()

    # Handshake era

    def session_headers(self) -> dict[str, str]:
        headers = {"mcp_protocol_version": "2025-11-25"}
        if self.session is not None:
            headers["mcp_session_id"] = self.session
        return headers

    async def rpc(self, method: str, params: Any = None, rpc_id: Any = None, **headers: str) -> Seen:
        return await self.ask(
            "POST", self.message(method, params, rpc_id), **self.session_headers(), **headers
        )

    async def initialize(self) -> Seen:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"},
        }
        seen = await self.ask("POST", self.message("initialize", params))
        assert seen.status == 200, seen
        self.session = seen.headers.get("mcp-session-id")
        accepted = await self.rpc("notifications/initialized")
        assert (accepted.status, accepted.body) == (202, b"")
        return seen

    async def call(self, tool: str, arguments: Any = None, rpc_id: Any = None, **headers: str) -> Seen:
        return await self.rpc("tools/call", {"name": tool, "arguments": arguments or {}}, rpc_id, **headers)

    async def open_stream(self) -> None:
        await self.send("GET", accept="text/event-stream", **self.session_headers())

    # Stateless era

    def modern(self, method: str, params: Any = None, rpc_id: Any = None) -> tuple[bytes, dict[str, str]]:
        params = {**(params or {}), "_meta": META}
        headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": method}
        if "name" in params:
            headers["mcp_name"] = params["name"]
        return self.message(method, params, rpc_id), headers

    async def modern_rpc(self, method: str, params: Any = None, rpc_id: Any = None, **headers: str) -> Seen:
        body, sent = self.modern(method, params, rpc_id)
        return await self.ask("POST", body, **(sent | headers))

    async def modern_call(self, tool: str, arguments: Any = None, **headers: str) -> Seen:
        return await self.modern_rpc("tools/call", {"name": tool, "arguments": arguments or {}}, **headers)

    async def receive_end(self) -> None:
        """Read an open event stream up to its proper end."""
        while not isinstance(await self.event(), h11.EndOfMessage):
            pass

    async def next_message(self) -> Any:
        """The next message of an open event stream."""
        while True:
            found = await self.event()
            if isinstance(found, h11.Data):
                return json.loads(bytes(found.data).decode().split("data: ", 1)[1])
            assert isinstance(found, h11.Response), found
            assert found.status_code == 200


Connect = Callable[..., Any]


@pytest.fixture
async def connect():
    """Opens raw clients of a server; all are closed at the end."""
    opened: list[trio.abc.Stream] = []

    async def connect(server: FakeServer, *, trust: ssl.SSLContext | None = None) -> Client:
        stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        if trust is not None:
            stream = trio.SSLStream(stream, trust, server_hostname="localhost", https_compatible=True)
        opened.append(stream)
        return Client(server, stream)

    yield connect
    for stream in opened:
        await trio.aclose_forcefully(stream)
