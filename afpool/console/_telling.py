"""What can be asked, said: for people as `help`, for programs as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._parse import unknown
from ._spec import filters_named

if TYPE_CHECKING:
    from ._ask import Ask, Level
    from ._registry import Registry


def tables_told(registry: Registry) -> dict[str, Any]:
    """The tables as a table."""
    rows = [[table.name, table.help] for table in registry.tables.values()]
    columns = [{"name": "table", "kind": "text"}, {"name": "what", "kind": "text"}]
    return {
        "kind": "table", "table": "tables", "columns": columns, "rows": rows, "total": len(rows),
        "shown": len(rows),
    }  # fmt: skip


def described(registry: Registry, level: Level) -> dict[str, Any]:
    """What there is for a level, as data."""
    commands = [
        {
            "words": list(command.words), "usage": command.usage, "help": command.help,
            "level": command.level, "options": list(command.options),
        }
        for command in registry.commands.values()
        if level == "operate" or command.level == "read"
    ]  # fmt: skip
    tables = [
        {
            "name": table.name,
            "help": table.help,
            "columns": [
                {"name": column.name, "kind": column.kind, "help": column.help} for column in table.columns
            ],
            "filters": filters_named(table),
        }
        for table in registry.tables.values()
    ]
    return {"commands": commands, "tables": tables}


def helped(registry: Registry, ask: Ask) -> dict[str, Any]:
    """How to ask: for everything, or for what is named.

    Raises:
        CommandError: There is nothing of that name.
    """
    if not ask.words:
        lines = [
            f"{command.usage:<58} {command.help}"
            for _, command in sorted(registry.commands.items())
            if command.level == "read" or ask.asker.level == "operate"
        ]
        lines += ["", f"tables: {', '.join(sorted(registry.tables))}"]
        return {"kind": "text", "lines": lines}
    words = [word for word in ask.words if word != "show"] or ["show"]
    table = registry.tables.get(words[0])
    commands = [
        command
        for names, command in sorted(registry.commands.items())
        if names[: len(ask.words)] == ask.words
    ]
    if table is None and not commands:
        known = {*registry.tables, *(names[0] for names in registry.commands)}
        raise unknown("unknown-command", "command or table", words[0], known, tries="help {}")
    lines = []
    for command in commands:
        lines += [command.usage, f"    {command.help}"]
        if command.level == "operate":
            lines.append("    needs the operate level")
    if table is not None:
        width = max(len(column.name) for column in table.columns)
        lines += [f"show {table.name}", f"    {table.help}"]
        lines += [f"    {column.name:<{width}}  {column.kind:<8} {column.help}" for column in table.columns]
        lines.append(f"    filters: {', '.join(filters_named(table))}")
    return {"kind": "text", "lines": lines}
