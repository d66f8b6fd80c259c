"""Sessions of the handshake era: bound to the identity that opened them, bounded, and forgotten when idle.

Rules:

* A session is found by its id and by whom it belongs to, together. Another's id and one that never was are
  the same answer.
* An idle session is data: no task, no stream, no connection.
* A principal who opens more than are allowed loses the idle one that was used longest ago. Where none is
  idle, or the service is full, the new one is refused.
* What goes on in a session ends with the proof that it began under, at the latest when somebody looks
  (`sweep`); the session does not: its identity may have a newer proof.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import trio

from .._base.errors import Overloaded
from ._rpc import notification, request_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._base.identity import Identity
    from ._asked import Asked, Outlet
    from ._calls import Offer
    from ._door_limits import DoorLimits
    from ._door_limits import Session as Place
    from ._proof_types import Proven

_ID_BYTES: Final = 24
TOOLS_CHANGED: Final = notification("notifications/tools/list_changed")

Principal = tuple[str | None, str | None]


class Channel(Protocol):
    """An open way to a client that does not belong to one request.

    Attributes:
        proven: The proof that it was opened under.
    """

    proven: Proven

    def announce(self, message: bytes) -> None:
        """Take what belongs to no request, where the client's era hears of such. Synchronous."""
        ...

    def end(self) -> None:
        """Let it end. Synchronous."""
        ...


@final
class Session:
    """One session of one client.

    Attributes:
        id: Its name towards the client; empty over WebSocket, where it is its connection.
        identity: Whose it is.
        proven: The proof of its latest request.
        runner: The SDK's kernel for it.
        offer: What its client was last shown, and so what it means by a name; `None` before it has listed.
        in_flight: Its requests under way, by their ids as written.
        channel: The stream on which it hears what belongs to no request, while there is one.
        used_at: When it was last used, on trio's clock.
    """

    __slots__ = (
        "_answers", "_news", "_next", "_place", "channel", "id", "identity", "in_flight", "offer", "proven",
        "runner", "used_at",
    )  # fmt: skip

    def __init__(self, session_id: str, proven: Proven, runner: Any, place: Place) -> None:
        self.id = session_id
        self._place = place
        self.identity = proven.identity
        self.proven = proven
        self.runner = runner
        self.offer: Offer | None = None
        self.in_flight: dict[bytes, Asked] = {}
        self.channel: Channel | None = None
        self.used_at = trio.current_time()
        self._answers: dict[str, _Waiting] | None = None
        self._next = 0
        self._news = False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nobody listens."""
        return not self.in_flight and self.channel is None

    @property
    def capabilities(self) -> dict[str, Any]:
        """What its client says that it can be asked."""
        params = self.runner.connection.client_params
        declared = None if params is None else params.capabilities
        return {} if declared is None else declared.model_dump(by_alias=True, exclude_none=True)

    def use(self, proven: Proven) -> None:
        """Note that it is used, and by which proof."""
        self.proven = proven
        self.used_at = trio.current_time()

    # ------------------------------------------------------------------ what the service says by itself

    def listen(self, channel: Channel) -> None:
        """Let a client hear on a channel; the one before ends, since its client has a newer one."""
        before, self.channel = self.channel, channel
        if before is not None:
            before.end()
        if self._news:
            self._news = False
            channel.announce(TOOLS_CHANGED)

    def unlisten(self, channel: Channel) -> None:
        """A channel has ended."""
        if self.channel is channel:
            self.channel = None
            self.used_at = trio.current_time()

    def tools_changed(self) -> None:
        """Its tools may be others now; a client that does not listen is told when it does. Synchronous."""
        if self.channel is None:
            self._news = True
        else:
            self.channel.announce(TOOLS_CHANGED)

    # ------------------------------------------------------------------ what the client is asked

    async def ask(self, outlet: Outlet, method: str, params: dict[str, Any]) -> bytes | None:
        """Ask the client, on the stream of one of its requests.

        Args:
            outlet: Of that request.
            method: Such as `elicitation/create`.
            params: Of the question.

        Returns:
            The result as it was written; `None` where the client answered with an error.

        Cancelled, the client is told that nobody waits for its answer any more.
        """
        self._next += 1
        key = f"afpool-{self._next}"
        waiting = _Waiting()
        if self._answers is None:
            self._answers = {}
        self._answers[key] = waiting
        try:
            outlet.tell(request_message(key, method, params), droppable=False)
            await waiting.done.wait()
        except trio.Cancelled:
            told = {"requestId": key, "reason": "the call ended"}
            outlet.tell(notification("notifications/cancelled", told), droppable=True)
            raise
        finally:
            self._answers.pop(key, None)
        return waiting.result or None

    def answered(self, key: object, result: bytes) -> None:
        """Take a client's answer to what it was asked. One that nobody waits for is nothing."""
        waiting = self._answers.get(key) if self._answers and isinstance(key, str) else None
        if waiting is not None:
            waiting.result = result
            waiting.done.set()

    def end(self) -> None:
        """Let everything of it end: its requests are cancelled, its channel closes. Synchronous."""
        for asked in list(self.in_flight.values()):
            asked.scope.cancel()
        if self.channel is not None:
            self.channel.end()
        self._place.close()

    def end_unproven(self) -> None:
        """End what goes on under a proof that is void. The session stays: a newer proof may use it."""
        for asked in list(self.in_flight.values()):
            if not asked.proven.still_holds():
                asked.scope.cancel()
        if self.channel is not None and not self.channel.proven.still_holds():
            self.channel.end()


@final
class _Waiting:
    __slots__ = ("done", "result")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result = b""


@final
class Sessions:
    """All sessions: those with an id, and those that are a WebSocket.

    Args:
        limits: Counts them, and refuses one too many.
        idle_for: Seconds after which an idle one is forgotten.
    """

    def __init__(self, limits: DoorLimits, idle_for: float) -> None:
        self.limits = limits
        self.idle_for = idle_for
        # a session over WebSocket has no id and stands under itself
        self._all: dict[str | Session, Session] = {}
        self._of: dict[Principal, dict[Session, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._all.values()))

    def find(self, session_id: str, identity: Identity) -> Session | None:
        """The session of an id, if it is this identity's."""
        session = self._all.get(session_id)
        return session if session is not None and session.identity == identity else None

    def open(self, proven: Proven, runner: Any, *, named: bool) -> Session:
        """Begin a session, and keep it until `remove`.

        Args:
            proven: Whose.
            runner: The SDK's kernel for it.
            named: Whether it is found by an id.

        Raises:
            Overloaded: There are too many, and none of this principal's is idle.
        """
        try:
            place = self.limits.session(proven.identity)
        except Overloaded:
            own = self._of.get(_principal(proven.identity), {})
            idle = [session for session in own if session.idle and session.id]
            if not idle:
                raise
            self.remove(min(idle, key=lambda session: session.used_at))
            place = self.limits.session(proven.identity)
        session = Session(secrets.token_urlsafe(_ID_BYTES) if named else "", proven, runner, place)
        self._all[session.id or session] = session
        self._of.setdefault(_principal(session.identity), {})[session] = None
        return session

    def remove(self, session: Session) -> None:
        """Forget a session and let everything of it end. Synchronous, and may be repeated."""
        if self._all.pop(session.id or session, None) is None:
            return
        principal = _principal(session.identity)
        own = self._of[principal]
        del own[session]
        if not own:
            del self._of[principal]
        session.end()

    def sweep(self, now: float) -> None:
        """Forget those that have been idle for long; end what goes on under a proof that is void."""
        for session in self:
            session.end_unproven()
            if session.id and session.idle and now - session.used_at > self.idle_for:
                self.remove(session)

    def clear(self) -> None:
        """Forget all."""
        for session in self:
            self.remove(session)


def _principal(identity: Identity) -> Principal:
    return identity.tenant, identity.principal
