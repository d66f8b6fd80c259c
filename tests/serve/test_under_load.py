"""Fifty callers at once while the service is reloaded, restarted and killed; judged by what the server saw.

By the server's own log: no call ran twice, none ran on another's connection, and none is lost without its
caller knowing what is known about it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from afpool import Identity
from afpool.serve import TokenFile
from afpool.testing import FakeServer, FakeTool
from tests.serve.serve_kit import envelope

CALLERS = 50
ROOT = Path(__file__).parent.parent.parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """The service in a process of its own."""

    def __init__(self, path):
        self.path = path
        self.log = path.with_suffix(".log")
        self.process = None

    async def start(self):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        script = Path(__file__).with_name("run_service.py")
        # a file, not a pipe: nobody reads it while the service runs
        with self.log.open("ab") as log:
            self.process = await trio.lowlevel.open_process(
                [sys.executable, str(script), str(self.path)], stdout=subprocess.PIPE, stderr=log, env=env
            )
        with trio.fail_after(60):
            said = b""
            while b"\n" not in said:
                piece = await self.process.stdout.receive_some()
                assert piece, self.log.read_text()
                said += piece
        return self

    async def end(self, number):
        self.process.send_signal(number)
        with trio.fail_after(30):
            code = await self.process.wait()
        await self.process.stdout.aclose()
        return code


class Lost(Exception):
    """The connection ended without an answer."""


class Caller:
    """A client that keeps its connection, and notes what it is told about each of its calls."""

    def __init__(self, who, token, port, verdicts):
        self.who = who
        self.token = token
        self.port = port
        self.verdicts = verdicts
        self.stream = None
        self.number = 0

    async def run(self, stop):
        while not stop.is_set():
            self.number += 1
            name = f"{self.who}-{self.number}"
            self.verdicts[name] = "sent"
            self.verdicts[name] = await self.call(name)
            if self.verdicts[name] != "ran":
                await trio.sleep(0.05)
        if self.stream is not None:
            await self.stream.aclose()

    async def call(self, name):
        if self.stream is None:
            try:
                self.stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            except OSError:
                return "not-sent"
        params = {"name": "work", "arguments": {"id": name, "who": self.who}, "_meta": envelope()}
        body = json.dumps({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"
            f"Mcp-Name: work\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            with trio.fail_after(30):
                await self.stream.send_all(head.encode() + body)
                status, answer = await self.answer()
        except (OSError, trio.BrokenResourceError, Lost):
            await self.stream.aclose()
            self.stream = None
            return "in-doubt"
        assert answer["id"] in (name, None), answer
        if "error" in answer:
            assert status in (429, 503), answer
            return "not-sent"
        result = answer["result"]
        if result.get("isError"):
            return result["_meta"]["afpool/delivery"]
        assert result["content"][0]["text"] == name
        return "ran"

    async def answer(self):
        heard = b""
        while b"\r\n\r\n" not in heard:
            heard += await self.some()
        head, _, body = heard.partition(b"\r\n\r\n")
        fields = {
            line.split(b":")[0].lower(): line.split(b":", 1)[1].strip()
            for line in head.split(b"\r\n")[1:]
            if b":" in line
        }
        length = int(fields[b"content-length"])
        while len(body) < length:
            body += await self.some()
        if fields.get(b"connection") == b"close":
            await self.stream.aclose()
            self.stream = None
        return int(head.split(b" ")[1]), json.loads(body)

    async def some(self):
        piece = await self.stream.receive_some(65536)
        if not piece:
            raise Lost
        return piece


async def work(arguments, arrival):
    await trio.sleep(0.02)
    return arguments["id"]


@pytest.mark.timeout(180)
async def test_reloaded_restarted_and_killed_under_load(tmp_path):
    tokens = TokenFile(tmp_path / "tokens")
    people = [f"user{number}" for number in range(CALLERS)]
    texts = {
        who: tokens.new(Identity(f"tenant{number % 5}", who), who).token.reveal()
        for number, who in enumerate(people)
    }
    port = free_port()
    async with (
        FakeServer.http(era="both", tools=[FakeTool("work", work)]) as server,
        FakeServer.http(era="both", tools=[FakeTool("unused")]) as other,
    ):
        path = tmp_path / "afpool.toml"
        text = f"""
[servers.desk]
url = "{server.url}"
headers = {{ x-principal = "${{identity.principal}}" }}
[serve]
bind = "127.0.0.1:{port}"
drain = 10
[serve.identity.tokens]
file = "{tmp_path}/tokens"
"""
        path.write_text(text)
        process = await Process(path).start()
        verdicts, stop = {}, trio.Event()
        codes = []
        async with trio.open_nursery() as nursery:
            for who in people:
                nursery.start_soon(Caller(who, texts[who], port, verdicts).run, stop)

            async def ran(more):
                goal = Counter(verdicts.values())["ran"] + more
                with trio.fail_after(60):
                    while Counter(verdicts.values())["ran"] < goal:  # noqa: ASYNC110 -- callers go on meanwhile
                        await trio.sleep(0.05)

            await ran(200)
            # one server comes, changes, and goes; the one that is called stays as it is
            for more in (
                f'[servers.more]\nurl = "{other.url}"\n',
                f'[servers.more]\nurl = "{other.url}/"\n',
                "",
            ):
                before = process.log.read_text().count("reloaded: ")
                path.write_text(more + text)
                process.process.send_signal(signal.SIGHUP)
                await ran(100)
                with trio.fail_after(30):  # two at once would be one reload
                    while process.log.read_text().count("reloaded: ") == before:  # noqa: ASYNC110 -- its doing
                        await trio.sleep(0.05)
            codes.append(await process.end(signal.SIGTERM))
            cut_off = [name for name, verdict in verdicts.items() if verdict == "in-doubt"]
            process = await Process(path).start()
            await ran(200)
            codes.append(await process.end(signal.SIGKILL))
            process = await Process(path).start()
            await ran(200)
            stop.set()
        codes.append(await process.end(signal.SIGTERM))
        assert codes == [0, -signal.SIGKILL, 0]
        assert "sent" not in verdicts.values()
        runs = Counter(run.arguments["id"] for run in server.executed)
        assert max(runs.values()) == 1
        for name, verdict in verdicts.items():
            if verdict == "ran":
                assert runs[name] == 1
            elif verdict in ("not-sent", "refused"):
                assert runs[name] == 0, (name, verdict)
        # an orderly end answers what has begun; who just wrote on a connection that ends has lost nothing
        assert not any(runs[name] for name in cut_off)
        connections = {}
        for arrival in server.arrivals("tools/call"):
            who = arrival.params["arguments"]["who"]
            assert arrival.headers["x-principal"] == who
            assert connections.setdefault(arrival.connection, who) == who
        assert server.violations == []
        assert process.log.read_text().count("reloaded: ") >= 3
