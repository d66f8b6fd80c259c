"""A console with a few commands of its own, and clients that speak to it by the library or by hand."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, cast

import attrs
import trio

from afpool._base.seams import Seams
from afpool.console import (
    Column,
    Command,
    Console,
    ConsoleLimits,
    ConsoleSettings,
    Registry,
    Table,
    open_console,
)
from afpool.console._ask import Ask, CommandError
from afpool.console._stream import Queued
from afpool.console._words import PATH, SUBPROTOCOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio_websocket import WebSocketConnection

READ = "read-token-0123456789"
OPERATE = "operate-token-0123456789"
PATIENCE = 20.0


@attrs.define
class StubPool:
    """What a console needs of a pool when its registry is given."""

    seams: Seams = attrs.field(factory=Seams)


@attrs.define(eq=False)
class World:
    """What the commands of the stub registry do, seen from a test.

    Attributes:
        registry: Of these commands.
        held: Set where `hold` waits; `held_gone` counts those that were cancelled in it.
        release: Lets `hold` end.
        streams: Those that `tail` has made; `broken` makes the next frame of each fail.
        gone: Numbers of sessions that ended with a lease of theirs left; `one_gone` is set then.
    """

    registry: Registry = attrs.field(factory=lambda: Registry(Seams()))
    held: trio.Event = attrs.field(factory=trio.Event)
    held_gone: int = 0
    release: trio.Event = attrs.field(factory=trio.Event)
    streams: list[Queued[Any]] = attrs.field(factory=list)
    gone: list[int] = attrs.field(factory=list)
    one_gone: trio.Event = attrs.field(factory=trio.Event)
    broken: bool = False

    def __attrs_post_init__(self) -> None:
        for words, run, level in (
            (("echo",), self._echo, "read"),
            (("hold",), self._hold, "read"),
            (("lease",), self._lease, "operate"),
            (("crash",), self._crash, "read"),
            (("refuse",), self._refuse, "read"),
            (("odd",), lambda _: {"kind": "text", "lines": ["\ud800"]}, "read"),
            (("big",), self._big, "read"),
            (("tail",), self._tail, "read"),
        ):
            self.registry.command(
                Command(
                    words=words,
                    usage=words[0],
                    help=words[0],
                    run=cast("Any", run),
                    level=cast("Any", level),
                    takes=(0, 60),
                    any_option=True,
                )
            )
        self.registry.table(
            Table(
                name="numbers",
                help="numbers",
                columns=(Column("n", "count"),),
                rows=lambda _: ((n,) for n in range(5)),
            )
        )

    async def _echo(self, ask: Ask) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"kind": "text", "lines": [*ask.words, *(f"{k}={v}" for k, v in ask.options.items())]}

    async def _hold(self, _: Ask) -> dict[str, Any]:
        self.held.set()
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.held_gone += 1
            raise
        return {"kind": "done"}

    def _lease(self, ask: Ask) -> dict[str, Any]:
        number = ask.asker.number

        def tell() -> None:
            self.gone.append(number)
            self.one_gone.set()

        ask.asker.at_end(tell)
        return {"kind": "done", "until": "the session ends"}

    def _crash(self, _: Ask) -> dict[str, Any]:
        raise RuntimeError("CANARY of a command")

    def _refuse(self, _: Ask) -> dict[str, Any]:
        raise CommandError("unknown-id", "there is no such thing", ["echo"])

    def _big(self, ask: Ask) -> dict[str, Any]:
        return {"kind": "text", "lines": ["x" * int(ask.options["size"])]}

    def _plain(self, thing: object) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError("CANARY of a stream")
        return {"thing": thing}

    def _tail(self, _: Ask) -> Queued[Any]:
        stream: Queued[Any] = Queued(self._plain, kept=50)
        self.streams.append(stream)
        return stream


@contextlib.asynccontextmanager
async def opened(folder: Path, world: World | None = None, **fields: Any) -> AsyncIterator[Console]:
    """Open a console in a folder of its own, for the time of the block."""
    limits = fields.pop("limits", {})
    fields.setdefault("watchdog", False)
    settings = ConsoleSettings(directory=folder / "run", limits=ConsoleLimits(**limits), **fields)
    registry = (World() if world is None else world).registry
    pool: Any = StubPool()
    with trio.fail_after(PATIENCE * 20):
        async with open_console(pool, settings=settings, registry=registry) as console:
            assert console is not None
            yield console


async def unix(console: Console) -> trio.SocketStream:
    """Connect to its Unix socket."""
    assert console.path is not None
    return await trio.open_unix_socket(os.fspath(console.path))


def port_of(console: Console) -> int:
    """The port that it listens at."""
    return int(
        next(one for one in console.addresses if one.startswith("http")).rstrip("/").rpartition(":")[2]
    )


async def tcp(console: Console) -> trio.SocketStream:
    """Connect to its port."""
    return await trio.open_tcp_stream("127.0.0.1", port_of(console))


class Client:
    """A console by the library.

    Attributes:
        hello: What it was told first.
        frames: What came unasked, in order.
    """

    def __init__(self, socket: WebSocketConnection) -> None:
        self.socket = socket
        self.hello: dict[str, Any] = {}
        self.frames: list[dict[str, Any]] = []
        self._number = 0

    async def get(self) -> dict[str, Any]:
        """The next frame."""
        with trio.fail_after(PATIENCE):
            return cast("dict[str, Any]", json.loads(await self.socket.get_message()))

    async def send(self, frame: Any) -> None:
        """Send a frame, or a text or bytes as they are."""
        raw = frame if isinstance(frame, str | bytes) else json.dumps(frame)
        with trio.fail_after(PATIENCE):
            await self.socket.send_message(raw)

    async def answer_to(self, number: int | None) -> dict[str, Any]:
        """The next answer under an id."""
        while True:
            frame = await self.get()
            if frame.get("id", "none") == number and "stream" not in frame:
                return frame
            self.frames.append(frame)

    async def ask(self, do: str | list[str], **options: Any) -> dict[str, Any]:
        """Ask, and give the answer."""
        self._number += 1
        await self.send({"id": self._number, "do": do, **({"with": options} if options else {})})
        return await self.answer_to(self._number)

    async def closed(self) -> int:
        """Read to the end, and give the code of the close."""
        from trio_websocket import ConnectionClosed

        with trio.fail_after(PATIENCE), contextlib.suppress(ConnectionClosed):
            while True:
                self.frames.append(json.loads(await self.socket.get_message()))
        assert self.socket.closed is not None
        return int(self.socket.closed.code)


@contextlib.asynccontextmanager
async def attached(
    stream: trio.SocketStream,
    *,
    headers: list[tuple[bytes, bytes]] | None = None,
    token: str | None = None,
    hello: bool = True,
    host: str = "localhost",
) -> AsyncIterator[Client]:
    """Attach by the library; raises `ConnectionRejected` where it is refused."""
    from trio_websocket import wrap_client_stream

    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                with trio.fail_after(PATIENCE):
                    socket = await wrap_client_stream(
                        nursery, stream, host, PATH, subprotocols=[SUBPROTOCOL], extra_headers=headers or []
                    )
                    client = Client(socket)
                    if token is not None:
                        await client.send({"token": token})
                    if hello:
                        client.hello = (await client.get())["hello"]
                yield client
            except BaseException as error:
                failure = error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        [failure] = group.exceptions  # the library raises a refusal in its own task
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)
    if failure is not None:
        raise failure


async def exchange(stream: trio.SocketStream, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes and read an answer of HTTP to its end: status, headers, body."""
    with trio.fail_after(PATIENCE):
        await stream.send_all(data)
        raw = b""
        with contextlib.suppress(trio.BrokenResourceError):
            while more := await stream.receive_some():
                raw += more
        await stream.aclose()
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]) if raw else 0, headers, body


def request(path: str = "/", *lines: str, method: str = "GET", host: str | None = "localhost") -> bytes:
    """Write the head of a request."""
    said = [f"{method} {path} HTTP/1.1", *([] if host is None else [f"Host: {host}"]), *lines]
    return ("\r\n".join(said) + "\r\n\r\n").encode("latin-1")


def upgrade(*lines: str, host: str | None = "localhost", without: tuple[str, ...] = ()) -> bytes:
    """Write the head of an upgrade; `without` leaves headers out."""
    key = base64.b64encode(bytes(16)).decode()
    usual = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Protocol": SUBPROTOCOL,
    }
    said = [f"{name}: {value}" for name, value in usual.items() if name not in without]
    return request(PATH, *said, *lines, host=host)
