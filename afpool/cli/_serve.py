"""`afpool serve`."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._called import afpool_command
from ._failures import Failure, Usage
from ._logs import log_lines
from ._reading import configured

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ..config import Config
    from ..console import Console
    from ..serve import Service
    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """Serve until told to end."""
    more: dict[str, Any] = {
        key: value
        for key, value in (
            ("serve.bind", options.bind),
            ("serve.path", options.path),
            ("serve.identity.tokens.file", options.tokens),
            ("serve.tls.certificate", options.tls_certificate),
            ("serve.tls.key", options.tls_key),
            ("serve.drain", options.drain),
            ("serve.reload", "false" if options.no_reload else None),
        )
        if value is not None
    }
    if options.traffic and not options.demo:
        raise Usage("--traffic is the demo's: add --demo")
    if options.demo:
        config, load = _demo_config(options, out, more)
    else:
        config, load = configured(options, out, more)
        if not config.enabled:
            out.warn("no server is configured, so nobody is offered any tool")
        if not config.serve.identity.proves and config.serve.identity.anonymous is None:
            out.warn(
                "nobody can prove who he is, so everybody is refused: name serve.identity, or give --tokens"
            )
    log_lines(out, options.log_level, options.log_format)
    import trio

    from ..serve import serve
    from ._notify import Supervisor

    supervisor = Supervisor()
    started = _Started(out)
    served = functools.partial(serve, config, demo=options.demo, traffic=options.traffic, load=load)
    code: int = trio.run(_serve, served, _Announce(out), supervisor, started)
    _told(out, {"event": "ended", "code": code})
    return code


async def _serve(
    served: Any,
    announce: Callable[[str], None],
    supervisor: Any,
    started: Any,
) -> int:
    code: int = await served(announce=announce, notify=supervisor.tell, task_status=started)
    return code


def _demo_config(
    options: argparse.Namespace, out: Output, more: dict[str, Any]
) -> tuple[Config, Callable[[], Config] | None]:
    """Read what flags say, and no file unless one is named: the demo is the same everywhere."""
    from ._demo_place import demo_tokens

    if "serve.identity.tokens.file" not in more:
        path = demo_tokens()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Failure(
                f"no folder for the demo's tokens can be made: {error.strerror}; set XDG_STATE_HOME"
            ) from None
        more["serve.identity.tokens.file"] = str(path)
    if options.config is not None or options.mcp_config:
        raise Usage("--demo brings servers of its own: leave out --config and --mcp-config")
    with tempfile.TemporaryDirectory(prefix="afpool-") as folder:
        empty = Path(folder) / "afpool.toml"
        empty.write_text("[serve]\n", encoding="utf-8")
        options.config = str(empty)
        config, _ = configured(options, out, more)
    return config, None


def _told(out: Output, what: str | dict[str, Any]) -> None:
    """Write a line for people, or a document for programs. A service does not end with its reader."""
    try:
        if isinstance(what, str):
            out.data(what)
            out.end()
        elif out.json:
            out.line(what)
    except BrokenPipeError:
        out.mute()


class _Announce:
    """What the service announces: lines for people, or documents for programs."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def __call__(self, line: str) -> None:
        if not self._out.json:
            _told(self._out, line)
        elif line.startswith("{"):
            _told(self._out, {"event": "client", **json.loads(line)})


class _Started:
    """Told when the service is ready."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def started(self, service: Service) -> None:
        console = service.runtime.console
        inside = () if console is None else console.addresses
        _told(self._out, {"event": "ready", "addresses": list(service.addresses), "console": list(inside)})
        if console is not None and not self._out.json:
            for line in how_to_attach(console):
                _told(self._out, line)


def how_to_attach(console: Console) -> list[str]:
    """Say which commands show what goes on inside."""
    called = afpool_command()
    lines = []
    if console.found:
        pid = os.getpid()
        lines += [
            "",
            "look inside from another terminal:",
            f"    {called} console {pid}",
            f"    {called} show actors --process {pid}",
        ]
    elif console.path is not None:
        lines += ["", "look inside from another terminal:", f"    {called} console {console.path}"]
    pages = [address for address in console.addresses if not address.startswith("unix:")]
    lines += [f"    or in a browser, with a token: {address}" for address in pages]
    return lines
