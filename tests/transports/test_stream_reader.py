"""What is read, what is skipped, and how the end is told."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.transports._memory import MemoryWire, memory_link_pair
from afpool.transports._stream import StreamLink
from afpool.transports._wire import Outgoing, WireClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from afpool.protocol._lines import LineTooLong


class Rig:
    def __init__(
        self,
        *,
        on_line: Callable[[bytes], None] | None = None,
        on_too_long: Callable[[LineTooLong], None] | None = None,
        max_line_bytes: int = 100,
    ) -> None:
        self.wire, self.far = memory_link_pair(capacity=1 << 24)
        self.lines: list[bytes] = []
        self.lost: list[str] = []
        self.link = StreamLink(
            self.wire,
            on_line=on_line or self.lines.append,
            on_lost=self.lost.append,
            max_line_bytes=max_line_bytes,
            seams=Seams(),
            on_too_long=on_too_long,
        )

    def say(self, data: bytes) -> None:
        self.far.push([Outgoing(data, OpenGate())])


async def settle() -> None:
    with trio.fail_after(5):
        await trio.testing.wait_all_tasks_blocked()


async def test_what_cannot_be_json_is_skipped_and_counted(nursery: trio.Nursery) -> None:
    rig = Rig()
    await nursery.start(rig.link.run)
    rig.say(b'hello from the server\n{"id":1}\n  \n\t {"id":2}\r\n[1]\n"text"\n\nDebug: {"id":3}\n')
    await settle()
    assert rig.lines == [b'{"id":1}', b'\t {"id":2}', b"[1]"]
    assert rig.link.skipped == 4
    assert rig.lost == []
    rig.link.close()


@given(
    messages=st.lists(st.integers(0, 1000), max_size=10),
    cuts=st.lists(st.integers(1, 30), max_size=40),
)
def test_any_split_gives_the_same_lines(messages: list[int], cuts: list[int]) -> None:
    async def main() -> None:
        rig = Rig()
        stream = b"".join(b'{"id":%d}\nnoise\n' % number for number in messages)
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.link.run)
            for cut in cuts:
                piece, stream = stream[:cut], stream[cut:]
                rig.say(piece)
                await settle()
            rig.say(stream)
            await settle()
            rig.link.close()
        assert rig.lines == [b'{"id":%d}' % number for number in messages]
        assert rig.link.skipped == len(messages)

    trio.run(main)


async def test_a_line_over_the_cap_ends_a_stream_that_cannot_say_whose_it_was(nursery: trio.Nursery) -> None:
    rig = Rig()
    await nursery.start(rig.link.run)
    rig.say(b'{"id":1}\n{"text":"' + b"x" * 200 + b'"}\n{"id":2}\n')
    await settle()
    assert rig.lines == [b'{"id":1}']
    assert rig.lost == ["the peer sent a line longer than 100 bytes"]
    assert rig.link.too_long == 1


async def test_a_line_over_the_cap_costs_itself_where_somebody_is_told(nursery: trio.Nursery) -> None:
    told: list[LineTooLong] = []
    rig = Rig(on_too_long=told.append)
    await nursery.start(rig.link.run)
    rig.say(b'{"id":1}\n{"text":"' + b"x" * 200 + b'"}\n{"id":2}\n')
    await settle()
    assert rig.lines == [b'{"id":1}', b'{"id":2}']
    assert len(told) == rig.link.too_long == 1
    assert rig.lost == []
    rig.link.close()


async def test_a_large_line_arrives_whole(nursery: trio.Nursery) -> None:
    rig = Rig(max_line_bytes=1 << 24)
    await nursery.start(rig.link.run)
    line = b'{"text":"' + b"x" * (8 << 20) + b'"}'
    rig.say(line + b"\n")
    for _ in range(40):
        await settle()
    assert rig.lines == [line]
    rig.link.close()


async def test_a_flood_gives_everybody_else_their_turn(nursery: trio.Nursery) -> None:
    turns_at: list[int] = []
    rig = Rig()

    async def other() -> None:
        while len(rig.lines) < 5000:
            turns_at.append(len(rig.lines))
            await trio.lowlevel.checkpoint()

    rig.say(b"{}\n" * 5000)
    await nursery.start(rig.link.run)
    with trio.fail_after(5):
        async with trio.open_nursery() as others:
            others.start_soon(other)
    steps = [later - earlier for earlier, later in itertools.pairwise(turns_at)]
    assert len(rig.lines) == 5000
    assert max(steps) <= 128
    rig.link.close()


async def test_the_end_is_told_once(nursery: trio.Nursery) -> None:
    rig = Rig()
    await nursery.start(rig.link.run)
    rig.say(b'{"id":1}\n{"id":2}')
    rig.far.close_write()
    await settle()
    rig.link.close()
    await settle()
    assert rig.lines == [b'{"id":1}', b'{"id":2}'], "a whole last line counts without its newline"
    assert rig.lost == ["the peer closed the stream"]
    assert rig.link.ended
    with pytest.raises(WireClosed):
        rig.link.submit(b"{}", OpenGate(), None, lambda _: None)


async def test_what_never_began_is_known_when_the_end_is_told(autojump_clock: object) -> None:
    wire, far = memory_link_pair(capacity=4)
    facts: list[list[bool]] = []
    sent: list[Outgoing] = []
    link = StreamLink(
        wire,
        on_line=lambda _: None,
        on_lost=lambda _: facts.append([outgoing.begun for outgoing in sent]),
        seams=Seams(),
    )
    sent += [link.submit(b'{"id":%d}' % number, OpenGate(), None, lambda _: None) for number in range(3)]
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        await settle()
        far.close()
    assert facts == [[True, False, False]]
    assert link.waiting == 0


async def test_a_broken_callback_ends_the_stream_and_nothing_else(nursery: trio.Nursery) -> None:
    def broken(line: bytes) -> None:
        raise KeyError(line)

    rig = Rig(on_line=broken)
    await nursery.start(rig.link.run)
    rig.say(b'{"secret":1}\n{"id":2}\n')
    await settle()
    assert rig.lost == ["the stream failed inside: KeyError"]
    assert isinstance(rig.link.fault, KeyError)


async def test_a_line_that_ends_the_stream_is_the_last(nursery: trio.Nursery) -> None:
    taken: list[bytes] = []

    def take(line: bytes) -> None:
        taken.append(line)
        rig.link.close()

    rig = Rig(on_line=take)
    await nursery.start(rig.link.run)
    rig.say(b'{"id":1}\n{"id":2}\n')
    await settle()
    assert taken == [b'{"id":1}']
    assert rig.lost == ["closed by this side"]


async def test_waking_the_wire_loses_nothing(nursery: trio.Nursery) -> None:
    rig = Rig()
    await nursery.start(rig.link.run)
    await settle()
    rig.say(b'{"id":1}\n')
    rig.wire.wake()
    await settle()
    rig.wire.wake()
    rig.say(b'{"id":2}\n')
    await settle()
    assert rig.lines == [b'{"id":1}', b'{"id":2}']
    assert rig.lost == []
    rig.link.close()


async def test_a_cancelled_run_tells_the_end_too() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.link.run)
        nursery.cancel_scope.cancel()
    assert rig.lost == ["cancelled"]


async def test_closed_before_it_ran_it_ends_at_once() -> None:
    rig = Rig()
    rig.link.close()
    with trio.fail_after(5):
        await rig.link.run()
    assert rig.lost == ["closed by this side"]
    with pytest.raises(RuntimeError, match="once"):
        await rig.link.run()


async def test_our_own_closing_of_the_wire_ends_the_stream(nursery: trio.Nursery) -> None:
    rig = Rig()
    await nursery.start(rig.link.run)
    await settle()
    rig.wire.close()
    await settle()
    assert rig.lost == ["this side closed the connection"]


# The wire in memory itself.


async def test_memory_wires_bound_what_they_hold() -> None:
    near, far = memory_link_pair(capacity=5)
    message = Outgoing(b"abcdefgh", OpenGate())
    assert near.push([message]) == 5
    assert near.push([message]) == 0
    with trio.move_on_after(0) as scope:
        await near.writable()
    assert scope.cancelled_caught
    assert far.receive_nowait(3) == b"abc"
    with trio.fail_after(5):
        await near.writable()
    assert near.push([message]) == 3
    assert await far.receive() == b"defgh"
    assert far.receive_nowait() is None
    near.close()
    far.close()


async def test_memory_wires_follow_a_script() -> None:
    near, _far = memory_link_pair()
    near.script([0, 2])
    message = Outgoing(b"abc", OpenGate())
    assert [near.push([message]) for _ in range(4)] == [0, 2, 1, 0]
    assert near.writes == 2


@pytest.mark.parametrize("end", ["close", "close_write"])
async def test_memory_wires_end_like_pipes(end: str) -> None:
    near, far = memory_link_pair()
    assert near.alive()
    assert far.alive()
    near.push([Outgoing(b"last", OpenGate())])
    getattr(near, end)()
    assert not near.alive()
    assert far.alive() == (end == "close_write"), "unread bytes are no fault"
    assert await far.receive() == b"last"
    assert await far.receive() == b""
    assert not far.alive()
    with pytest.raises(WireClosed) as local:
        near.push([Outgoing(b"x", OpenGate())])
    assert local.value.local
    if end == "close":
        with pytest.raises(WireClosed) as remote:
            far.push([Outgoing(b"x", OpenGate())])
        assert not remote.value.local
        with pytest.raises(WireClosed):
            await near.receive()
    else:
        assert far.push([Outgoing(b"back", OpenGate())]) == 4
        assert await near.receive() == b"back"


async def test_memory_wires_let_one_task_wait_per_side(nursery: trio.Nursery) -> None:
    near, _far = memory_link_pair()

    async def wait(outcome: list[str]) -> None:
        try:
            await near.receive()
        except WireClosed:
            outcome.append("closed")

    outcome: list[str] = []
    nursery.start_soon(wait, outcome)
    await settle()
    with pytest.raises(trio.BusyResourceError):
        await near.receive()
    near.close()
    await settle()
    assert outcome == ["closed"]


def test_a_memory_wire_holds_something() -> None:
    with pytest.raises(ValueError, match="capacity"):
        memory_link_pair(capacity=0)
    assert isinstance(memory_link_pair()[0], MemoryWire)
