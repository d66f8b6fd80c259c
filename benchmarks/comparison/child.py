"""The harness's side of an adapter: a process of the library's own environment, asked by lines of JSON.

What a child does not answer in time is an answer too (`late`): a library that hangs costs its own row and
its process, and the run goes on with a fresh one.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
READY_WITHIN = 60.0  # seconds until a child has imported its library
WITHIN = 15.0  # seconds for one thing that is asked
# nothing of what is compared may talk to anybody but the harness's server
ALONE = {
    "FASTMCP_CHECK_FOR_UPDATES": "off",
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "LANGSMITH_TRACING": "false",
    "NO_PROXY": "*",
}


@attrs.frozen
class Said:
    """How something that was asked ended.

    Attributes:
        ended: `ok`, `error`, `cancelled`, `lacking`, or `late`: no answer in time.
        seconds: Of the child's clock; of the harness's where it was late.
        fields: What else was answered.
    """

    ended: str
    seconds: float
    fields: dict[str, Any] = attrs.field(factory=dict)

    @property
    def ok(self) -> bool:
        return self.ended == "ok"

    @property
    def learned(self) -> str:
        return str(self.fields.get("learned", ""))

    @property
    def text(self) -> str:
        return str(self.fields.get("text", ""))


class ChildGoneError(Exception):
    """The process of an adapter ended, or did not begin."""


class Asked:
    """One thing that is under way."""

    def __init__(self, child: Child, number: int) -> None:
        self.child = child
        self.number = number
        self.began = trio.current_time()

    async def said(self, within: float = WITHIN) -> Said:
        """How it ended."""
        with trio.move_on_after(within - (trio.current_time() - self.began)):
            while self.number not in self.child.answers:
                await self.child.lot.park()
        if self.number not in self.child.answers:
            return Said("late", trio.current_time() - self.began)
        fields = dict(self.child.answers.pop(self.number))
        fields.pop("id")
        return Said(fields.pop("ended"), fields.pop("seconds"), fields)

    async def cancel(self) -> None:
        """Let its caller go away."""
        await self.child.send({"do": "cancel", "of": self.number})


class Child:
    """A running adapter."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.numbers = itertools.count(1)
        self.answers: dict[int, dict[str, Any]] = {}
        self.ready = False
        self.gone = False
        self.lot = trio.lowlevel.ParkingLot()
        self.sending = trio.Lock()

    async def send(self, told: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            async with self.sending:
                await self.process.stdin.send_all(json.dumps(told).encode() + b"\n")
        except trio.BrokenResourceError:
            raise ChildGoneError("the process has ended") from None

    async def begin(self, do: str, **given: Any) -> Asked:
        """Begin something."""
        number = next(self.numbers)
        asked = Asked(self, number)
        await self.send({"id": number, "do": do, **given})
        return asked

    async def ask(self, do: str, within: float = WITHIN, **given: Any) -> Said:
        """Ask for something and wait for it."""
        return await (await self.begin(do, **given)).said(within)

    async def read(self) -> None:
        """Take what it says."""
        assert self.process.stdout is not None
        buffer = b""
        async for chunk in self.process.stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                self.ready = self.ready or "ready" in answer
                if "id" in answer:
                    self.answers[answer["id"]] = answer
            self.lot.unpark_all()
        self.gone = True
        self.lot.unpark_all()


def environment() -> dict[str, str]:
    """Of a child: no proxies, no telemetry."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, **ALONE, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


@asynccontextmanager
async def running(python: str, adapter: Path, log: Path) -> AsyncIterator[Child]:
    """Run an adapter for the time of the block; afterwards it is killed, with all its children.

    Raises:
        ChildGoneError: It did not get as far as being asked; the message has the end of its log.
    """
    with log.open("ab") as errors:
        process = await trio.lowlevel.open_process(
            [python, str(adapter)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            start_new_session=True,
        )
    child = Child(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child.read)
            with trio.move_on_after(READY_WITHIN):
                while not (child.ready or child.gone):
                    await child.lot.park()
            if child.ready:
                yield child
            nursery.cancel_scope.cancel()
        if not child.ready:
            said = await trio.Path(log).read_text(encoding="utf-8", errors="replace")
            raise ChildGoneError(f"it did not start: {' '.join(said.strip().splitlines()[-1:])}")
    finally:
        with trio.CancelScope(shield=True):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                process.kill()
            await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await stream.aclose()
