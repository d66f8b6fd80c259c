"""Which parts of a JSON Schema are resources: from where the references in them are read.

A part with a URI of its own (`$id`; `id` in draft 4) is a resource, and `#/$defs/x` in it means a part of it
and not of the whole. Rules:

* A URI makes a resource only where the document's draft has a schema. Up to draft 7 there is none in `$defs`,
  in `dependentSchemas` or under any other word of a later draft: a URI there says nothing, and the validator
  reads references as it does around it.
* Where nobody but the validator can tell (draft 4, which finds by its URI what it does not find on the way,
  and a part that names another draft), every reading that there may be is given: whoever counts what a schema
  may cost has to count the dearest.
* Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, final
from urllib.parse import unquote, urljoin

DRAFTS: Final = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
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
_SINCE: Final = {
    "propertyNames": 6, "contains": 6, "if": 7, "then": 7, "else": 7, "$defs": 2019, "dependentSchemas": 2019,
    "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "contentSchema": 2019, "prefixItems": 2020,
}  # fmt: skip
_UNTIL: Final = {"dependencies": 2019, "additionalItems": 2019}

Node: TypeAlias = Mapping[str, Any]


class Kind(Enum):
    """What a value in a document is, as its draft reads it."""

    SCHEMA = "a schema"
    SCHEMAS = "schemas, by name or in a row"
    OTHER = "no schema, and nothing in it is one"


def draft_of(schema: Node) -> int:
    """Give the draft that reads a schema: 4, 6, 7, 2019 or 2020."""
    named = schema.get("$schema")
    if not isinstance(named, str):
        return 2020
    return DRAFTS.get(named.removesuffix("#").removeprefix("http://").removeprefix("https://"), 2020)


def uri_of(node: Any, draft: int) -> str | None:
    """Give the URI that a schema says of itself, as `draft` reads it."""
    if not isinstance(node, Mapping) or (draft <= 7 and isinstance(node.get("$ref"), str)):
        return None  # what stands beside a reference is not read up to draft 7
    uri = node.get("id" if draft == 4 else "$id")
    return uri if isinstance(uri, str) and uri and not uri.startswith("#") else None


def kind_below(kind: Kind, key: str | int, value: Any, draft: int) -> Kind:
    """Say what stands under a key, or at an index, of something of a kind."""
    if kind is Kind.SCHEMAS:
        return Kind.SCHEMA
    if (
        kind is Kind.OTHER
        or not isinstance(key, str)
        or not _SINCE.get(key, 0) <= draft <= _UNTIL.get(key, draft)
    ):
        return Kind.OTHER
    if (key in IN_MAPPING and isinstance(value, Mapping)) or (key in IN_LIST and isinstance(value, list)):
        return Kind.SCHEMAS
    return Kind.SCHEMA if key in AS_VALUE else Kind.OTHER


class _Around(NamedTuple):
    """What a part lies in: its resource, that one's URI, and all that may be one, with the whole first."""

    resource: Node
    uri: str
    maybe: tuple[Node, ...]


@final
class Resources:
    """The resources of one document, and what references in it may mean.

    Args:
        root: The document. It is walked once, and must not change.
    """

    __slots__ = ("_around", "_by_name", "_by_uri", "_doubtful", "_draft", "_recursive", "_root")

    def __init__(self, root: Node) -> None:
        self._draft = draft_of(root)
        uri = root.get("id" if self._draft == 4 else "$id")
        self._root = _Around(root, _joined("", uri) if isinstance(uri, str) else "", (root,))
        self._around: dict[int, _Around] = {}  # of what does not lie in the root alone
        self._by_uri: dict[str, list[Node]] = {}
        self._by_name: dict[str, list[tuple[Node, Node]]] = {}
        self._recursive: list[Node] = []
        self._doubtful = False
        self._walk(root)

    def meant(self, place: Node, word: str) -> list[Any]:
        """Give all that a reference may mean.

        Args:
            place: The part of the document that holds it.
            word: Its keyword: `$ref`, `$dynamicRef` or `$recursiveRef`.

        Returns:
            Nothing where it leads nowhere in the document.
        """
        reference = place[word]
        if not isinstance(reference, str):
            return []
        base, _, fragment = reference.partition("#")
        around = self._around.get(id(place), self._root)
        if base:
            sources = self._called(base, around)
        elif self._doubtful:
            sources = list(around.maybe)
        else:  # a validator knows a resource by its URI: of two with the same one, either is meant
            sources = self._by_uri[around.uri]
        found: list[Any] = []
        if not fragment:
            found += sources
        elif fragment.startswith("/"):
            for source in sources:
                found += _at_pointer(source, fragment)
        else:
            named = self._by_name.get(unquote(fragment), ())
            # where a dynamic one leads depends on who refers to whoever holds it
            wide = self._doubtful or word != "$ref"
            found += [node for owner, node in named if wide or any(owner is one for one in sources)]
        if word == "$recursiveRef":
            found += self._recursive
        return list({id(one): one for one in found}.values())

    def _called(self, uri: str, around: _Around) -> list[Node]:
        if not self._doubtful:
            return self._by_uri.get(_joined(around.uri, uri), [])
        # from whichever of them it is read, its last part is the same
        last = _last(uri)
        return [one for known, those in self._by_uri.items() if _last(known) == last for one in those]

    def _walk(self, root: Node) -> None:
        stack: list[tuple[Any, Kind, _Around]] = [(root, Kind.SCHEMA, self._root)]
        while stack:
            value, kind, around = stack.pop()
            if isinstance(value, list):
                stack += [
                    (one, kind_below(kind, at, one, self._draft), around) for at, one in enumerate(value)
                ]
            if not isinstance(value, Mapping):
                continue
            around = self._entered(value, kind, around)
            if around is not self._root:
                self._around[id(value)] = around
            self._note(value, around)
            stack += [(one, kind_below(kind, key, one, self._draft), around) for key, one in value.items()]

    def _entered(self, node: Node, kind: Kind, around: _Around) -> _Around:
        if node is self._root.resource:
            self._by_uri.setdefault(self._root.uri, []).append(node)
            return around
        own = uri_of(node, self._draft)
        said = [one for one in (node.get("$id"), node.get("id")) if isinstance(one, str)]
        if own is not None and ("#" in own[:-1] or (self._draft == 4 and kind is not Kind.SCHEMA)):
            self._doubtful = True
        if isinstance(node.get("$schema"), str) and draft_of(node) != self._draft:
            self._doubtful = True
        maybe = (*around.maybe, node) if any(not one.startswith("#") for one in said) else around.maybe
        if kind is Kind.SCHEMA and own is not None:
            around = _Around(node, _joined(around.uri, own), maybe)
            self._know(around.uri, node)
        elif maybe is not around.maybe:
            for uri in said:
                self._know(_joined(around.uri, uri), node)
            around = around._replace(maybe=maybe)
        return around

    def _know(self, uri: str, node: Node) -> None:
        known = self._by_uri.setdefault(uri, [])
        if not known or known[0] != node:  # generators write the same part, URI and all, wherever it is used
            known.append(node)

    def _note(self, node: Node, around: _Around) -> None:
        for key in ("$anchor", "$dynamicAnchor", "$id", "id"):
            name = node.get(key)
            if isinstance(name, str) and (key.endswith("nchor") or name.startswith("#")):
                self._by_name.setdefault(name.removeprefix("#"), []).append((around.resource, node))
        if node.get("$recursiveAnchor") is True:
            self._recursive.append(node)


def _joined(base: str, uri: str) -> str:
    """Resolve a URI, so that two spellings of one are the same; more may be."""
    try:
        whole = urljoin(unquote(base), unquote(uri))
    except ValueError:  # no address at all
        whole = uri
    return whole.casefold().removesuffix("#")


def _last(uri: str) -> str:
    return uri.casefold().rstrip("/#").rpartition("/")[2].rpartition(":")[2]


def _at_pointer(at: Any, pointer: str) -> Iterator[Any]:
    """Give what stands at a pointer; nothing where nothing does."""
    for part in unquote(pointer).split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(at, Mapping) and step in at:
            at = at[step]
        elif isinstance(at, list) and step.isascii() and step.isdigit() and len(step) < 10:
            if int(step) >= len(at):
                return
            at = at[int(step)]
        else:
            return
    yield at
