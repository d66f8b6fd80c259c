"""Static bearer tokens: made, listed and revoked in a file; proven from memory.

Rules of the proving side:

* A decision reads memory only. The file is looked at by a task of its own, in a thread, every half second,
  and at once when asked to (`StaticTokens.look`). So a revocation counts within that time, also for calls
  under
  way: `still_holds` asks what is known by then.
* A file that is gone takes all its tokens with it. One that cannot be used (open to others, half written)
  leaves what was known as it was, and is told of: a slip of an editor must not lock everybody out, and what
  is wrong with a mode is no reason to believe a digest less. At the start either is an error.
* A token is found by its id, which is no secret; its digest is then compared in constant time, an unknown
  id's with one that nobody has.
"""

from __future__ import annotations

import hmac
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from ._proof_types import Proven
from ._tokens_file import (
    TokenEntry,
    TokenFileError,
    check_name,
    read_entries,
    write_entries,
    writing,
)
from ._tokens_text import digest_of, draw_token, id_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.identity import Identity
    from .._base.seams import Seams
    from .._base.secret import Secret
    from ._tokens_file import Stamp

CHECK_EVERY: Final = 0.5
# How long what has expired or was revoked is still listed.
REMEMBERED: Final = 90 * 86_400.0
_NOBODYS: Final = "0" * 64

logger = logging.getLogger("afpool.serve")


@attrs.frozen
class NewToken:
    """A token that was just made. Its text is given this once: the file keeps a digest.

    Attributes:
        token: The whole token, secret; `token.reveal()` is what the client sends.
        entry: What the file says of it.
    """

    token: Secret
    entry: TokenEntry


@final
class TokenFile:
    """A file of static bearer tokens, hashed at rest.

    Its methods block, and hold a lock while they write. A running service sees a change within a second.

    Args:
        path: Need not exist: the first `new` makes it, readable by its owner alone.
        now: Seconds since 1970.
    """

    __slots__ = ("_now", "path")

    def __init__(self, path: str | Path, *, now: Callable[[], float] = time.time) -> None:
        self.path = Path(os.fspath(path))
        self._now = now

    def new(self, identity: Identity, name: str, expires: float | None = None) -> NewToken:
        """Make a token.

        Args:
            identity: Whom it proves; names a tenant or a principal.
            name: What it is for, for lists.
            expires: Seconds since 1970, in the future; `None` for never.

        Raises:
            TokenFileError: The name, the identity or the date is none to make a token of, or the file cannot
            be
                used. No token was made.
        """
        check_name(name)
        now = self._now()
        if identity.tenant is None and identity.principal is None:
            raise TokenFileError(
                "a token is for a tenant or a principal, and the identity names neither; no token was made"
            )
        if expires is not None and not now < expires < 253_402_300_800.0:  # the year 10000
            raise TokenFileError("a token expires in the future; no token was made; give a later date")
        number, token = draw_token()
        entry = TokenEntry(number, name, identity, now, expires, digest=digest_of(token))
        self._change(lambda entries: (*entries, entry))
        return NewToken(token, entry)

    def list(self) -> tuple[TokenEntry, ...]:
        """Give all tokens, oldest first; those that expired or were revoked for 90 days more.

        Raises:
            TokenFileError: The file cannot be used. One that is not there is empty.
        """
        return self._read(self.path)

    def revoke(self, which: str) -> TokenEntry:
        """Revoke a token, for ever: its digest is dropped.

        Args:
            which: Its id, or its name where only one good token has it.

        Returns:
            The entry as it is now; revoking a revoked one changes nothing.

        Raises:
            TokenFileError: There is none, or several have that name, or the file cannot be used.
        """
        revoked: list[TokenEntry] = []

        def change(entries: tuple[TokenEntry, ...]) -> tuple[TokenEntry, ...]:
            found = self._named(entries, which)
            entry = found
            if found.revoked is None:
                entry = attrs.evolve(found, revoked=self._now(), digest=None)
            revoked.append(entry)
            return tuple(entry if one is found else one for one in entries)

        self._change(change)
        return revoked[0]

    def _named(self, entries: tuple[TokenEntry, ...], which: str) -> TokenEntry:
        found = [entry for entry in entries if entry.id == which]
        if not found:
            now = self._now()
            found = [entry for entry in entries if entry.name == which and entry.is_good(now)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(entry.id for entry in found)
            raise TokenFileError(f"{len(found)} tokens have that name; none was revoked; their ids: {ids}")
        raise TokenFileError("no token has that id or name; none was revoked; list them to see the ids")

    def _change(self, change: Callable[[tuple[TokenEntry, ...]], tuple[TokenEntry, ...]]) -> None:
        problem = ""
        try:
            with writing(self.path) as real:
                after = change(self._read(real))
                horizon = self._now() - REMEMBERED
                write_entries(real, tuple(entry for entry in after if _ended(entry) > horizon))
        except OSError as error:
            problem = error.strerror or type(error).__name__
        if problem:
            raise TokenFileError(f"the token file {self.path} cannot be written ({problem}); it is as it was")

    def _read(self, path: Path) -> tuple[TokenEntry, ...]:
        try:
            found = read_entries(path, now=self._now())
        except FileNotFoundError:
            return ()
        assert found is not None
        return found[1]

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"


def _ended(entry: TokenEntry) -> float:
    ends = [moment for moment in (entry.expires, entry.revoked) if moment is not None]
    return min(ends) if ends else float("inf")


@final
class StaticTokens:
    """Proves callers by the tokens of a file.

    Args:
        path: The file.
        seams: Clock and threads.

    Attributes:
        problem: What is wrong with the file now, or `None`.
        withdrawn: Nothing that these tokens have proven holds any more.
    """

    def __init__(self, path: Path, seams: Seams) -> None:
        self.path = path
        self.problem: str | None = None
        self.withdrawn = False
        self._seams = seams
        self._entries: dict[str, TokenEntry] = {}
        self._stamp: Stamp | None = None
        self._limiter = trio.CapacityLimiter(1)
        self._looking = trio.Lock()

    async def look(self) -> None:
        """Read the file if it has changed. Checkpoints; cancelled, what was known stays."""
        async with self._looking:
            stamp, now = self._stamp, self._seams.unix_now()
            failed: str | None = None
            found: tuple[Stamp | None, tuple[TokenEntry, ...]] | None = None
            try:
                found = await self._seams.in_thread(
                    lambda: read_entries(self.path, stamp, now=now), self._limiter
                )
            except FileNotFoundError:
                failed = f"the token file {self.path} is not there; `afpool token new` makes one"
                self._entries, self._stamp = {}, None
            except TokenFileError as error:
                failed, self._stamp = error.message, None
            if failed is not None and failed != self.problem:
                logger.error("%s", failed)
            self.problem = failed
            if found is not None:
                self._take(*found)

    def _take(self, stamp: Stamp | None, entries: tuple[TokenEntry, ...]) -> None:
        before, self._entries = self._entries, {entry.id: entry for entry in entries}
        self._stamp = stamp
        if before != self._entries:
            now = self._seams.unix_now()
            good = sum(entry.is_good(now) for entry in entries)
            logger.info("the token file %s holds %d good tokens of %d", self.path, good, len(entries))

    async def watch(self) -> None:
        """Look at the file for ever."""
        while True:
            await trio.sleep(CHECK_EVERY)
            await self.look()

    def prove(self, token: Secret) -> Proven | str:
        """Prove who sent a token, or say why it proves nobody."""
        number = id_of(token)
        entry = None if number is None else self._entries.get(number)
        kept = _NOBODYS if entry is None or entry.digest is None else entry.digest
        same = hmac.compare_digest(digest_of(token), kept)
        if not same or entry is None:
            return "the token is not one of this service, or was revoked"
        if not self._holds(entry):
            return "the token has expired"
        return Proven(
            entry.identity, f"token {entry.id}", entry.expires, still_holds=lambda: self._holds(entry)
        )

    def _holds(self, entry: TokenEntry) -> bool:
        known = self._entries.get(entry.id)
        return (
            not self.withdrawn
            and known is not None
            and (known is entry or (known.digest == entry.digest and known.identity == entry.identity))
            and known.is_good(self._seams.unix_now())
        )
