"""The `[console]` table: where somebody may look inside while it runs."""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003  (attrs resolves the annotations)
from typing import TYPE_CHECKING, ClassVar

import attrs

from .._base.console_place import NAME
from .._base.secret import Secret  # noqa: TC001  (attrs resolves the annotations)
from .._base.web_names import is_loopback
from ..console._settings import TOKEN, host_and_port, token_digest, token_problem
from ._checks import host_problem, origin_problem
from ._kinds import Boolean, Text
from ._kinds_of_many import FilePath, Listing
from ._tables import Needs, Rule, setting
from ._written import fingerprint

if TYPE_CHECKING:
    from ..console import ConsoleSettings


def _bind_problem(bind: str) -> str | None:
    return host_problem(bind) or ("it names no host and port" if host_and_port(bind) is None else None)


def _token(token: str) -> str | None:
    problem = token_problem(token)
    return None if problem is None else f"it {problem}"


@attrs.frozen(kw_only=True)
class ConsoleConfig:
    """Where somebody may look inside while it runs, and act.

    Attributes:
        enabled: Whether there is a console; where absent, in `afpool serve` and nowhere else.
        name: What it is called in the name of its socket; `serve` in `afpool serve`, where absent.
        unix: Whether it listens on a Unix socket, for the user of the process.
        directory: The folder of that socket, his and nobody else's; `$XDG_RUNTIME_DIR/afpool` where absent.
        bind: `host:port` to listen at as well.
        read_token: Who shows it there may look: 16 characters at least, or `sha256:` and its digest.
        operate_token: Who shows it there may act, too.
        allowed_hosts: What `Host` may say there; on loopback, names of this machine too.
        allowed_origins: Pages that may attach beside the console's own.
        watchdog: Whether a thread answers while the loop hangs.
    """

    enabled: bool | None = attrs.field(
        default=None,
        metadata=setting(Boolean(), "Whether there is a console; where absent, in `afpool serve` only."),
    )
    name: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(pattern=rf"^(?:{NAME.pattern})$", expects="1 to 40 letters, digits, `_` and `-`"),
            "What it is called in the name of its socket; what the program is where absent.",
        ),
    )
    unix: bool = attrs.field(
        default=True,
        metadata=setting(Boolean(), "Listen on a Unix socket, for the user that the process runs as."),
    )
    directory: str | None = attrs.field(
        default=None,
        metadata=setting(
            FilePath(expects="the path of a folder"),
            "The folder of that socket, which nobody else may use; `$XDG_RUNTIME_DIR/afpool` where absent.",
        ),
    )
    bind: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(pattern=r"^.+:[0-9]{1,5}$", expects="host:port", check=_bind_problem),
            "Listen at `host:port` as well, for the page and from elsewhere.",
        ),
    )
    read_token: Secret | None = attrs.field(
        default=None,
        repr=False,
        eq=fingerprint,
        metadata=setting(
            Text(pattern=TOKEN, expects="16 visible ASCII characters at least", check=_token, hidden=True),
            "Who shows this token there may look; or `sha256:` and its digest.",
        ),
    )
    operate_token: Secret | None = attrs.field(
        default=None,
        repr=False,
        eq=fingerprint,
        metadata=setting(
            Text(pattern=TOKEN, expects="16 visible ASCII characters at least", check=_token, hidden=True),
            "Who shows this token there may act, too; or `sha256:` and its digest.",
        ),
    )
    allowed_hosts: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(
                Text(pattern=r"^[A-Za-z0-9.:\[\]_-]{1,255}$", expects="a host such as ops.example.com"),
                least=1,
            ),
            "What `Host` may say there; on loopback, names of this machine too.",
        ),
    )
    allowed_origins: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(Text(expects="an origin such as https://ops.example.com", check=origin_problem), least=1),
            "Pages that may attach, beside the console's own.",
        ),
    )
    watchdog: bool = attrs.field(
        default=True, metadata=setting(Boolean(), "Answer from a thread while the loop hangs.")
    )

    RULES: ClassVar[tuple[Rule, ...]] = (Needs("bind", ("read_token", "operate_token")),)

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot be: a setting and why."""
        if not self.unix and self.bind is None:
            yield "unix", "it listens nowhere then: there is no bind"
        if self.bind is not None:
            found = host_and_port(self.bind)
            host = "" if found is None else found[0]
            if not is_loopback(f"[{host}]" if ":" in host else host) and not self.allowed_hosts:
                yield (
                    "bind",
                    "it can be reached from elsewhere: name in allowed_hosts what it is called there",
                )
        read, operate = self.read_token, self.operate_token
        if read is not None and operate is not None and token_digest(read) == token_digest(operate):
            yield "operate_token", "it is the same as read_token: whoever may look could act"

    def settings(self, *, default: bool = False, name: str = "afpool") -> ConsoleSettings | None:
        """Make what a console is opened with; `None` where there is none.

        Args:
            default: Whether there is one where the file does not say; then what is opened with it goes on
                without it where it cannot listen.
            name: What it is called where the file does not say.
        """
        if not (default if self.enabled is None else self.enabled):
            return None
        from ..console import ConsoleSettings

        return ConsoleSettings(
            name=self.name or name, unix=self.unix, directory=self.directory, bind=self.bind,
            read_token=self.read_token, operate_token=self.operate_token, allowed_hosts=self.allowed_hosts,
            allowed_origins=self.allowed_origins, watchdog=self.watchdog,
            required=self.enabled is not None or self.bind is not None or self.directory is not None,
        )  # fmt: skip
