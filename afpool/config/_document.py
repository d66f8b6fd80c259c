"""What stands in a file: ours (`afpool.toml`), and what other clients keep their servers in.

Ours has `servers`, `credentials`, `runtime`, `serve`, `artifacts`, and knows all its keys. `mcpServers` is
taken as other clients write it: their keys are read where they mean something here, others are passed over
with a word. What only afpool knows of such a server stands in it under `afpool`, which other clients ignore.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (attrs resolves the annotations)
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from ._console_settings import ConsoleConfig
from ._files import BadFile, read_env, read_text
from ._kinds import INVALID, Kind, Unfit, named
from ._kinds_of_many import Named
from ._problems import dotted
from ._record_settings import RecordConfig
from ._runtime_settings import ArtifactsConfig, CredentialConfig, RuntimeSettings
from ._serve_settings import ServeConfig
from ._server_settings import ServerConfig
from ._tables import Field, Record, fields_of, finished, judge, read_fields, setting
from ._written import Written

if TYPE_CHECKING:
    from ._layers import Layers
    from ._place import Place

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_SPELLED: Final = {"envFile": "env_file"}
_RENAMED: Final = {"transportType": "type", "transport": "type", "serverUrl": "url", "httpUrl": "url"}
"""What single clients call by another name."""
_FOREIGN: Final = ("type", "command", "args", "env", "cwd", "url", "headers", "disabled")
_STDIO_ONLY: Final = ("args", "env", "envFile", "cwd")


class _ServerKind(Record):
    """Reads a `[servers.NAME]` table."""

    def __init__(self) -> None:
        super().__init__(ServerConfig)

    def read_record(self, raw: Any, place: Place, layers: Layers | None = None) -> Any:  # noqa: ARG002
        """See `Record.read_record`."""
        before = len(place.reading.problems)
        given = read_fields(fields_of(ServerConfig), raw, place)
        return _server(given, raw, place, before)


class ForeignKind(Kind):
    """Reads one member of an `mcpServers` object."""

    expects = "a server as other clients write it"
    table = ServerConfig

    def read(self, raw: Any, place: Place) -> Any:
        """See `Kind.read`."""
        before = len(place.reading.problems)
        place = attrs.evolve(place, source=attrs.evolve(place.source, foreign=True))
        if not isinstance(raw, dict):
            return place.refuse(f"expected {self.expects}, not {named(raw)}", structural=True)
        raw = dict(raw)
        for theirs, ours in _RENAMED.items():
            if theirs in raw and ours not in raw:
                raw[ours] = raw.pop(theirs)
        knobs = raw.pop("afpool", {})
        if raw.pop("timeout", None) is not None:
            place.child("timeout").warn(
                "a server has no time limit of its own here; runtime.deadline bounds calls"
            )
        if isinstance(raw.get("env"), dict):
            raw["env"] = {name: _text(value) for name, value in raw["env"].items() if value is not None}
        for name in _STDIO_ONLY:
            if name in raw and "url" in raw and "command" not in raw:
                raw.pop(name)
                place.child(name).warn("it says nothing of a server that has a url, and is passed over")
        given = read_fields(_foreign_fields(), raw, place, strict=False)
        own = read_fields(_own_fields(), knobs, place.child("afpool", key=place.key))
        if given is None or own is None:
            return INVALID
        return _server(given | own, raw, place, before)

    def parse(self, text: str) -> Any:  # noqa: ARG002 -- as the port says
        """See `Kind.parse`."""
        raise Unfit(f"expected {self.expects}")

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "object", "description": "As other MCP clients write it; see their documentation."}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _foreign_fields() -> tuple[Field, ...]:
    theirs = {ours: spelled for spelled, ours in _SPELLED.items()}
    return tuple(
        attrs.evolve(field, spelled=theirs.get(field.name, field.name))
        for field in fields_of(ServerConfig)
        if field.name in _FOREIGN or field.name in theirs
    )


def _own_fields() -> tuple[Field, ...]:
    names = {*_FOREIGN, *_SPELLED.values()}
    return tuple(field for field in fields_of(ServerConfig) if field.name not in names)


def _server(given: dict[str, Any] | None, raw: Any, place: Place, before: int) -> Any:
    """Make a server of what was read. One that is disabled has to look right, and nothing of it is used."""
    if given is None:
        return INVALID
    problems = place.reading.problems
    name = str(place.path[-1])
    judge(ServerConfig, given, place)
    if isinstance(raw, dict) and raw.get("disabled") is True:
        problems[before:] = [problem for problem in problems[before:] if problem.structural]
        return INVALID if len(problems) > before else ServerConfig(name=name, disabled=True)
    if len(problems) > before:
        return INVALID
    server = ServerConfig(**given, name=name)
    if server.env_file is not None:
        there = _env_file(server, place)
        if there is None:
            return INVALID
        server = attrs.evolve(server, env=MappingProxyType({**there, **server.env}))
    return finished(server, place)


def _env_file(server: ServerConfig, place: Place) -> dict[str, Written] | None:
    from pathlib import Path

    path = Path(server.env_file or "")
    place.reading.files.append(path)
    try:
        return {name: Written.plain(value) for name, value in read_env(read_text(path)).items()}
    except BadFile as bad:
        spelled = "envFile" if place.source.foreign else "env_file"
        line = "" if bad.line is None else f"line {bad.line}: "
        place.child(spelled).refuse(f"the file of variables: {line}{bad.what}")
        return None


class _CredentialKind(Record):
    """Reads a `[credentials.NAME]` table."""

    def __init__(self) -> None:
        super().__init__(CredentialConfig)

    def read_record(self, raw: Any, place: Place, layers: Layers | None = None) -> Any:
        """See `Record.read_record`."""
        read = super().read_record(raw, place, layers)
        return attrs.evolve(read, name=str(place.path[-1])) if isinstance(read, CredentialConfig) else read


class _ForeignServers(Named):
    """Reads an `mcpServers` object; its servers have the keys of ours."""

    def __init__(self) -> None:
        super().__init__(ForeignKind(), names="the name of a server")

    def read(self, raw: Any, place: Place) -> Any:
        """See `Kind.read`."""
        return super().read(raw, attrs.evolve(place, key="servers"))


@attrs.frozen(kw_only=True)
class Document:
    """What stands in `afpool.toml`."""

    servers: Mapping[str, ServerConfig] = attrs.field(
        default=_NONE,
        metadata=setting(Named(_ServerKind(), names="the name of a server"), "MCP servers, by name."),
    )
    mcpServers: Mapping[str, ServerConfig] = attrs.field(  # noqa: N815 -- it is their spelling
        default=_NONE, metadata=setting(_ForeignServers(), "MCP servers, as other clients write them.")
    )
    credentials: Mapping[str, CredentialConfig] = attrs.field(
        default=_NONE,
        metadata=setting(
            Named(_CredentialKind(), names="the name of a credential"),
            "Credentials, by the name of the service.",
        ),
    )
    runtime: RuntimeSettings = attrs.field(
        factory=RuntimeSettings, metadata=setting(Record(RuntimeSettings), "How the runtime works.")
    )
    serve: ServeConfig = attrs.field(
        factory=ServeConfig, metadata=setting(Record(ServeConfig), "How the service stands at its door.")
    )
    artifacts: ArtifactsConfig = attrs.field(
        factory=ArtifactsConfig, metadata=setting(Record(ArtifactsConfig), "Where large results live.")
    )
    console: ConsoleConfig = attrs.field(
        factory=ConsoleConfig, metadata=setting(Record(ConsoleConfig), "Where somebody may look inside.")
    )
    record: RecordConfig = attrs.field(
        factory=RecordConfig,
        metadata=setting(Record(RecordConfig), "Where the record of calls goes beside its ring."),
    )


def read_foreign(raw: Any, place: Place) -> dict[str, Any]:
    """Read a file of another client's: `mcpServers` (most), or `servers` and `inputs` (VS Code)."""
    place = attrs.evolve(place, source=attrs.evolve(place.source, foreign=True))
    if not isinstance(raw, dict):
        place.refuse(f"expected an object, not {named(raw)}", structural=True)
        return {}
    found: dict[str, Any] = {}
    kind = _ForeignServers()
    for key in ("mcpServers", "servers"):
        if key not in raw:
            continue
        read = kind.read(raw[key], place.child(key))
        for name, server in read.items() if read is not INVALID else ():
            if name in found:
                place.child(key).child(name).refuse(f"mcpServers has a server {dotted((name,))}, too")
            found[name] = server
    if "mcpServers" not in raw and "servers" not in raw:
        place.refuse("it holds neither mcpServers nor servers")
    for key in raw:
        if key not in {"mcpServers", "servers", "inputs", "$schema"}:
            place.child(key).warn("it is not understood here and passed over")
    return found
