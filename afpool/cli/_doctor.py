"""`afpool doctor`: every server opened, each by itself and all at once, and what was found.

Each server has a runtime of its own, so that what is wrong with one shows in its row alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from .._base.errors import AfpoolError
from ..config import open_components
from ..runtime import open_runtime
from ._failures import DONE, FAILED
from ._interrupt import run_async
from ._live import showing
from ._logs import log_words
from ._reading import chosen, configured, only, seconds, who

if TYPE_CHECKING:
    import argparse

    from .._base.identity import Identity
    from ..artifacts import ArtifactStore
    from ..config import Config, ConfiguredCredentials
    from ._output import Output

TIMEOUT: Final = 30.0


@attrs.define
class Found:
    """What was found at one server."""

    server: str
    transport: str
    era: str | None = None
    protocol: str | None = None
    name: str | None = None
    version: str | None = None
    tools: int | None = None
    open_ms: float | None = None
    list_ms: float | None = None
    problems: list[tuple[str, str]] = attrs.field(factory=list)
    quarantined: dict[str, str] = attrs.field(factory=dict)
    done: bool = False

    def told(self) -> dict[str, Any]:
        """Give it for programs."""
        return {
            "server": self.server,
            "ok": not self.problems,
            "transport": self.transport,
            "era": self.era,
            "protocolVersion": self.protocol,
            "name": self.name,
            "version": self.version,
            "tools": self.tools,
            "openMs": self.open_ms,
            "listMs": self.list_ms,
            "problems": [{"code": code, "message": message} for code, message in self.problems],
            "quarantined": self.quarantined,
        }


def run(options: argparse.Namespace, out: Output) -> int:
    """Open every server and say what is found."""
    config, _ = configured(options, out)
    log_words(out, quiet=True)
    names = chosen(config, options.server)
    found = [Found(name, config.servers[name].transport) for name in names]
    identity = who(options)
    timeout = seconds(options.timeout, "--timeout", TIMEOUT)
    assert timeout is not None
    run_async(_look, config, found, identity, timeout, out)
    _write(found, [name for name, server in config.servers.items() if server.disabled], out)
    return FAILED if any(one.problems for one in found) else DONE


async def _look(config: Config, found: list[Found], identity: Identity, timeout: float, out: Output) -> None:
    def left() -> str:
        waiting = [one.server for one in found if not one.done]
        return f"opening servers, {len(found) - len(waiting)} of {len(found)} done: {', '.join(waiting)}"

    async with (
        showing(out, left),
        open_components(config) as (provider, store),
        trio.open_nursery() as nursery,
    ):
        for one in found:
            nursery.start_soon(_one, only(config, [one.server]), one, identity, timeout, provider, store)


async def _one(
    config: Config,
    found: Found,
    identity: Identity,
    timeout: float,
    provider: ConfiguredCredentials,
    store: ArtifactStore | None,
) -> None:
    began = trio.current_time()
    deadline = began + timeout
    try:
        async with open_runtime(
            config.runtime_config(credentials=provider, artifacts=store, record=None)
        ) as runtime:
            pool = runtime.pool
            assert pool is not None
            bound = await pool.bind(identity, found.server, deadline=deadline)
            opened = trio.current_time()
            found.open_ms = _ms(opened - began)
            client = bound.binding.actor.machine.client
            negotiated = None if client is None else client.handle.negotiated
            if negotiated is not None:
                found.era = negotiated.era.value
                found.protocol = negotiated.version
                found.name, found.version = negotiated.server_name, negotiated.server_version
            if negotiated is not None and not negotiated.offers("tools"):
                found.tools = 0
                return
            toolset = await runtime.toolset(identity, deadline=deadline)
            for error in toolset.problems.values():
                raise error
            found.list_ms = _ms(trio.current_time() - opened)
            found.tools = len(toolset)
            found.problems += [("withheld", why) for why in toolset.withheld.values()]
            found.quarantined |= toolset.quarantined
    except AfpoolError as error:
        found.problems.append((error.code, _advised(error, config, found.server)))
    except (TypeError, ValueError) as error:
        # rules that do not fit what the server lists; the text names arguments and no value
        found.problems.append(("configuration", str(error)))
    finally:
        found.done = True


def _advised(error: AfpoolError, config: Config, server: str) -> str:
    if error.code != "identity-missing":
        return error.message
    fields = config.servers[server].keyed_on
    options = [f"--{field.removesuffix('_id')}" for field in fields]
    return f"its connections belong to somebody: name whom to open it for, by {' '.join(options)}"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _write(found: list[Found], disabled: list[str], out: Output) -> None:
    if out.json:
        ok = not any(one.problems for one in found)
        out.document({"ok": ok, "servers": [one.told() for one in found], "disabled": disabled})
    else:
        rows = [
            (
                one.server,
                "broken" if one.problems else "ok",
                " ".join(filter(None, (one.era, one.protocol))) or "-",
                " ".join(filter(None, (one.name, one.version))) or "-",
                "-" if one.tools is None else str(one.tools),
                "-" if one.open_ms is None else f"{one.open_ms:.0f} ms",
                "-" if one.list_ms is None else f"{one.list_ms:.0f} ms",
                ", ".join(code for code, _ in one.problems) or "-",
            )
            for one in found
        ]
        rows += [(name, "disabled", "-", "-", "-", "-", "-", "-") for name in disabled]
        colors = {"ok": "green", "broken": "red", "disabled": "dim"}
        out.table(
            ("server", "state", "era", "calls itself", "tools", "open", "list", "problem"),
            rows,
            lambda row, column: colors[rows[row][1]] if column == 1 else None,
        )
    for one in found:
        for code, message in one.problems:
            out.error(f"{one.server}: {code}: {message}")
        for place, why in one.quarantined.items():
            out.warn(f"{place} is not offered: {why}")
