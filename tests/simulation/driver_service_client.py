"""Clients of a simulated service: each request is one ASGI scope, whose pieces are filed as they are sent."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from tests.simulation import steps as s
from tests.simulation.driver_steps import Skip
from tests.simulation.ground_service import Over, Piece, Presented, WentAway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.driver_service import ServiceRun

HANDSHAKE: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"
META: Final = "io.modelcontextprotocol/"
METHODS: Final = {"call": "tools/call", "list": "tools/list", "ping": "ping", "resources": "resources/list"}


@attrs.define(eq=False)
class Client:
    """A client: its token, its era, and its session once it has one."""

    name: str
    token: str
    era: str
    answers: bool
    session: str | None = None
    names: dict[str, str] = attrs.field(factory=dict)
    number: int = 0


class Exchange:
    """One request of a client, and what came of it.

    Attributes:
        headers: Of the answer.
        body: As it came.
        gone: Set by whoever wants its client to go.
        over: Set when the application is done with it.
    """

    def __init__(self, clients: Clients, label: str, slow: float) -> None:
        self._clients, self.label, self._slow = clients, label, slow
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.gone = trio.Event()
        self.over = trio.Event()

    async def send(self, event: Any) -> None:
        """Take a piece of the answer; ASGI."""
        ground = self._clients.service.ground
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in event["headers"]}
            ground.file(Piece(request=self.label, status=self.status))
        else:
            body = event.get("body", b"")
            self.body += body
            ground.file(Piece(request=self.label, body=body, last=not event.get("more_body", False)))
            self._clients.heard(self, body)
        await trio.sleep(self._slow)

    @property
    def messages(self) -> list[Any]:
        """The messages in it."""
        return messages_of(self.headers.get("content-type", ""), self.body)


def messages_of(kind: str, body: bytes) -> list[Any]:
    """The JSON-RPC messages of a body, or of as much of one as came."""
    if kind.startswith("text/event-stream"):
        found = []
        for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
            data = b"".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
            if data:
                found.append(json.loads(data))
        return found
    try:
        return [json.loads(body)]
    except ValueError:
        return []


class Clients:
    """All clients of a service.

    Args:
        service: The run of the service.

    Attributes:
        open: The requests under way.
    """

    def __init__(self, service: ServiceRun) -> None:
        self.service = service
        self.known: dict[str, Client] = {}
        self.open: dict[str, Exchange] = {}
        self._asked: dict[int, set[str]] = {}
        self._numbers = 0

    def sessions(self) -> Iterator[str]:
        """The ids of all sessions that there were."""
        return (client.session for client in self.known.values() if client.session is not None)

    def _client(self, name: str) -> Client:
        if name not in self.known:
            raise Skip
        return self.known[name]

    async def do(self, step: s.Northbound) -> None:
        """Carry out one step. Raises Skip."""
        match step:
            case s.ServeOpen():
                await self._open(step)
            case s.ServeAsk():
                await self._ask(step)
            case s.ServeHear():
                await self._hear(step)
            case s.ServeEnd():
                client = self._client(step.client)
                if client.session is None:
                    raise Skip
                await self._exchange(client, self._label("end"), "end", method="DELETE")

    def _label(self, what: str) -> str:
        self._numbers += 1
        return f"{what}-{self._numbers}"

    # ------------------------------------------------------------------ one request

    async def _exchange(
        self,
        client: Client,
        label: str,
        what: str,
        message: dict[str, Any] | None = None,
        *,
        method: str = "POST",
        token: str | None = None,
        session_of: str | None = None,
        slow: float = 0.0,
        tool: str = "",
        server: str = "",
        gone_after: float | None = None,
    ) -> Exchange:
        exchange = Exchange(self, label, slow)
        token = client.token if token is None else token
        owner = client if session_of is None else self._client(session_of)
        head = self._head(client, owner, token, message)
        spec = self.service.spec.token(token)
        self.service.ground.file(
            Presented(
                request=label,
                client=client.name,
                what=what,
                token=token,
                who=None if spec is None or spec.strange else spec.who,
                session=None if owner.session is None or "mcp-session-id" not in head else owner.name,
                tool=tool,
                server=server,
                rpc=None if message is None else message.get("id"),
                slow=slow,
            )
        )
        self.open[label] = exchange
        body = b"" if message is None else json.dumps(message).encode()
        try:
            async with trio.open_nursery() as nursery:
                if gone_after is not None:
                    nursery.start_soon(self._goes, exchange, gone_after)
                await self._run(exchange, method, head, body)
                nursery.cancel_scope.cancel()
        finally:
            self.service.ground.file(Over(request=label))
            del self.open[label]
            exchange.over.set()
        return exchange

    async def _goes(self, exchange: Exchange, after: float) -> None:
        await trio.sleep(after)
        self.service.ground.file(WentAway(request=exchange.label))
        exchange.gone.set()

    async def _run(self, exchange: Exchange, method: str, head: dict[str, str], body: bytes) -> None:
        service = self.service.service
        assert service is not None
        events = deque([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            if events:
                await trio.lowlevel.checkpoint()
                return events.popleft()
            await exchange.gone.wait()
            return {"type": "http.disconnect"}

        scope = {
            "type": "http", "method": method, "path": "/mcp", "query_string": b"", "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in head.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "http_version": "1.1",
        }  # fmt: skip
        await service.app(scope, receive, exchange.send)

    def _head(
        self, client: Client, owner: Client, token: str, message: dict[str, Any] | None
    ) -> dict[str, str]:
        head = {
            "host": "127.0.0.1",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        text = self.service.texts.get(token, "")
        if text:
            head["authorization"] = f"Bearer {text}"
        if client.era == "stateless" and message is not None:
            head |= {"mcp-protocol-version": STATELESS, "mcp-method": str(message.get("method"))}
            name = message.get("params", {}).get("name")
            if isinstance(name, str):
                head["mcp-name"] = name
        elif owner.session is not None:
            head["mcp-session-id"] = owner.session
        return head

    def _message(self, client: Client, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        client.number += 1
        params = dict(params or {})
        if client.era == "stateless":
            capabilities = {"elicitation": {"form": {}}} if client.answers else {}
            params["_meta"] = {
                **params.get("_meta", {}),
                f"{META}protocolVersion": STATELESS,
                f"{META}clientCapabilities": capabilities,
                f"{META}clientInfo": {"name": client.name, "version": "1"},
            }
        return {"jsonrpc": "2.0", "id": client.number, "method": method, "params": params}

    # ------------------------------------------------------------------ what clients do

    async def _open(self, step: s.ServeOpen) -> None:
        client = Client(step.client, step.token, step.era, step.answers)
        if step.client in self.known:
            raise Skip
        if step.era == "handshake":
            params = {
                "protocolVersion": HANDSHAKE,
                "capabilities": {"elicitation": {}} if step.answers else {},
                "clientInfo": {"name": step.client, "version": "1"},
            }
            message = self._message(client, "initialize", params)
            opened = await self._exchange(client, self._label("open"), "open", message)
            if opened.status != 200 or "mcp-session-id" not in opened.headers:
                return
            client.session = opened.headers["mcp-session-id"]
        self.known[step.client] = client
        if client.session is not None:
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._exchange(client, self._label("notice"), "notice", told)
        await self._list(client, self._label("list"))

    async def _list(self, client: Client, label: str, **how: Any) -> None:
        message = self._message(client, "tools/list", None)
        listed = await self._exchange(client, label, "list", message, **how)
        for each in listed.messages:
            for tool in (each.get("result") or {}).get("tools", ()):
                client.names[tool["name"]] = tool["name"]

    async def _ask(self, step: s.ServeAsk) -> None:
        client = self._client(step.client)
        if step.session_of is not None:
            self._client(step.session_of)
        how: dict[str, Any] = {
            "token": step.token, "session_of": step.session_of, "slow": step.slow,
            "gone_after": step.gone_after,
        }  # fmt: skip
        if step.what == "list":
            await self._list(client, step.id, **how)
            return
        params: dict[str, Any] = {}
        if step.what == "call":
            params = {
                "name": self._named(client, step.server, step.tool),
                "arguments": {**step.args, "mark": f"mark-of-{step.id}."},
                "_meta": {"progressToken": f"progress-of-{step.id}."},
            }
        message = self._message(client, METHODS[step.what], params)
        async with trio.open_nursery() as nursery:
            if step.withdraw_after is not None:
                nursery.start_soon(self._withdraw, client, step, message["id"])
            await self._exchange(
                client, step.id, step.what, message, tool=step.tool, server=step.server, **how
            )
            nursery.cancel_scope.cancel()

    def _named(self, client: Client, server: str, tool: str) -> str:
        whole = f"{server}__{tool}"
        return whole if whole in client.names else tool

    async def _withdraw(self, client: Client, step: s.ServeAsk, rpc: int) -> None:
        assert step.withdraw_after is not None
        await trio.sleep(step.withdraw_after)
        self.service.ground.file(WentAway(request=step.id, told=True))
        if client.era == "stateless":
            self.open[step.id].gone.set()
            return
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": rpc}}
        with trio.CancelScope(shield=True):
            await self._exchange(client, self._label("notice"), "notice", told)

    async def _hear(self, step: s.ServeHear) -> None:
        client = self._client(step.client)
        if client.era == "stateless":
            message = self._message(
                client, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
            )
            await self._exchange(client, step.id, "hear", message, gone_after=step.seconds)
            return
        if client.session is None:
            raise Skip
        await self._exchange(
            client, step.id, "hear", method="GET", session_of=step.session_of, gone_after=step.seconds
        )

    # ------------------------------------------------------------------ questions

    def heard(self, exchange: Exchange, body: bytes) -> None:
        """Bytes came: answer a question that is among them, as its client would."""
        if b"elicitation/create" not in body:
            return
        presented = next(
            fact
            for fact in reversed(self.service.ground.facts)
            if isinstance(fact, Presented) and fact.request == exchange.label
        )
        client = self.known.get(presented.client)
        if client is None or not client.answers:
            return
        known = self._asked.setdefault(id(exchange), set())
        for message in exchange.messages:
            key = message.get("id")
            if message.get("method") == "elicitation/create" and key not in known:
                known.add(key)
                self.service.sim.nursery.start_soon(self._reply, client, key)

    async def _reply(self, client: Client, key: Any) -> None:
        reply = {"jsonrpc": "2.0", "id": key, "result": {"action": "accept", "content": {"sure": True}}}
        await self._exchange(client, self._label("answer"), "answer", reply)
