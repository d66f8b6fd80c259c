"""Runs: whose artifacts they see, what a checkpoint holds, and who a resumed run acts for."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given

import afpool
from afpool import Identity
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import Run, RuntimeConfig, open_runtime
from afpool.tools import define_tool
from tests.runtime.runtime_kit import ALICE, BOB, runtime, said
from tests.tools.door_kit import Ran, refused

SECRET = b"0123456789abcdef"


async def test_calls_of_a_run_are_recorded_as_its_own() -> None:
    work = Ran()
    async with runtime(tools=[work.tool]) as here:
        run = here.runtime.run(ALICE)
        await run.call("work", {"a": 1}, call_id="c")
        assert (work.ctx.run_id, work.ctx.identity, work.ctx.call_id) == (run.run_id, ALICE, "c")
        assert {event.run_id for event in here.events} == {run.run_id}
        other = here.runtime.run(ALICE)
        assert other.run_id != run.run_id
        assert len(other.run_id) > 20
        assert here.runtime.run(ALICE, "mine").run_id == "mine"
        for wrong in ("", 3):
            with pytest.raises(ValueError, match="run's id"):
                here.runtime.run(ALICE, wrong)  # type: ignore[arg-type]


@define_tool
async def mint(ctx: afpool.ToolContext) -> str:
    meta = await ctx.artifacts.put(NewArtifact(kind="rows", media_type="text/plain", data="x"))
    return str(meta.ref)


@define_tool(wants={"data": "rows"})
def read(data: str, ctx: afpool.ToolContext) -> Any:
    return {"data": data, "identity": None if ctx.identity is None else "somebody"}


async def test_artifacts_are_the_callers_or_the_runs_own() -> None:
    store = MemoryArtifacts()
    async with runtime(tools=[mint, read], artifacts=store) as here:
        run = here.runtime.run(ALICE)
        ref = (await run.call("mint")).text
        assert (await store.head(ALICE, ref)) is not None
        assert (await here.runtime.run(ALICE).call("read", {"data": ref})).code == "ok"
        refused(await here.runtime.run(BOB).call("read", {"data": ref}), "wants-refused")

        nobody = here.runtime.run()
        ref = (await nobody.call("mint")).text
        found = await nobody.call("read", {"data": ref})
        # its scope is no caller's identity
        assert found.structured == {"data": "x", "identity": None}
        assert {event.identity for event in here.events if event.run_id == nobody.run_id} == {None}
        assert (await store.head(Identity(conversation_id=nobody.run_id), ref)) is not None
        refused(await here.runtime.run().call("read", {"data": ref}), "wants-refused")
        assert nobody.artifacts is not None
        assert (await nobody.artifacts.head(ref)) is not None
        meta = await nobody.artifacts.put(NewArtifact(kind="k", media_type="text/plain", data="y"))
        assert meta.origin is not None
        assert meta.origin.run_id == nobody.run_id
    async with runtime(tools=[mint]) as here:
        assert here.runtime.run().artifacts is None


async def test_what_nobody_stores_outside_of_a_run_only_that_call_sees() -> None:
    inside: list[Any] = []

    @define_tool
    async def outer(ctx: afpool.ToolContext) -> str:
        ref = (await ctx.tools.call("mint")).text
        inside.append(await ctx.tools.call("read", {"data": ref}))
        return ref

    async with runtime(tools=[mint, read, outer], artifacts=MemoryArtifacts()) as here:
        for nobody in (None, Identity()):
            ref = (await here.runtime.dispatch(nobody, "outer")).text
            assert inside[-1].structured["data"] == "x"
            refused(await here.runtime.dispatch(nobody, "read", {"data": ref}), "wants-refused")
            refused(await here.runtime.run().call("read", {"data": ref}), "wants-refused")
        assert len({event.run_id for event in here.events if event.payload.get("tool_name") == "outer"}) == 2


async def test_a_run_whose_caller_cannot_be_asked_is_refused() -> None:
    work = Ran()

    def broken() -> Identity:
        raise ValueError

    async with runtime(tools=[work.tool]) as here:
        run = here.runtime.run(broken)
        refused(await run.call("work"), "identity-missing")
        assert not work.calls
        with pytest.raises(afpool.IdentityMissing):
            run.checkpoint()


async def test_a_run_whose_caller_was_withdrawn_is_not_kept_as_nobodys() -> None:
    here_is: list[Identity | None] = [ALICE]
    async with runtime(tools=[Ran(name="work").tool]) as here:
        run = here.runtime.run(lambda: here_is[0])
        assert here.runtime.resume(run.checkpoint()).identity == ALICE
        here_is[0] = None
        with pytest.raises(afpool.IdentityMissing, match="withdrawn"):
            run.checkpoint()
        assert "identity" not in here.runtime.run(None).checkpoint()  # one that was nobody's stays so


async def test_a_resumed_run_keeps_its_callers_identity() -> None:
    work = Ran(name="work")
    async with runtime({"files": [said("files", "read")]}, tools=[work.tool]) as here:
        run = here.runtime.run(lambda: ALICE, "r")
        await run.toolset()
        saved = run.checkpoint()
        assert saved["afpool_run"] == 1
        assert saved["run_id"] == "r"
        assert saved["identity"] == {"tenant": "acme", "principal": "alice"}
        assert {shown: place[:2] for shown, place in saved["offer"].items()} == {"read": ["files", "read"]}
        for form in (saved, json.dumps(saved), json.dumps(saved).encode()):
            again = here.runtime.resume(form)
            assert (again.run_id, again.identity) == ("r", ALICE)
            assert (await again.call("read")).code == "ok"
            assert (await again.call("work")).code == "ok"
            # paused once more before it was listed anew, it is still the same run
            assert again.checkpoint() == saved
        assert work.calls[-1][1].identity == ALICE
        assert here.runtime.resume(saved, BOB).identity == BOB
        assert (await here.runtime.resume(saved, BOB).call("work")).code == "ok"
        assert here.events[-1].identity == BOB


async def test_a_run_of_nobody_is_resumed_as_nobodys() -> None:
    store = MemoryArtifacts()
    async with runtime(tools=[mint, read], artifacts=store) as here:
        run = here.runtime.run()
        ref = (await run.call("mint")).text
        saved = json.loads(json.dumps(run.checkpoint()))
        assert set(saved) == {"afpool_run", "run_id"}
    async with runtime(tools=[mint, read], artifacts=store) as here:
        again = here.runtime.resume(saved)
        assert again.identity is None
        found = await again.call("read", {"data": ref})
        assert found.structured == {"data": "x", "identity": None}


async def test_a_tool_that_changed_while_the_run_was_paused_is_refused() -> None:
    async with runtime({"files": [said("files", "read"), said("files", "gone")]}) as here:
        run = here.runtime.run(ALICE)
        await run.toolset()
        saved = run.checkpoint()
        here.servers["files"].set_tools(
            [said("files", "read", description="something else"), said("files", "new")], notify=False
        )
        await here.runtime.toolset(ALICE, refresh=True)
        again = here.runtime.resume(saved)
        refused(await again.call("read"), "stale-tools")
        refused(await again.call("gone"), "stale-tools")
        assert here.sent("files") == 0
        # a tool that it was never offered is whatever there is
        assert (await again.call("new")).code == "ok"
        await again.toolset()
        assert (await again.call("read")).code == "ok"


async def test_a_name_that_went_to_another_server_is_refused() -> None:
    async with runtime({"a": [said("a", "find")], "b": [said("b", "x")]}) as here:
        run = here.runtime.run(ALICE)
        await run.toolset()
        saved = run.checkpoint()
        here.servers["a"].set_tools([said("a", "y")], notify=False)
        here.servers["b"].set_tools([said("b", "find")], notify=False)
    async with runtime({"a": [said("a", "y")], "b": [said("b", "find")]}) as here:
        refused(await here.runtime.resume(saved).call("find"), "stale-tools")
        assert here.sent("b") == 0


async def test_a_name_that_went_to_a_tool_of_the_hosts_own_is_refused() -> None:
    async with runtime({"a": [said("a", "find")]}) as here:
        run = here.runtime.run(ALICE)
        await run.toolset()
        saved = run.checkpoint()
    own = Ran(name="find")
    async with runtime({"a": [said("a", "find")]}, tools=[own.tool]) as here:
        again = here.runtime.resume(saved)
        refused(await again.call("find"), "stale-tools")
        assert (own.calls, here.sent("a")) == ([], 0)
        await again.toolset()
        assert (await again.call("find")).code == "ok"
        assert len(own.calls) == 1


async def test_a_run_lists_anew_when_its_ground_has_changed() -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        run = here.runtime.run(ALICE)
        assert (await run.call("read")).code == "ok"
        here.servers["files"].set_tools([said("files", "read"), said("files", "new")], notify=False)
        await here.runtime.toolset(ALICE, refresh=True)
        refused(await run.call("read"), "stale-tools")
        assert (await run.call("read")).code == "ok"
        assert (await run.call("new")).code == "ok"
        # what was asked for stays what it is, until it is asked for again
        await run.toolset()
        here.servers["files"].set_tools([said("files", "read")], notify=False)
        await here.runtime.toolset(ALICE, refresh=True)
        for _ in range(2):
            refused(await run.call("read"), "stale-tools")


# ---------------------------------------------------------------------------- checkpoints of strangers


async def opened(**config: Any) -> Any:
    async with open_runtime(**config) as here:
        return here


async def test_a_checkpoint_of_ones_own_is_proven() -> None:
    async with open_runtime(secret=SECRET) as here:
        saved = here.run(ALICE, "r").checkpoint()
        assert here.resume(saved).identity == ALICE
        assert here.resume(json.dumps(saved, indent=1)).identity == ALICE
        assert SECRET.decode() not in json.dumps(saved)
        forged = {**saved, "identity": {"principal": "bob"}}
        without = {key: value for key, value in saved.items() if key != "proof"}
        for wrong in (forged, without, {**saved, "proof": "x"}, {**saved, "proof": 3}, {**saved, "more": 1}):
            with pytest.raises(ValueError, match="proof does not hold"):
                here.resume(wrong)
    async with open_runtime(secret=b"another secret 0") as here:
        with pytest.raises(ValueError, match="proof does not hold"):
            here.resume(saved)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "no checkpoint"),
        ("nonsense", "no checkpoint"),
        ("[1]", "is no object"),
        (b"\xff", "no checkpoint"),
        ({"afpool_run": 2, "run_id": "r"}, "another version"),
        ({"afpool_run": 1}, "run's id"),
        ({"afpool_run": 1, "run_id": ""}, "run's id"),
        ({"afpool_run": 1, "run_id": "r", "identity": {"principal": 3}}, "identity"),
        ({"afpool_run": 1, "run_id": "r", "identity": {"admin": "yes"}}, "identity"),
        ({"afpool_run": 1, "run_id": "r", "identity": "alice"}, "identity"),
        ({"afpool_run": 1, "run_id": "r", "offer": []}, "offer"),
        ({"afpool_run": 1, "run_id": "r", "offer": {"x": ["a", "b"]}}, "offer"),
        ({"afpool_run": 1, "run_id": "r", "offer": {"x": ["a", "b", 3]}}, "offer"),
        ({"afpool_run": 1, "run_id": object()}, "no checkpoint"),
        ('{"afpool_run": 1, "run_id": "r", "run_id": "s"}', "no checkpoint"),
        (3, "no checkpoint"),
    ],
)
async def test_what_is_no_checkpoint_is_refused(wrong: Any, says: str) -> None:
    async with open_runtime() as here:
        with pytest.raises(ValueError, match=says):
            here.resume(wrong)


FIELD = st.one_of(st.none(), st.text(alphabet=st.characters(codec="utf-8"), max_size=8))


@given(
    FIELD, FIELD, FIELD, st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=8), st.booleans()
)
def test_whoever_a_run_acts_for_is_who_the_resumed_one_acts_for(
    tenant: str | None, principal: str | None, conversation: str | None, run_id: str, proven: bool
) -> None:
    who = Identity(tenant, principal, conversation)

    async def run() -> tuple[Run, Run]:
        async with open_runtime(RuntimeConfig(secret=SECRET if proven else None)) as here:
            before = here.run(who, run_id)
            return before, here.resume(json.dumps(before.checkpoint()))

    before, after = trio.run(run)
    assert after.run_id == before.run_id == run_id
    assert after.scope == before.scope
    assert (after.identity or Identity()) == who
