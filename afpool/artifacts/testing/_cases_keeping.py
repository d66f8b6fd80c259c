"""Cases: how long and how much is kept, and that what goes is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ..._base.identity import Identity
from ._suite import OTHER, SCOPE, World, check, listed, new, refused

if TYPE_CHECKING:
    from .._types import ArtifactMeta, Swept


async def expiry_only_tightens(world: World) -> None:
    """An expiry is stated at the put, shortened by the store's own, never lengthened, holds everywhere."""
    store = await world.bounded(ttl=100.0)
    now = await world.now(store)
    short = await store.put(SCOPE, new("short", expires_at=now + 10))
    long = await store.put(SCOPE, new("long", expires_at=now + 10_000))
    plain = await store.put(SCOPE, new("plain"))
    check(_about(short.expires_at, now + 10), "an expiry that was asked for is another")
    check(short.expires_at is not None and short.expires_at <= now + 10.001, "an expiry was lengthened")
    for meta in (long, plain):
        check(_about(meta.expires_at, meta.created_at + 100), "the store's own limit is not the expiry")
    check(await store.head(SCOPE, short.ref) == short, "head does not agree on the expiry")
    await refused("ERR_INVALID_ARTIFACT", store.put(SCOPE, new(expires_at=now - 1)))
    child = await store.put(SCOPE, new("child", parent_refs=[short.ref], expires_at=now + 50))
    await world.advance(20)
    for verb in (store.head, store.get):
        check(await verb(SCOPE, short.ref) is None, "what has expired is there")
    check(
        await listed(store, SCOPE) == [child, plain, long], "a list shows what has expired, or not the rest"
    )
    await store.delete(SCOPE, short.ref)
    await refused("ERR_UNKNOWN_PARENT_REF", store.put(SCOPE, new(parent_refs=[short.ref])))
    check(child.parent_refs == (short.ref,), "a parent that has expired is forgotten")
    await world.advance(100)
    check(await listed(store, SCOPE) == [], "a list shows what has expired")


def _about(found: float | None, wanted: float) -> bool:
    return found is not None and abs(found - wanted) < 1.0


async def age_is_swept(world: World) -> None:
    """What has expired is named once, by the next put of its scope, as `ttl`."""
    store = await world.bounded(ttl=100.0)
    old = [await store.put(SCOPE, new("x" * n, kind=f"k{n}")) for n in (1, 2)]
    await world.advance(150)
    foreign: list[Swept] = []
    await store.put(OTHER, new(), on_swept=foreign.append)
    check(not foreign, "a put names what another scope gave up")
    swept: list[Swept] = []
    meta = await store.put(SCOPE, new(), on_swept=swept.append)
    wanted = {(one.ref, "ttl", one.kind, one.bytes) for one in old}
    named = {(one.ref, one.reason, one.kind, one.bytes) for one in swept}
    # a store may have cleared them away while nobody put anything; then it names none
    check(named in (wanted, set()) and len(swept) == len(named), f"a put named {sorted(named)}")
    again: list[Swept] = []
    await store.put(SCOPE, new(), on_swept=again.append)
    check(not again, "an artifact was named twice")
    check(meta in await listed(store, SCOPE), "what is alive was swept")


async def oversized_is_refused(world: World) -> None:
    """A payload larger than its scope's budget is refused before anything is written or given up."""
    store = await world.bounded(max_bytes=100)
    kept = [await store.put(SCOPE, new("x" * 40)) for _ in range(2)]
    swept: list[Swept] = []
    for data in ("x" * 101, b"x" * 101, {"a": "x" * 100}, "é" * 51):
        await refused("ERR_INVALID_ARTIFACT", store.put(SCOPE, new(data), on_swept=swept.append))
    check(not swept, "a refused put swept something")
    check(await listed(store, SCOPE) == kept[::-1], "a refused put stored or took away something")
    whole = await store.put(SCOPE, new("x" * 100), on_swept=swept.append)
    check(await listed(store, SCOPE) == [whole], "a payload of the whole budget does not fit")


async def room_is_made_in_order(world: World) -> None:
    """The oldest goes first, no more than needed, each named with its reason; neighbours keep theirs."""
    store = await world.bounded(max_count=4, max_bytes=100)
    neighbour = await store.put(OTHER, new("x" * 90))
    swept: list[Swept] = []
    metas = [await store.put(SCOPE, new("x" * 10), on_swept=swept.append) for _ in range(6)]
    check(_named(swept) == _wanted(metas[:2], "max-count"), f"too many artifacts swept {_named(swept)}")
    check(await listed(store, SCOPE) == metas[:1:-1], "the wrong artifacts are left")
    swept.clear()
    large = await store.put(SCOPE, new("x" * 85), on_swept=swept.append)
    wanted = _wanted(metas[2:3], "max-count") + _wanted(metas[3:5], "max-bytes")
    check(_named(swept) == wanted, f"too many bytes swept {_named(swept)}")
    check(await listed(store, SCOPE) == [large, metas[5]], "the wrong artifacts are left")
    for meta in metas[:5]:
        check(await store.get(SCOPE, meta.ref) is None, "what was given up is there")
    check(await listed(store, OTHER) == [neighbour], "a neighbour lost something")


def _named(swept: list[Swept]) -> list[tuple[str, str, str, int]]:
    return [(one.ref, one.reason, one.kind, one.bytes) for one in swept]


def _wanted(metas: list[ArtifactMeta], reason: str) -> list[tuple[str, str, str, int]]:
    return [(meta.ref, reason, meta.kind, meta.bytes) for meta in metas]


async def deleting_makes_room(world: World) -> None:
    """What was deleted or given up counts no more."""
    store = await world.bounded(max_count=3, max_bytes=100)
    swept: list[Swept] = []
    for _ in range(20):
        meta = await store.put(SCOPE, new("x" * 60), on_swept=swept.append)
        await store.delete(SCOPE, meta.ref)
        await store.delete(SCOPE, meta.ref)
    check(not swept, "a deleted artifact still takes room")
    kept = [await store.put(SCOPE, new("x" * 33), on_swept=swept.append) for _ in range(3)]
    check(not swept and await listed(store, SCOPE) == kept[::-1], "a scope cannot be filled")


async def limits_hold_at_once(world: World) -> None:
    """With many puts at once a scope never holds more than it may, and what went was named once."""
    store = await world.bounded(max_count=5, max_bytes=200)
    swept: list[Swept] = []
    minted: list[str] = []

    async def work(size: int) -> None:
        for turn in range(8):
            meta = await store.put(SCOPE, new("x" * (size + turn)), on_swept=swept.append)
            minted.append(meta.ref)
            held = await listed(store, SCOPE)
            check(len(held) <= 5, f"a scope of at most 5 holds {len(held)}")
            check(sum(one.bytes for one in held) <= 200, "a scope holds more bytes than it may")

    async with trio.open_nursery() as nursery:
        for size in range(10, 90, 10):
            nursery.start_soon(work, size)
    left = [meta.ref for meta in await listed(store, SCOPE)]
    gone = [one.ref for one in swept]
    check(len(set(gone)) == len(gone), "an artifact was named twice")
    check(sorted(left + gone) == sorted(minted), "an artifact went unnamed, or was named and stayed")
    check(await listed(store, Identity("nobody")) == [], "an unused scope holds something")
