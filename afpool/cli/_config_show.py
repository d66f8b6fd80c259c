"""`afpool config show`: every value, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._failures import Usage
from ._parsing import nearest
from ._reading import configured

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ._output import Output


def run(options: argparse.Namespace, out: Output) -> int:
    """Show a configuration."""
    config, _ = configured(options, out)
    rows = []
    tables = {key.rpartition(".")[0] for key in config.origins}
    for key, origin in config.origins.items():
        if key in tables:
            continue  # its members are shown
        if (options.changed and origin.kind == "default") or not _below(key, options.key):
            continue
        rows.append((key, config.shown.get(key), origin))
    if options.key and not rows and not any(_below(key, options.key) for key in config.origins):
        tops = {key.rpartition(".")[0] for key in config.origins} | set(config.origins)
        near = nearest(options.key[0], tops)
        raise Usage("there is no such setting" + (f"; did you mean {near!r}?" if near else ""))
    if out.json:
        out.document(
            [
                {
                    "key": key,
                    "value": _plain(value),
                    "origin": {
                        "kind": origin.kind,
                        "file": origin.file,
                        "line": origin.line,
                        "variables": list(origin.variables),
                    },
                }
                for key, value, origin in rows
            ]
        )
        return 0
    out.table(
        ("setting", "value", "from"),
        [(key, _written(value), str(origin)) for key, value, origin in rows],
        lambda row, column: "dim" if rows[row][2].kind == "default" and column > 0 else None,
    )
    return 0


def _below(key: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(key == each or key.startswith((f"{each}.", f"{each}[")) for each in wanted)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if hasattr(value, "items"):
        return {str(name): _plain(each) for name, each in value.items()}
    return str(value)


def _written(value: Any) -> str:
    import json

    plain = _plain(value)
    if plain is None:
        return "-"
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
