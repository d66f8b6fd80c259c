"""What a client sends by itself: the ask for its stream, answers to the server, the end of its session.

Each carries credential and signature like any call, and follows a 307 or 308 within the origin as a call
does, at most as often, asking its gate each time. Nothing here is sent again for any other answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from .._base.errors import AfpoolError
from ..protocol import LOCATION
from ..transports import HttpRequest
from ._attempt import Tries, credential_headers
from ._http_channel import with_headers
from ._redirects import REDIRECTS, go_to, redirect_target
from ._signing import signature
from ._stream_channel import StreamChannel
from ._trip import first_of

if TYPE_CHECKING:
    from .._base.gate import Gate
    from ..transports import Headers, LaneName, Sink
    from ._client import Client


async def send_own(
    client: Client,
    method: bytes,
    headers: Headers,
    sink: Sink,
    *,
    lane: LaneName,
    gate: Gate,
    deadline: float,
    body: bytes = b"",
    tries: Tries | None = None,
) -> bool:
    """Send one, and read its answer into the sink; `tries` is what the provider is to know, if anything.

    Returns:
        Whether it was sent; not where the credential or signature that it needs could not be had.

    Raises:
        Exception: What the exchange raises.
    """
    channel = client.channel
    assert not isinstance(channel, StreamChannel)
    for left in range(REDIRECTS, -1, -1):
        bare = HttpRequest(method, channel.target, headers, body)
        request = await dressed(client, bare, Tries() if tries is None else tries)
        if request is None:
            return False
        watch = _Watch(client, sink, follows=left > 0)
        exchange = channel.link.exchange(request, watch, lane)
        try:
            await exchange.run(gate, deadline)
        finally:
            exchange.close()
        if watch.elsewhere is None:
            break
        go_to(client, watch.elsewhere)
    return True


async def dressed(client: Client, request: HttpRequest, tries: Tries) -> HttpRequest | None:
    """Add credential and signature to a request; `None` where they cannot be had."""
    channel = client.channel
    assert not isinstance(channel, StreamChannel)
    try:
        if client.requirement is not None:
            request = with_headers(request, await credential_headers(client, tries))
        if client.settings.signer is not None:
            request = with_headers(request, await signature(client, request, channel.url(), None))
    except AfpoolError:
        return None
    return request


@final
class _Watch:
    """Stands before a sink and keeps from it an answer that only says where to go."""

    __slots__ = ("_client", "_follows", "_sink", "elsewhere")

    def __init__(self, client: Client, sink: Sink, *, follows: bool) -> None:
        self._client = client
        self._sink = sink
        self._follows = follows
        self.elsewhere: str | None = None

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        if self._follows and status in (307, 308):
            location = first_of(headers, LOCATION)
            self.elsewhere = redirect_target(self._client, status, location)
        if self.elsewhere is None:
            self._sink.head(status, headers)

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece."""
        return True if self.elsewhere is not None else self._sink.data(chunk)
