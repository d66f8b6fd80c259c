"""Whom to connect to: the parts of a URL that decide it."""

from __future__ import annotations

import contextlib
from typing import Final

import attrs

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@attrs.frozen
class Origin:
    """Whom to connect to.

    Attributes:
        scheme: `http` or `https` (`ws` or `wss` where the caller of `origin_of` admits them).
        host: A name in its ASCII form, or an IP address without brackets.
        port: Given, or the scheme's own.
    """

    scheme: str
    host: str
    port: int

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.scheme in {"https", "wss"}

    @property
    def authority(self) -> bytes:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}").encode("ascii")


def origin_of(url: str, *, schemes: tuple[str, ...] = ("http", "https")) -> tuple[Origin, bytes]:
    """Part a URL into whom to connect to and what to ask for.

    Args:
        url: Absolute. International names are brought into their ASCII form.
        schemes: Which ones are admitted, of `http`, `https`, `ws`, `wss`.

    Returns:
        The origin, and path with query as the request target.

    Raises:
        ValueError: Another scheme, no host, a user name or password, a fragment, or no URL at all. The
            message does not quote the URL.
    """
    import httpx

    parsed: httpx.URL | None = None
    with contextlib.suppress(httpx.InvalidURL, TypeError):
        parsed = httpx.URL(url)
    if parsed is None:
        # Raised out here, so that no context of the exception quotes the URL.
        raise ValueError("the server's URL cannot be parsed")
    if parsed.scheme not in schemes:
        raise ValueError(f"the server's URL must start with one of {', '.join(s + '://' for s in schemes)}")
    if not parsed.host:
        raise ValueError("the server's URL names no host")
    if parsed.userinfo:
        raise ValueError("the server's URL holds a user name; credentials are configured beside the URL")
    if parsed.fragment or "#" in url:
        raise ValueError("the server's URL holds a fragment, which is never sent")
    port = parsed.port
    if port is None:
        port = _DEFAULT_PORTS[parsed.scheme]
    if not 0 < port < 65536:
        raise ValueError("the server's URL holds a port that does not exist")
    host = parsed.raw_host.decode("ascii")
    return Origin(parsed.scheme, host, port), parsed.raw_path
