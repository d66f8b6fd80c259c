"""Providers that talk to nobody: the environment, files; and a wrapper that tries another one again."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from .._base.credential import CredentialRequest, Issued, bearer
from .._base.errors import AfpoolError, CredentialFailed
from .._base.held import held_by
from .._base.seams import Seams
from .._base.secret import Credential, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from .._base.credential import Anonymous, CredentialProvider, NeedsAuthorization
    from .._base.held import HeldCredential

MAX_FILE: Final = 64 * 1024


def _unknown(service: str, known: Mapping[str, object]) -> CredentialFailed:
    names = ", ".join(sorted(known)) or "none"
    return CredentialFailed(
        f"no credential for service {service!r}; known services: {names}; nothing was sent"
    )


@final
class EnvironmentCredentials:
    """Credentials out of environment variables, read at each request.

    Args:
        variables: Service to the variable that holds its secret.
        make: Makes a credential of the secret; a bearer token by default.
    """

    __slots__ = ("_make", "_variables")

    def __init__(
        self, variables: Mapping[str, str], *, make: Callable[[Secret], Credential] = bearer
    ) -> None:
        self._variables = dict(variables)
        self._make = make

    async def get(self, request: CredentialRequest) -> Issued:
        """Give the credential of `request.service`. One checkpoint.

        Raises:
            CredentialFailed: The service is unknown, its variable is not set, or its value cannot be used.
        """
        await trio.lowlevel.checkpoint()
        variable = self._variables.get(request.service)
        if variable is None:
            raise _unknown(request.service, self._variables)
        if not os.environ.get(variable):
            raise CredentialFailed(f"the environment variable {variable} is not set; nothing was sent")
        made = _made(self._make, Secret(os.environ[variable]))
        if isinstance(made, str):
            raise CredentialFailed(
                f"the environment variable {variable} holds no credential ({made}); nothing was sent"
            )
        return Issued(made)

    def __repr__(self) -> str:
        return f"EnvironmentCredentials(services={sorted(self._variables)!r})"


def _made(make: Callable[[Secret], Credential], secret: Secret) -> Credential | str:
    """Make a credential, or name what went wrong; `make` is the host's, and its text may quote the secret."""
    try:
        return make(secret)
    except Exception as error:  # noqa: BLE001 -- as above
        return type(error).__name__


@attrs.define(eq=False)
class _File:
    path: str
    stamp: tuple[int, int, int] | None = None
    held: Credential | None = None
    looked_at: float = float("-inf")
    reading: trio.Event | None = None


@final
class FileCredentials:
    """Credentials out of files, one secret in each, read again when they have changed.

    Files are looked at in a thread and at most every `check_every` seconds, and at once when the server has
    refused what was read before. A request that finds a secret held and somebody else looking does not wait.

    Args:
        files: Service to the path of its file; blanks around the secret are dropped.
        make: Makes a credential of the secret; a bearer token by default.
        check_every: Seconds.
        seams: Clock and threads.
    """

    __slots__ = ("_check_every", "_files", "_limiter", "_make", "_seams")

    def __init__(
        self,
        files: Mapping[str, str | Path],
        *,
        make: Callable[[Secret], Credential] = bearer,
        check_every: float = 5.0,
        seams: Seams | None = None,
    ) -> None:
        self._files = {service: _File(os.fspath(path)) for service, path in files.items()}
        self._make = make
        self._check_every = check_every
        self._seams = Seams() if seams is None else seams
        self._limiter = trio.CapacityLimiter(2)

    async def get(self, request: CredentialRequest) -> Issued:
        """Give the credential of `request.service`. At least one checkpoint.

        Raises:
            CredentialFailed: The service is unknown, or its file cannot be read or holds nothing usable. A
                file that is gone takes its credential with it.
        """
        await trio.lowlevel.checkpoint()
        file = self._files.get(request.service)
        if file is None:
            raise _unknown(request.service, self._files)
        if file.reading is not None and (file.held is None or request.rejected):
            await file.reading.wait()
        stale = self._seams.now() - file.looked_at >= self._check_every
        if file.reading is None and (stale or file.held is None or request.rejected):
            await self._look(file)
        if file.held is None:
            raise CredentialFailed(
                f"the file for service {request.service!r} cannot be read or holds no credential; "
                "nothing was sent"
            )
        return Issued(file.held)

    async def _look(self, file: _File) -> None:
        file.reading = trio.Event()
        stamp = file.stamp if file.held is not None else None
        try:
            found = await self._seams.in_thread(lambda: _read(file.path, stamp, self._make), self._limiter)
            file.looked_at = self._seams.now()
            if found is None:
                return
            file.stamp, file.held = found
        finally:
            file.reading.set()
            file.reading = None

    def __repr__(self) -> str:
        return f"FileCredentials(services={sorted(self._files)!r})"


_Stamp = tuple[int, int, int]
_OURS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What this process lacks, which says nothing of a file."""


def _read(
    path: str, known: _Stamp | None, make: Callable[[Secret], Credential]
) -> tuple[_Stamp | None, Credential | None] | None:
    """Read a file if it is another than `known`; `None` where it is the same. Blocking."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 -- one descriptor for the look and the reading
            found = os.fstat(file.fileno())
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp == known:
                return None
            secret = Secret(file.read(MAX_FILE).decode().strip())
    except OSError as error:
        if error.errno in _OURS and known is not None:
            return None  # nothing was learned of the file
        return None, None
    except UnicodeDecodeError:
        return None, None
    made = _made(make, secret)
    return stamp, None if isinstance(made, str) else made


def _may_pass(error: Exception) -> bool:
    return isinstance(error, OSError) or (isinstance(error, AfpoolError) and error.retry_after is not None)


@final
class RetryingCredentials:
    """Asks another provider again when it fails in passing.

    Args:
        provider: Who is asked.
        attempts: How often in all.
        delay: Seconds before the second attempt; doubles, with jitter.
        max_delay: The longest wait; a provider that asks for more (`retry_after`) is not waited for.
        passing: Says which failures are worth another attempt: by default `OSError` (time-outs and broken
            connections among them) and failures of afpool's own that name a `retry_after`.
        seams: Random.
    """

    __slots__ = ("_attempts", "_delay", "_max_delay", "_passing", "_provider", "_seams")

    def __init__(
        self,
        provider: CredentialProvider,
        *,
        attempts: int = 3,
        delay: float = 0.2,
        max_delay: float = 2.0,
        passing: Callable[[Exception], bool] = _may_pass,
        seams: Seams | None = None,
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        self._provider = provider
        self._attempts = attempts
        self._delay = delay
        self._max_delay = max_delay
        self._passing = passing
        self._seams = Seams() if seams is None else seams

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization | Anonymous:
        """Ask; raises what the last attempt raised. The call's deadline bounds the waiting."""
        for attempt in range(self._attempts):
            try:
                return await self._provider.get(request)
            except Exception as error:
                asked = getattr(error, "retry_after", None) or 0.0
                if attempt + 1 == self._attempts or asked > self._max_delay or not self._passing(error):
                    raise
            ceiling = min(self._delay * 2**attempt, self._max_delay)
            await trio.sleep(max(asked, ceiling / 2 + self._seams.random.random() * ceiling / 2))
        raise AssertionError("unreachable")

    def held(self) -> Iterable[HeldCredential]:
        """Say what the provider holds, where it says so."""
        return held_by(self._provider)

    def __repr__(self) -> str:
        return f"RetryingCredentials({self._provider!r})"
