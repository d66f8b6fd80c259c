"""Reading a file that anybody may have put there: bounded, text or refused; what is no file is not read."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from typing import TYPE_CHECKING, Any, Final

from ._positions import DEEPEST, json_lines, overlong_key, toml_lines

if TYPE_CHECKING:
    from pathlib import Path

    from ._positions import Path as KeyPath

MOST_BYTES: Final = 1024 * 1024
"""The largest file that is read."""

_BOMS: Final = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_AT: Final = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")
_WORDS: Final = (
    ("Exceeds the limit", "a number has too many digits"),
    ("Invalid value", "a value was expected; a string stands in quotes"),
    ("Invalid statement", "a key or a [table] was expected"),
    ("Expected '='", "a key is followed by = and a value"),
    ("Expected ']", "the name of a table is not closed"),
    ("Expected newline", "a key and its value stand on a line of their own"),
    (
        "Invalid initial character",
        "a key was expected; one with other signs than A-Za-z0-9_- stands in quotes",
    ),
    ("Unclosed array", "a list is not closed"),
    ("Unclosed inline table", "an inline table is not closed, or goes over several lines"),
    ("Unterminated string", "a string is not closed"),
    ("Expected ", "a string is not closed"),
    ("Unescaped", "a backslash in a string begins an escape; write it twice, or use single quotes"),
    ("Invalid hex", "an escape in a string is none"),
    ("Escaped character", "an escape in a string is none"),
    ("Illegal character", "a line break or a control character stands in a string or a comment"),
    ("Found invalid character", "a control character stands in a comment or a string"),
    ("Invalid date", "a date or time is none"),
)


class BadFile(Exception):
    """Why a file cannot be read; holds nothing of what stands in it."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


def read_text(path: Path) -> str:
    """Read a text file of at most `MOST_BYTES`.

    Raises:
        BadFile: It is not there, no file, too large, or no text in UTF-8.
    """
    try:
        # what is opened without a wait is looked at before anything is read: a pipe would never end
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_kind(os.fstat(descriptor))
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise BadFile("there is no such file") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name cannot be one"
        raise BadFile(f"it cannot be read: {why}") from None
    if len(data) > MOST_BYTES:
        raise BadFile(f"it has more than {MOST_BYTES} bytes, which no configuration has")
    return _decoded(data)


def _check_kind(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise BadFile("it is a folder, and a file is expected")
    if not stat.S_ISREG(found.st_mode):
        raise BadFile("it is no regular file but a pipe or a device, and cannot be read again")
    if found.st_size > MOST_BYTES:
        raise BadFile(f"it has {found.st_size} bytes; a configuration has at most {MOST_BYTES}")


def _decoded(data: bytes) -> str:
    for mark, name in _BOMS:
        if data.startswith(mark):
            raise BadFile(f"it is written in {name}; save it as UTF-8")
    if b"\0" in data:
        raise BadFile("it holds zero bytes, so it is no text", data.count(b"\n", 0, data.index(b"\0")) + 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile("it is no text in UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    text = text.replace("\r\n", "\n")
    if not text.strip():
        raise BadFile(
            "it is empty; take it away to use defaults, so that no file that was cut off is taken for one"
        )
    return text


def _check_depth(value: Any) -> None:
    """Refuse what nests deeper than anything that means something; without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise BadFile(f"it nests deeper than {DEEPEST} tables and lists")
        inside: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inside += each.values()
            elif isinstance(each, list):
                inside += each
        level = [each for each in inside if isinstance(each, dict | list)]


def read_toml(text: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Read a TOML text.

    Returns:
        What stands in it, and the line of each key.

    Raises:
        BadFile: It is no TOML, or nests too deep.
    """
    line = overlong_key(text)
    if line is not None:
        raise BadFile(f"a key has more than {DEEPEST} parts", line)
    why: BadFile | None = None
    raw: dict[str, Any] = {}
    try:
        raw = tomllib.loads(text)
    except RecursionError:
        why = BadFile(f"it nests deeper than {DEEPEST} tables and lists")
    except ValueError as error:
        why = _toml_problem(str(error), text)
    if why is not None:
        raise why  # out here, so that no exception behind it quotes the text
    _check_depth(raw)
    return raw, toml_lines(text)


def _toml_problem(message: str, text: str) -> BadFile:
    found = _AT.search(message)
    line = None
    if found is not None:
        line = int(found[1]) if found[1] else text.rstrip("\n").count("\n") + 1
    what = _AT.sub("", message).strip()
    if what.startswith(
        ("Cannot declare", "Cannot overwrite", "Cannot redefine", "Cannot mutate", "Duplicate")
    ):
        what = "one key stands there twice, or as a value and a table"
    else:
        # the parser's own text may quote a sign of the file
        what = next(
            (words for begin, words in _WORDS if what.startswith(begin)), "something else was expected"
        )
    return BadFile(f"it is no TOML: {what}", line)


def read_json(text: str) -> tuple[Any, dict[KeyPath, int]]:
    """Read a JSON text. As `read_toml`."""
    why: BadFile | None = None
    raw: Any = None
    try:
        raw = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        why = BadFile(f"it nests deeper than {DEEPEST} objects and lists")
    except json.JSONDecodeError as error:
        why = _json_problem(text, error.pos, error.lineno)
    except _Constant:
        why = BadFile("it is no JSON: NaN and Infinity are no numbers of it")
    except ValueError:
        why = BadFile("a number has too many digits")
    if why is not None:
        raise why
    _check_depth(raw)
    lines, twice = json_lines(text)
    if twice:
        path, line = twice[0]
        raise BadFile(f"the key {path[-1]!r} stands there twice, first on line {lines[path]}", line)
    return raw, lines


class _Constant(Exception):
    """What JSON has no word for."""


def _no_constant(_: str) -> Any:
    raise _Constant


def _json_problem(text: str, at: int, line: int) -> BadFile:
    rest = text[at : at + 2]
    before = text[:at].rstrip()[-1:]
    if rest[:1] == "/" or before == "/":
        return BadFile("it is no JSON: JSON has no comments; take them out", line)
    if rest[:1] in {"}", "]"} and before == ",":
        return BadFile("it is no JSON: a comma stands before a closing bracket; take it out", line)
    if rest[:1] == "'":
        return BadFile("it is no JSON: strings stand in double quotes", line)
    if before in {"{", ","} and rest[:1].isidentifier():
        return BadFile("it is no JSON: keys stand in double quotes", line)
    if at >= len(text.rstrip()):
        return BadFile("it is no JSON: it ends too early", line)
    return BadFile("it is no JSON: something else was expected here", line)


_ENV_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=[ \t]*(.*?)\s*\Z")


def read_env(text: str) -> dict[str, str]:
    """Read a `.env` text: `NAME=value`, `export`, quotes, comments. Nothing in it is expanded.

    Raises:
        BadFile: A line is none of these.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ENV_LINE.match(line)
        if match is None:
            raise BadFile("expected NAME=value", number)
        value = match[2]
        if value[:1] in {"'", '"'}:
            end = value.find(value[0], 1)
            if end < 0 or not re.fullmatch(r"\s*(?:#.*)?", value[end + 1 :]):
                raise BadFile("a quote is not closed on its line", number)
            inside = value[1:end]
            value = inside.replace("\\n", "\n") if value[0] == '"' else inside
        else:
            value = re.sub(r"\s#.*\Z", "", value)
        found[match[1]] = value
    return found
