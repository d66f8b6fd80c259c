"""Clock, random, ids, network and threads, in one object, so that a simulation can own them."""

from __future__ import annotations

import itertools
import random
import socket
import time
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from .errors import NOT_SENT, Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_ids: Iterator[int] = itertools.count(1)


def _next_id() -> int:
    # One counter of the process: an id is never used twice, whatever pool it came from.
    return next(_ids)


async def _run_sync(fn: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    begun = False

    def run() -> T:
        nonlocal begun
        begun = True
        return fn()

    try:
        return await trio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=True)
    except RuntimeError:
        if begun:
            raise
    # the process has as many threads as it may have; nothing of `fn` was done
    raise Overloaded("no further thread can be started in this process; nothing was done", delivery=NOT_SENT)


async def _connect(family: int, address: Any) -> socket.socket:
    """Connect one non-blocking TCP socket; the caller owns deadlines and TLS."""
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        try:
            sock.connect(address)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, "connect failed") from None
    except BaseException:
        sock.close()
        raise
    return sock


def _resolve(host: str, port: int) -> list[tuple[int, Any]]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(int(family), address) for family, _, _, _, address in infos]


@attrs.frozen
class Seams:
    """What touches the world outside. Every default is the real thing.

    Attributes:
        now: Seconds on trio's clock, monotonic.
        unix_now: Seconds since 1970, for dates that servers send.
        random: Jitter and back-off.
        next_id: The next process-wide id; never the same twice.
        connect: Connect to one address of one family: a non-blocking TCP socket, or a `Wire` of the
            transports where no kernel is wanted, which cannot carry TLS.
        resolve: `getaddrinfo`, blocking; runs in a thread under `in_thread`.
        in_thread: Run a blocking function in a thread under a named limiter. Where there can be no further
            thread it raises `Overloaded`, and nothing of the function was done.
        spawn: Start a child for a `StdioConfig`, as a `Child` of the transports, or raise its `SpawnFailed`;
            None starts a real process.
    """

    now: Callable[[], float] = trio.current_time
    unix_now: Callable[[], float] = time.time
    random: random.Random = attrs.field(factory=random.Random)
    next_id: Callable[[], int] = _next_id
    connect: Callable[[int, Any], Any] = _connect
    resolve: Callable[[str, int], list[tuple[int, Any]]] = _resolve
    in_thread: Callable[[Callable[[], Any], trio.CapacityLimiter], Any] = _run_sync
    spawn: Callable[[Any], Any] | None = None
