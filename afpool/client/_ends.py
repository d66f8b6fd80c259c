"""How a request that is given up, and an incarnation, come to their end.

* A request that is given up is told to the server, once, and its end is not waited for. In the stateless era
  over HTTP closing its response is the notice; elsewhere it is `notifications/cancelled`, which goes its own
  way in the background. One that does not arrive changes nothing of ours.
* An incarnation ends in order (`aclose`: DELETE where it has a session by an id, EOF for a child) or at once
  (`kill`). Either way it is over when the function returns or raises, and none of its connections is left.
* A DELETE is a courtesy: it may be refused or fail, and the session then ends by the server's clock. None
  is sent for a session that was lost.
* Nothing here tells the owner, who asked for it. What the server or the wire ends is `Client.lose`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Literal

import trio

from .._base.errors import AfpoolError, PoolClosed
from ..protocol import cancelled_params, encode_notification
from ._control import Control, Nothing
from ._http_channel import HttpChannel
from ._own import send_own
from ._sse_channel import SseChannel
from ._stream_channel import StreamChannel
from ._trip import Rpc

if TYPE_CHECKING:
    from ._client import Client
    from ._trip import Trip

CANCELLED: Final = "notifications/cancelled"

Ending = Literal["closed", "killed"]


def give_up(client: Client, trip: Trip) -> trio.Event | None:
    """Tell the server that nobody waits for an answer any more; see `Client.cancel`."""
    if client.cancel_by_closing:
        trip.close()
        return None
    params = cancelled_params(getattr(trip, "request_id", 0), meta=client.meta if client.stateless else b"")
    if isinstance(client.channel, StreamChannel):
        return client.channel.tell(encode_notification(CANCELLED, params))
    left = trio.Event()
    # In the last moments of a pool nothing is started any more, and nobody misses it.
    with contextlib.suppress(PoolClosed):
        client.spawn(_notify, client, params, left)
    return left if client.shared_stream else None


async def _notify(client: Client, params: bytes, left: trio.Event) -> None:
    try:
        # Taken at once, as answers are: a list of ours that hangs must not be in its way.
        rpc = Rpc(CANCELLED, params, lane="answer", notification=True)
        await client.control(rpc, client.settings.control_timeout)
    except AfpoolError:
        return  # a notice that does not arrive changes nothing of ours
    finally:
        left.set()


async def aclose(client: Client, deadline: float) -> Ending:
    """End the session in order within the deadline; see `Client.aclose`."""
    client.listener.stop()
    client.answering.stop()
    channel = client.channel
    try:
        if isinstance(channel, HttpChannel):
            negotiated = client.negotiated
            if client.lost is None and negotiated is not None and negotiated.session_id is not None:
                await _delete(client, channel, deadline)
            return "closed"
        if isinstance(channel, SseChannel):
            return "closed"  # there is no other goodbye than the end of the stream
        await channel.aclose(deadline)
        if client.process is None:
            return "closed"
        report = await client.process.aclose(deadline)
        return "killed" if report.ending == "killed" else "closed"
    finally:
        _over(client, "closed")


async def _delete(client: Client, channel: HttpChannel, deadline: float) -> None:
    """Tell the server that the session is over; it may refuse that."""
    caller = Control(client, deadline)
    with trio.CancelScope(deadline=deadline):
        try:
            # The notification stream has just been stopped, so its place is free: a list that hangs is
            # not in the way.
            await send_own(
                client, b"DELETE", channel.headers, Nothing(),
                lane="stream", gate=caller, deadline=deadline,
            )  # fmt: skip
        except Exception:  # noqa: BLE001 -- the session then ends by the server's own clock
            return


def kill(client: Client) -> None:
    """End it at once; synchronous."""
    client.listener.stop()
    client.answering.stop()
    client.channel.kill()
    if client.process is not None:
        client.process.kill_now()
    _over(client, "killed")


def _over(client: Client, reason: str) -> None:
    if client.lost is None:
        client.lost = reason
    client.channel.kill()
