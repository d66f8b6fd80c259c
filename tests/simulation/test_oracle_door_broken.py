"""A broken door is seen: for each rule of the door, afpool is broken in one place, and a story shows it.

The same story as afpool is breaks nothing, so that it is the breakage that is seen.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from afpool import Identity
from afpool.runtime import _inner, _offers, _toolset
from afpool.tools import _call, _execute, _fills, _host_filled, _live_refs, _prepare, _wants
from tests.simulation import steps as s
from tests.simulation.driver import run_story
from tests.simulation.world import Person, ServerSpec, ToolSpec, World
from tests.simulation.world_door import DoorSpec, LocalSpec, RulesSpec

if TYPE_CHECKING:
    from collections.abc import Callable

PEOPLE = (
    Person(name="alice", tenant="acme", principal="alice"),
    Person(name="bob", tenant="acme", principal="bob"),
)
RULES = {
    "files": RulesSpec(
        fill={"account": "principal", "token": "credential"}, wants={"doc": "doc"}, redact=("secret",)
    )
}
KINDS: tuple[Any, ...] = ("says", "takes", "shelf", "filled", "needs", "calls", "large", "puts", "slow")
LOCALS = (
    *(LocalSpec(name=f"own-{kind}", kind=kind) for kind in KINDS),
    LocalSpec(name="own-wide", kind="wide", seed=3),
)


def story(
    *steps: s.Step, hooks: tuple[Any, ...] = (), tools: Any = (), seed: int = 3, **door: Any
) -> s.Story:
    spec = ServerSpec(
        name="files",
        tools=(
            ToolSpec(name="echo"), ToolSpec(name="sleep", kind="sleep"), ToolSpec(name="vault", kind="vault"),
            *tools,
        ),
    )  # fmt: skip
    door = {"tools": LOCALS, "rules": RULES, "hooks": hooks, **door}
    return s.Story(World(people=PEOPLE, servers=(spec,), door=DoorSpec(**door)), steps, seed)


def call(at: float, number: int, tool: str = "vault", **members: Any) -> s.DoorCall:
    server = None if tool.startswith("own-") else "files"
    members = {"who": "alice", "server": server, **members}
    return s.DoorCall(at=at, id=f"d{number}", tool=tool, **members)


def put(at: float, who: str) -> s.PutArtifact:
    return s.PutArtifact(at=at, who=who)


def rules(told: s.Story) -> set[str]:
    return {violation.split()[0] for violation in run_story(told).violations}


# ------------------------------------------------------------------------------------------ how it is broken


def everybody_is_bob(patch: pytest.MonkeyPatch) -> None:
    value = _fills.identity_value

    def careless(fill: Any, ctx: Any, tool: str, field: str) -> str:
        return value(fill, attrs.evolve(ctx, identity=Identity(principal="bob")), tool, field)

    patch.setattr(_host_filled, "identity_value", careless)


def one_credential_for_all(patch: pytest.MonkeyPatch) -> None:
    fetch, kept = _prepare.credential_for, []

    async def first(*args: Any) -> Any:
        kept.append(await fetch(*args))
        return kept[0]

    patch.setattr(_prepare, "credential_for", first)


def the_model_fills(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools._supplied import Filled

    patch.setattr(Filled, "supplied", lambda self, args: {})
    complete = _host_filled._complete

    def theirs(name: str, fills: Any, args: Any, ctx: Any) -> Any:
        filled, hiding = complete(name, fills, args, ctx)
        filled.update(args)
        return filled, hiding

    patch.setattr(_host_filled, "_complete", theirs)


def references_open_everywhere(patch: pytest.MonkeyPatch) -> None:
    async def get(self: Any, ref: str) -> Any:
        for name in ("alice", "bob"):
            found = await self._store.get(Identity(tenant="acme", principal=name), ref)
            if found is not None:
                return found
        return None

    patch.setattr(_live_refs.Scoped, "get", get)


def any_answer_of_a_store_is_believed(patch: pytest.MonkeyPatch) -> None:
    async def redeem(artifacts: Any, arg: str, kind: str, given: Any) -> Any:
        return await artifacts.get(given)

    patch.setattr(_wants, "_redeem", redeem)


def rows_that_strayed_are_told(patch: pytest.MonkeyPatch) -> None:
    async def trusting(artifacts: Any, row: Any, kind: Any) -> Any:
        return row

    patch.setattr(_live_refs, "_confirmed", trusting)


def answers_are_mixed_up(patch: pytest.MonkeyPatch) -> None:
    run, last = _call.Call.run, []

    async def late(self: Any) -> Any:
        last.append(await run(self))
        return last[0]

    patch.setattr(_call.Call, "run", late)


def a_tool_runs_again(patch: pytest.MonkeyPatch) -> None:
    run = _execute.run_of

    def twice(tool: Any) -> Any:
        once = run(tool)

        async def both(args: Any, ctx: Any) -> Any:
            if not tool.name.startswith("own-"):
                return await once(args, ctx)
            await once(args, ctx)
            return await once(args, ctx)

        return both

    patch.setattr(_execute, "run_of", twice)


def names_are_shifted(patch: pytest.MonkeyPatch) -> None:
    getitem = _toolset.RuntimeToolset.__getitem__

    def other(self: Any, name: str) -> Any:
        return getitem(self, "sleep" if name == "echo" else name)

    patch.setattr(_toolset.RuntimeToolset, "__getitem__", other)


def failures_did_not_run(patch: pytest.MonkeyPatch) -> None:
    def refused(self: Any, error: Any) -> Any:
        error.delivery = "not-sent"
        return refuse(self, error)

    refuse = _call.Call._refused
    patch.setattr(_call.Call, "_refused", refused)


def no_time_passes(patch: pytest.MonkeyPatch) -> None:
    async def without(self: Any, step: Any, *args: Any) -> Any:
        return await step(*args)

    patch.setattr(_call.Call, "_within", without)


def inner_calls_are_bobs(patch: pytest.MonkeyPatch) -> None:
    init = _inner.InnerTools.__init__

    def made(self: Any, runtime: Any, toolset: Any, outer: Any) -> None:
        init(self, runtime, toolset, attrs.evolve(outer, identity=Identity(tenant="acme", principal="bob")))

    patch.setattr(_inner.InnerTools, "__init__", made)


def denials_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    async def passing(hooks: Any, asked: Any) -> Any:
        for hook in hooks:
            hook.before(asked)
        return asked.args

    patch.setattr(_call, "ask_before", passing)


def arguments_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    from afpool._base.compiled import Compiled

    patch.setattr(Compiled, "allows", lambda self, args: True)


def arguments_are_never_good(patch: pytest.MonkeyPatch) -> None:
    from afpool._base.compiled import Compiled

    patch.setattr(Compiled, "allows", lambda self, args: False)


def nothing_is_known(patch: pytest.MonkeyPatch) -> None:
    init = _offers.Offers.__init__

    def empty(self: Any, *args: Any) -> None:
        init(self, *args)
        self.local.clear()

    patch.setattr(_offers.Offers, "__init__", empty)


def results_are_not_cleaned(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools._hiding import Hiding

    async def as_it_is(self: Any, result: Any) -> Any:
        return result

    patch.setattr(Hiding, "result", as_it_is)


def what_is_redacted_is_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_call, "shown_args_of", lambda tool, args: args)


def arguments_are_logged(patch: pytest.MonkeyPatch) -> None:
    run = _execute.Executing.run

    async def telling(self: Any, tool: Any, known: Any, args: Any) -> Any:
        logging.getLogger("afpool").debug("runs with %s", json.dumps(dict(args)))
        return await run(self, tool, known, args)

    patch.setattr(_execute.Executing, "run", telling)


def everything_is_called_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_execute, "WORTH_REPEATING", frozenset({"session-handle-lost", "connection-lost"}))
    again = _execute.Executing._again

    async def careless(self: Any, tool: Any, error: Any) -> Any:
        error.delivery = "not-sent" if error.delivery == "in-doubt" else error.delivery
        return await again(self, tool, error)

    patch.setattr(_execute.Executing, "_again", careless)


def patterns_find_what_they_should_not(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools import _pattern_match

    search = _pattern_match.Patterns.search
    patch.setattr(_pattern_match.Patterns, "search", lambda self, text, work: not search(self, text, work))


def corrections_lie(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_call, "correction_of", lambda tool, issues: "x\n- mark: required but missing\nx")


def binary_contents_are_not_looked_into(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools import _scrub

    patch.setattr(_scrub, "_blobs_of", lambda raw: iter(()))


def errors_are_not_cleaned(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools import _scrub_errors

    patch.setattr(_scrub_errors, "cleaned", lambda error, scrubber: error)


def what_is_required_stays(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools._schema_branches import Cutter

    patch.setattr(Cutter, "_left", lambda self, names: names)


def failing_views_show(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools import _shown

    patch.setattr(_shown, "_all_hidden", lambda args: args)


def everything_may_be_left_out(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools import _signature

    schema = _signature._schema

    def loose(*args: Any) -> Any:
        return {**schema(*args), "required": []}

    patch.setattr(_signature, "_schema", loose)


def nothing_wanted_is_required(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_wants, "_required", lambda schema: ())


def values_are_made_up(patch: pytest.MonkeyPatch) -> None:
    from afpool.tools._fills import Secret

    patch.setattr(_host_filled, "credential_value", lambda *args: Secret("made up"))


def something_else_is_read(patch: pytest.MonkeyPatch) -> None:
    from afpool.artifacts import MemoryArtifacts

    get = MemoryArtifacts.get

    async def changed(self: Any, scope: Any, ref: str) -> Any:
        return attrs.evolve(await get(self, scope, ref), data="something else")

    patch.setattr(MemoryArtifacts, "get", changed)


def uses(what: Any) -> s.Story:
    return story(put(0.5, "alice"), *(s.UseTools(at=seed, what=what, seed=seed) for seed in range(1, 9)))


BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], s.Story]] = {
    "D1 identity": ("the field of another", everybody_is_bob, story(call(1, 1))),
    "D1 credential": (
        "that of another", one_credential_for_all, story(call(1, 1), call(2, 2, who="bob")),
    ),
    "D1 model": ("what a model says", the_model_fills, story(call(1, 1, sets="token"))),
    "C1 model": ("what a model says", the_model_fills, story(call(1, 1, sets="token"))),
    "D2 scope": (
        "a reference of another", references_open_everywhere,
        story(put(1, "bob"), call(2, 1, tool="own-takes", ref="foreign")),
    ),
    "D2 stray": (
        "what a store gives instead", any_answer_of_a_store_is_believed,
        story(put(1, "bob"), s.ChangeShelf(at=2, how="strays"), call(3, 1, tool="own-takes", ref="unknown")),
    ),
    "D2 told": (
        "a reference in a refusal", rows_that_strayed_are_told,
        story(put(1, "bob"), s.ChangeShelf(at=2, how="strays"), call(3, 1, tool="own-takes", ref="unknown")),
    ),
    "D2 read": (
        "what was put", something_else_is_read, story(s.PutArtifact(at=1, who="alice", read_after=0.1)),
    ),
    "D3": ("answers of others", answers_are_mixed_up, story(call(1, 1), call(2, 2))),
    "D4 twice": ("a tool runs twice", a_tool_runs_again, story(call(1, 1, tool="own-says"))),
    "D4 name": ("another tool", names_are_shifted, story(call(1, 1, tool="echo"))),
    "D5": (
        "it has run", failures_did_not_run,
        story(call(1, 1, tool="own-slow", args={"seconds": 5}, deadline=1.0)),
    ),
    "D6": ("late", no_time_passes, story(call(1, 1, tool="own-slow", args={"seconds": 5}, deadline=1.0))),
    "D7": (
        "for another", inner_calls_are_bobs,
        story(call(1, 1, tool="own-calls", args={"calls": [{"tool": "own-says"}]})),
    ),
    "C1 hook": ("denied", denials_are_forgotten, story(call(1, 1, tool="own-says"), hooks=("denies",))),
    "C1 schema": (
        "against its schema", arguments_are_not_looked_at, story(call(1, 1, tool="echo", args={"region": 7})),
    ),
    "C1 good": ("by its schema", arguments_are_never_good, story(call(1, 1, tool="echo"))),
    "C1 unknown": (
        "a tool of the host's own", nothing_is_known, story(call(1, 1, tool="own-says")),
    ),
    "I6 result": ("a credential in a result", results_are_not_cleaned, story(call(1, 1))),
    "I6 shown": (
        "a redacted argument", what_is_redacted_is_recorded, story(call(1, 1, args={"secret": "s"})),
    ),
    "I6 log": (
        "a redacted argument in a log", arguments_are_logged, story(call(1, 1, args={"secret": "s"})),
    ),
    "C1 wide": (
        "against a large schema", arguments_are_not_looked_at,
        story(call(1, 1, tool="own-wide", args={"wide": 1})),
    ),
    "C1 words": (
        "what is missing", corrections_lie, story(call(1, 1, tool="own-wide", args={"wide": 1})),
    ),
    "I6 coded": (
        "a credential in base64", binary_contents_are_not_looked_into,
        story(call(1, 1, tool="own-needs", args={"how": "blob"}), seed=4),  # a secret that is no number
    ),
    "I6 error": (
        "a credential in an error", errors_are_not_cleaned,
        story(call(1, 1, tool="own-needs", args={"how": "group"})),
    ),
    "D8 cuts": ("schemas that are cut", what_is_required_stays, uses("cuts")),
    "D8 views": ("views that fail", failing_views_show, uses("views")),
    "D8 signatures": ("signatures", everything_may_be_left_out, uses("signatures")),
    "D8 wants": ("references", nothing_wanted_is_required, uses("wants")),
    "D8 direct": ("fills", values_are_made_up, uses("direct")),
    "D8": ("patterns", patterns_find_what_they_should_not, story(s.UseTools(at=1, what="patterns"))),
    "I3 again": (
        "what may have run", everything_is_called_twice,
        story(
            call(1, 1, tool="echo"), s.DropNext(at=2, server="files", method="tools/call", executed=True),
            call(3, 2, tool="echo"), again=True,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_door_is_seen(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, break_it, told = BROKEN[case]
    assert run_story(told).violations == [], "afpool as it is"
    break_it(monkeypatch)
    assert case.split(maxsplit=1)[0] in rules(told)
