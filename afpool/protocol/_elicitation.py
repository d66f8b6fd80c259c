"""Forms and addresses that a server has its client show to a user (protocol revisions 2025-06-18 and later).

* A form is flat: an object whose properties are strings, numbers, booleans, one choice, or several.
* A default of the schema is what the user is shown first, so it is part of an answer that says nothing else
  (SEP-1034). It is never put into an answer that somebody else has completed.
* An address is shown, never fetched and never opened; `http` and `https` only.

Checks here read a schema that a server wrote: they are linear in it, follow no reference, run no pattern.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from urllib.parse import urlsplit

from .._base.model import UrlElicitation

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRIMITIVES: Final = ("string", "number", "integer", "boolean")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MAX_PROPERTIES: Final = 256
_MAX_SHOWN: Final = 64


class InvalidAnswer(ValueError):
    """An answer that the requested schema does not allow. Names the property, never its value."""


def flat_schema_fault(schema: object) -> str | None:
    """Say why a schema is no flat form; `None` where it is one."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return "no schema of an object"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or len(properties) > _MAX_PROPERTIES:
        return "no properties that can be asked for"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(name in properties for name in _texts(required)):
        return "required properties that are not among the properties"
    if not all(_is_flat(inner) for inner in properties.values()):
        return "a property that is neither a primitive nor a choice"
    return None


def _is_flat(inner: object) -> bool:
    if not isinstance(inner, dict):
        return False
    if inner.get("type") == "array":
        items = inner.get("items")
        return isinstance(items, dict) and _choices(items) is not None
    if inner.get("type") in _PRIMITIVES:
        return True
    return "type" not in inner and _choices(inner) is not None


def _texts(values: list[Any]) -> list[str]:
    return [value if isinstance(value, str) else "" for value in values]


def _choices(inner: Mapping[str, Any]) -> list[Any] | None:
    """What may be chosen; `None` where the schema names no choices."""
    named = inner.get("enum")
    if isinstance(named, list):
        return named
    for word in ("oneOf", "anyOf"):
        titled = inner.get(word)
        if isinstance(titled, list):
            return [choice.get("const") for choice in titled if isinstance(choice, dict)]
    return None


def with_defaults(schema: Mapping[str, Any], content: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Complete an answer by the defaults of the schema; what the answer says stays.

    Args:
        schema: The flat schema that was requested.
        content: What the user said so far.
    """
    completed = dict(content or {})
    for name, inner in schema.get("properties", {}).items():
        if name not in completed and "default" in inner:
            completed[name] = inner["default"]
    return completed


def check_answer(schema: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Check an accepted answer against the flat schema that was requested.

    Raises:
        InvalidAnswer: A property is missing, was not asked for, or is not what the schema allows.
    """
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in content:
            raise InvalidAnswer(f"the property {_shown(name)} is required and missing")
    for name, value in content.items():
        inner = properties.get(name)
        if inner is None:
            raise InvalidAnswer(f"the property {_shown(name)} was not asked for")
        fault = _fault(inner, value)
        if fault is not None:
            raise InvalidAnswer(f"the property {_shown(name)} {fault}")


def _shown(name: object) -> str:
    return json.dumps(str(name)[:_MAX_SHOWN])


def _fault(inner: Mapping[str, Any], value: Any) -> str | None:
    kind = inner.get("type", "string")
    if kind == "array":
        return _array_fault(inner, value)
    if kind == "boolean":
        return None if isinstance(value, bool) else "is not a boolean"
    if kind in ("number", "integer"):
        return _number_fault(inner, value)
    return _string_fault(inner, value)


def _array_fault(inner: Mapping[str, Any], value: Any) -> str | None:
    if not isinstance(value, list | tuple):
        return "is not a list"
    choices = _choices(inner["items"]) or []
    if not all(item in choices for item in value):
        return "holds what is not among the choices"
    return _bounds_fault(inner, len(value), "minItems", "maxItems", "items")


def _number_fault(inner: Mapping[str, Any], value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number"
    if isinstance(value, float) and not isfinite(value):
        return "is not finite"
    if inner.get("type") == "integer" and int(value) != value:
        return "is not an integer"
    return _bounds_fault(inner, value, "minimum", "maximum", "")


def _string_fault(inner: Mapping[str, Any], value: Any) -> str | None:
    if not isinstance(value, str):
        return "is not a string"
    choices = _choices(inner)
    if choices is not None and value not in choices:
        return "is not among the choices"
    if not _has_format(inner.get("format"), value):
        return "has not the format that was asked for"
    return _bounds_fault(inner, len(value), "minLength", "maxLength", "characters")


def _bounds_fault(inner: Mapping[str, Any], size: float, low: str, high: str, unit: str) -> str | None:
    least, most = inner.get(low), inner.get(high)
    if isinstance(least, int | float) and size < least:
        return f"is less than {least} {unit}".rstrip()
    if isinstance(most, int | float) and size > most:
        return f"is more than {most} {unit}".rstrip()
    return None


def _has_format(name: object, value: str) -> bool:
    if name == "email":
        local, _, domain = value.rpartition("@")
        return bool(local and domain) and not any(char.isspace() for char in value)
    if name == "uri":
        try:
            return bool(urlsplit(value).scheme) and not any(char.isspace() for char in value)
        except ValueError:
            return False
    try:
        if name == "date":
            return _DATE.fullmatch(value) is not None and dt.date.fromisoformat(value) is not None
        if name == "date-time":
            return dt.datetime.fromisoformat(value).tzinfo is not None and "T" in value.upper()
    except ValueError:
        return False
    return True  # a format that is not known asks for nothing


def is_web_address(value: object) -> TypeGuard[str]:
    """Say whether a text is an `http` or `https` address that can be shown as it stands."""
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def read_url_elicitations(data: object) -> tuple[UrlElicitation, ...]:
    """Read the data of a -32042 error; entries that are no web address to be shown are left out."""
    entries = data.get("elicitations") if isinstance(data, dict) else None
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("mode", "url") != "url":
            continue
        url, message, name = entry.get("url"), entry.get("message"), entry.get("elicitationId")
        if is_web_address(url):
            found.append(
                UrlElicitation(
                    url,
                    message if isinstance(message, str) else "",
                    name if isinstance(name, str) else None,
                )
            )
    return tuple(found)
