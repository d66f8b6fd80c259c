"""What leaves, in which write, and what does not."""

from __future__ import annotations

import contextvars
import json
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.errors import StaleTools
from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.transports._memory import MemoryWire, memory_link_pair
from afpool.transports._stream import LAST_WORDS, StreamLink
from afpool.transports._wire import MAX_JOINED, Outgoing, WireClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Switch:
    """A gate that a test closes."""

    def __init__(self, *, shut: bool = False, on_ask: Callable[[], None] | None = None) -> None:
        self.shut = shut
        self.asked = 0
        self.begun = 0
        self.late = 0
        self.on_ask = on_ask

    def ask(self, stage: str, /) -> None:
        assert stage == "write"
        self.asked += 1
        if self.on_ask is not None:
            self.on_ask()
        if self.shut:
            raise StaleTools("the list changed")

    def began(self) -> None:
        self.begun += 1
        self.late += self.shut


class CountingWire(MemoryWire):
    """Notes every push that had something to push."""

    pushes: list[int]

    def push(self, batch: Sequence[Outgoing]) -> int:
        self.pushes.append(len(batch))
        return super().push(batch)


class Rig:
    def __init__(self, capacity: int = 64 * 1024) -> None:
        plain, self.far = memory_link_pair(capacity=capacity)
        self.wire = CountingWire(plain._incoming, plain._outgoing)
        self.wire.pushes = []
        self.lines: list[bytes] = []
        self.lost: list[str] = []
        self.gone: list[Outgoing] = []
        self.link = StreamLink(
            self.wire,
            on_line=self.lines.append,
            on_lost=self.lost.append,
            max_line_bytes=1 << 20,
            seams=Seams(),
        )

    def submit(self, data: bytes, gate: object = None) -> Outgoing:
        return self.link.submit(data, gate or OpenGate(), None, self.gone.append)  # type: ignore[arg-type]

    def arrived(self) -> bytes:
        out = b""
        while chunk := self.far.receive_nowait():
            out += chunk
        return out


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def settle() -> None:
    with trio.fail_after(5):
        await trio.testing.wait_all_tasks_blocked()


async def test_what_is_submitted_in_one_tick_leaves_in_one_write(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    await nursery.start(rig.link.run)
    await settle()
    for number in range(50):
        rig.submit(b'{"id":%d}' % number)
    assert rig.arrived() == b"", "submitting sends nothing"
    await settle()
    assert rig.wire.pushes == [50]
    assert rig.wire.writes == 1
    assert rig.arrived() == b"".join(b'{"id":%d}\n' % number for number in range(50))
    assert rig.link.waiting == 0
    rig.link.close()


async def test_a_batch_is_bounded(nursery: trio.Nursery, autojump_clock: object) -> None:
    rig = Rig(capacity=1 << 22)
    await nursery.start(rig.link.run)
    body = b"{" + b"x" * (MAX_JOINED // 4)
    for _ in range(8):
        rig.submit(body)
    big = rig.submit(b"{" + b"y" * (2 * MAX_JOINED))
    await settle()
    assert big.done
    assert rig.wire.pushes == [3, 3, 2, 1]
    rig.link.close()


async def test_a_refusal_in_the_middle_leaves_its_neighbours_alone(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    await nursery.start(rig.link.run)
    gates = [Switch(), Switch(shut=True), Switch()]
    sent = [rig.submit(b'{"id":%d}' % number, gate) for number, gate in enumerate(gates)]
    await settle()
    assert rig.arrived() == b'{"id":0}\n{"id":2}\n'
    assert [gate.begun for gate in gates] == [1, 0, 1]
    assert rig.gone == [sent[1]]
    assert isinstance(sent[1].refusal, StaleTools)
    assert not sent[1].begun
    assert rig.link.withdraw(sent[1]), "nothing of it left or will"
    assert rig.link.waiting == 0
    rig.link.close()


async def test_a_batch_that_is_refused_whole_does_not_stop_the_writer(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    await nursery.start(rig.link.run)
    for _ in range(3):
        rig.submit(b"{}", Switch(shut=True))
    await settle()
    rig.submit(b'{"id":9}')
    await settle()
    assert rig.arrived() == b'{"id":9}\n'
    assert len(rig.gone) == 3
    rig.link.close()


async def test_what_the_kernel_did_not_take_is_asked_again(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    first, second = Switch(), Switch()
    rig.wire.script([4])  # the first begins, the second does not
    begun = rig.submit(b'{"id":1}', first)
    behind = rig.submit(b'{"id":2}', second)

    def close_both() -> None:
        first.shut = second.shut = True

    second.on_ask = close_both
    # The first push asks both, and closes both gates as it asks the second: the first has passed by then.
    await nursery.start(rig.link.run)
    await settle()
    assert rig.gone == [behind]
    assert begun.done
    assert first.asked == 1, "one that has begun is finished without asking"
    assert rig.arrived() == b'{"id":1}\n'
    rig.link.close()


async def test_a_gate_that_closes_while_the_kernel_is_full_keeps_its_message(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    rig = Rig(capacity=16)
    await nursery.start(rig.link.run)
    rig.submit(b"{" + b"a" * 40)
    gate = Switch()
    behind = rig.submit(b'{"id":2}', gate)
    await settle()
    assert gate.asked > 0
    gate.shut = True
    received = b""
    for _ in range(10):
        received += rig.arrived()
        await settle()
    assert received == b"{" + b"a" * 40 + b"\n"
    assert rig.gone == [behind]
    rig.link.close()


async def test_submitting_does_not_wait_for_a_full_kernel(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    rig = Rig(capacity=8)
    await nursery.start(rig.link.run)
    for number in range(20):
        rig.submit(b'{"id":%d}' % number)
        await settle()
    assert rig.link.waiting >= 19
    received = b""
    while rig.link.waiting or rig.far._incoming.buffer:
        received += rig.arrived()
        await settle()
    assert received == b"".join(b'{"id":%d}\n' % number for number in range(20))
    rig.link.close()


async def test_withdrawing_before_the_first_byte(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    await nursery.start(rig.link.run)
    gate = Switch()
    kept = rig.submit(b'{"id":1}')
    withdrawn = rig.submit(b'{"id":2}', gate)
    assert rig.link.withdraw(withdrawn)
    await settle()
    assert rig.arrived() == b'{"id":1}\n'
    assert gate.asked == gate.begun == 0
    assert not rig.link.withdraw(kept), "it is out"
    rig.link.close()


async def test_a_begun_message_is_finished_though_its_caller_is_cancelled(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    rig = Rig(capacity=10)
    await nursery.start(rig.link.run)
    body = json.dumps({"id": 1, "text": "x" * 100}).encode()
    verdicts: list[bool] = []

    async def caller() -> None:
        outgoing = rig.submit(body)
        try:
            await trio.sleep_forever()
        finally:
            verdicts.append(rig.link.withdraw(outgoing))

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as callers:
            callers.start_soon(caller)
            await settle()
            scope.cancel()
    assert verdicts == [False]
    received = b""
    while rig.link.waiting or rig.far._incoming.buffer:
        received += rig.arrived()
        await settle()
    assert received == body + b"\n"
    rig.link.close()


async def test_withdrawing_inside_a_gate_promises_nothing(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    answers: list[bool] = []
    first = rig.submit(b'{"id":1}')
    rig.submit(b'{"id":2}', Switch(on_ask=lambda: answers.append(rig.link.withdraw(first))))
    await nursery.start(rig.link.run)
    await settle()
    assert answers == [False]
    assert first.done
    rig.link.close()


async def test_the_gate_is_asked_in_the_context_of_its_call(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    seen: list[str] = []
    context = contextvars.copy_context()
    context.run(WHO.set, "alice")
    await nursery.start(rig.link.run)
    rig.link.submit(b"{}", Switch(on_ask=lambda: seen.append(WHO.get())), context, rig.gone.append)
    rig.submit(b"{}", Switch(on_ask=lambda: seen.append(WHO.get())))
    await settle()
    assert seen == ["alice", "nobody"]
    rig.link.close()


async def test_a_newline_in_a_message_is_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="newline"):
        rig.submit(b'{"id":1}\n{"id":2}')
    assert rig.link.waiting == 0


@pytest.mark.parametrize("woken_first", [True, False])
async def test_nothing_leaves_after_close(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object, *, woken_first: bool
) -> None:
    await nursery.start(rig.link.run)
    await settle()
    if woken_first:  # the writer is on its way already when the link is closed
        rig.submit(b'{"id":1}')
    rig.link.close()
    with pytest.raises(WireClosed):
        rig.submit(b'{"id":2}')
    await settle()
    assert rig.arrived() == b""
    assert rig.lost == ["closed by this side"]
    rig.link.close()
    await settle()
    assert len(rig.lost) == 1


async def test_a_gate_that_closes_the_link_keeps_everything_back(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    def end_it() -> None:
        rig.link.close()
        rig.wire.close()

    sent = [rig.submit(b'{"id":1}'), rig.submit(b'{"id":2}', Switch(on_ask=end_it))]
    await nursery.start(rig.link.run)
    await settle()
    assert not any(outgoing.begun for outgoing in sent)
    assert rig.lost == ["closed by this side"]


async def test_a_peer_that_takes_no_more_bytes_is_still_heard(
    rig: Rig, nursery: trio.Nursery, autojump_clock: object
) -> None:
    await nursery.start(rig.link.run)
    await settle()
    rig.wire._outgoing.reader_gone = True
    unsent = rig.submit(b'{"id":2}')
    await settle()
    assert rig.lost == []
    with pytest.raises(WireClosed):
        rig.submit(b'{"id":3}')
    rig.far.push([Outgoing(b'{"id":1,"result":{}}\n', OpenGate())])
    await settle()
    assert rig.lines == [b'{"id":1,"result":{}}']
    started = trio.current_time()
    with trio.fail_after(5):
        while not rig.lost:  # noqa: ASYNC110  (the clock jumps)
            await trio.sleep(0.1)
    assert trio.current_time() - started <= LAST_WORDS + 0.1
    assert rig.lost == ["the other end is closed"]
    assert not unsent.begun


async def test_a_rival_that_closes_the_gate_always_wins(nursery: trio.Nursery) -> None:
    rig = Rig()
    await nursery.start(rig.link.run)
    await settle()
    for _ in range(200):
        gate = Switch()

        async def rival(gate: Switch = gate) -> None:
            gate.shut = True

        outgoing = rig.submit(b'{"late":1}', gate)
        async with trio.open_nursery() as rivals:
            rivals.start_soon(rival)
        await settle()
        assert gate.shut
        assert gate.late == 0
        assert outgoing.begun == (gate.begun == 1)
        if not outgoing.begun:
            assert rig.gone.pop() is outgoing
        else:
            # The writer's turn came before the rival's: it left through an open gate.
            assert rig.arrived() == b'{"late":1}\n'
    rig.link.close()


@given(
    takes=st.lists(st.integers(0, 40), max_size=30),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    shut=st.sets(st.integers(0, 11)),
    capacity=st.integers(1, 80),
)
def test_whatever_the_kernel_takes_only_whole_open_messages_arrive_in_order(
    takes: list[int], sizes: list[int], shut: set[int], capacity: int
) -> None:
    async def main() -> None:
        rig = Rig(capacity=capacity)
        rig.wire.script(takes)
        bodies = [b"{" + b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.link.run)
            sent = [rig.submit(body, Switch(shut=number in shut)) for number, body in enumerate(bodies)]
            received = b""
            with trio.fail_after(20):
                while rig.link.waiting or rig.far._incoming.buffer:
                    received += rig.arrived()
                    await settle()
            rig.link.close()
        wanted = [body for number, body in enumerate(bodies) if number not in shut]
        assert received == b"".join(body + b"\n" for body in wanted)
        assert [outgoing.done for outgoing in sent] == [number not in shut for number in range(len(sizes))]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
