"""How much work a stranger's schema can make of one value, before it is let near the loop.

A validator runs to its end once it has begun. References let a schema of a few lines be walked through more
often than there is time: `d0` is any of (`d1`, `d1`), `d1` any of (`d2`, `d2`), and so on; or a tree whose
every node tries two alternatives of the same kind. So of a schema with references it is counted beforehand
how often it would be applied to one node of a value, by depth:

* A *state* is what is applied to one node: schema places, each with how often.
* What a place applies to the same node (`allOf`, `$ref`, ...) is added up over all ways; what it applies to
  members and items makes the states one level down, one for each name that is told apart.
* Where states come back, deeper values cost no more per node. Where the count passes a bound, values that
  deep are refused, unseen.
* What a place applies within itself, and what it applies further down, nests on the C stack. So where a
  schema leads back into itself, values are refused that would nest it deeper than a small stack holds.

A schema without references and without `unevaluated...` applies each of its places to a node at most once. So
it is walked only where it has many that could meet at one (`breadth_of`): ten thousand alternatives for each
item of a list of ten thousand are as many steps as there are pairs. There a place may be applied to a node as
often as there are places; what a value really costs is then added up for its own nodes (`Cost.work`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from .schema_resources import Resources

MAX_PER_NODE: Final = 10_000
MAX_WORK: Final = 5_000_000
"""Applications of a place to a node, for one value; about 10 ns each."""
MAX_LEVELS: Final = 512
MAX_NESTED: Final = 6_000
"""Steps of a validator within one another; 100 to 600 bytes of stack each, of 8 MB at most."""
_MAX_LEVELS: Final = 256
_LEFT_OVER: Final = 3
_MULTIPLIERS: Final = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"}
)
_PARALLEL: Final = (
    "allOf", "anyOf", "oneOf", "patternProperties", "dependentSchemas", "dependencies", "dependentRequired",
)  # fmt: skip
_SAMENESS: Final = 20  # choices that a fault repeats, in place of one more fault

_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("not", "if", "then", "else")
_IN_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_BELOW: Final = (
    "items", "additionalItems", "contains", "additionalProperties", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_ANY: Final = ""  # the members and items that no name tells apart

State: TypeAlias = frozenset[tuple[int, int]]


class Unresolved(ValueError):
    """A reference to something that is not in the schema, or on one and the same node back to itself."""


@attrs.frozen
class Cost:
    """What validating costs at most.

    Attributes:
        per_node: Applications to one node of a value.
        max_depth: Values nested deeper may cost more than that, or more stack than there is, and are refused;
            `None` where the schema itself ends before, and -1 where even a value without members costs more
            than `MAX_PER_NODE`.
    """

    per_node: int
    max_depth: int | None
    _walk: _Walk | None = attrs.field(default=None, eq=False, repr=False)

    def work(self, value: Any) -> int:
        """Add up the applications to all nodes of one value; stops where they exceed `MAX_WORK`."""
        return MAX_WORK + 1 if self._walk is None else self._walk.work(value)


def breadth_of(schema: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Look a schema over.

    Returns:
        Whether references (or `unevaluated...`) may apply its places more than once; how many places it has
        that may meet at one node, over all of it; the longest list of names or choices that one fault may be
        told of, each name of a `required` counted as a fault.
    """
    multiplies, parallel, named = False, 0, 0
    stack: list[Any] = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            multiplies = multiplies or not value.keys().isdisjoint(_MULTIPLIERS)
            for key in _PARALLEL:
                parts = value.get(key)
                if isinstance(parts, list | Mapping):
                    parallel += len(parts)
            required, choices = value.get("required"), value.get("enum")
            if isinstance(required, list):
                named = max(named, len(required))
            if isinstance(choices, list):
                named = max(named, len(choices) // _SAMENESS)
                parallel += _comparisons(choices)
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return multiplies, parallel, named


def _comparisons(choices: Any) -> int:
    """Count what a value is compared with, one by one, where choices are no plain values."""
    if not isinstance(choices, list) or not any(isinstance(one, dict | list) for one in choices):
        return 0
    return nodes_and_depth(choices, MAX_LEVELS)[0]


def cost_of(schema: Mapping[str, Any], most: float = MAX_PER_NODE) -> Cost:
    """Count. Linear in the schema, in nearly all cases.

    Args:
        schema: The whole document.
        most: Applications to one node beyond which values are refused, unseen; no bound for a schema without
            references, which cannot have more than it has places.

    Raises:
        Unresolved: A reference leads nowhere in the schema, or back to itself without a step down.
        RecursionError: It applies places to one node within one another deeper than Python recurses.
    """
    walk = _Walk(schema)
    states: set[State] = {frozenset({(walk.number(schema), 1)})}
    seen = set(states)
    highest = 1
    for depth in range(_MAX_LEVELS):
        costs = [walk.cost(state) for state in states]
        worst = max(costs)
        if worst > most:
            return Cost(highest, min(depth - 1, walk.deepest()), walk)
        highest = max(highest, worst)
        below = {lower for state in states for lower in walk.below(state)} - seen
        if not below:
            return Cost(highest, walk.deepest() if walk.comes_back() else None, walk)
        seen |= below
        if len(seen) > 4 * len(walk.places) + 1_000:
            return Cost(highest, min(depth, walk.deepest()), walk)
        states = below
    return Cost(highest, min(_MAX_LEVELS, walk.deepest()), walk)


def nodes_and_depth(value: Any, deepest: int) -> tuple[int, int]:
    """Count the nodes of a JSON value and its levels, down to `deepest` levels."""
    nodes, depth, level = 1, 0, [value]
    while depth <= deepest:
        below: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                below.extend(one.values())
                nodes += len(one)  # the names are looked at as well
            elif isinstance(one, list | tuple):
                below.extend(one)
        if not below:
            break
        nodes += len(below)
        depth += 1
        level = below
    return nodes, depth


class _Walk:
    """The places of one schema, and what each applies to its own node and to those below."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.places: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._resources: Resources | None = None
        self._closures: dict[int, tuple[int, dict[str, Counter[int]]]] = {}
        self._heights: dict[int, int] = {}
        self._open: set[int] = set()
        self._split: dict[State, tuple[int, dict[str, State], State]] = {}

    def work(self, value: Any) -> int:
        """Add up the applications to the nodes of a value, down to `MAX_LEVELS`, as far as `MAX_WORK`."""
        total = 0
        level: list[tuple[State, Any]] = [(frozenset({(self.number(self.root), 1)}), value)]
        for _ in range(MAX_LEVELS):
            below: list[tuple[State, Any]] = []
            for state, node in level:
                cost, named, anywhere = self._members_of(state)
                total += cost
                if total > MAX_WORK:
                    return total
                if isinstance(node, Mapping):
                    total += len(node) * len(anywhere)  # the names are looked at as well
                    below.extend((named.get(name, anywhere), member) for name, member in node.items())
                elif isinstance(node, list | tuple):
                    items = enumerate(node)
                    below.extend((named.get(f"{_ANY}{at}", anywhere), member) for at, member in items)
            if not below:
                break
            level = below
        return total

    def _members_of(self, state: State) -> tuple[int, dict[str, State], State]:
        """Give what a state costs, and the states of members by name, and of all others."""
        known = self._split.get(state)
        if known is None:
            joined = self._joined(state)
            anywhere = joined.pop(_ANY, Counter())
            named = {name: frozenset((those + anywhere).items()) for name, those in joined.items()}
            known = self._split[state] = (self.cost(state), named, frozenset(anywhere.items()))
        return known

    def number(self, place: Any) -> int:
        known = self._numbers.get(id(place))
        if known is None:
            known = self._numbers[id(place)] = len(self.places)
            self.places.append(place)
        return known

    def cost(self, state: State) -> int:
        return sum(times * self._closure(number)[0] for number, times in state)

    def below(self, state: State) -> Iterator[State]:
        """Give the states of the nodes one level down."""
        joined = self._joined(state)
        anywhere = joined.pop(_ANY, Counter())
        if anywhere:
            yield frozenset(anywhere.items())
        for those in joined.values():
            yield frozenset((those + anywhere).items())

    def _joined(self, state: State) -> dict[str, Counter[int]]:
        """Give what a state applies one level down, by the name of the member."""
        joined: dict[str, Counter[int]] = {}
        for number, times in state:
            for name, those in self._closure(number)[1].items():
                into = joined.setdefault(name, Counter())
                for place, often in those.items():
                    into[place] += often * times
        return joined

    def deepest(self) -> int:
        """How many levels a value may have before what is applied to it nests too deeply."""
        return min(MAX_LEVELS, MAX_NESTED // (2 + max(self._heights.values(), default=0)))

    def comes_back(self) -> bool:
        """Whether a place that was walked applies itself further down."""
        above: dict[int, list[int]] = {}
        left = dict.fromkeys(self._closures, 0)
        for number, (_, below) in self._closures.items():
            for one in {one for those in below.values() for one in those if one in left}:
                left[number] += 1
                above.setdefault(one, []).append(number)
        ends = [number for number, lower in left.items() if not lower]
        for end in ends:  # what leads only to ends is no circle
            for number in above.get(end, ()):
                left[number] -= 1
                if not left[number]:
                    ends.append(number)
        return len(ends) < len(left)

    def _closure(self, number: int) -> tuple[int, dict[str, Counter[int]]]:
        """How often places are applied to the node of this one, and what they apply one level down."""
        known = self._closures.get(number)
        if known is not None:
            return known
        place = self.places[number]
        if not isinstance(place, Mapping):
            return (1, {})
        if number in self._open:
            raise Unresolved
        self._open.add(number)
        count, height = 1 + _beside(place), 0
        below: dict[str, Counter[int]] = {}
        for part in self._in_place(place):
            inner = self.number(part)
            more, lower = self._closure(inner)
            count += more
            height = max(height, 1 + self._heights.get(inner, 0))
            for name, those in lower.items():
                into = below.setdefault(name, Counter())
                for one, often in those.items():
                    into[one] += often
        for name, part in _members(place):
            below.setdefault(name, Counter())[self.number(part)] += 1
        if "unevaluatedProperties" in place or "unevaluatedItems" in place:
            # what is left over is found by applying everything beside it again, more than twice in all
            count *= _LEFT_OVER
            for name, those in below.items():
                below[name] = Counter({one: _LEFT_OVER * often for one, often in those.items()})
        self._open.discard(number)
        self._closures[number] = (count, below)
        self._heights[number] = height
        return (count, below)

    def _in_place(self, place: Mapping[str, Any]) -> Iterator[Any]:
        for key in _IN_PLACE_LISTS:
            parts = place.get(key)
            if isinstance(parts, list):
                yield from parts
        for key in _IN_PLACE:
            if key in place:
                yield place[key]
        for key in _IN_PLACE_MAPS:
            parts = place.get(key)
            if isinstance(parts, Mapping):
                yield from parts.values()
        for key in _REFERENCES:
            if key in place:
                yield from self._meant(place, key)

    def _meant(self, place: Mapping[str, Any], word: str) -> list[Any]:
        """Give what a reference leads to; where that is not certain, all that it may lead to."""
        resources = self._resources
        if resources is None:
            resources = self._resources = Resources(self.root)
        found = resources.meant(place, word)
        if not found:
            raise Unresolved
        return found


def _beside(place: Mapping[str, Any]) -> int:
    """Count what a place looks at in its node that is no place itself."""
    dependent = place.get("dependentRequired")
    names = len(dependent) if isinstance(dependent, Mapping) else 0
    return names + _comparisons(place.get("enum"))


def _members(place: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give what is applied one level down: by the name of the member, or to any."""
    properties = place.get("properties")
    if isinstance(properties, Mapping):
        yield from properties.items()
    patterns = place.get("patternProperties")
    if isinstance(patterns, Mapping):
        yield from ((_ANY, part) for part in patterns.values())
    for key in _BELOW:
        part = place.get(key)
        if isinstance(part, Mapping):
            yield _ANY, part
        elif isinstance(part, list):
            yield from ((f"{_ANY}{at}", one) for at, one in enumerate(part))
    prefix = place.get("prefixItems")
    if isinstance(prefix, list):
        yield from ((f"{_ANY}{at}", one) for at, one in enumerate(prefix))
