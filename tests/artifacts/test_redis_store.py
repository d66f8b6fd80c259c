"""The store in Redis: shared by several clients, over servers that go, stall, restart, or are full."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from afpool import Identity
from afpool.artifacts import (
    ArtifactStoreClosedError,
    ArtifactStoreError,
    InvalidArtifactError,
    NewArtifact,
    NewStream,
    RedisArtifacts,
    Swept,
    UnreadableArtifactError,
    UnreadableArtifactStoreError,
)
from afpool.artifacts._redis import PIECE
from tests.artifacts.store_kit import ADA, BOB, Clock, RedisServer, new_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
NOBODY = "art_" + "0" * 22


def note(data: Any = "x", **facts: Any) -> NewArtifact:
    return NewArtifact(kind="note", media_type="text/plain", data=data, **facts)


async def refs(store: RedisArtifacts, scope: Identity) -> list[str]:
    return [meta.ref for meta in (await store.list(scope, limit=500)).items]


async def ask(store: RedisArtifacts, *command: Any) -> Any:
    """Ask Redis something beside the store."""
    return await store._link.command(str(command[0]).encode(), *command[1:])


async def keys_of(store: RedisArtifacts) -> list[str]:
    return sorted(bytes(key).decode() for key in await ask(store, "KEYS", store.prefix + ":{*"))


# Several processes.


async def test_the_limits_hold_exactly_over_several_clients(redis: RedisServer) -> None:
    prefix, swept, minted = new_prefix(), [], []

    async def work(store: RedisArtifacts) -> None:
        for n in range(20):
            meta = await store.put(ADA, note("x" * (n % 30)), on_swept=swept.append)
            minted.append(meta.ref)
            assert len(await refs(store, ADA)) <= 7

    limits: dict[str, Any] = {"prefix": prefix, "max_count_per_scope": 7, "max_bytes_per_scope": 120}
    async with (
        RedisArtifacts(redis.url, **limits) as one,
        RedisArtifacts(redis.url, **limits) as two,
        RedisArtifacts(redis.url, **limits) as three,
    ):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for store in (one, two, three, one, two):
                    nursery.start_soon(work, store)
        left = await refs(two, ADA)
        assert left == await refs(one, ADA)
        gone = [each.ref for each in swept]
        assert len(set(gone)) == len(gone)
        assert sorted(left + gone) == sorted(minted)
        held = sum(meta.bytes for meta in (await one.list(ADA)).items)
        assert int(await ask(one, "HGET", one._keys(ADA).all[5], "bytes")) == held


async def test_another_process_sees_the_same(redis: RedisServer) -> None:
    prefix = new_prefix()
    program = """
import sys, trio
from afpool import Identity
from afpool.artifacts import NewArtifact, RedisArtifacts

async def main():
    async with RedisArtifacts(sys.argv[1], prefix=sys.argv[2]) as store:
        new = NewArtifact(kind="k", media_type="m/m", data={"from": "there"})
        print((await store.put(Identity("acme", "ada", "c1"), new)).ref)

trio.run(main)
"""
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-c", program, redis.url, prefix], cwd=ROOT, capture_output=True, text=True,
            timeout=60, check=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        )
    )  # fmt: skip
    async with RedisArtifacts(redis.url, prefix=prefix) as store:
        found = await store.get(ADA, done.stdout.strip())
        assert found is not None
        assert found.data == {"from": "there"}


async def test_prefixes_keep_stores_apart_and_one_store_reads_what_the_last_one_left(
    redis: RedisServer,
) -> None:
    prefix = new_prefix()
    async with RedisArtifacts(redis.url, prefix=prefix) as store:
        meta = await store.put(ADA, note())
    async with (
        RedisArtifacts(redis.url, prefix=prefix + "x") as other,
        RedisArtifacts(redis.url, prefix=prefix) as same,
    ):
        assert await other.head(ADA, meta.ref) is None
        assert await same.head(ADA, meta.ref) == meta


async def test_what_was_read_least_recently_goes_first_whoever_read_it(redis: RedisServer) -> None:
    prefix, swept = new_prefix(), []
    async with (
        RedisArtifacts(redis.url, prefix=prefix, max_count_per_scope=3) as one,
        RedisArtifacts(redis.url, prefix=prefix, max_count_per_scope=3) as two,
    ):
        first, second, third = [await one.put(ADA, note(str(n))) for n in range(3)]
        await two.get(ADA, first.ref)
        await one.put(ADA, note(), on_swept=swept.append)
        await two.head(ADA, third.ref)
        await one.put(ADA, note(), on_swept=swept.append)
        assert [each.ref for each in swept] == [second.ref, first.ref]


# What stands in Redis.


async def test_all_keys_of_a_scope_have_one_hash_tag_and_none_is_left_with_nothing_in_it(
    redis: RedisServer,
) -> None:
    scope = Identity("a}{b", "p", "c:1")
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        metas = [await store.put(scope, note(b"x" * size, expires_at=4e9)) for size in (1, PIECE * 2)]
        keys = await keys_of(store)
        assert len(keys) == 8
        assert {key[key.index("{") : key.index("}") + 1] for key in keys} == {"{a%7D%7Bb/p/c%3A1}"}
        for meta in metas:
            await store.delete(scope, meta.ref)
        assert await keys_of(store) == []


async def test_redis_itself_clears_away_what_has_expired(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix(), ttl=100) as store:
        now = time.time()
        for life in (50, 1000):
            await store.put(ADA, note(expires_at=now + life))
        # a minute later than it is given out; the scope's own keys with its last artifact
        for key in await keys_of(store):
            left = await ask(store, "TTL", key)
            assert 60 < left <= 161, key
    async with RedisArtifacts(redis.url, prefix=store.prefix) as lasting:
        await lasting.put(ADA, note())
        lives = [await ask(lasting, "TTL", key) for key in await keys_of(lasting)]
        assert lives.count(-1) == 7  # the scope's six, and the payload that lasts


async def test_time_is_rediss_own_unless_a_clock_is_given(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        meta = await store.put(ADA, note())
        seconds, micros = await ask(store, "TIME")
        assert 0 <= int(seconds) + int(micros) / 1e6 - meta.created_at < 60
        with pytest.raises(InvalidArtifactError, match="not later than now"):
            await store.put(ADA, note(expires_at=meta.created_at - 1))
    clock = Clock(time.time() + 1000)
    async with RedisArtifacts(redis.url, prefix=new_prefix(), clock=clock) as store:
        metas = [await store.put(ADA, note()) for _ in range(3)]
        assert [meta.created_at for meta in metas] == pytest.approx([clock.now] * 3, abs=1e-4)
        assert await refs(store, ADA) == [meta.ref for meta in reversed(metas)]


async def test_a_payload_that_redis_evicted_takes_its_ticket_with_it(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix(), max_bytes_per_scope=10) as store:
        meta = await store.put(ADA, note("x" * 9))
        await ask(store, "DEL", store._keys(ADA).payload(meta.ref))
        assert await store.get(ADA, meta.ref) is None
        assert await refs(store, ADA) == []
        swept: list[Swept] = []
        await store.put(ADA, note("x" * 9), on_swept=swept.append)
        assert not swept


async def test_a_ticket_that_somebody_damaged_is_unreadable_and_can_be_deleted(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        metas = [await store.put(ADA, note()) for _ in range(3)]
        tickets = store._keys(ADA).all[0]
        for meta, damage in zip(
            metas, ("nonsense", "1 0 1 4 note{", b"1 0 1 4 \xff\xff\xff\xff{}"), strict=True
        ):
            await ask(store, "HSET", tickets, meta.ref, damage)
            for verb in (store.head, store.get):
                with pytest.raises(UnreadableArtifactError, match=meta.ref):
                    await verb(ADA, meta.ref)
        with pytest.raises(UnreadableArtifactError):
            await store.list(ADA)
        for meta in metas:
            await store.delete(ADA, meta.ref)
            assert await store.head(ADA, meta.ref) is None


# Large payloads travel in pieces.


async def test_a_large_payload_travels_in_pieces_and_comes_back_whole(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        sizes: list[int] = []
        inner = store._link.command

        async def watched(command: bytes, *args: Any, **options: Any) -> Any:
            sizes.append(sum(len(arg) for arg in args if isinstance(arg, str | bytes)))
            answer = await inner(command, *args, **options)
            parts = answer if isinstance(answer, list) else [answer]
            sizes.append(sum(len(part) for part in parts if isinstance(part, bytes)))
            return answer

        store._link.command = watched  # type: ignore[method-assign]
        for data in (
            b"",
            b"\0" * PIECE,
            b"\1" * (PIECE + 1),
            bytes(range(256)) * (3 * PIECE // 256),
            "é" * PIECE * 2,
        ):
            meta = await store.put(ADA, note(data, digest="sha-256"))
            found = await store.get(ADA, meta.ref)
            assert found is not None
            assert found.data == data
        assert max(sizes) < PIECE + 5000
        assert not [key for key in await keys_of(store) if "}:x:" in key]


async def test_a_stream_that_is_given_up_leaves_nothing(redis: RedisServer) -> None:
    stuck = trio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * PIECE * 3
        stuck.set()
        await trio.sleep_forever()

    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        new = NewStream(kind="k", media_type="m/m", bytes=PIECE * 4)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.put_stream, ADA, new, slow())
                await stuck.wait()
                (staged,) = await keys_of(store)
                assert 0 < await ask(store, "TTL", staged) <= 300
                nursery.cancel_scope.cancel()
        assert await keys_of(store) == []


async def test_a_payload_that_is_lost_while_it_is_staged_is_not_stored(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:

        async def loses() -> AsyncIterator[bytes]:
            yield b"x" * PIECE * 2
            (staged,) = await keys_of(store)
            await ask(store, "DEL", staged)
            yield b"x" * PIECE

        with pytest.raises(ArtifactStoreError, match="lost what was staged") as caught:
            await store.put_stream(ADA, NewStream(kind="k", media_type="m/m", bytes=PIECE * 3), loses())
        assert caught.value.delivery == "not-sent"
        assert await refs(store, ADA) == []
        assert await keys_of(store) == []


async def test_an_artifact_that_goes_while_it_is_read(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        meta = await store.put(ADA, note(b"x" * PIECE * 3))
        async with store.get_stream(ADA, meta.ref) as stream:
            assert stream is not None
            assert len(await anext(stream.chunks)) == PIECE
            await store.delete(ADA, meta.ref)
            with pytest.raises(ArtifactStoreError, match="went while it was read"):
                await anext(stream.chunks)
        again = await store.put(ADA, note(b"x" * PIECE * 3))
        inner = store._link.command

        async def deletes(command: bytes, *args: Any, **options: Any) -> Any:
            if command == b"GETRANGE":
                store._link.command = inner  # type: ignore[method-assign]
                await store.delete(ADA, again.ref)
            return await inner(command, *args, **options)

        store._link.command = deletes  # type: ignore[method-assign]
        assert await store.get(ADA, again.ref) is None


async def test_what_is_larger_than_a_key_is_refused_before_a_piece_is_asked_for(redis: RedisServer) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError
        yield b""

    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        with pytest.raises(InvalidArtifactError, match="holds 536870912 under one key"):
            await store.put_stream(ADA, NewStream(kind="k", media_type="m/m", bytes=2**29 + 1), never())


# Servers that go.


async def test_a_restarted_redis_costs_no_verb(own_redis: RedisServer) -> None:
    async with RedisArtifacts(own_redis.url) as store:
        await store.put(ADA, note())
        own_redis.restart()
        with trio.fail_after(30):
            assert await store.list(ADA) is not None
            meta = await store.put(ADA, note("after"))
            assert await refs(store, ADA) == [meta.ref]  # this Redis keeps nothing on disk
            await ask(store, "SCRIPT FLUSH")
            assert await store.head(ADA, meta.ref) == meta


async def test_a_put_that_was_lost_with_its_connection_is_done_once(own_redis: RedisServer) -> None:
    async with RedisArtifacts(own_redis.url) as store:
        await store.put(BOB, note())
        own_redis.suspend()
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for n in range(5):
                    nursery.start_soon(store.put, ADA, note(str(n)))
                await wait_all_tasks_blocked()
                # what was sent lies in Redis's socket and will be run; the answers will find nobody
                connection = store._link._connection
                assert connection is not None
                connection.invalidate()
                await wait_all_tasks_blocked()
                own_redis.resume()
        assert len(await refs(store, ADA)) == 5


async def test_a_redis_that_is_gone_is_said_so_and_found_again(own_redis: RedisServer) -> None:
    async with RedisArtifacts(own_redis.url, timeout=20) as store:
        meta = await store.put(ADA, note())
        own_redis.stop()
        for verb in (
            store.put(ADA, note("secret-4711")),
            store.get(ADA, meta.ref),
            store.delete(ADA, meta.ref),
        ):
            with pytest.raises(ArtifactStoreError) as caught:
                await verb
            assert "4711" not in str(caught.value)
            assert "127.0.0.1" not in str(caught.value)
        assert caught.value.delivery == "not-sent"
        own_redis.process = own_redis._start()
        await store.put(ADA, note())


async def test_a_redis_that_does_not_answer_is_waited_for_so_long_and_no_longer(
    own_redis: RedisServer,
) -> None:
    async with RedisArtifacts(own_redis.url) as store:
        meta = await store.put(ADA, note())
        own_redis.suspend()
        store._link._timeout = 0.2
        with trio.fail_after(20):
            with pytest.raises(
                ArtifactStoreError, match=r"did not answer in 0\.2 s; it may have been done"
            ) as caught:
                await store.put(ADA, note())
            assert caught.value.delivery == "in-doubt"
            with pytest.raises(ArtifactStoreError) as caught:  # nor does a new connection get an answer
                await store.head(ADA, meta.ref)
            assert caught.value.delivery == "not-sent"
        own_redis.resume()
    async with RedisArtifacts(own_redis.url) as store:
        assert meta.ref in await refs(store, ADA)


async def test_a_put_that_is_cancelled_is_taken_away_again(own_redis: RedisServer) -> None:
    async with RedisArtifacts(own_redis.url) as store:
        await store.put(BOB, note())
        own_redis.suspend()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for data in ("small", b"x" * PIECE * 2):
                    nursery.start_soon(store.put, ADA, note(data))
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            own_redis.resume()
            assert await refs(store, ADA) == []
            assert [key for key in await keys_of(store) if "/ada/" in key] == []


async def test_one_cancelled_caller_does_not_disturb_the_opening_for_others(own_redis: RedisServer) -> None:
    async with RedisArtifacts(own_redis.url) as store:
        own_redis.restart()
        own_redis.suspend()
        found: list[Any] = []

        async def look() -> None:
            found.append(await store.head(ADA, NOBODY))

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as first:
                        first.start_soon(look)
                        await wait_all_tasks_blocked()
                        nursery.start_soon(look)
                        nursery.start_soon(look)
                        await wait_all_tasks_blocked()
                        scope.cancel()
                own_redis.resume()
        assert found == [None, None]


async def test_a_full_redis_refuses_and_says_so(own_redis: RedisServer) -> None:
    async with RedisArtifacts(own_redis.url) as store:
        meta = await store.put(ADA, note())
        await ask(store, "CONFIG SET", "maxmemory", "1")
        for data in ("secret-4711", b"x" * PIECE * 2):
            with pytest.raises(
                ArtifactStoreError, match=r"Redis refused \(\w+\); nothing was done"
            ) as caught:
                await store.put(ADA, note(data))
            assert caught.value.delivery == "not-sent"
            assert "4711" not in f"{caught.value!s} {caught.value.__context__!r}"
        await ask(store, "CONFIG SET", "maxmemory", "0")
        assert await refs(store, ADA) == [meta.ref]


# Opening and closing.


async def test_a_password_is_used_and_never_shown() -> None:
    from tests.artifacts.conftest import require_redis

    require_redis()
    server = RedisServer("--requirepass", "secret 4711/@")
    try:
        for url, options in (
            (server.url, {"password": "secret 4711/@"}),
            (server.url.replace("//", "//:secret%204711%2F%40@"), {}),
        ):
            async with RedisArtifacts(url, **options) as store:
                await store.put(ADA, note())
                assert "4711" not in f"{store!r} {vars(store)!r} {vars(store._link)!r}"
        for options in ({}, {"password": "wrong-4711"}):
            with pytest.raises(ArtifactStoreError, match="cannot be reached") as caught:
                async with RedisArtifacts(server.url, **options):
                    raise AssertionError
            assert "4711" not in str(caught.value)
    finally:
        server.stop()


async def test_what_is_under_the_prefix_and_no_store_is_left_as_it_is(redis: RedisServer) -> None:
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        for kind, value, problem in (
            ("SET", ["2"], "newer-schema"), ("SET", ["theirs"], "not-our-schema"),
            ("RPUSH", ["a"], "not-our-schema"),
        ):  # fmt: skip
            prefix = new_prefix()
            await ask(store, kind, prefix + ":schema", *value)
            for _ in range(2):
                with pytest.raises(UnreadableArtifactStoreError, match=prefix) as caught:
                    async with RedisArtifacts(redis.url, prefix=prefix):
                        raise AssertionError
                assert caught.value.problem == problem
            assert await ask(store, "TYPE", prefix + ":schema") in {b"string", b"list"}


async def test_a_store_is_opened_once_and_refuses_before_and_after(redis: RedisServer) -> None:
    store = RedisArtifacts(redis.url, prefix=new_prefix())
    verbs: list[Callable[[], Any]] = [
        lambda: store.put(ADA, note()), lambda: store.head(ADA, "no ref"), lambda: store.get(ADA, NOBODY),
        lambda: store.delete(ADA, "no ref"), lambda: store.list(ADA),
    ]  # fmt: skip
    for verb in verbs[1:3]:
        with pytest.raises(ArtifactStoreClosedError, match="not open yet"):
            await verb()
    async with store:
        await store.put(ADA, note())
        with pytest.raises(ArtifactStoreClosedError, match="opened once"):
            await store.__aenter__()
        await store.aclose()
        await store.aclose()
        for verb in verbs:
            with pytest.raises(ArtifactStoreClosedError, match="was closed"):
                await verb()
    for verb in verbs:
        with pytest.raises(ArtifactStoreClosedError, match="was closed"):
            await verb()
    assert repr(store).endswith("closed>")
    with pytest.raises(ArtifactStoreClosedError):
        await store.__aenter__()


async def test_a_verb_that_waits_when_the_store_closes_is_told(own_redis: RedisServer) -> None:
    told: list[str] = []

    async def get() -> None:
        with pytest.raises(ArtifactStoreError) as caught:
            await store.get(ADA, NOBODY)
        told.append(caught.value.code)

    async with RedisArtifacts(own_redis.url) as store:
        await store.put(ADA, note())
        own_redis.suspend()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(get)
                await wait_all_tasks_blocked()
                await store.aclose()
    assert told == ["ERR_ARTIFACT_STORE"]


async def test_the_error_of_the_block_leaves_as_itself_and_a_cancelled_block_closes(
    redis: RedisServer,
) -> None:
    async def fails() -> None:
        async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
            await store.put(ADA, note())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fails()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with RedisArtifacts(redis.url, prefix=new_prefix()):
            raise AssertionError
    with trio.CancelScope() as scope:
        async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
            await store.put(ADA, note())
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert store._link.closed


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"url": "http://x:secret-4711@host"}, ValueError), ({"url": ""}, ValueError),
        ({"url": None}, TypeError),
        ({"url": "redis://h/0?noreply=true"}, ValueError), ({"url": "redis://"}, ValueError),
        ({"prefix": ""}, ValueError), ({"prefix": "a b"}, ValueError), ({"prefix": "a{b}"}, ValueError),
        ({"prefix": 7}, ValueError), ({"ttl": -1}, ValueError), ({"timeout": 0}, ValueError),
        ({"max_bytes_per_scope": 0}, ValueError), ({"max_count_per_scope": "1"}, TypeError),
        ({"password": 7}, TypeError),
    ],
)  # fmt: skip
def test_dials_are_checked_before_anything_is_opened(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        RedisArtifacts(**{"url": "redis://localhost:1/0", **options})
    assert "4711" not in str(caught.value)


async def test_tls_checks_who_the_server_is_unless_told_otherwise() -> None:
    import ssl

    from afpool._base.secret import Secret

    store = RedisArtifacts("rediss://localhost:1/0")
    context = store._link._ssl_context
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    own = ssl.create_default_context()
    assert RedisArtifacts("rediss://localhost:1/0", ssl_context=own)._link._ssl_context is own
    assert RedisArtifacts("redis://localhost:1/0")._link._ssl_context is None
    assert isinstance(store._link._url, Secret)
