"""What a client sends by itself: the ask for its stream, answers to the server, the end of its session.

Each carries credential and signature like any call, and follows a 307 or 308 within the origin as a call
does, at most as often, asking its gate each time. A 401 is followed once by another credential, as a call's
is; whoever brings `Tries` of its own sees to that itself. Nothing here is sent again for any other answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from .._base.errors import AfpoolError
from ..protocol import LOCATION
from ..transports import HttpRequest
from ._attempt import Tries, another_credential, credential_headers, new_credential
from ._http_channel import with_headers
from ._redirects import REDIRECTS, go_to, redirect_target
from ._signing import can_sign_again, signature
from ._stream_channel import StreamChannel
from ._trip import Answer, first_of

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
    renews = tries is None and (client.requirement is not None or can_sign_again(client))
    tries = Tries() if tries is None else tries
    left = REDIRECTS
    while True:
        bare = HttpRequest(method, channel.target, headers, body)
        request = await dressed(client, bare, tries)
        if request is None:
            return False
        watch = _Watch(client, sink, follows=left > 0, renews=renews and not tries.rejected)
        exchange = channel.link.exchange(request, watch, lane)
        try:
            await exchange.run(gate, deadline)
        finally:
            exchange.close()
        if watch.refusal is not None and another_credential(client, watch.refusal, tries):
            new_credential(watch.refusal, tries)
        elif watch.elsewhere is not None:
            left -= 1
            go_to(client, watch.elsewhere)
        else:
            return True


async def dressed(client: Client, request: HttpRequest, tries: Tries) -> HttpRequest | None:
    """Add credential and signature to a request; `None` where they cannot be had."""
    channel = client.channel
    assert not isinstance(channel, StreamChannel)
    try:
        if client.requirement is not None:
            request = with_headers(request, await credential_headers(client, tries))
        if client.settings.signer is not None:
            request = with_headers(request, await signature(client, request, channel.url(), tries.refusal))
    except AfpoolError:
        return None
    return request


@final
class _Watch:
    """Stands before a sink and keeps from it an answer that only says where to go, or what to come with."""

    __slots__ = ("_client", "_follows", "_renews", "_sink", "elsewhere", "refusal")

    def __init__(self, client: Client, sink: Sink, *, follows: bool, renews: bool) -> None:
        self._client = client
        self._sink = sink
        self._follows = follows
        self._renews = renews
        self.elsewhere: str | None = None
        self.refusal: Answer | None = None

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        if self._follows and status in (307, 308):
            location = first_of(headers, LOCATION)
            self.elsewhere = redirect_target(self._client, status, location)
        elif self._renews and status == 401:
            self.refusal = Answer(None, status, headers)
        if self.elsewhere is None and self.refusal is None:
            self._sink.head(status, headers)

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece."""
        return self.elsewhere is not None or self.refusal is not None or self._sink.data(chunk)
