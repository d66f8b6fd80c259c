"""Signatures: what a signer is shown is, byte for byte, what is sent.

* The request is whole before it is shown: its target, every header with `host` and `content-length`, and the
  body with the request's id. Only the headers that the signer gives are added afterwards.
* Every attempt is signed anew, and the gate is asked when the signature has come.
* A signer that can make something of a refusal (`sign_again`) is asked once more after a 401, never twice.

Every await here stands behind `boundary`, or serves what the client sends by itself; a test reads this file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._base.errors import AfpoolError, CredentialFailed
from .._base.untraced import by_itself, in_place_of
from ._header_rules import checked

if TYPE_CHECKING:
    import httpx

    from ..transports import Headers, HttpRequest
    from ._client import Client
    from ._trip import Answer


def can_sign_again(client: Client) -> bool:
    """Whether the signer can make something of a 401."""
    signer = client.settings.signer
    return signer is not None and client.carries_headers and hasattr(signer, "sign_again")


async def signature(client: Client, request: HttpRequest, url: str, refusal: Answer | None) -> Headers:
    """Ask the signer for headers.

    Args:
        client: Whose signer.
        request: Whole, as it will be sent.
        url: Where it goes.
        refusal: The 401 that this attempt follows, if it does.

    Raises:
        CredentialFailed: The signer raised, or gave what cannot be sent; nothing was sent.
    """
    signer: Any = client.settings.signer
    shown = show(request, url)
    there = _kept(shown)
    added: Any = None
    failure: CredentialFailed | None = None
    try:
        if refusal is not None and can_sign_again(client):
            added = signer.sign_again(shown, show_answer(refusal, shown))
        else:
            added = signer.sign(shown)
        if inspect.isawaitable(added):
            added = await added
    except AfpoolError as error:
        raise by_itself(error) from None
    except Exception as error:  # noqa: BLE001 -- the host's own code, which may raise anything
        failure = in_place_of(
            error, CredentialFailed(f"the signer raised {type(error).__name__}; nothing was sent")
        ).saying("sign", type(error).__name__)
    if failure is not None:
        raise failure  # out here, where what the signer raised does not become its context
    if not isinstance(added, Mapping):
        raise CredentialFailed(
            f"the signer returned {type(added).__name__}, not a mapping of headers; nothing was sent"
        )
    holder = [added]
    del added  # no local of a frame that something is raised through holds a value
    return checked(holder.pop().items(), "the signer", there())


def _kept(request: httpx.Request) -> Callable[[], Headers]:
    """Keep a request's headers as they are now: a signer may change the object. In a function, unseen."""
    pairs = [(name.lower(), value) for name, value in request.headers.raw]
    return lambda: pairs


def show(request: HttpRequest, url: str) -> httpx.Request:
    """Show a request to somebody who speaks httpx.

    Raises:
        CredentialFailed: httpx writes the URL in another way than it will be sent; nothing was sent.
    """
    import httpx

    place = httpx.URL(url)
    if place.raw_path != request.target:
        raise CredentialFailed(
            "the server's URL is spelled in a way that cannot be shown to a signer as it is sent; "
            "nothing was sent"
        )
    host = place.netloc
    pairs = [(b"host", host), *request.headers]
    if request.body:
        pairs.append((b"content-length", b"%d" % len(request.body)))
    return httpx.Request(request.method.decode(), place, headers=pairs, content=request.body)


def show_answer(answer: Answer, request: httpx.Request) -> httpx.Response:
    """Show a refusal to somebody who speaks httpx: status and headers, and what was kept of its body."""
    import httpx

    headers = [
        (name, value)
        for name, value in answer.headers or ()
        if name not in (b"content-length", b"transfer-encoding", b"content-encoding")
    ]
    return httpx.Response(answer.status or 0, headers=headers, content=answer.hint, request=request)
