"""The HTTP server as a process of its own: its first line, its control endpoint, its end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import afpool.testing

MAIN = str(Path(afpool.testing.__file__).with_name("__main__.py"))


class Remote:
    """Speaks to a server in another process; stands in for a `FakeServer` where the raw client wants one."""

    path = "/mcp"

    def __init__(self, process: trio.Process, where: dict[str, str]) -> None:
        self.process = process
        self.where = where
        self.port = int(where["url"].split(":")[2].split("/")[0])


@pytest.fixture
async def remote():
    process = await trio.lowlevel.open_process(
        [sys.executable, MAIN, "http", "--era", "both", "--script", '{"tools": ["echo", "sleep"]}'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        with trio.fail_after(60):
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some(4096)
        yield Remote(process, json.loads(line))
    finally:
        process.kill()
        await process.wait()
        await trio.aclose_forcefully(process.stdin)
        await trio.aclose_forcefully(process.stdout)


async def test_it_is_steered_and_ends_with_its_stdin(remote, connect):
    async def order(do: str, **rest: Any) -> Any:
        controller.server.path = "/control"
        seen = await controller.ask("POST", json.dumps({"do": do, **rest}).encode())
        return seen.json | {"status": seen.status}

    with trio.fail_after(60):
        client, controller, stream = [await connect(remote) for _ in range(3)]
        controller.server = Remote(remote.process, remote.where)
        await client.initialize()
        stream.session = client.session
        await stream.open_stream()
        while (await order("stats"))["streams"] != 1:
            pass
        assert (await order("set_tools", tools=["counter"], notify=True))["ok"]
        assert (await stream.next_message())["method"] == "notifications/tools/list_changed"
        assert (await order("notify", method="notifications/message"))["streams"] == 1
        assert (await order("rule", method="tools/call", times=1, action={"do": "Status", "code": 503}))["ok"]
        assert [(await client.call("counter")).status for _ in range(2)] == [503, 200]
        await order("rule", method="*", action={"do": "Status", "code": 418})
        await order("clear_rules")
        await order("advertise", page_size=1)
        await order("set", keep_alive_max_requests=1000)
        assert (await order("stats"))["executions"] == {"counter": 1}
        await order("forget_sessions", spelling="404-text")
        assert (await client.call("counter")).status == 404
        await order("restart")
        with pytest.raises(ConnectionError):
            await client.call("counter")
        stats = await order("stats")
        assert (stats["connections"], stats["sessions"], stats["streams"]) == (1, 0, 0)
        for wrong in (("nope", {}), ("set", {"port": 1}), ("advertise", {"x": 1}), ("notify", {})):
            refused = await order(wrong[0], **wrong[1])
            assert (refused["status"], refused["ok"]) == (400, False), wrong
        assert (await controller.ask("POST", b"[]")).status == 400
        assert (await controller.ask("GET")).status == 405
        assert (await controller.ask("POST", b"{}", origin="http://example.com")).status == 403
        controller.server.path = "/log"
        assert (await controller.ask("GET", origin="http://example.com")).status == 403
        lines = (await controller.ask("GET")).body.decode().splitlines(keepends=True)
        log = afpool.testing._ledger.parse_log(lines)
        assert [arrival.name for arrival in log.arrivals][:3] == [
            "initialize",
            "notifications/initialized",
            "GET",
        ]
        assert [run.tool for run in log.executed] == ["counter"]
        await order("clear_log")
        assert (await order("stats"))["arrivals"] == 0
        assert (await order("end_streams"))["ended"] == 0
        assert (await order("close_idle_connections"))["closed"] == 0
        await remote.process.stdin.aclose()
        assert await remote.process.wait() == 0


async def test_without_a_stdin_it_ends_at_once():
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "afpool.testing", "http"],
            capture_stdout=True,
            stdin=subprocess.DEVNULL,
            cwd=Path(MAIN).parents[2],
        )
    assert set(json.loads(done.stdout)) == {"url", "control", "log"}


async def test_usage():
    with trio.fail_after(60):
        done = await trio.run_process([sys.executable, MAIN, "nope"], capture_stderr=True, check=False)
    assert done.returncode == 2
