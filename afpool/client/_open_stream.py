"""Opening the event stream of HTTP+SSE (2024-11-05), before anything can be posted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from .._base.errors import ConnectionLost, LocalSessionHandleLostError, OpenFailed, ServerFailed
from ..protocol import RETRY_AFTER, parse_retry_after
from ._attempt import Tries, attempt, redirect
from ._control import Control
from ._sse_channel import SseChannel
from ._trip import Rpc
from ._upgrade import credential_wanted

if TYPE_CHECKING:
    from ._client import Client
    from ._settings import ClientSettings
    from ._stages import Stages
    from ._trip import Answer

PROBE_HTTP: Final = 10.0


class NoStream(OpenFailed):
    """The server does not speak HTTP+SSE at this address."""


async def open_stream(client: Client, settings: ClientSettings, stages: Stages) -> None:
    """Open the stream and wait until the server has said where messages go.

    Args:
        client: Of an `SseChannel`, not open yet.
        settings: For the clock.
        stages: Told which stage it is in.

    Raises:
        NoStream: The server opens no such stream.
        OpenFailed: It names a place of another origin.
        AuthorizationRequired: It wants a credential that cannot be had.
    """
    channel = client.channel
    assert isinstance(channel, SseChannel)
    tries = Tries()
    while True:
        caller = Control(client, settings.seams.now() + PROBE_HTTP, stages)
        answer: Answer | None = None
        with trio.CancelScope(deadline=caller.deadline):
            try:
                answer = await attempt(client, caller, Rpc("", lane="stream"), tries)
            except (ConnectionLost, LocalSessionHandleLostError, ServerFailed) as error:
                what = error.message.partition(";")[0]
                raise NoStream(f"no event stream for HTTP+SSE: {what}; nothing was sent") from error
            finally:
                trip = caller.trip
                if trip is not None and not trip.over:
                    trip.close()
        if answer is None:
            raise NoStream("the server named no `endpoint` for HTTP+SSE in time; nothing was sent")
        if channel.foreign:
            raise OpenFailed(
                "the server names an `endpoint` of another origin, or none that can be read; nothing was sent"
            )
        if channel.open:
            return
        if redirect(client, answer, tries):
            continue
        if answer.status in (401, 403):
            failure = credential_wanted(client, answer, answer.status, tries)
            if failure is not None:
                raise failure
        else:
            raise NoStream(
                f"the server opens no event stream for HTTP+SSE (HTTP {answer.status}); nothing was sent",
                http_status=answer.status,
                retry_after=parse_retry_after(answer.header(RETRY_AFTER), settings.seams.unix_now()),
            )
