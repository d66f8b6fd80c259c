"""A store bound to one scope: nobody inside changes whose it is, and the record says what happened."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool.artifacts import (
    ArtifactError,
    ArtifactExpired,
    ArtifactIntegrityError,
    ArtifactMinted,
    ArtifactRefused,
    ArtifactResolved,
    ArtifactStoreError,
    BoundArtifacts,
    BoundStreamingArtifacts,
    InvalidArtifactError,
    MemoryArtifacts,
    NewArtifact,
    NewStream,
    NoArtifacts,
    NoArtifactStoreError,
    Origin,
    RedisArtifacts,
    UnknownParentRefError,
    bind_artifacts,
)
from afpool.artifacts.testing import BadStore
from tests.artifacts.store_kit import ADA, BOB, memory_harness, new_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOBODY = "art_" + "0" * 22


def note(data: Any = "x", **facts: Any) -> NewArtifact:
    return NewArtifact(**{"kind": "note", "media_type": "text/plain", "data": data, **facts})


async def test_a_put_carries_the_hosts_origin_whatever_the_caller_says() -> None:
    store, facts = MemoryArtifacts(), []
    bound = bind_artifacts(store, ADA, origin=Origin("run-1", "call-1"), on_fact=facts.append)
    meta = await bound.put(note(origin=Origin("smuggled", "smuggled")))
    assert meta.origin == Origin("run-1", "call-1")
    assert await store.head(ADA, meta.ref) == meta
    assert facts == [ArtifactMinted(meta)]
    plain = await bind_artifacts(store, ADA).put(note(origin=Origin("smuggled")))
    assert plain.origin is None
    clean = bind_artifacts(store, ADA, origin=Origin("run-2"), words=str.upper)
    meta = await clean.put(note(origin=Origin("smuggled")))
    assert (meta.origin, meta.kind) == (Origin("run-2"), "NOTE")


async def test_expired_stands_before_minted() -> None:
    facts: list[Any] = []
    bound = bind_artifacts(MemoryArtifacts(max_count_per_scope=2), ADA, on_fact=facts.append)
    first, second, third = [await bound.put(note("x" * n)) for n in (1, 2, 3)]
    assert facts == [
        ArtifactMinted(first), ArtifactMinted(second), ArtifactExpired(first.ref, "max-count", "note", 1),
        ArtifactMinted(third),
    ]  # fmt: skip


async def test_what_is_found_and_what_is_not_is_on_the_record() -> None:
    store, facts = MemoryArtifacts(), []
    bound = bind_artifacts(store, ADA, on_fact=facts.append)
    meta = await store.put(ADA, note({"a": 1}))
    found = await bound.get(meta.ref)
    assert found is not None
    assert (found.data, await bound.head(meta.ref)) == ({"a": 1}, meta)
    foreign = await store.put(BOB, note())
    long = "art_" + "x" * 1_000_000
    assert [await bound.head(NOBODY), await bound.get(foreign.ref), await bound.get(long)] == [
        None,
        None,
        None,
    ]
    assert await bound.get(7) is None  # type: ignore[arg-type]
    assert facts == [
        ArtifactResolved(meta.ref, "get", "note", 7),
        ArtifactResolved(meta.ref, "head", "note", 7),
        ArtifactRefused("head", "missing-or-expired", NOBODY),
        ArtifactRefused("get", "missing-or-expired", foreign.ref),
        ArtifactRefused("get", "missing-or-expired", long[:64]),
        ArtifactRefused("get", "missing-or-expired"),
    ]


async def test_deleting_and_listing_are_on_no_record_and_stay_in_the_scope() -> None:
    store, facts = MemoryArtifacts(), []
    bound = bind_artifacts(store, ADA, on_fact=facts.append)
    mine, foreign = await store.put(ADA, note()), await store.put(BOB, note())
    assert (await bound.list()).items == (mine,)
    assert (await bound.list(kind="none", limit=3)).items == ()
    await bound.delete(foreign.ref)
    await bound.delete(mine.ref)
    assert await store.head(BOB, foreign.ref) == foreign
    assert await store.head(ADA, mine.ref) is None
    assert not facts


async def test_refusals_are_on_the_record_and_raised() -> None:
    facts: list[Any] = []
    harness = memory_harness()
    async with harness.open_store() as store:
        bound = bind_artifacts(store, ADA, on_fact=facts.append)
        with pytest.raises(UnknownParentRefError) as unknown:
            await bound.put(note(parent_refs=[NOBODY]))
        with pytest.raises(InvalidArtifactError) as invalid:
            await bound.put(note(kind=" "))
        with pytest.raises(TypeError):
            await bound.put("text")  # type: ignore[arg-type]
        meta = await store.put(ADA, note("precious", digest="sha-256"))
        assert harness.corrupt is not None
        harness.corrupt(store, ADA, meta.ref)
        with pytest.raises(ArtifactIntegrityError) as mismatch:
            await bound.get(meta.ref)
        assert facts == [
            ArtifactRefused("put", "unknown-parent", None, str(unknown.value)),
            ArtifactRefused("put", "invalid-input", None, str(invalid.value)),
            ArtifactRefused("get", "digest-mismatch", meta.ref, str(mismatch.value)),
        ]
        assert [one.ref for one in (await store.list(ADA)).items] == [meta.ref]


def test_facts_are_plain_data_without_absent_keys() -> None:
    size = {"kind": "k", "bytes": 3}
    facts = [
        (ArtifactResolved("r", "get", "k", 3), "artifacts.resolved", {"ref": "r", "via": "get", **size}),
        (ArtifactExpired("r", "ttl", "k", 3), "artifacts.expired", {"ref": "r", "reason": "ttl", **size}),
        (ArtifactRefused("list", "no-store"), "artifacts.refused", {"op": "list", "reason": "no-store"}),
        (ArtifactRefused("get", "kind-mismatch", "r", "d"), "artifacts.refused",
         {"op": "get", "reason": "kind-mismatch", "ref": "r", "detail": "d"}),
    ]  # fmt: skip
    for fact, event, data in facts:
        assert (fact.event, fact.as_json()) == (event, data)


async def test_a_minted_fact_holds_the_ticket_and_never_the_payload() -> None:
    facts: list[Any] = []
    bound = bind_artifacts(MemoryArtifacts(), ADA, origin=Origin("run"), on_fact=facts.append)
    parent = await bound.put(note())
    await bound.put(
        note("secret-4711", label="l", digest="sha-256", expires_at=4e9, parent_refs=[parent.ref])
    )
    data = facts[1].as_json()
    assert facts[1].event == "artifacts.minted"
    assert json.loads(json.dumps(data)) == data
    assert set(data) == {
        "ref", "kind", "media_type", "bytes", "created_at", "label", "digest", "expires_at", "origin",
        "parent_refs",
    }  # fmt: skip
    assert data["origin"] == {"run_id": "run"}
    assert "4711" not in repr(facts)
    assert set(facts[0].as_json()) == {"ref", "kind", "media_type", "bytes", "created_at", "origin"}


async def test_a_sink_that_raises_disturbs_no_verb(caplog: pytest.LogCaptureFixture) -> None:
    def angry(_: object) -> None:
        raise RuntimeError("secret-4711")

    bound = bind_artifacts(MemoryArtifacts(), ADA, on_fact=angry)
    with caplog.at_level(logging.WARNING, "afpool"):
        meta = await bound.put(note())
        assert await bound.head(meta.ref) == meta
    assert "4711" not in caplog.text


async def test_without_a_sink_everything_works() -> None:
    bound = bind_artifacts(MemoryArtifacts(), ADA)
    meta = await bound.put(note())
    assert await bound.get(NOBODY) is None
    assert (await bound.list()).items == (meta,)
    assert bound.configured
    assert "acme" not in repr(bound)


def test_a_scope_is_needed_to_bind() -> None:
    with pytest.raises(TypeError, match="must be an Identity"):
        bind_artifacts(MemoryArtifacts(), "acme")  # type: ignore[arg-type]


async def test_a_store_that_answers_with_a_foreign_artifact_is_not_believed() -> None:
    store, facts = MemoryArtifacts(), []
    mine, foreign = await store.put(ADA, note()), await store.put(BOB, note("secret"))
    bound = bind_artifacts(BadStore(store, foreign=(BOB, foreign.ref)), ADA, on_fact=facts.append)
    assert [await bound.head(mine.ref), await bound.get(mine.ref)] == [None, None]
    assert [fact.reason for fact in facts] == ["missing-or-expired"] * 2


# Without a store.


async def test_without_a_store_every_verb_says_the_same_and_does_nothing() -> None:
    facts: list[Any] = []
    for none in (NoArtifacts(facts.append), NoArtifacts()):
        assert not none.configured
        for op, verb in (
            ("put", lambda none=none: none.put(note())), ("head", lambda none=none: none.head(NOBODY)),
            ("get", lambda none=none: none.get(NOBODY)), ("delete", lambda none=none: none.delete(NOBODY)),
            ("list", lambda none=none: none.list()),
        ):  # fmt: skip
            with pytest.raises(
                NoArtifactStoreError, match=f"the verb {op} was used and no artifact store"
            ) as caught:
                await verb()
            assert caught.value.code == "ERR_NO_ARTIFACT_STORE"
            assert "`configured`" in str(caught.value)
    assert facts == [
        ArtifactRefused(op, "no-store", None if op in {"put", "list"} else NOBODY)  # type: ignore[arg-type]
        for op in ("put", "head", "get", "delete", "list")
    ]


# Streams.


@pytest.mark.peer
async def test_a_bound_store_streams_where_the_store_does(redis: Any) -> None:
    async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    facts: list[Any] = []
    assert type(bind_artifacts(MemoryArtifacts(), ADA)) is BoundArtifacts
    async with RedisArtifacts(redis.url, prefix=new_prefix()) as store:
        bound = bind_artifacts(store, ADA, origin=Origin("run"), on_fact=facts.append)
        assert isinstance(bound, BoundStreamingArtifacts)
        new = NewStream(kind="file", media_type="x/y", bytes=3, origin=Origin("smuggled"))
        meta = await bound.put_stream(new, pieces(b"ab", b"c"))
        assert meta.origin == Origin("run")
        async with bound.get_stream(meta.ref) as stream:
            assert stream is not None
            assert [chunk async for chunk in stream.chunks] == [b"abc"]
        async with bound.get_stream(NOBODY) as stream:
            assert stream is None
        with pytest.raises(InvalidArtifactError) as invalid:
            await bound.put_stream(new, pieces(b"abcd"))
        assert facts == [
            ArtifactMinted(meta),
            ArtifactResolved(meta.ref, "get", "file", 3),
            ArtifactRefused("get", "missing-or-expired", NOBODY),
            ArtifactRefused("put", "invalid-input", None, str(invalid.value)),
        ]


# The store that misbehaves, which others test with.


async def test_a_bad_store_does_what_it_is_told() -> None:
    inner = MemoryArtifacts()
    metas = [await inner.put(ADA, note(str(n))) for n in range(3)]
    looping = BadStore(inner, loops_cursor=True)
    first = await looping.list(ADA, limit=2)
    assert await looping.list(ADA, cursor=first.cursor, limit=2) == first
    assert first.items == (metas[2], metas[1])
    failing = BadStore(inner, fails_after={"get": 1}, error=lambda: OSError("disk"))
    assert await failing.get(ADA, metas[0].ref) is not None
    with pytest.raises(OSError, match="disk"):
        await failing.get(ADA, metas[0].ref)
    assert await failing.head(ADA, metas[0].ref) == metas[0]
    assert failing.calls == {"get": 2, "head": 1}
    with pytest.raises(ArtifactStoreError) as caught:
        await BadStore(inner, fails_after={"put": 0}).put(ADA, note())
    assert caught.value.delivery == "in-doubt"
    hanging = BadStore(inner, hangs={"delete"})
    with trio.CancelScope() as scope:
        scope.cancel()
        await hanging.delete(ADA, metas[0].ref)
    assert scope.cancelled_caught
    foreign = BadStore(inner, foreign=(ADA, metas[0].ref))
    assert (await foreign.list(BOB)).items == (metas[0],)
    assert await foreign.head(BOB, NOBODY) == metas[0]


# Errors.


def test_the_errors_have_their_codes_and_show_little() -> None:
    codes = {cls.__name__: cls.code for cls in ArtifactError.__subclasses__()}
    assert codes == {
        "InvalidArtifactError": "ERR_INVALID_ARTIFACT",
        "UnknownParentRefError": "ERR_UNKNOWN_PARENT_REF",
        "ArtifactIntegrityError": "ERR_ARTIFACT_INTEGRITY",
        "UnreadableArtifactError": "ERR_UNREADABLE_ARTIFACT",
        "UnreadableArtifactStoreError": "ERR_UNREADABLE_ARTIFACT_STORE",
        "ArtifactStoreError": "ERR_ARTIFACT_STORE",
        "ArtifactStoreClosedError": "ERR_ARTIFACT_STORE_CLOSED",
        "NoArtifactStoreError": "ERR_NO_ARTIFACT_STORE",
    }
    many = UnknownParentRefError([f"art_{n:022d}" for n in range(30)] + ["x" * 100_000])
    assert len(many.unresolved) == 31
    assert "and 21 more" in str(many)
    assert len(str(many)) < 1000


def test_what_holds_a_payload_does_not_show_it() -> None:
    new = note("secret-4711")
    assert "4711" not in repr(new)
    stream = NewStream(kind="k", media_type="m", bytes=1)
    assert "bytes=1" in repr(stream)
