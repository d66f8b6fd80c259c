"""Taking properties out of a schema, place by place, where each of them is known to be there, with some string.

What comes of a place is a schema for the same object without those properties, or `True` or `False` where
nothing is left to ask. Rules:

* Only places that judge the object itself are touched: the root, what `$ref`, `allOf`, `anyOf`, `oneOf`,
  `not`, `if`, `dependentSchemas` and the like apply to the same object. A schema of a member is carried as it
  is, also where it is the same definition.
* Copy on write: a place that nothing changes in comes back as the same object, and never is one changed.
* A demand on a property's value is an atom (`_schema_value`); which atoms are met is told by `truth`. Where it
  tells nothing the place stays open: neither `True` nor `False`, so that it can be asked what depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import attrs

from .._base.canonical import ContentError, canonical_json
from ._schema_value import Atom, CannotCut, Values, matches, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._schema_document import Document, Path

FieldAtom: TypeAlias = tuple[str, Atom]
Evaluated: TypeAlias = Literal["yes", "no", "maybe"]

REMARKS: Final = frozenset({
    "title", "description", "$comment", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$defs", "definitions", "$schema", "$id", "id", "$anchor", "$dynamicAnchor",
})  # fmt: skip
_CARRIED: Final = frozenset({
    "additionalProperties", "unevaluatedProperties", "items", "additionalItems", "unevaluatedItems",
    "contains", "contentSchema", "prefixItems", "type", "format", "discriminator", "$vocabulary",
    "$recursiveAnchor", "$ref", "title", "description", "$comment", "deprecated", "readOnly", "writeOnly",
    "$defs", "definitions", "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "pattern", "nullable",
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "contentEncoding", "contentMediaType",
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


def vacuous(result: Any) -> bool:
    """Whether a cut place accepts everything."""
    return result is True or (isinstance(result, dict) and result.keys() <= REMARKS)


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
    """

    def __init__(
        self, document: Document, fields: frozenset[str], values: Values, truth: Mapping[FieldAtom, bool]
    ) -> None:
        self.document = document
        self.fields = fields
        self.origins: dict[int, Path] = {}
        self._values = values
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
            self._own[path] = self._demands(path, self.document.at(path))
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
        target = self._target(node["$ref"], path)
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

    def _target(self, reference: str, path: Path) -> Path:
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
        target = self._target(reference, path)
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
        if key == "maxProperties":
            if left < 0:
                raise _Never
            return left
        return left if left > 0 else _DROP

    def _property_names(self, path: Path, value: Any) -> Any:
        place = (*path, "propertyNames")
        if not all(self._values.takes_name(place, name) for name in self.fields):
            raise _Never
        if not isinstance(value, dict):
            return value
        kept = dict(value)
        if isinstance(value.get("enum"), list):
            left = self._left(value["enum"])
            if left is _DROP:
                return False
            kept["enum"] = left
        if isinstance(value.get("const"), str) and value["const"] in self.fields:
            return False
        return value if kept.get("enum") is value.get("enum") else kept

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
        kept = [self._without(one) for one in value if self._has_all(one)]
        if not kept:
            raise _Never
        try:
            return list({canonical_json(one): one for one in kept}.values())
        except ContentError:
            return kept

    def _has_all(self, value: Any) -> bool:
        return isinstance(value, dict) and all(
            isinstance(value.get(name), str) and value[name] for name in self.fields
        )

    def _unmentioned(self, value: Any) -> Any:
        """Give a value that no validator reads without the names: an order of properties, messages for them."""
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

    # -- demands on the values

    def _demands(self, path: Path, node: Any) -> frozenset[FieldAtom] | Literal[False]:
        found: set[FieldAtom] = set()
        for name in self.fields:
            for part in self._parts(path, node, name):
                if part is False:
                    return False
                found.update((name, atom) for atom in part)
        return frozenset(found)

    def _parts(
        self, path: Path, node: dict[str, Any], name: str
    ) -> Iterable[frozenset[Atom] | Literal[False]]:
        covered = False
        if isinstance(node.get("properties"), dict) and name in node["properties"]:
            covered = True
            yield self._values.demands((*path, "properties", name))
        if isinstance(node.get("patternProperties"), dict):
            for pattern in node["patternProperties"]:
                if matches(pattern, name):
                    covered = True
                    yield self._values.demands((*path, "patternProperties", pattern))
        if not covered and "additionalProperties" in node:
            yield self._values.demands((*path, "additionalProperties"))
        elif "unevaluatedProperties" in node and self.document.active("unevaluatedProperties"):
            rest = self._values.demands((*path, "unevaluatedProperties"))
            evaluated = self._evaluated(path, name, own=False)
            if evaluated == "no":
                yield rest
            elif evaluated == "maybe" and rest != frozenset():
                raise CannotCut("whether the argument is one too many depends on the other arguments")
        if "const" in node and self.document.active("const"):
            yield one_of([node["const"][name]]) if self._has_all(node["const"]) else False
        if isinstance(node.get("enum"), list):
            values = {one[name] for one in node["enum"] if self._has_all(one)}
            if len(values) > 1:
                raise CannotCut("its list of allowed arguments ties them to the argument's value")
            yield one_of(list(values))

    def _evaluated(self, path: Path, name: str, *, own: bool = True) -> Evaluated:
        """Whether a place that accepts an object has evaluated a property of it, as draft 2019-09 means it."""
        node = self.document.at(path)
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
        parts = list(self._branches_evaluated(path, node, name))
        if "yes" in parts:
            return "yes"
        return "maybe" if "maybe" in parts else "no"

    def _branches_evaluated(self, path: Path, node: dict[str, Any], name: str) -> Iterable[Evaluated]:
        if isinstance(node.get("$ref"), str):
            yield self._evaluated(self._target(node["$ref"], path), name)
        for index in range(len(node["allOf"]) if isinstance(node.get("allOf"), list) else 0):
            yield self._evaluated((*path, "allOf", index), name)
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list):
                places = [(*path, key, index) for index in range(len(node[key]))]
                yield _either([self._evaluated(at, name) for at in places if self.node(at) is not False])
        for key in ("dependentSchemas", "dependencies"):
            for other in node[key] if isinstance(node.get(key), dict) else ():
                found = self._evaluated((*path, key, other), name)
                yield found if other in self.fields else _either([found, "no"])
        if "if" in node:
            condition = self.node((*path, "if"))
            met = [self._evaluated((*path, key), name) for key in ("if", "then") if key in node]
            other = self._evaluated((*path, "else"), name) if "else" in node else "no"
            then: Evaluated = "yes" if "yes" in met else "maybe" if "maybe" in met else "no"
            if condition is False:
                yield other
            else:
                yield then if vacuous(condition) else _either([then, other])


def _either(parts: list[Evaluated]) -> Evaluated:
    return parts[0] if len(set(parts)) == 1 else "maybe" if parts else "no"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _same(left: Any, right: Any) -> bool:
    return left is right
