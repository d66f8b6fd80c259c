"""Real MCP servers as subprocesses: on loopback, awaited by their ready line, killed with their group.

`mcp2` and `mcp1` are the official Python SDK, lines 2 and 1; `everything` is the reference server from npm.
`make test` installs them. Where one is missing its tests are skipped, unless AFPOOL_REQUIRE_PEERS=1 (which
`make test` sets): then they fail.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import attrs
import pytest

from afpool.client import _open

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
SERVERS = HERE / "servers"
INSTALLED = HERE.parent.parent / ".cache" / "peers"
READY_WITHIN = 30.0

PEERS = ("mcp2", "mcp1", "everything")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.peer)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for a child's first word than usual: silence is taken for the era before.

    A child of the official SDK imports for seconds where others want the processor, too, and what is held
    here is the era that it speaks.
    """
    monkeypatch.setattr(_open, "PROBE_STREAM", 30.0)


@attrs.frozen
class PeerCommand:
    """How to start one peer: the arguments, and what its environment needs beyond PATH."""

    argv: tuple[str, ...]
    env: dict[str, str] = attrs.field(factory=dict)


def command_of(name: str, transport: str) -> PeerCommand:
    """Return the command of a peer for `http` or `ws` (a port that the kernel picks) or `stdio`.

    `everything` also knows `sse`, the transport of 2024-11-05; its stream is at `/sse`.
    """
    if name == "everything":
        script = INSTALLED / "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
        needed = script
        if transport == "stdio":
            command = PeerCommand(("node", str(script), "stdio"))
        else:
            preload = str(SERVERS / "loopback_only.cjs")
            kind = "sse" if transport == "sse" else "streamableHttp"
            command = PeerCommand(("node", "--require", preload, str(script), kind), {"PORT": "0"})
    else:
        needed = INSTALLED / name / ".packages"
        python = str(INSTALLED / name / "bin" / "python")
        tail = ("stdio",) if transport == "stdio" else (transport, "0")
        command = PeerCommand((python, str(SERVERS / f"{name}_server.py"), *tail))
    if not needed.exists():
        message = f"the peer server {name} is not installed: run `make test` or `make peers`"
        if os.environ.get("AFPOOL_REQUIRE_PEERS") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return command


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


class HttpPeer:
    """A running HTTP or WebSocket peer; `url` is its MCP endpoint."""

    def __init__(self, name: str, command: PeerCommand) -> None:
        self.name = name
        self.url = ""
        self.last_lines: deque[str] = deque(maxlen=40)
        self._settled = threading.Event()
        self.process = subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **command.env},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        if not self._settled.wait(READY_WITHIN) or not self.url:
            self.close()
            pytest.fail(f"{name} did not get ready: {list(self.last_lines)}", pytrace=False)

    def _read(self, stdout: IO[bytes]) -> None:
        # Reads until the end, since a server whose pipe is full stops answering.
        for raw in stdout:
            line = raw.decode(errors="replace").rstrip()
            self.last_lines.append(line)
            if line.startswith(("ready http", "ready ws")):
                self.url = line.split()[1]
                self._settled.set()
        self._settled.set()

    def kill(self) -> None:
        """Kill the server with its process group, at once; `close` still has to be called."""
        kill_group(self.process)

    def close(self) -> None:
        """Kill the server and close what was open to it."""
        self.kill()
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class StartHttpPeer(Protocol):
    """Start one more HTTP or WebSocket peer, which lives until the test ends."""

    def __call__(self, name: str, transport: str = "http") -> HttpPeer: ...


@pytest.fixture
def start_http_peer() -> Iterator[StartHttpPeer]:
    """Start HTTP peers of the test's own, for tests that change a server or kill it."""
    with contextlib.ExitStack() as stack:

        def start(name: str, transport: str = "http") -> HttpPeer:
            peer = HttpPeer(name, command_of(name, transport))
            stack.callback(peer.close)
            return peer

        yield start


def _shared(name: str, transport: str = "http") -> Iterator[str]:
    peer = HttpPeer(name, command_of(name, transport))
    try:
        yield peer.url
    finally:
        peer.close()


@pytest.fixture(scope="session")
def mcp2_url() -> Iterator[str]:
    """The endpoint of a running `mcp2`, shared by the tests of one worker."""
    yield from _shared("mcp2")


@pytest.fixture(scope="session")
def mcp1_url() -> Iterator[str]:
    """The endpoint of a running `mcp1`, shared by the tests of one worker."""
    yield from _shared("mcp1")


@pytest.fixture(scope="session")
def everything_url() -> Iterator[str]:
    """The endpoint of a running `everything`, shared by the tests of one worker."""
    yield from _shared("everything")


@pytest.fixture
def everything_sse_url() -> Iterator[str]:
    """The stream of a running `everything` over HTTP+SSE."""
    peer = HttpPeer("everything", command_of("everything", "sse"))
    try:
        yield peer.url.removesuffix("/mcp") + "/sse"
    finally:
        peer.close()


@pytest.fixture(scope="session")
def mcp2_ws_url() -> Iterator[str]:
    """The endpoint of a running `mcp2` over WebSocket, shared by the tests of one worker."""
    yield from _shared("mcp2", "ws")


@pytest.fixture(scope="session")
def mcp1_ws_url() -> Iterator[str]:
    """The endpoint of a running `mcp1` over WebSocket, shared by the tests of one worker."""
    yield from _shared("mcp1", "ws")


@pytest.fixture(params=PEERS)
def peer_url(request: pytest.FixtureRequest) -> str:
    """The endpoint of each HTTP peer in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(scope="session")
def mcp2_command() -> PeerCommand:
    """The command that starts `mcp2` on stdio; whoever starts it also ends it."""
    return command_of("mcp2", "stdio")


@pytest.fixture(scope="session")
def mcp1_command() -> PeerCommand:
    """The command that starts `mcp1` on stdio."""
    return command_of("mcp1", "stdio")


@pytest.fixture(scope="session")
def everything_command() -> PeerCommand:
    """The command that starts `everything` on stdio."""
    return command_of("everything", "stdio")


@pytest.fixture(params=PEERS)
def peer_command(request: pytest.FixtureRequest) -> PeerCommand:
    """The stdio command of each peer in turn."""
    return command_of(request.param, "stdio")
