"""Random runs over real sockets: many identities call through a proxy that breaks connections.

A run is made from its seed: who calls, over which way, with which deadlines, what befalls each connection.
The kernel's timing is not the seed's, so that a seed is a scenario and no replay; what is judged
(`judging.py`) holds for every timing. A run ends with everything mended: each key must then serve its next
call at once.
"""

from __future__ import annotations

import functools
import gc
import json
import random
import ssl
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
import trustme

import afpool
from afpool import (
    AfpoolError,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    Plan,
    Seams,
    Server,
    TlsConfig,
    WebSocketTransport,
    bearer,
)
from afpool.testing import FakeServer, FakeTool
from tests.realfaults.proxy import AT_ONCE, KINDS, WAYS, Fault, Proxy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool import CredentialRequest, Pool
    from afpool.testing import Arrival
    from tests.realfaults.proxy import Kind

WAYS_THERE: Final = ("json", "sse", "old-sse", "ws", "tls", "tls-sse", "wss")
"""HTTP with JSON answers or event streams, HTTP+SSE of 2024-11-05, WebSocket, and the same under TLS."""

ERAS: Final = ("handshake", "stateless")

LIMITS: Final = {
    "max_operations": 3,
    "open_timeout": 1.0,
    "close_timeout": 2.0,
    "settle_timeout": 1.0,
    "cancel_grace": 0.3,
    "ping_timeout": 0.5,
    "backoff": 0.05,
    "backoff_max": 0.2,
    "deadline": 2.0,
}

_OFFSETS: Final = ((0, 0), (1, 60), (60, 600), (600, 3000), (3000, 40_000))


@functools.cache
def tls() -> tuple[ssl.SSLContext, TlsConfig]:
    """A server's context, and how a client trusts it."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, TlsConfig(ca_data=authority.cert_pem.bytes().decode())


@attrs.define
class Told:
    """What a caller was told of one call.

    Attributes:
        n: Its number, which no other call of the run has.
        who: The principal.
        tool: What was called.
        began: When, on trio's clock.
        deadline: Until when it had time.
        withdrawn: When its task was cancelled, if it was.
        ended: When its caller had it back.
        word: `ok`, `cancelled`, or the error's code.
        delivery: The verdict; empty where the task was cancelled.
        text: The answer's.
        use: What the record says of its delivery, where it has it.
        error: In full, for a report.
    """

    n: int
    who: str
    tool: str
    began: float
    deadline: float
    withdrawn: float | None = None
    ended: float = 0.0
    word: str = ""
    delivery: str = ""
    text: str = ""
    use: str | None = None
    error: str = ""


@attrs.define
class Facts:
    """All that a run left behind."""

    way: str
    era: str
    corrupting: bool
    proxy: Proxy
    server: FakeServer
    told: list[Told]
    lag: float
    listed: Counter[str]
    lists_late: float
    after: list[str]  # what was wrong when all was mended
    left: list[str]  # what was left of the pool when it was closed
    events: list[str]  # of the pool's record


def digest_of(n: int, who: str, pad: str) -> int:
    """Tell whether arguments came as they were sent."""
    return sum(f"{n}/{who}/{pad}".encode()) % 65521 + len(pad)


def answer_of(n: int, who: str, tool: str) -> str:
    """What a tool answers to call `n` of somebody."""
    return json.dumps({"n": n, "who": who, "body": "y" * (120_000 if tool == "big" else 20)})


def owner(headers: Mapping[str, str]) -> str:
    """Whose token a request carried."""
    return headers.get("authorization", "").removeprefix("Bearer token-of-").partition("-")[0]


def _tools() -> list[FakeTool]:
    def run(name: str, arguments: Mapping[str, Any], arrival: Arrival) -> str:
        return answer_of(arguments.get("n", 0), owner(arrival.headers), name)

    return [
        FakeTool(name, functools.partial(run, name), delay=delay, cancellable=cancellable)
        for name, delay, cancellable in (
            ("pay", 0.0, True),
            ("slow", 0.15, True),
            ("stubborn", 0.4, False),
            ("big", 0.0, True),
        )
    ]


class _Vendor:
    """Issues a new token at each asking; a token names whose it is."""

    def __init__(self) -> None:
        self.issued = 0

    async def get(self, request: CredentialRequest) -> Issued:
        self.issued += 1
        await trio.lowlevel.checkpoint()
        return Issued(bearer(f"token-of-{request.identity.principal}-{self.issued}"))


class Run:
    """One run."""

    def __init__(self, seed: int, *, way: str | None = None, era: str | None = None) -> None:
        chance = self.chance = random.Random(f"run-{seed}")
        self.seed = seed
        self.way = way or WAYS_THERE[seed % len(WAYS_THERE)]
        self.era = era or ERAS[seed // len(WAYS_THERE) % 2]
        if self.way == "old-sse":
            self.era = "handshake"
        kinds = list(KINDS)
        self.plain = self.way in {"json", "sse", "old-sse", "ws"}
        # Under TLS nobody can change a byte unseen; without it a run with changed bytes is judged by less.
        self.corrupting = not self.plain or chance.random() < 0.25
        if not self.corrupting:
            kinds.remove("corrupt")
        self.kinds: list[Kind] = chance.sample(kinds, chance.randint(1, len(kinds)))
        if self.plain and self.corrupting and "corrupt" not in self.kinds:
            self.kinds.append("corrupt")
        self.rate = chance.uniform(0.2, 0.9)
        self.away = chance.random() < 0.4
        self.people = [f"p{number}" for number in range(chance.randint(2, 5))]
        self.told: list[Told] = []
        self.listed: Counter[str] = Counter()
        self.lists_late = 0.0
        self.unlisted = ""  # why the last list could not be had
        self.lag = 0.0
        self.spaced = 0.0
        self._numbers = 0

    def __str__(self) -> str:
        kinds = ",".join(self.kinds)
        return (
            f"seed {self.seed}: {self.way} {self.era}, {len(self.people)} people, {kinds} at {self.rate:.1f}"
        )

    def script(self, index: int) -> list[Fault]:
        """What befalls the connection of that index."""
        chance = random.Random(f"faults-{self.seed}-{index}")
        if chance.random() > self.rate:
            return []
        return [self._fault(chance) for _ in range(chance.choice((1, 1, 2, 3)))]

    def _fault(self, chance: random.Random) -> Fault:
        kind = chance.choice(self.kinds)
        at, after = chance.randint(*chance.choice(_OFFSETS)), None
        if kind in {"fin", "rst", "half-close", "stall"}:
            if chance.random() < 0.1:
                at = AT_ONCE
            elif chance.random() < 0.3:
                after = chance.uniform(0, 1.2)
        return Fault(
            kind,
            chance.choice(WAYS),
            at,
            after,
            seconds=chance.uniform(0.05, 3.0) if kind == "stall" else chance.choice((0.0, 0.0005)),
            size=chance.choice((1, 3, 40, 400)) if kind == "corrupt" else chance.choice((60, 400, 1500)),
            piece=chance.choice((7, 64, 1000)),
            mask=chance.randint(1, 255),
        )

    # The world

    def fake(self) -> FakeServer:
        """A server of this run's kind."""
        secure = {"ssl_context": tls()[0]} if self.way in {"tls", "tls-sse", "wss"} else {}
        era: Any = self.era
        if self.way in {"ws", "wss"}:
            return FakeServer.ws(era=era, tools=_tools(), **secure)
        if self.way == "old-sse":
            return FakeServer.http(era=era, tools=_tools(), streaming="sse")
        answer: Any = (
            "sse" if self.way in {"sse", "tls-sse"} else self.chance.choice(("json", "json-chunked"))
        )
        return FakeServer.http(era=era, tools=_tools(), answer=answer, **secure)

    def plan(self, server: FakeServer, proxy: Proxy, who: Identity) -> Plan:
        """How somebody gets there: by the proxy."""
        url = server.url.replace(f":{server.port}", f":{proxy.port}")
        headers = {"x-who": str(who.principal)}
        config = tls()[1] if url.startswith(("https", "wss")) else TlsConfig()
        if self.way in {"ws", "wss"}:
            transport: Any = WebSocketTransport(url=url, headers=headers, tls=config)
        else:
            transport = HttpTransport(url=url, headers=headers, tls=config)
        return Plan(transport=transport, credential=CredentialRequirement("files", mode="user"))

    async def carry_out(self) -> Facts:
        """Run it all; the facts are for `judging.judge`."""
        gc.collect()
        before = descriptors(), trio.lowlevel.current_statistics().tasks_living
        left: list[str] = []
        async with self.fake() as server, Proxy(server.port, self.script) as proxy:
            async with afpool.open_pool(
                [Server(name="files")],
                plan=lambda _, who: self.plan(server, proxy, who),
                credentials=_Vendor(),
                seams=Seams(random=random.Random(self.seed)),
                **LIMITS,
            ) as pool:
                await self._disturbed(pool, proxy)
                after = await self._mended(pool, proxy)
                events = [str(event) for event in pool.records.events]
                uses = {use.call_id: use.delivery for use in pool.records.uses}
                for told in self.told:
                    told.use = uses.get(f"call-{told.n}")
            left += await self._left(server, proxy)
        gc.collect()
        now = descriptors(), trio.lowlevel.current_statistics().tasks_living
        if now != before:
            left.append(f"descriptors and tasks were {before} and are {now}")
        return Facts(
            self.way, self.era, self.plain and self.corrupting, proxy, server, self.told, self.lag,
            self.listed, self.lists_late, after, left, events,
        )  # fmt: skip

    async def _disturbed(self, pool: Pool, proxy: Proxy) -> None:
        async with trio.open_nursery() as nursery:
            watching = trio.CancelScope()
            nursery.start_soon(self._watch_lag, watching)
            if self.away:
                nursery.start_soon(self._elsewhere, proxy)
            async with trio.open_nursery() as people:
                for name in self.people:
                    for worker in range(3):
                        people.start_soon(self._person, pool, name, worker)
            watching.cancel()

    async def _watch_lag(self, watching: trio.CancelScope) -> None:
        with watching:
            while True:
                before = trio.current_time()
                await trio.sleep(0.02)
                self.lag = max(self.lag, trio.current_time() - before - 0.02)

    async def _elsewhere(self, proxy: Proxy) -> None:
        chance = random.Random(f"away-{self.seed}")
        for _ in range(2):
            await trio.sleep(chance.uniform(0.05, 0.6))
            if chance.random() < 0.5:
                proxy.hold()
                await trio.sleep(chance.uniform(0.05, 0.5))
                proxy.take()
            else:
                proxy.go_away()
                await trio.sleep(chance.uniform(0.05, 0.3))
                await proxy.come_back()

    async def _person(self, pool: Pool, name: str, worker: int) -> None:
        chance = random.Random(f"person-{self.seed}-{name}-{worker}")
        who = Identity(tenant=f"t-{name}", principal=name)
        for _ in range(chance.randint(2, 6)):
            await trio.sleep(chance.choice((0, 0, 0.01, 0.2)))
            tool = chance.choice(("pay", "pay", "slow", "stubborn", "big"))
            patience = chance.choice((0.1, 0.5, 1.2))
            withdrawn = chance.uniform(0, 0.4) if chance.random() < 0.15 else None
            await self.call(pool, who, tool, patience, withdrawn, pad="x" * chance.choice((0, 30, 5000)))

    async def call(
        self,
        pool: Pool,
        who: Identity,
        tool: str,
        patience: float,
        withdrawn: float | None = None,
        *,
        pad: str = "",
    ) -> Told | None:
        """Make one numbered call; `None` where not even a list could be had."""
        began = trio.current_time()
        try:
            bound = (await pool.tools(who))[tool]
        except AfpoolError as error:
            self.listed[error.code] += 1
            self.unlisted = f"{error!r}, because {error.__cause__!r}"
            self.lists_late = max(self.lists_late, trio.current_time() - began - LIMITS["deadline"])
            return None
        self.listed["ok"] += 1
        name = str(who.principal)
        self._numbers += 1
        n = self._numbers
        began = trio.current_time()
        told = Told(n, name, tool, began, began + patience)
        self.told.append(told)
        told.word = "cancelled"
        with trio.CancelScope() as scope:
            if withdrawn is not None:
                scope.deadline = told.withdrawn = began + withdrawn
            try:
                result = await bound.call(
                    {"n": n, "who": name, "pad": pad, "digest": digest_of(n, name, pad)},
                    identity=who,
                    deadline=told.deadline,
                    call_id=f"call-{n}",
                )
            except AfpoolError as error:
                told.word, told.delivery, told.error = error.code, error.delivery, repr(error)
            else:
                told.word, told.delivery = "ok", "answered"
                told.text = _text_of(result)
        told.ended = trio.current_time()
        return told

    # What has to hold afterwards

    async def _mended(self, pool: Pool, proxy: Proxy) -> list[str]:
        wrong: list[str] = []
        await proxy.come_back()
        proxy.clean()
        with trio.move_on_after(5) as scope:
            while pool.settling or pool.running or pool.openings.under_way:  # noqa: ASYNC110
                await trio.sleep(0.01)
        if scope.cancelled_caught:
            return [f"{pool.settling} settle and {len(pool.running)} run 5 s after their callers had gone"]
        await trio.sleep(LIMITS["backoff_max"])  # nobody backs off for longer
        await self._spaced(pool)
        for name in self.people:
            who = Identity(tenant=f"t-{name}", principal=name)
            told = await self.call(pool, who, "pay", 2.0)
            if told is None or told.word != "ok":
                wrong.append(f"the next call of {name}: {told or self.unlisted}")
        wrong += [
            f"places are held: {actor.machine.snapshot()}"
            for actor in pool.actors()
            if actor.machine.in_flight or actor.machine.waiting
        ]
        if pool.admission.used or pool.admission.waiting or pool.inside or pool.handed or pool.waiting:
            wrong.append("the runtime's places are not all back")
        return wrong

    async def _spaced(self, pool: Pool) -> None:
        """Lists whose stream was lost are asked for again with growing space between: let it pass."""
        clients = [actor.machine.client for actor in pool.actors() if actor.machine.client is not None]
        self.spaced = max((client.list.next_at for client in clients), default=0.0) - trio.current_time()
        await trio.sleep(max(0.0, min(self.spaced, 4.0)))

    async def _left(self, server: FakeServer, proxy: Proxy) -> list[str]:
        with trio.move_on_after(7):
            while server.connections or proxy.open:  # noqa: ASYNC110
                await trio.sleep(0.01)
            return []
        return [f"{server.connections} connections of the closed pool are open, {proxy.open} at the proxy"]


def _text_of(result: Any) -> str:
    """The text of a result; changed bytes may have left none."""
    try:
        return str(result.text)
    except AfpoolError as error:
        return f"unreadable: {error.code}"


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
