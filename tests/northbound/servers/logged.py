"""What came to an upstream server, one line of JSON each: the connection, whose it is, and what was asked.

Used inside of the servers' own virtual environments, so it is made of the standard library alone. A line has
`event` (`request`, or `gone` for a client that left before its answer ended), `connection` (the port of the
client, which no two connections have at once), `tenant` (the header that the service's configuration gives an
identity), `method`, `tool` and `arguments`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Logged:
    """An ASGI app before another: files what comes.

    Args:
        app: The other.
        path: The log; lines are appended.
    """

    def __init__(self, app: Any, path: str) -> None:
        self.app = app
        self.path = Path(path)

    def file(self, **line: Any) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, and file it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        known: dict[str, Any] = {"connection": scope["client"][1], "tenant": headers.get("x-tenant")}
        body = b""
        ended = False

        async def received() -> Any:
            nonlocal body
            message = await receive()
            if message["type"] == "http.disconnect":
                if not ended:
                    self.file(event="gone", **known)
                return message
            body += message.get("body", b"")
            if not message.get("more_body") and "method" not in known:
                asked = json.loads(body) if body else {}
                params = asked.get("params") or {}
                known["method"] = asked.get("method") or scope["method"]
                known["tool"] = params.get("name")
                self.file(event="request", arguments=params.get("arguments"), **known)
            return message

        async def sent(message: Any) -> None:
            nonlocal ended
            ended = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        await self.app(scope, received, sent)
