"""`Config`: what was read, whole and checked, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (attrs resolves the annotations)
from pathlib import Path  # noqa: TC003  (attrs resolves the annotations)
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from ._console_settings import ConsoleConfig
from ._place import Origin  # noqa: TC001  (attrs resolves the annotations)
from ._problems import Problem  # noqa: TC001  (attrs resolves the annotations)
from ._record_settings import RecordConfig
from ._runtime_settings import ArtifactsConfig, CredentialConfig, RuntimeSettings
from ._serve_settings import ServeConfig
from ._server_settings import ServerConfig  # noqa: TC001  (attrs resolves the annotations)

if TYPE_CHECKING:
    from ..pool import Server
    from ..runtime import RuntimeConfig, ServerRules

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@attrs.frozen
class Changes:
    """What differs between two configurations.

    Attributes:
        added: Servers that only the later one has.
        removed: Servers that only the earlier one has.
        changed: Servers that both have and that differ, or whose credential does.
        unchanged: All others.
        credentials: Whether any credential differs.
        artifacts: Whether the store differs.
        runtime: Whether the runtime's settings differ.
        serve: Whether the service's do.
        console: Whether the console does.
        record: Whether it goes elsewhere, or is counted otherwise.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    credentials: bool = False
    artifacts: bool = False
    runtime: bool = False
    serve: bool = False
    console: bool = False
    record: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.added
            or self.removed
            or self.changed
            or self.credentials
            or self.artifacts
            or self.runtime
            or self.serve
            or self.console
            or self.record
        )


@attrs.frozen(kw_only=True)
class Config:
    """A configuration, as `load_config` gives it. Two are equal when they say the same, wherever it stands.

    Attributes:
        servers: Servers by name, those that are disabled too.
        runtime: How the runtime works.
        serve: How the service stands at its door.
        artifacts: Where large results live.
        console: Where somebody may look inside.
        record: Where the record of calls goes beside its ring.
        credentials: Credentials by the name of their service.
        source: Every file that was read, for watching them.
        origins: Key of a setting to where its value came from.
        shown: The same keys to what may be shown of the values: secrets are hidden, and what a variable gave
            is shown as it is written, where it might be one.
        warnings: What was passed over.
    """

    servers: Mapping[str, ServerConfig] = _NONE
    runtime: RuntimeSettings = attrs.field(factory=RuntimeSettings)
    serve: ServeConfig = attrs.field(factory=ServeConfig)
    artifacts: ArtifactsConfig = attrs.field(factory=ArtifactsConfig)
    console: ConsoleConfig = attrs.field(factory=ConsoleConfig)
    record: RecordConfig = attrs.field(factory=RecordConfig)
    credentials: Mapping[str, CredentialConfig] = _NONE
    source: tuple[Path, ...] = attrs.field(default=(), eq=False)
    origins: Mapping[str, Origin] = attrs.field(default=_NONE, eq=False, repr=False)
    shown: Mapping[str, Any] = attrs.field(default=_NONE, eq=False, repr=False)
    warnings: tuple[Problem, ...] = attrs.field(default=(), eq=False)

    @property
    def enabled(self) -> tuple[ServerConfig, ...]:
        """The servers that are not disabled."""
        return tuple(server for server in self.servers.values() if not server.disabled)

    def servers_for_pool(self) -> tuple[Server, ...]:
        """Make what a pool is told of each server. One that differs by identity has no plan of its own."""
        from ._building import pool_server

        return tuple(map(pool_server, self.enabled))

    def rules(self) -> Mapping[str, ServerRules]:
        """Make what a runtime does to the tools of each server."""
        from ._building import server_rules

        return {server.name: server_rules(server) for server in self.enabled}

    def runtime_config(self, **hooks: Any) -> RuntimeConfig:
        """Make what a runtime is opened with.

        Args:
            hooks: Fields of `RuntimeConfig` that a file cannot say, or that take the place of what it says:
                `credentials` and `artifacts` (see `open_components`), `tools`, `hooks`, `on_event` and so on.
                `pool` is added to the limits.

        Raises:
            TypeError: There is no such field.
            ValueError: A part is missing that the file needs: a provider, a store.
        """
        from ._building import runtime_config

        return runtime_config(self, hooks)

    def changed_servers(self, other: Config) -> Changes:
        """Compare with a configuration that takes the place of this one."""
        mine = {server.name: server for server in self.enabled}
        theirs = {server.name: server for server in other.enabled}
        both = [name for name in theirs if name in mine]
        differing = {
            name
            for name in {*self.credentials, *other.credentials}
            if self.credentials.get(name) != other.credentials.get(name)
        }
        changed = [name for name in both if mine[name] != theirs[name] or theirs[name].services & differing]
        return Changes(
            added=tuple(name for name in theirs if name not in mine),
            removed=tuple(name for name in mine if name not in theirs),
            changed=tuple(changed),
            unchanged=tuple(name for name in both if name not in changed),
            credentials=bool(differing),
            artifacts=self.artifacts != other.artifacts,
            runtime=self.runtime != other.runtime,
            serve=self.serve != other.serve,
            console=self.console != other.console,
            record=self.record != other.record,
        )
