"""The HTTP of OAuth traffic: one request at a time, bounded in every direction.

Rules:

* No cookie, no proxy of the environment, no kept connection, no compression. A body is read up to 256 KiB, a
  request has a deadline.
* Only a GET follows redirects, two at most, to the same origin; a POST carries secrets and follows none.
* Every hop is checked anew: the scheme of its URL, and each address that its host has *now*. The connection
  is made to the address that was checked, under the host's own name (`Host`, SNI, certificate), so that a
  name that changes its mind in between leads nowhere.
* A transport of the host's own replaces the connecting. Names are then its business; literal addresses are
  still checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlencode

import attrs
import httpx
import trio

from ..protocol import parse_retry_after, same_origin_redirect
from ..transports import TlsConfig, shared_ssl_context
from ._trouble import Trouble
from ._urls import (
    Kind,
    admitted,
    canonical_resource,
    check_endpoint,
    is_loopback_name,
    kind_of,
    literal,
    parts_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._base.seams import Seams

MAX_BODY: Final = 256 * 1024
REDIRECTS: Final = 2
FOLLOWED: Final = frozenset({301, 302, 307, 308})
MAX_RETRY_AFTER: Final = 3600.0
ADDRESSES_TRIED: Final = 4
HOSTS_KEPT: Final = 256


@attrs.frozen
class Reply:
    """An answer; its body is never shown."""

    status: int
    body: bytes = attrs.field(repr=False)
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it is of the 2xx."""
        return 200 <= self.status < 300


@final
class Network:
    """Asks the peers of OAuth.

    Args:
        seams: Clock, names and threads.
        transport: Connects instead of us.
        tls: How servers are verified, where we connect.
        timeout: Seconds that one request may take, redirects included.
        allow_private: Discovered URLs may lead to private and loopback addresses.
    """

    def __init__(
        self,
        seams: Seams,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        tls: TlsConfig | None = None,
        timeout: float = 10.0,
        allow_private: bool = False,
    ) -> None:
        self._seams = seams
        self._transport = transport
        self._tls = TlsConfig() if tls is None else tls
        self._timeout = timeout
        self._allow_private = allow_private
        self._names: dict[str, trio.CapacityLimiter] = {}
        self._files = trio.CapacityLimiter(1)

    async def get(self, url: str, what: str, *, resource: str) -> Reply:
        """Fetch a document.

        Args:
            url: Absolute.
            what: What it is, for the words of a failure.
            resource: The server for whose sake it is fetched.

        Raises:
            Trouble: It may not be asked (definitive), or did not answer in time and in bounds (passing).
        """
        return await self._within("GET", url, what, resource, [("accept", "application/json")], b"")

    async def post_form(
        self,
        url: str,
        what: str,
        *,
        resource: str,
        form: Sequence[tuple[str, str]],
        authorization: str | None = None,
    ) -> Reply:
        """Post a form; raises as `get`."""
        headers = [("accept", "application/json"), ("content-type", "application/x-www-form-urlencoded")]
        if authorization is not None:
            headers.append(("authorization", authorization))
        return await self._within("POST", url, what, resource, headers, urlencode(form).encode())

    async def post_json(self, url: str, what: str, *, resource: str, body: bytes) -> Reply:
        """Post a JSON document; raises as `get`."""
        headers = [("accept", "application/json"), ("content-type", "application/json")]
        return await self._within("POST", url, what, resource, headers, body)

    async def _within(
        self, method: str, url: str, what: str, resource: str, headers: list[tuple[str, str]], body: bytes
    ) -> Reply:
        reply: Reply | None = None
        with trio.move_on_after(self._timeout):
            reply = await self._follow(method, url, what, resource, headers, body)
        if reply is None:
            raise Trouble(f"{what} did not answer within {self._timeout:g} s", passing=True)
        return reply

    async def _follow(
        self, method: str, url: str, what: str, resource: str, headers: list[tuple[str, str]], body: bytes
    ) -> Reply:
        # Where the server itself stands decides what may be led to; asked once per request, not per hop.
        server = await self._kind_of_server(resource)
        for _ in range(REDIRECTS + 1):
            check_endpoint(url, what, resource=resource)
            reply, location = await self._hop(method, url, what, server, headers, body)
            if reply.status not in FOLLOWED or location is None:
                return reply
            if method != "GET":
                raise Trouble(f"{what} redirects a request that carries secrets, which is not followed")
            target = same_origin_redirect(url, location)
            if target is None:
                raise Trouble(f"{what} redirects to another origin, which is not followed")
            url = target
        raise Trouble(f"{what} redirects more than {REDIRECTS} times")

    async def _hop(
        self, method: str, url: str, what: str, server: Kind, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[Reply, str | None]:
        _, host, port, _ = parts_of(url, what)
        addresses = await self._addresses(host, port, what)
        for _, kind in addresses:
            if not admitted(kind, server, allow_private=self._allow_private):
                raise Trouble(
                    f"{what} leads to an address that is {_NAMES[kind]}, which is not asked; "
                    "`allow_private` lets private networks through"
                )
        request = httpx.Request(
            method, url, headers=[*headers, ("accept-encoding", "identity")], content=body
        )
        failure = Trouble(f"{what} has no address", passing=True)
        if self._transport is not None:
            try:
                return await self._exchange(self._transport, request, what)
            except _NotConnected as error:
                failure = error.trouble
            raise failure
        context = await self._seams.in_thread(lambda: shared_ssl_context(self._tls), self._files)
        for address, _ in addresses[:ADDRESSES_TRIED]:
            pinned = httpx.Request(
                method,
                request.url.copy_with(host=address),
                headers=request.headers.raw,
                content=body,
                extensions={"sni_hostname": host},
            )
            # One transport per request: a kept connection would be another host's at the same address.
            async with httpx.AsyncHTTPTransport(verify=context, trust_env=False) as transport:
                try:
                    return await self._exchange(transport, pinned, what)
                except _NotConnected as error:
                    failure = error.trouble
        raise failure

    async def _exchange(
        self, transport: httpx.AsyncBaseTransport, request: httpx.Request, what: str
    ) -> tuple[Reply, str | None]:
        why = ""
        connected = True
        try:
            response = await transport.handle_async_request(request)
            try:
                return await self._read(response, what)
            finally:
                await response.aclose()
        except httpx.ConnectError as error:
            why, connected = _why(error), False
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            why = type(error).__name__
        trouble = Trouble(f"{what} could not be asked ({why})", passing=True)
        if connected:
            raise trouble
        raise _NotConnected(trouble)

    async def _read(self, response: httpx.Response, what: str) -> tuple[Reply, str | None]:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Trouble(f"{what} sends a compressed answer that was not asked for", passing=True)
        body = b""
        stream = response.stream  # not `aiter_raw`, which refuses an answer that stands whole already
        if not isinstance(stream, httpx.AsyncByteStream):
            raise Trouble(f"{what} cannot be read: the transport is not an asynchronous one")
        # A loop that is left early would leave the transport's generators half way; a cancellation ends them.
        with trio.CancelScope() as scope:
            async for chunk in stream:
                if len(body) <= MAX_BODY:
                    body += chunk
                else:
                    scope.cancel()
        if len(body) > MAX_BODY:
            raise Trouble(f"{what} sends more than {MAX_BODY} bytes", passing=True)
        retry_after = parse_retry_after(response.headers.get("retry-after"), self._seams.unix_now())
        if retry_after is not None:
            retry_after = min(retry_after, MAX_RETRY_AFTER)
        return Reply(response.status_code, body, retry_after), response.headers.get("location")

    async def _kind_of_server(self, resource: str) -> Kind:
        _, host, port, _ = parts_of(canonical_resource(resource), "the server")
        kinds: set[Kind] = {kind for _, kind in await self._addresses(host, port, "the server")}
        # A name that stands in two worlds is taken for public: it opens nothing.
        return kinds.pop() if len(kinds) == 1 else "public"

    def _names_of(self, host: str) -> trio.CapacityLimiter:
        """Of each host two look-ups at once: one that does not answer keeps nobody else's from a thread."""
        limiter = self._names.pop(host, None) or trio.CapacityLimiter(2)
        while len(self._names) >= HOSTS_KEPT:
            del self._names[next(iter(self._names))]  # look-ups under way keep theirs
        self._names[host] = limiter
        return limiter

    async def _addresses(self, host: str, port: int, what: str) -> list[tuple[str, Kind]]:
        own = literal(host)
        if own is not None:
            return [(host, kind_of(own))]
        if self._transport is not None:
            return [(host, "loopback" if is_loopback_name(host) else "public")]
        try:
            found = await self._seams.in_thread(lambda: self._seams.resolve(host, port), self._names_of(host))
        except OSError:
            found = []
        texts = dict.fromkeys(str(address[0]) for _, address in found)
        addresses: list[tuple[str, Kind]] = [
            (text, kind_of(parsed)) for text in texts if (parsed := literal(text)) is not None
        ]
        if not addresses:
            raise Trouble(f"the host of {what} has no address", passing=True)
        return addresses


_NAMES: Final[dict[Kind, str]] = {
    "public": "public",
    "private": "private",
    "loopback": "this machine's own",
    "other": "link-local or reserved",
}


class _NotConnected(Exception):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.text)
        self.trouble = trouble


def _why(error: httpx.ConnectError) -> str:
    """TLS and refused connections apart, in our own words."""
    inner: BaseException | None = error
    while inner is not None:
        if "SSL" in type(inner).__name__ or "CERTIFICATE" in str(inner)[:200]:
            return "TLS failed"
        inner = inner.__cause__ or inner.__context__
    return "no connection"
