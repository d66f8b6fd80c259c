"""Child processes of a simulated world: programs that are fake servers, started without a process.

A child is two pipes of the simulated network (`Link.kernel`): its stdin and stdout are one link, its stderr a
buffer. It can be told to exit or be killed at any time; what it ignores is told by its server's script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from afpool.testing._memory import FakeChild
from afpool.transports import SpawnFailed

if TYPE_CHECKING:
    from afpool.testing import FakeServer
    from afpool.transports import StdioConfig
    from tests.simulation.network import Network, SimWire
    from tests.simulation.pipe import Link


@attrs.define(eq=False)
class Program:
    """What a command starts.

    Attributes:
        server: Plays every child.
        fails: Why the next starts fail, or "".
        seconds: How long a start takes, at most.
    """

    server: FakeServer
    fails: str = ""
    seconds: float = 0.0


@attrs.frozen(eq=False)
class Started:
    """A child that was started.

    Attributes:
        child: The process, as it were.
        link: Its stdin and stdout.
    """

    child: FakeChild
    link: Link


class Children:
    """Programs and the children that were started of them.

    Attributes:
        programs: By the name of the command.
        started: Every child, oldest first.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.programs: dict[str, Program] = {}
        self.started: list[Started] = []

    def program(self, name: str, server: FakeServer) -> Program:
        """Let a command be found; `server` is made by `FakeServer.stdio`."""
        entry = self.programs[name] = Program(server)
        return entry

    async def spawn(self, config: StdioConfig) -> FakeChild:
        """The seam: start a child."""
        entry = self.programs.get(config.command[0])
        seconds = entry.seconds if entry is not None else 0.0
        await trio.sleep(self._network.random.random() * seconds)
        if entry is None:
            raise SpawnFailed(f"command {config.name!r} was not found")
        if entry.fails or not entry.server.accepting:
            raise SpawnFailed(
                f"command {config.name!r} could not be started: {entry.fails or 'it is not there'}"
            )
        link, wire, inside = self._network.make_link(config.command[0], kernel=True)
        child = FakeChild(entry.server, config, wire, inside, 1000 + len(self.started))
        self.started.append(Started(child, link))
        link.marks = dict(config.env or {})
        self._network.log(link, f"opens as child {child.pid}")
        entry.server.start_soon(self._run, child, link)
        return child

    async def _run(self, child: FakeChild, link: Link) -> None:
        await child.run()
        self._network.log(link, f"child {child.pid} has exited: {child.exit_code}")

    def running(self, name: str | None = None) -> list[Started]:
        """The children that have not exited, of one command or of all, oldest first."""
        return [
            each
            for each in self.started
            if each.child.exit_code is None and name in {None, each.child.config.command[0]}
        ]

    def unreaped(self) -> list[Started]:
        """The children that nobody has reaped, or whose pipes are open: none may be left of a closed pool."""
        return [
            each for each in self.started if each.child.returncode is None or each.link.client_closed is None
        ]

    def attach(self, server: FakeServer, name: str, environment: dict[str, str] | None = None) -> SimWire:
        """A wire to a server in the same process: a child's pipes without a child (`MemoryTransport`).

        Raises:
            ConnectionRefusedError: The server does not run or takes nobody.
        """
        link, wire, inside = self._network.make_link(name, kernel=True)
        if not server.accepting:
            self._network.forget(link)
            raise ConnectionRefusedError("the server takes nobody")

        async def serve() -> None:
            try:
                await server.serve_child(inside, inside, environment=environment)
            finally:
                inside.close()

        server.start_soon(serve)
        link.marks = environment or {}
        self._network.log(link, "opens in memory")
        return wire
