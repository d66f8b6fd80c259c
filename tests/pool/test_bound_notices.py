"""Subscriptions, log messages and announced changes: what a server says reaches its host, bounded."""

from __future__ import annotations

import contextvars

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from afpool import AfpoolError, Identity, LogMessage, ResourceUpdate
from afpool.pool._herald import LOGS_KEPT
from afpool.pool._subscriptions import URIS_KEPT, Subscription
from afpool.testing import FakeTool, Notice, Status
from tests.pool.bound_kit import CASES, NOTES, bound_world, furnish
from tests.pool.kit import ALICE, BOB, quiet, raises, refused, start, until, world

LOOKED_INTO = [case for case in CASES if case[0] != "stdio"]
HERE = pytest.mark.parametrize(("way", "era"), LOOKED_INTO, ids=["-".join(case) for case in LOOKED_INTO])
ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])
UPDATED = "notifications/resources/updated"


def tell(here, uri=NOTES):
    return here.engine.streams.broadcast(UPDATED, {"uri": uri})


async def within(awaitable, seconds=5):
    with trio.fail_after(seconds):
        return await awaitable


async def to_its_end(changes):
    async for _ in changes:
        pass


def watchers(pool):
    return pool._existing(pool.key_of(ALICE, "files")).watchers


@HERE
async def test_updates_arrive_and_are_one_until_they_are_read(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        async with await server.subscribe(NOTES, identity=ALICE) as changes:
            await until(lambda: tell(here) == 1)
            assert await within(anext(changes)) == ResourceUpdate(NOTES)
            for _ in range(5):
                assert tell(here) == 1
            tell(here, "note://two")
            part = {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": f"{NOTES}/part"}}
            here.engine.streams.open[0].deliver(part)
            await until(lambda: len(changes._pending) == 2)  # all before it has been read
            assert await within(anext(changes)) == ResourceUpdate(NOTES)
            assert await within(anext(changes)) == ResourceUpdate(f"{NOTES}/part")
            assert not changes._pending
        assert not changes.open
        with pytest.raises(StopAsyncIteration):
            await within(anext(changes))
        await until(lambda: tell(here) == 0)  # the server was told
        assert watchers(here.pool) is None
        quiet(here.pool)


@HERE
async def test_the_last_to_go_unsubscribes(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        other = await here.pool.bind(ALICE, "files")
        first = await server.subscribe(NOTES, identity=ALICE)
        second = await other.subscribe(NOTES, identity=ALICE)
        await server.unsubscribe(NOTES, identity=ALICE)
        assert not first.open
        await until(lambda: tell(here) == 1)
        assert (await within(anext(second))).uri == NOTES
        await other.unsubscribe(NOTES, identity=ALICE)
        await until(lambda: tell(here) == 0)
        assert not second.open
        assert here.count("resources/unsubscribe") == (1 if era == "handshake" else 0)
        await other.unsubscribe(NOTES, identity=ALICE)  # nothing left: nothing is asked


@HERE
async def test_a_replaced_client_is_subscribed_again_and_the_gap_is_told(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        changes = await server.subscribe(NOTES, identity=ALICE)
        key = here.pool.key_of(ALICE, "files")
        old = here.pool._existing(key).machine.client.id
        here.pool.evict(key)  # not idle: nobody took it away
        assert here.pool._existing(key).machine.client.id == old
        here.pool.kill(old)
        assert (await within(anext(changes))).gap
        new = here.pool._existing(key).machine.client.id
        assert new != old
        await until(lambda: tell(here) == 1)
        update = await within(anext(changes))
        assert update.uri == NOTES
        changes.close()


caller_here: contextvars.ContextVar[Identity | None] = contextvars.ContextVar("caller_here", default=None)


@HERE
async def test_who_subscribed_is_asked_in_his_own_context(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        caller_here.set(ALICE)
        changes = await server.subscribe(NOTES, identity=caller_here.get)
        await until(lambda: tell(here) == 1)
        assert (await within(anext(changes))).uri == NOTES
        key = here.pool.key_of(ALICE, "files")
        here.pool.kill(here.pool._existing(key).machine.client.id)
        assert (await within(anext(changes))).gap
        changes.close()


@HERE
@pytest.mark.parametrize("change", ["revoked", "plan", "share", "caller", "closed"])
async def test_a_subscription_ends_with_what_it_stands_on(way, era, tmp_path, change):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(here.host.who, "files")
        changes = await server.subscribe(NOTES, identity=here.host.who)
        code = "binding-changed"
        if change == "revoked":
            here.pool.invalidate(identity=ALICE)
        elif change == "plan":
            here.host.variant = "two"
            await here.pool.drain(here.pool.key_of(ALICE, "files"))
        elif change == "share":
            here.host.names["alice"] = "other"
            await until(lambda: tell(here) == 1)
        elif change == "caller":
            here.host.caller, code = None, "identity-mismatch"
            await until(lambda: tell(here) == 1)
        else:
            code = "pool-closed"
            await here.pool.aclose()
        with trio.fail_after(5), pytest.raises(AfpoolError) as caught:
            await to_its_end(changes)
        assert caught.value.code == code
        with pytest.raises(AfpoolError):
            await anext(changes)
        assert not changes.open
        if change != "closed":
            assert watchers(here.pool) is None


@ERAS
async def test_while_the_server_is_away_a_subscription_waits(era, autojump_clock):
    async with world(http={"era": era}, pool={"open_timeout": 1.0}) as here:
        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        changes = await server.subscribe(NOTES, identity=ALICE)
        client = here.pool._existing(here.pool.key_of(ALICE, "files")).machine.client.id
        here.server.refuse_connections()
        here.server.forget_sessions()
        here.pool.kill(client)
        await trio.sleep(20)
        assert changes.open
        await here.server.accept_connections()
        with trio.fail_after(100):
            assert (await anext(changes)).gap
        changes.close()


@pytest.mark.parametrize(("told", "least", "most"), [("0", 0.25, 0.55), ("20", 20, 21), ("500", 30, 31)])
async def test_a_server_that_asks_for_time_is_not_subscribed_again_before(told, least, most, autojump_clock):
    async with world() as here:
        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        changes = await server.subscribe(NOTES, identity=ALICE)
        here.server.on("resources/subscribe", Status(503, headers={"retry-after": told}), times=1)
        here.pool.kill(here.pool._existing(here.pool.key_of(ALICE, "files")).machine.client.id)
        with trio.fail_after(100):
            assert (await anext(changes)).gap
        _, refusal, again = here.server.arrivals("resources/subscribe")
        assert least <= again.time - refusal.time <= most
        changes.close()


@ERAS
async def test_a_child_s_updates_arrive_too(era, tmp_path):
    tools = [{"name": "write", "builtin": "update_resource"}]
    async with bound_world("stdio", era, tmp_path, script={"tools": tools}) as here:
        server = await here.pool.bind(ALICE, "files")
        write = (await here.pool.tools(ALICE))["write"]
        async with await server.subscribe(NOTES, identity=ALICE) as changes:
            result = await write.call({"uri": NOTES, "contents": "new"}, identity=ALICE)
            assert result.text == "told 1"
            with trio.fail_after(10):
                while (await anext(changes)).gap:
                    pass
            assert (await server.read_resource(NOTES, identity=ALICE)).text == "new"
            here.pool.kill(here.pool._existing(here.pool.key_of(ALICE, "files")).machine.client.id)
            with trio.fail_after(10):
                assert (await anext(changes)).gap
            write = (await here.pool.tools(ALICE))["write"]
            assert (await write.call({"uri": NOTES, "contents": "2"}, identity=ALICE)).text == "told 1"
        # told in the background; a call behind it comes after it
        write = (await here.pool.tools(ALICE))["write"]

        async def told():
            return (await write.call({"uri": NOTES, "contents": "3"}, identity=ALICE)).text

        with trio.fail_after(10):
            while await told() != "told 0":
                pass


async def test_a_lost_stream_is_a_gap_and_not_an_end():
    async with world(http={"era": "stateless"}) as here:
        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        changes = await server.subscribe(NOTES, identity=ALICE)
        here.server.end_streams()
        assert (await within(anext(changes))).gap
        await within(here.server.wait_until(lambda: here.server.streams == 1))
        assert here.server.update_resource(NOTES, "changed") == 1
        assert (await within(anext(changes))).uri == NOTES
        assert (await server.read_resource(NOTES, identity=ALICE)).text == "changed"
        changes.close()


async def test_a_subscription_that_is_not_granted_is_refused():
    async with world(http={"era": "stateless"}) as here:
        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        await within(refused(server.subscribe("note://none", identity=ALICE), "server-refused", "refused"))
        granted = await within(server.subscribe(NOTES, identity=ALICE))
        wanted = here.server.arrivals("subscriptions/listen")[-1].params["notifications"]
        assert wanted["resourceSubscriptions"] == [NOTES]
        granted.close()
        here.server.engine.listen_enabled = False
        other = await here.pool.bind(BOB, "files")
        await within(refused(other.subscribe(NOTES, identity=BOB), "server-refused", "refused"))


async def test_many_subscriptions_are_one_stream():
    async with world(http={"era": "stateless"}, pool={"max_subscriptions": 2}) as here:
        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        made = []

        async def one(uri):
            made.append(await server.subscribe(uri, identity=ALICE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, NOTES)
            nursery.start_soon(one, "note://two")
        assert here.server.streams == 1
        await refused(server.subscribe(NOTES, identity=ALICE), "overloaded")
        here.server.update_resource("note://two", "x")
        two = next(entry for entry in made if entry.uri == "note://two")
        with trio.fail_after(5):
            while (await anext(two)).gap:
                pass
        for entry in made:
            entry.close()


async def test_one_task_at_a_time():
    async with world() as here, trio.open_nursery() as nursery:
        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        changes = await server.subscribe(NOTES, identity=ALICE)

        async def drain():
            async for _ in changes:
                pass

        nursery.start_soon(drain)
        await until(lambda: changes._reading)
        with pytest.raises(trio.BusyResourceError):
            await anext(changes)
        changes.close()


class _Anybody:
    """A binding that nothing is asked of."""

    actor = None


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=300))
def test_what_waits_is_bounded_and_nothing_is_forgotten(pushed):
    subscription = Subscription(_Anybody(), "base", None)
    said: set[str] = set()
    for number, gap in pushed:
        uri = f"base/{number}"
        subscription.push(uri, gap=gap)
        said.add(uri)
        pending = subscription._pending
        assert 0 < len(pending) <= URIS_KEPT
        # everything that was said is waiting by its name, or the whole is said to be in doubt
        assert said <= set(pending) or pending.get("base")


# ---------------------------------------------------------------------------- logs and changes


@ERAS
async def test_log_messages_reach_the_host(era):
    heard = []

    def on_log(server, projection, message):
        heard.append((server, projection.principal, message.level, message.logger, message.data))
        if message.data == "boom":
            raise ValueError("the host's own")

    async with world(http={"era": era, "answer": "sse"}, pool={"on_log": on_log}) as here:
        furnish(here.server.offers)

        async def chatty(arguments, arrival):
            yield Notice("notifications/message", {"level": "info", "data": "boom"})
            yield Notice("notifications/message", {"level": "error", "logger": "db", "data": {"n": 1}})
            yield Notice("notifications/message", {"level": "loud", "data": "no level"})
            yield "done"

        here.server.set_tools([FakeTool("chatty", chatty)], notify=False)
        assert (await (await here.tool(name="chatty")).call(identity=ALICE)).text == "done"
        await until(lambda: len(heard) == 2)
        assert heard == [
            ("files", "alice", "info", None, "boom"),
            ("files", "alice", "error", "db", {"n": 1}),
        ]


async def test_of_a_server_that_was_removed_nothing_is_told_any_more():
    heard, left = [], trio.Event()

    async def chatty(arguments, arrival):
        yield Notice("notifications/message", {"level": "info", "data": "before"})
        await left.wait()
        yield Notice("notifications/message", {"level": "info", "data": "after"})
        yield "done"

    options = {"on_log": lambda server, projection, message: heard.append(message.data)}
    async with world(http={"answer": "sse"}, pool=options) as here, trio.open_nursery() as nursery:
        furnish(here.server.offers)
        here.server.set_tools([FakeTool("chatty", chatty)], notify=False)
        tool = await here.tool(name="chatty")
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: heard == ["before"])
        here.pool.reconfigure([])
        left.set()
        assert (await call.answer()).text == "done", "what runs goes on"
        await trio.testing.wait_all_tasks_blocked()
        assert heard == ["before"]


async def test_a_flood_of_log_messages_keeps_the_newest():
    heard: list[LogMessage] = []
    async with world(pool={"on_log": lambda server, who, message: heard.append(message)}) as here:
        from afpool.protocol import decode_messages

        actor = here.pool.actor_for("files", ALICE)
        lines = [
            b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}' % number
            for number in range(LOGS_KEPT + 10)
        ]
        for line in lines:
            here.pool.herald.told(actor, decode_messages(line)[0])
        await until(lambda: len(heard) == LOGS_KEPT)
        assert (heard[0].data, heard[0].missed, heard[1].missed) == (10, 10, 0)
        assert heard[-1].data == LOGS_KEPT + 9


@ERAS
async def test_announced_changes_reach_the_host(era):
    heard = []
    options = {
        "on_change": lambda server, projection, what: heard.append((server, projection.principal, what))
    }
    async with world(http={"era": era}, pool=options) as here:
        furnish(here.server.offers)
        await here.tool()
        await within(here.server.wait_until(lambda: here.server.streams == 1))
        await here.server.notify("notifications/prompts/list_changed")
        await here.server.notify("notifications/resources/list_changed")
        await until(lambda: len(heard) == 2)
        assert set(heard) == {("files", "alice", "prompts"), ("files", "alice", "resources")}


async def test_without_a_host_that_listens_nothing_is_asked_for_or_kept():
    async with world(http={"era": "stateless"}) as here:
        furnish(here.server.offers)
        await here.tool()
        await within(here.server.wait_until(lambda: here.server.streams == 1))
        wanted = here.server.arrivals("subscriptions/listen")[0].params["notifications"]
        assert wanted == {"toolsListChanged": True}
        assert here.pool.herald.notices == frozenset()


async def test_a_server_that_announces_no_tools_is_not_believed_to_announce_them():
    async with world(pool={"on_change": raises(RuntimeError())}) as here:
        furnish(here.server.offers)
        here.server.advertise.list_changed = False
        tool = await here.tool()
        await within(here.server.wait_until(lambda: here.server.streams == 1))
        client = tool.binding.actor.machine.client.handle
        assert not client.listening
        assert not client.may_hear
        here.server.end_streams()
        await until(lambda: client.stream_state == "lost")
        assert tool.binding.list.doubt is None
