"""Objects that must not be looked into, and a provider that answers with whatever it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import trio

from tests.runtime.bad_input_kit import one_of_each
from tests.runtime.runtime_kit import ALICE, Here
from tests.tools.door_kit import SECRET

if TYPE_CHECKING:
    from afpool import ToolResult


class Unreadable(Mapping[str, Any]):
    """A mapping that raises whatever is asked of it."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(SECRET)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError(SECRET)

    def __len__(self) -> int:
        return 1


class Unspoken(Exception):
    """Raises itself whenever somebody looks at it."""

    def __str__(self) -> str:
        raise self

    __repr__ = __str__


def ring() -> list[Any]:
    """A list within itself."""
    value: list[Any] = [SECRET]
    value.append(value)
    return value


def deep() -> Any:
    """A list in a list, a hundred thousand times."""
    value: Any = SECRET
    for _ in range(100_000):
        value = [value]
    return value


def numbers() -> Iterator[int]:
    yield 1


class Provider:
    """Answers with whatever it is given; raises what is an exception, calls what is a function."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def get(self, request: Any) -> Any:
        await trio.lowlevel.checkpoint()
        answer = self.answer() if callable(self.answer) else self.answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def called(here: Here, name: str = "work", args: Any = None) -> ToolResult:
    """Call on every way; gives the last result, which must be like the others."""
    codes = set()
    toolset = await here.runtime.toolset(ALICE)
    for call in (
        lambda: here.runtime.dispatch(ALICE, name, args),
        lambda: toolset.call(name, args),
        lambda: here.runtime.run(ALICE).call(name, args),
    ):
        here.events.clear()
        with trio.fail_after(10_000):
            result = await call()
        one_of_each(here.events)
        codes.add((result.code, result.delivery, result.text))
        json.loads(result.raw)
    assert len(codes) == 1
    return result
