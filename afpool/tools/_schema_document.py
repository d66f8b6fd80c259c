"""One JSON Schema as a tree of places: which draft reads it, where subschemas are, what references mean.

Rules:

* A place is a path: the keys and indices from the root. A document is a tree (`Document` copies what it is
  given), so a place is in it once, and whoever rewrites makes new objects and never changes these.
* What a keyword means depends on the draft that `$schema` names; without one it is 2020-12, as MCP says. A
  draft that nobody knows is read as 2020-12 too.
* A reference is looked up in the document alone. Nothing is ever fetched. Where it is read from, and what a
  URI in the document says, is as in `_base/schema_resources.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, final
from urllib.parse import unquote, urljoin

from .._base.schema_resources import (
    AS_VALUE,
    DRAFTS,
    IN_LIST,
    IN_MAPPING,
    Kind,
    draft_of,
    kind_below,
    uri_of,
)
from ._derive import copy_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Path: TypeAlias = tuple[str | int, ...]

URIS: Final = {
    number: f"http{'s' * (number > 7)}://{uri}{'#' * (number < 8)}" for uri, number in DRAFTS.items()
}

DEFINITIONS: Final = ("$defs", "definitions")
_SINCE: Final = {
    "const": 6, "propertyNames": 6, "if": 7, "dependentRequired": 2019, "dependentSchemas": 2019,
    "unevaluatedProperties": 2019,
}  # fmt: skip


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

    __slots__ = ("_anchors", "_bases", "_doubtful", "_identifier", "_uris", "draft", "root")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.root: dict[str, Any] = copy_json(schema)
        self.draft = draft_of(self.root)
        self._identifier = "id" if self.draft == 4 else "$id"
        self._doubtful = False
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

    def identified(self, path: Path) -> bool:
        """Whether a place is a resource of its own: it has a URI, and the draft reads a schema there."""
        return path != () and self.resource(path) == path

    def named(self, node: Mapping[str, Any]) -> bool:
        """Whether a node can be referred to by a name, and so must not stand in the document twice."""
        return any(isinstance(node.get(key), str) for key in ("$id", "id", "$anchor", "$dynamicAnchor"))

    def resource(self, path: Path) -> Path:
        """Give the place of the resource that a path lies in: the nearest node with a URI, or the root."""
        found: Path = ()
        node: Any = self.root
        kind = Kind.SCHEMA
        for length, part in enumerate(path, 1):
            node = node[part]
            kind = kind_below(kind, part, node, self.draft)
            if kind is Kind.SCHEMA and uri_of(node, self.draft) is not None:
                found = path[:length]
        return found

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

    def doubtful(self) -> bool:
        """Whether what a reference means depends on how a validator came to it.

        It does where two resources that differ have one URI: a validator takes either for both. And in
        draft 4 where a URI stands under a word of a later draft: what is found by that URI reads its
        references from there, what is found on the way reads them as around it.
        """
        self._index()
        return self._doubtful

    def _index(self) -> None:
        if self._uris is not None:
            return
        self._uris = {}
        waiting: list[tuple[Path, Any, Path, Kind]] = [((), self.root, (), Kind.SCHEMA)]
        while waiting:
            path, node, resource, kind = waiting.pop()
            if not isinstance(node, dict):
                continue
            uri = uri_of(node, self.draft)
            if uri is not None and kind is Kind.SCHEMA:
                base = urljoin(self._bases.get(resource, ""), uri).removesuffix("#")
                resource = path
                self._bases[path] = base
                first = self._uris.setdefault(base, path)
                self._doubtful = self._doubtful or self.at(first) != node
            self._doubtful = self._doubtful or (uri is not None and kind is not Kind.SCHEMA)
            for name in self._names(node):
                self._anchors.setdefault((resource, name), path)
            for below, one in subschemas(node, path):
                inner = self._kind(node, kind, below[len(path) :])
                if inner is Kind.SCHEMA or self.draft == 4:  # that one finds names everywhere
                    waiting.append((below, one, resource, inner))

    def _kind(self, node: Any, kind: Kind, steps: Path) -> Kind:
        for part in steps:
            node = node[part]
            kind = kind_below(kind, part, node, self.draft)
        return kind

    def _names(self, node: dict[str, Any]) -> Iterator[str]:
        for key in ("$anchor", "$dynamicAnchor"):
            name = node.get(key)
            if isinstance(name, str):
                yield name
        name = node.get(self._identifier)
        if isinstance(name, str) and name.startswith("#"):
            yield name[1:]
