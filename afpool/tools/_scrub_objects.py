"""Whether an object of a kind that nobody here knows carries a secret, and what can be given on of it.

A response object of an SDK holds its request, and that holds the secret. What such an object refers to is
gone through, a bounded number of objects far; where the bound is met the object counts as carrying one.
"""

from __future__ import annotations

import gc
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 4_000
# What leads from an object to the rest of the program and not into what it holds. A `Secret` keeps its value
# in a function, so a credential that hangs somewhere is no finding.
_PASSED: Final = (
    type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType, TracebackType, MethodType,
    GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType, MappingProxyType, int, float, complex,
    bool, type(None),
)  # fmt: skip


def carries(value: object, finds: Callable[[Any], bool]) -> bool:
    """Whether an object, or anything it refers to, holds what `finds` finds in a `str` or `bytes`."""
    waiting: list[Any] = [value]
    seen: set[int] = set()
    kept: list[Any] = []  # what has been looked at stays alive, so that its id is not used again
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _PASSED):
            continue
        seen.add(id(one))
        kept.append(one)
        if len(seen) > _MOST:
            return True
        if isinstance(one, str):
            if finds(one):
                return True
        elif isinstance(one, bytes | bytearray | memoryview):
            if finds(bytes(one)):
                return True
        else:
            if isinstance(one, dict):
                waiting += one  # the collector does not tell of keys that are strings
            waiting += gc.get_referents(one)
    return False


def without(value: Any, scrub: Callable[[Any], Any], placeholder: str) -> Any:
    """Give an object that carries a secret without it: of its own kind if it can be, else as plain data."""
    kind = type(value)
    try:
        if attrs.has(kind):
            changes = {
                field.alias or field.name: scrub(getattr(value, field.name))
                for field in attrs.fields(kind)
                if field.init
            }
            return attrs.evolve(value, **changes)
        return scrub(msgspec.to_builtins(value, str_keys=True))
    except Exception:  # noqa: BLE001 -- a stranger's class; whatever it raises, nothing of it is given on
        return placeholder
