"""Where an answer sends a request: followed within the origin and nowhere else.

* 307 and 308 only: the others change the method, so what they ask for is not the request that was made.
* Within the origin, since the request may carry a credential. The one step out of it that is followed is from
  `http` to `https` of the same host, and only while the channel may still move.
* At most `REDIRECTS` times for one request, asking its gate each time.
* Once followed, all requests of the client go there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ..protocol import same_origin_redirect
from ..transports import origin_of

if TYPE_CHECKING:
    from ._client import Client
    from ._http_channel import HttpChannel
    from ._sse_channel import SseChannel

REDIRECTS: Final = 3


def redirect_target(client: Client, status: int | None, location: bytes | str | None) -> str | None:
    """Where an answer sends the request, if it may be followed there: 307 or 308 within the origin."""
    if status not in (307, 308) or not client.carries_headers:
        return None
    channel = _channel(client)
    target = same_origin_redirect(channel.url(), location)
    if target is None:
        return None
    try:
        moves = origin_of(target)[0] != channel.link.origin
    except ValueError:  # two readers of URLs disagree: not a place to go
        return None
    return None if moves and not channel.movable else target


def go_to(client: Client, url: str) -> None:
    """Send requests there from now on; a URL that `redirect_target` gave."""
    channel = _channel(client)
    origin, channel.target = origin_of(url)
    if origin != channel.link.origin:
        assert channel.movable
        cast("HttpChannel", channel).move(origin)


def _channel(client: Client) -> HttpChannel | SseChannel:
    # Not told by `isinstance`: the channels ask for the rest of an answer, which follows redirects as well.
    assert client.carries_headers
    return cast("HttpChannel | SseChannel", client.channel)
