"""What the tests of sinks share: a pool's records without a pool, uses, writers that do as they are told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import attrs
import trio

from afpool import Identity
from afpool._base.identity import KeyDigest, encode_key
from afpool._base.seams import Seams
from afpool._base.use import Use
from afpool.pool._records import Records
from afpool.record._queue import Block, Written

if TYPE_CHECKING:
    from collections.abc import Callable

WHO = Identity(tenant="acme", principal="alice", conversation_id="c-1")


class Source:
    """What a sink sees of a pool: records, digests, seams. Threads are steps of the loop, behind a gate.

    Attributes:
        gate: What runs in a thread begins when this is set.
    """

    def __init__(self, **seams: Any) -> None:
        self.gate = trio.Event()
        self.gate.set()
        now = trio.lowlevel.current_clock().current_time
        self.seams = Seams(
            **{"now": now, "unix_now": lambda: 1e9 + now(), "in_thread": self.in_thread, **seams}
        )
        self.digest = KeyDigest(b"0123456789abcdef")
        self.records = Records(100, 2**20, self.seams.now, {})

    async def in_thread(self, work: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
        async with limiter:
            await self.gate.wait()
            await trio.lowlevel.checkpoint()
            return work()


def use(call_id: str = "call-1", *, began: float = 0.0, lasted: float = 0.25, **members: Any) -> Use:
    """A call of a tool that ended well, with `members` set to something else."""
    made = Use(call_id, "search", "find", began)
    made.key = encode_key("search", WHO)
    made.who = WHO
    made.marks = ["start", began, "leased", began + lasted / 5, "answered", began + lasted]
    made.ended_at = began + lasted
    made.outcome = "ok"
    made.delivery = "answered"
    for name, value in members.items():
        setattr(made, name, value)
    return made


@attrs.define(eq=False)
class Hand:
    """A writer that keeps what it is given; `does` may do otherwise."""

    does: Callable[[list[Block]], Written | None] | None = None
    got: list[Any] = attrs.field(factory=list)
    writes: int = 0
    closed: bool = False
    threads: set[int] = attrs.field(factory=set)

    def write(self, batch: list[Block]) -> Written:
        self.threads.add(threading.get_ident())
        self.writes += 1
        told = Written() if (told := None if self.does is None else self.does(batch)) is None else told
        self.got += [block.data for block in batch[: len(batch) - len(told.rest)]]
        return told

    def close(self) -> None:
        self.closed = True


async def settled(until: Callable[[], bool]) -> None:
    """Let the clock run until something is so."""
    with trio.fail_after(3600):
        while not until():  # noqa: ASYNC110 -- on a clock that jumps
            await trio.sleep(0.1)
