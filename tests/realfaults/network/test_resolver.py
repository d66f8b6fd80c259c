"""A resolver that hangs, in a real thread: whom it costs what, and how the pool is left."""

from __future__ import annotations

import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import AfpoolError, HttpTransport, Identity, Plan, Seams, Server
from afpool.testing import FakeServer

if TYPE_CHECKING:
    from collections.abc import Iterator

HUNG = "hung.test"
GOOD = "good.test"
PATIENCE = 20.0


class Resolver:
    """A resolver whose look-ups block their threads until it is let go. One host does not hang."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = 0
        self.at_once = 0
        self.most = 0
        self.failure: OSError | None = None
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int) -> list[tuple[int, Any]]:
        if host == HUNG:
            with self._lock:
                self.asked += 1
                self.at_once += 1
                self.most = max(self.most, self.at_once)
            self.go.wait(60)
            with self._lock:
                self.at_once -= 1
        if self.failure is not None:
            raise self.failure
        return [(socket.AF_INET, ("127.0.0.1", port))]

    @property
    def seams(self) -> Seams:
        return Seams(resolve=self)


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    found = Resolver()
    yield found
    found.go.set()  # a thread that was given up ends all the same


def person(number: int) -> Identity:
    return Identity(tenant=f"t{number}", principal=f"p{number}")


def server(name: str, fake: FakeServer, host: str) -> Server:
    url = fake.url.replace("127.0.0.1", host)
    return Server(name=name, plan=Plan(transport=HttpTransport(url=url)))


@attrs.define
class Ends:
    """How openings ended."""

    good: int = 0
    codes: list[str] = attrs.field(factory=list)
    words: list[str] = attrs.field(factory=list)

    async def open(self, pool: afpool.Pool, who: Identity, name: str) -> None:
        try:
            tool = (await pool.tools(who, name))["echo"]
            await tool.call({"n": 1}, identity=who)
        except AfpoolError as error:
            self.codes.append(f"{error.code} {error.delivery}")
            self.words.append(str(error))
        else:
            self.good += 1


async def test_a_host_whose_name_hangs_delays_nobody_elses_opening(resolver):
    with trio.fail_after(PATIENCE):
        async with FakeServer.http() as fake:
            servers = [server("hung", fake, HUNG), server("good", fake, GOOD)]
            async with afpool.open_pool(servers, seams=resolver.seams, open_timeout=10.0) as pool:
                hung, good = Ends(), Ends()
                async with trio.open_nursery() as nursery:
                    for number in range(20):
                        nursery.start_soon(hung.open, pool, person(number), "hung")
                    while resolver.at_once < 2:  # noqa: ASYNC110 -- a thread says it
                        await trio.sleep(0.005)
                    async with trio.open_nursery() as others:
                        for number in range(20):
                            others.start_soon(good.open, pool, person(number), "good")
                    assert good.good == 20
                    assert not hung.good
                    assert not hung.codes
                    assert resolver.most == 2  # however many want to know
                    resolver.go.set()
                assert hung.good == 20


@pytest.mark.parametrize("failure", [None, socket.gaierror(socket.EAI_AGAIN, "Temporary failure")])
async def test_who_waited_behind_a_look_up_takes_its_answer(resolver, failure):
    """Whoever waited for a thread does not ask once more: each round would cost the same seconds again."""
    resolver.failure = failure
    with trio.fail_after(PATIENCE):
        async with FakeServer.http() as fake:
            servers = [server("hung", fake, HUNG)]
            async with afpool.open_pool(servers, seams=resolver.seams, max_connecting=16) as pool:
                ends = Ends()
                async with trio.open_nursery() as nursery:
                    for number in range(8):
                        nursery.start_soon(ends.open, pool, person(number), "hung")
                    while resolver.at_once < 2 or len(pool.openings.under_way) < 8:  # noqa: ASYNC110
                        await trio.sleep(0.005)
                    await trio.testing.wait_all_tasks_blocked()
                    resolver.go.set()
                assert resolver.asked == 2
                if failure is None:
                    assert ends.good == 8
                else:
                    assert len(ends.codes) == 8
                    assert all("Temporary failure" in words for words in ends.words)


async def test_an_opening_that_was_given_up_leaves_its_thread_and_the_next_one_waits_for_it(resolver):
    """Two threads of a name hang: a third is never started, and when they end all is as before."""
    with trio.fail_after(PATIENCE):
        async with FakeServer.http() as fake:
            servers = [server("hung", fake, HUNG)]
            limits = {"open_timeout": 0.2, "backoff": 0.01, "backoff_max": 0.01}
            async with afpool.open_pool(servers, seams=resolver.seams, **limits) as pool:
                ends = Ends()
                for _ in range(4):
                    async with trio.open_nursery() as nursery:
                        for number in range(4):
                            nursery.start_soon(ends.open, pool, person(number), "hung")
                    await trio.sleep(0.02)
                assert len(ends.codes) == 16
                assert all(code.endswith("not-sent") for code in ends.codes)
                assert resolver.asked == resolver.most == 2
                resolver.go.set()
                while resolver.at_once:  # noqa: ASYNC110
                    await trio.sleep(0.005)
                await ends.open(pool, person(0), "hung")
                assert ends.good == 1


async def test_a_pool_is_left_while_threads_hang(resolver):
    with trio.fail_after(PATIENCE):
        async with FakeServer.http() as fake:
            tasks = trio.lowlevel.current_statistics().tasks_living
            with trio.CancelScope() as given_up:
                servers = [server("hung", fake, HUNG)]
                async with (
                    afpool.open_pool(servers, seams=resolver.seams, close_timeout=0.5) as pool,
                    trio.open_nursery() as nursery,
                ):
                    for number in range(4):
                        nursery.start_soon(Ends().open, pool, person(number), "hung")
                    while resolver.at_once < 2:  # noqa: ASYNC110
                        await trio.sleep(0.005)
                    given_up.cancel()
            assert resolver.at_once == 2  # they still hang
            assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_the_real_resolver_when_it_is_slow(monkeypatch):
    """`getaddrinfo` itself, held up in its thread: the loop goes on, and what was kept is used."""
    real, asked = socket.getaddrinfo, []

    def slow(host: Any, *args: Any, **options: Any) -> Any:
        asked.append((host, threading.current_thread()))
        threading.Event().wait(0.3)
        return real("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with trio.fail_after(PATIENCE):
        async with (
            FakeServer.http() as fake,
            afpool.open_pool([server("slow", fake, "slow.test")]) as pool,
        ):
            ends, steps = Ends(), 0

            async def count() -> None:
                nonlocal steps
                while True:
                    await trio.lowlevel.checkpoint()
                    steps += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(count)
                async with trio.open_nursery() as people:
                    for number in range(6):
                        people.start_soon(ends.open, pool, person(number), "slow")
                nursery.cancel_scope.cancel()
            assert ends.good == 6
            assert steps > 100
            mine = [thread for host, thread in asked if host == "slow.test"]
            assert 1 <= len(mine) < 6
            assert threading.main_thread() not in mine


SCRIPT = """
import sys, threading, trio, afpool
from afpool import HttpTransport, Identity, Plan, Seams, Server

def hang(host, port):
    threading.Event().wait(300)

async def main():
    plan = Plan(transport=HttpTransport(url="http://hung.test:1/mcp"))
    seams = Seams(resolve=hang)
    async with afpool.open_pool([Server(name="hung", plan=plan)], seams=seams, open_timeout=0.2) as pool:
        try:
            await pool.tools(Identity(tenant="acme", principal="alice"))
        except afpool.AfpoolError as error:
            print(error.code, error.delivery, flush=True)

trio.run(main)
"""


async def test_a_process_ends_though_a_look_up_still_hangs():
    with trio.fail_after(60):
        done = await trio.run_process([sys.executable, "-c", SCRIPT], capture_stdout=True)
    assert done.stdout.split() == [b"open-failed", b"not-sent"]
