"""`/metrics`: who may read it, and one scrape at a time.

Rules:

* Numbers of all tenants together are nobody's in particular, and tell a stranger much. Where a token is
  configured, whoever has it may read; without one, only who connects from this machine, by loopback or a Unix
  socket, under a name of this machine, and through no proxy that speaks for others.
* The metrics are copied off the loop in one step; the text is made in a thread.
* It is answered while the service drains, too: that is when numbers are wanted.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
from typing import TYPE_CHECKING, Any, Final, final

import trio

from ..console._settings import token_digest
from ._proof_types import Refused, RequestHead, refuse

if TYPE_CHECKING:
    from .._base.secret import Secret
    from ..config import MetricsConfig
    from ..record import PoolCollector
    from ..runtime import Runtime
    from ._guard import Guard

PATH: Final = "/metrics"
MOST: Final = 8
"""Scrapes that may wait for one another."""
_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
_BEARER: Final = b"bearer "


@final
class Scrape:
    """Answers at `PATH`.

    Args:
        runtime: Whose metrics; its calls are counted from now on.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._collector: PoolCollector | None = None
        self._limiter = trio.CapacityLimiter(1)
        self._turn = trio.Lock()
        self._waiting = 0

    def begin(self) -> None:
        """Count from now on. Synchronous."""
        self._runtime.sinks.numbers()
        self._runtime.measured()

    def check(self, head: RequestHead, config: MetricsConfig, guard: Guard) -> Refused | None:
        """Judge who asks; `None` lets it through. Synchronous."""
        if config.token is not None:
            refused = guard.bounds(head)
            if refused is None and not _holds(head, config.token):
                words = "metrics are read with the token of `serve.metrics.token`"
                challenge = ((b"www-authenticate", b'Bearer realm="metrics"'),)
                refused = refuse(401, "metrics-token", words, headers=challenge)
            return refused
        refused = guard.at_home(head)
        if refused is None and not _is_local(head):
            words = "without `serve.metrics.token`, metrics are read from this machine only"
            refused = refuse(403, "metrics-not-here", words)
        return refused

    async def answer(self, head: RequestHead) -> tuple[int, tuple[tuple[bytes, bytes], ...], bytes]:
        """Give status, headers and body. At least one checkpoint."""
        if head.method not in ("GET", "HEAD"):
            await trio.lowlevel.checkpoint()
            return 405, ((b"allow", b"GET, HEAD"),), b""
        if self._waiting >= MOST:
            await trio.lowlevel.checkpoint()
            return 503, ((b"retry-after", b"1"),), b'{"error":"others are reading the metrics"}'
        accept = b",".join(head.all(b"accept")).decode("latin-1")
        self._waiting += 1
        try:
            body, kind = await self._text(accept)
        finally:
            self._waiting -= 1
        return 200, ((b"cache-control", b"no-store"), (b"content-type", kind.encode())), body

    async def _text(self, accept: str) -> tuple[bytes, str]:
        in_thread = self._runtime.seams.in_thread
        module: Any = await in_thread(_loaded, self._limiter)
        async with self._turn:
            collector = self._collector
            if collector is None:
                collector = self._collector = module.PoolCollector(self._runtime)
            work = functools.partial(module.render, collector.snapshot(), accept)
            text: tuple[bytes, str] = await in_thread(work, self._limiter)
        return text


def _loaded() -> Any:
    """Load the library, which takes a while, where it holds nobody up."""
    from ..record import _prometheus

    return _prometheus


def _holds(head: RequestHead, token: Secret) -> bool:
    said = head.all(b"authorization")
    if len(said) != 1 or said[0][: len(_BEARER)].lower() != _BEARER:
        return False
    given = hashlib.sha256(said[0][len(_BEARER) :].strip()).digest()
    return hmac.compare_digest(given, token_digest(token))


def _is_local(head: RequestHead) -> bool:
    if any(name in _FORWARDED for name, _ in head.headers):
        return False
    if head.peer == "unix":
        return True
    try:
        address = ipaddress.ip_address(head.peer or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (address if mapped is None else mapped).is_loopback
