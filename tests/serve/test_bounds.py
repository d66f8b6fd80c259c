"""What one client can make the service keep: bytes, streams, places; and for how long after its proof."""

from __future__ import annotations

import json
import resource

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed

from afpool import Identity
from afpool.config import ServeConfig
from afpool.serve._asked import Asked
from afpool.serve._kernel import LISTS_AT_ONCE
from afpool.serve._listener import listener_limits
from afpool.serve._listening import MAX_OF_ONE, Listening
from afpool.serve._proof_types import Proven
from afpool.serve._rpc import RpcError, read_message
from afpool.serve._sockets import raise_descriptors
from afpool.serve._streams import BYTES, Reply
from afpool.serve._turns import Turns
from afpool.serve._websocket import SocketOutlet
from afpool.testing import echo_tool, input_tool
from tests.serve.serve_kit import ALICE, BOB, place, until
from tests.serve.test_stateless import FORM
from tests.serve.test_ways_in import hanging, talking

PROVEN = Proven(Identity("a", "b"), "test")


class Held:
    def __init__(self):
        self.killed = 0

    def kill(self):
        self.killed += 1


async def test_what_is_said_to_a_client_that_does_not_read_is_bounded_in_bytes():
    async def stuck(event):
        await trio.sleep_forever()

    held = Held()
    async with trio.open_nursery() as nursery:
        reply = Reply(stuck, nursery, held, takes_json=True, takes_events=True)
        piece = b"x" * (BYTES // 4)
        for _ in range(20):
            reply.tell(piece, droppable=True)
        assert sum(map(len, reply._said)) <= BYTES
        assert held.killed == 0
        for _ in range(20):
            reply.tell(piece, droppable=False)
        assert held.killed == 1
        assert sum(map(len, reply._said)) <= BYTES
        # what is larger by itself is said all the same
        other = Reply(stuck, nursery, held, takes_json=True, takes_events=True)
        other.tell(b"x" * (2 * BYTES), droppable=False)
        assert sum(map(len, other._said)) > BYTES
        nursery.cancel_scope.cancel()


async def test_what_was_read_makes_room_again():
    said = []

    async def send(event):
        said.append(event.get("body", b""))
        await trio.lowlevel.checkpoint()

    held = Held()
    async with trio.open_nursery() as nursery:
        reply = Reply(send, nursery, held, takes_json=True, takes_events=True)
        for _ in range(12):
            reply.tell(b"x" * (BYTES // 2), droppable=False)
            await trio.testing.wait_all_tasks_blocked()
        assert held.killed == 0
        assert sum(map(len, said)) > 6 * (BYTES // 2)


async def test_a_socket_that_takes_nothing_ends_with_nothing_kept():
    outlet = SocketOutlet(PROVEN)
    for _ in range(20):
        outlet.tell(b"x" * (BYTES // 4), droppable=True)
    assert sum(map(len, outlet._said)) <= BYTES
    assert not outlet.ended
    for _ in range(2000):
        outlet.tell(b"x", droppable=False)
    assert outlet.ended
    assert len(outlet._said) == 0, "who is let go of is said nothing more"


async def test_a_client_on_a_socket_is_read_no_further_than_it_reads():
    outlet = SocketOutlet(PROVEN)
    with trio.fail_after(5):
        await outlet.room()
    outlet.tell(b"x" * BYTES, droppable=False)
    with trio.move_on_after(0.05) as scope:
        await outlet.room()
    assert scope.cancelled_caught
    sent = []

    async def send(event):
        sent.append(event)
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.write, send)
        with trio.fail_after(5):
            await outlet.room()
        outlet.end()
    assert sent[0]["text"] == "x" * BYTES


async def test_streams_of_changes_are_counted_by_principal_not_by_conversation():
    listening = Listening()

    class Told:
        can_tell = True

        def tell(self, message, *, droppable):
            pass

    def asked(number):
        body = {
            "jsonrpc": "2.0",
            "id": number,
            "method": "subscriptions/listen",
            "params": {"notifications": {}},
        }
        proven = Proven(Identity("acme", "alice", f"conversation {number}"), "test")
        return Asked(
            read_message(json.dumps(body)),
            proven,
            Told(),
            session=None,
            version="2026-07-28",
            capabilities={},
        )

    async with trio.open_nursery() as nursery:
        for number in range(MAX_OF_ONE):
            nursery.start_soon(listening.serve, asked(number), {})
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5), pytest.raises(RpcError) as caught:
            await listening.serve(asked(MAX_OF_ONE), {})
        assert caught.value.status == 429
        nursery.cancel_scope.cancel()
    assert len(listening) == 0


@pytest.mark.parametrize("state", ["x", 1])
async def test_a_made_up_state_lets_nothing_new_in_while_the_service_drains(tmp_path, state):
    async with place(tmp_path, servers={"desk": [echo_tool(), hanging()]}, listen=True) as here:
        client = await here.opened()
        async with talking(here) as talk:
            await talk.open()
            await talk.rpc("tools/list")
            running = client.begin(
                message=client.request(
                    "tools/call", {"name": "hang", "arguments": {}, "_meta": {"progressToken": 1}}
                )
            )
            await running.event("notifications/progress")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.service.drain, trio.current_time() + 30)
                await until(lambda: here.service.health.draining)
                for method, params in (
                    ("tools/call", {"name": "echo", "arguments": {"text": "x"}}),
                    ("tools/list", {}),
                    ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}),
                ):
                    answer = await client.ask(
                        message=client.request(method, params | {"requestState": state})
                    )
                    assert answer.status == 503, method
                    heard = await talk.rpc(method, params | {"requestState": state})
                    assert heard["error"]["data"]["code"] == "draining"
                    if method != "tools/call":
                        stateless = await client.modern_rpc(method, params | {"requestState": state})
                        assert stateless.status == 503
                nursery.cancel_scope.cancel()
        assert here.server.executions.get("echo", 0) == 0


async def test_a_socket_hears_nothing_more_from_a_token_that_was_revoked(tmp_path):
    async with place(tmp_path, listen=True) as here:
        fresh = here.tokens.new(ALICE, "short")
        await here.service.refresh()
        async with talking(here, token=fresh.token.reveal()) as talk:
            await talk.open()
            here.tokens.revoke(fresh.entry.id)
            await here.service.refresh()
            await talk.say({"jsonrpc": "2.0", "id": 99, "method": "ping"})
            with trio.fail_after(5), pytest.raises(ConnectionClosed) as caught:
                await talk.socket.get_message()
            assert caught.value.reason.code == 1008


async def test_a_stateless_call_ends_with_the_token_that_it_began_under(tmp_path):
    async with place(tmp_path, servers={"desk": [hanging()]}) as here:
        fresh = here.tokens.new(ALICE, "short")
        await here.service.refresh()
        client = here.client(token=fresh.token.reveal())
        answer = client.modern("tools/call", {"name": "hang", "arguments": {}}, meta={"progressToken": 1})
        await answer.event("notifications/progress")
        here.tokens.revoke(fresh.entry.id)
        await here.service.refresh()
        here.service._sweep(trio.current_time())
        with trio.fail_after(5):
            await answer.ended.wait()
        assert answer.json["error"]["code"] == -32800
        await until(lambda: here.service.calls == 0)


async def test_a_call_that_waits_for_its_client_ends_with_the_token_of_it(tmp_path):
    tools = [input_tool("delete")]
    async with place(tmp_path, servers={"desk": tools}, http={"era": "stateless"}) as here:
        fresh = here.tokens.new(ALICE, "short")
        await here.service.refresh()
        client = here.client(token=fresh.token.reveal())
        params = {"name": "delete", "arguments": {}}
        asked = await client.modern_rpc("tools/call", params, capabilities=FORM)
        assert asked.json["result"]["resultType"] == "input_required"
        here.service._sweep(trio.current_time())
        await trio.testing.wait_all_tasks_blocked()
        assert here.service.calls == 1
        here.tokens.revoke(fresh.entry.id)
        await here.service.refresh()
        here.service._sweep(trio.current_time())
        await until(lambda: here.service.calls == 0)


async def test_each_principal_lists_so_many_times_at_once_and_keeps_nobody_else(tmp_path, monkeypatch):
    async with place(tmp_path) as here:
        calls = here.service._calls
        before, gate, running = calls.offer, trio.Event(), []

        async def offer(asked, *, shown):
            running.append(asked.proven.identity)
            if asked.proven.identity == ALICE:
                await gate.wait()
            return await before(asked, shown=shown)

        monkeypatch.setattr(calls, "offer", offer)
        alice, bob = here.client(), here.client(BOB)
        answers = [alice.modern("tools/list") for _ in range(LISTS_AT_ONCE + 5)]
        await until(lambda: len(running) >= LISTS_AT_ONCE)
        assert (await bob.modern_rpc("tools/list")).status == 200
        await trio.testing.wait_all_tasks_blocked()
        assert running.count(ALICE) == LISTS_AT_ONCE
        gate.set()
        with trio.fail_after(10):
            for answer in answers:
                await answer.ended.wait()
        assert {answer.status for answer in answers} == {200}


async def test_a_turn_is_given_back_by_whoever_waited_and_went():
    turns = Turns(1)
    async with trio.open_nursery() as nursery, turns.turn(ALICE):

        async def wait(*, task_status):
            task_status.started()
            async with turns.turn(ALICE):
                raise AssertionError

        await nursery.start(wait)
        await trio.testing.wait_all_tasks_blocked()
        async with turns.turn(BOB):
            assert len(turns) == 2
        assert len(turns) == 1
        nursery.cancel_scope.cancel()
    assert len(turns) == 0


@pytest.mark.parametrize(
    ("allowed", "connections"), [(100, 50), (1024, 512), (1 << 20, 16_384), (resource.RLIM_INFINITY, 16_384)]
)
def test_connections_leave_half_of_the_descriptors_to_servers(monkeypatch, allowed, connections):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert listener_limits(ServeConfig()).connections == connections


@pytest.mark.parametrize(
    ("had", "asked"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, 1 << 20), (65_536, 1 << 20)),
        ((1024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((1 << 20, 1 << 20), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_a_service_takes_the_descriptors_that_it_may_have(monkeypatch, had, asked):
    said = [None]
    monkeypatch.setattr(resource, "getrlimit", lambda _: had)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: said.append(wanted))
    raise_descriptors()
    assert said[-1] == asked
