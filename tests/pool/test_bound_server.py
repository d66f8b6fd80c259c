"""What is asked of a bound server: over every transport and in both eras, under the steps of a tool call."""

from __future__ import annotations

import pytest
import trio

from afpool import AfpoolError, InvalidArguments, NotOffered
from afpool.client._errand import Received
from afpool.testing import Advertise, JsonRpcError
from tests.pool.bound_kit import EVERYWHERE, NOTES, bound_world
from tests.pool.kit import ALICE, BOB, Hold, quiet, refused, start, until, world


@EVERYWHERE
async def test_resources_prompts_and_completions(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        resources = await server.resources(identity=ALICE)
        assert [item["uri"] for item in resources] == [NOTES, "note://two"]
        assert resources[-1]["uri"] == "note://two"
        assert [item["uri"] for item in resources[:1]] == [NOTES]
        assert resources.ttl == (0.0 if era == "stateless" else None)
        assert list(await server.resource_templates(identity=ALICE)) == []
        read = await server.read_resource(NOTES, identity=ALICE, call_id="mine")
        assert (read.text, read.call_id) == ("first", "mine")
        assert [item["name"] for item in await server.prompts(identity=ALICE)] == ["greet"]
        prompt = await server.get_prompt("greet", {"name": "Ann"}, identity=ALICE)
        assert prompt.messages[0]["content"]["text"] == "Hello Ann"
        if way != "stdio":
            done = await server.complete(
                {"type": "ref/prompt", "name": "greet"}, ("name", "A"), {"other": "x"}, identity=ALICE
            )
            assert (done.values, done.total, done.has_more) == (["A!"], 1, False)
        await server.set_log_level("warning", identity=ALICE)
        assert here.count("logging/setLevel") == (1 if era == "handshake" else 0)
        uses = [use.method for use in here.pool.records.uses]
        assert uses[0] == "resources/list"
        assert {use.tool for use in here.pool.records.uses} == {"", "greet"}
        quiet(here.pool)


async def test_headers_of_the_stateless_era_name_what_is_asked_for():
    async with world(http={"era": "stateless"}) as here:
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        here.server.offers.resources[0].uri = "note://größe "
        server = await here.pool.bind(ALICE, "files")
        await server.read_resource("note://größe ", identity=ALICE)
        await server.get_prompt("greet", {"name": "x"}, identity=ALICE)
        await server.prompts(identity=ALICE)
        read = here.server.arrivals("resources/read")[0].headers
        assert read["mcp-method"] == "resources/read"
        assert read["mcp-name"].startswith("=?base64?")
        got = here.server.arrivals("prompts/get")[0].headers
        assert (got["mcp-method"], got["mcp-name"]) == ("prompts/get", "greet")
        assert "mcp-name" not in here.server.arrivals("prompts/list")[0].headers
        await server.set_log_level("error", identity=ALICE)
        await server.prompts(identity=ALICE)
        meta = here.server.arrivals("prompts/list")[-1].params["_meta"]
        assert meta["io.modelcontextprotocol/logLevel"] == "error"


async def test_in_the_handshake_era_no_header_names_what_is_asked_for():
    async with world() as here:
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        await server.read_resource(NOTES, identity=ALICE)
        assert not {"mcp-method", "mcp-name"} & set(here.server.arrivals("resources/read")[0].headers)


@EVERYWHERE
async def test_anybody_else_is_refused(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        for nobody in (BOB, None, lambda: None):
            await refused(server.read_resource(NOTES, identity=nobody), "identity-mismatch")
            await refused(server.subscribe(NOTES, identity=nobody), "identity-mismatch")
            await refused(server.unsubscribe(NOTES, identity=nobody), "identity-mismatch")
        await refused(here.pool.bind(lambda: None, "files"), "identity-missing")
        assert here.count("resources/read") == here.count("resources/subscribe") == 0
        assert here.pool._existing(here.pool.key_of(ALICE, "files")).watchers is None
        quiet(here.pool)


def _other_share(here):
    here.host.names["alice"] = "other"


def _revoked(here):
    here.pool.invalidate(identity=ALICE)


def _no_caller(here):
    here.host.caller = None


CHANGES = {
    "share": (_other_share, "binding-changed"),
    "revoke": (_revoked, "binding-changed"),
    "caller": (_no_caller, "identity-mismatch"),
}


@EVERYWHERE
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_during_a_wait_refuses_and_nothing_leaves(way, era, tmp_path, change):
    act, code = CHANGES[change]
    async with bound_world(way, era, tmp_path) as here, trio.open_nursery() as nursery:
        server = await here.pool.bind(here.host.who, "files")
        key = here.pool.key_of(ALICE, "files")
        here.pool.pause(key)  # whoever comes now waits for a place
        waiting = start(nursery, lambda: server.read_resource(NOTES, identity=here.host.who))
        await until(lambda: here.pool.waiting == 1)
        act(here)
        here.pool.resume(key)
        await waiting.refusal(code)
        assert here.count("resources/read") == 0
        quiet(here.pool)


@EVERYWHERE
async def test_another_plan_refuses(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        here.host.variant = "two"
        await here.pool.drain(here.pool.key_of(ALICE, "files"))
        await refused(server.prompts(identity=ALICE), "binding-changed")
        again = await here.pool.bind(ALICE, "files")
        assert len(await again.prompts(identity=ALICE)) == 1
        await refused(server.prompts(identity=ALICE), "binding-changed")


@EVERYWHERE
async def test_a_replaced_client_serves_a_bound_server_as_well(way, era, tmp_path):
    async with bound_world(way, era, tmp_path) as here:
        server = await here.pool.bind(ALICE, "files")
        await server.set_log_level("debug", identity=ALICE)
        here.pool.evict(here.pool.key_of(ALICE, "files"))
        assert (await server.read_resource(NOTES, identity=ALICE)).text == "first"
        assert here.pool.statistics().opened == 2
        if era == "handshake":  # the level is said again to the new client
            await until(lambda: here.count("logging/setLevel") == 2)
        else:
            meta = here.last("resources/read").params["_meta"]
            assert meta["io.modelcontextprotocol/logLevel"] == "debug"


@EVERYWHERE
async def test_what_was_not_negotiated_is_not_asked(way, era, tmp_path):
    async with world(http={"era": era}) if way == "http" else bound_world(way, era, tmp_path) as here:
        if way != "http":
            server = await here.pool.bind(ALICE, "files")
            if way == "stdio":
                await refused(server.complete({}, ("a", "b"), identity=ALICE), "not-offered")
            return
        server = await here.pool.bind(ALICE, "files")
        calls = [
            server.resources(identity=ALICE),
            server.resource_templates(identity=ALICE),
            server.read_resource(NOTES, identity=ALICE),
            server.subscribe(NOTES, identity=ALICE),
            server.prompts(identity=ALICE),
            server.get_prompt("greet", identity=ALICE),
            server.complete({}, ("a", "b"), identity=ALICE),
            server.set_log_level("info", identity=ALICE),
        ]
        before = len(here.server.log)
        for call in calls:
            error = await refused(call, "not-offered")
            assert isinstance(error, NotOffered)
        assert len(here.server.log) == before
        quiet(here.pool)


async def test_subscribing_needs_more_than_resources():
    async with world() as here:
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        here.server.offers.subscribable = False
        server = await here.pool.bind(ALICE, "files")
        assert len(await server.resources(identity=ALICE)) == 2
        error = await refused(server.subscribe(NOTES, identity=ALICE), "not-offered")
        assert "resources.subscribe" in error.message


async def test_who_subscribes_is_listened_for_though_no_list_is_announced_to_change():
    async with world(http={"advertise": Advertise(list_changed=False)}) as here:
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        assert here.server.streams == 0
        await server.subscribe(NOTES, identity=ALICE)
        assert here.server.streams == 1


@pytest.mark.parametrize("mode", ["strict", "empty-string"])
async def test_every_page_is_followed_and_a_circle_is_not(mode):
    async with world(pool={"max_message": 5000}) as here:
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        here.server.advertise.page_size = 1
        here.server.advertise.cursors = mode
        server = await here.pool.bind(ALICE, "files")
        assert [item["uri"] for item in await server.resources(identity=ALICE)] == [NOTES, "note://two"]
        assert here.server.count("resources/list") == 2
        here.server.advertise.cursors = "loop"
        await refused(server.resources(identity=ALICE), "protocol-error", "answered")
        here.server.advertise.cursors = "strict"
        for resource in here.server.offers.resources:
            resource.members = {"description": "x" * 3000}
        await refused(server.resources(identity=ALICE), "too-large", "answered")
        assert here.pool.records.uses[0].attempts == 2
        quiet(here.pool)


async def test_a_walk_passes_the_gate_again_for_each_page():
    async with world() as here, trio.open_nursery() as nursery:
        from afpool.testing import Hold as HoldAnswer
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        here.server.advertise.page_size = 1
        server = await here.pool.bind(here.host.who, "files")
        go = trio.Event()
        here.server.on("resources/list", HoldAnswer(go), times=1)
        walk = start(nursery, lambda: server.resources(identity=here.host.who))
        await here.server.wait_for("resources/list")
        here.host.caller = None
        go.set()
        await walk.refusal("identity-mismatch")
        assert here.server.count("resources/list") == 1


async def test_bad_arguments_are_refused_before_anything():
    async with world() as here:
        server = await here.pool.bind(ALICE, "files")
        opened = here.pool.statistics().opened
        calls = [
            server.read_resource(7, identity=ALICE),
            server.read_resource("\ud800", identity=ALICE),
            server.get_prompt("greet", {"name": 7}, identity=ALICE),
            server.complete({"type": object()}, ("a", "b"), identity=ALICE),
            server.complete("greet", ("a", "b"), identity=ALICE),
            server.complete({"type": "ref/prompt"}, "what", identity=ALICE),
            server.complete({"type": "ref/prompt"}, ("what", "a", "b"), identity=ALICE),
            server.complete({"type": "ref/prompt"}, {"name": "a", "value": "b"}, identity=ALICE),
            server.complete({"type": "ref/prompt"}, ("a", 7), identity=ALICE),
            server.complete({"type": "ref/prompt"}, (7, "a"), identity=ALICE),
            server.complete({"type": "ref/prompt"}, ("a", "b"), context={"c": 7}, identity=ALICE),
            server.complete({"type": "ref/prompt"}, ("a", "b"), context={7: "c"}, identity=ALICE),
            server.set_log_level("loud", identity=ALICE),
            server.set_log_level({}, identity=ALICE),
        ]
        for call in calls:
            assert isinstance(await refused(call, "invalid-arguments"), InvalidArguments)
        assert here.pool.statistics().opened == opened


@EVERYWHERE
async def test_places_are_held_and_a_cancelled_one_settles(way, era, tmp_path):
    limits = {"max_operations": 1, "cancel_grace": 0.05}
    async with bound_world(way, era, tmp_path, pool=limits, slow="resources/read") as here:
        server = await here.pool.bind(ALICE, "files")
        actor = here.pool._existing(here.pool.key_of(ALICE, "files"))
        async with trio.open_nursery() as nursery:
            with trio.fail_after(10), trio.CancelScope() as scope:
                nursery.start_soon(_cancel_when, lambda: here.count("resources/read") == 1, scope)
                nursery.start_soon(_second, here, server, actor)
                await server.read_resource(NOTES, identity=ALICE)
            assert scope.cancelled_caught
            use = here.pool.records.uses[-1]
            assert (use.method, use.outcome, use.delivery) == ("resources/read", "cancelled", "in-doubt")
        assert actor.machine.in_flight == 0
        quiet(here.pool)


async def _second(here, server, actor):
    """Wait behind the first for the key's only place."""
    await until(lambda: actor.machine.in_flight == 1)
    assert len(await server.prompts(identity=ALICE)) == 1
    read, listed = here.last("resources/read"), here.last("prompts/list")
    assert read.number < listed.number


async def _cancel_when(condition, scope):
    await until(condition)
    scope.cancel()


async def test_a_server_error_is_an_answer_and_a_deadline_is_in_doubt():
    async with world() as here:
        from afpool.testing import Hang
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        error = await refused(server.read_resource("note://none", identity=ALICE), "server-error", "answered")
        assert error.call_id is not None
        here.server.on("prompts/list", JsonRpcError(-32601), times=1)
        await refused(server.prompts(identity=ALICE), "server-refused", "refused")
        here.server.on("prompts/list", Hang(), times=1)
        await refused(
            server.prompts(identity=ALICE, deadline=trio.current_time() + 0.05),
            "deadline-exceeded",
            "in-doubt",
        )


async def test_a_credential_that_is_waited_for_is_followed_by_the_gate():
    async with world(credential=True) as here, trio.open_nursery() as nursery:
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        server = await here.pool.bind(ALICE, "files")
        hold = here.host.hold_credential = Hold()
        waiting = start(nursery, lambda: server.read_resource(NOTES, identity=ALICE))
        await hold.reached.wait()
        here.pool.invalidate(server="files")
        hold.let_go.set()
        await waiting.refusal("binding-changed")
        assert here.server.count("resources/read") == 0


def test_what_was_received_is_not_shown():
    assert "s3cret" not in repr(Received([b"s3cret"], 6))


async def test_a_list_of_junk_and_a_blob():
    async with world() as here:
        from afpool.testing import FakeResource, Result
        from tests.pool.bound_kit import furnish

        furnish(here.server.offers)
        here.server.offers.resources.append(FakeResource("blob://x", b"\x00\xff", mime_type="image/png"))
        server = await here.pool.bind(ALICE, "files")
        read = await server.read_resource("blob://x", identity=ALICE)
        part = read.contents[0]
        assert (part.uri, part.mime_type, part.text, part.blob) == (
            "blob://x",
            "image/png",
            None,
            b"\x00\xff",
        )
        assert read.text == "[image/png]"
        here.server.on("resources/list", Result({"resources": [7, {"uri": "a"}]}))
        items = await server.resources(identity=ALICE)
        assert items[1] == {"uri": "a"}
        with pytest.raises(AfpoolError) as caught:
            items[0]
        assert caught.value.code == "protocol-error"
        here.server.on("resources/read", Result({"contents": [{"uri": "a", "blob": "%"}]}))
        with pytest.raises(AfpoolError):
            _ = (await server.read_resource(NOTES, identity=ALICE)).contents[0].blob
