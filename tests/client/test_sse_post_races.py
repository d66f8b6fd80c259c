"""HTTP+SSE: the answer comes on the stream in the very step in which its POST ends in some other way."""

from __future__ import annotations

import json

import pytest
import trio

from afpool.client._control import Nothing
from afpool.client._sse_channel import SseChannel
from afpool.client._trip import Rpc
from afpool.transports import BadHttp, Truncated, WireClosed, Woken


class Post:
    """An exchange that ends as it is told, after `first` was done in the same step."""

    def __init__(self, sink, end, first):
        self.sink = sink
        self.end = end
        self.first = first
        self.begun = self.held = False

    async def run(self, gate, deadline):
        await trio.lowlevel.checkpoint()
        self.begun = True
        self.first()
        if isinstance(self.end, BaseException):
            raise self.end
        self.sink.head(self.end, [])

    def wake(self):
        """The end had been read already."""

    def close(self):
        """Nothing is open."""


class Link:
    def __init__(self, end, first):
        self.end = end
        self.first = first

    def exchange(self, request, sink, lane):
        return Post(sink, self.end, lambda: self.first(request))


def channel(end, *, answers):
    def first(request):
        if answers:
            message = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": {"ok": True}}
            made.event(Event(json.dumps(message).encode()))

    made = SseChannel(Link(end, first), b"/messages", [], 1 << 20, lambda *_: None)
    made.open = True
    return made


class Event:
    event = "message"
    id = None
    retry = None

    def __init__(self, data):
        self.data = data


ENDS = [
    WireClosed("cut", local=False),
    Truncated("cut"),
    BadHttp("no HTTP"),
    400,
    500,
    202,
]


@pytest.mark.parametrize("end", ENDS, ids=repr)
async def test_an_answer_that_came_is_the_answer_however_its_post_ended(end):
    trip = channel(end, answers=True).trip(Rpc("tools/call", b"{}"), [])
    with trio.fail_after(1):
        answer = await trip.run(Nothing(), float("inf"))
    assert answer.status is None
    assert answer.message is not None
    assert json.loads(bytes(answer.message.result)) == {"ok": True}
    assert trip.over


@pytest.mark.parametrize("end", ENDS[:3], ids=repr)
async def test_without_an_answer_the_end_of_the_post_is_the_end(end):
    trip = channel(end, answers=False).trip(Rpc("tools/call", b"{}"), [])
    with pytest.raises(type(end)):
        await trip.run(Nothing(), float("inf"))
    assert trip.over


@pytest.mark.parametrize("status", [400, 500])
async def test_without_an_answer_a_refusal_is_the_answer(status):
    trip = channel(status, answers=False).trip(Rpc("tools/call", b"{}"), [])
    assert (await trip.run(Nothing(), float("inf"))).status == status


async def test_a_wake_before_any_answer_is_passed_on():
    trip = channel(Woken(), answers=False).trip(Rpc("tools/call", b"{}"), [])
    with pytest.raises(Woken):
        await trip.run(Nothing(), float("inf"))


async def test_a_stream_that_was_closed_before_its_reader_had_a_turn_has_ended():
    class Closed:
        """An exchange that its client closed while it was handed over."""

        held = False

        async def finish(self):
            raise RuntimeError("only an exchange that is held can be finished")

        def close(self):
            """It is."""

    spawned = []
    lost = []
    made = SseChannel(Link(None, None), b"/sse", [], 1 << 20, lambda *given: spawned.append(given))
    made.on_lost = lost.append
    made.read_on(Closed())
    ((read, exchange),) = spawned
    await read(exchange)
    assert lost == ["the event stream ended"]
