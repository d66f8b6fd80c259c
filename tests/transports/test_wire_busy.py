"""Two tasks in one wire: the second is refused, the first is still woken by whoever closes or wakes it."""

from __future__ import annotations

import os
import socket

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from afpool.transports import WireClosed, Woken
from afpool.transports._memory import memory_link_pair
from afpool.transports._wire import PipeWire, SocketWire, Wire


def socket_wire() -> tuple[Wire, object]:
    ours, theirs = socket.socketpair()
    return SocketWire(ours), theirs


class Ends:
    """The far ends of two pipes."""

    def __init__(self, *fds: int) -> None:
        self.fds = fds

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def pipe_wire() -> tuple[Wire, object]:
    child_in, ours_out = os.pipe()
    ours_in, child_out = os.pipe()
    return PipeWire(ours_out, ours_in), Ends(child_in, child_out)


@pytest.mark.parametrize("make", [socket_wire, pipe_wire, memory_link_pair])
@pytest.mark.parametrize("end", ["close", "wake"])
async def test_the_first_one_is_woken_although_a_second_one_tried(make, end):
    wire, other = make()
    ended: list[type[BaseException]] = []

    async def receive() -> None:
        try:
            await wire.receive()
        except (WireClosed, Woken) as error:
            ended.append(type(error))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await wire.receive()
            getattr(wire, end)()
    assert ended == [WireClosed if end == "close" else Woken]
    wire.close()
    other.close()
