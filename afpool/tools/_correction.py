"""What a model is told of a call that it got wrong: a name that there is not, arguments that are refused.

Rules:

* At most ten issues, each with a path, what was expected and the type of what came. A model that reads them
  can make the call again, and right.
* A value is quoted only where its shape is what is wrong (a pattern, a length, a choice), cut to 80
  characters, and only where the tool shows it: of an argument that a view hides only the type is said.
* Words of the schema (names, choices, descriptions) are a stranger's as well: they are cut, too.
* A validator is asked for faults only where telling all of them takes little memory, and so little time: it
  makes each of them, some 30 us for 1,500 bytes, before it gives the first, and the loop waits. Else the
  plain part of the schema is walked (`_correction_large`); where that finds nothing, one fault has to do.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jsonschema_rs

from ._correction_large import (
    EAGER_BYTES,
    Found,
    deeper_than_is_read,
    faults_of_large,
    memory_of_faults,
)
from ._results import mended

if TYPE_CHECKING:
    from .._base.compiled import Compiled

MAX_ISSUES: Final = 10
MAX_EXCERPT: Final = 80
MAX_NAME: Final = 128
MAX_TOLD: Final = 50
_COMPARED: Final = 2_000
_MAX_HINT: Final = 160
_MAX_NAMES: Final = 10
_MAX_PATH: Final = 160
_FIRST_BYTES: Final = 1 << 27
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_MISSING: Final = object()

_BOUNDS: Final = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} members",
    "maxProperties": "at most {} members",
    "multipleOf": "a multiple of {}",
}
_QUOTED: Final = frozenset({"pattern", "minLength", "maxLength", "enum", "const", "format"})


def unknown_tool(name: str, names: Sequence[str]) -> str:
    """Say that there is no tool of a name, and which there are: the nearest first, at most fifty."""
    name = name[:MAX_NAME]
    if not names:
        return f"There is no tool {name!r}, and no other one; nothing ran"
    nearest = difflib.get_close_matches(name, names, 3) if len(names) <= _COMPARED else []
    told = [*nearest, *(one for one in names if one not in nearest)][:MAX_TOLD]
    more = f" and {len(names) - len(told)} more" if len(names) > len(told) else ""
    return f"There is no tool {name!r}; nothing ran. There are: {', '.join(told)}{more}"


class Issue(NamedTuple):
    """One thing that is wrong with arguments.

    Attributes:
        said: For a model.
        place: JSON pointer and keyword of the schema, for a record; empty where it is about no one place.
    """

    said: str
    place: str = ""


def correction(tool: str, args: Mapping[str, Any], shown: Mapping[str, Any], compiled: Compiled) -> str:
    """Say what is wrong with arguments that `compiled` does not allow, for a model; see `issues_of`."""
    return correction_of(tool, issues_of(args, shown, compiled))


def correction_of(tool: str, issues: Iterable[Issue]) -> str:
    """Say what is wrong with arguments, for a model.

    Args:
        tool: The tool's name, as the model knows it.
        issues: As `issues_of` gives them.
    """
    return "\n".join(
        [
            f"The arguments for {tool} are invalid, and the tool was not run:",
            *(f"- {issue.said}" for issue in issues),
            "Correct them and call again.",
        ]
    )


def issues_of(args: Mapping[str, Any], shown: Mapping[str, Any], compiled: Compiled) -> list[Issue]:
    """Find what is wrong with arguments that `compiled` does not allow: ten issues at most.

    Args:
        args: What was judged.
        shown: The same as a record may show it; what differs in it is not quoted.
        compiled: The schema that refuses them.
    """
    costly = compiled.too_costly(args)
    if costly is not None:
        return [Issue(f"the arguments: {costly}")]
    issues = list(itertools.islice(_issues(args, shown, compiled), MAX_ISSUES + 1))
    if len(issues) > MAX_ISSUES:
        issues[MAX_ISSUES] = Issue("and more of the kind")
    return issues


def _issues(args: Mapping[str, Any], shown: Mapping[str, Any], compiled: Compiled) -> Iterator[Issue]:
    said: set[str] = set()
    try:
        for issue in _of_all(args, shown, compiled):
            if issue.said not in said:
                said.add(issue.said)
                yield issue
    except ValueError:
        pass  # the validator cannot read it
    if not said:
        yield Issue(_of_the_whole(args))


def _of_all(args: Mapping[str, Any], shown: Mapping[str, Any], compiled: Compiled) -> Iterator[Issue]:
    took = memory_of_faults(args, compiled.breadth, _FIRST_BYTES)
    if took > EAGER_BYTES:
        if took <= _FIRST_BYTES and deeper_than_is_read(args):
            return  # that is what has to change first, and is said of the whole
        nothing = True
        for found in faults_of_large(args, compiled.schema):
            nothing = False
            yield Issue(_issue_of_large(found, args, shown), _place(found.path, found.word))
        if nothing and took <= _FIRST_BYTES:
            try:
                compiled.validator.validate(args)
            except jsonschema_rs.ValidationError as error:  # the first one: no other is made
                yield _told(error, args, shown, compiled.schema)
        return
    for fault in compiled.validator.iter_errors(args):
        yield _told(fault, args, shown, compiled.schema)


def _told(fault: Any, args: Any, shown: Any, schema: Any) -> Issue:
    return Issue(_issue(fault, args, shown, schema), _place(fault.instance_path, str(fault.kind.name)))


def _place(path: Sequence[str | int], word: str) -> str:
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
    return f"{_cut(pointer, _MAX_PATH) or '/'} {word}"


def _of_the_whole(args: Mapping[str, Any]) -> str:
    if deeper_than_is_read(args):
        return "the arguments: nested too deeply to be checked against the schema; send something flatter"
    return (
        "the arguments: not what the schema allows, and too large to say where; send less, or only what the "
        "schema names"
    )


def _issue_of_large(found: Found, args: Any, shown: Any) -> str:
    if found.word == "required":
        return f"{_path(found.path)}: required but missing"
    if found.word == "additionalProperties":
        return _not_known(_path(found.path), found.what, found.place.get("properties"))
    if isinstance(found.what, int):
        return f"{_path(found.path)}: none of {found.what} alternatives allows it"
    return _issue(found.what, args, shown, found.place, at=found.path)


def _issue(
    error: Any, args: Any, shown: Any, schema: Any, *, nested: bool = False, at: Sequence[str | int] = ()
) -> str:
    kind = error.kind
    word = str(kind.name)
    path = [*at, *error.instance_path]
    where = _path(path)
    value = _at(args, path)
    if word == "required":
        return f"{_path([*path, kind.property])}: required but missing"
    if word in ("additionalProperties", "unevaluatedProperties"):
        known = _at(_holder(schema, error.schema_path), ["properties"])
        return _not_known(where, kind.unexpected, known)
    if word in ("anyOf", "oneOf") and getattr(kind, "context", None):
        if nested:
            return f"{where}: none of {len(kind.context)} alternatives allows it"
        return f"{where}: {_alternatives(kind.context, word, args, shown, schema, at)}"
    said = f"{where}: expected {_expected(kind, word)}, got {type_name(value)}"
    if word in _QUOTED and isinstance(value, str) and _at(shown, path) is value:
        said += f" {quoted(value)}"
    hint = _at(_holder(schema, error.schema_path), ["description"])
    if word in _QUOTED and isinstance(hint, str) and hint.strip():
        said += f" ({_cut(' '.join(hint.split()), _MAX_HINT)})"
    return said


def _not_known(where: str, unknown: Any, known: Any) -> str:
    takes = f"; known are {_list(known)}" if isinstance(known, Mapping) and known else ""
    return f"{where}: not known: {_list(unknown)}{takes}"


def _expected(kind: Any, word: str) -> str:
    if word == "type":
        return " or ".join(kind.types)
    if word == "enum":
        return f"one of {_list(kind.options)}"
    if word == "const":
        return quoted(kind.expected_value)
    if word == "pattern":
        return f"a string that matches {_cut(kind.pattern, MAX_EXCERPT)}"
    if word == "format":
        return f"the format {_cut(kind.format, MAX_EXCERPT)}"
    if word == "uniqueItems":
        return "items that differ"
    if word in _BOUNDS:
        return _BOUNDS[word].format(getattr(kind, "limit", None) or getattr(kind, "multiple_of", 0))
    if word == "falseSchema":
        return "nothing here"
    return f"what {word} allows"


def _alternatives(
    context: list[list[Any]], word: str, args: Any, shown: Any, schema: Any, at: Sequence[str | int]
) -> str:
    """Name what is wrong with the alternative that comes nearest: the fewest faults, the deepest ones."""
    if any(not errors for errors in context):
        return f"more than one of the {len(context)} alternatives of {word} allow it"
    nearest = min(context, key=lambda errors: (len(errors), -max(len(one.instance_path) for one in errors)))
    issue = _issue(nearest[0], args, shown, schema, nested=True, at=at)
    return f"none of {len(context)} alternatives allows it; the nearest: {issue}"


def _holder(schema: Any, path: list[str | int]) -> Any:
    """Give the schema place that a fault's keyword stands in; `None` where a reference lies between."""
    return _at(schema, path[:-1])


def _at(value: Any, path: list[str | int]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return value


def _path(path: list[str | int]) -> str:
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif _IDENTIFIER.match(step):
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f"[{quoted(step)}]")
    return _cut("".join(parts), _MAX_PATH) if parts else "the arguments"


def type_name(value: Any) -> str:
    """Name the JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list | tuple) else "nothing"


def quoted(value: Any) -> str:
    """Write a value for a sentence: as JSON, cut."""
    if isinstance(value, str):
        value = value if len(value) <= MAX_EXCERPT else value[:MAX_EXCERPT] + "…"
    try:
        return _cut(json.dumps(mended(value), ensure_ascii=False), MAX_EXCERPT + 16)
    except (TypeError, ValueError, RecursionError):
        return type_name(value)


def _list(values: Any) -> str:
    first = [quoted(value) for value in itertools.islice(values, _MAX_NAMES)]
    more = len(values) - len(first)
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _cut(text: str, limit: int) -> str:
    text = mended(text)
    return text if len(text) <= limit else text[:limit] + "…"
