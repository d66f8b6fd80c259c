"""Payloads: what is written, what is read, in slices of any size; and that the loop goes on meanwhile."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from afpool import Seams
from afpool._base.canonical import ContentError
from afpool.artifacts import (
    ArtifactIntegrityError,
    InvalidArtifactError,
    UnreadableArtifactError,
    _slices,
    _slices_read,
)
from afpool.artifacts._payload import LARGE, Payload, Work, digest_of, open_payload

TEXT = st.text(st.characters(), max_size=20) | st.text('\\"/\n\t\0\u2028\ud83d\ude00é🙂', max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=50,
)


def plain(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


@settings(max_examples=200)
@given(VALUES, st.integers(1, 200))
@example([[1], [2, [3]], 12345], 3)
@example({"a": '\\\\\\"' * 40}, 7)
@example(["\n" + "\ud83d\ude00" * 2100], 60)  # more escapes in a row than one step takes
@example([1e5, -0.0, 10**40], 2)
def test_slices_are_written_and_read_as_a_whole_would_be(value: Any, slice_: int) -> None:
    written = _slices.write(value, slice_)
    assert written == plain(value)
    assert _slices_read.read(written, slice_) == json.loads(written)
    spaced = json.dumps(value, indent=2).encode()
    assert _slices_read.read(spaced, slice_) == json.loads(spaced)


@settings(max_examples=500)
@given(st.text('[]{}",:0123e.-\\utrfalsn é', max_size=50), st.integers(1, 20))
@example("[1,2", 1)
@example('{"a":1]', 2)
@example('"\\u12', 3)
@example("1e", 1)
@example("[1e5,1e", 2)
@example('{"a" 1}', 2)
@example("[1 2]", 2)
@example("{1:2}", 2)
def test_what_is_no_json_is_found_in_slices_as_well(text: str, slice_: int) -> None:
    def outcome(read: Any) -> str:
        try:
            return repr(read())
        except ValueError:
            return "no JSON"

    wanted = outcome(lambda: json.loads(text))
    assert outcome(lambda: _slices_read.read(text.encode(), slice_)) == wanted


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.integers(1, 7))
def test_text_in_slices(text: str, slice_: int) -> None:
    assert _slices.encode_text(text, slice_) == text.encode()
    assert _slices_read.decode_text(text.encode(), slice_) == text


def test_no_single_step_sees_more_than_about_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    # each step is one call that lets no other thread run
    seen: list[int] = []

    def counted(inner: Any) -> Any:
        def call(*args: Any) -> Any:
            seen.append(len(args[0]) if isinstance(args[0], str) else len(inner(args[0])))
            return inner(*args)

        return call

    monkeypatch.setattr(_slices, "_encode", counted(_slices._encode))
    monkeypatch.setattr(_slices_read, "_scan", counted(_slices_read._scan))
    values: list[Any] = [
        [{"n": n, "text": "x" * 40, "inner": [[n]] * 3} for n in range(5000)],
        {"a" * 200_000: "b\n" * 300_000, "deep": {"er": ["y" * 150_000] * 5}},
        list(range(300_000)),
        {str(n): None for n in range(100_000)},
    ]
    for value in values:
        assert _slices_read.read(_slices.write(value)) == value
    assert max(seen) <= 2.5 * _slices.SLICE
    assert len(seen) > 100


@pytest.mark.parametrize("slice_", [4, LARGE])
def test_nothing_that_is_no_json_is_written(slice_: int) -> None:
    cyclic: list[Any] = [0] * 50
    cyclic.append(cyclic)
    big = [0] * 50
    for value in (
        cyclic,
        {"a": [{1: 2}]},
        [*big, {1, 2}],
        [*big, float("nan")],
        {"a": [*big, b""]},
        {None: 0},
    ):
        with pytest.raises(ContentError) as caught:
            _slices.weigh(value, 10**9)
        assert "0, 0" not in str(caught.value)
        with pytest.raises(ContentError):
            _slices.write(value, slice_)


def test_weighing_ends_where_it_is_too_much() -> None:
    class Endless(dict[str, int]):
        def values(self) -> Any:
            while True:
                yield 1

    assert _slices.weigh(Endless(a=1), 1000) > 1000
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ContentError, match="nested deeper"):
        _slices.weigh(deep, 10**6)


@pytest.fixture
def work() -> Work:
    return Work(Seams())


LARGE_VALUES = [
    "é" * 2 * LARGE, b"\0" * (2 * LARGE), [{"n": n} for n in range(LARGE // 8)], {"text": "x" * 2 * LARGE}
]  # fmt: skip


@pytest.mark.parametrize("value", LARGE_VALUES, ids=["text", "binary", "list", "object"])
async def test_what_is_large_is_worked_on_in_a_thread_and_what_is_small_on_the_spot(value: Any) -> None:
    used: list[trio.CapacityLimiter] = []

    async def in_thread(fn: Any, limiter: trio.CapacityLimiter) -> Any:
        used.append(limiter)
        return await trio.to_thread.run_sync(fn, limiter=limiter)

    work = Work(Seams(in_thread=in_thread))
    payload = await work.encode(value, digest=True)
    assert await work.decode("art", len(payload.data), payload) == value
    assert used == [work._payload_threads] * 2
    small = await work.encode({"a": 1}, digest=True)
    assert await work.decode("art", len(small.data), small) == {"a": 1}
    assert len(used) == 2


async def test_the_loop_goes_on_while_something_large_is_encoded(work: Work) -> None:
    # another thread holds the encoding up until the loop has had its turn
    turn = threading.Event()

    class Waits(dict[str, int]):
        def __iter__(self) -> Any:
            assert turn.wait(20)
            return super().__iter__()

    async def other() -> None:
        turn.set()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_on, work, [*range(LARGE), Waits(a=1)])
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(other)


async def work_on(work: Work, value: Any) -> None:
    payload = await work.encode(value, digest=False)
    assert payload.data.endswith(b',{"a":1}]')


async def test_data_that_changes_while_it_is_encoded_is_refused(work: Work) -> None:
    data: dict[str, Any] = {}

    class Takes(dict[str, int]):
        """Somebody takes a key away when the encoder looks at this one."""

        def __iter__(self) -> Any:
            data.pop("secret-4711", None)
            return super().__iter__()

    data |= {"a": "x" * LARGE, "b": Takes(c=1), "secret-4711": "y" * LARGE}
    with pytest.raises(InvalidArtifactError, match="changed by somebody else") as caught:
        await work.encode({"outer": data}, digest=False)
    assert "4711" not in f"{caught.value} {caught.value.__context__!r}"


def test_what_is_no_payload_is_unreadable_and_not_missing() -> None:
    ref = "art_" + "a" * 22
    for size, payload in (
        (3, Payload("text", b"ab")),
        (2, Payload("text", b"\xff\xff")),
        (3, Payload("json", b"{a}")),
        (2, Payload("json", b"[[")),
        (200_000, Payload("json", b"[" * 200_000)),
        (90_000, Payload("json", b"[" * 90_000)),
    ):
        with pytest.raises(UnreadableArtifactError, match=ref):
            open_payload(ref, size, payload)
    with pytest.raises(ArtifactIntegrityError) as caught:
        open_payload(ref, 2, Payload("text", b"ab", digest_of(b"ba")))
    assert caught.value.actual == digest_of(b"ab")
