"""Batches against a scripted kernel: what leaves, whom the count is given to, who is asked."""

from __future__ import annotations

import contextvars

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool._base.errors import StaleTools
from afpool.transports._wire import MAX_JOINED, Outgoing, Wire
from tests.transports.wire_kit import SwitchGate


class ScriptedKernel(Wire):
    """A wire whose kernel takes what a script says."""

    __slots__ = ("script", "taken", "writes")

    def __init__(self, script: list[int]) -> None:
        super().__init__()
        self.script = script
        self.taken = bytearray()
        self.writes: list[int] = []

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        size = min(len(data), self.script.pop(0)) if self.script else len(data)
        self.writes.append(len(data))
        self.taken += data[:size]
        return size

    def receive_nowait(self, max_bytes: int = 65536) -> bytes | None:
        return None

    def alive(self) -> bool:
        return True

    def _read_fd(self) -> int:
        return -1

    def _write_fd(self) -> int:
        return -1

    def _unpark(self) -> None:
        pass

    def _close_fds(self) -> None:
        pass


class CountingGate(SwitchGate):
    """Closes after it was passed so many times."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self.passes = passes

    def ask(self, stage: str, /) -> None:
        assert not self.begun, "a message that has begun is asked no more"
        self.closed = len(self.asked) >= self.passes
        super().ask(stage)


@attrs.frozen
class Plan:
    data: bytes
    passes: int


plans = st.lists(
    st.builds(Plan, data=st.binary(max_size=40), passes=st.integers(0, 4)), min_size=1, max_size=8
)
scripts = st.lists(st.integers(0, 60), max_size=30)


@settings(deadline=None)
@given(plans, scripts)
def test_what_leaves_is_exactly_what_the_gates_let_through(plan, script):
    wire = ScriptedKernel(list(script))
    batch = [Outgoing(each.data, CountingGate(each.passes)) for each in plan]
    for _ in range(len(script) + len(plan) + 2):
        before = len(wire.taken)
        assert wire.push(batch) == len(wire.taken) - before
    for message in batch:
        assert message.done or message.refusal is not None
        assert message.begun == bool(message.sent)
        assert message.gate.begun == int(message.begun)
        if message.refusal is not None:
            assert isinstance(message.refusal, StaleTools)
            assert message.sent == 0
    # In order, whole, and nothing of a refused one in between.
    assert bytes(wire.taken) == b"".join(m.data for m in batch if m.refusal is None)


@settings(deadline=None)
@given(plans, scripts)
def test_every_write_holds_only_messages_whose_gate_was_passed_in_that_step(plan, script):
    wire = ScriptedKernel(list(script))
    batch = [Outgoing(each.data, CountingGate(each.passes)) for each in plan]
    for _ in range(len(script) + len(plan) + 2):
        left = [(m, len(m.data) - m.sent, m.begun, len(m.gate.asked)) for m in batch if not m.done]
        writes = len(wire.writes)
        wire.push(batch)
        offered = sum(
            size
            for m, size, begun, asked in left
            if begun or (len(m.gate.asked) == asked + 1 and m.refusal is None)
        )
        assert wire.writes[writes:] == ([offered] if offered else [])


def test_a_refused_message_in_the_middle_is_left_out_of_one_write():
    wire = ScriptedKernel([])
    gates = [SwitchGate(), SwitchGate(closed=True), SwitchGate()]
    batch = [Outgoing(b"one|", gates[0]), Outgoing(b"two|", gates[1]), Outgoing(b"three", gates[2])]
    assert wire.push(batch) == 9
    assert bytes(wire.taken) == b"one|three"
    assert [m.done for m in batch] == [True, False, True]
    assert isinstance(batch[1].refusal, StaleTools)
    assert [g.begun for g in gates] == [1, 0, 1]
    assert wire.writes == [9]


def test_a_short_write_leaves_the_messages_behind_it_unbegun_and_asks_them_again():
    wire = ScriptedKernel([6, 0])
    gates = [SwitchGate(), SwitchGate(), SwitchGate()]
    batch = [Outgoing(b"aaaa", gates[0]), Outgoing(b"bbbb", gates[1]), Outgoing(b"cccc", gates[2])]
    assert wire.push(batch) == 6
    assert [m.sent for m in batch] == [4, 2, 0]
    assert [g.begun for g in gates] == [1, 1, 0]
    gates[1].closed = gates[2].closed = True
    assert wire.push(batch) == 0
    assert [len(g.asked) for g in gates] == [1, 1, 2]
    assert wire.push(batch) == 2
    assert bytes(wire.taken) == b"aaaabbbb"


def test_writes_are_joined_up_to_a_bound_and_a_larger_message_goes_alone():
    wire = ScriptedKernel([])
    piece = MAX_JOINED // 2
    batch = [Outgoing(b"a" * piece, SwitchGate()) for _ in range(3)]
    assert wire.push(batch) == 2 * piece
    assert batch[2].gate.asked == [], "it is not in this write, so it is not asked in this step"
    large = Outgoing(b"l" * (3 * MAX_JOINED), SwitchGate())
    assert wire.push([large, batch[2]]) == 3 * MAX_JOINED
    assert batch[2].gate.asked == []


def test_an_error_that_is_no_refusal_of_ours_still_keeps_the_message_back():
    class Broken(SwitchGate):
        def ask(self, stage: str, /) -> None:
            raise LookupError("a bug in the host's code")

    wire = ScriptedKernel([])
    batch = [Outgoing(b"one", Broken()), Outgoing(b"two", SwitchGate())]
    assert wire.push(batch) == 3
    assert bytes(wire.taken) == b"two"
    assert isinstance(batch[0].refusal, LookupError)


who: contextvars.ContextVar[str] = contextvars.ContextVar("who")


class ContextGate(SwitchGate):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def ask(self, stage: str, /) -> None:
        self.seen.append(who.get("nobody"))


async def test_a_gate_is_asked_in_the_context_of_its_message():
    alice = contextvars.copy_context()
    alice.run(who.set, "alice")
    gates = [ContextGate(), ContextGate()]
    who.set("writer")
    ScriptedKernel([]).push([Outgoing(b"a", gates[0], alice), Outgoing(b"b", gates[1])])
    assert [g.seen for g in gates] == [["alice"], ["writer"]]


async def test_a_message_may_name_the_context_that_is_running():
    gate = ContextGate()
    who.set("alice")
    message = Outgoing(b"a", gate, trio.lowlevel.current_task().context)
    assert ScriptedKernel([]).push([message]) == 1
    assert message.refusal is None
    assert gate.seen == ["alice"]


async def test_sending_nothing_returns():
    with trio.fail_after(5):
        wire = ScriptedKernel([])
        await wire.send(b"", SwitchGate())
        assert wire.writes == []


@pytest.mark.parametrize("script", [[3, 0, 2], [0, 0, 10], []])
async def test_send_pushes_until_all_is_out(script):
    with trio.fail_after(5):
        wire = ScriptedKernel(list(script))
        gate = SwitchGate()
        await wire.send(b"0123456789", gate)
        assert bytes(wire.taken) == b"0123456789"
        assert gate.begun == 1
