"""Steps 1 and 2: who may call, and on what. Of a refused call nothing is sent."""

from __future__ import annotations

import weakref

import pytest
import trio

import afpool
import afpool.testing
from afpool import Identity, IdentityMismatch, Server
from afpool.pool._asking import same_caller
from afpool.testing import FakeTool, Hold, echo_tool
from tests.pool.kit import ALICE, BOB, CAROL, memory_world, quiet, raises, refused, start, until, world
from tests.turns import turns_of_another

NOBODY = Identity()


async def test_one_call_through_all_steps():
    async with world() as w:
        tool = await w.tool()
        result = await tool.call({"n": 1}, identity=ALICE, call_id="first")
        assert result.call_id == "first"
        assert w.server.executed[0].arguments == {"n": 1}
        use = w.pool.records.uses[-1]
        assert (use.outcome, use.delivery, use.attempts, use.tool) == ("ok", "answered", 1, "echo")
        quiet(w.pool)


async def test_what_a_call_waited_for_is_no_fact_beside_a_refusal_that_says_the_same():
    async with world(tools=[FakeTool("block"), echo_tool()], pool={"max_operations": 1}) as w:
        listed = await w.pool.tools(ALICE)
        held = trio.Event()
        w.server.on("tools/call", Hold(held), tool="block")
        async with trio.open_nursery() as nursery:
            block = start(nursery, lambda: listed["block"].call(identity=ALICE))
            await w.server.wait_for("tools/call")
            waits = start(nursery, lambda: listed["echo"].call(identity=ALICE, call_id="waits"))
            await until(lambda: w.pool.waiting == 1)
            w.pool.invalidate(identity=ALICE)
            await waits.refusal("binding-changed")
            (use,) = [use for use in w.pool.records.uses if use.call_id == "waits"]
            assert (use.code, use.facts) == ("binding-changed", None)
            held.set()
            await block.done.wait()


@pytest.mark.parametrize(
    "who",
    [
        BOB,
        CAROL,
        NOBODY,
        Identity(tenant="acme"),
        Identity(tenant="acme", principal="alice", conversation_id="7"),
        None,
    ],
    ids=["principal", "tenant", "nobody", "less", "more", "none"],
)
@pytest.mark.parametrize("asked", [False, True], ids=["plain", "callable"])
async def test_anybody_else_is_refused(who, asked):
    async with world() as w:
        tool = await w.tool()
        error = await refused(
            tool.call(identity=(lambda: who) if asked else who, call_id="c"), "identity-mismatch"
        )
        assert error.call_id == "c"
        assert w.sent() == 0
        quiet(w.pool)


@pytest.mark.parametrize("answer", [7, "alice", ("acme", "alice")])
async def test_a_caller_that_is_no_identity_is_a_mismatch(answer):
    async with world() as w:
        tool = await w.tool()
        await refused(tool.call(identity=lambda: answer), "identity-mismatch")
        await refused(tool.call(identity=answer), "identity-mismatch")


async def test_a_caller_that_cannot_be_asked_is_a_mismatch():
    async with world() as w:
        tool = await w.tool()
        error = await refused(tool.call(identity=raises(ValueError("gone"))), "identity-mismatch")
        assert isinstance(error.__cause__, ValueError)
        assert "gone" not in str(error)


async def test_fields_that_the_server_is_not_keyed_on_do_not_count():
    async with world(server={"keyed_on": ("tenant",)}) as w:
        tool = await w.tool()
        await tool.call(identity=BOB)
        await refused(tool.call(identity=CAROL), "identity-mismatch")


async def test_an_identity_without_the_keyed_fields_is_missing():
    async with world(server={"keyed_on": ("principal",)}) as w:
        for who in (NOBODY, Identity(tenant="acme"), Identity(principal="")):
            await refused(w.pool.tools(who), "identity-missing")
        assert not w.server.log
        assert not w.pool.actors()


async def test_a_server_for_everybody_takes_anybody_and_still_asks_who():
    async with world(server={"keyed_on": ()}) as w:
        tool = await w.tool(NOBODY)
        await tool.call(identity=BOB)
        await refused(tool.call(identity=None), "identity-mismatch")


async def test_listing_for_a_caller_that_was_withdrawn():
    async with world() as w:
        with pytest.raises((IdentityMismatch, afpool.IdentityMissing)):
            await w.pool.tools(lambda: None)
        assert not w.server.log


@pytest.mark.parametrize("who", [ALICE, BOB], ids=["refusal", "answer"])
async def test_a_cancelled_caller_does_nothing(who):
    async with world() as w:
        tool = await w.tool()
        with trio.CancelScope() as scope:
            scope.cancel()
            await tool.call(identity=who)
        assert scope.cancelled_caught
        assert w.sent() == 0
        quiet(w.pool)


async def test_every_refusal_passes_a_checkpoint():
    async with world() as w:
        tool = await w.tool()
        async with turns_of_another() as turns:
            await trio.lowlevel.checkpoint()
            for _ in range(20):
                before = turns.had
                await refused(tool.call(identity=BOB), "identity-mismatch")
                await trio.lowlevel.checkpoint()
                assert turns.had > before


async def test_arguments_that_are_no_object():
    async with world() as w:
        tool = await w.tool()
        for bad in (["a"], {"n": float("nan")}, {"n": object()}):
            await refused(tool.call(bad, identity=ALICE), "invalid-arguments")
        assert w.sent() == 0


async def test_a_deadline_that_has_passed():
    async with world() as w:
        tool = await w.tool()
        await refused(tool.call(identity=ALICE, deadline=trio.current_time() - 1), "deadline-exceeded")
        assert w.sent() == 0


async def test_a_pinned_tool():
    async with world() as w:
        digest = (await w.tool()).binding.definition.digest
    async with world(server={"pins": {"echo": digest}}) as w:
        tool = await w.tool()
        await tool.call(identity=ALICE)
        w.server.set_tools(
            [FakeTool("echo", description="changed behind the user's back"), FakeTool("other")]
        )
        tools = await w.pool.refresh(ALICE)
        await refused(tools["echo"].call(identity=ALICE), "not-approved")
        await tools["other"].call(identity=ALICE)
        assert w.sent("echo") == 1


async def test_a_revoked_key_refuses_and_a_new_list_calls():
    async with world() as w:
        tool = await w.tool()
        bobs = await w.tool(BOB)
        assert w.pool.invalidate(identity=ALICE, reason="left") == 1
        await refused(tool.call(identity=ALICE), "binding-changed")
        event = next(
            event for event in w.pool.records.events if event.number == w.pool.records.uses[-1].cause
        )
        assert (event.kind, event.facts) == ("revoked", {"why": "left"})
        await bobs.call(identity=BOB)
        await (await w.tool()).call(identity=ALICE)
        assert w.sent() == 2
        await refused(tool.call(identity=ALICE), "binding-changed")  # for ever


async def test_a_closed_pool_refuses():
    async with world() as w:
        tool = await w.tool()
        await w.pool.aclose()
        await refused(tool.call(identity=ALICE), "pool-closed")
        await refused(w.pool.tools(ALICE), "pool-closed")
        assert w.sent() == 0


async def test_no_old_binding_is_ever_taken_for_current():
    """A key is forgotten and opened again 1,000 times: ids never come twice."""
    seen_lists: set[int] = set()
    seen_clients: set[int | None] = set()
    with trio.fail_after(60):
        async with memory_world() as (_, _host, pool):
            keeper = (await pool.tools(BOB))["echo"]  # an old binding of another key stays all the time
            key = pool.key_of(ALICE, "files")
            for _ in range(1000):
                binding = (await pool.tools(ALICE))["echo"].binding
                assert binding.list.id not in seen_lists
                assert binding.client_id not in seen_clients
                seen_lists.add(binding.list.id)
                seen_clients.add(binding.client_id)
                actor = weakref.ref(binding.actor)
                pool.evict(key)
                del binding
                while actor() is not None:  # a key without client and tools is forgotten
                    await trio.lowlevel.checkpoint()
            assert len(pool.actors()) == 1
            await keeper.call(identity=BOB)


@pytest.mark.parametrize("definition", ["same", "other"])
async def test_a_binding_that_outlives_its_incarnations_is_decided_by_definition(definition):
    with trio.fail_after(60):
        async with world(http={"era": "stateless"}) as w:
            old = await w.tool()
            for _ in range(30):
                await w.evict()
                await w.tool()
            await w.evict()
            if definition == "same":
                await old.call(identity=ALICE)
                assert w.pool.records.uses[-1].list_id != old.binding.list.id
            else:
                w.server.set_tools([FakeTool("echo", description="another one")])
                await refused(old.call(identity=ALICE), "stale-tools")
                assert w.sent() == 0


async def test_a_chain_that_would_wait_for_itself():
    async with (
        world(tools=[FakeTool("outer"), echo_tool()], pool={"max_operations": 1}) as w,
        trio.open_nursery() as nursery,
    ):
        tools = await w.pool.tools(ALICE)
        event = trio.Event()
        w.server.on("tools/call", afpool.testing.Hold(event), tool="outer", times=1)
        nursery.start_soon(lambda: tools["outer"].call(identity=ALICE))
        await w.server.wait_for("tools/call")
        (outer,) = w.pool.running
        await refused(tools["echo"].call(identity=ALICE, chain=(outer,)), "overloaded")
        event.set()
        await until(lambda: not w.pool.running)
        quiet(w.pool)


async def test_two_servers_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two servers"):
        async with afpool.open_pool([Server(name="a"), Server(name="a")], plan=lambda server, who: None):
            pass


def test_a_caller_that_has_to_stay_who_he_is():
    said = [ALICE]
    caller = same_caller(lambda: said[0])
    assert callable(caller)
    assert caller() is ALICE
    for other in (BOB, None):
        said[0] = other
        with pytest.raises(IdentityMismatch, match="not who began the call any more"):
            caller()
    for stays in (ALICE, None, caller):
        assert same_caller(stays) is stays
    nobody = same_caller(lambda: None)
    assert callable(nobody)
    assert nobody() is None
