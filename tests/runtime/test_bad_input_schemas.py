"""Schemas of strangers through the whole door: what a call then gives, what is fetched, and what it costs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any, Literal

import attrs
import pytest
import trio

from afpool import StaticCredentials
from afpool.runtime import ServerRules
from afpool.testing import FakeTool
from afpool.tools import from_credential
from tests.runtime.bad_input_kit import spotless
from tests.runtime.runtime_kit import ALICE, runtime
from tests.tools.door_kit import SECRET

D4 = "http://json-schema.org/draft-04/schema#"
D7 = "http://json-schema.org/draft-07/schema#"
TEXT = {"type": "string"}
A50K = "a" * 50_000 + "!"


def of(q: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"q": q, "token": TEXT}, "required": ["q"], **more}


def doubling(levels: int) -> dict[str, Any]:
    refs = {
        f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"$ref": f"#/$defs/d{at + 1}"}]}
        for at in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**refs, f"d{levels}": {"type": "integer"}}}


def nested(levels: int, leaf: Any = 1) -> Any:
    for _ in range(levels):
        leaf = {"next": leaf}
    return leaf


Outcome = Literal["withheld", "validated", "not validated"]


@attrs.frozen
class Row:
    """One odd schema.

    Attributes:
        schema: As the server lists it.
        outcome: Whether the tool is offered, and whether its arguments are held to the schema.
        good: Arguments that run.
        bad: Arguments that are refused where they are held to it, and that run where they are not.
        says: Of the refusal, of the reason why it is withheld, or of the warning.
    """

    schema: Any
    outcome: Outcome
    good: Any = None
    bad: Any = None
    says: str = ""


RECURSIVE = of({"$ref": "#/$defs/node"}, **{
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}
})  # fmt: skip
ROWS: dict[str, Row] = {
    "true": Row(True, "withheld", says="no object but bool"),
    "a list": Row([TEXT], "withheld", says="no object but list"),
    "a text": Row("object", "withheld", says="no object but str"),
    "nothing": Row(None, "withheld", says="no object but NoneType"),
    "recursive": Row(
        RECURSIVE, "validated", {"q": nested(100, {})}, {"q": nested(100, 3)}, "expected object"
    ),
    "recursive, and a value too deep for it": Row(
        RECURSIVE, "validated", {"q": {}}, {"q": nested(600, {})}, "nested deeper than"
    ),
    "recursive without a step down": Row(
        of({"$ref": "#/properties/q"}), "not validated", {"q": 1}, {"q": []}, "cannot be followed to an end"
    ),
    "doubling": Row(of(TEXT, **doubling(60)), "not validated", {"q": "x"}, {"q": 3}, "many thousand times"),
    "contradictory": Row(
        of({"allOf": [TEXT, {"type": "integer"}]}), "validated", None, {"q": 1}, "q: expected"
    ),
    "contradictory at the top": Row(
        of(TEXT, **{"not": {"required": ["q"]}}), "validated", None, {"q": "x"}, "expected what not allows"
    ),
    "contradictory bounds": Row(
        of({"type": "integer", "minimum": 5, "maximum": 3}),
        "validated",
        None,
        {"q": 4},
        "expected at least 5",
    ),
    "a pattern of repeats": Row(
        of({"type": "string", "pattern": "(a+)+$"}), "validated", {"q": "aaa"}, {"q": A50K}, "matches (a+)+$"
    ),
    "a pattern of alternatives": Row(
        of({"pattern": "^(a|a|aa)*$"}), "validated", {"q": "a" * 50_000}, {"q": A50K}, "matches ^(a|a|aa)*$"
    ),
    "a pattern for names": Row(
        of(TEXT, patternProperties={"^(a+)+$": {"type": "integer"}}),
        "validated",
        {"q": "x", A50K: "x"},
        {"q": "x", "a" * 5_000: "x"},
        "expected integer, got string",
    ),
    "a pattern that looks ahead": Row(
        of({"type": "string", "pattern": "^(?=a)(a+)+$"}),
        "validated",
        {"q": A50K},
        {"q": 3},
        "q: expected string",
    ),
    "a pattern that looks ahead, for names": Row(
        of({"type": "integer"}, patternProperties={"(?=a)(a+)+$": {}}, additionalProperties=False),
        "validated",
        {"q": 1, A50K: 1},
        {"q": "x"},
        "q: expected integer",
    ),
    "a pattern that looks ahead, negated": Row(
        of({"type": "string", "not": {"pattern": "(?!x)y"}}),
        "validated",
        {"q": "x"},
        {"q": 1},
        "q: expected string",
    ),
    "a pattern that is none": Row(
        of({"pattern": "("}), "validated", {"q": "("}, {}, "q: required but missing"
    ),
    "a pattern too large": Row(
        of({"type": "string", "pattern": "(((a{1000}){1000}){1000})"}),
        "validated",
        {"q": "a"},
        {"q": 1},
        "q: expected string",
    ),
    "a value that is a pattern": Row(
        {"$schema": D7, **of({"format": "regex"})},
        "validated",
        {"q": "(((a{1000}){1000}){1000})"},
        {"q": "("},
        "the format regex",
    ),
    "many items, and none": Row(
        of({"minItems": 10**30}), "validated", {"q": 1}, {"q": []}, "items, got array"
    ),
    "many characters": Row(
        of({"minLength": 2**63}), "validated", {"q": 1}, {"q": "x"}, "characters, got string"
    ),
    "a multiple of next to nothing": Row(
        of({"multipleOf": 5e-324}), "validated", {"q": 1e308}, {}, "q: required"
    ),
    "a multiple of a fraction": Row(
        of({"multipleOf": 0.01}), "validated", {"q": 4.35}, {"q": 4.355}, "a multiple of"
    ),
    "a multiple of nothing": Row(
        of({"multipleOf": 0}), "not validated", {"q": 1}, {"q": []}, "no valid schema"
    ),
    "a huge bound": Row(of({"maximum": 10**400}), "validated", {"q": 10**399}, {}, "q: required"),
    "items that differ": Row(
        of({"uniqueItems": True}),
        "validated",
        {"q": [{"n": n} for n in range(30_000)]},
        {"q": [*range(30_000), 3]},
        "items that differ",
    ),
    "ten thousand alternatives": Row(
        of({"items": {"anyOf": [{"const": n} for n in range(10_000)]}}),
        "validated",
        {"q": [9_999]},
        {"q": [9_999] * 10_000},
        "more than can be checked against this schema",
    ),
    "ten thousand names": Row(
        of({"items": {"required": [f"k{n}" for n in range(10_000)]}}),
        "validated",
        {"q": []},
        {"q": [{}] * 2_000},
        "q[0].k0: required but missing",
    ),
    "a reference out of it": Row(
        of({"$ref": "http://127.0.0.1:PORT/schema.json"}),
        "not validated",
        {"q": 1},
        {"q": []},
        "nothing is fetched",
    ),
    "a reference to a file": Row(
        of({"$ref": "file:///etc/passwd"}), "not validated", {"q": 1}, {"q": []}, "nothing is fetched"
    ),
    "a dialect from elsewhere": Row(
        {"$schema": "http://127.0.0.1:PORT/meta.json", **of(TEXT)},
        "not validated",
        {"q": 1},
        {"q": []},
        "nothing is fetched",
    ),
    "draft 4": Row(
        {
            "$schema": D4,
            **of({"type": "integer", "minimum": 0, "exclusiveMinimum": True}),
            "id": "http://x/y",
        },
        "validated",
        {"q": 1},
        {"q": 0},
        "q: expected",
    ),
    "draft 4, lists and dependencies": Row(
        {"$schema": D4, **of({"items": [TEXT, {"type": "integer"}]}), "dependencies": {"a": ["b"]}},
        "validated",
        {"q": ["x", 1]},
        {"q": ["x", "y"]},
        "q[1]: expected integer",
    ),
    "draft 4 without saying so": Row(
        of({"minimum": 0, "exclusiveMinimum": True}), "not validated", {"q": 1}, {"q": -1}, "no valid schema"
    ),
    "no properties": Row(
        {"type": "object", "properties": None}, "not validated", {"q": 1}, {}, "no valid schema"
    ),
    "no type that there is": Row(of({"type": "nonsense"}), "not validated", {"q": 1}, {}, "no valid schema"),
    "an empty one": Row({}, "validated", {"anything": ["goes"]}),
    "five megabytes": Row(
        of(
            TEXT,
            properties={
                "q": TEXT,
                "token": TEXT,
                **{
                    f"p{n}": {"type": "string", "pattern": "^a+$", "description": "d" * 60}
                    for n in range(40_000)
                },
            },
        ),
        "validated",
        {"q": "x", "p7": "aa"},
        {"q": "x", "p39999": "b"},
        "p39999: expected a string that matches ^a+$",
    ),
}
FAST = [which for which in ROWS if which != "five megabytes"]


async def outcome_of(row: Row, port: int, *, filled: bool) -> None:
    """List the tool and call it."""
    ran: list[Any] = []

    def answer(arguments: Any, arrival: Any) -> str:
        ran.append(arguments)
        return "ran"

    schema = json.loads(json.dumps(row.schema).replace("PORT", str(port)))
    tools = [FakeTool("odd", answer, inputSchema=schema), FakeTool("fine", answer, inputSchema=of(TEXT))]
    rules = {"files": ServerRules(fill={"token": from_credential("crm")})} if filled else {}
    async with runtime({"files": tools}, rules=rules, credentials=StaticCredentials({"crm": SECRET})) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert "fine" in toolset  # whatever the other is
        if "odd" not in toolset:
            # one whose filled argument cannot be hidden is not shown, whatever it would be otherwise
            why = toolset.quarantined["files/odd"]
            assert row.says in why if row.outcome == "withheld" else filled and "cannot-hide" in why, why
            return
        assert row.outcome != "withheld"
        if filled and "token" in str(row.schema):
            assert "token" not in toolset["odd"].input_schema.get("properties", {})
            refused = await toolset.call("odd", {**(row.good or {}), "token": None})
            assert refused.code == "ERR_HOST_FILLED_ARGUMENT"
        for args, good in ((row.good, True), (row.bad, row.outcome == "not validated")):
            if args is None:
                continue
            ran.clear()
            result = await here.runtime.dispatch(ALICE, "odd", args)
            assert (result.code, bool(ran)) == (("ok", True) if good else ("invalid-arguments", False)), (
                result.text
            )
            assert good or row.says in result.text, result.text
            assert len(result.text) < 4_000
            spotless(result, [event for event in here.events if event.kind != "tool_start"])


@pytest.mark.parametrize("filled", [False, True], ids=["as it is", "filled"])
@pytest.mark.parametrize("which", FAST)
async def test_an_odd_schema_costs_its_own_tool_at_most(
    which: str, filled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    row = ROWS[which]
    visits: list[str] = []

    async def visited(stream: trio.abc.Stream) -> None:
        visits.append("somebody came")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, visited, [listener])
        with caplog.at_level(logging.WARNING, "afpool"), trio.fail_after(60):
            await outcome_of(row, listener.socket.getsockname()[1], filled=filled)
        nursery.cancel_scope.cancel()
    assert visits == []
    warned = [record.getMessage() for record in caplog.records if "schema" in record.getMessage()]
    assert len(warned) <= 1
    if row.outcome == "not validated" and not filled:
        assert len(warned) == 1
        assert row.says in warned[0]
    spotless(warned)


_CHILD = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
import trio
from tests.runtime.test_bad_input_schemas import ROWS, outcome_of

async def main():
    for which, row in ROWS.items():
        for filled in (False, True):
            await outcome_of(row, 9, filled=filled)

trio.run(main)
print("done")
"""


def test_all_of_them_take_bounded_time_and_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.stdout.strip() == "done", done.stderr[-3_000:]
