"""What an operation asks of a server beside a tool call: resources, prompts, completions, levels.

* Every request of it goes through the same attempts, boundaries and gate as a tool call; a walk over pages
  passes all of them anew for each page.
* A server that has not negotiated the capability is not asked: `not-offered`, nothing was sent.
* Where the stateless era has no such request (subscriptions, the log level) the wish becomes part of what
  the client sends anyway. The gate was asked when the wish was taken; the notification stream that carries it
  is the client's own request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, final

import attrs

from .._base.errors import ANSWERED, NotOffered, ProtocolError, TooLarge
from ..protocol import (
    METHOD,
    NAME,
    Era,
    MalformedMessage,
    PageGuard,
    header_value,
    join_meta,
    read_cache_hint,
    read_items_page,
    request_params,
    trace_members,
)
from ._attempt import boundary
from ._control import Told
from ._trip import Caller, Rpc, result_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.model import ProgressCallback
    from .._base.use import Use
    from ..transports import Headers
    from ._client import Client

SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
SET_LEVEL: Final = "logging/setLevel"


@final
@attrs.frozen(eq=False, repr=False)
class Errand:
    """One kind of request, as data.

    Attributes:
        method: Its JSON-RPC method.
        needs: The path of the capability that the server must have negotiated.
        members: The parameters of its own, without braces.
        routed: What `mcp-name` says of it, where the stateless era wants one over HTTP.
        items: The member that a list's pages hold their items under; `None` where it is no list.
        subject: The URI or level that it is about, where the stateless era has no such request.
        named: What the record calls it; never a value that a user gave.
    """

    method: str
    needs: tuple[str, ...]
    members: bytes = b""
    routed: str | None = None
    items: str | None = None
    subject: str = ""
    named: str = ""

    def __repr__(self) -> str:
        return f"<Errand {self.method}>"


@final
@attrs.frozen(eq=False)
class Received:
    """What came of an errand.

    Attributes:
        payloads: The raw result; of a list, the raw items of all its pages.
        size: Bytes in all.
        ttl: Seconds for which the server lets it be kept; `None` where its era knows no such hint.
        cache_scope: `public` or `private`.
    """

    payloads: list[bytes] = attrs.field(repr=False)
    size: int
    ttl: float | None = None
    cache_scope: str = "private"


class ErrandCaller(Caller, Protocol):
    """An operation as a client sees it, beside being a `Caller`."""

    use: Use
    on_progress: ProgressCallback | None
    call_id_key: str | None
    errand: Errand


async def run_errand(client: Client, call: ErrandCaller) -> Received:
    """Send an errand's request, or all requests of its pages.

    Args:
        client: The leased client.
        call: Its gate is asked at every boundary of every attempt.

    Raises:
        NotOffered: The server has not negotiated the capability; nothing was sent.
        AfpoolError: The failure, with the verdict of the request that it befell.
        trio.Cancelled: `call.trip` says whether bytes left and has to be settled then.
    """
    errand = call.errand
    if not client.offers(*errand.needs):
        raise NotOffered(
            f"the server does not offer {'.'.join(errand.needs)}, which {errand.method} needs; "
            "nothing was sent"
        )
    if client.stateless and errand.subject:
        return await _as_a_wish(client, call)
    if errand.method == SUBSCRIBE:
        await boundary("listen", client.listener.hear(), call)  # the updates come on it
    told = None
    if call.on_progress is not None:
        told = Told(call.on_progress, call.use, client.settings.seams.now)
    if errand.items is None:
        raw = await _ask(client, call, None, told)
        if not client.stateless:
            return Received([raw], len(raw))
        ttl_ms, scope = read_cache_hint(raw)
        return Received([raw], len(raw), ttl_ms / 1000, scope)
    return await _walk(client, call, errand.items, told)


async def _walk(client: Client, call: ErrandCaller, member: str, told: Told | None) -> Received:
    """Fetch every page, bounded in pages and bytes; a cursor that comes again ends it."""
    era = Era.HANDSHAKE if client.negotiated is None else client.negotiated.era
    limit = client.settings.max_message
    guard = PageGuard(client.settings.max_pages)
    items: list[bytes] = []
    size = 0
    ttl: float | None = None
    scope = "public"
    cursor: str | None = None
    while True:
        raw = await _ask(client, call, cursor, told)
        try:
            page = read_items_page(raw, member, era)
            cursor = guard.follow(page)
        except MalformedMessage as error:
            raise ProtocolError(
                f"the answer to {call.errand.method} could not be read: {error.reason}"
            ) from None
        size += len(raw)
        if size > limit:
            raise TooLarge(
                f"all pages of {call.errand.method} are larger than {limit} bytes", delivery=ANSWERED
            )
        items += map(bytes, page.items)
        if page.cache_scope != "public":
            scope = "private"
        if client.stateless:
            seconds = page.ttl_ms / 1000
            ttl = seconds if ttl is None else min(ttl, seconds)
        if cursor is None:
            return Received(items, size, ttl, scope if client.stateless else "private")


async def _ask(client: Client, call: ErrandCaller, cursor: str | None, told: Told | None) -> bytes:
    errand = call.errand
    headers: Headers = []
    if client.stateless and client.carries_headers:
        headers.append((METHOD, errand.method.encode()))
        if errand.routed is not None:
            headers.append((NAME, header_value(errand.routed)))
    meta = client.meta
    if call.use.trace is not None:
        meta = join_meta(meta, trace_members(call.use.trace, call.use.trace_state))
    given: dict[str, Any] = {
        "meta": meta,
        "cursor": cursor,
        "call_id_key": call.call_id_key,
        "call_id": call.use.call_id,
    }
    params: bytes | Callable[[int], bytes] | None
    if told is None:
        params = request_params(errand.members, **given)
    else:

        def with_token(request_id: int) -> bytes:
            built = request_params(errand.members, progress_token=request_id, **given)
            assert built is not None
            return built

        params = with_token
    answer = await client.operate(call, Rpc(errand.method, params, headers, "call", told))
    return result_of(answer)


async def _as_a_wish(client: Client, call: ErrandCaller) -> Received:
    errand = call.errand
    call.ask("attempt")
    if errand.method == SET_LEVEL:
        client.log_from(errand.subject)
    elif errand.method == UNSUBSCRIBE:
        client.listener.unwatch(errand.subject)
    else:
        await boundary("listen", client.listener.watch(errand.subject), call)
    return Received([], 0)
