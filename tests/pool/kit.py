"""What the tests of the pool share: a host whose every decision can be changed, and servers to look at.

Claims about what left are read from the server's own ledger, never from the pool.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import (
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    MemoryTransport,
    Plan,
    Seams,
    Server,
    bearer,
)
from afpool.testing import (
    Body,
    Drop,
    FakeServer,
    FakeTool,
    Flood,
    JsonRpcError,
    RawBytes,
    Result,
    echo_tool,
)
from afpool.testing._actions import flooded, with_id
from afpool.testing._engine import Engine
from afpool.testing._envelope import encode, error_message, result_message
from afpool.testing._exchange import Exchange, Listener, Session
from afpool.transports import WireClosed, memory_link_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from afpool import BoundTool, CredentialRequest, Pool, ServerRequests
    from afpool.transports import MemoryWire

ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="acme", principal="bob")
CAROL = Identity(tenant="globex", principal="carol")
LIST_CHANGED = "notifications/tools/list_changed"


def person(number: int) -> Identity:
    return Identity(tenant="acme", principal=f"user-{number}")


class Host:
    """The app: plan, share, caller identity, credentials and signatures, each to be changed at any time.

    Attributes:
        variant: Part of every plan; another value is another context.
        names: Principal to authorization name; a callable is called, and may raise.
        caller: What `who` answers; an exception is raised.
        requests: What is offered to the servers, if anything.
        hold_credential: The next request for a credential waits for it.
        hold_plan: The next plan waits for it.
        hold_signature: The next signature waits for it.
        hold_connect: The next connection waits for it.
    """

    def __init__(self, transport: Callable[[Host, Identity], Any]) -> None:
        self.transport = transport
        self.variant = "one"
        self.names: dict[str | None, Any] = {}
        self.caller: Any = ALICE
        self.credential: CredentialRequirement | None = None
        self.requests: ServerRequests | None = None
        self.token = "token"
        self.planned = 0
        self.asked: list[CredentialRequest] = []
        self.fail_credential: Exception | None = None
        self.hold_credential: Hold | None = None
        self.hold_signature: Hold | None = None
        self.hold_plan: Hold | None = None
        self.hold_connect: Hold | None = None

    async def plan(self, server: str, projection: Identity) -> Plan:
        self.planned += 1
        hold, self.hold_plan = self.hold_plan, None
        if hold is not None:
            await hold.wait()
        return Plan(
            transport=self.transport(self, projection), credential=self.credential, requests=self.requests
        )

    def share(self, server: str, projection: Identity) -> str | None:
        name = self.names.get(projection.principal)
        return name() if callable(name) else name

    def who(self) -> Identity | None:
        if isinstance(self.caller, Exception):
            raise self.caller
        return self.caller

    async def get(self, request: CredentialRequest) -> Issued:
        self.asked.append(request)
        hold, self.hold_credential = self.hold_credential, None
        await trio.lowlevel.checkpoint()
        if hold is not None:
            await hold.wait()
        if self.fail_credential is not None:
            raise self.fail_credential
        return Issued(bearer(self.token))

    async def sign(self, request: Any) -> Mapping[str, str]:
        hold, self.hold_signature = self.hold_signature, None
        await trio.lowlevel.checkpoint()
        if hold is not None:
            await hold.wait()
        return {"x-signature": "signed"}

    async def connect(self, family: int, address: Any) -> Any:
        hold, self.hold_connect = self.hold_connect, None
        if hold is not None:
            await hold.wait()
        return await Seams().connect(family, address)

    @property
    def seams(self) -> Seams:
        return Seams(connect=self.connect)


class Hold:
    """A place where somebody waits until the test lets go."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.let_go = trio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.let_go.wait()


def raises(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


@attrs.define(eq=False)
class World:
    """A server, a host and a pool over them."""

    server: FakeServer
    host: Host
    pool: Pool

    async def tool(self, who: Identity = ALICE, name: str = "echo") -> BoundTool:
        return (await self.pool.tools(who))[name]

    def sent(self, tool: str = "echo") -> int:
        """How many calls of the tool have reached the server."""
        return len(self.server.arrivals("tools/call", tool))

    async def announce(self, tool: BoundTool) -> None:
        """Let the server announce a change, and wait until the pool has heard it."""
        before = tool.binding.list.notices
        await self.server.wait_until(lambda: self.server.streams > 0)
        await self.server.notify(LIST_CHANGED)
        await until(lambda: tool.binding.list.notices > before)

    async def evict(self, who: Identity = ALICE) -> None:
        """Close the client of a key, and wait until it has gone."""
        key = self.pool.key_of(who, "files")
        actor = self.pool._existing(key)
        self.pool.evict(key)
        await until(lambda: actor.machine.client is None and not actor.machine.old)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds that nothing announces; bounded."""
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110 -- see above
            await trio.sleep(0.001)


def http_transport(server: FakeServer) -> Callable[[Host, Identity], HttpTransport]:
    def transport(host: Host, projection: Identity) -> HttpTransport:
        return HttpTransport(url=server.url, headers={"x-variant": host.variant})

    return transport


@contextlib.asynccontextmanager
async def world(
    *,
    tools: list[FakeTool] | None = None,
    credential: bool | CredentialRequirement = False,
    signer: bool = False,
    sharing: bool = True,
    server: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None,
    http: Mapping[str, Any] | None = None,
    requests: ServerRequests | None = None,
) -> AsyncIterator[World]:
    """Open a fake HTTP server and a pool with one server `files` over it.

    Args:
        tools: What the server lists; one `echo` by default.
        credential: Whether plans require a credential, or which.
        signer: Whether requests are signed.
        sharing: Whether the pool has a share function (which answers `None` unless told otherwise).
        server: Further arguments of `Server`.
        pool: Further arguments of `open_pool`.
        http: Further arguments of `FakeServer.http`.
        requests: What the plans offer to the server.
    """
    async with FakeServer.http(tools=[echo_tool()] if tools is None else tools, **(http or {})) as fake:
        host = Host(http_transport(fake))
        host.requests = requests
        if credential:
            host.credential = CredentialRequirement("files") if credential is True else credential
        options = {
            "plan": host.plan,
            "share": host.share if sharing else None,
            "credentials": host,
            "signer": host if signer else None,
            "seams": host.seams,
            **(pool or {}),
        }
        async with afpool.open_pool([Server(name="files", **(server or {}))], **options) as opened:
            yield World(fake, host, opened)


class Outcome:
    """What became of a call that runs in a task of its own."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: afpool.AfpoolError | None = None
        self.done = trio.Event()

    async def run(self, call: Callable[[], Any]) -> None:
        try:
            self.value = await call()
        except afpool.AfpoolError as error:
            self.error = error
        self.done.set()

    async def refusal(self, code: str) -> afpool.AfpoolError:
        """Wait for the end; it must be this refusal, and nothing sent."""
        with trio.fail_after(5):
            await self.done.wait()
        assert self.error is not None, f"it was answered: {self.value!r}"
        assert (self.error.code, self.error.delivery) == (code, "not-sent"), repr(self.error)
        return self.error

    async def answer(self) -> Any:
        """Wait for the end; it must be an answer."""
        with trio.fail_after(5):
            await self.done.wait()
        if self.error is not None:
            raise self.error
        return self.value


def start(nursery: trio.Nursery, call: Callable[[], Any]) -> Outcome:
    outcome = Outcome()
    nursery.start_soon(outcome.run, call)
    return outcome


async def refused(
    call: Any, code: str, delivery: str = "not-sent", *, within: float = 10
) -> afpool.AfpoolError:
    """Await a call that must end with this code and verdict."""
    with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(within):
        await call
    error = caught.value
    assert (error.code, error.delivery) == (code, delivery), repr(error)
    return error


def quiet(pool: Pool) -> None:
    """Nothing is held and nobody waits."""
    assert not pool.running
    assert pool.waiting == pool.settling == 0
    assert pool.admission.used == pool.admission.waiting == 0
    assert not pool.inside
    assert not pool.handed
    for actor in pool.actors():
        assert actor.machine.in_flight == 0, actor.machine.snapshot()
        assert not actor.machine.waiting


class MemoryExchange(Exchange):
    """An exchange whose early messages go the way of its answer."""

    __slots__ = ("_send",)

    def __init__(
        self, arrival: Any, session: Session, peer: str, send: Callable[[Any], None], era: Any = "handshake"
    ) -> None:
        super().__init__(arrival, era, session, peer)
        self._send = send

    async def emit(self, message: Any) -> None:
        self._send(message)
        await trio.lowlevel.checkpoint()


async def write(wire: MemoryWire, data: bytes) -> None:
    """Write bytes that nobody gates, as fast as the other end takes them; nothing to a closed one."""
    with contextlib.suppress(WireClosed):
        while data:
            data = data[wire._write(data) :]
            if data:
                await wire.writable()


class MemoryServer:
    """The fake's engine behind wires without a kernel, one session per wire.

    Attributes:
        wires: The client's ends, oldest first.
    """

    _names = itertools.count(1)

    def __init__(
        self, nursery: trio.Nursery, tools: list[FakeTool] | None = None, era: Any = "handshake"
    ) -> None:
        self.engine = Engine(era, [echo_tool()] if tools is None else tools)
        self.ledger = self.engine.ledger
        self.name = f"memory-{next(self._names)}"
        self.wires: list[MemoryWire] = []
        self._nursery = nursery

    def transport(self, host: Host, projection: Identity) -> MemoryTransport:
        return MemoryTransport(name=f"{self.name}/{host.variant}", connect=self.connect)

    async def connect(self) -> MemoryWire:
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_link_pair()
        self.wires.append(ours)
        self._nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, wire: MemoryWire) -> None:
        session = Session(None)

        def send(message: Any) -> None:
            data = encode(message) + b"\n"
            with contextlib.suppress(WireClosed):  # the client has gone: nobody to tell
                assert wire._write(data) == len(data)

        if self.engine.eras == "handshake":
            self.engine.streams.add(Listener(send, lambda final: None, session=session))
        try:
            await self._lines(wire, session, send)
        finally:
            for listener in list(self.engine.streams.open):
                if listener.deliver is send:
                    self.engine.streams.remove(listener)

    async def _lines(self, wire: MemoryWire, session: Session, send: Callable[[Any], None]) -> None:
        rest = b""
        while data := await self._heard(wire):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._nursery.start_soon(self._handle, json.loads(line), line, session, send, wire)

    async def _heard(self, wire: MemoryWire) -> bytes:
        with contextlib.suppress(WireClosed):
            return await wire.receive()
        return b""

    async def _handle(
        self, message: Any, line: bytes, session: Session, send: Callable[[Any], None], wire: MemoryWire
    ) -> None:
        arrival = self.ledger.arrive(message, line)
        exchange = MemoryExchange(arrival, session, self.name, send, self.engine.eras)
        if arrival.kind == "notification":
            self.engine.notified(exchange)
        elif arrival.kind == "response":
            self.engine.questions.resolve(message)
        elif arrival.kind == "request":
            action = await self.engine.rules.decide(arrival)
            if action is not None and not action.after_execution:
                await self._scripted(action, arrival, wire)
                return
            answer = await self.engine.respond(exchange)
            send(answer.message)
            if answer.listen is not None:
                listening = Listener(
                    send, lambda final: None, subscription_id=arrival.id, methods=answer.listen
                )
                self.engine.streams.add(listening)

    async def _scripted(self, action: Any, arrival: Any, wire: MemoryWire) -> None:
        """Write what the child on stdio would write; `Drop` closes the wire, others answer nothing."""
        data = b""
        match action:
            case Body() | RawBytes():
                data = with_id(action.data, arrival.id) + (b"\n" if isinstance(action, Body) else b"")
            case Result():
                data = encode(result_message(arrival.id, action.result)) + b"\n"
            case JsonRpcError():
                data = encode(error_message(arrival.id, action.code, action.message, action.data)) + b"\n"
            case Flood():
                for piece in flooded(action, arrival.id):
                    await write(wire, piece)
            case Drop():
                wire.close()
            case _:
                pass
        await write(wire, data)


@contextlib.asynccontextmanager
async def memory_world(
    *,
    tools: list[FakeTool] | None = None,
    pool: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    requests: ServerRequests | None = None,
    era: str = "handshake",
) -> AsyncIterator[tuple[MemoryServer, Host, Pool]]:
    """Open a pool over a server in memory; everything is deterministic."""
    async with trio.open_nursery() as nursery:
        memory = MemoryServer(nursery, tools, era)
        host = Host(memory.transport)
        host.requests = requests
        options = {"plan": host.plan, "share": host.share, **(pool or {})}
        async with afpool.open_pool([Server(name="files", **(server or {}))], **options) as opened:
            yield memory, host, opened
        nursery.cancel_scope.cancel()
