"""One request of a client while it is under way, whatever it came by.

Rules:

* A request belongs to one proven caller from its first byte to its answer, and to the session that it came
  in.
* What is told meanwhile (progress, questions) goes out with it, to the client that sent it and to nobody
  else.
* It ends once: answered, withdrawn by its client (`notifications/cancelled`), or because the client has gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, final

import trio
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext

from ._rpc import notification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.model import Progress
    from ._proof_types import Proven
    from ._rpc import Message
    from ._sessions import Session

_TRANSPORT: Final = TransportContext(kind="afpool", can_send_request=False)


class Outlet(Protocol):
    """What carries a request's answer, and what is said before it."""

    @property
    def can_tell(self) -> bool:
        """Whether anything can be said before the answer."""
        ...

    def tell(self, message: bytes, *, droppable: bool) -> None:
        """Take a message for the client. Synchronous; what is droppable may be left out of a flood."""
        ...


@final
class Asked:
    """A request of a client.

    It is what the SDK's kernel calls a dispatch context, too.

    Attributes:
        message: The request.
        proven: Who sent it.
        session: Its session; `None` in the stateless era.
        version: The protocol version that it is made in.
        capabilities: What the client says that it can be asked.
        outlet: What carries its answer.
        scope: Cancelled when it is withdrawn or its client has gone.
        withdrawn: Whether its client took it back.
        headers: Of the HTTP request, names in lower case; `None` where there are none for a request.
        carrier: Headers that may tell of the client's span.
        tool: The tool that it called, once that was found.
        failed: What kind of failure the call ended with.
    """

    __slots__ = (
        "_never", "_token", "capabilities", "carrier", "failed", "headers", "message", "outlet", "proven",
        "scope", "session", "tool", "version", "withdrawn",
    )  # fmt: skip

    def __init__(
        self,
        message: Message,
        proven: Proven,
        outlet: Outlet,
        *,
        session: Session | None,
        version: str,
        capabilities: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        carrier: Mapping[str, str] | None = None,
    ) -> None:
        self.message = message
        self.proven = proven
        self.session = session
        self.version = version
        self.capabilities = capabilities
        self.outlet = outlet
        self.headers = headers
        self.carrier = headers if carrier is None else carrier
        self.tool: str | None = None
        self.failed: str | None = None
        self.scope = trio.CancelScope()
        self.withdrawn = False
        self._token = _token_of(message.params)
        self._never: trio.Event | None = None

    def withdraw(self) -> None:
        """Let its client take it back. Synchronous."""
        self.withdrawn = True
        self.scope.cancel()

    @property
    def wants_progress(self) -> bool:
        """Whether anybody is to be told of progress."""
        return self._token is not None and self.outlet.can_tell

    def tell_progress(self, step: Progress) -> None:
        """Tell the client of progress, under its own token. Synchronous."""
        told: dict[str, Any] = {"progressToken": self._token, "progress": step.progress}
        if step.total is not None:
            told["total"] = step.total
        if step.message is not None:
            told["message"] = step.message
        self.outlet.tell(notification("notifications/progress", told), droppable=True)

    # ------------------------------------------------------------------ as the SDK's dispatch context

    @property
    def transport(self) -> TransportContext:
        """Nothing can be asked through the SDK: questions have a way of their own."""
        return _TRANSPORT

    @property
    def can_send_request(self) -> bool:
        """As `transport` says."""
        return False

    @property
    def request_id(self) -> str | int | None:
        """Of the request."""
        return self.message.id

    @property
    def message_metadata(self) -> ServerMessageMetadata:
        """Where a handler of the SDK's finds this request: `ctx.request`."""
        return ServerMessageMetadata(request_context=self)

    @property
    def cancel_requested(self) -> trio.Event:
        """Never set: who is withdrawn is cancelled."""
        if self._never is None:
            self._never = trio.Event()
        return self._never

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: object = None) -> None:  # noqa: ARG002 -- the SDK's shape
        """Tell the client something that belongs to this request."""
        self.outlet.tell(notification(method, None if params is None else dict(params)), droppable=False)
        await trio.lowlevel.checkpoint()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Not used: progress comes from calls, which tell of it themselves."""
        raise NotImplementedError

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,  # noqa: ARG002 -- the SDK's shape
        opts: object = None,  # noqa: ARG002 -- the SDK's shape
    ) -> dict[str, Any]:
        """Refuse: see `transport`."""
        raise NoBackChannelError(method)


def _token_of(params: Mapping[str, Any]) -> str | int | None:
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None
