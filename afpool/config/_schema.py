"""The JSON Schema of `afpool.toml`, made of the tables that the reader goes by.

`afpool.schema.json` beside this file holds it for editors; a test holds the two equal.
`python -m afpool.config._schema` writes it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ._document import Document
from ._kinds_of_many import Listing, Named
from ._tables import Record, fields_of, rules_of

FILE: Final = Path(__file__).with_name("afpool.schema.json")
ID: Final = "urn:afpool:schema:afpool.toml"


def config_schema() -> dict[str, Any]:
    """Give the JSON Schema (2020-12) of `afpool.toml`."""
    tables: dict[str, dict[str, Any]] = {}
    document = _table(Document, tables)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "afpool.toml",
        **document,
        "$defs": dict(sorted(tables.items())),
    }


def _table(table: type, tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field in fields_of(table):
        _collect(field.kind, tables)
        said: dict[str, Any] = {"description": field.doc}
        default = field.default
        if isinstance(default, bool | int | float | str):
            said["default"] = default
        properties[field.name] = {**field.kind.schema(), **said}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [field.name for field in fields_of(table) if field.required]
    if required:
        schema["required"] = required
    rules = [rule.schema() for rule in rules_of(table)]
    if rules:
        schema["allOf"] = rules
    return schema


def _collect(kind: Any, tables: dict[str, dict[str, Any]]) -> None:
    if isinstance(kind, Listing | Named):
        _collect(kind.of, tables)
    elif isinstance(kind, Record) and kind.table.__name__ not in tables:
        tables[kind.table.__name__] = {}
        tables[kind.table.__name__] = _table(kind.table, tables)


def rendered() -> str:
    """Give the file's text."""
    return json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(rendered(), encoding="utf-8")


__all__ = ["FILE", "config_schema", "rendered"]
