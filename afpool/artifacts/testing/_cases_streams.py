"""Cases: payloads in pieces, for the stores that never hold a whole one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .._naming import is_artifact_ref
from .._types import ArtifactStore, NewStream, StreamingArtifactStore, Swept
from ._cases_basic import NOBODY
from ._suite import OTHER, SCOPE, World, check, listed, new, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def _streaming(store: ArtifactStore) -> Any:
    return cast("StreamingArtifactStore", store)


def _stream(size: Any, **facts: Any) -> NewStream:
    return NewStream(**{"kind": "file/bin", "media_type": "application/octet-stream", "bytes": size, **facts})


async def _pieces(*chunks: bytes, asked: list[int] | None = None) -> AsyncIterator[bytes]:
    for number, chunk in enumerate(chunks):
        if asked is not None:
            asked.append(number)
        yield chunk


async def _read(store: ArtifactStore, ref: str) -> bytes | None:
    async with _streaming(store).get_stream(SCOPE, ref) as stream:
        if stream is None:
            return None
        chunks = [chunk async for chunk in stream.chunks]
        check(all(chunks), "a piece is empty")
        check(stream.meta == await store.head(SCOPE, ref), "the ticket of a stream differs from head's")
        return b"".join(chunks)


async def members_are_detected(world: World) -> None:
    """What only some stores offer is either there whole or not there at all."""
    offered = [hasattr(world.store, name) for name in ("put_stream", "get_stream")]
    check(len(set(offered)) == 1, "one of put_stream and get_stream is there without the other")
    found = isinstance(world.store, StreamingArtifactStore)
    check(found == offered[0], "the members are there and not detected, or the other way round")


async def streamed_put(world: World) -> None:
    """A streamed put says its length first, and one that does not keep to it leaves nothing behind."""
    store = _streaming(world.store)
    content = bytes(range(256)) * 3000
    pieces = [content[:1], content[1:70_000], b"", content[70_000:]]
    meta = await store.put_stream(SCOPE, _stream(len(content), label="file"), _pieces(*pieces))
    check(is_artifact_ref(meta.ref) and meta.bytes == len(content), f"put_stream gave {meta}")
    check(meta.digest is None and meta.label == "file", f"put_stream gave {meta}")
    check(await world.store.head(SCOPE, meta.ref) == meta, "head differs from what put_stream gave")
    found = await world.store.get(SCOPE, meta.ref)
    check(found is not None and found.data == content, "get gives other bytes than were streamed")
    check(await _read(world.store, meta.ref) == content, "get_stream gives other bytes than were streamed")
    empty = await store.put_stream(SCOPE, _stream(0), _pieces())
    check(await _read(world.store, empty.ref) == b"", "an empty stream is not empty")
    before = await listed(world.store, SCOPE)
    for size, chunks in ((5, [b"four"]), (3, [b"four"]), (0, [b"x"]), (8, [b"four", b"fourr"]), (1, [])):
        await refused("ERR_INVALID_ARTIFACT", store.put_stream(SCOPE, _stream(size), _pieces(*chunks)))
    for length in (-1, None, "5", 2.0, True):
        asked: list[int] = []
        await refused(
            "ERR_INVALID_ARTIFACT", store.put_stream(SCOPE, _stream(length), _pieces(b"x", asked=asked))
        )
        check(not asked, "pieces of a malformed put were asked for")
    check(await listed(world.store, SCOPE) == before, "a stream that was refused left something behind")
    await _streams_that_fail(world)
    check(await listed(world.store, SCOPE) == before, "a stream that broke off left something behind")


async def _streams_that_fail(world: World) -> None:
    store = _streaming(world.store)

    async def breaks() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise KeyError("4711")

    try:
        await store.put_stream(SCOPE, _stream(200_000), breaks())
    except KeyError:
        pass
    else:
        check(condition=False, failure="the failure of who streams is lost")
    asked: list[int] = []
    await refused(
        "ERR_UNKNOWN_PARENT_REF",
        store.put_stream(SCOPE, _stream(1, parent_refs=[NOBODY]), _pieces(b"x", asked=asked)),
    )
    check(not asked, "pieces were asked for although a parent is not there")

    async def looks() -> AsyncIterator[bytes]:
        before = await listed(world.store, SCOPE)
        yield b"x" * 100_000
        check(await listed(world.store, SCOPE) == before, "a stream shows before it is whole")
        yield b"x"

    meta = await store.put_stream(SCOPE, _stream(100_001), looks())
    await world.store.delete(SCOPE, meta.ref)
    check(await _read(world.store, meta.ref) is None, "the payload outlives its ticket")


async def streamed_get(world: World) -> None:
    """Any artifact can be read in pieces; what is not there is `None`; a digest is not checked."""
    for value, wanted in (("naïve", "naïve".encode()), (b"\0\xff", b"\0\xff"), ({"a": [1]}, b'{"a":[1]}')):
        meta = await world.store.put(SCOPE, new(value, digest="sha-256"))
        check(await _read(world.store, meta.ref) == wanted, "a stream differs from the canonical payload")
    foreign = await world.store.put(OTHER, new())
    for ref in (NOBODY, foreign.ref, "no ref", "x" * 100_000):
        check(await _read(world.store, ref) is None, "get_stream opens what get does not")
    meta = await world.store.put(SCOPE, new("x" * 100_000, digest="sha-256"))
    await world.corrupt(world.store, SCOPE, meta.ref)
    await refused("ERR_ARTIFACT_INTEGRITY", world.store.get(SCOPE, meta.ref))
    check(len(await _read(world.store, meta.ref) or b"") == 100_000, "a stream checks a digest halfway")


async def streams_expire(world: World) -> None:
    """A streamed payload goes with its ticket."""
    now = await world.now()
    stream = _stream(3, expires_at=now + 10)
    meta = await _streaming(world.store).put_stream(SCOPE, stream, _pieces(b"abc"))
    check(await _read(world.store, meta.ref) == b"abc", "a stream is not there")
    await world.advance(20)
    check(await _read(world.store, meta.ref) is None, "a stream is there after its expiry")


async def streams_make_room(world: World) -> None:
    """The stated length is judged before the first piece; only a stream that is whole costs something."""
    bounded = await world.bounded(max_bytes=1000)
    store = _streaming(bounded)
    kept = [await bounded.put(SCOPE, new("x" * 400)) for _ in range(2)]
    asked: list[int] = []
    await refused("ERR_INVALID_ARTIFACT", store.put_stream(SCOPE, _stream(1001), _pieces(b"x", asked=asked)))
    check(not asked, "pieces of a stream that is too large were asked for")
    swept: list[Swept] = []
    await refused(
        "ERR_INVALID_ARTIFACT",
        store.put_stream(SCOPE, _stream(900), _pieces(b"x" * 899), on_swept=swept.append),
    )
    check(
        not swept and await listed(bounded, SCOPE) == kept[::-1], "a stream that broke off cost an artifact"
    )
    meta = await store.put_stream(SCOPE, _stream(500), _pieces(b"x" * 500), on_swept=swept.append)
    check(
        [(one.ref, one.reason) for one in swept] == [(kept[0].ref, "max-bytes")], "the wrong ones were swept"
    )
    check(await listed(bounded, SCOPE) == [meta, kept[1]], "the wrong artifacts are left")
