"""Exceptions that are handed over as values: without frames, and with a note of where."""

from __future__ import annotations

import dataclasses

import pytest

from afpool import CredentialFailed, ToolFailed
from afpool._base.untraced import by_itself, in_place_of, says_where, unframed, untraced


def raised(error: Exception, *, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause  # noqa: TRY301 -- it is about what raising leaves
    except Exception as caught:
        return caught


def a_chain() -> tuple[ToolFailed, Exception, Exception, Exception]:
    inner = raised(LookupError("inner"))
    member = raised(OSError("member"))
    group = raised(ExceptionGroup("group", [member]), cause=inner)
    outer = raised(ToolFailed("outer"), cause=group)
    assert isinstance(outer, ToolFailed)
    return outer, group, inner, member


def test_frames_of_ours_go_and_those_of_others_stay() -> None:
    outer, *others = a_chain()
    untraced(outer, foreign=False)
    assert outer.__traceback__ is None
    assert all(other.__traceback__ is not None for other in others)
    assert not any(map(says_where, (outer, *others)))


def test_those_of_others_go_too_and_a_note_says_where() -> None:
    outer, *others = a_chain()
    untraced(outer, foreign=True)
    assert outer.__traceback__ is None
    for other in others:
        assert other.__traceback__ is None
        (note,) = other.__notes__
        assert note.startswith("raised at test_untraced.py:")
        assert note.endswith(" in raised")
    untraced(outer, foreign=True)
    assert all(len(other.__notes__) == 1 for other in others)


def test_what_an_app_raises_keeps_its_words_and_loses_its_frames() -> None:
    outer, group, inner, member = a_chain()
    unframed(group)
    assert [one.__traceback__ for one in (group, inner, member)] == [None] * 3
    assert outer.__traceback__ is not None
    assert str(group.__cause__) == "inner"


def test_a_class_that_lets_nobody_set_anything_is_taken_off_its_frames_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        word: str

    other = raised(Frozen("no"))
    outer = raised(ToolFailed("outer"), cause=other)
    assert isinstance(outer, ToolFailed)
    untraced(outer, foreign=True)
    assert other.__traceback__ is None
    (note,) = other.__notes__
    assert note.startswith("raised at test_untraced.py:")


def test_notes_that_are_none_say_nothing() -> None:
    class Odd(Exception):
        __notes__ = 3  # type: ignore[assignment]

    class Worse(Exception):
        @property
        def __notes__(self) -> object:  # type: ignore[override]
            raise TypeError("no")

    for error in (Odd("x"), Worse("x")):
        assert not says_where(error)
    odd = Odd("x")
    odd.__notes__ = ["first", 3]  # type: ignore[list-item]
    unframed(raised(odd))
    first, note = odd.__notes__
    assert first == "first"
    assert note.startswith("raised at")


def test_a_circle_has_an_end() -> None:
    one, two = ToolFailed("one"), raised(ValueError("two"))
    one.__cause__, two.__context__ = two, one
    untraced(one, foreign=True)
    assert two.__traceback__ is None


def test_what_a_provider_raises_is_told_by_class_and_place() -> None:
    error = raised(RuntimeError("the token is t0p"), cause=ValueError("t0p"))
    told = in_place_of(error, CredentialFailed("it could not be had"))
    assert told.__cause__ is told.__context__ is told.__traceback__ is None
    assert told.__notes__ == [
        f"RuntimeError raised at test_untraced.py:{raised.__code__.co_firstlineno + 2} in raised"
    ]
    assert "t0p" not in f"{told!r} {told} {told.__notes__}"


def test_an_error_of_our_kinds_keeps_its_words_alone() -> None:
    error = raised(CredentialFailed("expired"), cause=ValueError("t0p"))
    assert isinstance(error, CredentialFailed)
    with pytest.raises(CredentialFailed) as caught:
        raise by_itself(error) from None
    assert caught.value is error
    assert error.__cause__ is error.__context__ is None
    assert error.message == "expired"
