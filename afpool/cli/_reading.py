"""What the options of several commands mean: the configuration, servers in it, whom it is for, how long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ._failures import Usage
from ._parsing import nearest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from .._base.identity import Identity
    from ..config import Config
    from ._output import Output

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)?")


def configured(
    options: argparse.Namespace, out: Output, more: Mapping[str, Any] | None = None
) -> tuple[Config, Callable[[], Config]]:
    """Read the configuration that the options name.

    Args:
        options: Of the command.
        out: Where warnings go.
        more: Settings that flags of the command say.

    Returns:
        The configuration, and what reads it again.

    Raises:
        ConfigError: It cannot be used.
        Usage: `--set` is none.
    """
    from ..config import load_config

    overrides = {**pairs(getattr(options, "set", [])), **(more or {})}
    others = getattr(options, "mcp_config", [])

    def load() -> Config:
        return load_config(options.config, mcp_config=others, overrides=overrides)

    config = load()
    for warning in config.warnings:
        out.warn(str(warning))
    return config, load


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Read `KEY=VALUE`, several times."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Usage("--set takes KEY=VALUE, such as serve.drain=5s")
        found[key] = value
    return found


def chosen(config: Config, names: Sequence[str]) -> tuple[str, ...]:
    """Give the names of the servers that are meant: those named, or all that are not disabled.

    Raises:
        Usage: There is no such server, or none at all.
    """
    enabled = [server.name for server in config.enabled]
    if not enabled:
        raise Usage(
            "no server is configured: name a file with --config or --mcp-config",
            "afpool config show --changed",
        )
    for name in names:
        if name not in enabled:
            near = nearest(name, enabled)
            said = f"; did you mean {near!r}?" if near else f"; there are {', '.join(sorted(enabled))}"
            disabled = name in config.servers
            raise Usage("that server is disabled" if disabled else f"there is no such server{said}")
    return tuple(dict.fromkeys(names)) or tuple(enabled)


def only(config: Config, names: Sequence[str]) -> Config:
    """Give the configuration with these servers alone."""
    import attrs

    return attrs.evolve(config, servers={name: config.servers[name] for name in names})


def who(options: argparse.Namespace) -> Identity:
    """Give whom it is for. Where nobody is named that is somebody without a name: servers for everybody open.

    Raises:
        Usage: What was named is no text.
    """
    from .._base.identity import Identity

    try:
        return Identity(options.tenant, options.principal, options.conversation)
    except ValueError:
        raise Usage("--tenant, --principal and --conversation take text in UTF-8") from None


def seconds(text: str | None, option: str, default: float | None = None) -> float | None:
    """Read a time such as `30s`; a number alone is seconds.

    Raises:
        Usage: It is none.
    """
    if text is None:
        return default
    found = _TIME.fullmatch(text.strip())
    value = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not 0 < value <= 10.0**9:
        raise Usage(f"{option} takes a time such as 250ms, 30s, 5m, 2h or 90d")
    return value


def moment(text: str | None, option: str, now: float) -> float | None:
    """Read a date, or a time from now, as seconds since 1970; a date alone is its first moment in UTC.

    Raises:
        Usage: It is neither.
    """
    if text is None:
        return None
    if _TIME.fullmatch(text.strip()) and not text.strip().isdigit():
        return now + (seconds(text, option) or 0.0)
    import datetime as dt

    try:
        found = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise Usage(f"{option} takes a time from now such as 30d, or a date such as 2027-01-31") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=dt.UTC)
    return found.timestamp()
