"""From what was typed to words and options. Reads anything, in one pass, and raises only `CommandError`.

    show actors server=desk waiting>3 sort=-waiting --reveal

* A word is anything between blanks; quotes (`'` or `"`) hold blanks, a backslash takes the next character.
* `name=value` and `name<value`, `name>value`, `name!=value` are options where the name is a plain word; the
  value of all but the first form keeps its sign in front (`>3`, `!idle`). What is quoted is never an option.
* `--name` is `name=yes`, `--name=value` is `name=value`.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from ._ask import CommandError, quoted, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._ask import ErrorCode

LONGEST: Final = 4096
"""Characters of a command, its options included."""
MOST: Final = 64
"""Words and options of a command."""

_OPTION: Final = re.compile(r"(?:--)?([a-z][a-z0-9_-]{0,30})(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_SWITCH: Final = re.compile(r"--([a-z][a-z0-9_-]{0,30})")
_COMPARED: Final = 64


def parse_line(line: str) -> tuple[list[str], dict[str, str]]:
    """Take a line apart.

    Raises:
        CommandError: It is too long, holds control characters, an open quote, or one option twice.
    """
    if len(line) > LONGEST:
        raise CommandError("too-long", f"a command has at most {LONGEST} characters, this one {len(line)}")
    words: list[str] = []
    options: dict[str, str] = {}
    for word, in_quotes in _lexed(line):
        match = None if in_quotes else _OPTION.fullmatch(word)
        switch = None if in_quotes or match else _SWITCH.fullmatch(word)
        if match is not None:
            name, sign, value = match.groups()
            _set(options, name, value if sign == "=" else f"!{value}" if sign == "!=" else sign + value)
        elif switch is not None:
            _set(options, switch[1], "yes")
        else:
            words.append(word)
    if len(words) + len(options) > MOST:
        raise CommandError("too-long", f"a command has at most {MOST} words and options")
    return words, options


def parse_words(
    words: Sequence[object], options: Mapping[object, object] | None
) -> tuple[list[str], dict[str, str]]:
    """Check what a program sent instead of a line: words as they are, options by name.

    Raises:
        CommandError: As `parse_line`; also where something is no string.
    """
    options = {} if options is None else options
    if not words or not all(isinstance(word, str) for word in words):
        raise CommandError("bad-option", "a command is a list of at least one word, each a string")
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in options.items()):
        raise CommandError("bad-option", "options are an object of strings, by name")
    given = [str(word) for word in words]
    named = {str(name): str(value) for name, value in options.items()}
    total = sum(map(len, given)) + sum(len(name) + len(value) for name, value in named.items())
    if total > LONGEST:
        raise CommandError("too-long", f"a command has at most {LONGEST} characters, this one {total}")
    if len(given) + len(named) > MOST:
        raise CommandError("too-long", f"a command has at most {MOST} words and options")
    for text in (*given, *named, *named.values()):
        _check(text)
    return given, named


def nearest(word: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names that a word was probably meant as, best first."""
    if len(word) > _COMPARED:
        return []
    known = list(names)
    begun = [name for name in known if word and name.startswith(word)]
    close = difflib.get_close_matches(word.casefold(), known, n=most, cutoff=0.5)
    return list(dict.fromkeys((*begun, *close)))[:most]


def _set(options: dict[str, str], name: str, value: str) -> None:
    if name in options:
        raise CommandError("bad-option", f"{name} is given twice")
    options[name] = value


def _check(text: str) -> None:
    if not text.isprintable() and any(
        char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in text
    ):
        raise CommandError("bad-option", "a command holds no control characters")


def _lexed(line: str) -> list[tuple[str, bool]]:
    """Words of a line, and whether each began with a quote."""
    _check(line.replace("\t", " ").rstrip("\r\n"))
    found: list[tuple[str, bool]] = []
    word: list[str] | None = None
    began_quoted = False
    quote = ""
    escaped = False
    for char in line:
        if escaped:
            assert word is not None
            word.append(char)
            escaped = False
        elif char == "\\" and quote != "'":
            if word is None:
                word, began_quoted = [], False
            escaped = True
        elif quote:
            assert word is not None
            if char == quote:
                quote = ""
            else:
                word.append(char)
        elif char in "'\"":
            if word is None:
                word, began_quoted = [], True
            quote = char
        elif char in " \t\r\n":
            if word is not None:
                found.append(("".join(word), began_quoted))
                word = None
        else:
            if word is None:
                word, began_quoted = [], False
            word.append(char)
    if quote:
        raise CommandError("bad-option", f"the quote {quote} is not closed")
    if escaped:
        raise CommandError("bad-option", "the line ends with a backslash")
    if word is not None:
        found.append(("".join(word), began_quoted))
    return found


def unknown(
    code: ErrorCode, what: str, word: str, names: Iterable[str], *, tries: str = "{}"
) -> CommandError:
    """Make the error of a name that there is not, with the nearest ones.

    Args:
        code: For programs.
        what: Which kind of name.
        word: What was typed.
        names: What there is.
        tries: A command that works, with one of the nearest names in place of `{}`; without it one for all.
    """
    names = sorted(names)
    close = nearest(word, names)
    lines = [tries.replace("{}", quoted(name)) for name in close] if "{}" in tries else [tries]
    listing = f"; there are {', '.join(names)}" if len(names) <= 40 and names else ""
    hint = f"; did you mean {close[0]}?" if close else listing
    return CommandError(code, f"there is no {what} {shown(word)}{hint}", lines)
