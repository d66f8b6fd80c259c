"""The stdio child, as a raw parent sees it. Real processes, so the clock is real; every wait is bounded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool.testing import FakeServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIST_CHANGED = "notifications/tools/list_changed"


class Child:
    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._buffer = b""
        self._ids = 0

    async def write(self, message: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(json.dumps(message).encode() + b"\n")

    async def line(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._buffer:
            data = await self.process.stdout.receive_some(65536)
            if not data:
                raise EOFError(self._buffer)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    async def read(self) -> Any:
        return json.loads(await self.line())

    async def send(self, method: str, params: Any = None, rpc_id: Any = None) -> Any:
        message = {"jsonrpc": "2.0", "method": method}
        if not method.startswith("notifications/"):
            self._ids += 1
            message["id"] = self._ids if rpc_id is None else rpc_id
        if params is not None:
            message["params"] = params
        await self.write(message)
        return message.get("id")

    async def ask(self, method: str, params: Any = None) -> Any:
        rpc_id = await self.send(method, params)
        answer = await self.read()
        assert answer["id"] == rpc_id
        return answer

    async def initialize(self) -> Any:
        answer = await self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        await self.send("notifications/initialized")
        return answer

    async def modern(self, method: str, params: Any = None) -> Any:
        return await self.ask(method, {**(params or {}), "_meta": META})

    async def call(self, tool: str, arguments: Any = None) -> Any:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments or {}})


@asynccontextmanager
async def child(
    script: Mapping[str, Any] | None = None, log: Path | None = None, **options: Any
) -> AsyncIterator[Child]:
    """A running child in an empty environment and another directory, killed at the end."""
    command = FakeServer.stdio_command(script, log=log, **options)
    with trio.fail_after(60):
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", env={}
        )
        try:
            yield Child(process)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await trio.aclose_forcefully(process.stdin)
                await trio.aclose_forcefully(process.stdout)


async def test_a_handshake_round_trip_and_its_log(tmp_path):
    log = tmp_path / "child.log"
    assert FakeServer.read_log(log) == []
    async with child(log=log) as peer:
        opened = await peer.initialize()
        assert opened["result"]["protocolVersion"] == "2025-11-25"
        listed = await peer.ask("tools/list")
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["echo"]
        said = await peer.call("echo", {"a": "ä"})
        assert json.loads(said["result"]["content"][0]["text"]) == {"a": "ä"}
        assert (await peer.ask("server/discover"))["error"]["code"] == -32602
        await peer.process.stdin.aclose()
        assert await peer.process.wait() == 0
    assert [arrival.name for arrival in FakeServer.read_log(log)] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
        "server/discover",
    ]
    full = FakeServer.read_child_log(log)
    assert [(run.tool, run.arguments, run.arrival.id) for run in full.executed] == [("echo", {"a": "ä"}, 3)]
    assert full.processes == {"server": peer.process.pid}
    assert full.cancelled == []
    with log.open("a") as more:
        more.write('{"arrival": {"unfin')
    assert len(FakeServer.read_log(log)) == 5


async def test_both_eras_and_the_lock_of_the_first_exchange():
    async with child({"advertise": {"ttl_ms": 5}}, era="both") as peer:
        found = await peer.modern("server/discover")
        assert (found["result"]["resultType"], found["result"]["ttlMs"]) == ("complete", 5)
        refused = await peer.ask("initialize", {"protocolVersion": "2025-11-25"})
        assert refused["error"]["code"] == -32022
        assert (await peer.modern("tools/call", {"name": "echo"}))["result"]["resultType"] == "complete"
        assert (await peer.ask("tools/call", {"name": "echo"}))["error"]["code"] == -32602
    async with child(era="both") as peer:
        await peer.initialize()
        assert "resultType" not in (await peer.modern("tools/call", {"name": "echo"}))["result"]


async def test_a_slow_call_holds_up_nobody_and_can_be_cancelled(tmp_path):
    log = tmp_path / "log"
    async with child({"tools": ["sleep", "echo"], "answer_cancelled": False}, log) as peer:
        await peer.initialize()
        slow = await peer.send("tools/call", {"name": "sleep", "arguments": {"seconds": 3600}}, "slow")
        assert (await peer.call("echo"))["result"]
        await peer.send("notifications/cancelled", {"requestId": slow})
        assert (await peer.call("echo"))["result"]
    assert FakeServer.read_child_log(log).cancelled == ["slow"]


async def test_the_list_can_be_changed_by_a_call():
    async with child({"tools": ["echo", "change_list"]}) as peer:
        await peer.initialize()
        changed = await peer.send("tools/call", {"name": "change_list", "arguments": {"tools": ["counter"]}})
        assert (await peer.read())["method"] == LIST_CHANGED
        assert (await peer.read())["id"] == changed
        names = [tool["name"] for tool in (await peer.ask("tools/list"))["result"]["tools"]]
        assert names == ["counter", "change_list"]


async def test_listen_over_stdio():
    async with child({"tools": ["change_list"]}, era="stateless") as peer:
        await peer.send(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": META}, "sub"
        )
        assert (await peer.read())["method"] == "notifications/subscriptions/acknowledged"
        call = {"name": "change_list", "arguments": {"tools": []}, "_meta": META}
        await peer.send("tools/call", call)
        changed = await peer.read()
        assert changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "sub"
        assert "result" in await peer.read()
        await peer.send("notifications/cancelled", {"requestId": "sub"})
        await peer.send("tools/call", call)
        assert "result" in await peer.read()


@pytest.mark.parametrize(
    ("action", "ran"),
    [
        ({"do": "Drop", "after_execution": True, "exit_code": 7}, True),
        ({"do": "Drop", "exit_code": 7}, False),
        ({"do": "Truncate", "at": 9}, True),
    ],
)
async def test_actions_that_end_the_child(tmp_path, action, ran):
    log = tmp_path / "log"
    rule = {"method": "tools/call", "action": action}
    async with child({"rules": [rule], "exit_code": 7}, log) as peer:
        await peer.initialize()
        await peer.send("tools/call", {"name": "echo"})
        with pytest.raises(EOFError) as caught:
            await peer.line()
        assert await peer.process.wait() == 7
    assert caught.value.args[0] == (b'{"jsonrpc' if action["do"] == "Truncate" else b"")
    assert len(FakeServer.read_child_log(log).executed) == ran


async def test_actions_that_answer():
    rules = [
        {"method": "tools/call", "tool": name, "action": action}
        for name, action in {
            "raw": {"do": "RawBytes", "data": "raw!\n"},
            "body": {"do": "Body", "data": "body!"},
            "result": {"do": "Result", "result": {"x": 1}, "id": "wrong"},
            "error": {"do": "JsonRpcError", "code": -1, "message": "m"},
            "sse": {"do": "Delay", "seconds": 0.001},
            "hang": {"do": "Hang"},
        }.items()
    ]
    async with child({"rules": rules, "tools": ["echo", {"name": "sse", "result": "fixed"}]}) as peer:
        await peer.initialize()
        await peer.send("tools/call", {"name": "hang"})
        await peer.send("tools/call", {"name": "raw"})
        assert await peer.line() == b"raw!"
        await peer.send("tools/call", {"name": "body"})
        assert await peer.line() == b"body!"
        await peer.send("tools/call", {"name": "result"})
        assert await peer.read() == {"jsonrpc": "2.0", "id": "wrong", "result": {"x": 1}}
        assert (await peer.call("error"))["error"] == {"code": -1, "message": "m"}
        assert (await peer.call("sse"))["result"]["content"][0]["text"] == "fixed"
        await peer.write([])
        assert (await peer.read())["error"]["code"] == -32700


async def test_garbage_a_big_line_and_noise_on_stderr():
    script = {"garbage": ["not json", "{"], "big_line": 100_000, "stderr_flood": 1000}
    command = FakeServer.stdio_command(script)
    with trio.fail_after(60):
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        peer = Child(process)
        assert [await peer.line(), await peer.line()] == [b"not json", b"{"]
        await peer.initialize()
        assert len(await peer.line()) > 100_000
        await process.stdin.aclose()
        await process.wait()
        noise = b""
        while data := await process.stderr.receive_some(65536):
            noise += data
        assert len(noise) == 1000
        await process.stdout.aclose()
        await process.stderr.aclose()


async def test_probes_that_kill_or_find_no_answer():
    async with child({"exit_on_probe": True}) as peer:
        await peer.send("server/discover", {"_meta": META})
        assert await peer.process.wait() == 1
    async with child({"exit_on_probe": "next", "silent_probe": True}) as peer:
        await peer.send("server/discover", {"_meta": META})
        assert peer.process.poll() is None
        await peer.send("initialize")
        assert await peer.process.wait() == 1
    async with child({"silent_probe": True}) as peer:
        await peer.send("server/discover", {"_meta": META})
        await peer.initialize()


async def test_exit_after_so_many_answers():
    async with child({"exit_after": 2, "exit_code": 5}) as peer:
        await peer.initialize()
        assert (await peer.call("echo"))["result"]
        assert await peer.process.wait() == 5


async def test_a_child_that_ignores_eof_and_sigterm_and_has_a_child(tmp_path):
    log = tmp_path / "log"
    script = {"ignore_eof": True, "ignore_sigterm": True, "fork_child": True}
    async with child(script, log) as peer:
        await peer.initialize()
        processes = FakeServer.read_child_log(log).processes
        assert processes["server"] == peer.process.pid
        os.kill(processes["child"], 0)
        await peer.process.stdin.aclose()
        peer.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(0.3) as scope:
            await peer.process.wait()
        assert scope.cancelled_caught
        os.kill(processes["child"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ({"rules": [{"method": "*", "action": {"do": "Status", "code": 500}}]}, b"no meaning on stdio"),
        ({"tools": ["nope"]}, b"unknown tool"),
        ({"nope": 1}, b"unknown field"),
        ({"advertise": {"nope": 1}}, b"advertise"),
        ({"rules": [{"method": "*", "action": {"do": "Nope"}}]}, b"unknown action"),
    ],
)
async def test_a_script_that_cannot_be_used_is_refused(script, why):
    with trio.fail_after(60):
        done = await trio.run_process(FakeServer.stdio_command(script), capture_stderr=True, check=False)
    assert done.returncode == 2
    assert why in done.stderr


async def test_a_script_from_a_file(tmp_path):
    file = tmp_path / "script.json"
    file.write_text('{"tools": ["counter"]}')
    async with child({"file": str(file)}) as peer:
        await peer.initialize()
        assert (await peer.call("counter"))["result"]["content"][0]["text"] == "1"
