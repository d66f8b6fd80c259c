"""Servers that answer at once, so that a client's own cost is what a measurement shows.

    python responders.py http [CERTIFICATE]   # prints its port, serves until stdin ends
    python responders.py websocket            # likewise
    python responders.py stdio                # answers on stdout until stdin ends

They run in a process of their own, know four methods of both protocol eras, and check nothing. What they
cost is the same for every client that is compared. `answer` is used without a process by `memory.py`. Over
HTTP an answer comes as the path says: `/mcp` as JSON, `/sse` as a stream of one event; at `/stream` there
is a notification stream as well, on which nothing comes. A tool that is called with a `size` answers so
many characters.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import threading
from functools import cache
from typing import Any

import msgspec

STATELESS = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
TEXT = "a short line of text, as tools take it"
TOOLS = [
    {
        "name": "echo",
        "description": "Answers the text.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    }
]

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_INFO = {"name": "responder", "version": "1"}
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_NO_STREAM = b"HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 0\r\n\r\n"
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_GONE = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_CACHED = {"ttlMs": 3_600_000, "cacheScope": "public"}


@cache
def large(size: int) -> str:
    """A text of so many characters, as reports are: lines of words, with what JSON has to escape."""
    line = 'the quick brown fox; "jumps" over\tthe lazy dog: 0123456789\n'
    return (line * (size // len(line) + 1))[:size]


def answer(text: bytes, tools: list[dict[str, Any]] = TOOLS) -> bytes | None:
    """Answer one message; `None` for a notification, which takes none."""
    message = _decode(text)
    rpc_id = message.get("id")
    if rpc_id is None:
        return None
    method = message["method"]
    params = message.get("params") or {}
    stateless = VERSION_KEY in (params.get("_meta") or {})
    if method == "tools/call":
        arguments = params["arguments"]
        text = arguments["text"] if "text" in arguments else large(arguments["size"])
        result = {"content": [{"type": "text", "text": text}], "isError": False}
    elif method == "tools/list":
        result = {"tools": tools, **(_CACHED if stateless else {})}
    elif method == "server/discover":
        result = {"supportedVersions": [STATELESS], "capabilities": {"tools": {}}, **_CACHED}
    elif method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": _INFO,
        }
    elif method == "ping":
        result = {}
    else:
        error = {"code": -32601, "message": "Method not found"}
        return _encode({"jsonrpc": "2.0", "id": rpc_id, "error": error})
    if stateless:
        result["resultType"] = "complete"
        result["_meta"] = {"io.modelcontextprotocol/serverInfo": _INFO}
    return _encode({"jsonrpc": "2.0", "id": rpc_id, "result": result})


class HttpResponder(asyncio.Protocol):
    """As little of HTTP/1.1 as these clients speak: a head, a content length, a body."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        text = self._rest + data if self._rest else data
        while (end := text.find(b"\r\n\r\n")) >= 0:
            head = text[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            start = end + 4
            if len(text) < start + size:
                break
            body, text = text[start : start + size], text[start + size :]
            self._respond(head, body)
        self._rest = text

    def _respond(self, head: bytes, body: bytes) -> None:
        if not head.startswith(b"post"):
            listens = head.startswith(b"get /stream")
            self._transport.write(_STREAM if listens else _GONE if head.startswith(b"delete") else _NO_STREAM)
            return
        answered = answer(body)
        if answered is None:
            self._transport.write(_ACCEPTED)
            return
        self._transport.write((_event if head.startswith(b"post /sse") else _whole)(answered))


def _whole(answered: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(answered),
        answered,
    )


def _event(answered: bytes) -> bytes:
    """A stream of one event, as servers send it: chunked, and ended with it."""
    event = b"event: message\r\ndata: %b\r\n\r\n" % answered
    return b"%b%x\r\n%b\r\n0\r\n\r\n" % (_STREAM, len(event), event)


async def _serve(protocol: type[asyncio.Protocol], certificate: str | None) -> None:
    loop = asyncio.get_running_loop()
    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    server = await loop.create_server(protocol, "127.0.0.1", 0, backlog=512, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)  # whoever measured has gone, perhaps in the middle of a request: nothing to finish

    threading.Thread(target=watch, daemon=True).start()
    await server.serve_forever()


def _serve_stdio() -> None:
    rest = b""
    while data := os.read(0, 65536):
        *lines, rest = (rest + data).split(b"\n")
        answers = [answered for line in lines if (answered := answer(line)) is not None]
        if answers:
            left = memoryview(b"\n".join(answers) + b"\n")
            while left:
                left = left[os.write(1, left) :]


def main() -> None:
    if sys.argv[1:] == ["stdio"]:
        _serve_stdio()
    elif sys.argv[1:2] in (["http"], ["websocket"]):
        from responder_websocket import WebSocketResponder

        protocol = HttpResponder if sys.argv[1] == "http" else WebSocketResponder
        certificate = sys.argv[2] if len(sys.argv) > 2 else None
        try:
            import uvloop
        except ImportError:
            asyncio.run(_serve(protocol, certificate))
        else:
            uvloop.run(_serve(protocol, certificate))
    else:
        sys.exit("usage: responders.py http [CERTIFICATE] | websocket | stdio")


if __name__ == "__main__":
    main()
