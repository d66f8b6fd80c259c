"""Who may attach: judged by the socket, the head of the request, and a token.

Rules:

* On the Unix socket the kernel says who is at the other end (`SO_PEERCRED`): the user that the process runs
  as, and root, may operate; anybody else is told nothing. The folder and the socket's mode let nobody else
  get so far; this holds where they were changed.
* On TCP a token says what somebody may do, always: other users of a machine reach its loopback as well. What
  is kept of a token is its digest; both digests are compared in constant time, whichever fits.
* A token stands in `Authorization`, or in the first message for a page, which cannot set headers; never in an
  address, which ends up in histories and logs.
* A page in a browser can send anything anywhere, and under a name of its own that leads here (DNS rebinding).
  So `Host` has to be a name of ours, and `Origin` the page that we serve under it, or one that was allowed.
  On a Unix socket no browser arrives by itself, but by a forwarded port (`ssh -L`) it does: whatever bears
  the marks of a browser is judged there as well.
* A refusal says what rule was broken, and never by what.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from .._base.web_names import DEFAULT_PORTS, HostPort, Origin, is_loopback, read_host, read_origin
from ._settings import token_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._ask import Level
    from ._settings import ConsoleSettings

_CREDENTIALS: Final = struct.Struct("3i")
_ONCE: Final = frozenset(
    {"authorization", "host", "origin", "sec-fetch-mode", "sec-fetch-site", "sec-websocket-key", "upgrade"}
)
_SAME: Final = frozenset({"same-origin", "none"})
_DIRECT: Final = frozenset({"navigate"})


@attrs.frozen
class Refused:
    """Why nobody is let in; for whoever asked.

    Attributes:
        status: Of HTTP.
        code: A stable word, for counting.
        sentence: What rule was broken, and what to do.
        headers: To be answered with.
    """

    status: int
    code: str
    sentence: str
    headers: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Entered:
    """Who was let in.

    Attributes:
        level: What he may do.
        who: What he is called where something says who asked for it.
    """

    level: Level
    who: str


class _Socket(Protocol):
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def peer_uid(sock: _Socket) -> int:
    """Give the user at the other end of a Unix socket, as the kernel knows him."""
    return int(
        _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
    )


@final
class Door:
    """Judges who comes, by one configuration. Without I/O.

    Args:
        settings: The console's.

    Attributes:
        refused: How many were refused, by code.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self._uid = os.geteuid()
        self._hosts = frozenset(filter(None, map(read_host, settings.allowed_hosts)))
        self._origins = frozenset(filter(None, map(read_origin, settings.allowed_origins)))
        self._local = True
        if settings.bind is not None:
            host, _ = settings.host_and_port
            self._local = is_loopback(f"[{host}]" if ":" in host else host)
        nobody = os.urandom(32)  # where a level has no token, no digest fits
        read, operate = settings.read_token, settings.operate_token
        self._read = nobody if read is None else token_digest(read)
        self._operate = nobody if operate is None else token_digest(operate)
        self.refused: dict[str, int] = {}

    def refuse(self, refused: Refused) -> Refused:
        """Count a refusal."""
        self.refused[refused.code] = self.refused.get(refused.code, 0) + 1
        return refused

    # ------------------------------------------------------------------ who

    def by_user(self, uid: int) -> Entered | Refused:
        """Judge who is at the other end of the Unix socket."""
        if uid in (self._uid, 0):
            return Entered("operate", f"console uid {uid}")
        words = f"this console belongs to user {self._uid}"
        return self.refuse(Refused(403, "wrong-user", words))

    def by_header(self, value: str, where: str) -> Entered | Refused:
        """Judge an `Authorization` header."""
        scheme, _, token = value.partition(" ")
        if scheme.lower() != "bearer":
            return self._wrong_token()
        return self.by_token(token.strip(" "), where)

    def by_token(self, token: str, where: str) -> Entered | Refused:
        """Judge a token. `where` names the other end."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        operates = hmac.compare_digest(digest, self._operate)
        reads = hmac.compare_digest(digest, self._read)
        if operates:
            return Entered("operate", f"console token operate from {where}")
        if reads:
            return Entered("read", f"console token read from {where}")
        return self._wrong_token()

    def _wrong_token(self) -> Refused:
        words = "this token opens nothing here; `read_token` and `operate_token` of the console's settings do"
        return self.refuse(Refused(401, "wrong-token", words, (("www-authenticate", "Bearer"),)))

    # ------------------------------------------------------------------ from where

    def judge(self, headers: list[tuple[str, str]], *, unix: bool) -> Refused | None:
        """Judge the head of a request; `None` lets it through.

        Args:
            headers: Names in lower case.
            unix: Whether it came by the Unix socket.
        """
        said: dict[str, str] = {}
        for name, value in headers:
            if name in _ONCE:
                if name in said:
                    return self.refuse(
                        Refused(400, "repeated-header", "a header that may come once came twice")
                    )
                said[name] = value
        if unix and "origin" not in said and "sec-fetch-site" not in said:
            return None  # no browser
        host = read_host(said.get("host", ""))
        if host is None:
            return self.refuse(
                Refused(400, "malformed-host", "a request names one host, in the form of a host")
            )
        if not self._is_ours(host, unix=unix):
            words = "this console is not known by that host; add it to `allowed_hosts`"
            return self.refuse(Refused(421, "host-not-allowed", words))
        if not self._may_call(said, host):
            words = "pages of that origin may not attach; see `allowed_origins`"
            return self.refuse(Refused(403, "origin-not-allowed", words))
        return None

    def _is_ours(self, host: HostPort, *, unix: bool) -> bool:
        if host in self._hosts or HostPort(host.name, None) in self._hosts:
            return True
        return (unix or self._local) and is_loopback(host.name)

    def _may_call(self, said: Mapping[str, str], host: HostPort) -> bool:
        written = said.get("origin")
        if written is None:
            # a page that is opened, from wherever it is linked, shows nothing to who linked it
            return said.get("sec-fetch-site", "none") in _SAME or said.get("sec-fetch-mode") in _DIRECT
        origin = read_origin(written)
        if origin is None:
            return False
        return origin in self._origins or _is_own(origin, host)


def _is_own(origin: Origin, host: HostPort) -> bool:
    """Whether a page is the one that is served under a host that was judged to be ours.

    The scheme says which port a host without one means: TLS may have ended before us.
    """
    port = DEFAULT_PORTS[origin.scheme] if host.port is None else host.port
    return origin.name == host.name and origin.port == port
