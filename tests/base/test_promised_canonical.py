"""What one spelling means beside equality: shared parts, no hooks of a value's own, one digest."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from afpool._base.canonical import ContentError, canonical_json, parse_strict
from afpool._base.definition import build_definition


def test_what_stands_in_two_places_is_written_twice() -> None:
    shared: dict[str, Any] = {"b": [1], "a": {}}
    value = {"y": shared, "x": [shared, shared["b"]]}
    written = b'{"x":[{"a":{},"b":[1]},[1]],"y":{"a":{},"b":[1]}}'
    assert canonical_json(value) == written
    assert canonical_json(parse_strict(written)) == written


def test_a_value_does_not_say_how_it_is_written() -> None:
    class Own(dict[str, Any]):
        def toJSON(self) -> str:
            return "own"

        def __str__(self) -> str:
            return "own"

    class Number(int):
        def __str__(self) -> str:
            return "7"

        __repr__ = __str__

    assert canonical_json(Own(a=1)) == b'{"a":1}'
    assert canonical_json({"a": Number(3)}) == b'{"a":3}'


def test_a_definition_is_known_by_the_digest_of_its_one_spelling() -> None:
    one = b'{"name":"t","inputSchema":{"b":1.0,"a":"\\u00e9"}}'
    other = '{"inputSchema": {"a": "é", "b": 1}, "name": "t"}'.encode()
    digest = build_definition(one).digest
    assert digest == build_definition(other).digest
    canonical = canonical_json(parse_strict(one))
    assert canonical == '{"inputSchema":{"a":"é","b":1},"name":"t"}'.encode()
    assert digest == hashlib.sha256(canonical).hexdigest()
    assert digest != build_definition(one.replace(b"1.0", b"2")).digest


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", print, 1j, {"a": object()}])
def test_what_is_no_json_is_refused_and_never_left_out(value: Any) -> None:
    for around in (value, [value], {"k": value}):
        with pytest.raises(ContentError):
            canonical_json(around)
