"""What a peer of a shared stream can make us hold: an outbox with an end, and work that is linear."""

from __future__ import annotations

import pytest
import trio

from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.transports import StreamLink, WireClosed, memory_link_pair
from afpool.transports._stream import MAX_OUTBOX


async def test_a_peer_that_reads_nothing_costs_itself_the_stream():
    ours, theirs = memory_link_pair(capacity=100)
    lost: list[str] = []
    link = StreamLink(ours, on_line=lambda line: None, on_lost=lost.append, seams=Seams())
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        for _ in range(MAX_OUTBOX):
            link.submit(b"{}" * 50, OpenGate(), None, lambda gone: None)
        assert not link.ended
        with pytest.raises(WireClosed, match="too many messages wait"):
            link.submit(b"{}", OpenGate(), None, lambda gone: None)
        with pytest.raises(WireClosed):
            link.submit(b"{}", OpenGate(), None, lambda gone: None)
    assert lost == ["the peer reads nothing, and too many messages wait for it"]
    assert link.waiting == 0
    theirs.close()


async def test_a_peer_that_reads_again_in_time_gets_everything():
    ours, theirs = memory_link_pair(capacity=100)
    link = StreamLink(ours, on_line=lambda line: None, on_lost=lambda why: None, seams=Seams())
    got = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        for _ in range(3):
            for _ in range(MAX_OUTBOX):
                link.submit(b"{}", OpenGate(), None, lambda gone: None)
            with trio.fail_after(20):
                while link.waiting:
                    got += len(await theirs.receive(64))
        link.close()
    while (rest := theirs.receive_nowait()) is not None and rest:
        got += len(rest)
    assert got == 3 * MAX_OUTBOX * 3
    theirs.close()
