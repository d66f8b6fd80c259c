"""Who is asked again stays one and the same from a call's beginning until its tool runs; or it does not."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from afpool import (
    CredentialRequirement,
    HttpTransport,
    Identity,
    IdentityMismatch,
    Plan,
    ScriptedCredentials,
    Server,
    ToolContext,
    bearer,
    open_runtime,
)
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import ServerRules
from afpool.testing import FakeServer, Hold
from afpool.tools import Hook, define_tool, from_identity, host_filled
from tests.runtime.runtime_kit import ALICE, BOB, runtime, taking
from tests.tools.door_kit import Ran

NOBODY = None


class Caller:
    """Who says who he is, until he is somebody else."""

    def __init__(self, who: Identity | None = ALICE) -> None:
        self.who = who

    def __call__(self) -> Identity | None:
        return self.who


def mismatch(here: Any, result: Any) -> None:
    assert (result.code, result.delivery) == ("identity-mismatch", "not-sent"), result.text
    assert [event.kind for event in here.events].count("tool_start") == 1
    assert here.events[-1].kind == "tool_end"
    assert {event.identity for event in here.events} == {ALICE}


@pytest.mark.parametrize("becomes", [BOB, NOBODY])
@pytest.mark.parametrize("when", ["hook", "credential"])
async def test_who_changes_before_the_tool_runs_runs_nothing(when: str, becomes: Any) -> None:
    caller, work = Caller(), Ran(needs="crm")

    def change() -> None:
        caller.who = becomes

    def vend(request: Any) -> Any:
        if when == "credential":
            change()
        return bearer("t0ken-of-alice")

    async def before(call: Any) -> None:
        await trio.lowlevel.checkpoint()
        if when == "hook":
            change()

    vends = ScriptedCredentials(vend)
    async with runtime(tools=[work.tool], credentials=vends, hooks=[Hook("h", before=before)]) as here:
        mismatch(here, await here.runtime.dispatch(caller, "work", {}))
        assert work.calls == []
        # whoever is another before anything was put together for him is asked for no credential
        assert len(vends.requests) == (when == "credential")


async def test_who_changes_while_his_artifacts_are_looked_up_runs_nothing() -> None:
    caller, store = Caller(), MemoryArtifacts()
    got = MemoryArtifacts.get

    async def get(scope: Any, ref: str) -> Any:
        found = await got(store, scope, ref)
        caller.who = BOB
        return found

    class Changing:
        """The store, in which the caller changes meanwhile."""

        def __getattr__(self, name: str) -> Any:
            return get if name == "get" else getattr(store, name)

    schema = {"type": "object", "properties": {"data": {}}}
    work = Ran(wants={"data": "rows"}, input_schema=schema, needs="crm")
    vends = ScriptedCredentials(lambda request: bearer("t0ken"))
    meta = (await store.put(ALICE, NewArtifact(kind="rows", media_type="application/json", data=[1]))).ref
    async with runtime(tools=[work.tool], artifacts=Changing(), credentials=vends) as here:
        mismatch(here, await here.runtime.dispatch(caller, "work", {"data": meta}))
        assert (work.calls, vends.requests) == ([], [])


@pytest.mark.parametrize("becomes", [BOB, NOBODY])
@pytest.mark.parametrize("own", [True, False])
async def test_a_call_from_inside_is_for_who_began_the_outer_one(own: bool, becomes: Any) -> None:
    caller, work = Caller(), Ran(name="work")
    inner: list[Any] = []

    async def run(args: Any, ctx: ToolContext) -> str:
        caller.who = becomes
        inner.append(await ctx.tools.call("work" if own else "search", {}))
        return "has run"

    outer = define_tool(execute=run, name="outer")
    tools = [outer, work.tool] if own else [outer]
    async with runtime({"crm": [taking("crm", "search")]}, tools=tools) as here:
        await here.runtime.toolset(ALICE)
        assert (await here.runtime.dispatch(caller, "outer", {})).text == "has run"
        assert (inner[0].code, inner[0].delivery) == ("identity-mismatch", "not-sent")
        assert (work.calls, here.sent("crm")) == ([], 0)


async def test_a_toolset_is_not_given_to_who_changed_while_rules_were_applied(monkeypatch: Any) -> None:
    caller = Caller()
    async with runtime({"crm": [taking("crm", "search")]}) as here:
        served = here.runtime.served["crm"]
        apply = type(served).apply

        async def slowly(self: Any, listed: Any) -> Any:
            caller.who = BOB
            return await apply(self, listed)

        monkeypatch.setattr(type(served), "apply", slowly)
        with pytest.raises(IdentityMismatch):
            await here.runtime.toolset(caller)
        assert (await here.runtime.run(ALICE).call("search", {})).code == "ok"


@pytest.mark.parametrize("through", ["door", "directly"])
async def test_what_was_filled_from_one_principal_does_not_leave_for_another(through: str) -> None:
    caller = Caller()

    def vend(request: Any) -> Any:
        caller.who = BOB  # of the same tenant, and so of the same key
        return bearer("t0ken-of-acme")

    fills = {"who": from_identity("principal")}
    async with FakeServer.http(tools=[taking("crm", "search", who={"type": "string"})]) as fake:
        plan = Plan(
            transport=HttpTransport(url=fake.url), credential=CredentialRequirement("crm", mode="machine")
        )
        servers = [Server(name="crm", plan=plan, keyed_on=("tenant",))]
        async with open_runtime(servers=servers, credentials=ScriptedCredentials(vend)) as opened:
            plain = (await opened.toolset(ALICE))["search"]
            caller.who = ALICE
            with trio.fail_after(30):
                if through == "directly":
                    filled = host_filled(plain, fills)
                    with pytest.raises(IdentityMismatch):
                        await filled.execute({}, ToolContext(identity=caller))
                else:
                    opened.reconfigure(rules={"crm": ServerRules(fill=fills)})
                    await opened.toolset(ALICE)
                    caller.who = ALICE
                    result = await opened.dispatch(caller, "search", {})
                    assert (result.code, result.delivery) == ("identity-mismatch", "not-sent")
            assert fake.count("tools/call") == 0
            if through == "door":  # and it would have run
                assert (await opened.dispatch(ALICE, "search", {})).code == "ok"


@pytest.mark.parametrize("last", [ALICE, Caller()])
async def test_who_joined_the_listing_of_one_who_is_withdrawn_lists_himself(last: Any) -> None:
    first, second = Caller(), Caller()
    got: dict[str, Any] = {}
    async with runtime({"crm": [taking("crm", "search")]}, list_patience=20) as here:
        event = trio.Event()
        here.servers["crm"].on("tools/list", Hold(event), times=1)

        async def ask(name: str, caller: Any) -> None:
            try:
                got[name] = await here.runtime.toolset(caller)
            except IdentityMismatch as error:
                got[name] = error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "first", first)
            await here.servers["crm"].wait_for("tools/list")
            nursery.start_soon(ask, "second", second)
            nursery.start_soon(ask, "last", last)
            await trio.testing.wait_all_tasks_blocked()
            first.who = second.who = NOBODY
            event.set()
        assert isinstance(got["first"], IdentityMismatch)
        assert isinstance(got["second"], IdentityMismatch)
        assert (list(got["last"]), got["last"].problems) == (["search"], {})
