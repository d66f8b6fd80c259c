"""A call in doubt, its server recognising repeats: asked again only where server and host both say so."""

from __future__ import annotations

import itertools

import pytest
import trio

import afpool
from afpool import Server, StdioTransport, ToolContext
from afpool.testing import Delay, Drop, FakeServer, Hang, JsonRpcError, Status
from tests.pool.bound_kit import KEY
from tests.pool.kit import ALICE, Host, refused, start, until, world

LOST = Drop(after_execution=True)


class Asked:
    """A host that answers the question, and remembers what it was told."""

    def __init__(self, answer="repeat"):
        self.answer = answer
        self.uses = []

    def __call__(self, use):
        self.uses.append(use)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def recognising(asked, **server):
    settings = {"call_id_key": KEY, "repeat": "recognised", **server}
    return {"server": settings, "pool": {"on_in_doubt": asked}}


def ids(server):
    return [arrival.params.get("_meta", {}).get(KEY) for arrival in server.arrivals("tools/call")]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_cut_after_the_run_is_repeated_and_the_tool_runs_once(era, autojump_clock):
    asked = Asked()
    async with world(http={"era": era}, **recognising(asked)) as here:
        here.server.recognise_repeats(KEY)
        here.server.on("tools/call", LOST, times=1)
        tool = await here.tool()
        result = await tool.call({"a": 1}, identity=ALICE)
        assert result.text == '{"a": 1}'
        assert here.server.execution_count("echo") == 1
        assert here.server.repeats == [result.call_id]
        assert ids(here.server) == [result.call_id] * 2
        first, second = here.pool.records.uses
        assert asked.uses == [first]
        assert (first.code, first.delivery, first.repeat) == ("connection-lost", "in-doubt", 0)
        assert (second.outcome, second.delivery, second.repeat) == ("ok", "answered", 1)
        assert first.call_id == second.call_id == result.call_id


async def test_a_child_that_dies_is_no_server_that_remembers(tmp_path):
    # the ledger dies with the child: the promise is the server's to keep, and this one could not
    asked = Asked()
    script = {"call_id_key": KEY, "rules": [{"method": "tools/call", "action": {"do": "Drop"}}]}
    log = tmp_path / "log"
    command = FakeServer.stdio_command(script, log=log)
    host = Host(lambda host, projection: StdioTransport.of(*command))
    servers = [Server(name="files", call_id_key=KEY, repeat="recognised", max_repeats=2)]
    async with afpool.open_pool(servers, plan=host.plan, on_in_doubt=asked) as pool:
        tool = (await pool.tools(ALICE))["echo"]
        await refused(tool.call(identity=ALICE), "session-handle-lost", "in-doubt")
    assert len(asked.uses) == 2
    assert len([entry for entry in FakeServer.read_log(log) if entry.name == "tools/call"]) == 3


@pytest.mark.parametrize("answer", ["raise", None, ValueError("no"), True])
async def test_anything_but_the_word_is_no_leave(answer):
    asked = Asked(answer)
    async with world(**recognising(asked)) as here:
        here.server.on("tools/call", LOST, times=1)
        tool = await here.tool()
        await refused(tool.call(identity=ALICE), "connection-lost", "in-doubt")
        assert len(asked.uses) == 1
        assert here.sent() == 1
        (use,) = here.pool.records.uses
        assert (use.code, use.delivery) == ("connection-lost", "in-doubt")
        assert "repeat" not in [stage for stage, _, _ in use.facts or ()], "it was the only pass"


async def test_by_default_nothing_is_repeated_and_nobody_is_asked():
    asked = Asked()
    async with world(server={"call_id_key": KEY}, pool={"on_in_doubt": asked}) as here:
        here.server.on("tools/call", LOST, times=1)
        await refused((await here.tool()).call(identity=ALICE, call_id="x"), "connection-lost", "in-doubt")
        assert ids(here.server) == ["x"]
        assert asked.uses == []
    async with world(server={"call_id_key": KEY, "repeat": "recognised"}) as here:
        here.server.on("tools/call", LOST, times=1)
        await refused((await here.tool()).call(identity=ALICE), "connection-lost", "in-doubt")
        assert here.sent() == 1


async def test_the_repeats_are_counted(autojump_clock):
    asked = Asked()
    async with world(**recognising(asked, max_repeats=3)) as here:
        here.server.recognise_repeats(KEY)
        here.server.on("tools/call", LOST)
        await refused((await here.tool()).call(identity=ALICE), "connection-lost", "in-doubt")
        assert here.sent() == 4
        assert len(asked.uses) == 3
        assert here.server.execution_count("echo") == 1
        times = [arrival.time for arrival in here.server.arrivals("tools/call")]
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        # doubling, and half of each by chance
        assert all(most / 2 <= wait < most + 0.05 for wait, most in zip(waits, (0.2, 0.4, 0.8), strict=True))


async def test_a_repeat_passes_every_check_again_and_a_refusal_leaves_the_doubt(autojump_clock):
    asked = Asked()
    async with world(**recognising(asked)) as here:
        here.server.on("tools/call", LOST)
        tool = (await here.pool.tools(here.host.who))["echo"]

        def withdraw(use):
            asked(use)
            here.host.caller = None
            return "repeat"

        here.pool.on_in_doubt = withdraw
        error = await refused(tool.call(identity=here.host.who), "connection-lost", "in-doubt")
        assert error.__cause__.code == "identity-mismatch"
        assert here.sent() == 1


@pytest.mark.parametrize("what", ["deadline", "cancel", "kill"])
async def test_what_was_ended_from_outside_is_not_repeated(what):
    asked = Asked()
    async with world(**recognising(asked)) as here, trio.open_nursery() as nursery:
        here.server.on("tools/call", Hang())
        tool = await here.tool()
        deadline = trio.current_time() + (0.1 if what == "deadline" else 30)
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="c", deadline=deadline))
        await here.server.wait_for("tools/call")
        if what == "cancel":
            here.pool.cancel("c")
        elif what == "kill":
            here.pool.kill(tool.binding.client_id)
        await until(call.done.is_set)
        assert call.error.delivery == "in-doubt"
        assert asked.uses == []


async def test_a_call_that_is_withdrawn_between_two_passes_is_not_repeated(autojump_clock):
    asked = Asked()
    async with world(**recognising(asked)) as here, trio.open_nursery() as nursery:
        here.server.on("tools/call", LOST)
        tool = await here.tool()
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="c"))
        await until(lambda: len(asked.uses) == 1 and not here.pool.running)
        assert not here.pool.cancel("other")
        assert here.pool.cancel("c")
        await call.done.wait()
        assert (call.error.code, call.error.delivery) == ("connection-lost", "in-doubt")
        assert call.error.__cause__.code == "cancelled"
        await trio.sleep(30)
        assert here.sent() == 1
        assert not here.pool.between
        assert not here.pool.cancel("c")


async def test_a_caller_that_goes_between_two_passes_leaves_nothing(autojump_clock):
    asked = Asked()
    async with world(**recognising(asked)) as here, trio.open_nursery() as nursery:
        here.server.on("tools/call", LOST)
        tool = await here.tool()
        start(nursery, lambda: tool.call(identity=ALICE, call_id="c"))
        await until(lambda: len(here.pool.between) == 1)
        nursery.cancel_scope.cancel()
    assert not here.pool.between
    assert here.sent() == 1


async def test_an_answer_to_a_repeat_is_believed(autojump_clock):
    asked = Asked()
    async with world(**recognising(asked)) as here:
        here.server.on("tools/call", Status(503), times=1)
        here.server.on("tools/call", JsonRpcError(-32000, "it failed then"), times=1)
        await refused((await here.tool()).call(identity=ALICE), "server-error", "answered")


async def test_the_deadline_is_the_call_s_and_not_the_repeat_s(autojump_clock):
    asked = Asked()
    async with world(**recognising(asked, max_repeats=100)) as here:
        here.server.on("tools/call", Delay(1.0))
        here.server.on("tools/call", LOST)
        began = trio.current_time()
        tool = await here.tool()
        with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(20):
            await tool.call(identity=ALICE, deadline=began + 10)
        # it passes while a repeat runs, or the next one would begin after it
        assert caught.value.code in {"connection-lost", "deadline-exceeded"}
        assert caught.value.delivery == "in-doubt"
        assert trio.current_time() - began < 10.1
        assert 2 < here.sent() < 11


async def test_what_the_host_changes_meanwhile_is_not_what_is_repeated(autojump_clock):
    async with world(**recognising(None)) as here:
        here.server.on("tools/call", LOST, times=1)
        args = {"n": 1}

        def change(use):
            args["n"] = 2
            return "repeat"

        here.pool.on_in_doubt = change
        tool = await here.tool()
        assert (await tool.execute(args, ToolContext(identity=ALICE))).text == '{"n": 1}'


def test_a_server_that_is_told_no_id_cannot_recognise_it():
    with pytest.raises(ValueError, match="call_id_key"):
        Server(name="x", repeat="recognised")
    for key in ("", "a b", "io.modelcontextprotocol/x", "progressToken", "tools.mcp.dev/x", 7):
        with pytest.raises(ValueError, match="call_id_key"):
            Server(name="x", call_id_key=key)
    assert Server(name="x", call_id_key="callId").repeat == "never"


async def test_a_call_id_that_cannot_be_sent():
    async with world(server={"call_id_key": KEY}) as here:
        await refused((await here.tool()).call(identity=ALICE, call_id="\ud800"), "invalid-arguments")
        assert here.sent() == 0
