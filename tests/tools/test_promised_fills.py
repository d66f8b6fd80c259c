"""What filling leaves as it was, and what it says that it cannot cover."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from afpool import CredentialRequirement, Tool, ToolContext, ToolResult, bearer
from afpool.tools import (
    RedactionPolicy,
    ResultCeiling,
    carries_argument_view,
    define_tool,
    from_credential,
    from_identity,
    host_filled,
    redacted,
    with_result_ceiling,
    with_wants,
)
from afpool.tools._derive import derive, fact
from afpool.tools._limits import ceiling_of
from tests.tools.door_kit import ALICE, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "host-filled.md"
SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "token": {"type": "string"}, "rows": {"type": "array"}},
    "required": ["token"],
}
FILL = {"token": from_credential("crm")}


class Listed(Tool):
    """A tool with everything that a listing may say of one."""

    name = "find"  # type: ignore[assignment]
    description = "Finds."  # type: ignore[assignment]
    input_schema = SCHEMA  # type: ignore[assignment]
    output_schema = {"type": "object"}  # type: ignore[assignment]  # noqa: RUF012
    annotations = {"readOnlyHint": True}  # type: ignore[assignment]  # noqa: RUF012
    source = "crm"  # type: ignore[assignment]

    def __init__(self, answer: Callable[[str], Any] | None = None) -> None:
        self.answer = answer

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        said = self.answer(args["token"]) if self.answer is not None else "done"
        return ToolResult(json.dumps({"content": [{"type": "text", "text": said}]}).encode(), "c")


def test_everything_but_the_argument_is_as_it_was() -> None:
    base = derive(Listed(), facts={"of the host": "kept"})
    base = with_result_ceiling(redacted(base, RedactionPolicy(keys=["q"])), ResultCeiling(500))
    base = with_wants(base, {"rows": "dataset/rows"})
    tool = host_filled(base, FILL)
    for name in ("name", "description", "output_schema", "annotations", "source"):
        assert getattr(tool, name) == getattr(base, name) == getattr(Listed(), name), name
    assert tool.wants == {"rows": "dataset/rows"}
    assert fact(tool, "of the host") == "kept"
    assert carries_argument_view(tool)
    assert ceiling_of(tool) == ResultCeiling(500)
    assert set(tool.input_schema["properties"]) == {"q", "rows"}
    assert set(base.input_schema["properties"]) == {"q", "token", "rows"}
    assert (tool.needs, base.needs) == (CredentialRequirement("crm"), None)


# what a tool may make of a value, as the page names it
TRANSFORMED: dict[str, Callable[[str], str]] = {
    "reversed": lambda value: value[::-1],
    "cut in two": lambda value: f"{value[:6]} {value[6:]}",
    "in another case": str.upper,
    "base64 in a text": lambda value: base64.b64encode(value.encode()).decode(),
    "hexadecimal": lambda value: value.encode().hex(),
    "hashed": lambda value: hashlib.sha256(value.encode()).hexdigest(),
    "compressed": lambda value: base64.b85encode(zlib.compress(value.encode())).decode(),
}


@pytest.mark.parametrize("how", TRANSFORMED)
async def test_what_a_tool_makes_of_a_value_is_not_covered_and_the_page_says_so(how: str) -> None:
    made = TRANSFORMED[how](SECRET)
    tool = host_filled(Listed(TRANSFORMED[how]), FILL)
    answered = await tool.execute({"q": "x"}, ToolContext(identity=ALICE, credential=bearer(SECRET)))
    assert answered.text == made
    assert f"| {how} | no |" in PAGE.read_text(encoding="utf-8")


def test_the_page_names_no_other_form_that_is_not_covered() -> None:
    rows = [
        line.split(" | ")
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.endswith(" | no |")
    ]
    assert {row[0].removeprefix("| ") for row in rows} == set(TRANSFORMED)


async def test_an_identity_is_no_secret_and_is_given_back() -> None:
    @define_tool
    def whoami(who: str) -> str:
        return f"you are {who}"

    tool = host_filled(whoami, {"who": from_identity("principal")})
    answered = await tool.execute({}, ToolContext(identity=ALICE, credential=bearer(SECRET)))
    assert answered.text == "you are alice"
