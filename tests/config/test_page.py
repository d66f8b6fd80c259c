"""The page names every setting, and every word in its tables is one."""

from __future__ import annotations

import re
from pathlib import Path

from afpool.config import __all__ as exported
from afpool.config._document import Document
from afpool.config._kinds_of_many import Listing, Named
from afpool.config._runtime_settings import PoolLimits
from afpool.config._tables import Record, fields_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def tables(kind) -> list[type]:
    while isinstance(kind, Listing | Named):
        kind = kind.of
    return [kind.table] if isinstance(kind, Record) else []


def every(table: type, seen: dict[type, None]) -> dict[type, None]:
    if table not in seen:
        seen[table] = None
        for field in fields_of(table):
            for inner in tables(field.kind):
                every(inner, seen)
    return seen


def test_every_setting_stands_on_the_page() -> None:
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`\n]+)`", PAGE)).casefold()))
    missing = {
        f"{table.__name__}.{field.name}"
        for table in every(Document, {})
        if table is not PoolLimits  # they are those of `Limits`, which another page lists
        for field in fields_of(table)
        if field.name.casefold() not in named
    }
    assert not missing


def test_what_is_exported_has_its_documentation() -> None:
    import afpool.config

    for name in exported:
        assert getattr(afpool.config, name).__doc__, name
    assert {"load_config", "ConfigError", "open_components", "ConfiguredCredentials", "Changes"} <= set(
        re.findall(r"\w+", PAGE)
    )
