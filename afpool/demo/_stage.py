"""The stage of the demo: two servers, the app's plan, credentials that can be held back, a printer."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx
import trio

from afpool import (
    CredentialRequest,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    Plan,
    Pool,
    Server,
    StdioTransport,
    bearer,
    open_pool,
)
from afpool.console import ConsoleSettings, open_console
from afpool.record import Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WIDTH: Final = 80
LIST_SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}}}


class Vault:
    """Vends a bearer token per principal; a test of patience when `held` is set."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.held: trio.Event | None = None

    async def get(self, request: CredentialRequest) -> Issued:
        """Vend; waits while credentials are held back."""
        if self.held is not None:
            self.asked.set()
            await self.held.wait()
        return Issued(bearer(f"token-of-{request.identity.principal}"))

    def hold(self) -> trio.Event:
        """Hold credentials back until the returned event is set."""
        self.asked = trio.Event()
        self.held = trio.Event()
        return self.held


class Stage:
    """What the scenes play on."""

    def __init__(
        self, pool: Pool, vault: Vault, url: str, web: httpx.AsyncClient, control: str, log: str
    ) -> None:
        self.pool = pool
        self.vault = vault
        self.url = url
        self._web = web
        self._control = control
        self._log = log
        self._wrong: list[str] = []
        self.console = False  # whether somebody may look inside

    @classmethod
    @asynccontextmanager
    async def open(cls, name: str) -> AsyncIterator[Stage]:
        """Start the HTTP server in a process of its own and open the pool, with a console; end all."""
        command = [
            sys.executable,
            "-m",
            "afpool.testing",
            "http",
            "--port",
            "0",
            "--script",
            json.dumps(HTTP_SCRIPT),
        ]
        async with trio.open_nursery() as nursery:
            process = await nursery.start(_process, command)
            where = json.loads(await _first_line(process))
            vault = Vault()
            async with (
                httpx.AsyncClient(trust_env=False, timeout=5) as web,
                open_pool(
                    [
                        Server(name="crm", plan=_http_plan(where["url"])),
                        Server(name="desk", plan=_stdio_plan(), keyed_on=("tenant", "principal")),
                    ],
                    credentials=vault,
                ) as pool,
                open_console(
                    pool, record=Record(pool), settings=ConsoleSettings(name=name, required=False)
                ) as console,
            ):
                stage = cls(pool, vault, where["url"], web, where["control"], where["log"])
                stage.console = console is not None
                yield stage
            assert process.stdin is not None
            await process.stdin.aclose()
            with trio.move_on_after(2):
                await process.wait()
            nursery.cancel_scope.cancel()

    async def order(self, do: str, **what: Any) -> None:
        """Steer the HTTP server."""
        answer = await self._web.post(self._control, json={"do": do, **what})
        answer.raise_for_status()

    async def calls_arrived(self) -> int:
        """How many tool calls the HTTP server has seen, by its own log."""
        answer = await self._web.get(self._log)
        bodies = [json.loads(line).get("arrival", {}).get("body") for line in answer.text.splitlines()]
        return sum(1 for body in bodies if body and json.loads(body).get("method") == "tools/call")

    # ------------------------------------------------------------------ printing

    def title(self, text: str) -> None:
        """Begin a scene."""
        sys.stdout.write(f"\n{text}\n{'-' * len(text)}\n")

    def say(self, text: str) -> None:
        """Print a line, cut to the width."""
        line = "  " + text
        sys.stdout.write((line if len(line) <= WIDTH else line[: WIDTH - 3] + "...") + "\n")
        sys.stdout.flush()

    def offer(self, what: str, command: str) -> None:
        """Print a command to be copied, which is never cut."""
        sys.stdout.write(f"{what}\n\n    {command}\n")
        sys.stdout.flush()

    def check(self, happened: bool, what: str) -> None:
        """Note what did not happen as announced."""
        if not happened:
            self._wrong.append(what)
            self.say(f"NOT AS ANNOUNCED: {what}")

    def verdict(self) -> int:
        """Say whether all happened as announced."""
        if self._wrong:
            sys.stdout.write(f"\n{len(self._wrong)} thing(s) did not happen as announced\n")
            return 1
        sys.stdout.write("\neverything happened as announced\n")
        return 0


HTTP_SCRIPT: Final = {
    "era": "handshake",
    "tools": [
        {"name": "search", "builtin": "echo", "description": "Find a customer."},
        {"name": "report", "builtin": "sleep", "description": "A slow report.", "cancellable": False},
        {"name": "whoami", "builtin": "whoami", "description": "Whose session is this?"},
    ],
    "advertise": {"list_changed": True},
}
STDIO_SCRIPT: Final = {
    "era": "both",
    "tools": [{"name": "note", "builtin": "counter", "description": "Take a note."}],
}


def _http_plan(url: str) -> Plan:
    return Plan(transport=HttpTransport(url=url), credential=CredentialRequirement("crm", mode="user"))


def _stdio_plan() -> Plan:
    return Plan(
        transport=StdioTransport.of(
            sys.executable, "-m", "afpool.testing", "stdio", "--script", json.dumps(STDIO_SCRIPT)
        )
    )


async def _process(
    command: list[str], *, task_status: trio.TaskStatus[trio.Process] = trio.TASK_STATUS_IGNORED
) -> None:
    await trio.run_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        check=False,
        task_status=task_status,
    )


async def _first_line(process: trio.Process) -> bytes:
    assert process.stdout is not None
    buffer = b""
    while b"\n" not in buffer:
        chunk = await process.stdout.receive_some(4096)
        if not chunk:
            raise RuntimeError("the demo's server did not start")
        buffer += chunk
    return buffer.split(b"\n", 1)[0]


ALICE: Final = Identity(tenant="acme", principal="alice", conversation_id="a-1")
ALICE_LATER: Final = Identity(tenant="acme", principal="alice", conversation_id="a-2")
BOB: Final = Identity(tenant="acme", principal="bob", conversation_id="b-1")
CAROL: Final = Identity(tenant="globex", principal="carol", conversation_id="c-1")
DAVE: Final = Identity(tenant="globex", principal="dave", conversation_id="d-1")
ERIN: Final = Identity(tenant="globex", principal="erin", conversation_id="e-1")
