"""HTTP+SSE: the answer comes on the stream in the very step in which its POST ends in some other way."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from afpool import PoolClosed
from afpool.client._control import Nothing
from afpool.client._sse_channel import SseChannel
from afpool.client._trip import Rpc
from afpool.protocol import body_kind
from afpool.transports import BadHttp, Truncated, WireClosed, Woken


class Post:
    """An exchange that ends as it is told, after `first` was done in the same step."""

    def __init__(self, sink, end, first):
        self.sink = sink
        self.end = end
        self.first = first
        self.begun = self.held = False
        self.closed = 0

    async def run(self, gate, deadline):
        await trio.lowlevel.checkpoint()
        self.begun = True
        self.first()
        if isinstance(self.end, BaseException):
            raise self.end
        status, headers, body = (self.end, [], b"") if isinstance(self.end, int) else self.end
        self.sink.head(status, headers)
        self.sink.data(body)

    def wake(self):
        """The end had been read already."""

    def close(self):
        self.closed += 1


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


async def test_a_wake_while_the_answer_is_waited_for_is_passed_on_and_an_answer_goes_first():
    trip = channel(202, answers=False).trip(Rpc("tools/call", b"{}"), [])
    ended = []

    async def run():
        with pytest.raises(Woken):
            await trip.run(Nothing(), float("inf"))
        ended.append(trip.over)

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            trip.wake()
    assert ended == [False]  # who woke it decides whether it is waited for any more


async def test_a_stream_that_is_lost_while_its_post_is_under_way_is_what_happened():
    made = channel(Woken(), answers=False)
    trip = made.trip(Rpc("tools/call", b"{}"), [])
    assert not trip.over
    made.link.first = lambda _: trip.failed(WireClosed("the stream ended", local=False))
    with pytest.raises(WireClosed, match="the stream ended"):
        await trip.run(Nothing(), float("inf"))
    assert trip.over
    another = made.trip(Rpc("tools/call", b"{}"), [])
    another.failed(WireClosed("the stream ended", local=False))
    assert another.over  # before its task has had its turn


async def test_what_a_post_is_answered_with_beside_an_answer_is_heard():
    notice = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    heard = []
    made = channel((200, [(b"content-type", b"application/json")], notice), answers=False)
    made.on_message = heard.append
    trip = made.trip(Rpc("tools/call", b"{}"), [])
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trip.run, Nothing(), float("inf"))
            await trio.testing.wait_all_tasks_blocked()
            assert [message.method for message in heard] == ["notifications/tools/list_changed"]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("status", "kind"), [(200, "application/json"), (404, "text/event-stream"), (404, "application/json")]
)
async def test_an_opening_that_gets_no_event_stream_is_answered_as_it_is(status, kind):
    body = b'{"error": "none here"}'
    made = channel((status, [(b"content-type", kind.encode())], body), answers=False)
    made.open = False
    opening = made.trip(Rpc("", lane="stream"), [])
    answer = await opening.run(Nothing(), float("inf"))
    assert (answer.status, answer.kind, answer.hint) == (status, body_kind(kind.encode()), body)
    assert not made.open


async def test_an_opening_whose_stream_is_read_on_leaves_its_connection_open():
    spawned = []
    made = channel(Woken(), answers=False)
    made._spawn = lambda *given: spawned.append(given)
    opening = made.trip(Rpc("", lane="stream"), [])
    opening._exchange.held = True
    assert not opening.over
    await opening.run(Nothing(), float("inf"))
    opening.close()
    assert (opening.over, opening._exchange.closed, len(spawned)) == (True, 0, 1)


async def test_an_opening_that_is_given_up_closes_its_connection():
    made = channel(Woken(), answers=False)
    made.open = False
    opening = made.trip(Rpc("", lane="stream"), [])
    with pytest.raises(Woken):
        await opening.run(Nothing(), float("inf"))
    opening.close()
    assert opening._exchange.closed == 1


async def test_in_a_pool_that_closes_no_post_is_read_to_its_end():
    def spawn(*_):
        raise PoolClosed("closing")

    made = SseChannel(Link(None, None), b"/sse", [], 1 << 20, spawn)
    post = Post(None, None, None)
    made.read_out(post)
    assert post.closed == 1


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
