"""Frozen attrs objects as plain JSON and back.

`to_plain` leaves out what is as by default, so that a story's file holds what is special about it. What it
writes `from_plain` reads to an equal object; anything else (an unknown member, a wrong type) is refused, so
that an old file fails loudly instead of meaning something else.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Tuples become lists, attrs objects become objects without their default members."""
    if attrs.has(type(value)):
        return {
            field.name: to_plain(getattr(value, field.name))
            for field in attrs.fields(type(value))
            if getattr(value, field.name) != default_of(field)
        }
    if isinstance(value, Mapping):
        return {str(name): to_plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(member) for member in value]
    return value


def from_plain(kind: type[T], plain: Mapping[str, Any]) -> T:
    """Make an attrs object of `kind`.

    Raises:
        ValueError: A member is unknown or missing, or is of another type than it should be.
    """
    hints = _hints(kind)
    unknown = sorted(set(plain) - set(hints))
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}")
    members = {name: _read(hints[name], value, f"{kind.__name__}.{name}") for name, value in plain.items()}
    try:
        return kind(**members)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None


def default_of(field: attrs.Attribute[Any]) -> Any:
    """What a field is by default; `attrs.NOTHING` where it has to be given."""
    if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]
        return field.default.factory()
    return field.default


@functools.cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in attrs.fields(kind)}


def _read(hint: Any, value: Any, where: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is typing.Literal:
        if value in inner:
            return value
        raise ValueError(f"{where} is one of {inner}, not {value!r}")
    if origin in {types.UnionType, typing.Union}:
        return _read_union(inner, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(inner[0], member, where) for member in value)
    if origin is Mapping and isinstance(value, dict):
        return {name: _read(inner[1], member, where) for name, member in value.items()}
    if attrs.has(hint) and isinstance(value, dict):
        return from_plain(hint, value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    raise ValueError(f"{where} is no {hint}: {value!r}")


def _read_union(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    failure = ValueError(f"{where} cannot be {value!r}")
    for choice in choices:
        if choice is not type(None):
            try:
                return _read(choice, value, where)
            except ValueError as error:
                failure = error
    raise failure
