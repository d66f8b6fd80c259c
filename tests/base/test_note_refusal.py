"""What ended a call is filed by its code and its verdict, never by its text."""

from __future__ import annotations

import inspect

import pytest

from afpool import AfpoolError, Use, note_refusal
from afpool._base import errors

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, AfpoolError)]
CASES = [(cls, delivery) for cls in CLASSES for delivery in cls.deliveries]


def use() -> Use:
    return Use("call-1", "files", "echo", 0.0)


@pytest.mark.parametrize(
    ("cls", "delivery"), CASES, ids=[f"{cls.code}-{delivery}" for cls, delivery in CASES]
)
def test_every_error_files_its_code_and_its_verdict(
    cls: type[AfpoolError], delivery: errors.Delivery
) -> None:
    filed = use()
    note_refusal(filed, cls("the text", delivery=delivery))
    ran_nothing = delivery in {"not-sent", "refused"}
    assert (filed.code, filed.delivery) == (cls.code, delivery)
    assert filed.outcome == ("refused" if ran_nothing else "failed")
    assert "the text" not in repr(filed)


def test_anything_else_is_a_failure_of_its_kind() -> None:
    filed = use()
    filed.delivery = "in-doubt"
    note_refusal(filed, ValueError("hunter2"))
    assert (filed.outcome, filed.code, filed.delivery) == ("failed", "ValueError", "in-doubt")
    assert "hunter2" not in repr(filed)
