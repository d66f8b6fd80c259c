"""What may be taken as so about the values of the arguments that the host fills, so that a schema can be cut.

The cut schema must accept exactly what the whole one accepts with *some* values filled in. Demands on a value
(atoms) stand in places, and what matters of a place is how the whole depends on it:

* `must`: it has to be met for anything to be accepted. It is taken as met.
* `for`: a branch that it opens is only ever one more that may be taken; `against`: one that it closes,
  under a `not`. One value that meets all of the first kind and none of the second is as good as any, so
  such a value has to exist: it is looked for, and where none is found the schema is not cut.
* `both`: what it decides cannot be said without the value (`if`, `oneOf`). Unless the other demands settle
  it, the schema is not cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from ._schema_branches import Cutter
from ._schema_evaluated import vacuous
from ._schema_value import Atom, CannotCut, Values, finite, lengths_of, meets, witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._schema_demands import FieldAtom
    from ._schema_document import Document, Path

Way: TypeAlias = Literal["must", "for", "against", "both"]

_MOST_ATOMS: Final = 16


def decide(document: Document, fields: frozenset[str], values: Values) -> dict[FieldAtom, bool]:
    """Give which demands are taken as met.

    Raises:
        CannotCut: It depends on the values, or nothing at all would be accepted.
    """
    ways = _Ways(document, fields, values)
    if ways.cutter.node(()) is False:
        raise CannotCut("with the arguments filled in by a string, it accepts no call at all")
    ways.walk((), "must")
    found = ways.found
    if len(found) > _MOST_ATOMS:
        raise CannotCut(f"it demands more than {_MOST_ATOMS} different things of the arguments' values")
    truth = {atom: True for atom, how in found.items() if "must" in how}
    for atom in [atom for atom in found if atom not in truth]:
        if Cutter(document, fields, values, {**truth, atom: False}).node(()) is False:
            truth[atom] = True
    for name in fields:
        must = [atom for field, atom in truth if field == name]
        rest = {atom: how for (field, atom), how in found.items() if field == name and atom not in must}
        truth.update(((name, atom), met) for atom, met in _of_one(must, rest, document.draft).items())
    return truth


def _of_one(must: list[Atom], rest: dict[Atom, set[Way]], draft: int) -> dict[Atom, bool]:
    """Settle the demands on one argument's value that need not be met."""
    shortest, longest = lengths_of(must)
    if shortest > longest:
        raise CannotCut("no value fits what it demands of the argument")
    settled: dict[Atom, bool] = {}
    domain = finite(must)
    if domain is not None:
        domain = [text for text in domain if all(meets(atom, text, draft) is not False for atom in must)]
        if not domain:
            raise CannotCut("no value fits what it demands of the argument")
        for atom in rest:
            outcomes = {meets(atom, text, draft) for text in domain}
            if len(outcomes) == 1 and None not in outcomes:
                settled[atom] = True in outcomes
    wanted = {atom for atom, how in rest.items() if atom not in settled and how == {"for"}}
    unwanted = {atom for atom, how in rest.items() if atom not in settled and how == {"against"}}
    if len(settled) + len(wanted) + len(unwanted) < len(rest):
        raise CannotCut("what else it accepts depends on the argument's value")
    alone = not unwanted and len({*must, *wanted}) == 1
    if (wanted or unwanted) and not alone and witness([*must, *wanted], unwanted, draft) is None:
        raise CannotCut("what it demands of the argument's value differs from case to case")
    return settled | dict.fromkeys(wanted, True) | dict.fromkeys(unwanted, False)


@final
class _Ways:
    """Walks every place that judges the object, and notes how the whole depends on each demand."""

    def __init__(self, document: Document, fields: frozenset[str], values: Values) -> None:
        self.cutter = Cutter(document, fields, values, {})
        self.found: dict[FieldAtom, set[Way]] = {}
        self._document = document
        self._seen: set[tuple[Path, Way]] = set()

    def walk(self, path: Path, way: Way) -> None:
        waiting: list[tuple[Path, Way]] = [(path, way)]
        while waiting:
            place = waiting.pop()
            if place not in self._seen:
                self._seen.add(place)
                waiting += self._below(*place)

    def _below(self, path: Path, way: Way) -> Iterator[tuple[Path, Way]]:
        node = self._document.at(path)
        if self.cutter.node(path) is False or not isinstance(node, dict):
            return
        reference = node.get("$ref")
        target = self._document.resolve(reference, path) if isinstance(reference, str) else None
        if target is not None:
            yield target, way
        if self._document.alone(node):
            return
        for atom in self.cutter.own(path) or ():
            self.found.setdefault(atom, set()).add(way)
        for key in ("allOf", "anyOf", "oneOf"):
            yield from self._listed((*path, key), node.get(key), way)
        if isinstance(node.get("not"), dict):
            yield (*path, "not"), _turned(way)
        for key in ("dependentSchemas", "dependencies"):
            for other in node[key] if isinstance(node.get(key), dict) and self._document.active(key) else ():
                if isinstance(node[key][other], dict):
                    yield (*path, key, other), way if other in self.cutter.fields else _weaker(way)
        if "if" in node and self._document.active("if"):
            yield from self._condition(path, node, way)

    def _listed(self, path: Path, value: Any, way: Way) -> Iterator[tuple[Path, Way]]:
        if not isinstance(value, list):
            return
        live = [index for index in range(len(value)) if self.cutter.node((*path, index)) is not False]
        if len(live) > 1 and path[-1] != "allOf":
            way = _weaker(way) if path[-1] == "anyOf" else "both"
        for index in live:
            yield (*path, index), way

    def _condition(self, path: Path, node: dict[str, Any], way: Way) -> Iterator[tuple[Path, Way]]:
        condition = self.cutter.node((*path, "if"))
        known = condition is False or vacuous(condition)
        if not known:
            yield (*path, "if"), "both"
        for key in ("then", "else"):
            if key in node and not (known and (key == "then") == (condition is False)):
                yield (*path, key), way if known else _weaker(way)


def _weaker(way: Way) -> Way:
    return "for" if way == "must" else way


def _turned(way: Way) -> Way:
    if way == "both":
        return "both"
    return "for" if way == "against" else "against"
