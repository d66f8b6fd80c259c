"""What one row of the page says: a server opened through a pool, listed, called, killed and started again.

The pool is used as an app uses it. Only what an app cannot see (session id, state of the notification stream,
a child's process id) is read from the open clients.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from afpool import (
    AfpoolError,
    HttpTransport,
    Identity,
    Plan,
    Server,
    StdioTransport,
    WebSocketTransport,
    open_pool,
)
from afpool.protocol import HANDSHAKE_VERSIONS, STATELESS_VERSIONS
from tests.interop.catalogue import filled, places
from tests.interop.running import Listening, folder_of, listening

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from afpool import Pool, Toolset
    from afpool.client import Client
    from tests.interop.catalogue import Row

ALICE: Final = Identity(tenant="acme", principal="alice")
BOB: Final = Identity(tenant="acme", principal="bob")
VERSIONS: Final = (*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS)
STEP_WITHIN: Final = 30.0
SEEN_WITHIN: Final = 5.0

OK: Final = "ok"
LISTED: Final = "listed"
NOTHING: Final = "none"


@attrs.frozen(kw_only=True)
class Facts:
    """One row.

    Attributes:
        package: The package and its version.
        negotiated: The protocol version that was agreed on when none was pinned.
        era: `handshake` or `stateless`.
        tools: How many are listed.
        called: `ok` when two identities, each on a client of its own, got the known answer; `listed` where
            nothing is called; otherwise the code of the failure.
        session: What a session is to this server: an HTTP session, the connection, the process, `none`.
        changes: Whether changes of the list are heard of: the state of the notification stream.
        restart: What the first call after the server was killed and started again came to; where that was no
            answer, what it came to after listing again.
        pinned: With each protocol version pinned: `ok`, the version that the server answered with instead, or
            the code of the failure.
    """

    package: str
    negotiated: str = NOTHING
    era: str = NOTHING
    tools: str = NOTHING
    called: str = NOTHING
    session: str = NOTHING
    changes: str = NOTHING
    restart: str = NOTHING
    pinned: dict[str, str] = attrs.field(factory=dict)


async def examine(row: Row, scratch: Path) -> Facts:
    """Try one row; what the server does wrong is in the facts.

    Args:
        row: The server and the transport.
        scratch: Where its folder is made.

    Raises:
        NotStartedError: The server cannot be started at all.
    """
    with folder_of(row, scratch) as folder:
        if row.transport == "stdio":
            return await _Examination(row, folder, None).run()
        async with listening(row, folder) as server:
            return await _Examination(row, folder, server).run()


class _Examination:
    def __init__(self, row: Row, folder: Path, server: Listening | None) -> None:
        self._row = row
        self._server = server
        self._places = places(folder, 0)
        self._folder = folder

    def _transport(self) -> HttpTransport | StdioTransport | WebSocketTransport:
        entry = self._row.entry
        if self._server is None:
            command = filled(entry.over["stdio"], self._places)
            env = filled(entry.env, self._places)
            return StdioTransport.of(*command, env=env, cwd=str(self._folder))
        if self._row.transport == "ws":
            return WebSocketTransport(url=self._server.url)
        return HttpTransport(url=self._server.url)

    async def run(self) -> Facts:
        facts: dict[str, Any] = {"package": f"{self._row.entry.package} {self._row.entry.version()}"}
        async with open_pool([self._offer(None)]) as pool:
            facts["called"] = await coming_to(lambda: self._both(pool, facts))
            if facts["called"] in {OK, LISTED}:
                facts["restart"] = await self._again(pool)
        facts["pinned"] = {version: await self._pinned(version) for version in VERSIONS}
        return Facts(**facts)

    def _offer(self, version: str | None) -> Server:
        return Server(name="server", plan=Plan(transport=self._transport(), protocol_version=version))

    async def _both(self, pool: Pool, facts: dict[str, Any]) -> str:
        """Two identities list and call; each has to have a client of its own."""
        for identity in (ALICE, BOB):
            tools = await pool.tools(identity)
            came_to = await self._use(tools, identity)
            if came_to not in {OK, LISTED}:
                return came_to
            if identity is ALICE:
                facts["tools"] = str(len(tools))
                facts.update(_negotiated(clients(pool)[0]))
        return came_to if _apart(clients(pool)) else "shared"

    async def _use(self, tools: Toolset, identity: Identity) -> str:
        entry = self._row.entry
        if entry.tool is None:
            return LISTED if len(tools) else "no tools"
        result = await tools[entry.tool].call(filled(entry.arguments, self._places), identity=identity)
        return OK if entry.answer in result.text and not result.is_error else "wrong answer"

    async def _again(self, pool: Pool) -> str:
        """Kill the server under an open client, start it again, and go on with what was bound before."""
        tools = await pool.tools(ALICE)
        await self._killed(pool)

        async def listed_anew() -> str:
            return await self._use(await pool.tools(ALICE), ALICE)

        entry = self._row.entry
        first = await coming_to(listed_anew if entry.tool is None else lambda: self._use(tools, ALICE))
        if first in {OK, LISTED}:
            return OK
        then = await coming_to(listed_anew)
        return f"{first}, then {OK if then in {OK, LISTED} else then}"

    async def _killed(self, pool: Pool) -> None:
        used = clients(pool)
        if self._server is not None:
            await self._server.restart()
        else:
            for client in used:
                assert client.process is not None
                os.kill(client.process.pid, signal.SIGKILL)
        if any(client.shared_stream for client in used):
            # The end of a stream is seen at once, but not in this step.
            with trio.move_on_after(SEEN_WITHIN):
                while any(client.lost is None for client in used):  # noqa: ASYNC110 -- the pool's own to hear
                    await trio.sleep(0.01)

    async def _pinned(self, version: str) -> str:
        if self._server is not None and self._row.entry.fragile:
            await self._server.restart()

        async def use() -> str:
            async with open_pool([self._offer(version)]) as pool:
                came_to = await self._use(await pool.tools(ALICE), ALICE)
                spoken = _negotiated(clients(pool)[0])["negotiated"]
            if came_to in {OK, LISTED}:
                return OK if spoken == version else f"speaks {spoken}"
            return came_to

        return await coming_to(use)


async def coming_to(step: Callable[[], Awaitable[str]]) -> str:
    """What a step returned, or the code of its failure; at most half a minute."""
    with trio.move_on_after(STEP_WITHIN):
        try:
            return await step()
        except AfpoolError as error:
            return error.code
    return "no answer"


def clients(pool: Pool) -> list[Client]:
    """The open clients, oldest first."""
    return list(pool.openings.clients.values())


def _negotiated(client: Client) -> dict[str, str]:
    negotiated = client.negotiated
    assert negotiated is not None
    session = NOTHING
    if negotiated.session_id is not None:
        session = "HTTP session"
    elif client.shared_stream and not client.stateless:
        session = "the connection" if client.process is None else "the process"
    return {
        "negotiated": negotiated.version,
        "era": negotiated.era.value,
        "session": session,
        "changes": client.stream_state,
    }


def _apart(open_clients: list[Client]) -> bool:
    """Whether no two clients have a session or a process in common."""
    for name in ("id", "session", "pid"):
        values = []
        for client in open_clients:
            negotiated, process = client.negotiated, client.process
            session = None if negotiated is None else negotiated.session_id
            pid = None if process is None else process.pid
            values.append({"id": client.id, "session": session, "pid": pid}[name])
        known = [value for value in values if value is not None]
        if len(set(known)) < len(known):
            return False
    return len(open_clients) == 2
