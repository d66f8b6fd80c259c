"""`httpx.Auth` objects as signers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.errors import CredentialFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import httpx


class HttpxAuth:
    """A signer that asks an `httpx.Auth`: `open_pool(..., signer=HttpxAuth(auth))`.

    The auth's flow is begun anew for every attempt, with the request as it will be sent, and the headers that
    it sets are added to it. Where the server answers 401, the flow is begun once more and given that answer;
    the headers of its second request go out in one more attempt, and there it ends.

    Not supported, and refused `credential-failed` with nothing sent: flows that send requests of their own
    (to fetch a token; give those to a credential provider), and flows that change method, URL or body. An
    answer that is no 401 is not shown to the flow.

    Args:
        auth: Yours. One object serves all keys of the pool, so it must hold nothing of one user.
    """

    __slots__ = ("_auth",)

    def __init__(self, auth: httpx.Auth) -> None:
        self._auth = auth

    async def sign(self, request: httpx.Request) -> Mapping[str, str]:
        """Give the headers that the flow's first request has beyond `request`."""
        before = _State(request)
        flow = self._auth.async_auth_flow(request)
        try:
            return before.added(await anext(flow))
        finally:
            await flow.aclose()

    async def sign_again(self, request: httpx.Request, response: httpx.Response) -> Mapping[str, str]:
        """Give the headers of the request that the flow makes of a 401."""
        before = _State(request)
        flow = self._auth.async_auth_flow(request)
        try:
            before.added(await anext(flow))
            again = await _next(flow, response)
            if again is None:
                return before.added(request)  # it has nothing more to say: what it said first, then
            return before.added(again)
        finally:
            await flow.aclose()

    def __repr__(self) -> str:
        return f"HttpxAuth({type(self._auth).__name__})"


async def _next(
    flow: AsyncGenerator[httpx.Request, httpx.Response], response: httpx.Response
) -> httpx.Request | None:
    try:
        return await flow.asend(response)
    except StopAsyncIteration:
        return None


class _State:
    """What a request was before a flow had it."""

    def __init__(self, request: httpx.Request) -> None:
        self._line = (request.method, str(request.url))
        self._body = request.content
        self._headers = dict(request.headers)

    def added(self, request: httpx.Request) -> Mapping[str, str]:
        if (request.method, str(request.url)) != self._line:
            raise CredentialFailed(
                "the httpx auth wants to send a request of its own, which no signer can; nothing was sent"
            )
        if request.content != self._body:
            raise CredentialFailed("the httpx auth changes the request's body; nothing was sent")
        return {name: text for name, text in request.headers.items() if self._headers.get(name) != text}
