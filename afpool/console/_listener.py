"""Connections of consoles: accepted, judged by their first bytes, made to sessions or answered and closed.

Rules:

* A connection has a few seconds and a few kilobytes until it is a session. There are few such connections at
  once on one socket; the oldest makes room for one more, so that whoever opens many and says nothing keeps
  nobody out. The sockets do not share that room: what comes by TCP never keeps out who sits at the machine.
* The head is judged first (`Door.judge`), then who comes; then whether there is room. Too many sessions are a
  status with a sentence, or for a browser, which shows its page none, a close with that sentence.
* What goes wrong in one connection ends this one.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.untraced import place_of
from ._ask import Asker
from ._door import Entered, Refused, peer_uid
from ._head import Head, Peer, linger, read_head, refusal, say_last
from ._page import answer
from ._session import Session
from ._words import GOING_AWAY, PATH, SUBPROTOCOL, TRY_LATER, WRONG_TOKEN

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection, WebSocketRequest

    from ._open import Console

logger = logging.getLogger("afpool.console")

_ACCEPT_PAUSE: Final = 0.1
_SAID_EVERY: Final = 60.0
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


@final
class Listener:
    """One socket that consoles come by.

    Args:
        console: What they are attached to.
        sock: Bound and listening.
        unix: Whether it is a Unix socket.
    """

    def __init__(self, console: Console, sock: trio.SocketListener, *, unix: bool) -> None:
        self._console = console
        self._sock = sock
        self._unix = unix
        self._limits = console.settings.limits
        self._pending: dict[trio.CancelScope, None] = {}

    async def run(self) -> None:
        """Accept connections until cancelled; then every one of them is ended."""
        said = float("-inf")
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    stream = await self._sock.accept()
                except OSError as error:
                    # out of descriptors, most likely: others end meanwhile
                    if trio.current_time() - said > _SAID_EVERY:
                        said = trio.current_time()
                        logger.warning("no console could be accepted (%s)", type(error).__name__)
                    await trio.sleep(_ACCEPT_PAUSE)
                    continue
                nursery.start_soon(self._one, stream)

    async def _one(self, stream: trio.SocketStream) -> None:
        scope = trio.CancelScope(deadline=trio.current_time() + self._limits.head_timeout)
        self._pending[scope] = None
        if len(self._pending) > self._limits.pending:
            next(iter(self._pending)).cancel()
        try:
            with scope:
                peer = Peer(stream, self._limits.stalled)
                async with peer:
                    await self._serve(peer, scope)
        except Exception as error:  # noqa: BLE001 -- one connection's trouble is not the next one's
            logger.warning(
                "a console's connection ended by %s (%s)", type(error).__name__, place_of(error.__traceback__)
            )
        finally:
            self._pending.pop(scope, None)

    async def _serve(self, peer: Peer, scope: trio.CancelScope) -> None:
        door = self._console.door
        entered: Entered | Refused | None = None
        if self._unix:
            entered = door.by_user(peer_uid(peer.below.socket))
        head = await read_head(peer, self._limits.head)
        if head is None:
            return
        if isinstance(head, Refused):
            await self._say(peer, scope, refusal(door.refuse(head), None))
            return
        if isinstance(entered, Refused):
            await self._say(peer, scope, refusal(entered, head))
            return
        refused = door.judge(head.headers, unix=self._unix)
        if refused is None and head.upgrade and head.path == PATH:
            refused = head.upgrade_problem()
        elif refused is None:
            await self._say(peer, scope, answer(head))
            return
        said = head.get("authorization")
        if refused is None and entered is None and said is not None:
            entered = door.by_header(said, _where(peer))
        refused = entered if isinstance(entered, Refused) else refused
        if refused is not None:
            await self._say(peer, scope, refusal(refused, head))
        elif not isinstance(entered, Entered):
            await self._upgrade(peer, scope, head, None, seated=False)
        else:
            with self._console.seat(entered.level) as seated:
                if seated or head.get("origin") is not None:
                    await self._upgrade(peer, scope, head, entered, seated=seated)
                else:
                    await self._say(peer, scope, refusal(self._console.too_many(), head))

    async def _say(self, peer: Peer, scope: trio.CancelScope, data: bytes) -> None:
        # it has been judged: what is sent may take longer than what was read
        scope.deadline = trio.current_time() + self._limits.stalled
        await say_last(peer, data)

    async def _upgrade(
        self, peer: Peer, scope: trio.CancelScope, head: Head, entered: Entered | None, *, seated: bool
    ) -> None:
        from trio_websocket import wrap_server_stream

        peer.replay = head.raw
        async with trio.open_nursery() as nursery:
            below: Any = peer
            request: WebSocketRequest = await wrap_server_stream(
                nursery, below, max_message_size=self._limits.frame
            )
            sock = await request.accept(subprotocol=SUBPROTOCOL)
            if entered is not None:
                await self._session(sock, peer, scope, entered, seated=seated)
            else:
                entered = await self._by_message(sock, _where(peer))
                if entered is not None:
                    with self._console.seat(entered.level) as found:
                        await self._session(sock, peer, scope, entered, seated=found)
            nursery.cancel_scope.cancel()
        scope.deadline = trio.current_time() + self._limits.head_timeout
        await linger(peer)

    async def _by_message(self, sock: WebSocketConnection, where: str) -> Entered | None:
        """Let a page show its token, which it cannot do in a header."""
        import msgspec
        from trio_websocket import ConnectionClosed

        from ._session import Shown

        try:
            text = await sock.get_message()
        except ConnectionClosed:
            return None
        try:
            shown = msgspec.json.decode(text, type=Shown).token
        except (msgspec.MsgspecError, RecursionError, ValueError):
            shown = ""
        entered = self._console.door.by_token(shown, where)
        if isinstance(entered, Entered):
            return entered
        await _close(sock, WRONG_TOKEN, {"code": "not-allowed", "message": entered.sentence, "try": []})
        return None

    async def _session(
        self,
        sock: WebSocketConnection,
        peer: Peer,
        scope: trio.CancelScope,
        entered: Entered,
        *,
        seated: bool,
    ) -> None:
        console = self._console
        if not seated:
            words = console.too_many().sentence
            await _close(sock, TRY_LATER, {"code": "busy", "message": words, "try": []})
            return
        if not self._unix:
            _keep_alive(peer.below.socket)
        session = Session(console, sock, Asker(entered.level, entered.who, console.next_number()))
        self._pending.pop(scope, None)
        scope.deadline = float("inf")
        with console.attached(session):
            await session.run()


def _where(peer: Peer) -> str:
    """Name the other end, for the record."""
    try:
        host = peer.below.socket.getpeername()
    except OSError:
        return "nowhere"
    return str(host[0]) if isinstance(host, tuple) else "a Unix socket"


def _keep_alive(sock: Any) -> None:
    """Have the kernel find out when a peer is gone without a word: its client may be silent for hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _close(sock: WebSocketConnection, code: int, error: dict[str, Any]) -> None:
    import msgspec
    from trio_websocket import ConnectionClosed

    try:
        await sock.send_message(msgspec.json.encode({"error": error}).decode())
        with trio.move_on_after(1.0):
            await sock.aclose(code, error["message"][:120])
    except ConnectionClosed:
        pass


async def say_goodbye(sessions: list[Session]) -> None:
    """Close sessions with a word, all at once, within a moment."""
    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(session.end, GOING_AWAY, "the console closes")
