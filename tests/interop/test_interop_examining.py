"""What is said of a server is what it did: examined here are fakes in processes of their own."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import OpenFailed
from tests.interop import examining
from tests.interop.catalogue import ROOT, Entry, Row
from tests.interop.examining import VERSIONS, Facts, coming_to, examine
from tests.interop.running import NotStartedError

if TYPE_CHECKING:
    from pathlib import Path

LISTENING = """
import sys, trio
sys.path.insert(0, sys.argv[1])
from afpool.testing import FakeServer, Result
async def main():
    open("starts", "a").write("x")
    async with FakeServer.{kind}(era="{era}", port=int(sys.argv[2])) as server:
        {also}
        print("ready", server.url, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)  # until whoever started it is gone
trio.run(main)
"""
STDIO = [sys.executable, str(ROOT / "afpool/testing/__main__.py"), "stdio", "--era"]
HANDSHAKE = VERSIONS[:-1]


def row(transport: str, command: list[str], **more: Any) -> Row:
    call = {"tool": "echo", "arguments": {"text": "hello"}, "answer": "hello"}
    entry = Entry(
        name="fake", package="afpool", installed="nowhere", over={transport: command}, **call | more
    )
    return Row(entry, transport)


def listening(kind: str, era: str, also: str = "pass") -> list[str]:
    program = LISTENING.format(kind=kind, era=era, also=also)
    return [sys.executable, "-c", program, str(ROOT), "{port}"]


def starts(scratch: Path) -> int:
    (file,) = scratch.glob("*/starts")
    return len(file.read_text().split()[0])


async def examined(which: Row, scratch: Path) -> Facts:
    with trio.fail_after(60):
        return await examine(which, scratch)


@pytest.mark.parametrize(
    ("transport", "session"), [("stdio", "the process"), ("http", "HTTP session"), ("ws", "the connection")]
)
async def test_a_handshake_server(transport: str, session: str, tmp_path: Path) -> None:
    command = [*STDIO, "handshake"] if transport == "stdio" else listening(transport, "handshake")
    facts = await examined(row(transport, command), tmp_path)
    assert (facts.negotiated, facts.era, facts.session) == ("2025-11-25", "handshake", session)
    assert (facts.called, facts.restart) == ("ok", "ok")
    assert facts.changes == "listening"
    assert int(facts.tools) > 0
    assert {facts.pinned[version] for version in HANDSHAKE} == {"ok"}
    assert facts.pinned["2026-07-28"] not in {"ok", "no answer"}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_stateless_server(transport: str, tmp_path: Path) -> None:
    command = [*STDIO, "stateless"] if transport == "stdio" else listening(transport, "stateless")
    facts = await examined(row(transport, command), tmp_path)
    assert (facts.negotiated, facts.era, facts.session) == ("2026-07-28", "stateless", "none")
    assert (facts.called, facts.restart) == ("ok", "ok")
    assert facts.pinned["2026-07-28"] == "ok"
    assert {facts.pinned[version] for version in HANDSHAKE} == {"open-failed"}


@pytest.mark.parametrize(("fragile", "times"), [(False, 2), (True, 2 + len(VERSIONS))])
async def test_a_listening_server_is_really_started_again(fragile: bool, times: int, tmp_path: Path) -> None:
    facts = await examined(row("http", listening("http", "both"), fragile=fragile), tmp_path)
    assert facts.restart == "ok"
    assert starts(tmp_path) == times


async def test_a_child_is_really_killed(tmp_path: Path) -> None:
    command = ["sh", "-c", 'printf x >>starts; exec "$@"', "sh", *STDIO, "handshake"]
    facts = await examined(row("stdio", command), tmp_path)
    assert facts.restart == "ok"
    assert starts(tmp_path) == 2 + 1 + len(VERSIONS)


async def test_a_version_that_is_answered_instead_of_the_pinned_one_is_named(tmp_path: Path) -> None:
    server = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "old"}}
    old = f"server.on('initialize', Result({server}, after_execution=True))"
    facts = await examined(row("ws", listening("ws", "handshake", old)), tmp_path)
    assert (facts.negotiated, facts.pinned["2024-11-05"]) == ("2024-11-05", "ok")
    assert {facts.pinned[version] for version in HANDSHAKE[1:]} == {"speaks 2024-11-05"}


async def test_a_wrong_answer_is_none_and_ends_the_examination(tmp_path: Path) -> None:
    facts = await examined(row("stdio", [*STDIO, "both"], answer="goodbye"), tmp_path)
    assert (facts.called, facts.restart) == ("wrong answer", "none")
    assert set(facts.pinned.values()) == {"wrong answer"}


async def test_a_server_without_a_tool_to_call_is_listed(tmp_path: Path) -> None:
    facts = await examined(row("stdio", [*STDIO, "both"], tool=None, answer=""), tmp_path)
    assert (facts.called, facts.restart) == ("listed", "ok")


async def test_a_command_that_speaks_no_mcp_is_a_fact(tmp_path: Path) -> None:
    facts = await examined(row("stdio", [sys.executable, "-c", "print('no MCP')"]), tmp_path)
    assert (facts.called, facts.tools, facts.restart) == ("open-failed", "none", "none")


@pytest.mark.parametrize("which", ["server", "setup"])
async def test_what_cannot_be_started_is_no_fact(which: str, tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('broken')"]
    command = broken if which == "server" else listening("http", "both")
    setup = broken if which == "setup" else []
    refused = pytest.RaisesExc(NotStartedError, match="broken")
    with trio.fail_after(30), pytest.RaisesGroup(refused, allow_unwrapped=True):
        await examine(row("http", command, setup=setup), tmp_path)


@pytest.mark.parametrize("common", ["session_id", "pid"])
def test_clients_with_something_in_common_are_not_apart(common: str) -> None:
    def client(number: int, value: int) -> Any:
        one = {"session_id": None, "pid": None, common: value}
        return SimpleNamespace(
            id=number,
            negotiated=SimpleNamespace(session_id=one["session_id"]),
            process=SimpleNamespace(pid=one["pid"]),
        )

    assert examining._apart([client(1, 7), client(2, 8)])
    assert not examining._apart([client(1, 7), client(2, 7)])
    assert not examining._apart([client(1, 7)])


async def test_a_failure_is_its_code_and_silence_has_an_end(autojump_clock: trio.testing.MockClock) -> None:
    async def fails() -> str:
        raise OpenFailed("no")

    async def hangs() -> str:
        await trio.sleep_forever()
        return "never"

    assert await coming_to(fails) == "open-failed"
    assert await coming_to(hangs) == "no answer"
