"""Whether a schema that accepts an object has evaluated one of its properties, as draft 2019-09 means it.

It decides whether `unevaluatedProperties` has a say. Some branches evaluate a property only for some objects:
then the answer is `maybe`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ._schema_value import matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._schema_branches import Cutter
    from ._schema_document import Path

Evaluated: TypeAlias = Literal["yes", "no", "maybe"]

REMARKS: Final = frozenset({
    "title", "description", "$comment", "default", "examples", "example", "deprecated", "readOnly",
    "writeOnly", "$defs", "definitions", "$schema", "$id", "id", "$anchor", "$dynamicAnchor",
})  # fmt: skip


def vacuous(result: Any) -> bool:
    """Whether a cut place accepts everything."""
    return result is True or (isinstance(result, dict) and result.keys() <= REMARKS)


def evaluated_in(cutter: Cutter, path: Path, name: str, *, own: bool = True) -> Evaluated:
    """Whether a place that accepts an object has evaluated a property of it.

    `own` is whether its own `unevaluatedProperties` counts.
    """
    key = (path, name, own)
    if key not in cutter.evaluated:
        cutter.evaluated[key] = _evaluated(cutter, path, name, own=own)
    return cutter.evaluated[key]


def _evaluated(cutter: Cutter, path: Path, name: str, *, own: bool) -> Evaluated:
    node = cutter.document.at(path)
    if not isinstance(node, dict):
        return "no"
    if isinstance(node.get("properties"), dict) and name in node["properties"]:
        return "yes"
    if "additionalProperties" in node or (own and "unevaluatedProperties" in node):
        return "yes"
    if isinstance(node.get("patternProperties"), dict) and any(
        matches(pattern, name) for pattern in node["patternProperties"]
    ):
        return "yes"
    parts = list(_of_branches(cutter, path, node, name))
    if "yes" in parts:
        return "yes"
    return "maybe" if "maybe" in parts else "no"


def _of_branches(cutter: Cutter, path: Path, node: dict[str, Any], name: str) -> Iterable[Evaluated]:
    if isinstance(node.get("$ref"), str):
        yield evaluated_in(cutter, cutter.target(node["$ref"], path), name)
    for index in range(len(node["allOf"]) if isinstance(node.get("allOf"), list) else 0):
        yield evaluated_in(cutter, (*path, "allOf", index), name)
    for key in ("anyOf", "oneOf"):
        if isinstance(node.get(key), list):
            places = [(*path, key, index) for index in range(len(node[key]))]
            yield _either([evaluated_in(cutter, at, name) for at in places if cutter.node(at) is not False])
    for key in ("dependentSchemas", "dependencies"):
        for other in node[key] if isinstance(node.get(key), dict) else ():
            found = evaluated_in(cutter, (*path, key, other), name)
            yield found if other in cutter.fields else _either([found, "no"])
    if "if" in node:
        condition = cutter.node((*path, "if"))
        met = [evaluated_in(cutter, (*path, key), name) for key in ("if", "then") if key in node]
        other = evaluated_in(cutter, (*path, "else"), name) if "else" in node else "no"
        then: Evaluated = "yes" if "yes" in met else "maybe" if "maybe" in met else "no"
        if condition is False:
            yield other
        else:
            yield then if vacuous(condition) else _either([then, other])


def _either(parts: list[Evaluated]) -> Evaluated:
    return parts[0] if len(set(parts)) == 1 else "maybe" if parts else "no"
