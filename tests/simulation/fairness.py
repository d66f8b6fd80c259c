"""Fairness in simulated time: who gets the places of a pool where three times as many are wanted.

Everybody calls the same server, one a hundred times as much as the others. What is measured is each one's
part of the places, sampled while all are active, and how long a call waits that is not refused. The same
is done for keys inside one tenant.

A place is not taken back from who holds it, so the parts are equal only once the places that were taken
before the others came have been given back: sampling begins then.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

import afpool
from afpool import AfpoolError, Identity, Server
from tests.simulation.kernel import Sim, run_world
from tests.simulation.neighbour_world import fake, plan_to
from tests.simulation.world import Weather

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES: Final = 40
SERVICE: Final = 0.1
BEGINS: Final = 1.5
ENDS: Final = 3.5


@attrs.frozen
class Case:
    """Who competes.

    Attributes:
        name: In words.
        among: Whose parts are compared: `tenant`s, or the `conversation_id`s of one tenant.
        count: How many there are.
        slow: How many times as long the calls of the loud one take.
        max_share: Of the pool.
    """

    name: str
    among: str = "tenant"
    count: int = 20
    slow: float = 1.0
    max_share: float = 0.5


CASES: Final = (
    Case("20 tenants, one of them with 100 times the load"),
    Case("20 tenants, one of them with 100 times the load, of calls that take 5 times as long", slow=5.0),
    Case("20 keys of one tenant, one of them with 100 times the load", "conversation_id", max_share=1.0),
)


@attrs.frozen
class Result:
    """What came of it.

    Attributes:
        parts: Of the places, each one's mean.
        fair: Of all places, what each should have.
        waited: The longest that a call of a quiet one waited until it was answered, in seconds.
        served: How many calls of each were answered.
        refused: How many of the quiet ones' calls were refused.
    """

    parts: dict[str, float]
    share: float
    waited: float
    served: Counter[str]
    refused: Counter[str]

    @property
    def off(self) -> float:
        """How far the part that is furthest from the share is off it."""
        return max(abs(part - self.share) / self.share for part in self.parts.values())

    @property
    def fair(self) -> bool:
        """Whether nobody is further off than 10 %."""
        return self.off <= 0.1

    def __str__(self) -> str:
        low, high = min(self.parts.values()), max(self.parts.values())
        return (
            f"{low:.2f} to {high:.2f} places each, a share is {self.share:.2f}: {100 * self.off:.0f} % off; "
            f"the longest wait of a quiet one {self.waited:.2f} s, refused {sum(self.refused.values())}"
        )


def compete(case: Case) -> Result:
    """Run one case."""
    contest = _Contest(case)
    run_world(contest.run, f"fairness/{case.name}", real_seconds=120.0)
    parts = {name: contest.held[name] / contest.samples for name in contest.names}
    return Result(parts, PLACES / case.count, contest.waited, contest.served, contest.refused)


class _Contest:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.names = [f"n{number:02}" for number in range(case.count)]
        self.loud = self.names[0]
        self.held: Counter[str] = Counter()
        self.samples = 0
        self.waited = 0.0
        self.served: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.server = fake("http", "shared.sim")
        # all together want three times the places, and the loud one 100 times what another does
        self.quiet = -(-3 * PLACES // case.count)
        self.pool: Any = None

    def identity(self, name: str, caller: int) -> Identity:
        """Each tenant has so many conversations that no key is the narrow place."""
        if self.case.among == "tenant":
            return Identity(tenant=name, principal="someone", conversation_id=f"c{caller % 8}")
        return Identity(tenant="acme", principal="someone", conversation_id=name)

    async def run(self, sim: Sim) -> None:
        sim.network.weather = Weather(connect=0.0)
        sim.network.keeps_bytes = False
        await sim.nursery.start(self.server.run)
        sim.network.listen(self.server.host, self.server.serve_stream)
        places: dict[str, Any] = {"max_in_flight": PLACES, "max_share": self.case.max_share}
        if self.case.among != "tenant":
            places["max_operations"] = PLACES
        async with (
            afpool.open_pool(
                [Server(name="shared")],
                plan=lambda server, identity: plan_to(self.server, "http", identity.tenant or ""),
                seams=sim.seams,
                **places,
            ) as pool,
            trio.open_nursery() as nursery,
        ):
            self.pool = pool
            for name in self._names():
                nursery.start_soon(self._caller, name)
            await trio.sleep(BEGINS)
            while trio.current_time() < ENDS:
                await trio.sleep(0.01)
                self._sample()
            nursery.cancel_scope.cancel()

    def _names(self) -> Iterator[tuple[str, int]]:
        for name in self.names:
            many = 100 * self.quiet if name == self.loud else self.quiet
            yield from ((name, caller) for caller in range(many))

    async def _caller(self, who: tuple[str, int]) -> None:
        name, caller = who
        identity = self.identity(name, caller)
        seconds = SERVICE * (self.case.slow if name == self.loud else 1.0)
        await trio.sleep(0.001 * (caller % 600))
        while True:
            began = trio.current_time()
            try:
                tools = await self.pool.tools(identity)
                await tools["sleep"].call({"seconds": seconds}, identity=identity)
            except AfpoolError as error:
                if name != self.loud:
                    self.refused[error.code] += 1
                await trio.sleep(0.2)
            else:
                self.served[name] += 1
                if name != self.loud and began >= BEGINS:
                    self.waited = max(self.waited, trio.current_time() - began)

    def _sample(self) -> None:
        self.samples += 1
        for call in self.pool.running.values():
            if call.entered:
                identity = call.actor.projection
                self.held[getattr(identity, self.case.among)] += 1
