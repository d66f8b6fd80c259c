"""What can be asked: found, refused, helped with, completed; in slices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from afpool import Seams
from afpool._base.identity import KeyDigest
from afpool._base.use import Use
from afpool.console import Ask, Asker, Column, Command, CommandError, Registry, Table
from afpool.console._slices import ROWS_AT_ONCE, STEP, Slices, encode
from afpool.record import Digests
from afpool.record._json import call_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

OPERATOR = Asker("operate", "console uid 1", 1)
READER = Asker("read", "console token read", 2)


def made(count: int = 3) -> Registry:
    registry = Registry(Seams())

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        for at in range(count):
            yield f"thing-{at}", at

    async def slow(_: Ask) -> AsyncIterator[tuple[Any, ...]]:
        await trio.lowlevel.checkpoint()
        for at in range(count):
            yield f"late-{at}", at

    columns = (Column("name", help="what it is called"), Column("n", "count"))
    registry.table(Table(name="things", help="things that there are", columns=columns, rows=rows))
    registry.table(Table(name="lates", help="things that come late", columns=columns, rows=slow))

    async def touch(ask: Ask) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"kind": "done", "what": ask.words[0], "by": ask.asker.who, "hard": ask.flag("hard")}

    registry.command(
        Command(
            words=("touch",),
            usage="touch THING [hard=yes]",
            help="touch a thing",
            run=touch,
            level="operate",
            options=("hard",),
            takes=(1, 1),
            complete=lambda _word, _before: [f"thing-{at}" for at in range(count)],
        )
    )
    registry.command(
        Command(
            words=("show", "thing"), usage="show thing NAME", help="one thing", takes=(1, 1),
            run=lambda ask: {"kind": "thing", "name": ask.words[0]},
        )
    )  # fmt: skip
    return registry


async def ask(asked: Any, by: Asker = OPERATOR, **options: str) -> Any:
    return await made().run(asked, by, options)


async def refused(line: Any, code: str, by: Asker = OPERATOR, **options: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        await made().run(line, by, options)
    assert caught.value.code == code
    assert caught.value.as_json()["code"] == code
    return caught.value


async def test_the_longest_words_that_fit_are_the_command() -> None:
    assert (await ask("show thing a"))["kind"] == "thing"
    assert (await ask("show things"))["kind"] == "table"
    assert (await ask(["show", "thing", "a b"]))["name"] == "a b"


async def test_a_table_may_be_made_with_waits() -> None:
    assert [row[0] for row in (await ask("show lates limit=2"))["rows"]] == ["late-0", "late-1"]


async def test_show_alone_names_the_tables() -> None:
    assert [row[0] for row in (await ask("show"))["rows"]] == ["things", "lates"]
    assert await ask("show tables") == await ask("show")


async def test_what_there_is_not_is_refused_with_the_nearest() -> None:
    assert (await refused("shwo things", "unknown-command")).tries == ("help show",)
    assert (await refused("show thigns", "unknown-table")).tries[0] == "show things"
    assert (await refused("touch thing-1 hrad=yes", "bad-option")).tries == ("help touch",)
    assert (await refused("help thigns", "unknown-command")).tries[0] == "help things"
    assert "usage: touch THING" in (await refused("touch", "bad-option")).message
    await refused("touch a b", "bad-option")
    await refused("", "unknown-command")
    await refused([], "bad-option")
    await refused("show things things", "bad-option")
    await refused("show limit=5", "bad-option")
    await refused("show --reveal", "bad-option", READER)


async def test_a_million_characters_are_too_long_and_cost_nothing() -> None:
    for line in ("x" * 1_000_000, ["show", "x" * 1_000_000], "show things name=" + "x" * 1_000_000):
        error = await refused(line, "too-long")
        assert len(error.message) < 120
    await refused("show things", "too-long", name="x" * 1_000_000)


async def test_control_needs_the_operate_level_and_knows_who_asks() -> None:
    await refused("touch thing-1", "not-allowed", READER)
    done = await ask("touch thing-1 --hard")
    assert (done["by"], done["hard"]) == ("console uid 1", True)
    assert (await ask("touch thing-1"))["hard"] is False
    await refused("touch thing-1 hard=perhaps", "bad-option")


async def test_options_may_stand_in_the_line_and_beside_it() -> None:
    result = await ask("show things n>0", limit="1")
    assert (result["total"], result["shown"]) == (2, 1)


async def test_help_says_what_this_asker_may() -> None:
    every = (await ask("help"))["lines"]
    assert any(line.startswith("touch") for line in every)
    assert not any(line.startswith("touch") for line in (await ask("help", READER))["lines"])
    table = (await ask("help things"))["lines"]
    assert any("what it is called" in line for line in table)
    assert any("filters: name, n, columns, limit, sort" in line for line in table)
    assert any("operate" in line for line in (await ask("help touch"))["lines"])
    assert (await ask("help show thing"))["lines"][0] == "show thing NAME"


def test_what_there_is_as_data_is_plain_and_whole() -> None:
    told = made().describe()
    json.dumps(told)
    assert {"words": ["touch"], "level": "operate"}.items() <= next(
        command for command in told["commands"] if command["words"] == ["touch"]
    ).items()
    table = told["tables"][0]
    assert table["columns"][0] == {"name": "name", "kind": "text", "help": "what it is called"}
    assert "sort" in table["filters"]
    reader = made().describe("read")
    assert ["touch"] not in [command["words"] for command in reader["commands"]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sh", ["show"]),
        ("show thi", ["thing", "things"]),
        ("show l", ["lates"]),
        ("show things ", ["columns=", "limit=", "n=", "name=", "sort="]),
        ("show things n=1 ", ["columns=", "limit=", "name=", "sort="]),
        ("show things name=thing-", ["name=thing-0", "name=thing-1", "name=thing-2"]),
        ("show things sort=", ["sort=-n", "sort=-name", "sort=n", "sort=name"]),
        ("show things n=", []),
        ("touch ", ["hard=", "thing-0", "thing-1", "thing-2"]),
        ("touch thing-1 h", ["hard="]),
        ("nothing ", []),
        ("help th", ["things"]),
        ("x" * 10_000, []),
    ],
)
async def test_completion_gives_whole_last_words(line: str, words: list[str]) -> None:
    assert await made().complete(line, OPERATOR) == words
    answer = await ask(["complete"], line=line) if len(line) < 4000 else {"words": words}
    assert answer["words"] == words


async def test_completion_does_not_name_what_may_not_be_done() -> None:
    assert await made().complete("to", READER) == []
    assert await made().complete("touch ", READER) == []
    assert await made().complete("touch thing-1 h", READER) == []


@given(st.text(max_size=40))
def test_completion_takes_anything(line: str) -> None:
    async def main() -> None:
        for word in await made().complete(line, OPERATOR):
            assert word.startswith(line.rpartition(" ")[2])

    trio.run(main)


# ---------------------------------------------------------------------------- slices


class Clock:
    """Real time that passes with each look."""

    def __init__(self, step: float) -> None:
        self.at = 0.0
        self.step = step

    def __call__(self) -> float:
        self.at += self.step
        return self.at


async def test_a_long_look_gives_others_their_turn() -> None:
    seen = 0

    async def others() -> None:
        nonlocal seen
        while True:
            seen += 1
            await trio.lowlevel.checkpoint()

    slices = Slices(budget=0.0009, clock=Clock(0.0005))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        gone = [thing async for thing in slices.each(range(10 * STEP))]
        nursery.cancel_scope.cancel()
    assert gone == list(range(10 * STEP))
    assert slices.turns == 5
    # who comes first within one step of trio is chance: the turn after the last end may not have come yet
    assert seen >= slices.turns - 1


async def test_a_short_look_ends_no_slice() -> None:
    slices = Slices(clock=Clock(0.0))
    assert [thing async for thing in slices.each(range(100))] == list(range(100))
    assert slices.turns == 0


@given(st.lists(st.integers(0, 9), max_size=80), st.booleans())
def test_sorting_in_slices_is_sorting(things: list[int], reverse: bool) -> None:
    async def main() -> None:
        rows = list(enumerate(things))
        slices = Slices()
        found = await slices.sorted(list(rows), lambda row: row[1], reverse=reverse, run=7)
        assert found == sorted(rows, key=lambda row: row[1], reverse=reverse)

    trio.run(main)


async def test_a_long_table_is_written_as_a_short_one_would_be() -> None:
    count = 3 * ROWS_AT_ONCE + 7
    result = await made(count).run("show things limit=20000", READER)
    assert isinstance(result, dict)
    slices = Slices(budget=0.0)
    wire = json.loads(await encode({"id": 1, "ok": result}, slices))
    assert wire["ok"]["rows"] == [[f"thing-{at}", at] for at in range(count)]
    assert wire["ok"]["total"] == count
    assert slices.turns >= 4
    odd = {**result, "note": '"rows":null', "rows": [('"rows":null', 1)] * count}
    assert json.loads(await encode(odd))["rows"] == [['"rows":null', 1]] * count


async def test_what_json_has_not_is_written_all_the_same() -> None:
    odd = {"a": "\ud800", "b": float("inf"), "c": {1, 2}, "d": object(), "e": [b"x"], "f": {3: None}}
    assert json.loads(await encode(odd)) == {
        "a": "\ud800", "b": None, "c": [1, 2], "d": "<object>", "e": ["<bytes>"], "f": {"3": None},
    }  # fmt: skip


async def test_a_call_whose_name_json_cannot_carry_is_written_all_the_same() -> None:
    use = Use("call-1", "files", "tool \ud800", 1.0)
    use.shown = b'{"n": 1}'
    use.ended_at = 2.0
    line = call_line(use, Digests(KeyDigest(b"0" * 32)), 0.0)
    (event,) = json.loads(await encode({"stream": 1, "events": [line], "dropped": 0}))["events"]
    assert (event["call_id"], event["tool"], event["arguments"]) == ("call-1", "tool \ud800", {"n": 1})


async def test_services_run_as_long_as_the_console_is_open() -> None:
    registry = Registry(Seams())
    began, ended = trio.Event(), []

    async def service() -> None:
        try:
            began.set()
            await trio.sleep_forever()
        finally:
            ended.append("service")

    registry.service(service)
    registry.at_end(lambda: ended.append("told"))
    with pytest.raises(CommandError):
        registry.spawn(service)
    async with registry.serving():
        with trio.fail_after(5):
            await began.wait()
    assert ended == ["told", "service"]


def test_an_asker_that_has_gone_tells_once_and_at_once() -> None:
    asker = Asker("read", "x")
    told: list[str] = []
    take_back = asker.at_end(lambda: told.append("a"))
    asker.at_end(lambda: told.append("b"))
    take_back()
    asker.end()
    asker.end()
    asker.at_end(lambda: told.append("late"))
    assert told == ["b", "late"]
    assert asker.gone
