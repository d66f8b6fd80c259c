"""All stores against one model: any order of verbs, with a clock that moves, gives the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afpool import Identity
from afpool.artifacts import InvalidArtifactError, NewArtifact, Retention, UnknownParentRefError

if TYPE_CHECKING:
    from afpool.artifacts.testing import StoreHarness

SCOPES = [Identity("t", "p", "c"), Identity("t", "p", "C"), Identity()]
KINDS = ["a", "b"]

PUT = st.tuples(
    st.just("put"), st.integers(0, 2), st.sampled_from(KINDS), st.integers(0, 40),
    st.none() | st.integers(1, 50), st.lists(st.integers(0, 8), max_size=2),
)  # fmt: skip
REF = st.integers(0, 8)
STEP = st.one_of(
    PUT,
    PUT,
    st.tuples(st.sampled_from(["head", "get", "delete"]), st.integers(0, 2), REF),
    st.tuples(st.just("list"), st.integers(0, 2), st.none() | st.sampled_from(KINDS), st.integers(1, 4)),
    st.tuples(st.just("advance"), st.integers(1, 40)),
)
LIMITS = st.builds(
    Retention,
    ttl=st.none() | st.integers(5, 60),
    max_bytes_per_scope=st.none() | st.integers(20, 90),
    max_count_per_scope=st.none() | st.integers(1, 5),
)


@attrs.define
class Row:
    ref: str
    kind: str
    size: int
    expires: float | None
    used: int = 0


@attrs.define
class Model:
    """What a store is: some lists, and the law of retention in a few lines."""

    limits: Retention
    now: float = 0.0
    uses: int = 0
    scopes: list[list[Row]] = attrs.field(factory=lambda: [[], [], []])

    def use(self, row: Row) -> None:
        self.uses += 1
        row.used = self.uses

    def live(self, row: Row) -> bool:
        return row.expires is None or row.expires > self.now

    def find(self, scope: int, ref: str) -> Row | None:
        return next((row for row in self.scopes[scope] if row.ref == ref and self.live(row)), None)

    def put(self, scope: int, row: Row) -> list[tuple[str, str]]:
        rows, gone = self.scopes[scope], []

        def take(victims: list[Row], reason: str) -> None:
            for victim in victims:
                rows.remove(victim)
                gone.append((victim.ref, reason))

        take(sorted((r for r in rows if not self.live(r)), key=lambda r: (r.expires, r.ref)), "ttl")
        most, budget = self.limits.max_count_per_scope, self.limits.max_bytes_per_scope
        while most is not None and len(rows) >= most:
            take([min(rows, key=lambda r: r.used)], "max-count")
        while budget is not None and sum(r.size for r in rows) + row.size > budget:
            take([min(rows, key=lambda r: r.used)], "max-bytes")
        rows.append(row)
        self.use(row)
        return gone


async def play(harness: StoreHarness, limits: Retention, steps: list[tuple[Any, ...]]) -> None:
    assert harness.open_bounded is not None
    assert harness.advance_time is not None
    if harness.name == "memory":  # which is always bounded
        limits = Retention(
            ttl=limits.ttl,
            max_bytes_per_scope=limits.max_bytes_per_scope or 10_000,
            max_count_per_scope=limits.max_count_per_scope or 1000,
        )
    model = Model(limits)
    minted: list[str] = ["art_" + "0" * 22]
    async with harness.open_bounded(limits) as store:
        start = (
            await store.put(Identity("probe"), NewArtifact(kind="p", media_type="p", data=""))
        ).created_at
        for step in steps:
            match step:
                case ("put", at, kind, size, life, parents):
                    refs = [minted[parent % len(minted)] for parent in parents]
                    expires = None if life is None else start + model.now + life
                    new = NewArtifact(
                        kind=kind, media_type="x", data="x" * size, expires_at=expires, parent_refs=refs
                    )
                    await check_put(store, model, at, new, size, life, minted)
                case ("head" | "get" as verb, at, number):
                    ref = minted[number % len(minted)]
                    found = await getattr(store, verb)(SCOPES[at], ref)
                    row = model.find(at, ref)
                    assert (found is None) == (row is None), step
                    if row is not None:
                        model.use(row)
                        meta = found if verb == "head" else found.meta
                        assert (meta.ref, meta.kind, meta.bytes) == (row.ref, row.kind, row.size)
                case ("delete", at, number):
                    ref = minted[number % len(minted)]
                    await store.delete(SCOPES[at], ref)
                    model.scopes[at] = [row for row in model.scopes[at] if row.ref != ref]
                case ("list", at, kind, size):
                    wanted = [
                        row.ref
                        for row in reversed(model.scopes[at])
                        if model.live(row) and kind in {None, row.kind}
                    ]
                    assert await pages(store, SCOPES[at], kind, size) == wanted, step
                case ("advance", seconds):
                    harness.advance_time(seconds)
                    model.now += seconds


async def check_put(
    store: Any, model: Model, at: int, new: NewArtifact, size: int, life: int | None, minted: list[str]
) -> None:
    swept: list[tuple[str, str]] = []
    limits = model.limits
    unresolved = [ref for ref in dict.fromkeys(new.parent_refs) if model.find(at, ref) is None]
    try:
        meta = await store.put(SCOPES[at], new, on_swept=lambda one: swept.append((one.ref, one.reason)))
    except UnknownParentRefError as error:
        named = list(error.unresolved)
        assert named == unresolved
        return
    except InvalidArtifactError:
        assert limits.max_bytes_per_scope is not None
        assert size > limits.max_bytes_per_scope
        return
    assert not unresolved
    expires = model.now + life if life is not None else None
    if limits.ttl is not None:
        expires = model.now + limits.ttl if expires is None else min(expires, model.now + limits.ttl)
    wanted = model.put(at, Row(meta.ref, new.kind, size, expires))
    known = [one for one in wanted if one[1] == "ttl"]
    # what expired in a scope may have been cleared away before its own next put
    assert [one for one in swept if one[1] != "ttl"] == [one for one in wanted if one[1] != "ttl"]
    assert {one for one in swept if one[1] == "ttl"} <= set(known)
    minted.append(meta.ref)


async def pages(store: Any, scope: Identity, kind: str | None, size: int) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list(scope, kind=kind, cursor=cursor, limit=size)
        found += [meta.ref for meta in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(limits=LIMITS, steps=st.lists(STEP, max_size=30))
def test_any_order_of_verbs_gives_what_the_model_gives(
    harness: StoreHarness, limits: Retention, steps: list[tuple[Any, ...]]
) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await play(harness, limits, steps)

    trio.run(bounded)


async def test_what_was_read_stays_and_what_was_not_goes(harness: StoreHarness) -> None:
    put = ("put", 0, "a", 1, None, [])
    steps = [put, put, ("get", 0, 1), put, ("list", 0, None, 1), ("head", 0, 1), ("head", 0, 2), put]
    await play(harness, Retention(max_count_per_scope=2), steps)
