"""Soak: a runtime with everything on, against five servers in processes of their own, everything by chance.

    python benchmarks/soak.py [--seconds 60] [--seed N] [--every 20] [--plant FAULT,FAULT]

Fifty identities call, list, give up; servers are killed and come back, forget sessions, change lists, refuse
credentials; keys are invalidated, evicted, paused; the configuration changes; consoles come and go; one
identity's own runtime is opened and closed. What is judged: `soak_books.py` by the servers' own logs,
`soak_quiet.py` by what the process holds. Ends with status 1 on any violation, with its facts, the seed and
the last events. Chance is the seed's; what the machine makes of it is not, so that a seed is where to begin
to look, not a recording.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak_books import Books
from soak_plant import PLANTS, SOUGHT, Plants
from soak_quiet import SETTLES, Bounds, Held, Quiet
from soak_trouble import Trouble
from soak_work import Hold, Work
from soak_world import World, children

from afpool import RuntimeConfig, open_runtime
from afpool.artifacts import SqliteArtifacts
from afpool.console import ConsoleSettings
from afpool.record import JsonlSettings, RecordSettings
from afpool.tools import ResultLimits

if TYPE_CHECKING:
    from afpool import Runtime

LIMITS: Final[dict[str, Any]] = {
    "max_operations": 4, "max_waiting": 16, "max_in_flight": 48, "max_clients": 90, "max_connecting": 8,
    "deadline": 8.0, "open_timeout": 5.0, "idle_timeout": 1.5, "max_age": 8.0, "close_timeout": 2.0,
    "settle_timeout": 2.0, "cancel_grace": 0.5, "ping_timeout": 1.0, "min_list_ttl": 2.0, "list_ttl": 8.0,
    "max_message": 256 * 1024, "keepalive_expiry": 1.0, "backoff": 0.1, "backoff_max": 1.0, "records": 256,
}  # fmt: skip
TELLS: Final = 10.0


@attrs.define(eq=False)
class Soak:
    """One run.

    Attributes:
        seed: Where chance begins.
        seconds: How long.
        every: Seconds between two quiet moments.
        settles: Seconds that a quiet moment waits for what has to come back.
        plants: Faults of the soak's own making, that have to be found; see `soak_plant.py`.
    """

    seed: int
    seconds: float
    every: float
    plants: tuple[str, ...] = ()
    settles: float = SETTLES
    _sought: float = attrs.field(default=0.0, init=False)

    async def run(self, folder: Path) -> Books:
        chance = random.Random(self.seed)
        world = World.make(folder, chance)
        began = trio.current_time()
        books = Books(world, lambda: trio.current_time() - began)
        hold = Hold()
        work = Work(world, books, hold, chance)
        trouble = Trouble(world, books, hold, chance)
        quiet = Quiet(world, books, hold, work, trouble, Bounds(), self.settles)
        try:
            await world.start()
            before = Held.now()
            async with (
                SqliteArtifacts(folder / "artifacts.db", max_count_per_scope=8) as artifacts,
                open_runtime(self._config(world, books, work, artifacts, folder)) as runtime,
            ):
                work.runtime = trouble.runtime = runtime
                await self._all(runtime, hold, work, trouble, quiet, books)
                work.runtime = trouble.runtime = None
            del runtime, artifacts
            await self._after(before, books)
        finally:
            world.stop()
        self._table(books, trouble, quiet)
        return books

    def _config(
        self, world: World, books: Books, work: Work, artifacts: SqliteArtifacts, folder: Path
    ) -> RuntimeConfig:
        return RuntimeConfig(
            servers=world.servers(),
            tools=[work.relay()],
            plan=world.plan,
            share=world.share,
            credentials=world.vault,
            artifacts=artifacts,
            results=ResultLimits(max_inline_chars=150_000),
            qualify="always",
            repeat="when-nothing-ran",
            deadline=8.0,
            on_use=books.use,
            record=RecordSettings(
                jsonl=JsonlSettings(path=folder / "record.jsonl", max_bytes=2**20, keep=1),
                numbers=True,
                tools=20,
                tenants=20,
            ),
            console=ConsoleSettings(name="soak", directory=folder / "console"),
            pool=LIMITS,
        )

    async def _all(
        self, runtime: Runtime, hold: Hold, work: Work, trouble: Trouble, quiet: Quiet, books: Books
    ) -> None:
        """Let everybody live, with quiet moments between, until the time is over."""
        until = trio.current_time() + self.seconds
        async with trio.open_nursery() as nursery:
            for who in work.world.people[:-1]:
                nursery.start_soon(work.live, who)
            nursery.start_soon(work.come_and_go, work.world.people[-1])
            nursery.start_soon(trouble.run, nursery)
            nursery.start_soon(quiet.watch, runtime)
            nursery.start_soon(self._tell, runtime, books, quiet)
            plants = Plants(work.world, books, runtime)
            stretch = min(self.every, self.seconds / 3)
            while (left := until - trio.current_time()) > 0 or quiet.moments < 2 or plants.planted:
                await trio.sleep(min(stretch, max(left, 1.0)))
                await quiet.moment(runtime)
                if self.plants:
                    if self._planted(plants, books):
                        break
                elif books.violations:
                    break
            plants.clear()
            hold.over = True
            hold.end()
            nursery.cancel_scope.cancel()

    async def _after(self, before: Held, books: Books) -> None:
        """What is left of a runtime that was left: nothing, but for trio's idle threads."""
        with trio.move_on_after(5):
            while len(children()) > before.count("children"):  # noqa: ASYNC110 -- it looks from outside
                await trio.sleep(0.05)
        for why in Held.now().above(before, Bounds(objects=400_000, megabytes=120)):
            books.broken(f"after the runtime was left: {why}")

    async def _tell(self, runtime: Runtime, books: Books, quiet: Quiet) -> None:
        made = 0
        while True:
            await trio.sleep(TELLS)
            told = runtime.pool.statistics()
            held = quiet.last
            print(
                f"{books._now():6.0f} s  {(books.made - made) / TELLS:5.0f} calls/s  open {books.open:3}  "
                f"keys {told.keys:3}  clients {told.clients:3}  in flight {told.in_flight:2}  "
                f"quiet {quiet.moments}  "
                + ("" if held is None else f"fd {held.count('descriptors')}  {held.megabytes:.0f} MB")
                + f"  broken {len(books.violations)}",
                flush=True,
            )
            made = books.made

    def _planted(self, plants: Plants, books: Books) -> bool:
        """Plant at the first moment, look at the others; gives whether there is nothing more to look for.

        Synchronous: what was there at the first moment has to be all that was there before.
        """
        if not plants.planted:
            for name in self.plants:
                books.note(f"planted {name}")
                plants.plant(name)
            self._sought = trio.current_time() + SOUGHT
            return False
        missing = plants.missing()
        if missing and trio.current_time() < self._sought:
            plants.grow()
            return False
        for words in missing:
            books.broken(f"what was planted was not found in {SOUGHT:g} s: {words}")
        return True

    def _table(self, books: Books, trouble: Trouble, quiet: Quiet) -> None:
        print(f"\nseed {self.seed}, {self.seconds:g} s, Python {sys.version.split()[0]}")
        print(
            f"{books.made:,} calls, {books.arrivals:,} arrivals, {books.runs:,} runs by the servers' logs; "
            f"{quiet.moments} quiet moments, places counted {quiet.checks:,} times"
        )
        rows = [("calls", books.heard), ("in doubt", books.doubtful), ("troubles", trouble.done)]
        for what, counts in rows:
            ordered = sorted(counts.items(), key=lambda pair: -pair[1])
            print(f"\n{what}")
            for at in range(0, len(ordered), 3):
                row = "".join(f"{name:<30}{count:>7}   " for name, count in ordered[at : at + 3])
                print(f"  {row.rstrip()}")
        if quiet.first is not None and quiet.last is not None:
            print(f"\n{'held at quiet moments':<24}{'first':>12}{'last':>12}{'may be more by':>16}")
            for field in attrs.fields(Held):
                name = field.name
                first, last = quiet.first.count(name), quiet.last.count(name)
                print(f"{name:<24}{first:>12,.6g}{last:>12,.6g}{getattr(quiet.bounds, name):>16,.6g}")
        print(f"\n{len(books.violations)} violations", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(description="A soak of the whole runtime.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two quiet moments")
    parser.add_argument("--plant", default="", metavar="FAULT,FAULT", help="see soak_plant.py; or `all`")
    parser.add_argument("--settles", type=float, default=SETTLES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    plants = tuple(PLANTS) if options.plant == "all" else tuple(filter(None, options.plant.split(",")))
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="afpool-soak-") as folder:
        soak = Soak(seed, options.seconds, options.every, plants, options.settles)
        books = trio.run(soak.run, Path(folder))
    if books.violations:
        print("\n".join(books.report()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
