"""`afpool call`: one call through the door of the runtime, and its answer.

The tool's own words are data, also where it says that it failed; a refusal or failure of the call is told on
stderr, with its verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._base.errors import UnknownTool
from ..config import ResultSettings, open_components
from ..runtime import open_runtime
from ._arguments import read_arguments
from ._failures import DONE, FAILED
from ._interrupt import run_async
from ._live import showing
from ._logs import log_words
from ._parsing import nearest
from ._reading import chosen, configured, only, seconds, who

if TYPE_CHECKING:
    import argparse

    from .._base.model import Progress, ToolResult
    from ..config import Config
    from ..runtime import RuntimeToolset
    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """Call a tool."""
    config, _ = configured(options, out)
    log_words(out)
    config = only(config, chosen(config, [options.server]))
    if options.whole:
        config = attrs.evolve(config, runtime=attrs.evolve(config.runtime, results=ResultSettings()))
    arguments = read_arguments(options.arguments)
    result = run_async(_call, config, options, arguments, out)
    return _write(result, config, out)


async def _call(
    config: Config, options: argparse.Namespace, arguments: dict[str, Any], out: Output
) -> ToolResult:
    identity = who(options)
    timeout = seconds(options.timeout, "--timeout")
    said = [f"opening {options.server}"]

    def progress(step: Progress) -> None:
        said[0] = _words_of(step)

    async with (
        showing(out, lambda: said[0]),
        open_components(config) as (provider, store),
        open_runtime(config.runtime_config(credentials=provider, artifacts=store, record=None)) as runtime,
    ):
        deadline = None if timeout is None else trio.current_time() + timeout
        toolset = await runtime.toolset(identity, deadline=deadline)
        name = _named(toolset, options.server, options.tool)
        said[0] = f"calling {name}"
        return await toolset.call(name, arguments, deadline=deadline, on_progress=progress)


def _named(toolset: RuntimeToolset, server: str, tool: str) -> str:
    """Find the name that a tool is called by here.

    Raises:
        AfpoolError: The server could not be listed, or offers no such tool.
    """
    for problem in toolset.problems.values():
        raise problem
    for shown in toolset:
        place = toolset.place_of(shown)
        if place == (server, tool) or (place[0] == server and tool in {shown, f"{server}__{place[1]}"}):
            return shown
    why = toolset.withheld.get(server) or toolset.quarantined.get(f"{server}/{tool}")
    if why is not None:
        raise UnknownTool(f"the tool is not offered: {why}; nothing was sent")
    listed = [toolset.place_of(shown)[1] for shown in toolset]
    near = nearest(tool, listed)
    said = f"did you mean {near!r}?" if near else f"`afpool tools {server}` lists what there is"
    raise UnknownTool(f"{server} offers no such tool to this identity; nothing was sent; {said}")


def _words_of(step: Progress) -> str:
    share = f"{step.progress:g}" if step.total is None else f"{step.progress:g} of {step.total:g}"
    return f"{share}: {step.message}" if step.message else share


def _write(result: ToolResult, config: Config, out: Output) -> int:
    refused = result.error
    if out.json:
        told: dict[str, Any] = {
            "ok": not result.is_error and refused is None,
            "code": result.code,
            "delivery": result.delivery,
            "callId": result.call_id,
            "result": result.document,
        }
        out.document(told)
    elif refused is None:
        _write_content(result, out)
    if refused is not None:
        out.error(f"{refused.code} ({refused.delivery}): {refused.message}")
        return FAILED
    _note_artifact(result, config, out)
    if result.is_error:
        out.error("the tool says that it failed")
        return FAILED
    return DONE


def _write_content(result: ToolResult, out: Output) -> None:
    if not result.content and result.has_structured:
        out.document(result.structured)
        return
    for block in result.content:
        out.data(_readable(block), foreign=True)


def _readable(block: dict[str, Any]) -> str:
    kind = block.get("type")
    text = block.get("text")
    if kind == "text" and isinstance(text, str):
        return text
    if kind == "resource_link":
        return f"[resource_link {block.get('uri')}]"
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        inner = resource.get("text")
        return inner if isinstance(inner, str) else f"[resource {resource.get('uri')}]"
    data = block.get("data")
    size = f", {len(data) * 3 // 4} bytes" if isinstance(data, str) else ""
    return f"[{kind} {block.get('mimeType', '')}{size}; --json has it]"


def _note_artifact(result: ToolResult, config: Config, out: Output) -> None:
    """Say where a result went that was too long, and for how long it is there."""
    ticket = result.structured
    if not (isinstance(ticket, dict) and ticket.get("placed") is True and isinstance(ticket.get("ref"), str)):
        return
    if config.artifacts.backend == "memory":
        where = "it is gone with this command, since artifacts.backend is memory"
    else:
        where = f"it is kept in {config.artifacts.backend}"
    out.say(f"the result is the artifact {ticket['ref']}; {where}; --whole prints it")
