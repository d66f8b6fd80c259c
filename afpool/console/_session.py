"""One console that is attached: what it asks is done, what it is told goes out in order.

Rules:

* Every command has a task of its own, so that one that waits (a drain) does not keep the next. There are few
  at once, and few a second.
* An answer is never dropped: it waits for room in the outbox. A stream makes its next frame when the last one
  has found room and was paid for; so does the next table, so that a console that does not read keeps one of
  them in memory and not as many as it has asked for.
* Whatever a console sends costs only this console: a message that is none is answered with an error, one that
  is no text or too large ends the session. What goes wrong inside of a command is an answer, and a line in
  the log without its words, which may hold anything.
* The session is over when the connection is: what it still runs is cancelled, its streams let go of what they
  listen to, and then whoever asked to be told is told, whichever way it ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, final

import msgspec
import trio

from .._base.untraced import place_of
from ._ask import CommandError
from ._outbox import Outbox, Timed
from ._slices import Slices, encode
from ._stream import Stream
from ._words import NOT_TEXT, PROTOCOL

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

    from ._ask import Asker
    from ._open import Console

logger = logging.getLogger("afpool.console")

_CLOSING: Final = 0.5
_MOST_WORDS: Final = 64


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]  # what every reader of JSON can tell apart


class Asked(msgspec.Struct, rename={"options": "with"}):
    """A message of a console."""

    id: Number | None = None
    do: str | list[str] | None = None
    options: dict[str, str | int | float | bool | None] = msgspec.field(default_factory=dict)
    stop: Number | None = None

    @property
    def said(self) -> dict[object, object]:
        """The options as they would be typed."""
        return {name: _typed(value) for name, value in self.options.items() if value is not None}


def _typed(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def read_message(text: str, most: int) -> Asked | CommandError:
    """Read a message; gives why it is none, under the id that it has where it has one.

    Args:
        text: The message.
        most: Characters of one command.
    """
    try:
        asked = msgspec.json.decode(text, type=Asked)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        what = str(error)[:160] if isinstance(error, msgspec.ValidationError) else "it is no JSON object"
        return CommandError("bad-option", f"this is no message of the console's: {what}")
    words = [asked.do] if isinstance(asked.do, str) else asked.do or ()
    size = sum(map(len, words)) + sum(len(name) + len(str(value)) for name, value in asked.options.items())
    if size > most or len(words) > _MOST_WORDS:
        return CommandError("too-long", f"a command has at most {most} characters; nothing was done")
    if (asked.do is None) == (asked.stop is None):
        return CommandError("bad-option", "a message holds `do`, or `stop`")
    return asked


def id_of(text: str) -> int | None:
    """Give the id of a message that could not be read, where it has one."""
    try:
        found = msgspec.json.decode(text, type=_OnlyId)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return found.id


class _OnlyId(msgspec.Struct):
    id: Number | None = None


@final
class Session:
    """One console.

    Args:
        console: What it is attached to.
        socket: The WebSocket.
        asker: Who it is.

    Attributes:
        since: When it was attached, on trio's clock.
        outbox: What is on its way to it.
        asked: How many messages it has sent.
    """

    def __init__(self, console: Console, socket: WebSocketConnection, asker: Asker) -> None:
        self.console = console
        self.asker = asker
        self.since = trio.current_time()
        self.limits = console.settings.limits
        self.outbox = Outbox(self.limits.outbox)
        self.asked = 0
        self.streams: dict[int, Stream] = {}
        self._running: dict[int, trio.CancelScope] = {}
        self._socket = socket
        self._tables = trio.StrictFIFOLock()
        self._free_at = self.since - 1.0
        self._scope = trio.CancelScope()

    def describe(self) -> dict[str, Any]:
        """Give what may be shown of it."""
        dropped = sum(getattr(stream, "dropped", 0) for stream in self.streams.values())
        return {
            "id": self.asker.number, "who": self.asker.who, "level": self.asker.level, "since": self.since,
            "streams": len(self.streams), "running": len(self._running), "dropped": dropped,
            "bytes": self.outbox.size, "asked": self.asked,
        }  # fmt: skip

    async def run(self) -> None:
        """Serve it until either side closes, or `end`."""
        from trio_websocket import ConnectionClosed

        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._put(self.console.hello(self.asker))
                    with contextlib.suppress(ConnectionClosed):
                        await self._read(nursery)
                    nursery.cancel_scope.cancel()
        finally:
            self.asker.end()

    async def end(self, code: int, why: str) -> None:
        """Close it with a word, within a moment. Nothing of it runs afterwards."""
        with trio.move_on_after(_CLOSING, shield=True):
            await self._socket.aclose(code, why)
        self._scope.cancel()

    # ------------------------------------------------------------------ in

    async def _read(self, nursery: trio.Nursery) -> None:
        while True:
            text = await self._socket.get_message()
            if not isinstance(text, str):
                await self.end(NOT_TEXT, "messages of a console are text")
                return
            self.asked += 1
            await self._throttle()
            asked = read_message(text, self.limits.command)
            if isinstance(asked, CommandError):
                await self._refuse(id_of(text), asked)
            elif asked.stop is not None:
                await self._stop(asked.id, asked.stop)
            else:
                await self._begin(nursery, asked)

    async def _throttle(self) -> None:
        """Read no faster than `rate`, a second's worth at once."""
        now = trio.current_time()
        self._free_at = max(self._free_at, now - 1.0) + 1.0 / self.limits.rate
        if self._free_at > now:
            await trio.sleep_until(self._free_at)

    async def _begin(self, nursery: trio.Nursery, asked: Asked) -> None:
        number = asked.id
        if number is None:
            await self._refuse(None, CommandError("bad-option", "a command has an `id`, a whole number"))
        elif number in self._running:
            await self._refuse(number, CommandError("busy", f"{number} is under way; take another id"))
        elif len(self._running) >= self.limits.running:
            words = f"{len(self._running)} commands of this console are under way; stop one"
            await self._refuse(number, CommandError("busy", words))
        else:
            scope = self._running[number] = trio.CancelScope()
            nursery.start_soon(self._one, number, asked, scope)

    async def _stop(self, number: int | None, what: int) -> None:
        scope = self._running.get(what)
        if scope is None:
            await self._refuse(number, CommandError("unknown-id", f"nothing is under way as {what}"))
            return
        scope.cancel()
        done = {"kind": "done", "what": f"stopped {what}", "before": None, "after": None, "until": None}
        await self._put({"id": number, "ok": done})

    # ------------------------------------------------------------------ what is asked

    async def _one(self, number: int, asked: Asked, scope: trio.CancelScope) -> None:
        try:
            with scope:
                try:
                    await self._do(number, asked)
                except CommandError as error:
                    await self._refuse(number, error)
                except Exception as error:  # noqa: BLE001 -- a command's own fault ends nothing else
                    await self._failed(number, error)
            if scope.cancelled_caught and number not in self.streams:
                words = "it was stopped; what it had done by then stays as it is"
                await self._refuse(number, CommandError("failed", words))
        finally:
            del self._running[number]
            stream = self.streams.pop(number, None)
            if stream is not None:
                stream.close("stopped")
        if stream is not None:
            await self._put({"stream": number, "end": stream.ended})

    async def _do(self, number: int, asked: Asked) -> None:
        assert asked.do is not None
        registry = self.console.registry
        words = asked.do.split(None, 1) if isinstance(asked.do, str) else asked.do
        async with self._tables if words[:1] == ["show"] else contextlib.nullcontext():
            result = await registry.run(asked.do, self.asker, asked.said)
            if not isinstance(result, Stream):
                await self._put({"id": number, "ok": result})
                return
        self.streams[number] = result
        await self._put({"id": number, "ok": {"kind": "stream", "stream": number}})
        await self._follow(number, result)

    async def _follow(self, number: int, stream: Stream) -> None:
        purse = self.console.purse
        while True:
            making = Timed(stream.next())
            frame = await making
            if frame is None:
                return
            writing = Timed(_encoded({"stream": number, **frame}))
            await self.outbox.put(await writing)
            await purse.pay(making.spent + writing.spent)

    async def _failed(self, number: int, error: Exception) -> None:
        kind, place = type(error).__name__, place_of(error.__traceback__)
        logger.error("a command of a console failed: %s (%s)", kind, place)
        stream = self.streams.get(number)
        if stream is None:
            await self._refuse(number, CommandError("failed", f"it failed inside ({kind}); see the log"))
        else:
            stream.close(f"it failed inside ({kind}); see the log")

    # ------------------------------------------------------------------ out

    async def _refuse(self, number: int | None, error: CommandError) -> None:
        await self._put({"id": number, "error": error.as_json()})

    async def _put(self, frame: dict[str, Any]) -> None:
        await self.outbox.put(await _encoded(frame))

    async def _write(self) -> None:
        from trio_websocket import ConnectionClosed

        outbox, socket, purse = self.outbox, self._socket, self.console.purse
        while True:
            data = await outbox.take()
            sending = Timed(socket.send_message(data.decode()))
            try:
                await sending
            except ConnectionClosed:
                self._scope.cancel()
                return
            outbox.sent(data)
            purse.owe(sending.spent)


async def _encoded(frame: dict[str, Any]) -> bytes:
    try:
        return await encode(frame, Slices())
    except UnicodeEncodeError:
        # a lone surrogate, which somebody's tool may be named with: escaped, it is JSON
        return json.dumps(frame, ensure_ascii=True, separators=(",", ":")).encode()


def opening(name: str, pid: int, version: str, told: dict[str, Any]) -> dict[str, Any]:
    """Make what a session is told first."""
    return {"hello": {"protocol": PROTOCOL, "name": name, "pid": pid, "version": version, **told}}


class Shown(msgspec.Struct):
    """The first message of a page."""

    token: str = ""
