"""What a long tool list costs the process that reads it, in figures that other load leaves alone.

    python benchmarks/lists.py [--tools 5000] [--lists 10] [--plain]

A server in another process lists thousands of tools with schemas such as real ones have, and another list of
as many each time that it is asked again. For the first list, those that replace it and the letting go of the
last: how many rounds the collector of cycles made, by generation, and what they took; how many objects it
has to look after; the longest step of any task on the loop's thread, in processor time of that thread, and
where it ended; and the processor time of all threads. Ends with 1 where a list brought a round of the oldest
generation, or a step took longer than `STEP_MS`. With `--plain` tools are as those of `neighbours.py`, of a
quarter of the bytes. One message is read in one step, so that the longest one goes with the size of a page.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import attrs
import trio

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import afpool
from afpool import HttpTransport, Identity, Plan, Server
from afpool.pool import _lists
from afpool.testing import FakeServer, FakeTool

STEP_MS: Final = 2.0
WHO: Final = Identity(tenant="acme", principal="alice")


def schema_of(number: int) -> dict[str, Any]:
    """An input schema with a dozen members, a nested object, choices and bounds."""
    return {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "description": f"What to look for in {number}."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 2**63 - 1, "default": 10},
            "order": {"type": "string", "enum": ["newest", "oldest", "best"]},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 8},
            "filter": {
                "type": "object",
                "properties": {
                    "since": {"type": "string", "format": "date-time"},
                    "until": {"type": "string", "format": "date-time"},
                    "owner": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "additionalProperties": False,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }


async def serve(count: int, plain: bool) -> None:
    """List `count` tools, described anew at every line of stdin; until its end."""

    def listed(turn: int) -> list[FakeTool]:
        said = f"Searches, in list {turn}. " + "It says what was found, and where. " * 4
        schemas = ({"type": "object"} if plain else schema_of(n) for n in range(count))
        return [FakeTool(f"search-{n}", description=said, input_schema=one) for n, one in enumerate(schemas)]

    turn = 0
    server = FakeServer.http(tools=listed(turn))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        print(json.dumps(server.url), flush=True)
        async with trio.lowlevel.FdStream(0) as stdin:
            while await stdin.receive_some(64):
                turn += 1
                server.set_tools(listed(turn), notify=False)
                server.clear_log()
                print(turn, flush=True)
        nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class Watch(trio.abc.Instrument):
    """Counts the collector's rounds, and times the steps of tasks."""

    rounds: list[int] = attrs.field(factory=lambda: [0, 0, 0])
    collecting: float = 0.0
    longest: float = 0.0
    whose: str = ""
    _began: float = float("inf")
    _round_began: float = 0.0

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """As `gc.callbacks` wants it."""
        if phase == "start":
            self._round_began = time.thread_time()
        else:
            self.rounds[info["generation"]] += 1
            self.collecting += time.thread_time() - self._round_began

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task goes on."""
        del task
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task waits."""
        took = time.thread_time() - self._began
        if took > self.longest:
            self.longest, self.whose = took, reached(task)

    def anew(self) -> None:
        """Begin to count."""
        self.rounds, self.collecting, self.longest, self.whose = [0, 0, 0], 0.0, 0.0, ""


def reached(task: trio.lowlevel.Task) -> str:
    """Where a task waits: of our own code, the innermost line."""
    where = task.name
    coroutine: Any = task.coro
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and "afpool" in frame.f_code.co_filename:
            where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None)
    return where


@attrs.frozen
class Seen:
    """What one list cost. Seconds; objects that the collector looks after."""

    what: str
    rounds: tuple[int, ...]
    collecting: float
    longest: float
    whose: str
    work: float
    tracked: int


async def measure(url: str, child: subprocess.Popen[str], lists: int) -> list[Seen]:
    """Read a list, have it replaced, let go of it."""
    assert child.stdin is not None
    assert child.stdout is not None
    watch, seen = Watch(), []
    _lists.RELIST_INTERVAL = 0.01  # type: ignore[misc]  # what is looked at are lists, not the pauses between
    plan = Plan(transport=HttpTransport(url=url))
    gc.collect()
    before = len(gc.get_objects())

    def file(what: str, began: float) -> None:
        work = time.process_time() - began
        counted = (tuple(watch.rounds), watch.collecting, watch.longest, watch.whose, work)
        seen.append(Seen(what, *counted, len(gc.get_objects()) - before))

    gc.callbacks.append(watch.collected)
    trio.lowlevel.add_instrument(watch)
    async with afpool.open_pool([Server(name="loud", plan=plan)]) as pool:
        await pool.warm(WHO)
        for turn in range(lists + 1):
            if turn:
                child.stdin.write("next\n")
                child.stdin.flush()
                child.stdout.readline()
                await trio.sleep(0.1)
            watch.anew()
            began = time.process_time()
            tools = await (pool.refresh(WHO, "loud") if turn else pool.tools(WHO, "loud"))
            tools = await pool.tools(WHO, "loud")
            assert f"list {turn}." in (tools["search-7"].description or "")
            del tools
            await trio.sleep(0.1)
            file("replaced" if turn else "first", began)
        await trio.sleep(0.01)
        watch.anew()
        began = time.process_time()
        pool.invalidate(server="loud")
        with trio.move_on_after(10) as patience:
            while len(pool.catalogs.table):  # noqa: ASYNC110 -- nothing announces the last one
                await trio.sleep(0.02)
        await trio.sleep(0.1)
        assert not patience.cancelled_caught, f"{len(pool.catalogs.table)} definitions are still there"
        file("let go", began)
    gc.callbacks.remove(watch.collected)
    trio.lowlevel.remove_instrument(watch)
    return seen


def main(arguments: list[str] | None = None) -> int:
    """Measure, show and judge."""
    parser = argparse.ArgumentParser(description="What a long tool list costs the process that reads it.")
    parser.add_argument("--tools", type=int, default=5000)
    parser.add_argument("--lists", type=int, default=10)
    parser.add_argument("--plain", action="store_true", help="short schemas")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        trio.run(serve, options.tools, options.plain)
        return 0
    command = [sys.executable, __file__, "--serve", "--tools", str(options.tools)]
    command += ["--plain"] if options.plain else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        url = json.loads(child.stdout.readline())
        seen = trio.run(measure, url, child, options.lists)
        child.stdin.close()
    print(f"{options.tools} tools\n{'list':<10}{'rounds by generation':>22}{'their ms':>10}"
          f"{'tracked':>9}{'longest step ms':>17}{'CPU s':>8}  where it ended")  # fmt: skip
    for each in seen:
        rounds = " / ".join(map(str, each.rounds))
        print(f"{each.what:<10}{rounds:>22}{1000 * each.collecting:>10.1f}{each.tracked:>9}"
              f"{1000 * each.longest:>17.2f}{each.work:>8.2f}  {each.whose}")  # fmt: skip
    kept = all(each.rounds[2] == 0 and 1000 * each.longest <= STEP_MS for each in seen)
    print("kept" if kept else "MISSED")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
