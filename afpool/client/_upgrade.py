"""Opening a WebSocket: connection, credential, upgrade; and what a server's refusal of it means.

Rules:

* The credential travels with the upgrade request alone, beside the plan's static headers. A connection keeps
  the one that it was opened with for as long as it lives; another one means another incarnation.
* An upgrade that is answered 401 is tried once more with a credential that was asked for anew, and 403 with
  a challenge for more scopes as often as over HTTP. Every other refusal fails the opening.
* A redirect is not followed: the credential was meant for the address of the plan.
* Signers sign HTTP requests of calls; the upgrade carries no call and is not signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from .._base.errors import NOT_SENT, AfpoolError, AuthorizationRequired, OpenFailed
from ..protocol import RETRY_AFTER, parse_challenge, parse_retry_after
from ..transports import ConnectFailed, UpgradeRefused, WebSocketLink, origin_of
from ._attempt import (
    Tries,
    another_credential,
    challenge_of,
    credential_headers,
    new_credential,
    step_up,
)
from ._header_rules import merged
from ._stream_channel import StreamChannel
from ._trip import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._client import Client
    from ._plan import WebSocketTransport
    from ._stages import Stages

UPGRADE: Final = 30.0
"""Seconds that connecting and upgrading may take together."""


async def upgraded(
    make: Callable[[], Client],
    end: Callable[[Client], object],
    transport: WebSocketTransport,
    spawn: Callable[..., None],
    stages: Stages,
) -> Client:
    """Make clients until one has its WebSocket; at most as many as credentials may be asked for.

    Args:
        make: Makes a client whose link is not open.
        end: Ends one whose upgrade was refused. Synchronous.
        transport: Where to, and what the upgrade request carries.
        spawn: Runs a link in the background.
        stages: Told which stage it is in.

    Raises:
        OpenFailed: There is no connection, or the server refused the upgrade; nothing was sent of any call.
        AuthorizationRequired: The server wants a credential that could not be had.
        CredentialFailed: The provider raised.
    """
    tries = Tries()
    while True:
        client = make()
        try:
            await _upgrade(client, transport, spawn, tries, stages)
        except UpgradeRefused as refused:
            end(client)
            failure = _consequence(client, refused, tries)
            if failure is not None:
                raise failure from None  # its words are in the failure's; its headers are the server's
        else:
            return client


async def _upgrade(
    client: Client,
    transport: WebSocketTransport,
    spawn: Callable[..., None],
    tries: Tries,
    stages: Stages,
) -> None:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in transport.headers]
    if client.requirement is not None:
        with stages.within("credential"):
            headers = merged(headers, await credential_headers(client, tries))
    origin, target = origin_of(transport.url, schemes=("ws", "wss"))
    channel = client.channel
    assert isinstance(channel, StreamChannel)
    link = channel.link
    assert isinstance(link, WebSocketLink)
    with trio.move_on_at(client.settings.seams.now() + UPGRADE):
        try:
            wire = await client.endpoint.connector(transport.tls).connect(origin)
        except ConnectFailed as error:
            raise OpenFailed(f"no connection to the server: {error}; nothing was sent") from error
        await link.open(
            wire,
            authority=origin.authority.decode(),
            target=target.decode("ascii"),
            headers=headers,
            subprotocols=transport.subprotocols,
            spawn=lambda _: spawn(channel.run),
        )
        return
    raise UpgradeRefused(f"the server did not answer the upgrade to WebSocket within {UPGRADE:g} s")


def _consequence(client: Client, refused: UpgradeRefused, tries: Tries) -> AfpoolError | None:
    """Say why an opening fails; `None` where it is tried again with another credential."""
    status = refused.status
    answer = Answer(None, status, refused.headers)
    retry_after = parse_retry_after(answer.header(RETRY_AFTER), client.settings.seams.unix_now())
    if status in (401, 403):
        return credential_wanted(client, answer, status, tries)
    text = f"{refused}"
    if status is not None and 300 <= status < 400:
        text = f"{text}; a redirect of a WebSocket is not followed"
    failure = OpenFailed(f"{text}; nothing was sent", http_status=status, retry_after=retry_after)
    return client.carried.clean(failure)


def credential_wanted(client: Client, answer: Answer, status: int, tries: Tries) -> AfpoolError | None:
    """Judge an opening that was answered with 401 or 403.

    Returns:
        `None` where it may be tried again with another credential, which `tries` says how to ask for.
    """
    challenge = challenge_of(answer)
    if status == 401 and another_credential(client, answer, tries):
        new_credential(answer, tries)
        return None
    if status == 403 and parse_challenge(challenge) is not None and step_up(client, answer, tries):
        return None
    retry_after = parse_retry_after(answer.header(RETRY_AFTER), client.settings.seams.unix_now())
    if status == 403 and challenge is None:
        return OpenFailed("the server refuses this client (HTTP 403); nothing was sent", http_status=403)
    what = "a credential" if client.requirement is None else "another credential"
    return client.carried.clean(
        AuthorizationRequired(
            f"the server wants {what} (HTTP {status}); nothing was sent",
            delivery=NOT_SENT,
            http_status=status,
            www_authenticate=challenge,
            retry_after=retry_after,
        )
    )
