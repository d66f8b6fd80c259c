"""From a ref back to the first artifacts: over parents and what calls were given; bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import (
    CredentialRequest,
    CredentialRequirement,
    Identity,
    ScriptedCredentials,
    ToolContext,
    Use,
    bearer,
    define_tool,
    open_runtime,
)
from afpool._base.identity import KeyDigest
from afpool.artifacts import ArtifactMeta, MemoryArtifacts, NewArtifact, Origin
from afpool.record._artifact_table import MAX_SHOWN, ArtifactTable
from afpool.record._artifact_walk import ARTIFACTS, Walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from afpool.record import Explanation

ALICE = Identity(tenant="acme", principal="alice")
DIGEST = KeyDigest(b"a secret of enough bytes")


def ref(number: int) -> str:
    return f"art_{number:022d}"


def meta(number: int, *parents: int, **facts: Any) -> ArtifactMeta:
    return ArtifactMeta(
        ref=ref(number), kind="rows", media_type="a/b", bytes=10, created_at=1000.0 + number,
        parent_refs=tuple(ref(parent) for parent in parents), **facts,
    )  # fmt: skip


def a_call(number: int, *took: int, shown: bytes | None = b'{"q":1}') -> Use:
    use = Use(f"c-{number}", "crm", "query", 0.0)
    use.run_id, use.who, use.shown = "r-1", ALICE, shown
    use.took = [ref(each) for each in took]
    return use


def walk(table: ArtifactTable, store: Any = None, uses: Callable[[str], list[Use]] = lambda _: []) -> Walk:
    return Walk(table, store, uses, DIGEST, 2000.0)


async def back(
    table: ArtifactTable, number: int = 1, store: Any = None, scope: Identity | None = None
) -> Explanation:
    found = await walk(table, store).back(ref(number), scope)
    assert found is not None
    return found


def refs(explanation: Explanation) -> list[object]:
    return [clause.facts.get("ref") for clause in explanation.clauses]


async def test_back_over_parents_and_what_the_call_was_given() -> None:
    table = ArtifactTable()
    table.note(meta(3), ALICE, a_call(3))
    table.note(meta(4), ALICE, a_call(4))
    table.note(meta(2, 3), ALICE, a_call(2, shown=None))
    table.note(meta(1, 2), ALICE, a_call(1, 4, shown=b'{"limit":5}'))
    explanation = await back(table)
    assert refs(explanation) == [ref(1), ref(2), ref(4), ref(3)]
    assert explanation.headline == (
        f"`{ref(1)}` was put by call `c-1` of `query` on `crm`, in run `r-1`, for "
        f"{explanation.clauses[0].facts['who']}, 16 min 39 s ago; "
        f"it goes back over 3 artifacts to `{ref(4)}` and `{ref(3)}`"
    )
    first = explanation.clauses[0]
    assert f"made from `{ref(2)}`; the call was given `{ref(4)}`" in first.text
    assert first.facts["arguments"] == '{"limit": 5}'
    assert str(first.facts["who"]).startswith("w:")
    assert "alice" not in explanation.words()
    assert [clause.at for clause in explanation.clauses] == [0.0, 1.0, 3.0, 2.0]


async def test_what_the_record_forgot_is_asked_of_the_store() -> None:
    async with MemoryArtifacts() as store:
        origin = Origin("r-0", "c-0")
        words: dict[str, Any] = {"kind": "s3cret kind", "label": "s3cret label", "media_type": "s3cret/b"}
        old = await store.put(ALICE, NewArtifact(data=[1], origin=origin, **words))
        new = NewArtifact(kind="rows", media_type="a/b", data=[2], parent_refs=[old.ref])
        made = await store.put(ALICE, new)
        table = ArtifactTable()
        table.note(made, ALICE, a_call(1))
        explanation = await walk(table, store).back(made.ref, None)
        assert explanation is not None
        assert refs(explanation) == [made.ref, old.ref]
        assert "call `c-0`, whose facts have left the record, in run `r-0`" in explanation.clauses[1].text
        assert "s3cret" not in str(explanation.as_json())  # nobody has looked through what a store gives back
        # nothing of it is known here: a ref alone opens nothing
        assert await walk(ArtifactTable(), store).back(made.ref, None) is None
        by_scope = await walk(ArtifactTable(), store).back(made.ref, ALICE)
        assert by_scope is not None
        assert refs(by_scope) == [made.ref, old.ref]
        assert await walk(ArtifactTable(), store).back(made.ref, Identity(tenant="globex")) is None


async def test_a_parent_that_nobody_knows_is_said_to_be_gone() -> None:
    table = ArtifactTable()
    table.note(meta(1, 2), ALICE, a_call(1))
    for store in (None, MemoryArtifacts()):
        explanation = await back(table, store=store)
        assert explanation.clauses[1].facts == {"ref": ref(2), "known": False}
        assert "of 1 nobody knows any more" in explanation.headline


async def test_a_ring_of_parents_ends() -> None:
    table = ArtifactTable()
    table.note(meta(1, 2), ALICE, a_call(1))
    table.note(meta(2, 3), ALICE, a_call(2))
    table.note(meta(3, 1, 2), ALICE, a_call(3))
    explanation = await back(table)
    assert refs(explanation) == [ref(1), ref(2), ref(3)]
    assert f"`{ref(1)}` and `{ref(2)}` stood on this way before" in explanation.clauses[2].text


async def test_a_long_line_is_followed_only_so_far() -> None:
    table = ArtifactTable()
    for number in range(1, ARTIFACTS + 20):
        table.note(meta(number, number + 1), ALICE, a_call(number))
    explanation = await back(table)
    assert len(explanation.clauses) == ARTIFACTS + 1
    assert explanation.clauses[-1].text == "1 more artifacts are not followed here"


class Hanging:
    async def head(self, scope: Any, name: str) -> Any:
        await trio.sleep_forever()


class Raising:
    async def head(self, scope: Any, name: str) -> Any:
        await trio.lowlevel.checkpoint()
        raise OSError("the disk of s3cret is gone")


async def test_a_store_that_hangs_or_raises_costs_what_only_it_knows(
    autojump_clock: trio.testing.MockClock,
) -> None:
    table = ArtifactTable()
    table.note(meta(1, 2, 3), ALICE, a_call(1))
    began = trio.current_time()
    hung = await back(table, store=Hanging())
    assert trio.current_time() - began == pytest.approx(5.0)
    assert hung.words().count("the store had not answered after 5 s and is not asked any further") == 1
    assert [clause.facts.get("known") for clause in hung.clauses].count(False) == 2
    failed = await back(table, store=Raising())
    assert "the store could not be asked about" in failed.words()
    assert "(OSError)" in failed.words()
    assert "s3cret" not in str(failed.as_json())


async def test_what_has_expired_is_said_to_have() -> None:
    table = ArtifactTable()
    table.note(meta(1, expires_at=1500.0), ALICE, a_call(1))
    assert "it has expired since" in (await back(table)).clauses[0].text


async def test_a_put_of_the_runs_own_has_no_call() -> None:
    table = ArtifactTable()
    table.note(meta(1, origin=Origin("r-7")), ALICE)
    assert "was put by a run by itself, in run `r-7`" in (await back(table)).headline
    table.note(meta(2), ALICE)
    assert "was put by nobody that is named" in (await back(table, 2)).headline


async def test_the_use_says_more_than_the_table_as_long_as_it_is_kept() -> None:
    table = ArtifactTable()
    long = b'{"text":"' + b"x" * MAX_SHOWN + b'"}'
    table.note(meta(1), ALICE, a_call(1, shown=long))
    assert "arguments" not in (await back(table)).clauses[0].facts
    found = await walk(table, uses=lambda _: [a_call(1, shown=long)]).back(ref(1), None)
    assert found is not None
    assert len(str(found.clauses[0].facts["arguments"])) < 400


async def test_words_of_strangers_stand_on_one_line() -> None:
    table = ArtifactTable()
    table.note(meta(1, label="a\x1b[2J\nb"), ALICE, a_call(1, shown=b"\xff{no json\x1b"))
    assert "\x1b" not in (await back(table)).words()


def test_the_table_is_bounded_by_count_and_by_bytes() -> None:
    table = ArtifactTable(kept=3)
    for number in range(5):
        table.note(meta(number), ALICE, a_call(number))
    assert (len(table), table.forgotten) == (3, 2)
    assert table.get(ref(1)) is None
    assert table.get(ref(4)) is not None
    table.note(meta(4), ALICE, a_call(9))  # the same ref again takes no second place
    assert len(table) == 3
    small = ArtifactTable(room=5_000)
    for number in range(50):
        small.note(meta(number), ALICE, a_call(number))
    assert small.bytes <= 5_000
    assert len(small) == 50 - small.forgotten > 0


SECRET = "s3cr3t-t0ken-value"


@pytest.mark.parametrize("late", [False, True], ids=["fetched before", "fetched after"])
async def test_what_a_call_minted_is_kept_without_its_secret(late: bool) -> None:
    """A model that repeats a credential in its arguments; the walk back shows the arguments."""
    seen: list[bytes | None] = []

    async def work(args: Any, ctx: ToolContext) -> str:
        made = await ctx.artifacts.put(
            NewArtifact(kind="rows", data=[1], media_type="application/json", label=f"of {SECRET}")
        )
        if late:
            assert ctx.credentials is not None
            await ctx.credentials.get(CredentialRequest("crm"))
        seen.extend(use.shown for use in runtime.running.values())
        return made.ref

    needs = None if late else CredentialRequirement("crm")
    tool = define_tool(execute=work, name="work", needs=needs)
    async with open_runtime(
        tools=[tool], artifacts=MemoryArtifacts(), credentials=ScriptedCredentials([bearer(SECRET)])
    ) as runtime:
        result = await runtime.dispatch(ALICE, "work", {"q": f"with {SECRET}"})
        assert result.error is None, result.text
        row = runtime.record.minted.get(result.text)
        assert row is not None
        assert (row.shown, row.meta.label) == (b'{"q":"with [host-filled]"}', "of [host-filled]")
        assert seen == [row.shown], "at once, and not only when the call has ended"
        explained = await runtime.record.why(result.text)
        assert SECRET not in repr(explained.as_json())
        table = runtime.record.minted
        assert table.bytes == sum(each.size for each in table)


def test_of_a_put_that_its_call_does_not_list_no_arguments_are_kept() -> None:
    """They could not be cleaned when more is known."""
    table, use = ArtifactTable(), a_call(1)
    use.minted = [ref(1)]
    table.note(meta(1), ALICE, use)
    table.note(meta(2), ALICE, use)
    assert [(row.meta.ref, row.shown) for row in table] == [(ref(2), None), (ref(1), b'{"q":1}')]
