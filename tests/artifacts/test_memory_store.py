"""The store in memory: bounded in all directions, fair among scopes, honest about what it gives up."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from afpool import Identity
from afpool.artifacts import (
    ArtifactStoreClosedError,
    InvalidArtifactError,
    MemoryArtifacts,
    NewArtifact,
    Swept,
)
from tests.artifacts.store_kit import ADA, BOB, Clock


def note(data: Any = "x", **facts: Any) -> NewArtifact:
    return NewArtifact(kind="note", media_type="text/plain", data=data, **facts)


async def refs(store: MemoryArtifacts, scope: Identity) -> list[str]:
    return [meta.ref for meta in (await store.list(scope, limit=500)).items]


def test_its_limits_are_on_by_default_and_cannot_be_turned_off() -> None:
    store = MemoryArtifacts()
    assert (store.retention.max_bytes_per_scope, store.retention.max_count_per_scope) == (
        32 * 1024 * 1024,
        256,
    )
    assert store.retention.ttl is None
    for name in ("max_bytes_per_scope", "max_count_per_scope", "max_bytes"):
        with pytest.raises(TypeError, match="always bounded"):
            MemoryArtifacts(**{name: None})
        with pytest.raises(ValueError, match=name):
            MemoryArtifacts(**{name: 0})
        with pytest.raises(TypeError, match=name):
            MemoryArtifacts(**{name: "1"})


async def test_what_was_read_least_recently_goes_first() -> None:
    store = MemoryArtifacts(max_count_per_scope=3)
    first, second, third = [await store.put(ADA, note(str(n))) for n in range(3)]
    await store.get(ADA, first.ref)
    await store.head(ADA, second.ref)
    swept: list[Swept] = []
    await store.put(ADA, note(), on_swept=swept.append)
    assert [one.ref for one in swept] == [third.ref]
    await store.list(ADA)  # which is no use
    await store.put(ADA, note(), on_swept=swept.append)
    assert [one.ref for one in swept] == [third.ref, first.ref]
    assert store.dropped == 2


async def test_dropped_counts_what_went_for_room_and_not_what_went_for_age() -> None:
    clock = Clock()
    store = MemoryArtifacts(max_bytes_per_scope=10, ttl=5, seams=clock.seams)
    await store.put(ADA, note("x" * 9))
    clock.advance(6)
    await store.put(ADA, note("x" * 9))
    assert store.dropped == 0
    await store.put(ADA, note("x" * 9))
    assert store.dropped == 1


async def test_all_scopes_together_are_bounded_and_the_idlest_pays() -> None:
    given_up: list[tuple[Identity, Swept]] = []
    store = MemoryArtifacts(max_bytes=100_000, on_given_up=lambda *what: given_up.append(what))
    idle = [await store.put(Identity("idle", str(n)), note("x" * 20_000)) for n in range(4)]
    await store.get(Identity("idle", "0"), idle[0].ref)
    swept: list[Swept] = []
    await store.put(ADA, note("x" * 20_000), on_swept=swept.append)
    assert not swept, "what other scopes gave up is not for this caller"
    assert [(scope.principal, one.ref, one.reason) for scope, one in given_up] == [
        ("1", idle[1].ref, "max-bytes")
    ]
    assert store.dropped == 1
    # a flood of scopes of one tenant costs memory up to the bound and no more
    for n in range(300):
        await store.put(Identity("flood", str(n)), note("x" * 1000))
    assert store._cost <= 100_000
    assert store._cost == sum(row.cost for held in store._scopes.values() for row in held.rows.values())
    assert all(held.rows for held in store._scopes.values())


async def test_an_artifact_beyond_the_bound_over_all_is_refused() -> None:
    store = MemoryArtifacts(max_bytes=5000)
    kept = await store.put(ADA, note("x" * 3000))
    with pytest.raises(InvalidArtifactError, match="5000 in all"):
        await store.put(BOB, note("x" * 4500))
    assert await refs(store, ADA) == [kept.ref]
    own = await store.put(ADA, note("x" * 3500))
    assert await refs(store, ADA) == [own.ref]
    for n in range(50):
        await store.put(Identity(str(n)), note("", label="l" * 1000))
    assert store._cost <= 5000


async def test_an_idle_scope_whose_artifacts_expired_is_cleared_by_the_puts_of_others() -> None:
    clock, given_up = Clock(), []
    store = MemoryArtifacts(ttl=10, seams=clock.seams, on_given_up=lambda *what: given_up.append(what))
    old = [await store.put(BOB, note()) for _ in range(3)]
    clock.advance(20)
    await store.put(ADA, note())
    assert [(scope, one.ref, one.reason) for scope, one in given_up] == [(BOB, one.ref, "ttl") for one in old]
    assert list(store._scopes) == ["acme/ada/c1"]
    assert store.dropped == 0


async def test_a_scope_that_holds_nothing_is_forgotten() -> None:
    store = MemoryArtifacts()
    meta = await store.put(ADA, note(expires_at=4e9))
    await store.delete(ADA, meta.ref)
    assert not store._scopes
    assert store._cost == 0
    assert repr(store) == "<MemoryArtifacts: 0 artifacts of 0 scopes, 0 bytes>"


async def test_expiries_of_what_was_deleted_take_no_room() -> None:
    store = MemoryArtifacts()
    await store.put(ADA, note())
    for _ in range(200):
        meta = await store.put(ADA, note(expires_at=4e9))
        await store.delete(ADA, meta.ref)
    (held,) = store._scopes.values()
    assert len(held._expiries) < 50


async def test_a_clock_that_stands_still_or_goes_back_changes_no_order() -> None:
    clock = Clock()
    store = MemoryArtifacts(seams=clock.seams)
    metas = [await store.put(ADA, note(str(n))) for n in range(5)]
    clock.advance(-1000)
    metas += [await store.put(ADA, note(str(n))) for n in range(5)]
    assert await refs(store, ADA) == [meta.ref for meta in reversed(metas)]
    assert len({meta.created_at for meta in metas}) == 10


async def test_it_is_closed_with_its_block_and_refuses_then() -> None:
    async with MemoryArtifacts() as store:
        meta = await store.put(ADA, note())
    await store.aclose()
    for verb in (
        lambda: store.put(ADA, note()), lambda: store.head(ADA, meta.ref), lambda: store.get(ADA, "no ref"),
        lambda: store.delete(ADA, meta.ref), lambda: store.list(ADA),
    ):  # fmt: skip
        with pytest.raises(ArtifactStoreClosedError, match="was closed"):
            await verb()


async def test_what_is_told_may_raise_without_harm(caplog: pytest.LogCaptureFixture) -> None:
    def angry(*_: object) -> None:
        raise RuntimeError("secret-4711")

    store = MemoryArtifacts(max_count_per_scope=1, max_bytes=3000, on_given_up=angry)
    await store.put(BOB, note("x" * 1500))
    with caplog.at_level(logging.WARNING, "afpool"):
        await store.put(ADA, note("x" * 1500))
        meta = await store.put(ADA, note(), on_swept=angry)
    assert await refs(store, ADA) == [meta.ref]
    assert "raised RuntimeError" in caplog.text
    assert "4711" not in caplog.text


@pytest.mark.parametrize("scope", [None, "acme/ada/c1", ("acme", "ada", "c1"), {}])
async def test_a_scope_is_an_identity_and_nothing_else(scope: Any) -> None:
    store = MemoryArtifacts()
    for verb in (
        lambda: store.put(scope, note()), lambda: store.head(scope, "r"), lambda: store.get(scope, "r"),
        lambda: store.delete(scope, "r"), lambda: store.list(scope),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="must be an Identity") as caught:
            await verb()
        assert "ada" not in str(caught.value)


async def test_what_is_put_is_a_new_artifact_and_nothing_else() -> None:
    store: Any = MemoryArtifacts()
    with pytest.raises(TypeError, match="NewArtifact, not dict"):
        await store.put(ADA, {"kind": "note"})


async def test_a_put_that_is_cancelled_while_it_is_encoded_stores_nothing() -> None:
    from afpool import Seams

    entered = trio.Event()

    async def in_thread(fn: Any, limiter: trio.CapacityLimiter) -> Any:
        del fn, limiter
        entered.set()
        await trio.sleep_forever()

    store = MemoryArtifacts(seams=Seams(in_thread=in_thread))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.put, ADA, note([0] * 200_000))
            await entered.wait()
            nursery.cancel_scope.cancel()
        assert not await refs(store, ADA)
