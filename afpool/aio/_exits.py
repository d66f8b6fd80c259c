"""What becomes of runtimes that nobody has closed: at the interpreter's exit, and in the child of a fork.

Threads that are still there when the interpreter goes are stopped wherever they are; so each open runtime is
asked to close beforehand, all at once, and waited for within a bound. The child of a fork has the objects and
not the thread: there a runtime is gone, so that whoever calls is refused instead of waiting for ever.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._bridge import Bridge

_open: weakref.WeakSet[Bridge] = weakref.WeakSet()


def watch(bridge: Bridge) -> None:
    """See that it is closed in the end."""
    _open.add(bridge)


@atexit.register
def close_all() -> None:
    """Close what is open, each within its own bound."""
    left = [bridge for bridge in _open if not bridge.gone]
    for bridge in left:
        bridge.abandon()
    began = time.monotonic()
    for bridge in left:
        bridge.join(bridge.patience - (time.monotonic() - began))


def _after_fork() -> None:
    for bridge in list(_open):
        bridge.forked()


os.register_at_fork(after_in_child=_after_fork)
