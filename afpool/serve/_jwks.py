"""Where an issuer's keys come from: an address, or a file. What is fetched when is decided in `_jwks_cache`.

Rules:

* Everything is fetched by one task (`watch`), so there is never more than one fetch, and no caller's
  cancellation ends one that others wait for. A caller waits for that task's next word, at most as long as a
  request may take.
* The address was configured by the operator, so it may lead to a private network; redirects stay at its
  origin, the answer is bounded, nothing goes through a proxy of the environment (`Network` of the
  credentials).
* A key file may be read by anybody. It may be written by its owner alone: whoever can put a key into it can
  prove to be anybody.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from ..credentials._network import MAX_BODY, Network
from ..credentials._trouble import Trouble
from ._jwks_cache import KeyCache, Plan
from ._jwks_keys import KeySet, read_key_set

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from .._base.seams import Seams

FILE_EVERY: Final = 1.0
logger = logging.getLogger("afpool.serve")


class KeySource(Protocol):
    """The keys of one issuer."""

    problem: str | None

    async def keys(self, kid: str | None) -> KeySet | float:
        """The keys to judge by, or seconds until somebody may ask again."""
        ...

    def holds(self, thumbprint: str) -> bool:
        """Whether a key is still good for what it has proven."""
        ...

    async def look(self) -> None:
        """Bring what is known up to date, where that is no request to anybody."""
        ...

    async def watch(self) -> None:
        """Keep it up to date, for ever."""
        ...


@final
class FetchedKeys:
    """Keys at an address.

    Args:
        url: Where; https, or http on loopback.
        seams: Clock, names, threads, jitter.
        transport: Connects instead of us.

    Attributes:
        problem: Why the last fetch brought nothing, or `None`.
    """

    def __init__(self, url: str, seams: Seams, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.problem: str | None = None
        self._url = url
        self._seams = seams
        self._network = Network(seams, transport=transport)
        self._cache = KeyCache()
        self._wanted = trio.Event()
        self._told = trio.Event()
        self._closed = False

    async def keys(self, kid: str | None) -> KeySet | float:
        """See `KeySource.keys`. Waits for a fetch where one may bring the key; twice at most."""
        for _ in range(2):
            plan = self._cache.plan(self._seams.now(), kid)
            if plan is not Plan.WAIT or self._closed:
                break
            told = self._told
            if not self._cache.fetching:
                self._wanted.set()
            await told.wait()
        now = self._seams.now()
        return self._cache.usable(now) or max(1.0, self._cache.retry_after(now))

    def holds(self, thumbprint: str) -> bool:
        """See `KeySource.holds`."""
        return self._cache.keys is not None and self._cache.keys.holds(thumbprint)

    async def look(self) -> None:
        """Nothing is asked for: the keys are fetched when they are due."""
        await trio.lowlevel.checkpoint()

    async def watch(self) -> None:
        """See `KeySource.watch`."""
        self._closed = False
        try:
            while True:
                with trio.move_on_after(max(0.0, self._cache.next_fetch_at() - self._seams.now())):
                    await self._wanted.wait()
                self._wanted = trio.Event()
                await self._fetch()
                self._tell()
        finally:
            self._closed = True
            self._tell()

    def _tell(self) -> None:
        self._told.set()
        self._told = trio.Event()

    async def _fetch(self) -> None:
        self._cache.asked(self._seams.now())
        retry_after = None
        found: KeySet | str = "could not be fetched"
        try:
            reply = await self._network.get(self._url, "the key set", resource=self._url)
            retry_after = reply.retry_after
            found = read_key_set(reply.body) if reply.ok else f"was answered with status {reply.status}"
        except Trouble as trouble:
            found = f"could not be fetched: {trouble.text}"
        except Exception as error:  # noqa: BLE001 -- one issuer's fault must not end the others' task
            found = f"could not be fetched ({type(error).__name__})"
        now = self._seams.now()
        if isinstance(found, str):
            self._cache.failed(now, self._seams.random.random(), retry_after)
        else:
            self._cache.fetched(now, found)
        self.problem = _told(self.problem, found, self._url)


@final
class KeyFile:
    """Keys in a file, read again when it changes.

    Args:
        path: The file.
        seams: Threads.

    Attributes:
        problem: What is wrong with the file now, or `None`; what was read before stays good meanwhile.
    """

    def __init__(self, path: Path, seams: Seams) -> None:
        self.problem: str | None = None
        self._path = path
        self._seams = seams
        self._keys: KeySet | None = None
        self._stamp: tuple[int, ...] | None = None
        self._limiter = trio.CapacityLimiter(1)
        self._looking = trio.Lock()

    async def keys(self, kid: str | None) -> KeySet | float:  # noqa: ARG002 -- there is nobody to ask
        """See `KeySource.keys`."""
        await trio.lowlevel.checkpoint()
        return self._keys or FILE_EVERY

    def holds(self, thumbprint: str) -> bool:
        """See `KeySource.holds`."""
        return self._keys is not None and self._keys.holds(thumbprint)

    async def look(self) -> None:
        """Read the file if it has changed. Checkpoints."""
        async with self._looking:
            stamp = self._stamp
            read = await self._seams.in_thread(lambda: _read(self._path, stamp), self._limiter)
            if read is None:
                return
            self._stamp, raw = read
            found = raw if isinstance(raw, str) else read_key_set(raw)
            self.problem = _told(self.problem, found, str(self._path))
            if not isinstance(found, str):
                self._keys = found

    async def watch(self) -> None:
        """See `KeySource.watch`."""
        while True:
            await trio.sleep(FILE_EVERY)
            await self.look()


def _told(before: str | None, found: KeySet | str, where: str) -> str | None:
    """Log what has become of a key set if it is news, and give what is wrong with it."""
    if isinstance(found, KeySet):
        if before is not None:
            logger.info("the key set %s can be read again", where)
        if found.passed_over:
            logger.info("the key set %s: %d keys of no use here", where, found.passed_over)
        return None
    problem = f"the key set {where} {found}"
    if problem != before:
        logger.warning("%s", problem)
    return problem


def _read(path: Path, known: tuple[int, ...] | None) -> tuple[tuple[int, ...] | None, bytes | str] | None:
    """Read a key file if it is another than `known`. Blocking."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 -- one descriptor for the look and the reading
            found = os.fstat(file.fileno())
            stamp = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
            if stamp == known:
                return None
            if not stat.S_ISREG(found.st_mode):
                return None, "is no regular file"
            if found.st_mode & 0o022:
                return None, "can be written by others than its owner; `chmod go-w` it"
            raw = file.read(MAX_BODY + 1)
    except OSError as error:
        return None, f"cannot be read ({error.strerror or type(error).__name__})"
    return (None, f"is larger than {MAX_BODY} bytes") if len(raw) > MAX_BODY else (stamp, raw)
