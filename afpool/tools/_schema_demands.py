"""What one place of a schema demands of the values of the properties that are taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ._schema_evaluated import evaluated_in
from ._schema_value import Atom, CannotCut, matches, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._schema_branches import Cutter
    from ._schema_document import Path

FieldAtom: TypeAlias = tuple[str, Atom]
"""A property, and what is demanded of its value."""


def demands_of(cutter: Cutter, path: Path) -> frozenset[FieldAtom] | Literal[False]:
    """Give the demands that a place itself, without its branches, makes on the values; `False` if none fits.

    Raises:
        CannotCut: They cannot be told from those on the other arguments.
    """
    node = cutter.document.at(path)
    found: set[FieldAtom] = set()
    for name in cutter.fields:
        for part in _parts(cutter, path, node, name):
            if part is False:
                return False
            found.update((name, atom) for atom in part)
    return frozenset(found)


def _parts(
    cutter: Cutter, path: Path, node: dict[str, Any], name: str
) -> Iterable[frozenset[Atom] | Literal[False]]:
    covered = False
    if isinstance(node.get("properties"), dict) and name in node["properties"]:
        covered = True
        yield cutter.values.demands((*path, "properties", name))
    if isinstance(node.get("patternProperties"), dict):
        for pattern in node["patternProperties"]:
            if matches(pattern, name):
                covered = True
                yield cutter.values.demands((*path, "patternProperties", pattern))
    if not covered and "additionalProperties" in node:
        yield cutter.values.demands((*path, "additionalProperties"))
    elif "unevaluatedProperties" in node and cutter.document.active("unevaluatedProperties"):
        rest = cutter.values.demands((*path, "unevaluatedProperties"))
        evaluated = evaluated_in(cutter, path, name, own=False)
        if evaluated == "no":
            yield rest
        elif evaluated == "maybe" and rest != frozenset():
            raise CannotCut("whether the argument is one too many depends on the other arguments")
    if "const" in node and cutter.document.active("const"):
        yield one_of([node["const"][name]]) if has_all(node["const"], cutter.fields) else False
    if isinstance(node.get("enum"), list):
        values = {one[name] for one in node["enum"] if has_all(one, cutter.fields)}
        if len(values) > 1:
            raise CannotCut("its list of allowed arguments ties them to the argument's value")
        yield one_of(list(values))


def has_all(value: Any, fields: frozenset[str]) -> bool:
    """Whether a value is an object in which each of the properties is a string that is not empty."""
    return isinstance(value, dict) and all(
        isinstance(value.get(name), str) and value[name] for name in fields
    )
