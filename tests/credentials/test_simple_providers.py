"""The environment, files, and the wrapper that tries again."""

from __future__ import annotations

import os
import threading

import pytest
import trio

import afpool
from afpool import CredentialRequest, Issued, ScriptedCredentials, api_key, bearer
from afpool.credentials import EnvironmentCredentials, FileCredentials, RetryingCredentials

CANARY = "canary-31c"
ASK = CredentialRequest("files")
REFUSED = CredentialRequest("files", reason="refresh", rejected=True)


async def fails(asking, *words: str) -> afpool.CredentialFailed:
    with pytest.raises(afpool.CredentialFailed) as caught:
        await asking
    for word in words:
        assert word in str(caught.value)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


async def test_the_environment_is_read_each_time(monkeypatch):
    provider = EnvironmentCredentials({"files": "FILES_TOKEN"})
    monkeypatch.setenv("FILES_TOKEN", "one")
    assert (await provider.get(ASK)).credential.token == "one"
    monkeypatch.setenv("FILES_TOKEN", "two")
    assert (await provider.get(ASK)).credential.token == "two"
    monkeypatch.delenv("FILES_TOKEN")
    await fails(provider.get(ASK), "FILES_TOKEN", "not set")
    await fails(provider.get(CredentialRequest("mail")), "'mail'", "known services: files")
    monkeypatch.setenv("FILES_TOKEN", f"{CANARY}\n")
    await fails(provider.get(ASK), "FILES_TOKEN", "no credential", "ValueError")
    assert repr(provider) == "EnvironmentCredentials(services=['files'])"


async def test_another_kind_of_credential(monkeypatch, tmp_path):
    monkeypatch.setenv("KEY", "k")
    (tmp_path / "key").write_text("f")
    env = EnvironmentCredentials({"files": "KEY"}, make=lambda secret: api_key(secret, "x-key"))
    assert (await env.get(ASK)).credential.to_headers() == [("x-key", "k")]
    file = FileCredentials({"files": tmp_path / "key"}, make=lambda secret: api_key(secret, "x-key"))
    assert (await file.get(ASK)).credential.to_headers() == [("x-key", "f")]


def write(path, text: str) -> None:
    """As secrets are rotated: a new file in place of the old one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


class Threads:
    """Counts what runs in a thread, and can hold it back."""

    def __init__(self) -> None:
        self.runs = 0
        self.hold: trio.Event | None = None

    async def run(self, fn, limiter):
        self.runs += 1
        if self.hold is not None:
            await self.hold.wait()
        here = threading.get_ident()

        def work():
            assert threading.get_ident() != here
            return fn()

        return await trio.to_thread.run_sync(work, limiter=limiter)


@pytest.fixture
def threads():
    return Threads()


@pytest.fixture
def clock():
    class Clock:
        time = 0.0

    return Clock()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    return path


@pytest.fixture
def provider(path, threads, clock):
    return FileCredentials(
        {"files": path},
        check_every=10,
        seams=afpool.Seams(now=lambda: clock.time, in_thread=threads.run),
    )


async def test_a_file_is_looked_at_now_and_then_and_read_when_it_has_changed(provider, path, threads, clock):
    first = (await provider.get(ASK)).credential
    assert first.token == "one"
    write(path, "two")
    assert (await provider.get(ASK)).credential is first
    assert threads.runs == 1
    clock.time = 10
    assert (await provider.get(ASK)).credential.token == "two"
    clock.time = 20
    second = (await provider.get(ASK)).credential
    clock.time = 30
    assert (await provider.get(ASK)).credential is second, "not read anew where nothing has changed"
    assert threads.runs == 4


async def test_a_refused_secret_is_looked_for_at_once(provider, path, threads):
    await provider.get(ASK)
    write(path, "two")
    assert (await provider.get(REFUSED)).credential.token == "two"


async def test_a_file_that_is_gone_takes_its_credential_along(provider, path, clock):
    await provider.get(ASK)
    path.unlink()
    clock.time = 10
    await fails(provider.get(ASK), "'files'", "cannot be read")
    path.write_text("back")
    assert (await provider.get(ASK)).credential.token == "back"


@pytest.mark.parametrize("content", [b"", b"  \n", f"{CANARY}\nx".encode(), b"\xff\xfe"])
async def test_a_file_that_holds_no_secret(provider, path, content):
    path.write_bytes(content)
    await fails(provider.get(ASK), "holds no credential")
    await fails(provider.get(CredentialRequest("mail")), "known services")


async def test_many_that_ask_look_once_and_wait_only_where_there_is_nothing(provider, threads, clock):
    threads.hold = trio.Event()
    got = []

    async def ask():
        got.append(await provider.get(ASK))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        threads.hold.set()
    assert len(got) == 10
    assert threads.runs == 1
    threads.hold = trio.Event()
    clock.time = 10
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(await provider.get(ASK), Issued), "who finds one held does not wait"
        threads.hold.set()
    assert threads.runs == 2


async def test_a_look_that_is_cancelled_leaves_nobody_waiting(provider, threads):
    threads.hold = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider.get, ASK)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    threads.hold = None
    with trio.fail_after(5):
        assert (await provider.get(ASK)).credential.token == "one"


# ---------------------------------------------------------------------------- again


async def test_what_passes_is_tried_again(autojump_clock):
    inner = ScriptedCredentials([OSError(), afpool.CredentialFailed("x", retry_after=0.5), bearer("t")])
    given = await RetryingCredentials(inner).get(ASK)
    assert given.credential.token == "t"
    assert 0.6 <= trio.current_time() <= 0.7 + 0.01


@pytest.mark.parametrize(
    "error",
    [LookupError("x"), afpool.CredentialFailed("x"), afpool.CredentialFailed("x", retry_after=60)],
)
async def test_what_does_not_pass_is_raised_at_once(error, autojump_clock):
    inner = ScriptedCredentials([error, bearer("t")])
    with pytest.raises(type(error)) as caught:
        await RetryingCredentials(inner).get(ASK)
    assert caught.value is error
    assert trio.current_time() == 0


async def test_attempts_end(autojump_clock):
    inner = ScriptedCredentials([OSError(str(number)) for number in range(9)])
    with pytest.raises(OSError, match="3"):
        await RetryingCredentials(inner, attempts=4).get(ASK)
    assert len(inner.requests) == 4


async def test_the_host_says_what_passes(autojump_clock):
    inner = ScriptedCredentials([LookupError("x"), bearer("t")])
    wrapped = RetryingCredentials(inner, passing=lambda error: isinstance(error, LookupError))
    assert (await wrapped.get(ASK)).credential.token == "t"


def test_at_least_one_attempt():
    with pytest.raises(ValueError, match="attempts"):
        RetryingCredentials(ScriptedCredentials([]), attempts=0)


def test_no_secret_of_the_environment_is_touched_before_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    EnvironmentCredentials({"files": "X"})
