"""A process that has no descriptor left, or no thread: openings fail by name, what lives goes on.

The limit is lowered to what is open in this process, and set back. Servers are processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import (
    CredentialFailed,
    CredentialRequest,
    HttpTransport,
    Identity,
    Overloaded,
    Plan,
    Server,
    StdioTransport,
)
from afpool.artifacts import ArtifactStoreError, NewArtifact, SqliteArtifacts
from afpool.console import ConsoleSettings, open_console
from afpool.credentials import FileCredentials
from afpool.record import JsonlSettings, RecordSettings
from afpool.record._jsonl import JsonlFile
from afpool.record._queue import Block
from afpool.serve._listener import Front, ListenerLimits
from tests.realfaults.local.local_kit import (
    ALICE,
    LIMITS,
    asked,
    child_plan,
    children,
    is_error,
    noted,
    open_fds,
    person,
    tool_of,
    until,
)
from tests.realfaults.local.test_starved import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def descriptors(spare: int) -> Iterator[None]:
    """Let this process open so many more descriptors, and no further one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(entry) for entry in os.listdir("/proc/self/fd")}  # noqa: PTH208 -- it is one of them
    limit, free = 0, -1
    while free < spare or limit <= 3:
        limit += 1
        free = sum(number not in used or not _is_open(number) for number in range(limit))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No further thread can be started; what says so is Python's own word for it.

    Root is not bound by a limit of processes, so it is said where trio starts its threads.
    """

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("trio._threads.start_thread_soon", refuse)
        patched.setattr("threading.Thread.start", refuse)
        yield


async def opens(pool: Any, who: Identity) -> Any:
    """List the tools of somebody; give the error that it ended with, or the tool."""
    try:
        with trio.fail_after(10):
            return (await pool.tools(who))["do"]
    except afpool.AfpoolError as error:
        return error


async def opens_at_last(pool: Any, who: Identity) -> Any:
    """The same, over the back-offs."""
    with trio.fail_after(10):
        while isinstance(found := await opens(pool, who), afpool.AfpoolError):
            is_error(found, ("open-failed", "not-sent"), ("open-backoff", "not-sent"))
            await trio.sleep(0.02)
    return found


@pytest.mark.parametrize("spare", range(12))
async def test_a_child_for_which_there_is_no_descriptor(spare: int, tmp_path: Path):
    """However far an opening comes, it fails by name or succeeds, and leaves nothing."""
    async with children(tmp_path / "log") as pool:
        tool = await tool_of(pool)
        before = open_fds()
        with descriptors(spare):
            found = await opens(pool, person(1))
            assert isinstance(found, afpool.AfpoolError) or spare > 5
            if isinstance(found, afpool.AfpoolError):
                is_error(found, ("open-failed", "not-sent"))
                assert open_fds_without_listing(before)
            for number in range(3):
                assert await asked(tool, n=number) == f"{number}"
        other = await opens_at_last(pool, person(1))
        assert await asked(other, person(1), n=9) == "9"
    assert noted(tmp_path / "log").ran == [0, 1, 2, 9]


def open_fds_without_listing(expected: int) -> bool:
    """Whether no more than so many are open; without a descriptor for the listing."""
    return sum(_is_open(number) for number in range(1024)) <= expected


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_connection_for_which_there_is_no_descriptor(host: str):
    """Living keys use the connections that they have; the others fail by name, then work again."""
    with http_server() as url:
        plan = Plan(transport=HttpTransport(url=url.replace("127.0.0.1", host), streaming="streamable"))
        async with afpool.open_pool([Server(name="files", plan=plan)], **LIMITS) as pool:
            people = [person(number) for number in range(5)]
            tools = {who: await tool_of(pool, who) for who in people}
            for who in people:
                assert await asked(tools[who], who, n=0) == '{"n": 0}'
            with descriptors(0):
                for number in range(1, 4):
                    for who in people:
                        assert await asked(tools[who], who, n=number) == f'{{"n": {number}}}'
                    is_error(
                        await opens(pool, person(9)),
                        ("open-failed", "not-sent"),
                        ("open-backoff", "not-sent"),
                    )
                # more calls at once than there are connections: those that find none were not sent
                ends: list[Any] = []
                async with trio.open_nursery() as nursery:

                    async def call(number: int) -> None:
                        ends.append(await asked(tools[people[0]], people[0], n=number))

                    for number in range(4):
                        nursery.start_soon(call, number)
                unsent = [one for one in ends if isinstance(one, afpool.AfpoolError)]
                assert len(unsent) < 4
                for error in unsent:
                    is_error(error, ("connection-lost", "not-sent"))
            tool = await opens_at_last(pool, person(9))
            assert await asked(tool, person(9), n=1) == '{"n": 1}'
            for who in people:
                assert await asked(tools[who], who, n=10) == '{"n": 10}'


async def test_a_console_that_could_not_be_accepted_is_accepted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    settings = ConsoleSettings(name="here", directory=tmp_path)
    servers = [Server(name="files", plan=child_plan(tmp_path / "log"))]
    async with afpool.open_pool(servers) as pool, open_console(pool, settings=settings) as console:
        assert console is not None
        path = tmp_path / f"{os.getpid()}-here.sock"
        clients = [trio.socket.from_stdlib_socket(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        with descriptors(0):
            for client in clients:
                await client.connect(str(path))
                await client.send(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await trio.sleep(0.3)
        for client in clients:
            with trio.fail_after(5):
                assert (await client.recv(1000)).startswith(b"HTTP/1.1 ")
            client.close()
    assert caplog.text.count("no console could be accepted") == 1


async def test_a_service_that_could_not_accept_accepts_later(caplog: pytest.LogCaptureFixture):
    async def app(scope: Any, _: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    front = Front(app, ListenerLimits())
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()
    async with trio.open_nursery() as nursery:
        await nursery.start(front.run)
        nursery.start_soon(front.serve, listener)
        clients = [trio.socket.from_stdlib_socket(socket.socket()) for _ in range(5)]
        with descriptors(0):
            for client in clients:
                await client.connect(address)
                await client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await trio.sleep(0.3)
        for client in clients:
            with trio.fail_after(5):
                assert (await client.recv(1000)).startswith(b"HTTP/1.1 204")
            client.close()
        await front.stop(trio.current_time() + 1)
        nursery.cancel_scope.cancel()
    assert caplog.text.count("no connection could be accepted") == 1


def test_a_file_of_records_that_finds_no_descriptor_for_its_successor(tmp_path: Path):
    file = JsonlFile(tmp_path / "calls.jsonl", max_bytes=4096, keep=20, fsync="rotate")
    lines = [b'{"n":%d,"x":"%s"}\n' % (number, b"x" * 1500) for number in range(20)]
    waiting = [Block(line, 1) for line in lines]
    waiting = file.write(waiting[:3]).rest + waiting[3:]
    for _ in range(3):
        with descriptors(0):
            told = file.write(waiting)
            assert (told.trouble or "").startswith("EMFILE")
            waiting = told.rest
        with descriptors(1):  # the file, and not its directory
            waiting = file.write(waiting).rest
    assert not file.write(waiting).rest
    file.close()
    whole = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert sorted(whole.splitlines(keepends=True)) == sorted(lines)


async def test_a_store_that_finds_no_descriptor(tmp_path: Path):
    async with SqliteArtifacts(tmp_path / "a.db", readers=1) as store:
        new = NewArtifact(kind="note", media_type="text/plain", data="text")
        first = await store.put(ALICE, new)
        with descriptors(0):
            second = await store.put(ALICE, new)  # its file is open
            with pytest.raises(ArtifactStoreError, match="reading"):
                await store.get(ALICE, first.ref)
        for meta in (first, second):
            assert await store.get(ALICE, meta.ref) is not None
        with descriptors(0):
            assert await store.get(ALICE, second.ref) is not None  # a reader is open now


async def test_a_credential_is_not_given_up_for_want_of_a_descriptor(tmp_path: Path):
    """That its file cannot be opened now says nothing of the file."""
    path = tmp_path / "token"
    path.write_text("s3cr3t", encoding="ascii")
    provider = FileCredentials({"crm": path}, check_every=0.0)
    request = CredentialRequest("crm", identity=ALICE)
    issued = await provider.get(request)
    with descriptors(0):
        assert (await provider.get(request)).credential is issued.credential
    path.unlink()
    with pytest.raises(CredentialFailed):
        await provider.get(request)


async def test_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Openings, names, stores, sinks: each says so by name, nothing was sent, and later each works."""
    store = SqliteArtifacts(tmp_path / "a.db", readers=1)
    plan = child_plan(tmp_path / "log")
    record = RecordSettings(jsonl=JsonlSettings(path=tmp_path / "calls.jsonl"))
    new = NewArtifact(kind="note", media_type="text/plain", data="text")
    big = NewArtifact(kind="note", media_type="text/plain", data="x" * 1_000_000)
    with http_server() as url:
        named = Plan(
            transport=HttpTransport(url=url.replace("127.0.0.1", "localhost"), streaming="streamable")
        )
        servers = [Server(name="files", plan=plan), Server(name="web", plan=named)]
        async with afpool.open_runtime(servers=servers, record=record) as runtime:
            pool = runtime.pool
            with no_threads(monkeypatch):
                with pytest.raises(ArtifactStoreError, match="thread") as refused:
                    await store.aopen()
                assert refused.value.delivery == "not-sent"
                await store.aclose()
                for server in ("files", "web"):
                    with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(10):
                        await pool.tools(ALICE, server=server)
                    is_error(caught.value, ("open-failed", "not-sent"), ("overloaded", "not-sent"))
            store = SqliteArtifacts(tmp_path / "a.db", readers=1)
            async with store:
                meta = await store.put(ALICE, new)
                toolset = await runtime.toolset(ALICE)
                with trio.fail_after(20):
                    while len(toolset) < 2:
                        await trio.sleep(0.05)
                        toolset = await runtime.toolset(ALICE, refresh=True)
                with no_threads(monkeypatch):
                    with pytest.raises(Overloaded):
                        await store.get(ALICE, meta.ref)
                    with pytest.raises(Overloaded):
                        await store.put(ALICE, big)
                    await store.put(ALICE, new)
                    name = next(one for one in toolset if "files" in one)
                    for number in range(3):
                        result = await toolset.call(name, {"n": number}, call_id=f"call-{number}")
                        assert result.text == f"{number}"
                    await trio.sleep(0.3)
                assert await store.get(ALICE, meta.ref) is not None
                await store.put(ALICE, big)
            await until(lambda: runtime.sinks.states()[0].queued == 0)
            (state,) = runtime.sinks.states()
            assert (state.dropped, state.refused) == (0, 0)
    rows = (tmp_path / "calls.jsonl").read_text(encoding="utf-8")
    for number in range(3):
        assert f'"call-{number}"' in rows


async def test_no_process_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`fork` fails: the opening says so, and the next one succeeds."""

    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async with children(tmp_path / "log") as pool:
        with monkeypatch.context() as patched:
            patched.setattr("subprocess.Popen._execute_child", refuse)
            before = open_fds()
            error = is_error(await opens(pool, ALICE), ("open-failed", "not-sent"))
            assert "temporarily unavailable" in str(error)
            assert open_fds() == before
        tool = await opens_at_last(pool, ALICE)
        assert await asked(tool, n=1) == "1"


def test_a_command_that_is_not_there_is_no_lack(tmp_path: Path):
    """The words of a lack and of a mistake differ, since what is to be done does."""

    async def main() -> None:
        plan = Plan(transport=StdioTransport.of(str(tmp_path / "nothing")))
        async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
            error = is_error(await opens(pool, ALICE), ("open-failed", "not-sent"))
            assert "was not found" in str(error)

    trio.run(main)
