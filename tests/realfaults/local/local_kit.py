"""What the tests of faults on this machine share: small children, and the kernel's own word on what is left.

No claim rests on what afpool says of itself: what ran stands in the children's log, what lives in /proc.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

import afpool
from afpool import Identity, Plan, Server, StdioTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from afpool import AfpoolError, BoundTool, Pool

CHILD = Path(__file__).with_name("child.py")
ALICE = Identity(tenant="acme", principal="alice")
LIMITS: dict[str, Any] = {
    "backoff": 0.01,
    "backoff_max": 0.05,
    "cancel_grace": 0.1,
    "close_timeout": 3.0,
    "ping_timeout": 0.5,
    "settle_timeout": 1.0,
}


def person(number: int) -> Identity:
    return Identity(tenant=f"tenant-{number % 3}", principal=f"user-{number}")


def child_plan(log: Path, *habits: str) -> Plan:
    command = StdioTransport.of(sys.executable, "-S", "-E", str(CHILD), str(log), *habits)
    return Plan(transport=command, protocol_version="2025-11-25")


@attrs.frozen
class Noted:
    """What the children wrote down."""

    lines: tuple[str, ...]

    def _numbers(self, word: str) -> list[int]:
        return [int(line.split()[1]) for line in self.lines if line.startswith(word)]

    @property
    def started(self) -> list[int]:
        return self._numbers("started ")

    @property
    def ran(self) -> list[int]:
        return self._numbers("ran ")

    @property
    def grandchildren(self) -> list[int]:
        return self._numbers("grandchild ")


def noted(log: Path) -> Noted:
    return Noted(tuple(log.read_text(encoding="ascii").splitlines()) if log.exists() else ())


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and group of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[1]), int(fields[2])


def processes() -> dict[int, tuple[str, int, int]]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = {pid: _stat(pid) for pid in pids}
    return {pid: what for pid, what in found.items() if what is not None}


def lives(pid: int) -> bool:
    what = _stat(pid)
    return what is not None and what[0] not in "ZX"


def left_of(groups: list[int]) -> list[int]:
    """Processes that are our children, zombies too, or that run in one of these groups."""
    me = os.getpid()
    return [
        pid
        for pid, (state, parent, group) in processes().items()
        if parent == me or (group in groups and state not in "ZX")
    ]


def open_fds() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 -- the kernel tells nobody
            await trio.sleep(0.005)


def until_now(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


@contextlib.asynccontextmanager
async def children(log: Path, *habits: str, **options: Any) -> AsyncIterator[Pool]:
    """A pool over one child for each identity; afterwards nothing of it may be left."""
    before_fds = open_fds()
    before = set(left_of([]))
    async with afpool.open_pool(
        [Server(name="files", plan=child_plan(log, *habits))], **{**LIMITS, **options}
    ) as pool:
        yield pool
        assert not [call for call in pool.running.values() if call.begun]
    left = set(left_of(noted(log).started)) - before
    assert not left, {pid: _stat(pid) for pid in left}
    assert open_fds() == before_fds


async def tool_of(pool: Pool, who: Identity = ALICE) -> BoundTool:
    with trio.fail_after(30):
        return (await pool.tools(who))["do"]


async def asked(tool: BoundTool, who: Identity = ALICE, *, seconds: float = 20.0, **arguments: Any) -> Any:
    """Make a call; give its text, or the error that it ended with."""
    if arguments.get("do") == "sleep":
        arguments["seconds"] = seconds
    try:
        with trio.fail_after(seconds + 2):
            result = await tool.call(arguments, identity=who, deadline=trio.current_time() + seconds)
    except afpool.AfpoolError as error:
        return error
    return result.text


def is_error(found: Any, *allowed: tuple[str, str]) -> AfpoolError:
    """It is one of these errors, by code and delivery."""
    assert isinstance(found, afpool.AfpoolError), found
    assert (found.code, found.delivery) in allowed, repr(found)
    return found
