"""Cases: a scope's artifacts are its own, however its fields are spelled; and lists."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import trio

from ..._base.identity import Identity
from ._suite import OTHER, SCOPE, World, check, listed, new

if TYPE_CHECKING:
    from .._types import ArtifactMeta


async def scopes_are_apart(world: World) -> None:
    """A ref opens nothing in another conversation, for another principal, or for another tenant."""
    meta = await world.store.put(SCOPE, new())
    neighbours = [
        Identity("acme", "ada", "c2"), Identity("acme", "bob", "c1"), Identity("other", "ada", "c1"),
        Identity("acme", "ada"), Identity("acme", None, "c1"), Identity(None, "ada", "c1"), Identity(),
    ]  # fmt: skip
    for scope in neighbours:
        await _check_foreign(world, scope, meta.ref)
    check(await world.store.head(SCOPE, meta.ref) == meta, "a neighbour took it away")
    check(await listed(world.store, SCOPE) == [meta], "a neighbour took it away")


async def _check_foreign(world: World, scope: Identity, ref: str) -> None:
    check(await world.store.head(scope, ref) is None, f"head opens it for {_told(scope)}")
    check(await world.store.get(scope, ref) is None, f"get opens it for {_told(scope)}")
    check(await listed(world.store, scope) == [], f"list shows it to {_told(scope)}")
    await world.store.delete(scope, ref)


def _told(scope: Identity) -> str:
    return f"({scope.tenant!r}, {scope.principal!r}, {scope.conversation_id!r})"


CONFUSABLE = [
    (Identity("a/b", "c", "d"), Identity("a", "b/c", "d")),
    (Identity("t", "a/b", "c"), Identity("t", "a", "b/c")),
    (Identity("_", "p", "c"), Identity(None, "p", "c")),
    (Identity("t", "_", "c"), Identity("t", None, "c")),
    (Identity("t", "p", "_"), Identity("t", "p", None)),
    (Identity("a%2Fb", "p", "c"), Identity("a/b", "p", "c")),
    (Identity("%5F", "p", "c"), Identity("_", "p", "c")),
    (Identity("Acme", "p", "c"), Identity("acme", "p", "c")),
    (Identity("t", "Ada", "c"), Identity("t", "ada", "c")),
    (Identity("t", "p", "C1"), Identity("t", "p", "c1")),
    (Identity("~acme", "p", "c"), Identity("Acme", "p", "c")),
    (Identity("t", "p", "a:b"), Identity("t", "p:a", "b")),
    (Identity("t", "e\u0301", "c"), Identity("t", "\u00e9", "c")),
    (Identity("t ", "p", "c"), Identity("t", "p", "c")),
    (Identity("t\0", "p", "c"), Identity("t", "p", "c")),
    (Identity("t", "p{x}", "c"), Identity("t", "p", "{x}c")),
]


async def confusable_scopes(world: World) -> None:
    """Scopes that a careless spelling would merge are two scopes."""
    for one, other in CONFUSABLE:
        first, second = await world.store.put(one, new("one")), await world.store.put(other, new("other"))
        check(await listed(world.store, one) == [first], f"{_told(one)} shows what {_told(other)} has")
        check(await listed(world.store, other) == [second], f"{_told(other)} shows what {_told(one)} has")
        check(await world.store.get(one, second.ref) is None, f"{_told(one)} opens what {_told(other)} has")
        await world.store.delete(one, second.ref)
        check(
            await world.store.head(other, second.ref) == second, f"{_told(one)} deletes from {_told(other)}"
        )
        await world.store.delete(one, first.ref)
        await world.store.delete(other, second.ref)


AWKWARD = [
    Identity("../..", "..", "."), Identity("/", "//", "a/../b"), Identity("漢字", "naïve", "🙂"),
    Identity("'; DROP TABLE artifacts; --", '" OR 1=1', "%_"), Identity("*", "?", "[a]"), Identity(),
    Identity("t", "p", ""), Identity("t" * 200, "p" * 200, "c" * 200), Identity("\0", "\n", "\x7f"),
    Identity("con", "nul", "aux"), Identity("t", "p", "{c}"), Identity("\\", "\\\\", "\t"),
]  # fmt: skip


async def awkward_scopes(world: World) -> None:
    """Any text is a field: it comes back, and long ones are not cut to one."""
    for scope in AWKWARD:
        meta = await world.store.put(scope, new("x"))
        found = await world.store.get(scope, meta.ref)
        check(found is not None and found.data == "x", f"{_told(scope)} does not read what it put")
        check(await listed(world.store, scope) == [meta], f"{_told(scope)} does not list what it put")
    for field in ("tenant", "principal", "conversation_id"):
        scopes = [Identity(**{"tenant": "t", field: "x" * 600 + end}) for end in ("a", "b")]
        metas = [await world.store.put(scope, new()) for scope in scopes]
        for scope, meta in zip(scopes, metas, strict=True):
            check(await listed(world.store, scope) == [meta], f"long values of {field} are cut to one")


def _check_order(metas: list[ArtifactMeta]) -> None:
    for newer, older in pairwise(metas):
        ordered = (-newer.created_at, newer.ref) < (-older.created_at, older.ref)
        check(ordered, "tickets are not newest first, or one stands twice")


async def list_pages(world: World) -> None:
    """Pages come newest first, hold every ticket once and no payload, and end without a cursor."""
    check(
        await world.store.list(SCOPE) == type(await world.store.list(SCOPE))(()), "an empty list is not empty"
    )
    metas = [await world.store.put(SCOPE, new(f"payload-4711 {n}", label=str(n))) for n in range(12)]
    await world.store.put(OTHER, new())
    for limit in (1, 2, 5, 12, 13, 400):
        found = await listed(world.store, SCOPE, limit=limit)
        check(found == metas[::-1], f"pages of {limit} do not hold every ticket once, newest first")
        _check_order(found)
    page = await world.store.list(SCOPE, limit=12)
    check(
        len(page.items) <= 12 and (page.cursor is None) == (len(page.items) == 12), "a cursor leads nowhere"
    )
    first = await world.store.list(SCOPE, limit=5)
    check(first.cursor is not None, "a page that is not the last has no cursor")
    check("4711" not in repr(first), "a list shows payloads")
    for strange in ("", "0", "no cursor", "x" * 100_000, "-1"):
        start = await world.store.list(SCOPE, cursor=strange, limit=5)
        check(start.items == first.items, "a cursor that no page gave does not read as the start")
    check((await world.store.list(SCOPE, limit=0)).items, "a limit below 1 gives an empty page")
    for n in range(60):
        await world.store.put(SCOPE, new(str(n)))
    default = await world.store.list(SCOPE)
    check(0 < len(default.items) <= 50, f"a page without a limit holds {len(default.items)} tickets")


async def lists_by_kind(world: World) -> None:
    """A list of one kind holds all of that kind, compared exactly, and nothing else."""
    kinds = ["dataset/rows", "dataset", "Dataset/rows", "dataset/rows ", "é", "a\0b", "a"]
    metas = {kind: [await world.store.put(SCOPE, new(kind=kind)) for _ in range(3)] for kind in kinds}
    for kind, mine in metas.items():
        for limit in (2, 50):
            found = await listed(world.store, SCOPE, kind=kind, limit=limit)
            check(found == mine[::-1], f"a list of {kind!r} holds {[meta.kind for meta in found]}")
    check(await listed(world.store, SCOPE, kind="none such") == [], "a list of no kind holds something")
    check(await listed(world.store, OTHER, kind="dataset") == [], "a list of a kind shows another scope's")


async def pages_hold_while_things_change(world: World) -> None:
    """While artifacts come and go between two pages, each one that stays is listed exactly once."""
    metas = [await world.store.put(SCOPE, new(str(n))) for n in range(20)]
    seen: list[str] = []
    cursor: str | None = None
    for turn in range(100):
        page = await world.store.list(SCOPE, cursor=cursor, limit=3)
        seen += [meta.ref for meta in page.items]
        await world.store.put(SCOPE, new("newer"))
        if page.items:  # the ticket that the cursor stands at goes, and one that was not yet seen
            await world.store.delete(SCOPE, page.items[-1].ref)
        if turn == 0:
            await world.store.delete(SCOPE, metas[5].ref)
        cursor = page.cursor
        if cursor is None:
            break
    wanted = [meta.ref for meta in reversed(metas) if meta.ref != metas[5].ref]
    check(seen == wanted, "a ticket that stayed was left out or listed twice")


async def many_at_once(world: World) -> None:
    """Verbs of many tasks do not disturb each other: everything put is there, everything deleted is not."""
    kept: dict[Identity, set[str]] = {}

    async def work(number: int) -> None:
        scope = Identity("acme", f"p{number % 3}", "c")
        for turn in range(6):
            data = f"{number}-{turn}"
            meta = await world.store.put(scope, new(data))
            found = await world.store.get(scope, meta.ref)
            check(found is not None and found.data == data, "a put is not there for the task that made it")
            if turn % 2:
                await world.store.delete(scope, meta.ref)
                check(await world.store.head(scope, meta.ref) is None, "a deleted artifact is there")
            else:
                kept.setdefault(scope, set()).add(meta.ref)

    async with trio.open_nursery() as nursery:
        for number in range(12):
            nursery.start_soon(work, number)
    for scope, refs in kept.items():
        found = await listed(world.store, scope, limit=7)
        check({meta.ref for meta in found} == refs and len(found) == len(refs), "puts at once got lost")
        _check_order(found)
