"""One JSON Schema as a tree of places: which draft reads it, where subschemas are, what references mean.

Rules:

* A place is a path: the keys and indices from the root. A document is a tree (`Document` copies what it is
  given), so a place is in it once, and whoever rewrites makes new objects and never changes these.
* What a keyword means depends on the draft that `$schema` names; without one it is 2020-12, as MCP says. A
  draft that nobody knows is read as 2020-12 too.
* A reference is looked up in the document alone. Nothing is ever fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, final
from urllib.parse import unquote, urljoin

from ._derive import copy_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Path: TypeAlias = tuple[str | int, ...]

DRAFTS: Final = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
URIS: Final = {
    number: f"http{'s' * (number > 7)}://{uri}{'#' * (number < 8)}" for uri, number in DRAFTS.items()
}

# Where subschemas stand: under every key of a mapping, as the value itself, in a list.
IN_MAPPING: Final = (
    "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions",
)  # fmt: skip
AS_VALUE: Final = (
    "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems",
    "unevaluatedItems", "contains", "contentSchema", "not", "if", "then", "else",
)  # fmt: skip
IN_LIST: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
DEFINITIONS: Final = ("$defs", "definitions")
_SINCE: Final = {
    "const": 6, "propertyNames": 6, "if": 7, "dependentRequired": 2019, "dependentSchemas": 2019,
    "unevaluatedProperties": 2019,
}  # fmt: skip


def draft_of(schema: Mapping[str, Any]) -> int:
    """Give the draft that reads a schema: 4, 6, 7, 2019 or 2020."""
    named = schema.get("$schema")
    if not isinstance(named, str):
        return 2020
    return DRAFTS.get(named.removesuffix("#").removeprefix("http://").removeprefix("https://"), 2020)


def pointer(path: Path) -> str:
    """Give a path as a reference within the document: `#/properties/q`."""
    return "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def subschemas(node: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """Give each subschema of a node with its path, whatever the draft; one level."""
    for key, value in node.items():
        if key in IN_MAPPING and isinstance(value, dict):
            for name, one in value.items():
                yield (*path, key, name), one
        elif key in IN_LIST and isinstance(value, list):
            for index, one in enumerate(value):
                yield (*path, key, index), one
        elif key in AS_VALUE:
            yield (*path, key), value


@final
class Document:
    """A schema that is read place by place.

    Args:
        schema: The root; it is copied.

    Attributes:
        root: The copy.
        draft: Which draft reads it.
    """

    __slots__ = ("_anchors", "_bases", "_identifier", "_uris", "draft", "root")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.root: dict[str, Any] = copy_json(schema)
        self.draft = draft_of(self.root)
        self._identifier = "id" if self.draft == 4 else "$id"
        self._uris: dict[str, Path] | None = None
        self._bases: dict[Path, str] = {}
        self._anchors: dict[tuple[Path, str], Path] = {}

    def at(self, path: Path) -> Any:
        """Give what stands at a path.

        Raises:
            LookupError: Nothing does.
        """
        node: Any = self.root
        for part in path:
            node = node[part]
        return node

    def active(self, keyword: str) -> bool:
        """Whether the document's draft knows a keyword."""
        return _SINCE.get(keyword, 0) <= self.draft

    def alone(self, node: Mapping[str, Any]) -> bool:
        """Whether a node is nothing but its `$ref`: what stands beside one is not read up to draft 7."""
        return self.draft <= 7 and isinstance(node.get("$ref"), str)

    def identified(self, node: Any) -> str | None:
        """Give the URI by which a node is a resource of its own, if it is one."""
        if not isinstance(node, dict) or self.alone(node):
            return None
        uri = node.get(self._identifier)
        return uri if isinstance(uri, str) and uri and not uri.startswith("#") else None

    def named(self, node: Mapping[str, Any]) -> bool:
        """Whether a node can be referred to by a name, and so must not stand in the document twice."""
        return any(isinstance(node.get(key), str) for key in ("$id", "id", "$anchor", "$dynamicAnchor"))

    def resource(self, path: Path) -> Path:
        """Give the place of the resource that a path lies in: the nearest node with a URI, or the root."""
        for length in range(len(path), 0, -1):
            if self.identified(self.at(path[:length])) is not None:
                return path[:length]
        return ()

    def resolve(self, reference: str, path: Path) -> Path | None:
        """Give the place that a reference at `path` means; `None` where it is not in this document."""
        uri, _, fragment = reference.partition("#")
        target = self.resource(path)
        if uri:
            self._index()
            found = (self._uris or {}).get(urljoin(self._bases.get(target, ""), uri))
            if found is None:
                return None
            target = found
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            self._index()
            return self._anchors.get((target, fragment))
        node: Any = self.at(target)
        for raw in fragment.split("/")[1:]:
            part = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(node)):
                    return None
                node, target = node[int(part)], (*target, int(part))
            elif isinstance(node, dict) and part in node:
                node, target = node[part], (*target, part)
            else:
                return None
        return target

    def _index(self) -> None:
        if self._uris is not None:
            return
        self._uris = {}
        waiting: list[tuple[Path, Any, Path]] = [((), self.root, ())]
        while waiting:
            path, node, resource = waiting.pop()
            if not isinstance(node, dict):
                continue
            uri = self.identified(node)
            if uri is not None:
                base = urljoin(self._bases.get(resource, ""), uri).removesuffix("#")
                resource = path
                self._bases[path] = base
                self._uris.setdefault(base, path)
            for name in self._names(node):
                self._anchors.setdefault((resource, name), path)
            waiting += [(below, one, resource) for below, one in subschemas(node, path)]

    def _names(self, node: dict[str, Any]) -> Iterator[str]:
        for key in ("$anchor", "$dynamicAnchor"):
            name = node.get(key)
            if isinstance(name, str):
                yield name
        name = node.get(self._identifier)
        if isinstance(name, str) and name.startswith("#"):
            yield name[1:]
