"""`afpool tools`: what an identity is offered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ..config import open_components
from ..runtime import open_runtime
from ._failures import DONE, FAILED
from ._interrupt import run_async
from ._live import showing
from ._logs import log_words
from ._reading import chosen, configured, only, seconds, who

if TYPE_CHECKING:
    import argparse

    from .._base.model import Tool
    from ..config import Config
    from ..runtime import RuntimeToolset
    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """List the tools of an identity."""
    config, _ = configured(options, out)
    log_words(out)
    names = chosen(config, options.server)
    return run_async(_list, only(config, names), options, out)


async def _list(config: Config, options: argparse.Namespace, out: Output) -> int:
    timeout = seconds(options.timeout, "--timeout")
    many = len(config.servers)
    async with (
        showing(out, lambda: f"listing {many} server{'s' if many > 1 else ''}"),
        open_components(config) as (provider, store),
        open_runtime(config.runtime_config(credentials=provider, artifacts=store, record=None)) as runtime,
    ):
        deadline = None if timeout is None else trio.current_time() + timeout
        toolset = await runtime.toolset(who(options), deadline=deadline)
        told = [_told(toolset, name) for name in toolset]
    _write(toolset, told, out)
    for name, error in toolset.problems.items():
        out.error(f"{name}: {error.code}: {error.message}")
    for name, why in toolset.withheld.items():
        out.error(f"{name}: none of its tools is offered: {why}")
    for place, why in toolset.quarantined.items():
        out.warn(f"{place} is not offered: {why}")
    return FAILED if toolset.problems or toolset.withheld else DONE


def _told(toolset: RuntimeToolset, name: str) -> dict[str, Any]:
    tool: Tool = toolset[name]
    server, listed = toolset.place_of(name)
    return {
        "name": name,
        "server": server,
        "listed": listed,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }


def _write(toolset: RuntimeToolset, told: list[dict[str, Any]], out: Output) -> None:
    if out.json:
        out.document(
            {
                "tools": told,
                "problems": {
                    name: {"code": error.code, "message": error.message}
                    for name, error in toolset.problems.items()
                },
                "withheld": dict(toolset.withheld),
                "quarantined": dict(toolset.quarantined),
            }
        )
    elif told:
        rows = [(one["name"], one["server"] or "-", _arguments(one), one["description"]) for one in told]
        out.table(("tool", "server", "arguments", "description"), rows)
    elif not toolset.problems:
        out.say("no tool is offered")


def _arguments(told: dict[str, Any]) -> str:
    """Names of the arguments; those that may be left out in brackets."""
    schema = told["inputSchema"]
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict):
        return "-"
    needed = required if isinstance(required, list) else []
    return " ".join(name if name in needed else f"[{name}]" for name in properties) or "-"
