"""What a console is opened with, checked before anything listens."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Final

import attrs

from .._base.console_place import NAME
from .._base.errors import NOT_SENT, AfpoolError
from .._base.secret import Secret
from .._base.web_names import is_loopback, read_host, read_origin

LEAST_TOKEN: Final = 16
_BIND: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
TOKEN: Final = rf"^[\x21-\x7e]{{{LEAST_TOKEN},}}$"
"""What a token looks like, and its digest."""


class CannotOpenConsole(AfpoolError):
    """The console cannot listen where it is told to. Nothing listens."""

    code = "cannot-open-console"
    deliveries = (NOT_SENT,)


@attrs.frozen(kw_only=True)
class ConsoleLimits:
    """How much a console may take up. Sizes are bytes, times seconds.

    Attributes:
        sessions: Consoles at once; one more is told so. An eighth is kept for who may operate.
        pending: Connections on one socket that have not yet said who they are; the oldest makes room.
        head: The head of a request.
        head_timeout: That a connection has until it is a session.
        command: Characters of one command.
        frame: One message of a console.
        running: Commands and streams of one console at once.
        rate: Messages of one console a second; those beyond it are read later.
        outbox: What is on its way to one console. Beyond it streams lose events, and answers wait.
        stalled: That a console may take no byte.
        cpu: The part of the loop's time that streams may take up, all together.
    """

    sessions: int = 64
    pending: int = 64
    head: int = 16 * 1024
    head_timeout: float = 5.0
    command: int = 4096
    frame: int = 64 * 1024
    running: int = 16
    rate: float = 200.0
    outbox: int = 1024 * 1024
    stalled: float = 30.0
    cpu: float = 0.07


def _compared(token: Secret | None) -> bytes | None:
    return None if token is None else token_digest(token)


def _secret(value: Any) -> Secret | None:
    return None if value is None else Secret(value)


def _path(value: Any) -> Path | None:
    return None if value is None else Path(value).expanduser().absolute()


def _tuple(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError("this is a list of texts, not one text")
    return tuple(value)


@attrs.frozen(kw_only=True)
class ConsoleSettings:
    """Where a console listens, and who may do what.

    Attributes:
        name: What the process is called in the name of its socket: letters, digits, `_` and `-`, up to 40.
        unix: Whether it listens on a Unix socket. Whoever runs the process, and root, may operate there.
        directory: The folder of that socket; `$XDG_RUNTIME_DIR/afpool`, or `/tmp/afpool-UID`, where absent.
        bind: `host:port` to listen at as well, for the page and from elsewhere; plain HTTP.
        read_token: What shows there that somebody may look: 16 characters at least, or `sha256:` and the
            digest of such a text in hexadecimal.
        operate_token: The same for who may also act.
        allowed_hosts: What `Host` may say there, beside names of this machine where `bind` is one.
        allowed_origins: Pages that may attach beside the console's own, such as `https://ops.example.com`.
        required: Whether what the console is opened with cannot be opened without it; else it is logged.
        watchdog: Whether a thread answers while the loop hangs. Only with `unix`.
        limits: How much it may take up.

    Raises:
        ValueError: Something cannot be, or would let in whoever comes.
    """

    name: str = attrs.field(default="afpool", validator=attrs.validators.instance_of(str))
    unix: bool = True
    directory: Path | None = attrs.field(default=None, converter=_path)
    bind: str | None = None
    read_token: Secret | None = attrs.field(default=None, repr=False, eq=_compared, converter=_secret)
    operate_token: Secret | None = attrs.field(default=None, repr=False, eq=_compared, converter=_secret)
    allowed_hosts: tuple[str, ...] = attrs.field(default=(), converter=_tuple)
    allowed_origins: tuple[str, ...] = attrs.field(default=(), converter=_tuple)
    required: bool = True
    watchdog: bool = True
    limits: ConsoleLimits = attrs.field(factory=ConsoleLimits)

    def __attrs_post_init__(self) -> None:
        if NAME.fullmatch(self.name) is None:
            raise ValueError("a console's name is 1 to 40 letters, digits, `_` and `-`, the first no sign")
        if not self.unix and self.bind is None:
            raise ValueError("a console without `unix` and `bind` listens nowhere")
        for name in ("read_token", "operate_token"):
            token = getattr(self, name)
            problem = None if token is None else token_problem(token.reveal())
            if problem is not None:
                raise ValueError(f"{name} {problem}")
        if self.bind is not None:
            self._check_bind()
        for host in self.allowed_hosts:
            if read_host(host) is None:
                raise ValueError(
                    f"`allowed_hosts` holds {host!r}, which is no host; write `name` or `name:port`"
                )
        for origin in self.allowed_origins:
            if read_origin(origin) is None:
                raise ValueError(
                    f"`allowed_origins` holds {origin!r}; write `https://name` or `https://name:port`"
                )
        digests = [
            token_digest(token) for token in (self.read_token, self.operate_token) if token is not None
        ]
        if len(digests) == 2 and digests[0] == digests[1]:
            raise ValueError("`read_token` and `operate_token` are the same: whoever may look could act")

    def _check_bind(self) -> None:
        host, _ = self.host_and_port
        if self.read_token is None and self.operate_token is None:
            raise ValueError(
                "`bind` needs `read_token` or `operate_token`: other users of a machine reach it, too"
            )
        if not is_loopback(f"[{host}]" if ":" in host else host) and not self.allowed_hosts:
            raise ValueError(
                f"`bind` {self.bind} can be reached from elsewhere: name in `allowed_hosts` what it is "
                "called there"
            )

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where `bind` is.

        Raises:
            ValueError: It names no host and port.
        """
        found = host_and_port(self.bind or "")
        if found is None:
            raise ValueError("`bind` is host:port or [address]:port")
        return found


def host_and_port(bind: str) -> tuple[str, int] | None:
    """Read where to listen; `None` for what is no host and port."""
    found = _BIND.fullmatch(bind)
    if found is None or int(found["port"]) > 65535:
        return None
    return found["six"] or found["host"], int(found["port"])


def token_problem(token: str) -> str | None:
    """Say why a text is no token of a console; never what it is."""
    if token.startswith("sha256:"):
        if _DIGEST.fullmatch(token) is not None:
            return None
        return "begins like a digest and is none: `sha256:` and 64 hexadecimal digits in lower case"
    if re.search(TOKEN, token) is None:
        return f"has less than {LEAST_TOKEN} characters, or others than visible ASCII"
    return None


def token_digest(token: Secret) -> bytes:
    """Give the SHA-256 of a token, or the one that it is written as."""
    found = _DIGEST.fullmatch(token.reveal())
    return hashlib.sha256(token.reveal().encode()).digest() if found is None else bytes.fromhex(found[1])
