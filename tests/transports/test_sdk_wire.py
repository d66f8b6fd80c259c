"""The wire to a server object, against a stand-in for the SDK that does what the test says."""

from __future__ import annotations

import contextlib
import gc
import sys
import types
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing

import afpool
from afpool import MemoryTransport, OpenFailed, Plan, Server, StaleTools
from afpool._base.gate import OpenGate
from afpool.transports._memory import DEFAULT_CAPACITY
from afpool.transports._sdk import GRACE, QUEUED, SdkWire, server_name
from afpool.transports._wire import Outgoing, WireClosed
from tests.pool.kit import ALICE
from tests.transports.wire_kit import SwitchGate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@attrs.frozen
class SessionMessage:
    message: Any


@attrs.frozen
class Json:
    text: str

    @classmethod
    def model_validate_json(cls, line: bytes) -> Json:
        if not line.startswith(b"{"):
            raise ValueError("no message")
        return cls(line.decode())

    def model_dump_json(self, *, by_alias: bool, exclude_none: bool) -> str:
        assert by_alias
        assert exclude_none
        return self.text


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the names importable that the SDK has."""
    for name, members in {
        "mcp": {},
        "mcp.shared": {},
        "mcp.shared.message": {"SessionMessage": SessionMessage},
        "mcp.types": {"JSONRPCMessage": Json},
    }.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)


class Standin:
    """A server whose `run` is the test's."""

    name = "files"

    def __init__(self, run: Callable[[Any, Any], Awaitable[None]]) -> None:
        self._run = run
        self.options: list[object] = []

    def create_initialization_options(self) -> object:
        return "own"

    async def run(self, read: Any, write: Any, options: object) -> None:
        self.options.append(options)
        await self._run(read, write)


async def parrot(read: Any, write: Any) -> None:
    async for item in read:
        await write.send(item)


def keeping(seen: list[Any]) -> Callable[[Any, Any], Awaitable[None]]:
    async def keep(read: Any, write: Any) -> None:
        while True:
            seen.append(await read.receive())

    return keep


@contextlib.asynccontextmanager
async def running(
    run: Callable[[Any, Any], Awaitable[None]], options: object = None
) -> AsyncIterator[SdkWire]:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            wire = SdkWire(Standin(run), options)
            nursery.start_soon(wire.serve)
            yield wire
            wire.close()
            await wire.ended()


@pytest.mark.usefixtures("sdk")
class TestWire:
    async def test_messages_go_there_and_back(self):
        async with running(parrot) as wire:
            await wire.send(b'{"a":1}\n', OpenGate())
            assert await wire.receive() == b'{"a":1}\n'
            assert wire.alive()

    async def test_a_batch_is_handed_over_in_the_step_of_its_gates(self):
        seen: list[Any] = []

        async with running(keeping(seen)) as wire:
            await trio.testing.wait_all_tasks_blocked()
            gates = [SwitchGate(), SwitchGate(closed=True), SwitchGate()]
            batch = [Outgoing(b'{"n":%d}\n' % number, gate) for number, gate in enumerate(gates)]
            wire.push(batch)
            assert [message.done for message in batch] == [True, False, True]
            assert isinstance(batch[1].refusal, StaleTools)
            await trio.testing.wait_all_tasks_blocked()
            assert [item.message.text for item in seen] == ['{"n":0}', '{"n":2}']

    async def test_what_is_no_message_reaches_the_server_as_an_error(self):
        seen: list[Any] = []

        async with running(keeping(seen)) as wire:
            await wire.send(b"nonsense\n", OpenGate())
            await trio.testing.wait_all_tasks_blocked()
            assert [type(item) for item in seen] == [ValueError]

    async def test_a_server_that_takes_nothing_leaves_the_gate_to_be_asked_again(self):
        go = trio.Event()
        seen = 0

        async def slow(read: Any, write: Any) -> None:
            nonlocal seen
            await go.wait()
            async for _ in read:
                seen += 1

        async with running(slow) as wire, trio.open_nursery() as nursery:
            for _ in range(QUEUED):
                await wire.send(b"{}\n", OpenGate())
            gate = SwitchGate()
            message = Outgoing(b"{}\n", gate)
            assert wire.push([message]) == 0
            assert not message.begun
            refused: list[str] = []

            async def sender() -> None:
                try:
                    await wire.send(b"{}\n", gate)
                except StaleTools as error:
                    refused.append(error.code)

            nursery.start_soon(sender)
            await trio.testing.wait_all_tasks_blocked()
            gate.closed = True
            go.set()
            await trio.testing.wait_all_tasks_blocked()
            assert refused == ["stale-tools"]
            assert (seen, gate.begun) == (QUEUED, 0)

    async def test_a_reader_that_is_slow_holds_the_server_up(self):
        written = 0

        async def flood(read: Any, write: Any) -> None:
            nonlocal written
            while True:
                await write.send(SessionMessage(Json("x" * 1000)))
                written += 1

        async with running(flood) as wire:
            await trio.testing.wait_all_tasks_blocked()
            before = written
            assert before <= DEFAULT_CAPACITY // 1000 + 3
            await wire.receive()
            await trio.testing.wait_all_tasks_blocked()
            assert written > before

    @pytest.mark.parametrize("raises", [False, True])
    async def test_a_server_that_ends_or_raises_ends_its_wire_and_nothing_else(self, raises, caplog):
        async def short(read: Any, write: Any) -> None:
            await write.send(SessionMessage(Json("{}")))
            if raises:
                raise RuntimeError("secret")

        async with running(short) as wire:
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(WireClosed) as caught:
                await wire.send(b"{}\n", OpenGate())
            assert not caught.value.local
            assert not raises or "RuntimeError" in caplog.text
            assert "secret" not in caplog.text
            assert not wire.alive()
            assert await wire.receive() == b"{}\n", "what it said before is read"
            assert await wire.receive() == b""

    async def test_a_close_is_the_end_of_the_servers_stream_and_what_goes_on_is_cancelled(
        self, autojump_clock
    ):
        ends: list[str] = []

        async def stubborn(read: Any, write: Any) -> None:
            async for _ in read:
                pass
            ends.append("end")
            try:
                await trio.sleep_forever()
            finally:
                ends.append("cancelled")

        async with running(stubborn) as wire:
            await trio.testing.wait_all_tasks_blocked()
            start = trio.current_time()
            wire.close()
            await wire.ended()
            assert trio.current_time() - start == pytest.approx(GRACE)
        assert ends == ["end", "cancelled"]

    async def test_the_options_are_the_servers_own_or_the_apps(self):
        for given, got in ((None, "own"), ("app", "app")):
            server = Standin(parrot)
            async with trio.open_nursery() as nursery:
                wire = SdkWire(server, given)
                nursery.start_soon(wire.serve)
                await trio.testing.wait_all_tasks_blocked()
                wire.close()
            assert server.options == [got]

    async def test_a_server_runs_once_per_wire(self):
        async with running(parrot) as wire:
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError):
                await wire.serve()

    async def test_a_server_that_cannot_be_opened_leaves_nothing_behind(self):
        async def broken(read: Any, write: Any) -> None:
            raise RuntimeError("secret")

        plan = Plan(transport=MemoryTransport.of_server(Standin(broken)))
        with trio.fail_after(20):
            async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
                with pytest.raises(OpenFailed) as caught:
                    await pool.tools(ALICE)
        assert "secret" not in str(caught.value)


async def test_without_the_sdk_an_opening_fails_and_says_so(monkeypatch):
    # it may be installed all the same: the northbound server stands on it
    for name in ("mcp", "mcp.shared", "mcp.shared.message", "mcp.types"):
        monkeypatch.setitem(sys.modules, name, None)
    plan = Plan(transport=MemoryTransport.of_server(Standin(parrot)))
    with trio.fail_after(20):
        async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
            with pytest.raises(OpenFailed, match="ModuleNotFoundError"):
                await pool.tools(ALICE)


def test_what_is_no_server_is_refused():
    with pytest.raises(TypeError):
        MemoryTransport.of_server(object())


def test_high_level_servers_hold_the_one_that_is_run():
    inner = Standin(parrot)
    for name in ("_mcp_server", "_lowlevel_server"):
        outer = types.SimpleNamespace(**{name: inner})
        with pytest.raises(TypeError, match="give it a name"):
            MemoryTransport.of_server(outer)  # such a namespace cannot be a key
        assert MemoryTransport.of_server(outer, name="mine").name == "mine"


def test_each_server_object_has_a_name_of_its_own_that_nothing_keeps_alive():
    one, two = Standin(parrot), Standin(parrot)
    names = {server_name(one), server_name(two), server_name(one)}
    assert len(names) == 2
    assert all(name.startswith("files#") for name in names)
    contexts = {Plan(transport=MemoryTransport.of_server(s)).context(b"k") for s in (one, two, one)}
    assert len(contexts) == 2
    del one, two
    gc.collect()
    assert server_name(Standin(parrot)) not in names
