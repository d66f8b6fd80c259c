"""Cases: what goes in comes out, and what is wrong does not go in."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import trio

from .._naming import is_artifact_ref
from .._types import ArtifactMeta, Origin
from ._suite import OTHER, SCOPE, World, check, listed, new, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

REF: Final = re.compile(r"art_[A-Za-z0-9]{22}")
DIGEST: Final = re.compile(r"sha-256:[0-9a-f]{64}")
NOBODY: Final = "art_" + "0" * 22


async def put_head_get(world: World) -> None:
    """A put mints a ticket, `head` gives it without the payload, `get` with it; nothing is swept."""
    swept: list[object] = []
    meta = await world.store.put(SCOPE, new("hello", label="greeting"), on_swept=swept.append)
    check(isinstance(meta, ArtifactMeta), f"put gave a {type(meta).__name__}")
    check((meta.kind, meta.media_type, meta.label) == ("note", "text/plain", "greeting"), f"put gave {meta}")
    check(meta.bytes == 5, f"a payload of 5 bytes is said to have {meta.bytes}")
    absent = (meta.digest, meta.expires_at, meta.origin, meta.parent_refs)
    check(absent == (None, None, None, ()), f"what was not given is there: {absent}")
    check(not swept, "a put into an empty scope swept something")
    check(await world.store.head(SCOPE, meta.ref) == meta, "head differs from what put gave")
    found = await world.store.get(SCOPE, meta.ref)
    check(found is not None, "get does not find what was put")
    assert found is not None
    check(found.meta == meta and found.data == "hello", f"get gave {found.meta} and {found.data!r}")


async def round_trip(world: World) -> None:
    """Text, bytes and JSON come back as they were, with their media type; `bytes` is the canonical length."""
    mixed = {"b": [1, 2.5, -0.0, True, None], "a": {"é": "\u2028"}}
    text = "naïve, 漢字 🙂\n\0"
    values: list[tuple[Any, int]] = [
        ("", 0),
        (text, len(text.encode())),
        (b"", 0),
        (bytes(range(256)), 256),
        (mixed, len('{"b":[1,2.5,-0.0,true,null],"a":{"é":"\u2028"}}'.encode())),
        ([], 2),
        (None, 4),
        (False, 5),
        (2**63, 19),
        (0.1, 3),
    ]  # fmt: skip
    for value, size in values:
        meta = await world.store.put(SCOPE, new(value, media_type="application/x-test; v=1"))
        found = await world.store.get(SCOPE, meta.ref)
        assert found is not None
        same = found.data == value and type(found.data) is type(value)
        check(same, f"{type(value).__name__} came back as {type(found.data).__name__}, or changed")
        check(meta.bytes == size, f"bytes is {meta.bytes} where the canonical payload has {size}")
        check(found.meta.media_type == "application/x-test; v=1", "the media type changed")
    ordered = await world.store.put(SCOPE, new({"z": 1, "a": 2}))
    again = await world.store.get(SCOPE, ordered.ref)
    assert again is not None
    check(list(again.data) == ["z", "a"], "the keys of an object changed their order")
    large = {"rows": [{"n": n, "text": "x" * 50} for n in range(3000)]}
    kept = await world.store.get(SCOPE, (await world.store.put(SCOPE, new(large, digest="sha-256"))).ref)
    check(kept is not None and kept.data == large, "a large payload changed")


async def refs_are_minted(world: World) -> None:
    """Equal bytes are two artifacts with two refs, and a ref is not made of its bytes."""
    first = await world.store.put(SCOPE, new("same", digest="sha-256"))
    second = await world.store.put(SCOPE, new("same", digest="sha-256"))
    check(first.ref != second.ref, "two puts of the same bytes gave one ref")
    for meta in (first, second):
        check(
            REF.fullmatch(meta.ref) and is_artifact_ref(meta.ref), f"{meta.ref!r} has not the form of a ref"
        )
        digest = hashlib.sha256(b"same").hexdigest()
        check(meta.ref[4:14].lower() not in digest, "the ref is made of the digest")
    check(second.created_at > first.created_at, "the later put is not newer")


async def absence_is_one_answer(world: World) -> None:
    """What never was, what was deleted, another scope's and what is no ref are `None`, and never an error."""
    meta = await world.store.put(SCOPE, new())
    gone = await world.store.put(SCOPE, new())
    await world.store.delete(SCOPE, gone.ref)
    malformed: list[Any] = [
        "", "art_", "ART_" + meta.ref[4:], meta.ref + "\n", meta.ref[:-1], meta.ref + "0", "../" + meta.ref,
        "art_%", "art_" + "é" * 22, "art_" + "x" * 1_000_000, "'; DROP TABLE artifacts; --", "art_*", None, 7,
        b"art_" + b"0" * 22, [], "\ud800",
    ]  # fmt: skip
    for ref in (NOBODY, gone.ref, *malformed):
        what = repr(ref)[:40]
        check(await world.store.head(SCOPE, ref) is None, f"head finds {what}")
        check(await world.store.get(SCOPE, ref) is None, f"get finds {what}")
        await world.store.delete(SCOPE, ref)
    check(await world.store.get(OTHER, meta.ref) is None, "another scope reads it")
    check(await world.store.head(SCOPE, meta.ref) == meta, "deleting what is not there took something away")


async def delete_is_agreement(world: World) -> None:
    """A deleted artifact is gone from `get`, `head` and `list`; deleting it again is fine."""
    meta, kept = await world.store.put(SCOPE, new("a")), await world.store.put(SCOPE, new("b"))
    for _ in range(2):
        await world.store.delete(SCOPE, meta.ref)
        check(await world.store.get(SCOPE, meta.ref) is None, "get finds what was deleted")
        check(await world.store.head(SCOPE, meta.ref) is None, "head finds what was deleted")
        check(await listed(world.store, SCOPE) == [kept], "list shows what was deleted, or loses the rest")
    await world.store.delete(OTHER, kept.ref)
    check(await world.store.head(SCOPE, kept.ref) == kept, "another scope deleted it")


async def parents_are_proven(world: World) -> None:
    """A parent is there in the same scope at the moment of the put, or nothing is stored."""
    first, second = await world.store.put(SCOPE, new("1")), await world.store.put(SCOPE, new("2"))
    foreign = await world.store.put(OTHER, new("3"))
    child = await world.store.put(SCOPE, new("child", parent_refs=[first.ref, second.ref, first.ref]))
    check(child.parent_refs == (first.ref, second.ref), f"the parents became {child.parent_refs}")
    check(await world.store.head(SCOPE, child.ref) == child, "head lost the parents")
    gone = await world.store.put(SCOPE, new("4"))
    await world.store.delete(SCOPE, gone.ref)
    before = await listed(world.store, SCOPE)
    for parents in ([NOBODY], [first.ref, foreign.ref], [gone.ref], ["no ref"], ["x" * 100_000]):
        error: Any = await refused(
            "ERR_UNKNOWN_PARENT_REF", world.store.put(SCOPE, new(parent_refs=[*parents]))
        )
        check(error.unresolved == (parents[-1],), f"unresolved is {str(error.unresolved)[:80]}")
        check(len(str(error)) < 1000, "the refusal repeats a ref without end")
    check(await listed(world.store, SCOPE) == before, "a refused put stored something")
    meta = await world.store.put(SCOPE, new(parent_refs=()))
    check(meta.parent_refs == (), "no parents became some")


def _malformed() -> list[dict[str, Any]]:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    return [
        {"kind": ""}, {"kind": " \t"}, {"kind": None}, {"kind": 7}, {"kind": "k" * 5000}, {"kind": "\ud800"},
        {"media_type": ""}, {"media_type": "\n"}, {"media_type": None},
        {"label": 7}, {"label": "l" * 5000},
        {"digest": "md5"}, {"digest": "SHA-256"}, {"digest": True},
        {"expires_at": float("nan")}, {"expires_at": float("inf")}, {"expires_at": "tomorrow"},
        {"expires_at": True}, {"expires_at": 0}, {"expires_at": -1.5},
        {"origin": {"run_id": "r"}}, {"origin": Origin(run_id="r" * 5000)},
        {"parent_refs": "art_" + "0" * 22}, {"parent_refs": 7}, {"parent_refs": [None]},
        {"parent_refs": [NOBODY] * 5000},
        {"data": cyclic}, {"data": deep}, {"data": {"f": print}}, {"data": {1: 2}}, {"data": [{None: 1}]},
        {"data": float("nan")}, {"data": [float("-inf")]}, {"data": {1, 2}}, {"data": object()},
        {"data": {"b": b"bytes"}}, {"data": "\ud800"}, {"data": 10**5000}, {"data": 1j},
    ]  # fmt: skip


async def malformed_is_refused(world: World) -> None:
    """What is malformed is refused by name, and nothing is stored."""
    for facts in _malformed():
        ((field, value),) = facts.items()
        try:
            await refused("ERR_INVALID_ARTIFACT", world.store.put(SCOPE, new(**facts)))
        except AssertionError as error:
            raise AssertionError(f"{field} of type {type(value).__name__}: {error}") from error
    check(await listed(world.store, SCOPE) == [], "a refused put stored something")


async def refusals_quote_nothing(world: World) -> None:
    """No refusal shows a payload or whose it was."""
    scope = type(SCOPE)("tenant-4711", "principal-4711", "conversation-4711")
    verbs = [
        world.store.put(scope, new({"secret-4711": object()})),
        world.store.put(scope, new({"a": "secret-4711", "b": float("nan")})),
        world.store.put(scope, new("secret-4711\ud800")),
        world.store.put(scope, new("secret-4711", kind="")),
        world.store.put(scope, new("secret-4711", expires_at=1)),
        world.store.put(scope, new("secret-4711", parent_refs=[NOBODY])),
    ]
    for verb in verbs:
        try:
            await verb
        except Exception as error:  # noqa: BLE001 -- which one it is another case says
            shown = f"{error!s} {error!r} {error.__cause__!r} {error.__context__!r}"
            check("4711" not in shown, "a refusal shows what it was given")
        else:
            check(condition=False, failure="a malformed put was accepted")


async def digest_is_kept(world: World) -> None:
    """A digest is made where asked for, is the same for the same bytes, and rides on `head` and `get`."""
    plain = await world.store.put(SCOPE, new("same"))
    check(plain.digest is None, "a digest that nobody asked for")
    first = await world.store.put(SCOPE, new("same", digest="sha-256"))
    second = await world.store.put(OTHER, new("same", digest="sha-256"))
    other = await world.store.put(SCOPE, new("other", digest="sha-256"))
    check(first.digest == "sha-256:" + hashlib.sha256(b"same").hexdigest(), f"the digest is {first.digest}")
    check(DIGEST.fullmatch(str(other.digest)), f"the digest is {other.digest}")
    check(first.digest == second.digest != other.digest, "digests do not tell equal bytes from others")
    check((await world.store.head(SCOPE, first.ref)) == first, "head lost the digest")
    found = await world.store.get(SCOPE, first.ref)
    check(found is not None and found.meta == first, "get lost the digest")
    encoded = await world.store.put(SCOPE, new({"a": [1, "é"]}, digest="sha-256"))
    wanted = "sha-256:" + hashlib.sha256('{"a":[1,"é"]}'.encode()).hexdigest()
    check(encoded.digest == wanted, "the digest of JSON is not over its compact form")


async def corruption_is_found(world: World) -> None:
    """`get` withholds a payload that is not what its digest says; `head` still answers."""
    for value in ("precious text", {"rows": list(range(20_000))}, b"\0" * 100_000):
        meta = await world.store.put(SCOPE, new(value, digest="sha-256"))
        await world.corrupt(world.store, SCOPE, meta.ref)
        error: Any = await refused("ERR_ARTIFACT_INTEGRITY", world.store.get(SCOPE, meta.ref))
        check((error.ref, error.expected) == (meta.ref, meta.digest), "the error names another artifact")
        check(error.actual != meta.digest, "the error does not say what was read")
        check(meta.ref in str(error), "the message does not name the ref")
        check(await world.store.head(SCOPE, meta.ref) == meta, "head answers no more")


async def stored_is_detached(world: World) -> None:
    """What was put does not change with what it was made of, nor with what a `get` returned."""
    data: dict[str, Any] = {"rows": [1, 2]}
    buffer = bytearray(b"abc")
    meta, raw = await world.store.put(SCOPE, new(data)), await world.store.put(SCOPE, new(buffer))
    data["rows"].append(3)
    buffer[0] = 0
    found = await world.store.get(SCOPE, meta.ref)
    assert found is not None
    check(found.data == {"rows": [1, 2]}, "a change after the put shows")
    found.data["rows"].clear()
    again = await world.store.get(SCOPE, meta.ref)
    assert again is not None
    check(again.data == {"rows": [1, 2]}, "a change to what get returned shows")
    kept = await world.store.get(SCOPE, raw.ref)
    check(kept is not None and kept.data == b"abc", "a change to a buffer shows")


async def verbs_are_checkpoints(world: World) -> None:
    """Every verb can be cancelled before it does anything, also where it has nothing to do."""
    meta = await world.store.put(SCOPE, new())
    verbs: dict[str, Callable[[], Awaitable[object]]] = {
        "put": lambda: world.store.put(SCOPE, new("late")),
        "refused put": lambda: world.store.put(SCOPE, new(kind="")),
        "head": lambda: world.store.head(SCOPE, meta.ref),
        "head of no ref": lambda: world.store.head(SCOPE, "no ref"),
        "get": lambda: world.store.get(SCOPE, meta.ref),
        "delete": lambda: world.store.delete(SCOPE, meta.ref),
        "delete of no ref": lambda: world.store.delete(SCOPE, "no ref"),
        "list": lambda: world.store.list(SCOPE),
    }
    for name, verb in verbs.items():
        with trio.CancelScope() as scope:
            scope.cancel()
            await verb()
        check(scope.cancelled_caught, f"{name} is no checkpoint")
    check(await listed(world.store, SCOPE) == [meta], "a cancelled verb did something")
