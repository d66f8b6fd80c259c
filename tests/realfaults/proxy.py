"""A TCP proxy that breaks what it carries: between a client and a server that both use the real kernel.

Rules:

* What befalls a connection is data (`Fault`), written down before it begins: by direction, and by how many
  bytes have passed or how many seconds have gone. The same script breaks the same bytes.
* What was done is filed in the step in which it is done, and how many bytes were read and handed on each way.
  What a fault has swallowed was read and not handed on.
* A fault that stops something stops it for good, but for a stall, which ends, and `clean`, which mends all:
  every stall is over, nothing scripted falls any more, what is connected from then on is carried as it is,
  and connections on which bytes were changed are reset: a changed length may leave both sides waiting.
* An end is as a real one: `fin` is an orderly end of both directions (what still comes is read and dropped),
  `rst` a reset, `half-close` the end of one direction only.
* Bytes leave in the order in which they came. There is no buffer: what is held back is not read.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Callable

Kind: TypeAlias = Literal["fin", "rst", "half-close", "stall", "throttle", "split", "corrupt"]
Way: TypeAlias = Literal["up", "down"]
"""`up` is from the client to the server."""

WAYS: Final[tuple[Way, Way]] = ("up", "down")
KINDS: Final[tuple[Kind, ...]] = ("fin", "rst", "half-close", "stall", "throttle", "split", "corrupt")

AT_ONCE: Final = -1
"""As `Fault.at`: as soon as the client has connected, before a byte is read."""

_CHUNK: Final = 65536
_LINGER: Final = struct.pack("ii", 1, 0)
_DRAIN: Final = 5.0


@attrs.frozen
class Fault:
    """One thing that goes wrong on one connection.

    Attributes:
        kind: What.
        way: In which direction; `fin` and `rst` end both.
        at: It falls when so many bytes have passed this way.
        after: It falls so many seconds after the connection was made, whatever has passed; `at` is ignored.
        seconds: How long a stall lasts; the pause between two pieces of `split` and `throttle`.
        size: How many bytes from there on are split, throttled or corrupted.
        piece: Bytes that go at once under `throttle`.
        mask: What a corrupted byte is combined with; not 0.
    """

    kind: Kind
    way: Way = "down"
    at: int = 0
    after: float | None = None
    seconds: float = 0.0
    size: int = 1
    piece: int = 64
    mask: int = 0x01


@attrs.define(eq=False)
class Passage:
    """One connection through the proxy, and what became of it.

    Attributes:
        number: From 1, in the order in which the server was connected to; 0 while it has not been.
        faults: What is still to fall.
        fell: What fell, with the time on trio's clock.
        read: Bytes taken from either side.
        passed: Bytes handed on.
        seen: What came from the client, all of it, whether it was handed on or not.
        over: Both sides are closed.
        reset: Resets both sides now; `None` while nothing is carried.
        strike: Lets a fault that ends something fall now; `None` while nothing is carried.
    """

    began: float
    faults: list[Fault]
    number: int = 0
    fell: list[tuple[float, Fault]] = attrs.field(factory=list)
    read: dict[Way, int] = attrs.field(factory=lambda: {"up": 0, "down": 0})
    passed: dict[Way, int] = attrs.field(factory=lambda: {"up": 0, "down": 0})
    seen: bytearray = attrs.field(factory=bytearray, repr=False)
    over: bool = False
    reset: Callable[[], None] | None = attrs.field(default=None, repr=False)
    strike: Callable[[Fault], None] | None = attrs.field(default=None, repr=False)

    def hit(self, *kinds: Kind) -> bool:
        """Whether any of these fell here; without kinds, whether anything did."""
        return any(not kinds or fault.kind in kinds for _, fault in self.fell)


class Proxy:
    """Carries connections to one port of this machine. `async with` runs it.

    Args:
        port: Where the server listens, on 127.0.0.1; may be set later.
        script: What is to befall the next connection; nothing by default. Called once for each, in order.
        backlog: How many connections the kernel keeps for us while none are accepted.

    Attributes:
        passages: Every connection, in the order in which they were accepted.
        port: Where it listens itself.
        upstream: The server's port.
    """

    def __init__(
        self, port: int = 0, script: Callable[[int], list[Fault]] | None = None, *, backlog: int = 128
    ) -> None:
        self.upstream = port
        self.passages: list[Passage] = []
        self.port = 0
        self._script = script
        self._backlog = backlog
        self._listener: trio.socket.SocketType | None = None
        self._there = trio.Event()
        self._taking = trio.Event()
        self._taking.set()
        self._cleaned = trio.Event()
        self._lock = trio.Lock()
        self._connected = 0
        self._nursery: trio.Nursery | None = None
        self._manager: contextlib.AbstractAsyncContextManager[trio.Nursery] | None = None

    async def __aenter__(self) -> Self:
        await self.come_back()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._accept)
        return self

    async def __aexit__(self, *exc: object) -> bool | None:
        assert self._nursery is not None
        assert self._manager is not None
        self._nursery.cancel_scope.cancel()
        try:
            return await self._manager.__aexit__(*exc)  # type: ignore[arg-type]
        finally:
            self.go_away()

    @property
    def open(self) -> int:
        """How many connections are not over."""
        return sum(not passage.over for passage in self.passages)

    # What befalls it as a whole

    def clean(self) -> None:
        """Mend everything: see the rules."""
        self._cleaned.set()
        self._taking.set()
        for passage in self.passages:
            passage.faults.clear()
            if passage.reset is not None and not passage.over and passage.hit("corrupt"):
                passage.reset()

    def hold(self) -> None:
        """Accept nobody: who connects is taken by the kernel, until its queue is full."""
        self._taking = trio.Event()

    def take(self) -> None:
        """Accept again."""
        self._taking.set()

    def go_away(self) -> None:
        """Stop listening: who connects is refused. What is connected stays."""
        self._there = trio.Event()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def come_back(self) -> None:
        """Listen again, on the same port; a checkpoint."""
        if self._listener is None:
            sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await sock.bind(("127.0.0.1", self.port))
            sock.listen(self._backlog)
            self.port = sock.getsockname()[1]
            self._listener = sock
            self._there.set()
        await trio.lowlevel.checkpoint()

    # Connections

    async def _accept(self) -> None:
        assert self._nursery is not None
        while True:
            await self._there.wait()
            await self._taking.wait()
            listener = self._listener
            if listener is None:
                continue
            try:
                sock, _ = await listener.accept()
            except (trio.ClosedResourceError, OSError):
                continue  # it went away meanwhile, or who connected did
            faults = []
            if self._script is not None and not self._cleaned.is_set():
                faults = self._script(len(self.passages))
            passage = Passage(trio.current_time(), faults)
            self.passages.append(passage)
            self._nursery.start_soon(self._carry, passage, sock)

    async def _carry(self, passage: Passage, client: trio.socket.SocketType) -> None:
        server = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            await self._taking.wait()
            for fault in [each for each in passage.faults if each.after is None and each.at == AT_ONCE]:
                if self._falls(passage, fault):
                    await _Carried(self, passage, client, server).strike(fault)
                    if fault.kind in {"fin", "rst"}:
                        return
            async with self._lock:  # so that the server takes connections in the order of their numbers
                await server.connect(("127.0.0.1", self.upstream))
                self._connected += 1
                passage.number = self._connected
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await _Carried(self, passage, client, server).run()
        except OSError:
            pass  # the server is not there: the client sees that it was hung up on
        finally:
            passage.over = True
            passage.reset = passage.strike = None
            client.close()
            server.close()

    def _falls(self, passage: Passage, fault: Fault) -> bool:
        """File a fault as fallen, unless all was mended."""
        if self._cleaned.is_set():
            return False
        if fault in passage.faults:
            passage.faults.remove(fault)
        passage.fell.append((trio.current_time(), fault))
        return True

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._cleaned.wait()


class _Carried:
    """The two directions of one connection."""

    def __init__(
        self, proxy: Proxy, passage: Passage, client: trio.socket.SocketType, server: trio.socket.SocketType
    ) -> None:
        self._proxy = proxy
        self._passage = passage
        self._ends: dict[Way, tuple[trio.socket.SocketType, trio.socket.SocketType]] = {
            "up": (client, server),
            "down": (server, client),
        }
        self._dropping: set[Way] = set()
        self._held: dict[Way, float] = {"up": 0.0, "down": 0.0}
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        self._passage.reset = self._reset
        self._passage.strike = self._strike_now
        with self._scope:
            async with trio.open_nursery() as nursery:
                for fault in self._passage.faults:
                    if fault.after is not None:
                        nursery.start_soon(self._later, fault)
                async with trio.open_nursery() as pumps:
                    for way in WAYS:
                        pumps.start_soon(self._pump, way)
                nursery.cancel_scope.cancel()

    async def _later(self, fault: Fault) -> None:
        assert fault.after is not None
        await trio.sleep(fault.after)
        if self._proxy._falls(self._passage, fault):
            await self.strike(fault)

    async def _pump(self, way: Way) -> None:
        source, target = self._ends[way]
        passage = self._passage
        try:
            while True:
                if self._held[way] > trio.current_time():
                    await self._proxy._pause(self._held[way] - trio.current_time())
                    self._held[way] = 0.0
                data = await source.recv(_CHUNK)
                if not data:
                    break
                passage.read[way] += len(data)
                if way == "up":
                    passage.seen += data
                await self._pass(way, data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # One side is gone without a word: the other one is told at once, as a kernel would.
            self._reset()
        except trio.ClosedResourceError:
            return

    async def _pass(self, way: Way, data: bytes) -> None:
        passage = self._passage
        while data and way not in self._dropping:
            done = passage.passed[way]
            due = [each for each in passage.faults if each.after is None and each.way == way and each.at >= 0]
            fault = min(due, key=lambda each: each.at, default=None)
            if fault is None or fault.at >= done + len(data):
                await self._send(way, data)
                return
            before = max(0, fault.at - done)
            await self._send(way, data[:before])
            data = data[before:]
            if not self._proxy._falls(passage, fault):
                continue
            if fault.kind in {"split", "throttle", "corrupt"}:
                part, data = data[: fault.size], data[fault.size :]
                await self._mangle(fault, part)
            else:
                await self.strike(fault)

    def _strike_now(self, fault: Fault) -> None:
        if self._proxy._falls(self._passage, fault):
            self._end(fault)

    async def _mangle(self, fault: Fault, part: bytes) -> None:
        if fault.kind == "corrupt":
            await self._send(fault.way, bytes(byte ^ fault.mask for byte in part))
            return
        piece = 1 if fault.kind == "split" else fault.piece
        for start in range(0, len(part), piece):
            await self._send(fault.way, part[start : start + piece])
            await self._proxy._pause(fault.seconds)

    async def strike(self, fault: Fault) -> None:
        """Let a fault that ends or stalls something fall now."""
        if fault.kind != "stall":
            self._end(fault)
            return
        self._held[fault.way] = trio.current_time() + fault.seconds
        if fault.after is None:
            await self._proxy._pause(fault.seconds)

    def _end(self, fault: Fault) -> None:
        if fault.kind == "rst":
            self._reset()
        else:
            for way in WAYS if fault.kind == "fin" else (fault.way,):
                self._dropping.add(way)
                with contextlib.suppress(OSError):
                    self._ends[way][1].shutdown(socket.SHUT_WR)
            if fault.kind == "fin":
                self._scope.deadline = trio.current_time() + _DRAIN

    def _reset(self) -> None:
        for sock in self._ends["up"]:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            sock.close()
        self._scope.cancel()

    async def _send(self, way: Way, data: bytes) -> None:
        target = self._ends[way][1]
        left = memoryview(data)
        while left and way not in self._dropping:
            sent = await target.send(left)
            self._passage.passed[way] += sent
            left = left[sent:]
