"""The same seed gives the same run, byte for byte, in this process and in another one."""

from __future__ import annotations

import gc
import hashlib
import importlib
import itertools
import os
import random
import secrets
import signal
import subprocess
import sys
import time
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio._core._run as scheduler

import afpool
from afpool import (
    HttpTransport,
    Identity,
    MemoryTransport,
    OpenFailed,
    Plan,
    Server,
    StdioTransport,
    WebSocketTransport,
    open_pool,
)
from afpool.testing import FakeServer, FakeTool, Progress
from tests.simulation.kernel import EPOCH, RanTooLong, Sim, run_world
from tests.simulation.world import Weather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROOT = Path(__file__).resolve().parents[2]
ROUGH = Weather(latency=0.01, jitter=0.05, piece=100, short_writes=0.3, buffer=700, connect=0.1, resolve=0.1)
KINDS = ("http", "events", "chunked", "sse", "websocket", "stdio", "memory")


async def _work(arguments: Any, arrival: Any) -> Any:
    for step in range(2):
        await trio.sleep(0.5)
        yield Progress(step)
    yield f"{arguments} of {arrival.headers.get('who')}"


def build(sim: Sim, kind: str, era: Any) -> tuple[FakeServer, Callable[[str], Any]]:
    """A server of that kind in the network, and how a person gets there."""
    host = f"{kind}.sim"
    tools = [FakeTool("work", _work)]
    network = sim.network
    if kind in {"stdio", "memory"}:
        server = FakeServer.stdio(era=era, tools=tools, name=host)
        if kind == "stdio":
            network.children.program(host, server)
            return server, lambda who: StdioTransport.of(host, env={"who": who})

        async def attach(who: str) -> Any:
            await trio.lowlevel.checkpoint()
            return network.children.attach(server, host, {"who": who})

        return server, lambda who: MemoryTransport(name=f"{host}/{who}", connect=lambda: attach(who))
    common: dict[str, Any] = {"era": era, "tools": tools, "host": host, "port": 80, "memory": True}
    if kind == "websocket":
        server = FakeServer.ws(**common)
        network.listen(host, server.serve_stream)
        return server, lambda who: WebSocketTransport(url=server.url, headers={"who": who})
    server = FakeServer.http(
        answer={"events": "sse", "chunked": "json-chunked"}.get(kind, "json"),  # type: ignore[arg-type]
        streaming="sse" if kind == "sse" else "streamable",
        ids=lambda: f"session-{sim.next_id()}",
        **common,
    )
    network.listen(host, server.serve_stream)
    return server, lambda who: HttpTransport(url=server.url, headers={"who": who})


def crowd(kinds: tuple[str, ...] = KINDS, *, calls: int = 3) -> Callable[[Sim], Awaitable[None]]:
    """Several people at servers of several kinds, with cancelled calls, a server that goes, and a cut."""

    async def main(sim: Sim) -> None:
        network = sim.network
        network.weather = ROUGH
        ways: dict[str, Any] = {}
        servers: dict[str, FakeServer] = {}
        for number, kind in enumerate(kinds):
            era = "handshake" if kind == "sse" or number % 2 else "stateless"
            servers[kind], ways[kind] = build(sim, kind, era)
            await sim.nursery.start(servers[kind].run)

        def plan(server: str, who: Identity) -> Plan:
            return Plan(transport=ways[server](who.principal or ""))

        async def person(pool: afpool.Pool, name: str) -> None:
            who = Identity(tenant="acme", principal=name)
            for number in range(calls):
                for kind in kinds:
                    with trio.move_on_after(sim.random.choice([0.7, 20, 20])):
                        try:
                            tools = await pool.tools(who, kind)
                            result = await tools["work"].call({"n": number}, identity=who)
                            sim.note(f"{name} {kind} {number}: {result.text}")
                        except afpool.AfpoolError as error:
                            sim.note(f"{name} {kind} {number}: {error}")

        options: dict[str, Any] = {"plan": plan, "seams": sim.seams, "secret": b"s" * 32}
        async with open_pool([Server(name=kind) for kind in kinds], **options) as pool:
            async with trio.open_nursery() as nursery:
                for name in ("alice", "bob", "carol"):
                    nursery.start_soon(person, pool, name)
                await trio.sleep(2)
                for link in network.open_client_ends()[::2]:
                    link.cut(reset=bool(link.number % 3))
                await trio.sleep(1)
                await servers[kinds[0]].restart()
                for started in network.children.running():
                    started.child.exit(3)
            sim.note(f"{pool.statistics()}")
        assert not network.open_client_ends()
        assert not network.children.unreaped()

    return main


def digest(trace: bytes) -> str:
    return hashlib.sha256(trace).hexdigest()


class TestTheSameRun:
    def test_twice_in_one_process(self) -> None:
        first, again, other = (run_world(crowd(), seed) for seed in (1, 1, 2))
        assert first == again
        assert first != other
        assert first.count(b"alice") > 20
        assert b"cut" in first
        assert b"in-doubt" in first

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_every_kind_in_two_processes(self, kind: str) -> None:
        """Under different hash seeds: no order depends on the hash of a string or the place of an object."""
        code = (
            "import sys; from tests.simulation import test_simulation_kernel as t\n"
            "junk = [object() for _ in range(int(sys.argv[2]))]\n"
            "print(t.digest(t.run_world(t.crowd((sys.argv[1],)), 7)))"
        )
        digests = set()
        for hash_seed in ("1", "2"):
            done = subprocess.run(
                [sys.executable, "-c", code, kind, hash_seed * 4],
                env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            digests.add(done.stdout)
        assert digests == {digest(run_world(crowd((kind,)), 7)) + "\n"}

    def test_what_libraries_draw_is_the_worlds(self) -> None:
        drawn: list[tuple[bytes, uuid.UUID]] = []

        async def main(sim: Sim) -> None:
            await trio.lowlevel.checkpoint()
            drawn.append((os.urandom(8), uuid.uuid4()))

        for _ in range(2):
            run_world(main, 5)
        assert drawn[0] == drawn[1]
        assert os.urandom(8) != os.urandom(8)

    def test_what_a_module_draws_as_it_loads_is_not_the_worlds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A first run loads what a second one finds loaded."""
        (tmp_path / "drawing_below.py").write_text("import random, os\nat_random = random.random()\n")
        (tmp_path / "drawing.py").write_text(
            "import os, random, secrets\nbefore = os.urandom(8), secrets.token_hex(4), random.random()\n"
            "import drawing_below\nafter = os.urandom(8), random.random()\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        drawn: list[tuple[bytes, str, float]] = []

        async def main(sim: Sim) -> None:
            await trio.lowlevel.checkpoint()
            importlib.import_module("drawing")
            drawn.append((os.urandom(8), secrets.token_hex(8), random.random()))

        try:
            for _ in range(2):
                run_world(main, 5)
        finally:
            del sys.modules["drawing"], sys.modules["drawing_below"]
        assert drawn[0] == drawn[1]

    def test_ready_tasks_run_in_the_worlds_order(self) -> None:
        orders = []

        async def main(sim: Sim) -> None:
            order: list[int] = []

            async def one(number: int) -> None:
                await trio.lowlevel.checkpoint()
                order.append(number)

            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(one, number)
            orders.append(order)

        for seed in (1, 1, 2):
            run_world(main, seed)
        assert orders[0] == orders[1] != orders[2]

    def test_a_signal_changes_no_order(self) -> None:
        """As the alarm that looks at the real time does: how busy the machine is is not the world's."""
        orders: list[list[int]] = []

        async def main(sim: Sim) -> None:
            order: list[int] = []
            alarmed = bool(orders)

            async def one(number: int) -> None:
                for _ in range(5):
                    if alarmed:
                        signal.raise_signal(signal.SIGALRM)
                    await trio.lowlevel.checkpoint()
                    order.append(number)

            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(one, number)
            orders.append(order)

        for _ in range(2):
            run_world(main, 1)
        assert orders[0] == orders[1]
        assert len(orders[0]) == 25


class TestTheSeams:
    def test_time_and_ids_begin_anew(self) -> None:
        async def main(sim: Sim) -> None:
            assert (sim.seams.now(), sim.seams.unix_now()) == (0.0, EPOCH)
            await trio.sleep(3)
            assert (sim.seams.now(), sim.seams.unix_now()) == (3.0, EPOCH + 3)
            assert [sim.seams.next_id() for _ in range(3)] == [1, 2, 3]

        for _ in range(2):
            run_world(main, 1)

    def test_a_thread_is_a_wait(self) -> None:
        async def main(sim: Sim) -> None:
            sim.thread_seconds = 2.0
            limiter = trio.CapacityLimiter(1)
            assert await sim.seams.in_thread(lambda: 7, limiter) == 7
            assert 0 < trio.current_time() < 2
            with pytest.raises(ZeroDivisionError):
                await sim.seams.in_thread(lambda: 1 / 0, limiter)
            assert limiter.borrowed_tokens == 0

        run_world(main, 1)

    def test_the_process_is_as_before(self) -> None:
        def state() -> Any:
            now = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, gc.isenabled(), gc.get_freeze_count()
            machinery: Any = sys.modules["_frozen_importlib"]
            return *now, os.urandom, machinery._load_unlocked, signal.set_wakeup_fd(-1)

        before, dice = state(), scheduler._r.getstate()

        async def main(sim: Sim) -> None:
            assert not gc.isenabled()
            await trio.sleep(1)
            raise KeyError("mine")

        with pytest.raises(KeyError):
            run_world(main, 1)
        assert (state(), scheduler._r.getstate()) == (before, dice)

    def test_garbage_is_what_the_world_has_made(self) -> None:
        class Knot:
            def __init__(self) -> None:
                self.end = self

        def left() -> weakref.ref[Knot]:
            return weakref.ref(Knot())

        gc.disable()
        try:
            before, made = left(), []

            async def main(sim: Sim) -> None:
                made.append(left())
                gc.collect()
                assert made[0]() is None
                assert before() is not None
                made.append(left())
                await trio.lowlevel.checkpoint()

            run_world(main, 1)
            assert made[1]() is None
            gc.collect()
            assert before() is None
        finally:
            gc.enable()


class TestARunThatDoesNotEnd:
    def test_in_simulated_time_it_is_cancelled(self) -> None:
        left = []

        async def spin() -> None:
            try:
                for _ in itertools.repeat(None):
                    await trio.sleep(1)
            finally:
                left.append(1)

        async def main(sim: Sim) -> None:
            sim.nursery.start_soon(spin)
            await trio.sleep_forever()

        with pytest.raises(RanTooLong) as caught:
            run_world(main, 1, real_seconds=0.2)
        assert "test_simulation_kernel.py" in str(caught.value)
        assert ".spin" in str(caught.value)
        assert left == [1]

    def test_in_a_step_it_is_torn_out(self) -> None:
        async def main(sim: Sim) -> None:
            await trio.sleep(1)
            while True:
                time.monotonic()

        with pytest.raises(RanTooLong, match=r"while True|time\.monotonic"):
            run_world(main, 1, real_seconds=0.2)

    def test_one_that_ends_in_time_is_left_alone(self) -> None:
        async def main(sim: Sim) -> None:
            await trio.sleep(10_000)

        run_world(main, 1, real_seconds=5)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


class TestChildren:
    @staticmethod
    async def of(sim: Sim, script: dict[str, Any]) -> tuple[FakeServer, Plan]:
        server = FakeServer.stdio(script, name="prog")
        await sim.nursery.start(server.run)
        sim.network.children.program("prog", server)
        return server, Plan(transport=StdioTransport.of("prog", env={"who": "alice"}))

    @pytest.mark.parametrize(
        ("script", "code", "killed"),
        [
            ({}, 0, 0),
            ({"ignore_eof": True}, -15, 0),
            ({"ignore_eof": True, "ignore_sigterm": True}, -9, 1),
        ],
    )
    def test_they_are_ended_as_they_let_themselves(
        self, script: dict[str, Any], code: int, killed: int
    ) -> None:
        async def main(sim: Sim) -> None:
            _, plan = await self.of(sim, script)
            who = Identity(principal="alice")
            async with open_pool([Server(name="s", plan=plan)], seams=sim.seams) as pool:
                await (await pool.tools(who))["echo"].call({}, identity=who)
                (started,) = sim.network.children.running("prog")
                assert started.link.marks == {"who": "alice"}
                assert sim.network.children.unreaped()
                report = await pool.aclose()
            assert (started.child.exit_code, report.killed) == (code, killed)
            assert not sim.network.children.running()
            assert not sim.network.children.unreaped()
            assert not sim.network.open_client_ends()

        run_world(main, 1)

    def test_one_that_exits_takes_its_calls_with_it(self) -> None:
        async def main(sim: Sim) -> None:
            server, plan = await self.of(sim, {"tools": ["sleep"]})
            who = Identity(principal="alice")
            async with open_pool([Server(name="s", plan=plan)], seams=sim.seams) as pool:
                tools = await pool.tools(who)

                async def call() -> None:
                    with pytest.raises(afpool.LocalSessionHandleLostError) as caught:
                        await tools["sleep"].call({"seconds": 1000}, identity=who)
                    assert caught.value.delivery == "in-doubt"

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call)
                    await server.wait_for("tools/call")
                    sim.network.children.running()[0].child.exit(5)
                assert trio.current_time() < 100
                assert await pool.tools(who, refresh=True)
                assert len(sim.network.children.started) == 2

        run_world(main, 1)

    def test_what_cannot_be_started(self) -> None:
        async def main(sim: Sim) -> None:
            server, plan = await self.of(sim, {})
            who = Identity(principal="alice")
            program = sim.network.children.programs["prog"]
            for fails, up, why in (("no resources", True, "no resources"), ("", False, "not there")):
                program.fails = fails
                if not up:
                    server.refuse_connections()
                async with open_pool([Server(name="s", plan=plan)], seams=sim.seams) as pool:
                    with pytest.raises(OpenFailed, match=why):
                        await pool.tools(who)
            other = Plan(transport=StdioTransport.of("unknown"))
            async with open_pool([Server(name="s", plan=other)], seams=sim.seams) as pool:
                with pytest.raises(OpenFailed, match="was not found"):
                    await pool.tools(who)
            with pytest.raises(ConnectionRefusedError):
                sim.network.children.attach(server, "prog")
            assert not sim.network.links

        run_world(main, 1)
