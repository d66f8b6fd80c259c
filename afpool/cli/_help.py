"""Help, made of the descriptions of the commands."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from ._commands import AFPOOL, EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._spec import Command, Option

_EXIT_CODES: Final = "0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted"
_WIDEST: Final = 100


def render(way: Sequence[Command], width: int, strong: Callable[[str], str] = str) -> str:
    """Give the help of a command.

    Args:
        way: The commands from `afpool` down to it.
        width: Of the terminal.
        strong: Makes a title stand out.
    """
    command = way[-1]
    called = " ".join(each.name for each in way)
    width = min(width, _WIDEST)
    lines: list[str] = []
    if command is AFPOOL:
        lines += [f"afpool: {command.help}", ""]
    else:
        lines += [*textwrap.wrap(" ".join(command.about.split()), width), ""]
    lines += [strong("usage: ") + _usage(called, command), ""]
    for group in dict.fromkeys(each.group for each in command.below):
        listed = [(each.name, each.help) for each in command.below if each.group == group]
        lines += [strong(f"{group}:"), *rows_of(listed, width), ""]
    placed = [option for option in command.options if option.positional]
    if placed:
        lines += [strong("arguments:"), *rows_of([(one.names[0], one.help) for one in placed], width), ""]
    named = [option for option in command.options if not option.positional]
    everywhere = list(EVERYWHERE) if not command.below or command is AFPOOL else []
    shown = [(_names(option), _said(option)) for option in (*named, *everywhere)]
    if command is AFPOOL:
        shown.append(("--version", "Print the version and end"))
    if shown:
        lines += [strong("options:"), *rows_of(shown, width), ""]
    if command.examples:
        lines.append(strong("examples:"))
        for line, what in command.examples:
            lines += [f"  {line}"] + ([f"      {what}"] if what else [])
        lines.append("")
    if command.below:
        lines.append(f"{called} COMMAND --help says more of a command.")
    if command is AFPOOL:
        lines.append(f"Exit codes: {_EXIT_CODES}.")
    return "\n".join(lines).rstrip("\n") + "\n"


def _usage(called: str, command: Command) -> str:
    if command.below:
        return f"{called} COMMAND [OPTION...]"
    words = [called]
    for option in command.options:
        if option.positional:
            name = option.names[0] + ("..." if option.many else "")
            words.append(name if option.needed else f"[{name}]")
    return " ".join([*words, "[OPTION...]"])


def _names(option: Option) -> str:
    short = [name for name in option.names if not name.startswith("--")]
    long = [name for name in option.names if name.startswith("--")]
    text = ", ".join([*short, *long]) if short else f"    {long[0]}"
    return f"{text} {option.takes}" if option.takes else text


def _said(option: Option) -> str:
    text = option.help
    if option.choices:
        text += f" ({', '.join(option.choices)})"
    if option.many:
        text += "; may be repeated"
    return text


def rows_of(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Lay out names and what is said of each, in two columns."""
    left = min(max(len(name) for name, _ in rows), 26)
    indent = " " * (left + 4)
    lines = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, max(width - left - 4, 24)) or [""]
        if len(name) > left:
            lines += [f"  {name}", *(indent + part for part in wrapped)]
        else:
            lines += [f"  {name:<{left}}  {wrapped[0]}", *(indent + part for part in wrapped[1:])]
    return lines
