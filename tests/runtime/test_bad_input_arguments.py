"""What a model may send, through every way into the door: the refusal that is promised, and nothing runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest

from tests.runtime import bad_input_kit as kit
from tests.runtime.bad_arguments import ROWS, Row
from tests.runtime.bad_input_kit import HIDDEN, Scene, scene, spotless


async def meant(at: Scene, row: Row) -> Any:
    """Put the refs in that only a store can give."""
    args = row.args
    if not isinstance(args, dict) or not str(args.get("rows", "")).startswith("REF "):
        return args
    which = args["rows"].removeprefix("REF ")
    if which == "expired":
        gone = at.refs["own"]
        await at.runtime.config.artifacts.delete(kit.ALICE, gone)  # type: ignore[union-attr]
        return {"rows": gone}
    return {"rows": at.refs[which]}


def check(at: Scene, row: Row, result: Any) -> None:
    assert (result.code, result.delivery) == (row.code, "not-sent"), result.text
    assert result.is_error
    assert row.says in result.text, result.text
    assert len(result.text) < 4_000
    assert not at.has_run()
    kit.one_of_each(at.here.events)
    assert [event.kind for event in at.here.events].count("tool_end") == 1
    spotless(result, [event for event in at.here.events if event.kind != "tool_start"], hidden=(kit.SECRET,))
    if row.tool == "hides":
        spotless(result, list(at.here.events))
    else:
        spotless(result)
    credentials = [event.kind for event in at.here.events if event.kind.startswith("credential")]
    assert credentials == []  # nothing was fetched for a call that does not run


@pytest.mark.parametrize("which", ROWS)
async def test_what_a_model_sends_is_refused_the_same_on_every_way_in(which: str) -> None:
    row = ROWS[which]
    async with scene() as at:
        args = await meant(at, row)
        texts = set()
        for way in kit.ways(at).values():
            at.forget()
            with kit.bounded():
                result = await way(row.tool, args)
            check(at, row, result)
            texts.add(result.text)
        assert len(texts) == 1

        at.forget()
        result = await kit.through_another_tool(at, row.tool, args)
        assert row.says in result.text, result.text
        assert not at.has_run()
        kit.one_of_each(at.here.events)

        at.forget()
        refusal = await kit.directly(at, row.tool, args)
        assert (None if refusal is None else refusal.code) == row.direct or row.direct is None
        if row.direct is not None:
            assert not at.has_run()
            spotless(refusal)


@pytest.mark.parametrize("spoken", kit.MESSAGES)
async def test_what_a_model_sends_is_refused_in_its_own_format(spoken: str) -> None:
    async with scene() as at:
        for row in ROWS.values():
            args = await meant(at, row)
            at.forget()
            with kit.bounded():
                told = await kit.through_format(at, spoken, row.tool, args)
            assert not at.has_run()
            spotless(told)
            assert len(told) < 6_000


@pytest.mark.parametrize("spoken", ["openai chat", "openai responses"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"q": NaN}', "not a string of 10 characters"),
        ('{"q": Infinity}', "not a string of 15 characters"),
        ('{"q": 1e999}', "not a string of 12 characters"),
        ('{"q": "\\ud800"}', "a string with a lone surrogate"),
        ('{"q": ', "not a string of 6 characters"),
        ("[" * 100_000, "not a string of 100000 characters"),
        ('{"q":' * 100_000, "not a string of 500000 characters"),
        ('{"q": ' + "9" * 5_000 + "}", "closed"),
        ('{"q": "x", "q": 3}', "q: expected string, got integer"),
        ('"x"', "not a string of 1 characters"),
        ("null", "q: required but missing"),
        ("", "q: required but missing"),
    ],
)
async def test_arguments_that_come_as_text_are_read_or_refused(spoken: str, text: str, says: str) -> None:
    async with scene() as at:
        told = await kit.through_format(at, spoken, "closed", text)
        assert says in told, told
        assert not at.has_run()


@pytest.mark.parametrize(
    "name", ["", "x" * 1_000_000, "\ud800", "art_", 5, None, ["closed"], {"a": 1}, ("closed",)]
)
async def test_a_name_that_is_none_is_refused_with_what_there_is(name: Any) -> None:
    async with scene() as at:
        for way in kit.ways(at).values():
            at.forget()
            result = await way(name, {"secret": HIDDEN})
            assert (result.code, result.delivery) == ("unknown-tool", "not-sent"), result.text
            assert "There are:" in result.text
            assert len(result.text) < 1_000
            spotless(result, list(at.here.events))
            kit.one_of_each(at.here.events)


async def test_what_is_refused_takes_little_memory() -> None:
    async with scene() as at:
        for which, row in ROWS.items():
            args = await meant(at, row)
            await at.toolset.call(row.tool, {})
            at.forget()
            tracemalloc.start()
            try:
                await at.toolset.call(row.tool, args)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            # a few copies of the largest of them (1 MB), and what it is spoken of with
            assert peak < 24 << 20, (which, peak)


_CHILD = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (90, 90))
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
import trio
from tests.runtime.test_bad_input_arguments import ROWS, meant
from tests.runtime.bad_input_kit import scene, ways

async def main():
    async with scene() as at:
        for which, row in ROWS.items():
            result = await at.toolset.call(row.tool, await meant(at, row))
            assert result.code == row.code, which

trio.run(main)
print("done")
"""


def test_all_of_it_takes_bounded_time_and_memory() -> None:
    # the limits are generous; what grows with the square of a megabyte, or worse, passes them by far
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip() == "done", done.stderr[-2_000:]


def test_what_looks_for_hidden_values_would_find_them() -> None:
    fault = ValueError("outer")
    fault.__cause__ = KeyError(HIDDEN)
    for thing in (json.dumps([HIDDEN]), fault, [fault]):
        with pytest.raises(AssertionError):
            spotless(thing)
