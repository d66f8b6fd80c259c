"""Tables of settings: classes of attrs whose fields say what may stand in a file. Read and described alike.

Rules:

* A field's metadata (`setting`) names its kind and says what it does; its default is the setting's. The JSON
  Schema, the names of variables of the environment and the reader all come from these fields.
* All keys of a table are read, whatever is wrong with one of them, so that one run tells everything.
* A key that a table of ours does not know is refused. One that a table of another client's does not know is
  told and passed over.
* What a flag or a variable says takes the place of what the file says (`Layers`), under the same key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from ._expand import MARK
from ._kinds import INVALID, Kind, Unfit, named
from ._place import DEFAULT
from ._problems import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._layers import Layers
    from ._place import Place

_VARIABLE: Final = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_KIND: Final = "afpool.kind"
_DOC: Final = "afpool.doc"


def setting(kind: Kind, doc: str) -> dict[str, Any]:
    """Make the metadata of a field: its kind, and one sentence for the schema."""
    return {_KIND: kind, _DOC: doc}


@attrs.frozen
class Field:
    """One setting of a table."""

    name: str
    kind: Kind
    doc: str
    default: Any
    spelled: str = attrs.field(default=attrs.Factory(lambda self: self.name, takes_self=True))
    """How a file spells it, where that is another client's."""

    @property
    def required(self) -> bool:
        """Whether it has to be there."""
        return self.default is attrs.NOTHING

    @property
    def made(self) -> Callable[[], Any] | None:
        """What makes its default, where that is a table of its own."""
        factory: Callable[[], Any] | None = getattr(self.default, "factory", None)
        return factory


class Rule(Protocol):
    """What holds between the settings of a table. Judged by which of them are there."""

    def problem(self, there: dict[str, Any], say: dict[str, Any]) -> str | None:
        """Say what is wrong; `there` holds what was given, `say` the values of all."""
        ...

    def schema(self) -> dict[str, Any]:
        """Say the same as JSON Schema."""
        ...


@attrs.frozen
class OneOf:
    """Exactly one of these, or at most one."""

    names: tuple[str, ...]
    needed: bool = True

    def problem(self, there: dict[str, Any], say: dict[str, Any]) -> str | None:  # noqa: ARG002
        """See `Rule`."""
        given = [name for name in self.names if name in there]
        if len(given) > 1:
            return f"{' and '.join(given)} cannot stand together"
        if self.needed and not given:
            return f"one of {', '.join(self.names)} is missing"
        return None

    def schema(self) -> dict[str, Any]:
        """See `Rule`."""
        each = [{"required": [name]} for name in self.names]
        if self.needed:
            return {"oneOf": each}
        return {"oneOf": [*each, {"not": {"anyOf": each}}]}


@attrs.frozen
class Needs:
    """Where the first stands, one of the others has to."""

    name: str
    others: tuple[str, ...]

    def problem(self, there: dict[str, Any], say: dict[str, Any]) -> str | None:  # noqa: ARG002
        """See `Rule`."""
        if self.name in there and not any(other in there for other in self.others):
            return f"{self.name} says nothing without {' or '.join(self.others)}"
        return None

    def schema(self) -> dict[str, Any]:
        """See `Rule`."""
        then = {"anyOf": [{"required": [other]} for other in self.others]}
        return {"if": {"required": [self.name]}, "then": then}


@attrs.frozen
class When:
    """Where a setting (or its default) says one word, these have to stand there and those cannot."""

    name: str
    word: str
    needed: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    default: bool = False
    """Whether that word is what the setting says where it is left out."""

    def problem(self, there: dict[str, Any], say: dict[str, Any]) -> str | None:
        """See `Rule`."""
        if say.get(self.name) != self.word:
            return None
        for name in self.needed:
            if name not in there:
                return f'{self.name} = "{self.word}" needs {name}'
        wrong = [name for name in self.barred if name in there]
        return f'{self.name} = "{self.word}" takes no {" and no ".join(wrong)}' if wrong else None

    def schema(self) -> dict[str, Any]:
        """See `Rule`."""
        then: dict[str, Any] = {}
        if self.needed:
            then["required"] = list(self.needed)
        if self.barred:
            then["not"] = {"anyOf": [{"required": [name]} for name in self.barred]}
        test: dict[str, Any] = {"properties": {self.name: {"const": self.word}}}
        if not self.default:
            test["required"] = [self.name]
        return {"if": test, "then": then}


def fields_of(table: type) -> tuple[Field, ...]:
    """Give the settings of a table, in order."""
    known: tuple[Field, ...] | None = table.__dict__.get("_afpool_fields")
    if known is None:
        known = tuple(
            Field(field.name, field.metadata[_KIND], field.metadata[_DOC], field.default)
            for field in attrs.fields(table)
            if _KIND in field.metadata
        )
        table._afpool_fields = known  # type: ignore[attr-defined]  # noqa: SLF001 -- a cache of our own
    return known


def rules_of(table: type) -> tuple[Rule, ...]:
    """Give what holds between the settings of a table."""
    rules: tuple[Rule, ...] = getattr(table, "RULES", ())
    return rules


def read_table(table: type, raw: Any, place: Place, layers: Layers | None = None) -> dict[str, Any] | None:
    """Read a table.

    Args:
        table: Its class.
        raw: What stands in the file.
        place: Where.
        layers: What is said beside the file.

    Returns:
        The values that were given; `None` where something is wrong, which was told.
    """
    before = len(place.reading.problems)
    given = read_fields(fields_of(table), raw, place, layers)
    if given is not None:
        judge(table, given, place)
    return given if len(place.reading.problems) == before else None


def judge(table: type, given: dict[str, Any], place: Place) -> None:
    """Tell what does not hold between the settings of a table."""
    say = {field.name: field.default for field in fields_of(table)} | given
    for rule in rules_of(table):
        problem = rule.problem(given, say)
        if problem is not None:
            place.refuse(problem, structural=True)


def read_fields(
    known: tuple[Field, ...], raw: Any, place: Place, layers: Layers | None = None, *, strict: bool = True
) -> dict[str, Any] | None:
    """Read settings, and tell of keys that are none: as problems, or where not `strict` as warnings.

    Returns:
        The values that were given, `INVALID` for those that cannot be read; `None` where it is no table.
    """
    if not isinstance(raw, dict):
        place.refuse(f"expected a table, not {named(raw)}", structural=True)
        return None
    names = [field.spelled for field in known]
    meant: set[str | None] = set()
    for name in raw:
        if name in names:
            continue
        near = nearest(name, names)
        if strict:
            place.child(name).refuse("there is no such setting", near, structural=True)
            meant.add(near)
        else:
            place.child(name).warn("it is not understood here and passed over", near)
    given: dict[str, Any] = {}
    for field in known:
        if field.spelled in meant and field.spelled not in raw:
            given[field.name] = INVALID  # it was misspelled, which is one mistake and not two
            continue
        value = _read_field(field, raw, place, layers)
        if value is not _ABSENT:
            given[field.name] = value
    return given


_ABSENT: Final[Any] = object()


def _read_field(field: Field, raw: dict[str, Any], place: Place, layers: Layers | None) -> Any:
    there = field.spelled in raw
    if layers is None and not there and not field.required:
        return _ABSENT  # most settings of most servers
    key = f"{place.key}.{field.name}" if place.key else field.name
    child = place.child(field.spelled, key=key)
    said = None if layers is None else layers.take(key)
    if said is not None:
        return said.read(field.kind, child)
    kind = field.kind
    if isinstance(kind, Record):
        beneath = layers is not None and layers.beneath(key)
        # a table that is not there has defaults of its own, and settings that may come from beside the file
        if there or beneath or field.made is not None:
            value = kind.read_record(raw.get(field.spelled, {}), child, layers)
            return value if there or beneath or value is INVALID else _ABSENT
    if there:
        value = kind.read(raw[field.spelled], child)
        if value is not INVALID and not hasattr(getattr(kind, "of", kind), "table"):
            note(kind, value, raw[field.spelled], child)
        return value
    if field.required:
        return place.refuse(f"{field.spelled} is missing ({kind.expects})", structural=True)
    _note_default(field, child)
    return _ABSENT


def _note_default(field: Field, child: Place) -> None:
    default = field.default if field.made is None else field.made()
    child.reading.origins[child.key] = DEFAULT
    child.reading.shown[child.key] = field.kind.shown(default, None)


def note(kind: Kind, value: Any, raw: Any, child: Place) -> None:
    """Keep where a value came from and what may be shown of it."""
    reading = child.reading
    reading.origins[child.key] = child.origin(variables_in(raw))
    reading.shown[child.key] = kind.shown(value, raw)


def variables_in(raw: Any) -> tuple[str, ...]:
    """Give the variables that are read for a text, or for the texts of a list."""
    texts = raw if isinstance(raw, list) else (raw,)
    found = [
        name for text in texts if isinstance(text, str) and MARK in text for name in _VARIABLE.findall(text)
    ]
    return tuple(dict.fromkeys(found)) if found else ()


def finished(record: Any, place: Place) -> Any:
    """Have a table judged by itself (`wrong`); `INVALID` where something cannot be, which was told."""
    before = len(place.reading.problems)
    for name, what in record.wrong() if hasattr(record, "wrong") else ():
        at = place
        for part in name.split(".", 1):
            at = at.child(part)
        at.refuse(what)
    return record if len(place.reading.problems) == before else INVALID


class Record(Kind):
    """A table inside a table.

    Args:
        table: Its class.
        short: A bare value stands for a table with this one setting.
    """

    def __init__(self, table: type, *, short: str | None = None) -> None:
        self.table = table
        self._short = short
        self.expects = "a table" if short is None else f"a table, or its {short}"

    def read_record(self, raw: Any, place: Place, layers: Layers | None = None) -> Any:
        """Read it."""
        if self._short is not None and not isinstance(raw, dict):
            raw = {self._short: raw}
        values = read_table(self.table, raw, place, layers)
        if values is None:
            return INVALID
        return finished(self.table(**values), place)

    def read(self, raw: Any, place: Place) -> Any:
        """See `Kind.read`."""
        return self.read_record(raw, place)

    def parse(self, text: str) -> Any:  # noqa: ARG002 -- as the port says
        """See `Kind.parse`."""
        raise Unfit(f"expected {self.expects}, which one text cannot say")

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        whole: dict[str, Any] = {"$ref": f"#/$defs/{self.table.__name__}"}
        if self._short is None:
            return whole
        kind = next(field.kind for field in fields_of(self.table) if field.name == self._short)
        return {"anyOf": [whole, kind.schema()]}
