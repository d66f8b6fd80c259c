"""^C and other signals, taken at one place instead of anywhere.

Python raises KeyboardInterrupt between any two instructions. Where that would lose bytes that were read, or
leave half a frame on the wire, the signal is noted instead, wakes the `select` that waits, and is raised at
the end of the block.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextmanager
def guarded(*, interrupts: bool = True, resized: bool = False) -> Iterator[list[socket.socket]]:
    """Hold ^C back for the time of the block, and raise it at the end.

    Args:
        interrupts: Give what a `select` of the block waits for as well, so that ^C ends it.
        resized: A change of the terminal's size wakes the block, too.

    Yields:
        What can be read once a signal has come. In any other thread than the main one nothing is held back,
        since none of them gets a signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    caught = False

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- as a signal calls it
        nonlocal caught
        caught = True

    def wake(number: int, frame: FrameType | None) -> None:
        pass

    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):
        yield []
        return
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        theirs.setblocking(False)
        signal.signal(signal.SIGINT, note)
        size = signal.signal(signal.SIGWINCH, wake) if resized else None
        woken = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield [ours] if interrupts else []
        finally:
            signal.set_wakeup_fd(woken)
            signal.signal(signal.SIGINT, before)
            if resized:
                signal.signal(signal.SIGWINCH, size)
    finally:
        ours.close()
        theirs.close()
    if caught:
        raise KeyboardInterrupt
