"""`load_config`: from files, variables and flags to a `Config`, or to everything that is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ._config import Config
from ._console_settings import ConsoleConfig
from ._document import Document, read_foreign
from ._files import BadFile, read_json, read_text, read_toml
from ._kinds import INVALID
from ._layers import Layers
from ._place import Place, Reading, Source
from ._problems import ConfigError, Problem, dotted, nearest
from ._record_settings import RecordConfig
from ._runtime_settings import ArtifactsConfig, CredentialConfig, RuntimeSettings
from ._serve_settings import ServeConfig
from ._tables import fields_of, read_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._server_settings import ServerConfig

FILE_VARIABLE: Final = "AFPOOL_CONFIG"
"""Names the file where nobody else does."""
DEFAULT_FILE: Final = "afpool.toml"
TABLES: Final[dict[str, type]] = {
    "runtime": RuntimeSettings,
    "serve": ServeConfig,
    "artifacts": ArtifactsConfig,
    "record": RecordConfig,
    "console": ConsoleConfig,
}
"""The tables whose settings a flag or a variable may say."""


def load_config(
    path: str | os.PathLike[str] | None = None,
    *,
    mcp_config: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Read a configuration. Flags count before variables, these before the file, that before defaults.

    Args:
        path: The file: TOML, or, with a name in `.json`, what other MCP clients keep their servers in.
            Without it the one that `AFPOOL_CONFIG` names, or `afpool.toml` in the current folder if that
            is there; neither is needed.
        mcp_config: Files of other clients (`.mcp.json`), whose servers are added.
        env: Variables for `${…}` and `AFPOOL_…`; those of this process where absent.
        overrides: What flags say: the key of a setting (`serve.bind`) to its value, or that as text.

    Raises:
        ConfigError: All that is wrong, each with file, line and key. No value is in it.

    Blocking, for milliseconds: it reads the files, and looks whether those are there that they name.
    """
    reading = Reading(dict(os.environ if env is None else env))
    config = _read(reading, path, _several(mcp_config), {} if overrides is None else overrides)
    if reading.problems:
        raise ConfigError(_in_order(reading.problems))
    return config


def _several(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    if isinstance(given, str | os.PathLike):
        given = [given]
    return [os.fspath(each) for each in given]


def _in_order(problems: list[Problem]) -> list[Problem]:
    """Bring problems into the order of the files and of the lines in them, each once."""
    files = list(dict.fromkeys(problem.file for problem in problems))
    once = dict.fromkeys(problems)
    return sorted(once, key=lambda problem: (files.index(problem.file), problem.line or 0))


def _read(
    reading: Reading, path: str | os.PathLike[str] | None, others: list[str], overrides: Mapping[str, Any]
) -> Config:
    layers = Layers(reading, overrides, TABLES)
    name = _file_name(reading, path)
    given: dict[str, Any] = {}
    read = True
    if name is not None and name.endswith(".json"):
        others = [name, *others]
        name = None
    if name is not None:
        found = _parsed(reading, name)
        read = found is not None
        given = _document(found[0], found[1], layers) if found is not None else {}
    else:
        here = Source("default", Path.cwd(), Path.cwd())
        given = _document({}, Place(reading, here, (), ""), layers)
    if read:  # else nothing has had the chance to take what flags say
        layers.left()
    for key in ("servers", "mcpServers", "credentials"):
        reading.origins.pop(key, None)
        reading.shown.pop(key, None)
    servers = _servers(reading, given, others)
    _cross_check(reading, servers, given)
    if reading.problems:
        return Config()
    return Config(
        servers=MappingProxyType(servers),
        source=tuple(dict.fromkeys(reading.files)),
        origins=MappingProxyType(reading.origins),
        shown=MappingProxyType(reading.shown),
        warnings=tuple(reading.warnings),
        **{key: value for key, value in given.items() if key not in {"servers", "mcpServers"}},
    )


def _file_name(reading: Reading, path: str | os.PathLike[str] | None) -> str | None:
    if path is not None:
        return os.fspath(path)
    named = reading.env.get(FILE_VARIABLE)
    if named:
        return named
    return DEFAULT_FILE if os.path.lexists(DEFAULT_FILE) else None


def _parsed(reading: Reading, name: str) -> tuple[Any, Place] | None:
    """Read one file; `None` where it cannot be, which was told."""
    try:
        path = Path(name).absolute()
        reading.files.append(path)
        text = read_text(path)
        raw, lines = read_json(text) if name.endswith(".json") else read_toml(text)
    except BadFile as bad:
        reading.problems.append(Problem(name, bad.line, "", bad.what))
        return None
    folder = path.parent
    workspace = folder.parent if folder.name == ".vscode" else folder
    return raw, Place(reading, Source(name, folder, workspace, lines), (), "")


def _document(raw: Any, place: Place, layers: Layers) -> dict[str, Any]:
    given = read_fields(fields_of(Document), raw, place, layers) or {}
    return {key: value for key, value in given.items() if value is not INVALID}


def _servers(reading: Reading, given: dict[str, Any], others: list[str]) -> dict[str, ServerConfig]:
    """Bring the servers of all files together; a name stands for one."""
    servers: dict[str, ServerConfig] = dict(given.get("servers", {}))
    for name, server in given.get("mcpServers", {}).items():
        if name in servers:
            reading.refuse_at(f"mcpServers.{dotted((name,))}", "servers has one of this name, too")
        servers[name] = server
    for file in others:
        found = _parsed(reading, file)
        if found is None:
            continue
        before = dict(servers)
        for name, server in read_foreign(*found).items():
            if name in before:
                reading.problems.append(
                    Problem(
                        file,
                        _line_of(found[1], name),
                        f"servers.{dotted((name,))}",
                        "another file has a server of this name",
                    )
                )
            servers[name] = server
    return servers


def _line_of(place: Place, name: str) -> int | None:
    lines = place.source.lines
    return lines.get(("mcpServers", name)) or lines.get(("servers", name))


def _cross_check(reading: Reading, servers: Mapping[str, ServerConfig], given: Mapping[str, Any]) -> None:
    """Tell what one part of a configuration names and another one does not have."""
    credentials: Mapping[str, CredentialConfig] = given.get("credentials", {})
    artifacts: ArtifactsConfig = given.get("artifacts", ArtifactsConfig())
    runtime: RuntimeSettings = given.get("runtime", RuntimeSettings())
    for name, server in servers.items():
        key = f"servers.{dotted((name,))}"
        named = {f"{key}.credential.service": server.credential.service} if server.credential else {}
        named |= {
            f"{key}.fill.{dotted((arg,))}.credential": fill.credential
            for arg, fill in server.fill.items()
            if fill.credential is not None
        }
        for where, service in named.items():
            if service not in credentials:
                reading.refuse_at(
                    where, "there is no such table among [credentials]", nearest(service, credentials)
                )
        if server.wants and artifacts.backend == "none":
            where = f"{key}.wants.{dotted((next(iter(server.wants)),))}"
            reading.refuse_at(where, "it takes an artifact, and artifacts.backend is none")
    if runtime.results.max_inline_chars is not None and artifacts.backend == "none":
        reading.refuse_at(
            "runtime.results.max_inline_chars",
            "longer results are to be stored, and artifacts.backend is none",
        )
