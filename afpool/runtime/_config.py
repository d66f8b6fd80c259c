"""What the app says about a runtime, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from .._base.model import Tool
from .._base.names import SEPARATOR, assert_valid_tool_name
from ..pool import Server
from ..record import RecordSettings
from ..tools import Hook, RedactionPolicy, ResultCeiling, ResultLimits
from ..tools._fills import HostFillFromCredential
from ..tools._host_filled import check_fills
from ..tools._wants import assert_tool_wants

if TYPE_CHECKING:
    from .._base.credential import CredentialProvider, NeedsAuthorization, Signer
    from .._base.identity import Identity
    from .._base.seams import Seams
    from .._base.use import Use
    from ..artifacts import ArtifactStore
    from ..console import ConsoleSettings
    from ..pool._server import PlanFunction, ShareFunction
    from ..tools import ToolEvent
    from ..tools._supplied import Fills

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def _copied(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"this is a mapping, not {type(value).__name__}")
    return MappingProxyType(dict(value))


def _tuple(value: Any) -> Any:
    return tuple(value)


def _ceilings(_: object, field: attrs.Attribute[Any], value: Mapping[str, Any]) -> None:
    for name, ceiling in value.items():
        if not isinstance(ceiling, ResultCeiling):
            raise TypeError(f"{field.name}[{name!r}] is a ResultCeiling, not {type(ceiling).__name__}")


def _policy(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, RedactionPolicy):
        raise TypeError(f"{field.name} is a RedactionPolicy, not {type(value).__name__}")


def _record(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, RecordSettings):
        raise TypeError(f"{field.name} is a RecordSettings, not {type(value).__name__}")


@attrs.frozen(kw_only=True)
class ServerRules:
    """What is done to the tools of one server, at every listing.

    Attributes:
        fill: Argument name to `from_credential(...)` or `from_identity(...)`, for every tool that declares
            it. At the first listing some tool must declare each; later, one that none declares any more
            withholds the server's tools until `Runtime.acknowledge`.
        wants: Argument name to artifact kind, for every tool that declares it.
        redact: What is hidden in recorded arguments.
        ceilings: Tool name, as listed, to the ceiling of its results; `"*"` is for all others.
    """

    fill: Fills = attrs.field(default=_NONE, converter=_copied)
    wants: Mapping[str, str] = attrs.field(default=_NONE, converter=_copied)
    redact: RedactionPolicy | None = attrs.field(default=None, validator=_policy)
    ceilings: Mapping[str, ResultCeiling] = attrs.field(default=_NONE, converter=_copied, validator=_ceilings)

    def __attrs_post_init__(self) -> None:
        check_fills(self.fill)
        if self.wants:
            assert_tool_wants("each tool of the server", self.wants)
        both = [name for name in self.fill if name in self.wants]
        if both:
            raise TypeError(f"{both[0]!r} cannot be filled by the host and be an artifact that a model names")


def _positive(_: object, field: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{field.name} must be positive, not {value!r}")


@attrs.frozen(kw_only=True)
class RuntimeConfig:
    """Everything that a runtime is opened with.

    Attributes:
        servers: MCP servers, as `open_pool` takes them.
        tools: Tools of the host's own, for everybody.
        rules: Server name to what is done to its tools.
        plan: As `open_pool`.
        share: As `open_pool`.
        credentials: Vends what plans require and what tools need.
        signer: As `open_pool`.
        secret: As `open_pool`; also proves that a checkpoint is one of ours, where it is given.
        artifacts: The store that tools put into and take from; who opened it closes it.
        hooks: Asked about every call, in this order.
        results: What is done with long results.
        qualify: `when-needed` calls a server's tool `server__tool` where its name would collide with another
            one; `always` in any case.
        repeat: `when-nothing-ran` makes one second call where the first was refused and nothing ran, for a
            reason that may be gone: a stale list, a session or a connection that was lost.
        deadline: Seconds that a call has where it brings no deadline.
        list_patience: Seconds that a listing waits for a server while others have answered already.
        on_event: Told of everything that is recorded of calls; synchronous.
        on_use: As `open_pool`.
        on_authorization: Told when somebody has to authorize first, with the server or service, for whom, and
            what is needed; the only place where the address goes. Synchronous.
        record: Where its records go beside the ring; nowhere where absent.
        console: Whether somebody may look inside while it runs, and where: `True` for a Unix socket of this
            user's, or a `ConsoleSettings`.
        pool: Further arguments of `open_pool`: its callbacks and limits.
        seams: Clock, random, ids, network, threads.
    """

    servers: Sequence[Server] = attrs.field(default=(), converter=_tuple)
    tools: Sequence[Tool] = attrs.field(default=(), converter=_tuple)
    rules: Mapping[str, ServerRules] = attrs.field(default=_NONE, converter=_copied)
    plan: PlanFunction | None = None
    share: ShareFunction | None = None
    credentials: CredentialProvider | None = None
    signer: Signer | None = None
    secret: bytes | None = attrs.field(default=None, repr=False)
    artifacts: ArtifactStore | None = None
    hooks: Sequence[Hook] = attrs.field(default=(), converter=_tuple)
    results: ResultLimits = attrs.field(factory=ResultLimits)
    qualify: Literal["when-needed", "always"] = attrs.field(
        default="when-needed", validator=attrs.validators.in_(("when-needed", "always"))
    )
    repeat: Literal["never", "when-nothing-ran"] = attrs.field(
        default="never", validator=attrs.validators.in_(("never", "when-nothing-ran"))
    )
    deadline: float = attrs.field(default=60.0, validator=_positive)
    list_patience: float = attrs.field(default=5.0, validator=_positive)
    on_event: Callable[[ToolEvent], object] | None = None
    on_use: Callable[[Use], object] | None = None
    on_authorization: Callable[[str, Identity, NeedsAuthorization], object] | None = None
    record: RecordSettings | None = attrs.field(default=None, validator=_record)
    console: bool | ConsoleSettings = False
    pool: Mapping[str, Any] = attrs.field(default=_NONE, converter=_copied)
    seams: Seams | None = None

    def __attrs_post_init__(self) -> None:
        _check_each("servers", self.servers, Server)
        _check_each("tools", self.tools, Tool)
        _check_each("hooks", self.hooks, Hook)
        _check_console(self.console)
        servers = [server.name for server in self.servers]
        for name, rules in self.rules.items():
            if name not in servers:
                raise ValueError(f"there are rules for a server {name!r}; the servers are {servers}")
            if not isinstance(rules, ServerRules):
                raise TypeError(f"the rules for {name!r} are ServerRules, not {type(rules).__name__}")
        seen: set[str] = set()
        for tool in self.tools:
            self._check_tool(tool, servers, seen)
            seen.add(tool.name)
        self._check_parts()

    def _check_parts(self) -> None:
        """Refuse what every call would be refused for, because a part of the runtime is missing."""
        if self.artifacts is None:
            for name, rules in self.rules.items():
                if rules.wants:
                    raise ValueError(
                        f"the rules for {name!r} want artifacts for {', '.join(rules.wants)}, and there is "
                        "no artifact store: give one as `artifacts`, or drop the `wants`"
                    )
            if self.results.max_inline_chars is not None:
                raise ValueError(
                    "results longer than `max_inline_chars` are to be stored, and there is no artifact "
                    "store: give one as `artifacts`, or cut them by `max_chars`"
                )
        if self.credentials is None:
            for tool in self.tools:
                if tool.needs is not None:
                    raise ValueError(
                        f"the tool {tool.name!r} needs a credential for {tool.needs.service!r}, and nobody "
                        "vends any: give a provider as `credentials`"
                    )
            for name, rules in self.rules.items():
                filled = [arg for arg, fill in rules.fill.items() if isinstance(fill, HostFillFromCredential)]
                if filled:
                    raise ValueError(
                        f"the rules for {name!r} fill {', '.join(filled)} from a credential, and nobody "
                        "vends any: give a provider as `credentials`"
                    )

    def _check_tool(self, tool: Tool, servers: list[str], seen: set[str]) -> None:
        name = tool.name
        assert_valid_tool_name(name)
        if name in seen:
            raise ValueError(f"two tools of the host's own are named {name!r}")
        for server in servers:
            if name.startswith(f"{server}{SEPARATOR}"):
                raise ValueError(f"the tool {name!r} reads as if the server {server!r} listed it")
        if tool.wants is not None and self.artifacts is None:
            wanted = ", ".join(f"{arg} ({kind})" for arg, kind in tool.wants.items())
            raise ValueError(
                f"the tool {name!r} wants artifacts for {wanted}, and there is no artifact store: give one "
                "as `artifacts`, or drop its `wants`"
            )


def _check_console(console: object) -> None:
    if isinstance(console, bool):
        return
    from ..console import ConsoleSettings

    if not isinstance(console, ConsoleSettings):
        raise TypeError(f"console is True, False or ConsoleSettings, not {type(console).__name__}")


def _check_each(what: str, values: Sequence[object], kind: type) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{what} holds {type(value).__name__}, which is no {kind.__name__}")
