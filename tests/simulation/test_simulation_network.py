"""The simulated network does what a kernel and a network do: order, room, latency, ends, faults."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest
import trio
import trio.lowlevel

from afpool._base.gate import OpenGate
from afpool.transports import WireClosed, Woken
from tests.simulation.kernel import Sim, run_world
from tests.simulation.pipe import UNNOTICED
from tests.simulation.world import Weather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.simulation.network import SimStream, SimWire

CALM = Weather(latency=0.0, connect=0.0)
FAR = Weather(latency=1.0, connect=0.0)


def world(main: Callable[[Sim], Awaitable[None]], weather: Weather = CALM, seed: int = 1) -> bytes:
    """Run a world in that weather."""

    async def run(sim: Sim) -> None:
        sim.network.weather = weather
        await main(sim)

    return run_world(run, seed)


def pair(sim: Sim, *, kernel: bool = False) -> tuple[SimWire, SimStream]:
    return sim.network.make_link("there", kernel=kernel)[1:]


async def read(wire: SimWire, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await wire.receive(size - len(data))
        if not more:
            break
        data += more
    return data


def test_bytes_take_their_time_and_stay_in_order() -> None:
    async def main(sim: Sim) -> None:
        wire, stream = pair(sim)
        await wire.send(b"one", OpenGate())
        await trio.sleep(0.25)
        await wire.send(b"two", OpenGate())
        assert trio.current_time() == 0.25
        assert await stream.receive_some() == b"one"
        assert trio.current_time() == 1.0
        assert await stream.receive_some() == b"two"
        assert trio.current_time() == 1.25
        await stream.send_all(b"back")
        assert await wire.receive() == b"back"
        assert trio.current_time() == 2.25

    world(main, FAR)


def test_jitter_does_not_change_the_order() -> None:
    async def main(sim: Sim) -> None:
        wire, stream = pair(sim)
        sent = b"".join(bytes([n]) * 3 for n in range(60))
        for n in range(60):
            await wire.send(bytes([n]) * 3, OpenGate())
        got = b""
        while len(got) < len(sent):
            got += await stream.receive_some()
        assert got == sent
        assert 1.0 < trio.current_time() <= 6.0

    world(main, Weather(latency=1.0, jitter=5.0))


def test_a_full_buffer_takes_nothing_until_it_is_read() -> None:
    async def main(sim: Sim) -> None:
        wire, stream = pair(sim)
        link = wire.link
        assert wire._write(b"x" * 30) == 20
        assert wire._write(b"x") == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.writable)
            await trio.sleep(9)
            assert len(nursery.child_tasks) == 1
            assert await stream.receive_some(5) == b"x" * 5
        assert trio.current_time() == 9
        assert link.to_server.room() == 5
        done = []

        async def answer() -> None:
            await stream.send_all(b"y" * 50)
            done.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            await trio.sleep(1)
            assert not done
            assert await read(wire, 50) == b"y" * 50
        assert done

    world(main, attrs.evolve(CALM, buffer=20))


def test_writes_may_be_short_and_pieces_small() -> None:
    async def main(sim: Sim) -> None:
        wire, stream = pair(sim)
        taken = [wire._write(b"x" * 1000) for _ in range(20)]
        assert any(part < 1000 for part in taken)
        sizes = set()
        got = 0
        while got < sum(taken):
            part = await stream.receive_some()
            sizes.add(len(part))
            got += len(part)
        assert len(sizes) > 3
        assert min(sizes) <= 70

    world(main, Weather(latency=0.1, jitter=1.0, piece=70, short_writes=0.5))


@hypothesis.given(
    weather=st.builds(
        Weather,
        latency=st.sampled_from([0.0, 0.01]),
        jitter=st.sampled_from([0.0, 0.02]),
        piece=st.sampled_from([0, 1, 7, 100]),
        short_writes=st.sampled_from([0.0, 0.5, 1.0]),
        buffer=st.sampled_from([1, 10, 65536]),
    ),
    parts=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=8),
    limit=st.integers(1, 50),
    kernel=st.booleans(),
)
@hypothesis.settings(max_examples=60)
def test_whatever_the_weather_the_same_bytes_come(
    weather: Weather, parts: list[bytes], limit: int, kernel: bool
) -> None:
    whole = b"".join(parts)

    async def main(sim: Sim) -> None:
        wire, stream = pair(sim, kernel=kernel)
        seen = bytearray()
        sim.network.observers.append(
            lambda link, towards, data, now: seen.extend(data if towards == "to-server" else b"")
        )

        async def send() -> None:
            for part in parts:
                await wire.send(part, OpenGate())
            wire.close_write()

        async def echo() -> None:
            while data := await stream.receive_some(limit):
                await stream.send_all(data)
            await stream.aclose()

        got = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(echo)
            while data := await wire.receive(limit):
                got += data
        assert got == whole == bytes(seen)

    world(main, weather)


class TestEnds:
    def test_a_close_is_seen_behind_the_last_bytes(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            await stream.send_all(b"last")
            stream.close()
            assert wire.alive()
            assert await wire.receive() == b"last"
            assert trio.current_time() == 1.0
            assert await wire.receive() == b""
            assert not wire.alive()
            with pytest.raises(trio.ClosedResourceError):
                await stream.send_all(b"x")

        world(main, FAR)

    def test_bytes_for_a_closed_end_are_answered_with_a_reset(self) -> None:
        """The kernel takes them all the same: that they are lost shows later."""

        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            stream.close()
            await wire.send(b"into the void", OpenGate())
            assert await wire.receive() == b""
            await wire.send(b"still", OpenGate())
            await trio.sleep(2.5)
            with pytest.raises(WireClosed, match="reset"):
                await wire.send(b"no longer", OpenGate())
            with pytest.raises(WireClosed, match="reset"):
                await wire.receive()
            assert not wire.alive()

        world(main, FAR)

    def test_a_close_with_bytes_unread_is_a_reset(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            await wire.send(b"unread", OpenGate())
            await trio.sleep(1.5)
            await stream.send_all(b"lost on the way")
            stream.close()
            with pytest.raises(WireClosed, match="reset"):
                await wire.receive()
            assert trio.current_time() == 2.5

        world(main, FAR)

    def test_what_had_arrived_before_a_reset_can_be_read(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            await stream.send_all(b"here")
            stream.reset()
            await trio.lowlevel.checkpoint()
            assert await wire.receive() == b"here"
            with pytest.raises(WireClosed, match="reset"):
                await wire.receive()

        world(main)

    def test_a_pipe_without_a_reader_takes_nothing(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim, kernel=True)
            await stream.send_all(b"left behind")
            assert wire.alive()
            stream.close()
            with pytest.raises(WireClosed, match="Broken pipe"):
                await wire.send(b"x", OpenGate())
            assert not wire.alive()
            assert await wire.receive() == b"left behind"
            assert await wire.receive() == b""
            ours, theirs = pair(sim, kernel=True)
            ours.close()
            with pytest.raises(trio.BrokenResourceError):
                await theirs.send_all(b"x")

        world(main)

    def test_our_own_close_wakes_who_is_parked(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            wire._write(b"x" * 20)
            errors: list[BaseException] = []

            async def parked(wait: Callable[[], Awaitable[Any]]) -> None:
                try:
                    await wait()
                except (WireClosed, Woken) as error:
                    errors.append(error)

            for end in (wire.wake, wire.close):
                errors.clear()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(parked, wire.receive)
                    nursery.start_soon(parked, wire.writable)
                    await trio.sleep(1)
                    end()
                assert len(errors) == 2
                assert all(isinstance(error, Woken) is (end == wire.wake) for error in errors)
            assert await stream.receive_some() == b"x" * 20
            assert await stream.receive_some() == b""
            with pytest.raises(WireClosed) as caught:
                await wire.receive()
            assert caught.value.local

        world(main, attrs.evolve(CALM, buffer=20))

    def test_the_input_ends_and_the_output_goes_on(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim, kernel=True)
            wire.close_write()
            assert await stream.receive_some() == b""
            await stream.send_all(b"bye")
            assert await wire.receive() == b"bye"
            with pytest.raises(WireClosed):
                await wire.send(b"x", OpenGate())

        world(main)


class TestFaults:
    def test_a_link_is_cut(self) -> None:
        async def main(sim: Sim) -> None:
            for reset in (False, True):
                wire, stream = pair(sim)
                await stream.send_all(b"arrived")
                await trio.sleep(1.5)
                await stream.send_all(b"lost")
                wire.link.cut(reset=reset)
                assert await wire.receive() == b"arrived"
                if reset:
                    for ask in (wire.receive(), wire.send(b"x", OpenGate())):
                        with pytest.raises(WireClosed, match="reset"):
                            await ask
                    with pytest.raises(trio.BrokenResourceError):
                        await stream.receive_some()
                else:
                    assert await wire.receive() == await stream.receive_some() == b""
                    await wire.send(b"taken and lost", OpenGate())
                    await trio.sleep(2)
                    with pytest.raises(WireClosed, match="reset"):
                        await wire.send(b"x", OpenGate())

        world(main, FAR)

    @pytest.mark.parametrize("reset", [False, True])
    def test_a_link_is_cut_after_so_many_bytes(self, reset: bool) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            await stream.send_all(b"12345")
            await trio.sleep(1.5)
            wire.link.cut(towards="to-client", after=3, reset=reset)
            await stream.send_all(b"6")
            await stream.send_all(b"7890")
            await trio.sleep(1.5)
            assert await wire.receive() == b"12345678"
            if reset:
                with pytest.raises(WireClosed, match="reset"):
                    await wire.receive()
            else:
                assert await wire.receive() == b""

        world(main, FAR)

    def test_nothing_of_a_write_comes_behind_a_cut(self) -> None:
        """Where bytes take no time, its pieces arrive one by one while it is made."""

        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            wire.link.cut(towards="to-server", after=7, reset=True)
            data = bytes(range(100))
            await wire.send(data, OpenGate())
            assert await stream.receive_some() == data[:7]

        for seed in range(5):
            world(main, attrs.evolve(CALM, piece=4), seed)

    def test_one_direction_ends(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            wire.link.half_close("to-client")
            assert await wire.receive() == b""
            await wire.send(b"goes on", OpenGate())
            assert await stream.receive_some() == b"goes on"
            await stream.send_all(b"lost")
            await trio.sleep(1.5)
            with pytest.raises(trio.BrokenResourceError):
                await stream.send_all(b"x")

        world(main, FAR)

    def test_a_direction_stalls(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            await stream.send_all(b"on its way")
            wire.link.stall("to-client", 10)
            await wire.send(b"the other way", OpenGate())
            assert await stream.receive_some() == b"the other way"
            assert trio.current_time() == 1.0
            await stream.send_all(b", more")
            stream.close()
            assert await wire.receive() == b"on its way, more"
            assert trio.current_time() == 10.0
            assert await wire.receive() == b""

        world(main, FAR)

    def test_a_reset_does_not_overtake_a_stall(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            wire.link.stall("to-client", 10)
            stream.reset()
            with pytest.raises(WireClosed):
                await wire.receive()
            assert trio.current_time() == 10.0

        world(main, FAR)

    def test_bytes_vanish_until_the_kernel_gives_up(self) -> None:
        async def main(sim: Sim) -> None:
            wire, stream = pair(sim)
            wire.link.blackhole("to-server")
            await wire.send(b"gone", OpenGate())
            await stream.send_all(b"heard")
            assert await wire.receive() == b"heard"
            with pytest.raises(WireClosed, match="timed out"):
                await wire.receive()
            assert trio.current_time() == UNNOTICED
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
            wire, stream = pair(sim)
            wire.link.blackhole("to-client", notice=None)
            stream.reset()
            with trio.move_on_after(1000):
                await wire.receive()
            assert trio.current_time() == UNNOTICED + 1000

        world(main, FAR)


class TestConnecting:
    @staticmethod
    def sink(streams: list[SimStream]) -> Callable[[SimStream], None]:
        return streams.append

    def test_names_lead_to_who_listens(self) -> None:
        async def main(sim: Sim) -> None:
            streams: list[SimStream] = []
            network = sim.network
            network.listen("one.sim", self.sink(streams))
            network.listen("two.sim", lambda stream: stream.close())
            network.listen("/run/sock", self.sink(streams), port=0)
            (family, address), *_ = network.resolve("one.sim", 80)
            assert network.resolve("two.sim", 80)[0][1] != address
            wire = await network.connect(family, address)
            assert wire.link.name == "one.sim"
            await network.connect(socket.AF_UNIX, "/run/sock")
            await network.connect(family, ("one.sim", 80))
            assert len(streams) == 3
            for port, kind in ((81, ConnectionRefusedError), (80, None)):
                if kind is not None:
                    with pytest.raises(kind):
                        await network.connect(family, (address[0], port))
            with pytest.raises(ConnectionRefusedError):
                await network.connect(socket.AF_UNIX, "/run/other")
            with pytest.raises(socket.gaierror):
                network.resolve("nobody.sim", 80)
            assert len(network.open_client_ends()) == 3
            wire.close()
            assert len(network.links_to("one.sim")) == 1

        world(main)

    def test_what_befalls_who_connects(self) -> None:
        async def main(sim: Sim) -> None:
            entry = sim.network.listen("one.sim", lambda stream: None)

            async def connect() -> float:
                before = trio.current_time()
                await sim.network.connect(socket.AF_INET, (entry.address, 80))
                return trio.current_time() - before

            assert await connect() <= 0.5
            entry.how, entry.seconds = "delay", 7
            assert 7 <= await connect() <= 7.5
            entry.how = "refuse"
            with pytest.raises(ConnectionRefusedError):
                await connect()
            entry.how = "hang"
            before = trio.current_time()
            with pytest.raises(TimeoutError) as caught:
                await connect()
            assert caught.value.errno == errno.ETIMEDOUT
            assert trio.current_time() - before > 100
            with trio.move_on_after(5) as scope:
                await connect()
            assert scope.cancelled_caught
            entry.how, entry.resolvable = "accept", False
            with pytest.raises(socket.gaierror):
                sim.network.resolve("one.sim", 80)

        world(main, attrs.evolve(CALM, connect=0.5))

    def test_who_refuses_by_himself_leaves_no_link(self) -> None:
        async def main(sim: Sim) -> None:
            def refuse(stream: SimStream) -> None:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "no")

            entry = sim.network.listen("one.sim", refuse)
            with pytest.raises(ConnectionRefusedError):
                await sim.network.connect(socket.AF_INET, (entry.address, 80))
            assert not sim.network.links

        world(main)

    def test_what_somebody_else_dials_is_not_watched(self) -> None:
        async def main(sim: Sim) -> None:
            streams: list[SimStream] = []
            sim.network.observers.append(lambda *seen: pytest.fail(f"{seen}"))
            sim.network.listen("one.sim", self.sink(streams), port=8080)
            stream = await sim.network.dial("one.sim", 8080)
            await stream.send_all(b"through a proxy")
            assert await streams[0].receive_some() == b"through a proxy"
            assert not sim.network.open_client_ends()
            await stream.aclose()
            assert await streams[0].receive_some() == b""

        world(main)


def test_observers_are_told_in_the_step_of_the_write() -> None:
    async def main(sim: Sim) -> None:
        wire, stream = pair(sim)
        told: list[tuple[str, bytes, float]] = []
        sim.network.observers.append(lambda link, towards, data, now: told.append((towards, data, now)))

        class Watchful:
            """A gate that is asked before, and told that bytes left after, in one step."""

            def ask(self, stage: str, /) -> None:
                assert not told

            def began(self) -> None:
                assert told == [("to-server", b"request", 0.0)]

        await wire.send(b"request", Watchful())
        assert len(told) == 1
        await stream.send_all(b"answer")
        await trio.sleep(2)
        assert len(told) == 1, "it has arrived, but nobody has read it"
        await wire.receive()
        assert told[1:] == [("to-client", b"answer", 2.0)]

    world(main, FAR)


def test_a_refused_message_is_not_seen() -> None:
    class Closed:
        def ask(self, stage: str, /) -> None:
            raise RuntimeError("closed")

        def began(self) -> None:
            raise AssertionError

    async def main(sim: Sim) -> None:
        wire, _ = pair(sim)
        sim.network.observers.append(lambda *seen: pytest.fail(f"{seen}"))
        with pytest.raises(RuntimeError):
            await wire.send(b"x", Closed())
        assert wire.link.to_server.taken == 0

    world(main)
