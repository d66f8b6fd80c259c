"""A service in memory: real tokens, a fake server or several behind it, an ASGI client in front of it."""

from __future__ import annotations

import contextlib
import json
from collections import deque

import attrs
import trio

from afpool import HttpTransport, Identity, Plan, Server
from afpool.config import IdentityConfig, ServeConfig, TokensConfig
from afpool.runtime import RuntimeConfig
from afpool.serve import TokenFile, open_service
from afpool.testing import FakeServer, echo_tool

ALICE = Identity("acme", "alice")
BOB = Identity("globex", "bob")
HANDSHAKE = "2025-11-25"
STATELESS = "2026-07-28"
META = "io.modelcontextprotocol/"


async def until(condition, seconds=5):
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 -- of others' state, which has no event for it
            await trio.sleep(0.005)


def envelope(capabilities=None, **meta):
    return {
        f"{META}protocolVersion": STATELESS,
        f"{META}clientCapabilities": {} if capabilities is None else capabilities,
        f"{META}clientInfo": {"name": "test", "version": "1"},
        **meta,
    }


class Answer:
    """What one request is answered with, while it comes."""

    def __init__(self):
        self.status = None
        self.headers = {}
        self.body = b""
        self.started = trio.Event()
        self.ended = trio.Event()
        self.more = trio.Event()

    async def send(self, event):
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = {name.decode(): value.decode() for name, value in event["headers"]}
            self.started.set()
        else:
            self.body += event.get("body", b"")
            more, self.more = self.more, trio.Event()
            more.set()
        await trio.lowlevel.checkpoint()

    @property
    def json(self):
        if self.headers.get("content-type") == "text/event-stream":
            return self.events[-1]
        return json.loads(self.body)

    @property
    def events(self):
        found = []
        for block in self.body.replace(b"\r\n", b"\n").split(b"\n\n"):
            data = b"".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
            if data:
                found.append(json.loads(data))
        return found

    async def event(self, method, count=1):
        """Wait for the nth event of a method, and give it."""
        with trio.fail_after(5):
            while len(said := [each for each in self.events if each.get("method") == method]) < count:
                await self.more.wait()
        return said[count - 1]


class Caller:
    """One client in memory."""

    def __init__(self, app, token, nursery):
        self.app = app
        self.token = token
        self.nursery = nursery
        self.session = None
        self.number = 0

    def begin(self, method="POST", path="/mcp", message=None, *, headers=None, body=None, gone=None):
        """Start a request; `gone` is set by whoever wants its client to go."""
        raw = body if body is not None else b"" if message is None else json.dumps(message).encode()
        said = {
            "host": "127.0.0.1",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        if self.token is not None:
            said["authorization"] = f"Bearer {self.token}"
        if self.session is not None:
            said["mcp-session-id"] = self.session
        said |= headers or {}
        scope = {
            "type": "http", "method": method, "path": path, "query_string": b"", "scheme": "http",
            "headers": [
                (name.encode(), str(value).encode()) for name, value in said.items() if value is not None
            ],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "http_version": "1.1",
        }  # fmt: skip
        answer = Answer()
        events = deque([{"type": "http.request", "body": raw, "more_body": False}])
        left = trio.Event() if gone is None else gone

        async def receive():
            if events:
                return events.popleft()
            await left.wait()
            return {"type": "http.disconnect"}

        async def run():
            try:
                await self.app(scope, receive, answer.send)
            finally:
                answer.started.set()
                answer.ended.set()
                answer.more.set()

        self.nursery.start_soon(run)
        return answer

    async def ask(self, *args, **kwargs):
        answer = self.begin(*args, **kwargs)
        with trio.fail_after(10):
            await answer.ended.wait()
        return answer

    # handshake era

    async def open(self, version=HANDSHAKE, capabilities=None):
        params = {
            "protocolVersion": version,
            "capabilities": {} if capabilities is None else capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }
        answer = await self.ask(message=self.request("initialize", params))
        assert answer.status == 200, answer.body
        self.session = answer.headers["mcp-session-id"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.ask(message=told)).status == 202
        return answer.json["result"]

    def request(self, method, params=None):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method}
        if params is not None:
            message["params"] = params
        return message

    async def rpc(self, method, params=None, **kwargs):
        return (await self.ask(message=self.request(method, params), **kwargs)).json

    async def tools(self):
        return (await self.rpc("tools/list"))["result"]["tools"]

    async def call(self, name, arguments=None, **kwargs):
        params = {"name": name, "arguments": {} if arguments is None else arguments}
        return (await self.rpc("tools/call", params, **kwargs))["result"]

    # stateless era

    def modern(self, method, params=None, *, capabilities=None, meta=None, headers=None, **kwargs):
        params = dict(params or {})
        params["_meta"] = envelope(capabilities, **(meta or {}))
        said = {"mcp-protocol-version": STATELESS, "mcp-method": method, "mcp-session-id": None}
        name = params.get("name", params.get("uri"))
        if name is not None:
            said["mcp-name"] = name
        return self.begin(message=self.request(method, params), headers=said | (headers or {}), **kwargs)

    async def modern_rpc(self, method, params=None, **kwargs):
        answer = self.modern(method, params, **kwargs)
        with trio.fail_after(10):
            await answer.ended.wait()
        return answer


@attrs.define
class Place:
    """What a test works with."""

    service: object
    servers: dict
    tokens: TokenFile
    texts: dict
    nursery: object
    runtime_config: object

    @property
    def server(self):
        return next(iter(self.servers.values()))

    def client(self, who=ALICE, token=None):
        return Caller(self.service.app, token or self.texts[who], self.nursery)

    async def opened(self, who=ALICE, **kwargs):
        client = self.client(who)
        await client.open(**kwargs)
        return client


@contextlib.asynccontextmanager
async def place(
    tmp_path, *, servers=None, runtime=None, serve=None, identity=None, listen=False, bind=None, http=None
):
    """A service before one fake server, or several by name to their tools."""
    path = tmp_path / "tokens"
    tokens = TokenFile(path)
    texts = {who: tokens.new(who, who.principal).token.reveal() for who in (ALICE, BOB)}
    tools = {"desk": [echo_tool()]} if servers is None else servers
    async with contextlib.AsyncExitStack() as stack:
        running = {
            name: await stack.enter_async_context(
                FakeServer.http(**{"era": "both", **(http or {})}, tools=offered)
            )
            for name, offered in tools.items()
        }
        config = RuntimeConfig(
            servers=[
                Server(name=name, plan=Plan(transport=HttpTransport(url=one.url)))
                for name, one in running.items()
            ],
            **(runtime or {}),
        )
        bind = bind or ("127.0.0.1:0" if listen else "127.0.0.1:8765")
        door = ServeConfig(
            bind=bind,
            identity=IdentityConfig(tokens=TokensConfig(file=str(path)), **(identity or {})),
            **(serve or {}),
        )
        service = await stack.enter_async_context(open_service(config, door, listen=listen))
        async with trio.open_nursery() as nursery:
            yield Place(service, running, tokens, texts, nursery, config)
            nursery.cancel_scope.cancel()
