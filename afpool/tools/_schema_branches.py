"""Taking properties out of a schema, place by place, where each is known to be there, with some string.

What comes of a place is a schema for the same object without those properties, or `True` or `False` where
nothing is left to ask. Rules:

* Only places that judge the object itself are touched: the root, what `$ref`, `allOf`, `anyOf`, `oneOf`,
  `not`, `if`, `dependentSchemas` and the like apply to the same object. A schema of a member is carried as it
  is, also where it is the same definition.
* Copy on write: a place that nothing changes in comes back as the same object, and never is one changed.
* A demand on a property's value is an atom (`_schema_value`); which atoms are met is told by `truth`. Where
  it tells nothing the place stays open: neither `True` nor `False`, so that it can be asked what depends on
  it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, final

import attrs

from .._base.canonical import ContentError, canonical_json
from ._schema_demands import demands_of, has_all
from ._schema_evaluated import REMARKS, vacuous
from ._schema_value import CannotCut, Values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._schema_demands import FieldAtom
    from ._schema_document import Document, Path
    from ._schema_evaluated import Evaluated


_CARRIED: Final = frozenset({
    "additionalProperties", "unevaluatedProperties", "items", "additionalItems", "unevaluatedItems",
    "contains", "contentSchema", "prefixItems", "type", "format", "discriminator", "$vocabulary",
    "$recursiveAnchor", "$ref", "title", "description", "$comment", "deprecated", "readOnly", "writeOnly",
    "$defs", "definitions", "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "pattern", "nullable",
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "contentEncoding",
    "contentMediaType",
})  # fmt: skip
_LATER: Final = frozenset({"if", "dependentRequired", "dependentSchemas"})
_NAMES: Final = ("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
_DEEPEST: Final = 256
_OPEN: Final = "\0open"
_DROP: Final = object()


class _Never(Exception):
    """No object with the properties in it fits this place."""


@final
@attrs.frozen
class Moved:
    """Stands for a reference to a place that is cut, too: where that will stand is not known yet."""

    target: Path


def takes_objects(node: Mapping[str, Any]) -> bool:
    """Whether the type of a place allows an object at all."""
    kinds = node.get("type")
    if isinstance(kinds, str):
        return kinds == "object"
    return "object" in kinds if isinstance(kinds, list) else True


@final
class Cutter:
    """Cuts the places of one document.

    Args:
        document: The schema.
        fields: The properties that go.
        values: What the document says of their values.
        truth: Which demands on the values are met; where it is silent a place stays open.

    Attributes:
        origins: Of each object that came of a place, by its `id`, the place. The objects live as long.
        evaluated: What `evaluated_in` has found.
    """

    def __init__(
        self, document: Document, fields: frozenset[str], values: Values, truth: Mapping[FieldAtom, bool]
    ) -> None:
        self.document = document
        self.fields = fields
        self.origins: dict[int, Path] = {}
        self.values = values
        self.evaluated: dict[tuple[Path, str, bool], Evaluated] = {}
        self._truth = truth
        self._done: dict[Path, Any] = {}
        self._running: set[Path] = set()
        self._own: dict[Path, frozenset[FieldAtom] | Literal[False]] = {}

    def node(self, path: Path) -> Any:
        """Give what comes of a place: a schema, or a boolean.

        Raises:
            CannotCut: It cannot be had.
        """
        if path in self._done:
            return self._done[path]
        if path in self._running:
            raise CannotCut("it refers to itself without getting any further")
        if len(self._running) > _DEEPEST:
            raise CannotCut("its parts refer to each other too many times over")
        original = self.document.at(path)
        self._running.add(path)
        try:
            result = self._object(path, original) if isinstance(original, dict) else original
        except _Never:
            result = False
        finally:
            self._running.discard(path)
        self._done[path] = result
        if isinstance(result, dict):
            self.origins[id(result)] = path
        return result

    def own(self, path: Path) -> frozenset[FieldAtom] | Literal[False]:
        """Give the demands that a place itself, without its branches, makes on the properties' values."""
        if path not in self._own:
            self._own[path] = demands_of(self, path)
        return self._own[path]

    def _object(self, path: Path, node: dict[str, Any]) -> Any:
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise CannotCut("a dynamic reference judges the arguments")
        if self.document.alone(node):
            return self._alone(path, node)
        if not takes_objects(node):
            raise _Never
        own = self.own(path)
        told = [False] if own is False else [self._truth.get(atom) for atom in own]
        if False in told:
            raise _Never
        added: list[Any] = []
        required: list[str] = []
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key in {"then", "else"} or (key in _LATER and not self.document.active(key)):
                continue  # with its `if`, or with no meaning at all
            if key == "if":
                self._condition(path, node, out, added)
                continue
            kept = self._keyword(path, key, value, added, required)
            if kept is not _DROP:
                out[key] = kept
        if required:
            have = _listed(out.get("required"))
            out["required"] = [*have, *(name for name in dict.fromkeys(required) if name not in have)]
        added = [one for one in added if not vacuous(one)]
        if added:
            out["allOf"] = [*_listed(out.get("allOf")), *added]
        if None in told:
            out[_OPEN] = True
        return self._settled(path, node, out)

    def _settled(self, path: Path, node: dict[str, Any], out: dict[str, Any]) -> Any:
        if out.keys() == node.keys() and all(out[key] is node[key] for key in out):
            return node
        if path != ():
            for key in _NAMES:
                out.pop(key, None)
        return out

    def _alone(self, path: Path, node: dict[str, Any]) -> Any:
        target = self.target(node["$ref"], path)
        result = self.node(target)
        if result is False:
            raise _Never
        # what stands beside a reference is not validated by, and still read by a model
        out = {
            key: value if key == "$ref" else self._keyword(path, key, value, [], [])
            for key, value in node.items()
            if key in REMARKS or key in {"$ref", "type"}
        }
        if result is not self.document.at(target):
            if vacuous(result):
                del out["$ref"]
            else:
                out["$ref"] = Moved(target)
        return self._settled(path, node, out)

    def target(self, reference: str, path: Path) -> Path:
        """Give the place that a reference means.

        Raises:
            CannotCut: It is not in the document.
        """
        target = self.document.resolve(reference, path)
        if target is None:
            raise CannotCut("it refers to a schema that is not in it, and none is ever fetched")
        return target

    def _keyword(self, path: Path, key: str, value: Any, added: list[Any], required: list[str]) -> Any:
        match key, value:
            case "$ref", str():
                return self._reference(path, value)
            case "properties", dict():
                kept = self._without(value)
                return kept if kept or path == () or kept is value else _DROP
            case "patternProperties", dict():
                named = [pattern for pattern in value if any(pattern == f"^{name}$" for name in self.fields)]
                return {at: one for at, one in value.items() if at not in named} if named else value
            case "required", list():
                return self._left(value)
            case "minProperties" | "maxProperties", int() | float():
                return self._count(key, value)
            case "propertyNames", _ if self.document.active(key):
                return self._property_names(path, value)
            case "dependentRequired" | "dependentSchemas" | "dependencies", dict() if self.document.active(
                key
            ):
                return self._dependencies(path, key, value, added, required)
            case "allOf" | "anyOf" | "oneOf", list() if value:
                results = [self.node((*path, key, index)) for index in range(len(value))]
                return getattr(self, f"_{key.lower()}")(value, results)
            case "not", dict() | bool():
                result = self.node((*path, key))
                if vacuous(result):
                    raise _Never
                return _DROP if result is False else result
            case "const", _ if self.document.active(key):
                return self._without(value)
            case "enum", list():
                return self._choices(value)
            case "default" | "example", dict():
                return self._without(value)
            case "examples", list():
                kept_list = [self._without(one) if isinstance(one, dict) else one for one in value]
                return value if all(map(_same, kept_list, value)) else kept_list
        return value if key in _CARRIED else self._unmentioned(value)

    def _reference(self, path: Path, reference: str) -> Any:
        target = self.target(reference, path)
        result = self.node(target)
        if result is False:
            raise _Never
        if result is self.document.at(target):
            return reference
        return _DROP if vacuous(result) else Moved(target)

    def _without(self, mapping: Any) -> Any:
        if self.fields.isdisjoint(mapping):
            return mapping
        return {key: value for key, value in mapping.items() if key not in self.fields}

    def _left(self, names: list[Any]) -> Any:
        kept = [name for name in names if not (isinstance(name, str) and name in self.fields)]
        if len(kept) == len(names):
            return names
        return kept or _DROP

    def _count(self, key: str, value: float) -> Any:
        if isinstance(value, bool):
            return value
        left = int(value) - len(self.fields)
        if key == "minProperties":
            return left if left > 0 else value if value <= 0 else _DROP
        if left < 0:
            raise _Never
        return left

    def _property_names(self, path: Path, value: Any) -> Any:
        place = (*path, "propertyNames")
        if not all(self.values.takes_name(place, name) for name in self.fields):
            raise _Never
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("const"), str) and value["const"] in self.fields:
            return False
        if isinstance(value.get("enum"), list):
            left = self._left(value["enum"])
            return False if left is _DROP else {**value, "enum": left}
        return value

    def _dependencies(
        self, path: Path, key: str, value: dict[str, Any], added: list[Any], required: list[str]
    ) -> Any:
        out: dict[str, Any] = {}
        for name, one in value.items():
            if isinstance(one, list | str):
                names = self._left([one] if isinstance(one, str) else one)
                if name in self.fields:
                    required += [] if names is _DROP else names
                elif names is not _DROP:
                    out[name] = one if len(names) == len(one) or isinstance(one, str) else names
                continue
            if not isinstance(one, dict | bool):
                out[name] = one
                continue
            result = self.node((*path, key, name))
            if name in self.fields:
                if result is False:
                    raise _Never
                added.append(result)
            elif result is one or not vacuous(result):
                out[name] = self._written(result)
        if out.keys() == value.keys() and all(out[name] is value[name] for name in out):
            return value
        return out or _DROP

    def _allof(self, value: list[Any], results: list[Any]) -> Any:
        if False in [result for result in results if isinstance(result, bool)]:
            raise _Never
        kept = [
            result
            for one, result in zip(value, results, strict=True)
            if result is one or result not in ({}, True)
        ]
        return value if len(kept) == len(value) and all(map(_same, kept, value)) else kept or _DROP

    def _anyof(self, value: list[Any], results: list[Any]) -> Any:
        kept = [result for result in results if result is not False]
        if not kept:
            raise _Never
        if len(kept) == len(value) and all(map(_same, kept, value)):
            return value
        names_only = all(vacuous(one) or one.keys() <= REMARKS | {"required"} for one in kept)
        if names_only and any(map(vacuous, kept)):
            return _DROP
        return [self._written(one) for one in kept]

    def _oneof(self, value: list[Any], results: list[Any]) -> Any:
        kept = [result for result in results if result is not False]
        if not kept or sum(map(vacuous, kept)) > 1:
            raise _Never
        if len(kept) == len(value) and all(map(_same, kept, value)):
            return value
        return _DROP if len(kept) == 1 and vacuous(kept[0]) else [self._written(one) for one in kept]

    def _condition(self, path: Path, node: dict[str, Any], out: dict[str, Any], added: list[Any]) -> None:
        condition = self.node((*path, "if"))
        branches = {key: self.node((*path, key)) for key in ("then", "else") if key in node}
        if condition is node["if"] and all(branches[key] is node[key] for key in branches):
            out.update((key, node[key]) for key in ("if", "then", "else") if key in node)
            return
        if condition is False or vacuous(condition):
            chosen = branches.get("else" if condition is False else "then", True)
            if chosen is False:
                raise _Never
            added.append(chosen)
            return
        out["if"] = condition
        for key, result in branches.items():
            if result is node[key] or not vacuous(result):
                out[key] = self._written(result)

    def _choices(self, value: list[Any]) -> Any:
        kept = [self._without(one) for one in value if has_all(one, self.fields)]
        if not kept:
            raise _Never
        try:
            return list({canonical_json(one): one for one in kept}.values())
        except ContentError:
            return kept

    def _unmentioned(self, value: Any) -> Any:
        """Give what no validator reads without the names: an order of properties, messages for them."""
        if isinstance(value, dict):
            out: Any = {key: self._unmentioned(one) for key, one in value.items() if key not in self.fields}
            return value if len(out) == len(value) and all(map(_same, out.values(), value.values())) else out
        if isinstance(value, list):
            out = [
                self._unmentioned(one) for one in value if not (isinstance(one, str) and one in self.fields)
            ]
            return value if len(out) == len(value) and all(map(_same, out, value)) else out
        return value

    def _written(self, result: Any) -> Any:
        if isinstance(result, bool) and self.document.draft == 4:
            return {} if result else {"not": {}}
        return result


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _same(left: Any, right: Any) -> bool:
    return left is right
