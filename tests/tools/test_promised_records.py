"""What a record holds, and when it is taken: the same bytes where no rule acted, names before the run."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from afpool import NeedsAuthorization, ScriptedCredentials
from afpool.artifacts import MemoryArtifacts
from afpool.tools import (
    Deny,
    Hook,
    RedactionPolicy,
    Replace,
    ResultLimits,
    content_result,
    define_tool,
    from_identity,
    host_filled,
    redacted,
)
from afpool.tools._redaction import REDACTED, RedactionRule
from afpool.tools._shown import args_redacted_by
from tests.tools.door_kit import Ran, door, refused

PLAIN = ["call_id", "result", "duration_ms"]
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
WANTING = {"input_schema": {**SCHEMA}, "wants": {"q": "rows"}}


async def sleep(args: Any, ctx: Any) -> str:
    await trio.sleep_forever()
    return "never"


def filled() -> Any:
    schema = {"type": "object", "properties": {"q": {}, "who": {"type": "string"}}}
    return host_filled(Ran(input_schema=schema).tool, {"who": from_identity("conversation_id")})


WAYS: dict[str, tuple[Any, Any, dict[str, Any], bool]] = {
    # what is called, with what, through what door, whether it is an error
    "ran": (lambda: Ran({"a": 1}).tool, {}, {}, False),
    "ran, with nothing to say": (lambda: Ran(None).tool, {}, {}, False),
    "ran, with a store and a limit": (
        lambda: Ran("x").tool, {}, {"store": MemoryArtifacts(), "limits": ResultLimits(max_chars=300)}, False,
    ),
    "ran, past hooks that let it": (
        lambda: Ran("x").tool, {},
        {"hooks": [Hook("h", before=lambda call: None, after=lambda call, result: None)]}, False,
    ),
    "ran, with a view that hides nothing": (
        lambda: redacted(Ran("x").tool, RedactionPolicy(keys=["token"])), {"q": "x"}, {}, False,
    ),
    "an unknown tool": (lambda: None, {"q": "x"}, {}, True),
    "arguments of no form": (lambda: Ran().tool, ["q"], {}, True),
    "arguments that are wrong": (lambda: Ran(input_schema=SCHEMA).tool, {"q": 7}, {}, True),
    "no store": (lambda: Ran(**WANTING).tool, {"q": "art_x"}, {}, True),
    "a reference to nothing": (
        lambda: Ran(**WANTING).tool, {"q": "art_x"}, {"store": MemoryArtifacts()}, True,
    ),
    "no provider": (lambda: Ran(needs="crm").tool, {}, {}, True),
    "a provider that fails": (
        lambda: Ran(needs="crm").tool, {}, {"credentials": ScriptedCredentials([OSError("down")])}, True,
    ),
    "somebody's consent is missing": (
        lambda: Ran(needs="crm").tool, {},
        {"credentials": ScriptedCredentials([NeedsAuthorization("https://idp.example/a", "s")])}, True,
    ),
    "nothing to fill in": (filled, {"q": "x"}, {}, True),
    "the tool raised": (lambda: Ran(ValueError("no")).tool, {}, {}, True),
    "the tool says that it failed": (
        lambda: Ran(content_result([{"type": "text", "text": "no"}], is_error=True)).tool, {}, {}, True,
    ),
    "the deadline passed": (lambda: define_tool(execute=sleep, name="work"), {}, {"deadline": 2.0}, True),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_where_no_rule_acted_an_end_holds_three_facts_and_whether_it_failed(
    way: str, autojump_clock: trio.testing.MockClock
) -> None:
    tool, args, options, failed = WAYS[way]
    through = door(**options)
    result = await through(tool(), args, call_id="c")
    assert result.is_error == failed, result.text
    end = through.events.of("tool_end")
    # in this order, so that what is written of it is the same byte for byte
    assert list(end) == ([*PLAIN, "error"] if failed else PLAIN)
    assert (end["call_id"], end["result"], end.get("error", False)) == ("c", result.document, failed)
    assert set(through.events.of("tool_start")) == {"tool_name", "call_id", "args"}
    json.dumps([event.payload for event in through.events], allow_nan=False)


# ---------------------------------------------------------------------------- taken before the tool runs


async def test_the_names_that_differ_are_taken_before_the_tool_runs() -> None:
    def spoil(args: Any, ctx: Any) -> str:
        args["later"] = "x"
        args["kept"] = "other"
        del args["token"]
        return "done"

    hook = Hook("h", before=lambda call: Replace({**call.args, "new": "y"}))
    through = door(hooks=[hook])
    tool = redacted(Ran(spoil).tool, RedactionPolicy(keys=["token"]))
    await through(tool, {"token": "t", "kept": "k"})
    # without `later` and `kept`, which the tool itself set
    assert through.events.of("tool_end")["changed_arg_keys"] == ["token", "new"]


async def test_a_denied_call_names_no_keys_though_a_view_hides_some() -> None:
    hook = Hook("h", before=lambda call: Deny("no"))
    through = door(hooks=[hook])
    tool = redacted(Ran().tool, RedactionPolicy(keys=["token"]))
    refused(await through(tool, {"token": "t"}), "denied")
    assert list(through.events.of("tool_end")) == [*PLAIN, "not_executed"]


@pytest.mark.parametrize("first", ["the call", "the run"])
def test_what_one_run_marked_is_shown_by_every_call(first: str) -> None:
    policy = RedactionPolicy(keys=["password"], patterns=["tok"])
    view, rule = args_redacted_by(policy), RedactionRule(policy)
    args = {"city": "Ulm", "password": "p"}
    if first == "the call":  # what was judged before is judged anew for the run
        assert view(args) == {"city": "Ulm", "password": "REDACTED"}
    rule.mark("city")
    for _ in range(2):
        assert rule.retain_record(args, REDACTED) == {"city": "REDACTED", "password": "REDACTED"}
        assert view(args) == {"city": "Ulm", "password": "REDACTED"}


def test_a_dotted_key_is_that_path_and_none_that_begins_like_it() -> None:
    record = {"a": {"b": 1, "bc": 2, "b.c": 3}, "a.b": 4, "a.bc": 5, "za": {"b": 6}}
    # the second one makes longer paths worth a look
    rule = RedactionRule(RedactionPolicy(keys=["a.b", "x.longer"], deep=True))
    hidden = {"a": {"b": REDACTED, "bc": 2, "b.c": 3}, "a.b": REDACTED, "a.bc": 5, "za": {"b": 6}}
    assert rule.retain_record(record, REDACTED) == hidden
