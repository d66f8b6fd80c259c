"""A thousand idle clients, each with a session and an open stream, take little; measured in a process."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
import trio

from afpool import Identity
from afpool.serve import TokenFile
from afpool.testing import FakeServer, FakeTool
from tests.serve.test_under_load import Process, free_port

CLIENTS = 1000
MOST = 60 * 1024 * 1024


def resident(pid):
    with open(f"/proc/{pid}/statm") as statm:  # noqa: PTH123 -- it is no file
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Client:
    def __init__(self, port, token):
        self.port = port
        self.token = token
        self.session = ""

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def head(self, method, length):
        lines = [
            f"{method} /mcp HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {self.token}",
            "Content-Type: application/json", "Accept: application/json, text/event-stream",
            f"Content-Length: {length}", *([f"MCP-Session-Id: {self.session}"] if self.session else []),
        ]  # fmt: skip
        return "\r\n".join([*lines, "", ""]).encode()

    def post(self, sock, method, params=None, key=1):
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}} | (
            {} if key is None else {"id": key}
        )
        body = json.dumps(message).encode()
        sock.sendall(self.head("POST", len(body)) + body)
        heard = b""
        while b"\r\n\r\n" not in heard:
            heard += sock.recv(65536)
        head, _, body = heard.partition(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        while len(body) < length:
            body += sock.recv(65536)
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"mcp-session-id:"):
                self.session = line.split(b":", 1)[1].strip().decode()
        return head


@pytest.mark.timeout(120)
async def test_a_thousand_idle_sessions_with_their_streams_stay_below_their_bound(tmp_path):
    tokens = TokenFile(tmp_path / "tokens")
    texts = [
        tokens.new(Identity(f"t{number % 5}", f"u{number}"), f"u{number}").token.reveal()
        for number in range(20)
    ]
    async with FakeServer.http(era="both", tools=[FakeTool("one")]) as server:
        port = free_port()
        path = tmp_path / "afpool.toml"
        path.write_text(
            f"""
[servers.desk]
url = "{server.url}"
[serve]
bind = "127.0.0.1:{port}"
[serve.identity.tokens]
file = "{tmp_path}/tokens"
"""
        )
        process = await Process(path).start()

        def settle(number, streams):
            client = Client(port, texts[number % len(texts)])
            with client.connect() as sock:
                info = {"name": "t", "version": "1"}
                params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
                client.post(sock, "initialize", params)
                assert client.session
                client.post(sock, "notifications/initialized", key=None)
                client.post(sock, "tools/list")
            stream = client.connect()
            stream.sendall(client.head("GET", 0))
            assert b" 200" in stream.recv(1000)
            streams.append(stream)

        streams = []
        for number in range(len(texts)):
            await trio.to_thread.run_sync(settle, number, streams)
        before = resident(process.process.pid)
        for number in range(CLIENTS):
            await trio.to_thread.run_sync(settle, number, streams)
        taken = resident(process.process.pid) - before
        for stream in streams:
            stream.close()
        assert await process.end(signal.SIGTERM) == 0
        assert taken <= MOST, f"{taken / 2**20:.1f} MiB"
        # clients that come and go are no news
        assert "closed" not in process.log.read_text()
