"""As little of WebSocket (RFC 6455) as the clients that are compared speak: see `responders.py`.

One text message per frame, both ways, answered at once; a ping is answered, a close as well. Every frame of a
client is masked, none of ours is.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

from responders import answer

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


class WebSocketResponder(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._rest = b""
        self._open = False

    def data_received(self, data: bytes) -> None:
        self._rest += data
        if not self._open:
            head, end, rest = self._rest.partition(b"\r\n\r\n")
            if not end:
                return
            self._rest, self._open = rest, True
            self._transport.write(_accepted(head))
        answers = []
        while (frame := self._frame()) is not None:
            kind, payload = frame
            if kind == _TEXT:
                answered = answer(payload)
                if answered is not None:
                    answers.append(_framed(_TEXT, answered))
            elif kind == _PING:
                answers.append(_framed(_PONG, payload))
            elif kind == _CLOSE:
                self._transport.write(b"".join(answers) + _framed(_CLOSE, payload))
                self._transport.close()
                return
        if answers:
            self._transport.write(b"".join(answers))

    def _frame(self) -> tuple[int, bytes] | None:
        """Take the next whole frame: its kind and what it carries."""
        data = self._rest
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        for mark, width in ((126, 2), (127, 8)):
            if size == mark:
                if len(data) < 2 + width:
                    return None
                size, at = int.from_bytes(data[2 : 2 + width]), 2 + width
                break
        end = at + 4 + size
        if len(data) < end:
            return None
        mask, payload = data[at : at + 4], data[at + 4 : end]
        self._rest = data[end:]
        masks = (mask * (size // 4 + 1))[:size]
        return data[0] & 0x0F, (int.from_bytes(payload) ^ int.from_bytes(masks)).to_bytes(size)


def _accepted(head: bytes) -> bytes:
    fields = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    key = base64.b64encode(hashlib.sha1(fields[b"sec-websocket-key"] + _MAGIC).digest())
    offered = fields.get(b"sec-websocket-protocol", b"")
    chosen = b"sec-websocket-protocol: mcp\r\n" if b"mcp" in offered else b""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: %b\r\n%b\r\n" % (key, chosen)
    )


def _framed(kind: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes([0x80 | kind, size])
    elif size < 1 << 16:
        head = bytes([0x80 | kind, 126]) + size.to_bytes(2)
    else:
        head = bytes([0x80 | kind, 127]) + size.to_bytes(8)
    return head + payload
