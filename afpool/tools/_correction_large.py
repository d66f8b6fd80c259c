"""What is wrong with arguments that a validator cannot be asked about: too large, too deep, too many ways.

A validator that is asked for faults finds all of them, copies into each the value that it is about, and does
so for every alternative that it tried: a schema of some kilobytes and arguments of some kilobytes make
gigabytes. Here the plain part of a schema is walked along the value, place by place, and the walk stops when
enough is said:

* What a place says of its own node is asked of a validator of that alone; missing and unknown members are
  looked up here.
* It goes down `properties`, `items`, `additionalProperties`, `allOf` and references within the schema. Of
  alternatives it is said that none is met; why is asked of a validator of them alone, as long as all that
  it tells of them takes little. What the walk gives is wrong each time, but it may find nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, final

import attrs

from .._base.compiled import Compiled
from .._base.schema_cost import MAX_LEVELS
from .._base.schema_resources import Resources

EAGER_BYTES: Final = 1 << 21
"""What the faults that a validator tells at once may take, of a value or of all its places; some 50 ms."""
_VISITS: Final = 20_000
_READ: Final = 255
_OF_A_NODE: Final = frozenset(
    {
        "type", "enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "maximum",
        "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems",
        "minProperties", "maxProperties",
    }
)  # fmt: skip
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_DEFINITIONS: Final = ("$schema", "$defs", "definitions")
_FAULT: Final = 1_500
_SCALAR: Final = 8


_Step: TypeAlias = tuple[list[str | int], Any, Any]


@attrs.frozen
class Found:
    """One thing that is wrong.

    Attributes:
        path: To the node that it is wrong with.
        word: The keyword.
        what: Of `required` the missing name, of `additionalProperties` the unknown ones, of alternatives that
            nobody was asked about how many there are; of everything else the validator's fault, whose path
            starts at the node.
        place: The part of the schema that says so.
    """

    path: list[str | int]
    word: str
    what: Any
    place: Mapping[str, Any]


def memory_of_faults(value: Any, breadth: int, most: int) -> int:
    """Say how many bytes a validator may need at most to tell all faults of a value; counts up to `most`.

    Args:
        value: JSON.
        breadth: Faults that one node may have.
        most: Where to stop.
    """
    total, depth, level = 0, 1, [value]
    while level and total <= most:
        below: list[Any] = []
        own = 0
        for one in level:
            if isinstance(one, str):
                own += len(one)
            elif isinstance(one, Mapping):
                own += sum(len(key) for key in one if isinstance(key, str))
                below.extend(one.values())
            elif isinstance(one, list | tuple):
                below.extend(one)
        total += (breadth + _SCALAR) * (_FAULT * len(level) + depth * (own + _SCALAR * len(level)))
        depth += 1
        level = below
    return total


def faults_of_large(args: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Found]:
    """Give what is found wrong, the nearest to the top first; as many steps as `_VISITS`."""
    return _Walk(schema).faults(args)


def deeper_than_is_read(value: Any) -> bool:
    """Whether a value is nested deeper than the validator reads."""
    level = [value]
    for _ in range(_READ):
        level = [
            inner
            for one in level
            if isinstance(one, Mapping | list | tuple)
            for inner in (one.values() if isinstance(one, Mapping) else one)
        ]
        if not level:
            return False
    return True


@final
class _Walk:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema
        self._resources: Resources | None = None
        self._left = EAGER_BYTES
        self._ready: dict[tuple[int, str], Compiled | None] = {}

    def faults(self, args: Mapping[str, Any]) -> Iterator[Found]:
        """Give what is found: each node with its members first, then one item of each list, and so on."""
        stack: list[_Step] = [([], args, self._root)]
        lists: deque[Iterator[_Step]] = deque()
        for _ in range(_VISITS):
            if not stack:
                step = self._next_item(lists)
                if step is None:
                    return
                stack.append(step)
            path, node, place = stack.pop()
            if len(path) > MAX_LEVELS or not isinstance(place, Mapping):
                continue
            yield from self._of_node(path, node, place)
            stack.extend(reversed([*self._beside(path, node, place), *self._members(path, node, place)]))
            if isinstance(node, list | tuple):
                lists.append(self._items(path, node, place))

    @staticmethod
    def _next_item(lists: deque[Iterator[_Step]]) -> _Step | None:
        while lists:
            items = lists.popleft()
            step = next(items, None)
            if step is not None:
                lists.append(items)
                return step
        return None

    def _of_node(self, path: list[str | int], node: Any, place: Mapping[str, Any]) -> Iterator[Found]:
        compiled = self._compiled(place, "own")
        if compiled is not None and not compiled.allows(node):
            try:
                for fault in compiled.validator.iter_errors(node):
                    yield Found(path, str(fault.kind.name), fault, place)
            except ValueError:
                pass  # nested deeper than it reads; that is said of all of them once
        for word in _ALTERNATIVES:
            compiled = self._compiled(place, word)
            if compiled is not None and compiled.too_costly(node) is None and not compiled.allows(node):
                yield Found(path, word, self._why(compiled, node) or len(place[word]), place)
        if not isinstance(node, Mapping):
            return
        required = place.get("required")
        if isinstance(required, list):
            for name in required:
                if isinstance(name, str) and name not in node:
                    yield Found([*path, name], "required", name, place)
        properties = place.get("properties")
        if place.get("additionalProperties") is False and "patternProperties" not in place:
            known = properties if isinstance(properties, Mapping) else {}
            unknown = [name for name in node if name not in known]
            if unknown:
                yield Found(path, "additionalProperties", unknown, place)

    def _why(self, compiled: Compiled, node: Any) -> Any | None:
        """Give the validator's fault of one node, while what it tells is little."""
        took = memory_of_faults(node, compiled.breadth, self._left)
        if took > self._left:
            return None
        self._left -= took
        try:
            return next(iter(compiled.validator.iter_errors(node)), None)
        except ValueError:
            return None  # nested deeper than it reads

    def _compiled(self, place: Mapping[str, Any], part: str) -> Compiled | None:
        """Give what a place says of its own node, or one of its alternatives, made ready by itself."""
        key = (id(place), part)
        if key not in self._ready:
            words = _OF_A_NODE if part == "own" else {part}
            own = {key: value for key, value in place.items() if key in words}
            if own:
                names = _DEFINITIONS[:1] if part == "own" else _DEFINITIONS
                own = {**{name: self._root[name] for name in names if name in self._root}, **own}
            compiled = Compiled(own) if own else None
            self._ready[key] = None if compiled is None or compiled.validator is None else compiled
        return self._ready[key]

    def _beside(self, path: list[str | int], node: Any, place: Mapping[str, Any]) -> Iterator[_Step]:
        """Give what else holds for the same node."""
        parts = place.get("allOf")
        if isinstance(parts, list):
            yield from ((path, node, part) for part in parts)
        if "$ref" in place:
            if self._resources is None:
                self._resources = Resources(self._root)
            meant = self._resources.meant(place, "$ref")
            if len(meant) == 1:  # of several nobody knows which
                yield path, node, meant[0]

    @staticmethod
    def _members(path: list[str | int], node: Any, place: Mapping[str, Any]) -> Iterator[_Step]:
        if not isinstance(node, Mapping):
            return
        properties = place.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        others = None if "patternProperties" in place else place.get("additionalProperties")
        for name, member in node.items():
            part = known.get(name, others)
            if isinstance(part, Mapping):
                yield [*path, name], member, part

    @staticmethod
    def _items(path: list[str | int], node: Any, place: Mapping[str, Any]) -> Iterator[_Step]:
        if not isinstance(place.get("items"), Mapping):
            return
        after = place.get("prefixItems")
        for at in range(len(after) if isinstance(after, list) else 0, len(node)):
            yield [*path, at], node[at], place["items"]
