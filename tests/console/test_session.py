"""One attached console: commands, answers, streams, and what it may not do."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from afpool.console import Column, Table
from afpool.console._ask import CommandError
from afpool.console._session import Asked, id_of, read_message
from tests.console.server_kit import PATIENCE, World, attached, opened, unix

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


async def test_hello_says_who_and_what_there_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as console, attached(await unix(console)) as client:
        hello = client.hello
        assert hello["protocol"] == 1
        assert hello["name"] == "afpool"
        assert hello["level"] == "operate"
        assert hello["who"].startswith("console uid ")
        assert ["echo"] in [command["words"] for command in hello["commands"]]
        assert [table["name"] for table in hello["tables"]] == ["numbers"]
        assert hello["unix"] > 1_700_000_000
        assert client.socket.subprotocol == "afpool.console.1"


async def test_a_line_and_words_ask_the_same(tmp_path: Path) -> None:
    async with opened(tmp_path) as console, attached(await unix(console)) as client:
        by_line = await client.ask("echo a b=c")
        by_words = await client.ask(["echo", "a"], b="c")
        assert by_line["ok"] == by_words["ok"] == {"kind": "text", "lines": ["a", "b=c"]}
        by_value = await client.ask(["echo"], n=2, yes=True, no=False, none=None)
        assert by_value["ok"]["lines"] == ["n=2", "yes=yes", "no=no"]
        rows = await client.ask("show numbers limit=2")
        assert rows["ok"]["rows"] == [[0], [1]]
        assert rows["ok"]["total"] == 5


async def test_commands_that_wait_do_not_keep_the_next(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world) as console, attached(await unix(console)) as client:
        await client.send({"id": 7, "do": "hold"})
        assert (await client.ask("echo on"))["ok"]["lines"] == ["on"]
        world.release.set()
        assert (await client.answer_to(7))["ok"] == {"kind": "done"}


async def test_a_running_command_can_be_stopped(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world) as console, attached(await unix(console)) as client:
        await client.send({"id": 7, "do": "hold"})
        await client.send({"id": 8, "stop": 7})
        frames = {frame["id"]: frame for frame in [await client.get(), await client.get()]}
        assert frames[7]["error"]["code"] == "failed"
        # it may have done something by then: nothing else is claimed
        assert "what it had done by then stays" in frames[7]["error"]["message"]
        assert frames[8]["ok"]["what"] == "stopped 7"
        await client.send({"id": 9, "stop": 7})
        assert (await client.answer_to(9))["error"]["code"] == "unknown-id"


async def test_more_commands_than_may_run_are_busy_and_their_ids_are_told_apart(tmp_path: Path) -> None:
    world = World()
    async with (
        opened(tmp_path, world, limits={"running": 3}) as console,
        attached(await unix(console)) as client,
    ):
        for number in range(3):
            await client.send({"id": 100 + number, "do": "hold"})
        await client.send({"id": 100, "do": "echo"})
        assert (await client.answer_to(100))["error"]["code"] == "busy"
        await client.send({"id": 200, "do": "echo"})
        assert (await client.answer_to(200))["error"]["code"] == "busy"
        world.release.set()
        for _ in range(3):
            assert (await client.get())["ok"] == {"kind": "done"}
        await client.send({"id": 200, "do": "echo"})
        assert "ok" in await client.answer_to(200)


async def test_a_refusal_says_what_to_try(tmp_path: Path) -> None:
    async with opened(tmp_path) as console, attached(await unix(console)) as client:
        answer = await client.ask("refuse")
        assert answer["error"] == {
            "code": "unknown-id", "message": "there is no such thing", "try": ["echo"],
        }  # fmt: skip


async def test_a_fault_inside_a_command_is_an_answer_without_its_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="afpool.console"):
        async with opened(tmp_path) as console, attached(await unix(console)) as client:
            answer = await client.ask("crash")
            assert answer["error"]["code"] == "failed"
            assert "RuntimeError" in answer["error"]["message"]
            assert (await client.ask("echo on"))["ok"]["lines"] == ["on"]
    assert "CANARY" not in json.dumps(answer) + caplog.text
    assert "server_kit.py" in caplog.text


async def test_a_text_that_is_no_unicode_is_answered_all_the_same(tmp_path: Path) -> None:
    async with opened(tmp_path) as console, attached(await unix(console)) as client:
        assert (await client.ask("odd"))["ok"]["lines"] == ["\ud800"]


@pytest.mark.parametrize(
    ("message", "number", "code"),
    [
        ("", None, "bad-option"),
        ("[]", None, "bad-option"),
        ("nonsense", None, "bad-option"),
        ('{"id":3}', 3, "bad-option"),
        ('{"id":3,"do":"echo","stop":2}', 3, "bad-option"),
        ('{"id":3,"do":7}', 3, "bad-option"),
        ('{"id":3,"do":["echo",7]}', 3, "bad-option"),
        ('{"id":3,"do":"echo","with":{"a":[1]}}', 3, "bad-option"),
        ('{"id":"3","do":"echo"}', None, "bad-option"),
        ('{"do":"echo"}', None, "bad-option"),
        ('{"id":-1,"do":"echo"}', None, "bad-option"),
        ('{"id":9007199254740993,"do":"echo"}', None, "bad-option"),
        ('{"id":3,"do":"' + "x" * 4097 + '"}', 3, "too-long"),
        ('{"id":3,"do":["echo","' + "x" * 5000 + '"]}', 3, "too-long"),
        ('{"id":3,"do":["echo"],"with":{"a":"' + "x" * 5000 + '"}}', 3, "too-long"),
        ('{"id":3,"do":[' + ",".join(['"a"'] * 65) + "]}", 3, "too-long"),
        ("[" * 20_000, None, "bad-option"),
    ],
)
async def test_a_message_that_is_none_costs_an_answer_and_no_more(
    tmp_path: Path, message: str, number: int | None, code: str
) -> None:
    async with opened(tmp_path) as console, attached(await unix(console)) as client:
        await client.send(message)
        assert (await client.answer_to(number))["error"]["code"] == code
        assert (await client.ask("echo on"))["ok"]["lines"] == ["on"]


async def test_a_million_characters_end_this_session_and_no_other(tmp_path: Path) -> None:
    async with (
        opened(tmp_path) as console,
        attached(await unix(console)) as other,
        attached(await unix(console)) as client,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_all_the_same, client, "x" * 1_000_000)
            assert await client.closed() == 1009
            nursery.cancel_scope.cancel()
        assert (await other.ask("echo on"))["ok"]["lines"] == ["on"]
        assert len(console.sessions) == 1


async def _send_all_the_same(client: Any, text: str) -> None:
    from trio_websocket import ConnectionClosed

    with contextlib.suppress(ConnectionClosed):
        await client.send(text)


async def test_a_binary_message_ends_the_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as console, attached(await unix(console)) as client:
        await client.send(b"\x00\x01")
        assert await client.closed() == 1003


async def test_garbage_below_the_frames_ends_the_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        stream = await unix(console)
        async with attached(stream) as client:
            await stream.send_all(b"\xff\xff\xff\xff garbage")
            assert await client.closed() in (1002, 1006)
        async with attached(await unix(console)) as other:
            assert (await other.ask("echo on"))["ok"]["lines"] == ["on"]


async def test_a_stream_is_batched_counts_what_it_dropped_and_ends_when_stopped(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world) as console, attached(await unix(console)) as client:
        started = await client.ask("tail")
        assert started["ok"] == {"kind": "stream", "stream": 1}
        [stream] = world.streams
        for number in range(60):  # 50 are kept
            stream.put(number)
        frame = await client.get()
        assert frame["stream"] == 1
        assert [event["thing"] for event in frame["events"]] == list(range(50))
        assert frame["dropped"] == 10
        assert console.sessions[0]["streams"] == 1
        assert console.sessions[0]["dropped"] == 10
        await client.send({"id": 9, "stop": 1})
        ends = [await client.get(), await client.get()]
        assert {"stream": 1, "end": "stopped"} in ends
        assert stream.ended is not None
        assert console.sessions[0]["streams"] == 0


async def test_a_stream_that_ends_by_itself_says_why(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world) as console, attached(await unix(console)) as client:
        await client.ask("tail")
        world.streams[0].put("last")
        world.streams[0].close("the actor is gone")
        assert (await client.get())["events"] == [{"thing": "last"}]
        assert await client.get() == {"stream": 1, "end": "the actor is gone"}


async def test_a_fault_inside_a_stream_ends_the_stream_only(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world) as console, attached(await unix(console)) as client:
        await client.ask("tail")
        world.broken = True
        world.streams[0].put("anything")
        end = await client.get()
        assert end["stream"] == 1
        assert "it failed inside (RuntimeError)" in end["end"]
        assert "CANARY" not in end["end"]
        assert (await client.ask("echo on"))["ok"]["lines"] == ["on"]


async def test_whoever_asked_is_told_once_that_the_session_is_gone(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world) as console:
        stream = await unix(console)
        async with attached(stream) as client:
            await client.ask("lease")
            await client.ask("tail")
            await client.send({"id": 50, "do": "hold"})
            with trio.fail_after(PATIENCE):
                await world.held.wait()
            await trio.aclose_forcefully(stream)  # killed in the middle of a command
        with trio.fail_after(PATIENCE):
            await world.one_gone.wait()
    assert len(world.gone) == 1
    assert world.held_gone == 1
    assert world.streams[0].ended is not None


async def test_a_console_that_does_not_read_gets_less_and_costs_no_memory(tmp_path: Path) -> None:
    world = World()
    limits = {"outbox": 64 * 1024}
    async with opened(tmp_path, world, limits=limits) as console:
        stream = await unix(console)
        async with attached(stream) as client:
            await client.ask("tail")
            [tail] = world.streams
            for _ in range(300):
                for _ in range(20):
                    tail.put("x" * 4000)
                await trio.testing.wait_all_tasks_blocked()
            # what the kernel and the outbox hold, and no more
            assert console.sessions[0]["bytes"] <= 64 * 1024 + 20 * 4100
            assert tail.dropped > 0


async def test_a_console_that_takes_no_byte_is_closed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    async with opened(tmp_path, world) as console:
        stream = await unix(console)
        await _attach_and_read_nothing(stream)
        await trio.testing.wait_all_tasks_blocked()
        assert len(console.sessions) == 1
        began = trio.current_time()
        with trio.fail_after(100):
            await world.one_gone.wait()
        assert 29 <= trio.current_time() - began <= 40
        await stream.aclose()


async def test_a_console_that_does_not_read_keeps_one_table_in_memory(tmp_path: Path) -> None:
    world, made = World(), 0

    def rows(_: object) -> list[tuple[str]]:
        nonlocal made
        made += 1
        return [("x" * 1000,)] * 8000

    world.registry.table(Table(name="wide", help="wide", columns=(Column("x"),), rows=rows))
    async with opened(tmp_path, world) as console:
        stream = await unix(console)
        wide = {"do": "show wide limit=8000"}
        await _attach_and_read_nothing(stream, [{"do": "lease"}, *[wide] * 12, {"do": ["echo"]}])
        while not console.sessions or console.sessions[0]["asked"] < 14:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert console.sessions[0]["running"] >= 11
        assert made <= 2  # one on its way, and one that waits for room
        await stream.aclose()


BIG = ({"do": "lease"}, {"do": ["big"], "with": {"size": "8000000"}})


async def _attach_and_read_nothing(
    stream: trio.SocketStream, asked_for: Sequence[dict[str, Any]] = BIG
) -> None:
    """Attach by hand, ask for more than fits between two sockets, and never read."""
    from wsproto import ConnectionType, WSConnection
    from wsproto.events import Request, TextMessage

    from afpool.console._words import SUBPROTOCOL

    side = WSConnection(ConnectionType.CLIENT)
    await stream.send_all(side.send(Request(host="localhost", target="/console", subprotocols=[SUBPROTOCOL])))
    side.receive_data(bytes(await stream.receive_some()))
    list(side.events())
    for number, asked in enumerate(asked_for):
        await stream.send_all(side.send(TextMessage(json.dumps({"id": number, **asked}))))


async def test_a_flood_of_commands_is_read_slowly(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with (
        opened(tmp_path, limits={"rate": 10.0}) as console,
        attached(await unix(console)) as client,
    ):
        began = trio.current_time()
        for _ in range(10):
            await client.ask("echo")
        assert trio.current_time() - began < 0.5
        for _ in range(30):
            await client.ask("echo")
        assert 2.5 <= trio.current_time() - began <= 4


async def test_an_answer_larger_than_the_outbox_goes_out(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, limits={"outbox": 1000}) as console,
        attached(await unix(console)) as client,
    ):
        answer = await client.ask("big", size="200000")
        assert len(answer["ok"]["lines"][0]) == 200_000


TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {}, optional={"id": st.integers() | TEXT, "do": TEXT | st.lists(TEXT) | JSON, "with": JSON, "stop": JSON}
)


@given(st.one_of(JSON, MESSAGE))
def test_whatever_json_comes_is_read_or_refused(value: Any) -> None:
    text = json.dumps(value)
    asked = read_message(text, 4096)
    assert isinstance(asked, Asked | CommandError)
    if isinstance(asked, Asked):
        assert (asked.do is None) != (asked.stop is None)
        assert asked.id == value.get("id")
    found = id_of(text)
    given_id = value.get("id") if isinstance(value, dict) else None
    if type(given_id) is int and 0 <= given_id < 2**53:
        assert found == given_id
    else:
        assert found is None


@given(st.text(max_size=200))
def test_whatever_text_comes_is_read_or_refused(text: str) -> None:
    assert isinstance(read_message(text, 4096), Asked | CommandError)
    id_of(text)
