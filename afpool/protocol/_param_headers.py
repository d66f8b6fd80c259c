"""`x-mcp-header`: tool arguments that are mirrored into HTTP headers (2026-07-28).

An annotation is valid on a string, integer or boolean property that is reached from the root of the input
schema through `properties` alone, with an RFC 9110 token that no other annotation uses in any case. A tool
with an invalid one must not be offered over HTTP. `$ref` is never followed, and data (`default`, `const`,
`enum`, `examples`) is never taken for schema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ._headers import PARAM_PREFIX, param_value, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANNOTATION: Final = "x-mcp-header"

HeaderMap: TypeAlias = tuple[tuple[tuple[str, ...], bytes], ...]
"""Property path and header name of each annotated argument."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SCALARS = frozenset({"string", "integer", "boolean"})
_MAX_DEPTH = 64

# Where JSON Schema (draft-04 to 2020-12) puts schemas, other than `properties`.
_ONE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties"})

# A path as it is walked: (parent, name), so that a step costs the same at any depth.
_Path: TypeAlias = tuple[Any, ...]


def _positions(schema: object) -> Iterator[tuple[_Path | None, int, dict[str, Any]]]:
    """Yield every schema in a schema: its path through `properties`, or `None` off it, and its depth."""
    stack: list[tuple[_Path | None, int, object]] = [((), 0, schema)]
    while stack:
        path, depth, node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield path, depth, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                for name, part in value.items():
                    stack.append(((path, name) if path is not None else None, depth + 1, part))
            elif key in _ONE and isinstance(value, dict):
                stack.append((None, depth + 1, value))
            elif key in _MANY and isinstance(value, list):
                stack.extend((None, depth + 1, part) for part in value)
            elif key in _NAMED and isinstance(value, dict):
                stack.extend((None, depth + 1, part) for part in value.values())


def invalid_param_annotations(input_schema: object) -> str | None:
    """Say what is wrong with a schema's annotations, or `None`. The reason quotes nothing of the schema."""
    try:
        param_header_map(input_schema)
    except ValueError as error:
        return str(error)
    return None


def param_header_map(input_schema: object) -> HeaderMap:
    """Find the annotated arguments of a tool, once per definition.

    Raises:
        ValueError: An annotation is invalid; the tool must not be offered over HTTP.
    """
    found: list[tuple[tuple[str, ...], bytes]] = []
    names: set[str] = set()
    for path, depth, schema in _positions(input_schema):
        if ANNOTATION not in schema:
            continue
        token = schema[ANNOTATION]
        kind = schema.get("type")
        if not path:
            raise ValueError(f"{ANNOTATION} where `properties` alone do not lead")
        if depth > _MAX_DEPTH:
            raise ValueError(f"{ANNOTATION} deeper than {_MAX_DEPTH} properties")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError(f"{ANNOTATION} is not an RFC 9110 token")
        if not isinstance(kind, str) or kind not in _SCALARS:
            raise ValueError(f"{ANNOTATION} on a property that is not of type string, integer or boolean")
        name = token.lower()
        if name in names:
            raise ValueError(f"{ANNOTATION} names one header twice")
        names.add(name)
        found.append((_flat(path), PARAM_PREFIX + name.encode()))
    return tuple(found)


def _flat(path: _Path) -> tuple[str, ...]:
    names: list[str] = []
    while path:
        path, name = path
        names.append(name)
    return tuple(reversed(names))


def param_headers(header_map: HeaderMap, arguments: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Build the headers of one call from a map that was made once."""
    headers: list[tuple[bytes, bytes]] = []
    for path, name in header_map:
        value = param_value(value_at(arguments, path))
        if value is not None:
            headers.append((name, value))
    return headers


def mcp_param_headers(input_schema: object, arguments: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Build the headers of one call from the tool's input schema.

    Raises:
        ValueError: An annotation is invalid.
    """
    return param_headers(param_header_map(input_schema), arguments)
