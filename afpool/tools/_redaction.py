"""What a record may show of arguments: a policy that selects by name, and the rule that applies it.

Rules:

* Names decide, never contents: a secret in the text of an argument that nobody named is not found.
* A name is hit when it is marked, in `keys`, or found by a pattern. What is hit is replaced whole, whatever
  it is, `None` included; whole beats `fields`.
* Exact names are of any length; patterns look at names of at most 256 characters.
* Nothing is ever changed in place. Where nothing is hidden the very same object comes back; where something
  is, only what leads to it is copied.
* What cannot be judged is hidden: an object that is no JSON where something inside it was named, what nests
  too deeply or contains itself, and what is left when the budget of `VISITS` is used up.
* A policy never changes. Marks belong to a rule, and a rule to one run: two calls are not one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSet
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import attrs

from ._pattern_match import Work
from ._pattern_syntax import compile_pattern
from ._redaction_names import WHOLE, Names, Said
from ._redaction_walk import Walk, hide_paths, spelled, the_same

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

REDACTED: Final = "REDACTED"
"""What stands for a hidden value in recorded arguments and results."""
REDACTED_IN_TEXT: Final = "[REDACTED]"
"""What stands for a hidden value among prose; what a rule uses where nothing else is asked for."""

VISITS: Final = 1_000_000
_SEGMENTS: Final = 100

Marks: TypeAlias = MutableSet[str] | frozenset[str]

_UNKNOWN: Final = object()
_NO_MARKS: Final[Marks] = frozenset()
_NO_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


def _read_names(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"keys are several names, such as [{given!r}], not {type(given).__name__}")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a key is a string, not {type(name).__name__}")
    return names


def _read_patterns(given: Iterable[str | re.Pattern[str]]) -> tuple[re.Pattern[str], ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"patterns are several expressions, such as [{given!r}], not {type(given).__name__}")
    return tuple(map(compile_pattern, given))


def _read_fields(given: Mapping[str, Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(given, Mapping):
        raise TypeError(f"fields map a key to paths inside its value, not {type(given).__name__}")
    read: dict[str, tuple[str, ...]] = {}
    for key, paths in given.items():
        if not isinstance(key, str) or isinstance(paths, str) or not isinstance(paths, Iterable):
            raise TypeError(f"fields map a key to several paths: {{{key!r}: ['a.b', ...]}}")
        read[key] = tuple(paths)
        for path in read[key]:
            if not isinstance(path, str):
                raise TypeError(f"a path under fields[{key!r}] is a string, not {type(path).__name__}")
            if path.count(".") >= _SEGMENTS:
                raise ValueError(f"a path under fields[{key!r}] has more than {_SEGMENTS} parts")
    return MappingProxyType(read)


@final
@attrs.frozen(eq=False)
class RedactionPolicy:
    """Which arguments a record hides, by name.

    Args:
        keys: Exact names, case and all; a dotted one is a path (`auth.token`), or a name with dots in it.
        patterns: Regular expressions, as text or compiled, searched for anywhere in a name of at most 256
            characters. They are matched in linear time, so what no automaton can match is refused.
        fields: Key to dotted paths inside its value: `{"auth": ["token", "keys.0.value"]}`. Each part is a
            member's name or an index; there is no wildcard. What is not there is not made up.
        deep: Look for all of these names at every depth, not only among the arguments themselves.

    Raises:
        TypeError: Something is not of its kind; also a bare string where several are meant.
        ValueError: A pattern is no expression, cannot be matched in linear time, or is too large.
    """

    keys: tuple[str, ...] = attrs.field(default=(), converter=_read_names)
    patterns: tuple[re.Pattern[str], ...] = attrs.field(default=(), converter=_read_patterns)
    fields: Mapping[str, tuple[str, ...]] = attrs.field(default=_NO_FIELDS, converter=_read_fields)
    deep: bool = attrs.field(default=False, kw_only=True)
    names: Names = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: self._ready(), takes_self=True)
    )
    """The same, made ready for being asked; for the package."""

    def _ready(self) -> Names:
        if not isinstance(self.deep, bool):
            raise TypeError(f"deep is True or False, not {type(self.deep).__name__}")
        return Names(self.keys, self.patterns, self.fields)

    @property
    def inert(self) -> bool:
        """Whether it hides nothing, whatever it is asked."""
        return self.names.inert


@attrs.frozen
class RedactionVerdict:
    """What a rule says of one path.

    Attributes:
        kind: `clear`, `whole` or `fields`.
        key: The dotted name that was hit, or the one whose fields are meant.
        paths: Of `fields`: the dotted paths inside the value.
    """

    kind: Literal["clear", "whole", "fields"]
    key: str | None = None
    paths: tuple[str, ...] = ()


CLEAR: Final = RedactionVerdict("clear")


@attrs.frozen
class RedactionReport:
    """What a rule goes by: names, never a value.

    Attributes:
        marked: The marked names.
        fields: Key to paths, as the policy has them.
        patterns: The text of each pattern.
    """

    marked: tuple[str, ...]
    fields: Mapping[str, tuple[str, ...]]
    patterns: tuple[str, ...]


@final
class RedactionRule:
    """A policy at work, with marks of its own.

    Args:
        policy: What to hide.
        marks: A set of marked names to share with other rules; one of its own where absent.

    Synchronous. A rule may be used from several threads if nobody marks meanwhile.
    """

    __slots__ = ("_marks", "policy")

    def __init__(self, policy: RedactionPolicy, marks: MutableSet[str] | None = None) -> None:
        if not isinstance(policy, RedactionPolicy):
            raise TypeError(f"a rule applies a RedactionPolicy, not {type(policy).__name__}")
        self.policy = policy
        self._marks: MutableSet[str] = set() if marks is None else marks

    @property
    def inert(self) -> bool:
        """Whether it hides nothing, whatever it is asked."""
        return not self._marks and self.policy.inert

    def mark(self, key: str) -> None:
        """Make a name, or a dotted path, secret for as long as the marks live."""
        if not isinstance(key, str):
            raise TypeError(f"a key is a string, not {type(key).__name__}")
        self._marks.add(key)

    def unmark(self, key: str) -> None:
        """Take a mark back. What the policy says of the name stays."""
        self._marks.discard(key)

    def report(self) -> RedactionReport:
        """Say what the rule goes by."""
        sources = tuple(pattern.pattern for pattern in self.policy.patterns)
        return RedactionReport(tuple(sorted(self._marks)), self.policy.fields, sources)

    def verdict(self, path: Sequence[str]) -> RedactionVerdict:
        """Judge one path: the names from the top to the value.

        Every dotted beginning of it is looked up, the shortest first; then the `fields` of its first name.
        """
        if not path:
            return CLEAR
        work, policy, dotted = Work(VISITS), self.policy, ""
        for depth, name in enumerate(path):
            dotted = f"{dotted}.{name}" if depth else name
            for told in (dotted, name) if policy.deep else (dotted,):
                if told in self._marks or policy.names.hits(told, work):
                    return RedactionVerdict("whole", dotted)
        inside = [(path[0], path[1:])]
        if policy.deep:
            inside += [(name, path[at + 1 :]) for at, name in enumerate(path) if at]
        under: list[str] = []
        for key, rest in inside:
            relative = ".".join(rest)
            for field in policy.fields.get(key, ()):
                if rest and field == relative:
                    return RedactionVerdict("whole", dotted)
                if not rest:
                    under.append(field)
                elif field.startswith(f"{relative}."):
                    under.append(field[len(relative) + 1 :])
        return RedactionVerdict("fields", dotted, tuple(dict.fromkeys(under))) if under else CLEAR

    def retain(self, path: Sequence[str], value: Any, placeholder: str = REDACTED_IN_TEXT) -> Any:
        """Give the form of one value that may be shown; the value itself where nothing in it is hidden."""
        verdict = self.verdict(path)
        if verdict.kind == "whole":
            return placeholder
        if verdict.paths:
            split = tuple(tuple(inside.split(".")) for inside in verdict.paths)
            value = hide_paths(value, split, placeholder)
        if self.policy.deep and path:
            value = _walk(self.policy, self._marks, placeholder, Work(VISITS)).inside(value, ".".join(path))
        return value

    def retain_record(self, record: Any, placeholder: str = REDACTED_IN_TEXT) -> Any:
        """Give the form of a mapping that may be shown.

        Args:
            record: Names to values. Anything that is no mapping is given back as it is.
            placeholder: What stands for a hidden value.

        Returns:
            The same object where nothing in it is hidden; else a copy in the same order. Hidden values are
            gone from it, everything else is the very object that it was.

        Raises:
            TypeError: A name is nothing that JSON could spell.
        """
        return retain_record(self.policy, record, placeholder, self._marks)


def retain_record(policy: RedactionPolicy, record: Any, placeholder: str, marks: Marks = _NO_MARKS) -> Any:
    """Do what `RedactionRule.retain_record` says, without a rule where nobody marks."""
    names = policy.names
    if names.inert and not marks:
        return record
    if type(record) is not dict and not isinstance(record, Mapping):
        return record
    if marks or policy.deep:
        return _retain_slowly(policy, record, placeholder, marks)
    known = names.known
    work: Work | None = None
    copy: dict[Any, Any] | None = None
    for key in record:
        said = known.get(key, _UNKNOWN)
        if said is None:
            continue
        if said is _UNKNOWN:
            work = work or Work(VISITS)
            said = names.judge(spelled(key), work)
        copy = _replace(record, copy, key, _kept(record[key], said, placeholder))
    return record if copy is None else copy


def _retain_slowly(policy: RedactionPolicy, record: Mapping[Any, Any], placeholder: str, marks: Marks) -> Any:
    walk = _walk(policy, marks, placeholder, Work(VISITS))
    copy: dict[Any, Any] | None = None
    for key, value in record.items():
        name = spelled(key)
        said = walk.judge(name)
        kept = _kept(value, said, placeholder)
        if policy.deep and said is not WHOLE:
            kept = walk.inside(kept, name)
        copy = _replace(record, copy, key, kept)
    return record if copy is None else copy


def _walk(policy: RedactionPolicy, marks: Marks, placeholder: str, work: Work) -> Walk:
    names = policy.names

    def judge(name: str) -> Said:
        return WHOLE if name in marks else names.judge(name, work)

    def exact(dotted: str) -> bool:
        return dotted in marks or names.exact(dotted)

    marked = max((len(mark) for mark in marks if "." in mark), default=0)
    return Walk(judge, exact, names.patterns, max(names.reach, marked), placeholder, work)


def _kept(value: Any, said: object, placeholder: str) -> Any:
    if said is None:
        return value
    return hide_paths(value, said, placeholder) if isinstance(said, tuple) else placeholder


def _replace(
    record: Mapping[Any, Any], copy: dict[Any, Any] | None, key: Any, kept: Any
) -> dict[Any, Any] | None:
    if the_same(kept, record[key]):
        return copy
    if copy is None:
        copy = dict(record)
    copy[key] = kept
    return copy
