"""Who and what there is in the soak: fifty identities, five servers in processes of their own, credentials.

A credential says whose it is, in clear, and which of theirs: `service|tenant|principal|version|proof`. The
vault knows which is the present one of each; it gives another one when it was told that one was refused, and
by chance. What may stand in a server's log of a call follows from that and from the fields that the server is
keyed on.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from soak_server import CREDENTIAL

from afpool import (
    CredentialRequest,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    Plan,
    Server,
    StdioTransport,
    WebSocketTransport,
    bearer,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

HERE: Final = Path(__file__).parent
NETWORK: Final = ("files", "feed", "open", "wire")
KEYED_ON: Final[Mapping[str, tuple[str, ...]]] = {
    "files": ("tenant", "principal", "conversation_id"),  # JSON, sessions
    "feed": ("tenant", "principal"),  # event streams; lists are shared
    "open": (),  # 2026-07-28; one client for everybody
    "wire": ("tenant", "principal"),  # WebSocket
    "desk": ("tenant",),  # a child for each tenant
}
USERS: Final = ("files", "feed", "wire")
"""Servers whose credentials are the user's own."""

WARY: Final = 20.0
"""Seconds that anything that has to come may take before it counts as lost."""


def people() -> list[Identity]:
    """Fifty identities: ten tenants of five, of whom two are one user in two conversations."""
    return [
        Identity(tenant=f"t{tenant}", principal=f"p{min(person, 3)}", conversation_id=f"c{person}")
        for tenant in range(10)
        for person in range(5)
    ]


def projection(server: str, who: Identity) -> Identity:
    """Of an identity what a server is keyed on."""
    return Identity(**{name: getattr(who, name) for name in KEYED_ON[server]})


def spelled(who: Identity) -> str:
    """An identity as it stands in the arguments of a call."""
    return f"{who.tenant or '-'}/{who.principal or '-'}/{who.conversation_id or '-'}"


def owner(server: str, who: Identity) -> tuple[str, str, str]:
    """Whose credential a request of somebody at a server has to carry: service, tenant, principal."""
    kept = projection(server, who)
    return server, kept.tenant or "-", kept.principal or "-"


class Vault:
    """Who has which credential.

    Attributes:
        wrong: A fault for tests of the soak itself: every so many requests get somebody else's credential.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._secret = chance.randbytes(16)
        self.version: Counter[tuple[str, str, str]] = Counter()
        self.wrong = 0
        self.vended = 0

    def spell(self, whose: tuple[str, str, str], version: int | None = None) -> str:
        """A credential of theirs, the present one."""
        text = "|".join([*whose, str(self.version[whose] if version is None else version)])
        proof = hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()[:12]
        return f"{text}|{proof}"

    def read(self, text: str) -> tuple[tuple[str, str, str], int] | None:
        """Whose credential that is and which; `None` for one that was never vended."""
        parts = text.removeprefix("Bearer ").split("|")
        if len(parts) != 5 or not parts[3].isdigit():
            return None
        whose, version = (parts[0], parts[1], parts[2]), int(parts[3])
        if self.spell(whose, version) != "|".join(parts) or version > self.version[whose]:
            return None
        return whose, version

    def rotate(self, whose: tuple[str, str, str]) -> None:
        self.version[whose] += 1

    async def get(self, request: CredentialRequest) -> Issued:
        await trio.sleep(self._chance.choice((0, 0, 0, 0.001, 0.02)))
        whose = (request.service, request.identity.tenant or "-", request.identity.principal or "-")
        if request.rejected:
            # the server may have refused one that was replaced meanwhile
            held = None if request.refused is None else getattr(request.refused, "token", None)
            if held is None or held == self.spell(whose):
                self.rotate(whose)
        self.vended += 1
        if self.wrong and self.vended % self.wrong == 0:
            whose = (whose[0], "t0" if whose[1] != "t0" else "t1", whose[2])
        return Issued(bearer(self.spell(whose)))


@attrs.define(eq=False)
class ServerProcess:
    """A server in a process of its own, that can be killed and comes back at the same port."""

    kind: str
    log: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    version: int = 1

    @property
    def url(self) -> str:
        return f"{'ws' if self.kind == 'wire' else 'http'}://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        """Start it; returns when it listens."""
        process = self.process = self._process()
        said = await trio.to_thread.run_sync(lambda: process.stdout and process.stdout.readline())
        if not said:
            raise RuntimeError(f"the server {self.kind} has not begun")
        if self.version > 1:
            self.tell(do="list", version=self.version)

    def _process(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(HERE / "soak_server.py"), self.kind, str(self.port), str(self.log)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, **order: Any) -> None:
        """Steer it; what is killed at this moment hears nothing."""
        if self.process is None or self.process.stdin is None:
            return
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def change_list(self) -> None:
        """Another list, announced."""
        self.version += 1
        self.tell(do="list", version=self.version)

    def kill(self) -> None:
        """End it at once; nothing is said to anybody."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.process = None


@attrs.define(eq=False)
class World:
    """All of it.

    Attributes:
        chance: Decides everything that chance decides, by the seed.
        revision: Of the configuration; other plans for everybody at `files`.
    """

    folder: Path
    chance: random.Random
    vault: Vault
    processes: dict[str, ServerProcess]
    people: list[Identity] = attrs.field(factory=people)
    revision: int = 1

    @classmethod
    def make(cls, folder: Path, chance: random.Random) -> World:
        processes = {
            kind: ServerProcess(kind, folder / f"{kind}.log", port)
            for kind, port in zip(NETWORK, free_ports(len(NETWORK)), strict=True)
        }
        return cls(folder, chance, Vault(chance), processes)

    def logs(self) -> dict[str, Path]:
        """The log of each server."""
        return {kind: self.folder / f"{kind}.log" for kind in KEYED_ON}

    def plan(self, server: str, who: Identity) -> Plan:
        """How a projection gets to a server."""
        if server == "desk":
            command = (sys.executable, "-IS", str(HERE / "soak_child.py"), str(self.folder / "desk.log"))
            credential = self.vault.spell(owner(server, who))
            return Plan(transport=StdioTransport.of(*command, env={CREDENTIAL: credential}))
        needs = CredentialRequirement(server, mode="user" if server in USERS else "machine")
        url = self.processes[server].url
        if server == "wire":
            return Plan(transport=WebSocketTransport(url=url), credential=needs)
        headers = {"x-revision": str(self.revision)} if server == "files" else {}
        return Plan(transport=HttpTransport(url=url, headers=headers), credential=needs)

    def share(self, server: str, who: Identity) -> str | None:
        """At `feed` every other tenant shares its lists with the others of these."""
        if server != "feed" or who.tenant is None:
            return None
        return "even" if int(who.tenant[1:]) % 2 == 0 else None

    def servers(self) -> list[Server]:
        """What is said of the servers."""
        return [
            Server(
                name=name,
                keyed_on=fields,
                on_list_change="refuse" if number == self.revision % 5 else "recheck",
            )
            for number, (name, fields) in enumerate(KEYED_ON.items())
        ]

    async def start(self) -> None:
        """Start every server."""
        async with trio.open_nursery() as nursery:
            for process in self.processes.values():
                nursery.start_soon(process.start)

    def stop(self) -> None:
        """End every server."""
        for process in self.processes.values():
            process.kill()

    def end_a_child(self) -> bool:
        """Kill one of our own children on stdio, if there is one."""
        servers = {process.process.pid for process in self.processes.values() if process.process is not None}
        others = [pid for pid in children() if pid not in servers and is_desk(pid)]
        if not others:
            return False
        os.kill(self.chance.choice(others), signal.SIGKILL)
        return True


def children() -> list[int]:
    """The process ids of this process's children."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue
    return sorted(found)


def is_desk(pid: int) -> bool:
    """Whether that process is a child of the server on stdio."""
    try:
        return b"soak_child.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, below those that the kernel gives to clients."""
    found: list[int] = []
    last = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = last - 1 - os.getpid() * 16 % 8192  # so that two runs at once do not meet
    while len(found) < count:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                pass
            else:
                found.append(port)
        port -= 1
    return found
