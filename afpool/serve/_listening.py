"""Streams of 2026-07-28 on which changes are told (`subscriptions/listen`): each for its own identity only.

Rules:

* The acknowledgement comes first, and says what will be told: changes of the tool list. Nothing else is asked
  for is ever told.
* A stream ends with its client, with its proof, or because the service ends; what ends on our side says so.
* A client that does not read is told once, however often its tools change meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import trio
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import SERVER_INFO_META_KEY

from ._rpc import INVALID_PARAMS, REFUSED, RpcError, notification

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._base.identity import Identity
    from ._asked import Asked

MAX_OF_ONE: Final = 64
_write = msgspec.json.encode


@final
class Listener:
    """One open stream.

    Attributes:
        asked: The request whose answer it is.
    """

    __slots__ = ("_ended", "_meta", "_wants_tools", "asked")

    def __init__(self, asked: Asked, *, wants_tools: bool) -> None:
        self.asked = asked
        self._wants_tools = wants_tools
        self._ended = trio.Event()
        self._meta = {SUBSCRIPTION_ID_META_KEY: asked.message.id}

    @property
    def identity(self) -> Identity:
        """Whose."""
        return self.asked.proven.identity

    def begin(self) -> None:
        """Acknowledge. Synchronous."""
        honored = {"toolsListChanged": True} if self._wants_tools else {}
        told = {"notifications": honored, "_meta": self._meta}
        self.asked.outlet.tell(
            notification("notifications/subscriptions/acknowledged", told), droppable=False
        )

    def tools_changed(self) -> None:
        """Tell of it. Synchronous."""
        if self._wants_tools:
            message = notification("notifications/tools/list_changed", {"_meta": self._meta})
            self.asked.outlet.tell(message, droppable=True)

    def end(self) -> None:
        """Let it end. Synchronous."""
        self._ended.set()

    async def wait(self, info: dict[str, Any]) -> bytes:
        """Wait for its end, and give its result."""
        await self._ended.wait()
        return _write({"resultType": "complete", "_meta": {**self._meta, SERVER_INFO_META_KEY: info}})


@final
class Listening:
    """All open streams."""

    def __init__(self) -> None:
        self._open: dict[Listener, None] = {}

    def __iter__(self) -> Iterator[Listener]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, asked: Asked, info: dict[str, Any]) -> bytes:
        """Answer `subscriptions/listen`: keep the stream open, and give its result when it ends.

        Raises:
            RpcError: It asks for nothing that can be told, or its identity has too many.
        """
        wanted = asked.message.params.get("notifications")
        if not isinstance(wanted, dict):
            raise RpcError(INVALID_PARAMS, "a stream is asked for with `notifications`")
        if not asked.outlet.can_tell:
            raise RpcError(REFUSED, "nothing can be told on this request's answer", status=406)
        identity = asked.proven.identity
        # by principal: of conversations anybody has as many as he likes
        if (
            sum(_principal(listener.identity) == _principal(identity) for listener in self._open)
            >= MAX_OF_ONE
        ):
            raise RpcError(
                REFUSED, f"more than {MAX_OF_ONE} streams of one caller", status=429, retry_after=30
            )
        listener = Listener(asked, wants_tools=wanted.get("toolsListChanged") is True)
        self._open[listener] = None
        try:
            listener.begin()
            return await listener.wait(info)
        finally:
            del self._open[listener]

    def sweep(self) -> None:
        """End those whose proof is void."""
        for listener in self:
            if not listener.asked.proven.still_holds():
                listener.end()

    def clear(self) -> None:
        """End all."""
        for listener in self:
            listener.end()


def _principal(identity: Identity) -> tuple[str | None, str | None]:
    return identity.tenant, identity.principal
