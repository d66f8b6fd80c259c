"""What each client does through the service, as two tenants at once; it reports, and judges nothing.

    CLIENT.py '{"url": ..., "tenants": {"acme": TOKEN, "globex": TOKEN}, "mode": ...}'

The last line on stdout is the report: tenant to what it saw. The clients run in virtual environments of their
own, so this is made of the standard library and of anyio, which each of them has.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

WITHIN = 20.0  # seconds for all that a client does
SERVERS = ("one", "two")
EXTRA = "extra"


class Client(Protocol):
    """One client of one tenant."""

    changed: Changes

    async def tools(self) -> list[str]:
        """List the tools."""

    async def call(self, name: str, arguments: dict[str, Any], on_progress: Any = None) -> str:
        """Call a tool; gives its text."""

    async def cancelled(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool and take the call back at its first progress; says how the call ended."""


class Changes:
    """The changes of the list that a client has heard of."""

    def __init__(self) -> None:
        self.count = 0
        self._told = anyio.Event()

    def tell(self) -> None:
        """A change was heard of."""
        self.count += 1
        told, self._told = self._told, anyio.Event()
        told.set()

    async def after(self, count: int) -> None:
        """Wait until more than so many were heard of."""
        while self.count <= count:
            await self._told.wait()


class Meeting:
    """Where the tenants wait for each other."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._here = 0
        self._all = anyio.Event()

    async def meet(self) -> None:
        """Wait until everybody is here."""
        self._here += 1
        if self._here < self._number:
            await self._all.wait()
            return
        self._here = 0
        everybody, self._all = self._all, anyio.Event()
        everybody.set()


async def play(client: Client, who: str, *, leads: bool, meeting: Meeting) -> dict[str, Any]:
    """Do all of it; gives what was seen."""
    seen: dict[str, Any] = {
        "tools": await client.tools(),
        "echo": {},
        "progress": {},
        "cancelled": {},
        "after": {},
    }
    for server in SERVERS:
        seen["echo"][server] = await client.call(f"{server}__echo", {"text": who})
    await meeting.meet()
    for server in SERVERS:
        steps: list[list[float | None]] = []

        async def on_progress(progress: float, total: float | None, steps: list[Any] = steps) -> None:
            steps.append([progress, total])

        text = await client.call(f"{server}__steps", {"number": 3}, on_progress)
        seen["progress"][server] = {"text": text, "steps": steps}
    for server in SERVERS:
        seen["cancelled"][server] = await client.cancelled(f"{server}__linger", {"who": who})
        seen["after"][server] = await client.call(f"{server}__echo", {"text": f"{who} again"})
    seen["lists"] = []
    for present in (True, False):
        heard = client.changed.count
        await meeting.meet()
        if leads:
            await client.call("set_extra", {"present": present})
        while True:
            await client.changed.after(heard)
            heard = client.changed.count
            names = await client.tools()
            if (EXTRA in names) is present:
                break
        seen["lists"].append(names)
        await meeting.meet()
    seen["heard"] = client.changed.count
    return seen


def main(connect: Callable[[str, str, str | None], AbstractAsyncContextManager[Client]]) -> None:
    """Play all tenants at once, and print the report.

    Args:
        connect: Makes the client of a tenant: the address, the token, the mode.
    """
    given = json.loads(sys.argv[1])
    report: dict[str, Any] = {}

    async def one(who: str, token: str, *, leads: bool, meeting: Meeting) -> None:
        async with connect(given["url"], token, given.get("mode")) as client:
            report[who] = await play(client, who, leads=leads, meeting=meeting)

    async def all_of_them() -> None:
        meeting = Meeting(len(given["tenants"]))
        with anyio.fail_after(WITHIN):
            async with anyio.create_task_group() as tasks:
                for number, (who, token) in enumerate(given["tenants"].items()):
                    tasks.start_soon(
                        lambda who=who, token=token, n=number: one(who, token, leads=n == 0, meeting=meeting)
                    )

    anyio.run(all_of_them)
    print(json.dumps(report), flush=True)
