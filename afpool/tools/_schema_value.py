"""What a schema says about the value of an argument that the host fills: a string, never an empty one.

A schema that an argument has somewhere is cut down to *atoms*: the demands that some strings meet and others
do not, each on its own and written canonically, so that the same demand in two branches is one atom. What
every string meets (a type, a title, `minLength: 1`) is no atom, and what no string meets is `False`.

Whether a string meets an atom is asked of the validator itself. Whether any string does is not decided for a
pattern: one demand alone is taken to be one that can be met.
"""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import jsonschema_rs

from .._base.canonical import canonical_json
from ._schema_document import URIS, Document, Path

if TYPE_CHECKING:
    from collections.abc import Iterable

Atom: TypeAlias = bytes
Demands: TypeAlias = frozenset[Atom] | Literal[False]

NOTHING: Final[frozenset[Atom]] = frozenset()
_DEEPEST: Final = 200
_LARGEST: Final = 64 * 1024
_BACKTRACKS: Final = 10_000
_SAMPLES: Final = (
    "a", "ab", "abc", "token", "Token-1", "0", "12345678", "a" * 16, "A1" * 16, "b" * 64, "x@example.com",
    "https://example.com/", "2024-02-29", "2024-02-29T12:00:00Z", "127.0.0.1",
    "5b2f6a4e-1d2c-4b3a-9f8e-7d6c5b4a3f2e",
)  # fmt: skip


class CannotCut(Exception):
    """A schema that an argument cannot be taken out of without changing what else it accepts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def compiled(schema: Any) -> Any | None:
    """Compile a schema of a few keywords; `None` where the validator does not take it."""
    return _compiled(schema, jsonschema_rs.RegexOptions()) or _compiled(
        schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    )


def _compiled(schema: Any, options: Any) -> Any | None:
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=options)
    except Exception:  # noqa: BLE001 -- whatever is wrong with it, it is a stranger's
        return None


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of `patternProperties` takes in a property.

    Raises:
        CannotCut: Nobody can read the pattern.
    """
    validator = compiled({"patternProperties": {pattern: False}})
    if validator is None:
        raise CannotCut("a pattern of its property names cannot be read")
    return not validator.is_valid({name: 0})


_judges: dict[tuple[Atom, int], Any] = {}
_JUDGES: Final = 1024


def meets(atom: Atom, text: str, draft: int) -> bool | None:
    """Whether a string meets a demand; `None` where the validator cannot say."""
    key = (atom, draft)
    if key not in _judges:
        if len(_judges) >= _JUDGES:
            _judges.clear()
        _judges[key] = compiled({"$schema": URIS[draft], **json.loads(atom)})
    judge = _judges[key]
    if judge is None:
        return None
    try:
        return bool(judge.is_valid(text))
    except ValueError:
        return None  # a pattern that gave up


@final
class Values:
    """Reads the demands on an argument's value; remembers what it has read."""

    __slots__ = ("_document", "_open", "_read")

    def __init__(self, document: Document) -> None:
        self._document = document
        self._read: dict[Path, Demands] = {}
        self._open: set[Path] = set()

    def demands(self, path: Path) -> Demands:
        """Give the atoms of the schema at a path; `False` where no string meets it.

        Raises:
            CannotCut: The schema refers to itself without an end, or to something that is not in it.
        """
        known = self._read.get(path)
        if known is not None:
            return known
        if path in self._open:
            raise CannotCut("what it says of the argument refers to itself without an end")
        if len(self._open) > _DEEPEST:
            raise CannotCut("what it says of the argument refers on and on")
        self._open.add(path)
        try:
            found = self._node(self._document.at(path), path)
        finally:
            self._open.discard(path)
        self._read[path] = found
        return found

    def takes_name(self, path: Path, name: str) -> bool:
        """Whether a schema of property names (`propertyNames`) takes a name that is not empty.

        Raises:
            CannotCut: As `demands`, or nobody can read a part of it.
        """
        demands = self.demands(path)
        if demands is False:
            return False
        met = [meets(atom, name, self._document.draft) for atom in demands]
        if None in met:
            raise CannotCut("what its property names must be cannot be read")
        return all(met)

    def _node(self, node: Any, path: Path) -> Demands:
        if isinstance(node, bool):
            return NOTHING if node else False
        if not isinstance(node, dict):
            return NOTHING  # no schema, and so none that anybody validates by
        document = self._document
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise CannotCut("what it says of the argument is found by a dynamic reference")
        parts: list[Demands] = []
        reference = node.get("$ref")
        if isinstance(reference, str):
            target = document.resolve(reference, path)
            if target is None:
                raise CannotCut("what it says of the argument is not in it, and is never fetched")
            parts.append(self.demands(target))
            if document.alone(node):
                return parts[0]
        parts += self._own(node)
        parts += self._of_several(node, path)
        return _all(parts)

    def _own(self, node: dict[str, Any]) -> Iterable[Demands]:
        kinds = node.get("type")
        if (isinstance(kinds, str) and kinds != "string") or (
            isinstance(kinds, list) and "string" not in kinds
        ):
            yield False
        if "const" in node and self._document.active("const"):
            yield one_of([node["const"]])
        if isinstance(node.get("enum"), list):
            yield one_of(node["enum"])
        shortest, longest = _number(node.get("minLength")), _number(node.get("maxLength"))
        if shortest is not None and shortest > 1:
            yield _atom({"minLength": shortest})
        if longest is not None:
            yield False if longest < 1 else _atom({"maxLength": longest})
        if isinstance(node.get("pattern"), str):
            yield _atom({"pattern": node["pattern"]})
        if isinstance(node.get("format"), str) and self._document.draft <= 7:
            yield _atom({"format": node["format"]})  # from 2019-09 on a remark

    def _of_several(self, node: dict[str, Any], path: Path) -> Iterable[Demands]:
        def below(keyword: str) -> list[Demands]:
            found = node.get(keyword)
            if not isinstance(found, list):
                return []
            return [self.demands((*path, keyword, index)) for index in range(len(found))]

        yield from below("allOf")
        if isinstance(node.get("anyOf"), list):
            yield _any(below("anyOf"))
        if isinstance(node.get("oneOf"), list):
            yield _one(below("oneOf"))
        if "not" in node:
            yield _not(self.demands((*path, "not")))
        if "if" in node and self._document.active("if"):
            condition = self.demands((*path, "if"))
            then = self.demands((*path, "then")) if "then" in node else NOTHING
            other = self.demands((*path, "else")) if "else" in node else NOTHING
            yield _branch(condition, then, other)


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _atom(schema: dict[str, Any]) -> frozenset[Atom]:
    atom = canonical_json(schema)
    if len(atom) > _LARGEST:
        raise CannotCut("what it demands of the argument's value takes too many words")
    return frozenset((atom,))


def one_of(values: list[Any]) -> Demands:
    """Give the demand to be one of the strings among these values."""
    texts = sorted({value for value in values if isinstance(value, str) and value})
    return _atom({"enum": texts}) if texts else False


def _schema(demands: Demands) -> dict[str, Any]:
    return (
        {"not": {}} if demands is False else {"allOf": [json.loads(atom) for atom in sorted(demands)] or [{}]}
    )


def _all(parts: Iterable[Demands]) -> Demands:
    together: set[Atom] = set()
    for part in parts:
        if part is False:
            return False
        together |= part
    return frozenset(together)


def _any(parts: list[Demands]) -> Demands:
    left = {part for part in parts if part is not False}
    if not left:
        return False
    if NOTHING in left:
        return NOTHING
    if len(left) == 1:
        return left.pop()
    return _atom({"anyOf": sorted((_schema(part) for part in left), key=canonical_json)})


def _one(parts: list[Demands]) -> Demands:
    left = [part for part in parts if part is not False]
    if not left or left.count(NOTHING) > 1:
        return False
    if len(left) == 1:
        return left[0]
    return _atom({"oneOf": sorted((_schema(part) for part in left), key=canonical_json)})


def _not(part: Demands) -> Demands:
    if part is False:
        return NOTHING
    return _atom({"not": _schema(part)}) if part else False


def _branch(condition: Demands, then: Demands, other: Demands) -> Demands:
    if condition is False:
        return other
    if not condition or then == other:
        return then
    # without `if`, which draft 6 and before do not know: either both, or not the one and the other
    met: list[Demands] = [_all([condition, then]), _all([_not(condition), other])]
    return _any(met)


def finite(atoms: Iterable[Atom]) -> list[str] | None:
    """Give the strings that alone are allowed, where an atom lists them."""
    for atom in atoms:
        schema = json.loads(atom)
        if "enum" in schema:
            return list(schema["enum"])
    return None


def lengths_of(atoms: Iterable[Atom]) -> tuple[float, float]:
    """Give the largest of the least lengths and the smallest of the greatest that the atoms demand."""
    schemas = [json.loads(atom) for atom in atoms]
    shortest = max((schema.get("minLength", 1) for schema in schemas), default=1)
    return shortest, min((schema.get("maxLength", inf) for schema in schemas), default=inf)


def witness(wanted: Iterable[Atom], unwanted: Iterable[Atom], draft: int) -> str | None:
    """Look for a string that meets all of `wanted` and none of `unwanted`; `None` where none was found."""
    wanted, unwanted = list(wanted), list(unwanted)
    for text in _candidates([*wanted, *unwanted]):
        if all(meets(atom, text, draft) is True for atom in wanted) and all(
            meets(atom, text, draft) is False for atom in unwanted
        ):
            return text
    return None


def _candidates(atoms: list[Atom]) -> Iterable[str]:
    texts: list[str] = []
    lengths: list[int] = []
    waiting: list[Any] = [json.loads(atom) for atom in atoms]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            texts += node.get("enum", ())
            lengths += [node[key] for key in ("minLength", "maxLength") if key in node]
            waiting += [node[key] for key in ("allOf", "anyOf", "oneOf", "not") if key in node]
    yield from texts
    yield from _SAMPLES
    for length in lengths:
        if length <= 4096:
            yield from (sample * length for sample in ("A", "0"))
            yield from (text[:length] for text in texts)
            yield from (text + "a" * (length - len(text)) for text in (*texts, *_SAMPLES))
            yield "a" * (length + 1)
            yield "a" * (length - 1) or "a"
