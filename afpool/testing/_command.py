"""`python -m afpool.testing`: the fake as a process of its own, over stdio or HTTP.

The HTTP process prints one line of JSON, `{"url": ..., "control": ..., "log": ...}`, and can be steered:
`POST /control` takes `{"do": <name>, ...}`, `GET /log` gives what it saw as lines of JSON. Both answer only
to clients that are no web page (no `Origin` header). It ends at the end of its stdin, so that it never
outlives who started it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ._envelope import encode
from ._ledger import ledger_lines
from ._replies import JSON_TYPE, Reply, text_reply
from ._script import (
    RuleSpec,
    Script,
    StdioScript,
    build_engine,
    build_rule,
    build_tools,
    change_advertise,
    load_script,
)
from ._server import FakeServer
from ._stdio import run_stdio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._http import HttpConnection

_SETTABLE = frozenset({"answer", "strict", "get_stream", "keep_alive_max_requests"})


class _Control:
    """The control endpoint of one server."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    async def control(
        self, connection: HttpConnection, verb: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        if "origin" in headers:
            return text_reply(403, "not for web pages")
        if verb != "POST":
            return text_reply(405, "POST only", {"allow": "POST"})
        try:
            order = msgspec.json.decode(body, type=dict[str, Any])
            done = await self._do(order.pop("do", None), order, connection)
        except (ValueError, TypeError, KeyError) as error:
            return Reply(400, encode({"ok": False, "error": str(error)}), JSON_TYPE)
        return Reply(200, encode({"ok": True, **done}), JSON_TYPE)

    async def log(
        self, connection: HttpConnection, verb: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        del connection, body
        if "origin" in headers:
            return text_reply(403, "not for web pages")
        if verb != "GET":
            return text_reply(405, "GET only", {"allow": "GET"})
        return Reply(200, b"".join(ledger_lines(self._server.ledger)), "application/jsonl")

    async def _do(self, name: Any, order: dict[str, Any], connection: HttpConnection) -> dict[str, Any]:
        server = self._server
        match name:
            case "forget_sessions":
                server.forget_sessions(**order)
            case "set_tools":
                tools = build_tools(order.pop("tools"), server.engine)
                server.set_tools(tools, **order)
            case "notify":
                return {"streams": await server.notify(**order)}
            case "rule":
                server.add(build_rule(msgspec.convert(order, RuleSpec)))
            case "clear_rules":
                server.clear_rules()
            case "restart":
                await server.restart(**order, spare=connection)
            case "close_idle_connections":
                return {"closed": server.close_idle_connections()}
            case "end_streams":
                return {"ended": server.end_streams(**order)}
            case "clear_log":
                server.clear_log()
            case "advertise":
                change_advertise(server.engine, order)
            case "set":
                for member, value in order.items():
                    if member not in _SETTABLE:
                        raise ValueError(f"cannot set {member!r}; there are {', '.join(sorted(_SETTABLE))}")
                    setattr(server, member, value)
            case "stats":
                return self._stats()
            case _:
                raise ValueError(f"unknown order {name!r}")
        return {}

    def _stats(self) -> dict[str, Any]:
        server = self._server
        return {
            "arrivals": len(server.log),
            "executions": dict(server.executions),
            "cancelled": server.cancelled,
            "connections": server.connections,
            "connections_total": server.connections_total,
            "sessions": len(server.sessions),
            "streams": server.streams,
        }


async def _serve_http(server: FakeServer, *, stay: bool) -> None:
    control = _Control(server)
    server.routes.update({"/control": control.control, "/log": control.log})
    async with server:
        root = server.url.removesuffix(server.path)
        where = {"url": server.url, "control": f"{root}/control", "log": f"{root}/log"}
        sys.stdout.write(json.dumps(where) + "\n")
        sys.stdout.flush()
        if stay:
            await trio.sleep_forever()
        try:
            async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
                while await stdin.receive_some(4096):
                    pass
        except OSError:
            # A file or /dev/null cannot be waited for: it is at its end already.
            return


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m afpool.testing", description="A scripted MCP server.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, told in (("stdio", "serve on stdin and stdout"), ("http", "serve on a loopback port")):
        sub = kinds.add_parser(kind, help=told, description=f"{told[0].upper()}{told[1:]}.")
        sub.add_argument("--era", choices=["handshake", "stateless", "both"], help="default: handshake")
        sub.add_argument("--script", metavar="JSON", help="a script as JSON, or @FILE")
        if kind == "stdio":
            sub.add_argument("--log", metavar="FILE", help="append what it sees as lines of JSON")
        else:
            sub.add_argument("--port", type=int, default=0, help="default: a free one")
            sub.add_argument("--answer", choices=["json", "sse", "json-chunked"], default="json")
            sub.add_argument("--stay", action="store_true", help="do not end at the end of stdin")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, 2 for a script that cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        if options.kind == "stdio":
            run_stdio(load_script(options.script, StdioScript, options.era), options.log)
        else:
            engine = build_engine(load_script(options.script, Script, options.era))
            server = FakeServer(engine, port=options.port, answer=options.answer)
            trio.run(lambda: _serve_http(server, stay=options.stay))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"afpool.testing: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
