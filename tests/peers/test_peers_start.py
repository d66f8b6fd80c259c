"""The peer servers themselves, asked by hand: what other tests build on is there and speaks the protocol."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
INITIALIZE = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def request(number: int, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def answer_to(number: int, response: httpx.Response) -> dict[str, Any]:
    """The message with this id out of a JSON body or an event stream."""
    assert response.status_code == 200, (response.status_code, response.text)
    if response.headers["content-type"].startswith("application/json"):
        bodies = [response.text]
    else:
        data = [line[5:].strip() for line in response.text.splitlines() if line.startswith("data:")]
        bodies = [body for body in data if body]
    found = [message for message in map(json.loads, bodies) if message.get("id") == number]
    assert len(found) == 1, bodies
    return found[0]


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    accept = {"accept": "application/json, text/event-stream"}
    with httpx.Client(headers=accept, timeout=20, trust_env=False) as client:
        yield client


def open_session(http: httpx.Client, url: str) -> dict[str, Any]:
    opened = http.post(url, json=request(1, "initialize", INITIALIZE))
    result: dict[str, Any] = answer_to(1, opened)["result"]
    http.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
    http.headers["mcp-protocol-version"] = result["protocolVersion"]
    assert http.post(url, json=INITIALIZED).status_code == 202
    return result


def test_http_peer_initializes_lists_and_calls(http: httpx.Client, peer_url: str) -> None:
    result = open_session(http, peer_url)
    assert result["protocolVersion"] == LEGACY
    assert result["capabilities"]["tools"]["listChanged"] is True
    tools = answer_to(2, http.post(peer_url, json=request(2, "tools/list")))["result"]["tools"]
    text = "message" if "get-sum" in {tool["name"] for tool in tools} else "text"
    call = {"name": "echo", "arguments": {text: "over the wire"}}
    called = answer_to(3, http.post(peer_url, json=request(3, "tools/call", call)))["result"]
    assert "over the wire" in called["content"][0]["text"]
    assert http.delete(peer_url).status_code in {200, 204}


def test_http_peer_listens_on_loopback_alone(peer_url: str) -> None:
    port = httpx.URL(peer_url).port
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        fields = [row.split() for row in Path(table).read_text().splitlines()[1:]]
        listening += [row[1] for row in fields if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]
    assert [address.split(":")[0] for address in listening] == ["0100007F"]


def test_modern_http_peer_discovers_and_calls(http: httpx.Client, mcp2_url: str) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    def post(number: int, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        sent = {"mcp-protocol-version": MODERN, "mcp-method": method, **headers}
        body = request(number, method, {**params, "_meta": meta})
        result: dict[str, Any] = answer_to(number, http.post(mcp2_url, json=body, headers=sent))["result"]
        return result

    assert MODERN in post(1, "server/discover", {})["supportedVersions"]
    assert "echo" in {tool["name"] for tool in post(2, "tools/list", {})["tools"]}
    call = {"name": "add", "arguments": {"a": 20, "b": 22}}
    assert post(3, "tools/call", call, **{"mcp-name": "add"})["content"][0]["text"] == "42"


@pytest.mark.parametrize("name", ["mcp2", "mcp1"])
def test_every_tool_of_the_python_peers(http: httpx.Client, start_http_peer: Any, name: str) -> None:
    url = start_http_peer(name).url
    open_session(http, url)

    def call(number: int, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}}
        response = http.post(url, json=request(number, "tools/call", params), headers={"x-who": "alice"})
        return answer_to(number, response)["result"], response.text

    def text(number: int, tool: str, **arguments: Any) -> str:
        found: str = call(number, tool, **arguments)[0]["content"][0]["text"]
        return found

    assert text(10, "sleep", seconds=0) == "slept 0.0"
    failed, _ = call(11, "fail", message="on purpose")
    assert failed["isError"] is True
    assert "on purpose" in failed["content"][0]["text"]
    assert call(12, "count", steps=3)[1].count("notifications/progress") == 3
    assert [text(13, "append", text="once"), text(14, "append", text="once")] == ["1", "2"]
    assert call(15, "kept")[0]["structuredContent"] == {"result": ["once", "once"]}
    assert text(16, "header", name="x-who") == "alice"
    assert text(17, "set_extra", present=True) == "present"
    tools = answer_to(18, http.post(url, json=request(18, "tools/list")))["result"]["tools"]
    assert "extra" in {tool["name"] for tool in tools}
    assert text(19, "extra") == "extra"
    assert text(20, "set_extra", present=False) == "absent"


@pytest.mark.parametrize("name", ["mcp2", "mcp1"])
def test_changed_list_is_announced_on_the_event_stream(
    http: httpx.Client, start_http_peer: Any, name: str
) -> None:
    url = start_http_peer(name).url
    open_session(http, url)
    change = {"name": "set_extra", "arguments": {"present": True}}
    with http.stream("GET", url) as events:
        assert events.status_code == 200
        assert "present" in http.post(url, json=request(2, "tools/call", change)).text
        data = (json.loads(line[5:]) for line in events.iter_lines() if line.startswith("data: {"))
        assert next(data)["method"] == "notifications/tools/list_changed"


class Lines:
    """Messages over the pipes of a subprocess, every wait bounded."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.buffer = b""

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, number: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        until = time.monotonic() + 20
        while True:
            line, newline, rest = self.buffer.partition(b"\n")
            if newline:
                self.buffer = rest
                message = json.loads(line)
                if message.get("id") == number:
                    return dict(message)
                continue
            left = until - time.monotonic()
            assert select.select([self.process.stdout], [], [], max(left, 0))[0], "no answer in time"
            chunk = os.read(self.process.stdout.fileno(), 65536)
            assert chunk, "the server closed its stdout"
            self.buffer += chunk


def test_stdio_peer_initializes_lists_calls_and_ends(peer_command: Any) -> None:
    with subprocess.Popen(
        peer_command.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            wire = Lines(process)
            wire.send(request(1, "initialize", INITIALIZE))
            assert wire.answer(1)["result"]["protocolVersion"] == LEGACY
            wire.send(INITIALIZED)
            wire.send(request(2, "tools/list"))
            tools = wire.answer(2)["result"]["tools"]
            text = "message" if "get-sum" in {tool["name"] for tool in tools} else "text"
            wire.send(request(3, "tools/call", {"name": "echo", "arguments": {text: "over the pipe"}}))
            assert "over the pipe" in wire.answer(3)["result"]["content"][0]["text"]
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("name", ["mcp2", "mcp1", "everything"])
def test_http_peer_ends_when_its_stdin_closes(start_http_peer: Any, name: str) -> None:
    peer = start_http_peer(name)
    peer.process.stdin.close()
    assert peer.process.wait(10) == 0
