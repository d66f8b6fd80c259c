"""What every adapter stands on: a child process that speaks lines of JSON with the harness. Nothing but
Python.

Rules:

* A line from the harness is `{"id": N, "do": NAME, ...}`. Each is carried out beside the others, and
  answered by one line `{"id": N, "ended": "ok" | "error" | "cancelled", "seconds": S, ...}` whenever it is
  done.
* `cancel` cancels the task of another line, as a caller who goes away does. The time until that task has
  ended is in the answer of that other line, as `back`.
* What an exception says is collected in full, with its causes, its groups, and the HTTP answer where one is
  kept (`learned`): the harness looks in it for what the server had said.
* An adapter derives `Host` and does each thing as its library tells a host with many users to. It judges
  nothing. What its library does not have it leaves as it is here: `Lacking`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

TEXT_LIMIT = 4000  # characters of what was learned, and of an answer, that go back to the harness


class Lacking(Exception):
    """The library has no such thing."""


class Host:
    """A host with many users at one server, as one library would have it written.

    `open` is given either `url` and `token`, or `command` (a child on stdio). `timeout` is for calls that the
    library gives a timeout of its own when it connects, `idle` for sessions that nobody uses.
    """

    async def open(self, user: str, **where: Any) -> None:
        """Let a user in."""
        raise NotImplementedError

    async def list(self, user: str) -> list[dict[str, Any]]:
        """The tools as an agent of this user would be given them now."""
        raise NotImplementedError

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        """Call a tool of the list that the user was given."""
        raise NotImplementedError

    async def rotate(self, user: str, token: str) -> None:
        """Give a user a new token."""
        raise NotImplementedError

    async def close(self, user: str) -> None:
        """Let a user go."""
        raise NotImplementedError

    async def shutdown(self) -> None:
        """End everything."""
        raise NotImplementedError

    async def ambient(self, url: str) -> None:
        """Open one session whose authentication reads `who` (a context variable) for each request."""
        raise Lacking(url)

    async def ambient_call(self, token: str, args: dict[str, Any]) -> str:
        """Call on that session, with `who` set to this token."""
        raise Lacking(token, args)


def learned(error: BaseException) -> str:
    """All that an exception says, those inside and behind it too."""
    found: list[str] = []
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        found.append(f"{type(each).__name__}: {each}")
        found += map(str, getattr(each, "__notes__", []))
        for name, value in vars(each).items():
            if isinstance(value, (str, int, float)):
                found.append(f"{name}={value}")
        inner = getattr(each, "error", None)  # where the SDK keeps code, message and data
        if inner is not None:
            found.append(repr(inner))
        for name in ("code", "http_status", "retry_after", "www_authenticate", "delivery"):
            value = getattr(each, name, None)
            if value is not None:
                found.append(f"{name}={value}")
        response = getattr(each, "response", None)
        if response is not None:
            found.append(
                f"status={getattr(response, 'status_code', None)} {getattr(response, 'headers', '')}"
            )
        waiting += [*getattr(each, "exceptions", []), each.__cause__, each.__context__]  # type: ignore[list-item]
        waiting = [one for one in waiting if one is not None]
    return "\n".join(found)[:TEXT_LIMIT]


def facts() -> dict[str, Any]:
    """What this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    kinds = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            kinds.append(str(each.readlink()))
    children: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            children += (task / "children").read_text().split()
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "sockets": sum(kind.startswith("socket:") for kind in kinds),
        "descriptors": len(kinds),
        "children": len(children),
    }


def say(answer: dict[str, Any]) -> None:
    """One line to the harness."""
    os.write(SAID, json.dumps(answer).encode() + b"\n")


SAID = 1


def quiet() -> None:
    """Keep standard output for the harness, whatever a library prints, and its logs away."""
    global SAID
    SAID = os.dup(1)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)


async def carried_out(host: Any, told: dict[str, Any]) -> dict[str, Any]:
    """What a line asks for; the same for asyncio and for trio."""
    do = told["do"]
    given = {name: value for name, value in told.items() if name not in {"id", "do"}}
    if do == "facts":
        return facts()
    if do == "burst":  # many calls, one after another, timed here
        times = []
        for number in range(given["times"]):
            began = time.perf_counter()
            await host.call(given["user"], given["tool"], {"n": number}, 30.0)
            times.append(time.perf_counter() - began)
        return {"times": times}
    if do == "list":
        return {"tools": await host.list(given["user"])}
    if do in {"call", "ambient_call"}:
        text = await getattr(host, do)(**given)
        return {"length": len(text), "text": text[:TEXT_LIMIT]}
    await getattr(host, do)(**given)
    return {}


class Runner:
    """The child, on asyncio."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.host = make()
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.asked: dict[int, float] = {}

    async def one(self, told: dict[str, Any]) -> None:
        began = time.perf_counter()
        number = told["id"]
        answer: dict[str, Any] = {"id": number}
        try:
            answer.update(await carried_out(self.host, told))
            answer["ended"] = "ok"
        except Lacking:
            answer["ended"] = "lacking"
        except asyncio.CancelledError as error:
            # without having been asked to: it came out of the library
            answer["ended"] = "cancelled" if number in self.asked else "error"
            answer["learned"] = learned(error)
        except BaseException as error:  # noqa: BLE001 - whatever a library raises is what is reported
            answer["ended"] = "cancelled" if number in self.asked else "error"
            answer["learned"] = learned(error)
        answer["seconds"] = time.perf_counter() - began
        if number in self.asked:
            answer["back"] = time.perf_counter() - self.asked[number]
        say(answer)
        self.tasks.pop(number, None)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        reader = asyncio.StreamReader(limit=1 << 24)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        say({"ready": True})
        while line := await reader.readline():
            told = json.loads(line)
            if told["do"] == "cancel":
                task = self.tasks.get(told["of"])
                if task is not None:
                    self.asked[told["of"]] = time.perf_counter()
                    task.cancel()
            elif told["do"] == "renew":
                self.host = self.make()
                say({"id": told["id"], "ended": "ok", "seconds": 0.0})
            else:
                self.tasks[told["id"]] = asyncio.create_task(self.one(told))
        os._exit(0)


def main(make: Any) -> None:
    """Be the child of an adapter: `make` gives a fresh host."""
    quiet()
    asyncio.run(Runner(make).run())


class Held:
    """A context manager that one task of its own enters and leaves, as anyio's scopes want it."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.value: Any = None
        self.entered = asyncio.Event()
        self.ending = asyncio.Event()
        self.failed: BaseException | None = None
        self.task = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        try:
            async with self.manager as self.value:
                self.entered.set()
                await self.ending.wait()
        except BaseException as error:  # noqa: BLE001 - told to whoever opens or closes
            self.failed = error
        finally:
            self.entered.set()

    async def open(self) -> Any:
        """Wait until it is entered."""
        try:
            await self.entered.wait()
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        if self.value is None and self.failed is not None:
            raise self.failed
        return self.value

    async def close(self) -> None:
        """Leave it."""
        self.ending.set()
        await asyncio.wait([self.task])


def described(name: str, description: str | None) -> dict[str, Any]:
    """A tool as the harness compares it."""
    return {"name": name, "description": description or ""}
