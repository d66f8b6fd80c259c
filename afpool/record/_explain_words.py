"""How explanations write times, names, numbers and lists.

A name may be a stranger's: a tool is called what its server likes. What is written here is bounded, stands on
one line and moves no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_NAME: Final = 80


def took(seconds: float) -> str:
    """Write a duration for people: `0.4 ms`, `38 ms`, `2.41 s`, `3 min 12 s`."""
    if seconds != seconds:  # noqa: PLR0124 -- a time that is no number
        return "? s"
    size = abs(seconds)
    if size == float("inf"):
        return "∞ s"
    if size < 0.00005:
        return "0 ms"
    if size < 0.00995:
        return f"{seconds * 1e3:.1f} ms"
    if size < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if size < 59.995:
        return f"{seconds:.2f} s"
    if size < 3599.5:
        minutes, rest = divmod(round(size), 60)
        return f"{'-' if seconds < 0 else ''}{minutes} min {rest} s"
    hours, rest = divmod(round(size / 60), 60)
    return f"{'-' if seconds < 0 else ''}{hours} h {rest} min"


def after(seconds: float) -> str:
    """Write a time since the call began: `+38 ms`, `-2.10 s`."""
    text = took(seconds)
    return text if text.startswith("-") else f"+{text}"


def plain(text: object, most: int = MAX_NAME) -> str:
    """Write somebody's text on one line, bounded, with nothing in it that is not to be seen."""
    whole = str(text)
    text = "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" if ord(char) < 256 else "·"
        for char in whole[:most]
    )
    return f"{text}…" if len(whole) > most else text


def quoted(text: object, most: int = MAX_NAME) -> str:
    """Write a name between backticks."""
    return f"`{plain(text, most).replace('`', chr(39))}`"


def size(count: int) -> str:
    """Write a number of bytes."""
    if count < 10_000:
        return f"{count} byte{'' if count == 1 else 's'}"
    return f"{count / 1e3:,.0f} kB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"


def share(part: float, whole: float) -> str:
    """Write a part of a whole in percent; empty where that means nothing."""
    if not whole > 0 or part != part:  # noqa: PLR0124 -- a time that is no number
        return ""
    ratio = part / whole
    return f"{ratio * 100:.0f} %" if ratio < 10 else ""


def listed(words: Sequence[str], most: int = 5) -> str:
    """Write `a, b and c`; of more than `most`, how many others there are."""
    told, rest = words[:most], len(words) - most
    if rest > 0:
        return f"{', '.join(told)} and {rest} other{'' if rest == 1 else 's'}"
    return " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))


def sentence(parts: Iterable[str]) -> str:
    """Join what belongs to one sentence by semicolons, leaving out what is empty."""
    return "; ".join(part for part in parts if part)
